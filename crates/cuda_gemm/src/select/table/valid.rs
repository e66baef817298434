//! What every table keeps to.

use std::collections::{HashMap, HashSet};
use std::fmt;

use kernels_gpu::abi::Arithmetic;

use super::parts::{Costs, Measured, MeasuredProduct, Pace, Parts, Timed};

/// The most blocks that a multiprocessor holds at once, on every device.
const MAX_RESIDENT: usize = 32;

/// What is wrong with a table, if anything is.
pub(super) fn check(table: &Parts) -> Result<(), String> {
    let Parts { device, launch_ns, copy_gbytes, kernels, products } = table;
    check_device(device)?;
    positive("launch_ns", *launch_ns)?;
    positive("copy_gbytes", *copy_gbytes)?;
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

fn check_costs(costs: &Costs, device: &Measured) -> Result<(), String> {
    let Costs { kernel, aligned, unaligned, reduction_ns, partial_ns, tile_ns, .. } = costs;
    if kernel.abi().has_tensor_maps() && device.capability != (9, 0) {
        let (major, minor) = device.capability;
        return Err(format!("it needs compute capability 9.0, and the device has {major}.{minor}"));
    }
    if !(1..=MAX_RESIDENT).contains(&aligned.len()) {
        let count = aligned.len();
        return Err(format!("`aligned` has {count} entries, and must have 1 to {MAX_RESIDENT}"));
    }
    let wanted = if kernel.unaligned().is_some() { aligned.len() } else { 0 };
    if unaligned.len() != wanted {
        let count = unaligned.len();
        return Err(format!("`unaligned` has {count} entries, and must have {wanted}"));
    }
    let check_pace = |place: fmt::Arguments<'_>, pace: &Pace| {
        not_negative(format_args!("{place}.fixed_ns"), pace.fixed_ns)?;
        positive(format_args!("{place}.step_ns"), pace.step_ns)
    };
    for (list, paces) in [("aligned", aligned), ("unaligned", unaligned)] {
        for (i, pace) in paces.iter().enumerate() {
            check_pace(format_args!("{list}[{i}]"), pace)?;
        }
    }
    for (name, wave) in [("aligned", &costs.aligned_wave), ("unaligned", &costs.unaligned_wave)] {
        if let Some(wave) = wave {
            check_pace(format_args!("{name}_wave"), wave)?;
        }
    }
    not_negative("join_ns", *reduction_ns)?;
    not_negative("piece_ns", *partial_ns)?;
    not_negative("tile_ns", *tile_ns)?;
    positive("narrow", costs.narrow)?;
    positive("transposed_b", costs.transposed_b)
}

/// The problem of a record for a device of this compute capability, if there is one.
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
    let Timed { splits, clusters, blocks_per_multiprocessor, ns, .. } = *best;
    at_least_1("best.splits", splits)?;
    for (what, count) in
        [("clusters", clusters), ("blocks_per_multiprocessor", blocks_per_multiprocessor)]
    {
        at_least_1(format_args!("best.{what}"), count.unwrap_or(1))?;
    }
    positive("best.ns", ns)?;
    let possible = best.configuration().expect_possible(&gemm, capability);
    possible.map_err(|reason| format!("`best`: {reason}"))
}

/// Checks that a table has digests of a record's kernel.
fn check_digests(
    product: &MeasuredProduct,
    device: &Measured,
    kernels: &HashSet<&str>,
) -> Result<(), String> {
    let kernel = product.best.kernel;
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

/// What no measurement is below or above, so that no sum or quotient of some is infinite.
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
