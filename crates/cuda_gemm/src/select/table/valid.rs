//! The rules that every table follows.

use std::collections::{HashMap, HashSet};
use std::fmt;

use kernels_gpu::abi::{Arithmetic, Target};

use super::parts::{Costs, DeviceCosts, EntryCosts, Measured, MeasuredProduct, Parts, Timed};
use crate::plan::Configuration;

/// The most resident blocks per multiprocessor, on any device.
const MAX_RESIDENT: u32 = 32;

/// Checks a table. The error says what is wrong.
pub(super) fn check(table: &Parts) -> Result<(), String> {
    let Parts { device, costs, kernels, products } = table;
    check_device(device)?;
    check_device_costs(costs)?;
    if kernels.is_empty() {
        return Err("it has no kernels".to_owned());
    }
    let mut names = HashSet::new();
    for costs in kernels {
        let name = costs.kernel.name();
        check_costs(costs, device).map_err(|reason| format!("`{name}`: {reason}"))?;
        if !names.insert(name) {
            return Err(format!("there are two `{name}`"));
        }
    }
    let mut known: HashMap<_, &MeasuredProduct> = HashMap::new();
    for product in products {
        check_product(product, device.capability)
            .and_then(|()| check_digests(product, device, &names))
            .map_err(|reason| format!("product {product}: {reason}"))?;
        if let Some(first) = known.insert(product.key(), product) {
            let (first, second) = (first.to_string(), product.to_string());
            return Err(match first == second {
                true => format!("there are two products {first}"),
                false => format!("{first} and {second} are the same product"),
            });
        }
    }
    Ok(())
}

fn check_device(device: &Measured) -> Result<(), String> {
    at_least_1("multiprocessors", device.multiprocessors)?;
    at_least_1("clock_khz", device.clock_khz)?;
    at_least_1("lanes", device.lanes)?;
    positive("memory_gbytes", device.memory_gbytes)?;
    for (name, digest) in device.ptx_sha256.iter().chain(&device.changed_since) {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digest.len() != 64 || !digest.bytes().all(is_hex) {
            return Err(format!(
                "the SHA-256 of `{name}` is `{digest}`, and must be 64 hex digits"
            ));
        }
    }
    Ok(())
}

fn check_device_costs(costs: &DeviceCosts) -> Result<(), String> {
    let DeviceCosts { launch_ns, copy_gbytes, l2_gbytes, staging_ns, clusters, .. } = *costs;
    positive("launch_ns", launch_ns)?;
    positive("copy_gbytes", copy_gbytes)?;
    positive("l2_gbytes", l2_gbytes)?;
    positive("multiprocessor_gbytes", costs.multiprocessor_gbytes)?;
    not_negative("staging_ns", staging_ns)?;
    for count in clusters {
        at_least_1("clusters", count)?;
    }
    not_negative("vector", costs.vector)?;
    not_negative("activation", costs.activation)?;
    not_negative("matrix", costs.matrix)
}

fn check_costs(costs: &Costs, device: &Measured) -> Result<(), String> {
    let Costs { kernel, aligned, unaligned } = costs;
    if kernel.target() == Target::Sm90a && device.capability != (9, 0) {
        let (major, minor) = device.capability;
        return Err(format!("it needs compute capability 9.0, and the device has {major}.{minor}"));
    }
    if unaligned.is_some() != kernel.unaligned().is_some() {
        let has = if unaligned.is_some() { "has no" } else { "has an" };
        return Err(format!("the kernel {has} entry point for `unaligned`"));
    }
    check_entry("aligned", aligned)?;
    unaligned.iter().try_for_each(|costs| check_entry("unaligned", costs))
}

fn check_entry(entry: &str, costs: &EntryCosts) -> Result<(), String> {
    if !(1..=MAX_RESIDENT).contains(&costs.resident) {
        let resident = costs.resident;
        return Err(format!(
            "`{entry}.resident` is {resident}, and must be from 1 to {MAX_RESIDENT}"
        ));
    }
    positive(format_args!("{entry}.step_ns"), costs.step_ns)?;
    for (field, value) in costs.clone().fields() {
        not_negative(format_args!("{entry}.{field}"), *value)?;
    }
    Ok(())
}

/// Checks a record for a device's compute capability.
pub(in crate::select) fn check_product(
    product: &MeasuredProduct,
    capability: (u32, u32),
) -> Result<(), String> {
    let MeasuredProduct { m, n, k, batch, best, .. } = product;
    let gemm = product.gemm();
    gemm.validate().map_err(|error| error.to_string())?;
    for (what, size) in [("m", m), ("n", n), ("k", k), ("batch", batch)] {
        at_least_1(what, *size)?;
    }
    if !product.compute.is_16_bits() && (product.reads_c || product.has_epilogue) {
        return Err("`reads_c` and `has_epilogue` are of products in 16 bits".to_owned());
    }
    let Timed { configuration, ns } = *best;
    let Configuration { splits, clusters, blocks_per_multiprocessor, .. } = configuration;
    at_least_1("best.splits", splits)?;
    for (what, count) in
        [("clusters", clusters), ("blocks_per_multiprocessor", blocks_per_multiprocessor)]
    {
        at_least_1(format_args!("best.{what}"), count.unwrap_or(1))?;
    }
    positive("best.ns", ns)?;
    let possible = configuration.expect_possible(&gemm, capability);
    possible.map_err(|reason| format!("`best`: {reason}"))
}

/// Checks that a record's kernel has digests or costs. In f32 the kernel must be among the table's
/// `kernels`.
fn check_digests(
    product: &MeasuredProduct,
    device: &Measured,
    kernels: &HashSet<&str>,
) -> Result<(), String> {
    let kernel = product.best.configuration.kernel;
    let is_for_tensor_cores = kernel.arithmetic() != Arithmetic::Fma;
    let kernel = kernel.name();
    if !is_for_tensor_cores && !kernels.contains(kernel) {
        return Err(format!("`best`: `{kernel}` is not among the table's `kernels`"));
    }
    if is_for_tensor_cores && !device.ptx_sha256.contains_key(kernel) {
        return Err(format!("`best`: `{kernel}` is not in the device's `ptx_sha256`"));
    }
    Ok(())
}

/// Bounds of all measurements. Sums and quotients of numbers within them are finite.
const LEAST: f64 = 1e-9;
const MOST: f64 = 1e15;

fn positive(what: impl fmt::Display, value: f64) -> Result<(), String> {
    match (LEAST..=MOST).contains(&value) {
        true => Ok(()),
        false => Err(format!("`{what}` is {value:?}, and must be from {LEAST:e} to {MOST:e}")),
    }
}

fn not_negative(what: impl fmt::Display, value: f64) -> Result<(), String> {
    match (0.0..=MOST).contains(&value) {
        true => Ok(()),
        false => Err(format!("`{what}` is {value:?}, and must be from 0 to {MOST:e}")),
    }
}

fn at_least_1<T: Default + PartialEq>(what: impl fmt::Display, count: T) -> Result<(), String> {
    match count == T::default() {
        true => Err(format!("`{what}` is 0, and must be at least 1")),
        false => Ok(()),
    }
}
