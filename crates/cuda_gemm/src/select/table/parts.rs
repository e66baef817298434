//! The parts of a table, as they are in JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use gemm_matrix::Element;
use kernels_gpu::abi::KernelDescriptor;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::device::Environment;
use crate::device::{Device, Peak};
use crate::error::Error;
use crate::plan::{Configuration, find_kernel};
use crate::problem::{Compute, Gemm};
use crate::select::digests;
use crate::select::product_key::{ProductKey, Store, as_launched, dense};

/// A [`Table`](crate::Table) before it is checked, and in JSON.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parts {
    pub(super) device: Measured,
    pub(super) launch_ns: f64,
    pub(super) copy_gbytes: f64,
    pub(super) kernels: Vec<Costs>,
    pub(super) products: Vec<MeasuredProduct>,
}

/// Where and with what a [`Table`](crate::Table) was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The name the driver gives the device.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// The highest clock of these, in kHz.
    pub clock_khz: u32,
    /// FP32 lanes of each.
    pub lanes: u32,
    /// Bytes of the L2 cache.
    pub l2_bytes: u64,
    /// What the memory can do at best, in GB/s (10^9).
    pub memory_gbytes: f64,
    /// When, in seconds since 1970.
    pub unix_time: u64,
    /// The driver's version, where the system told.
    pub driver_version: Option<String>,
    /// The version of this library.
    pub host_version: String,
    /// The SHA-256 of the PTX of each entry point that was measured.
    pub ptx_sha256: BTreeMap<String, String>,
    /// Entry points whose PTX has changed since, as the table openly says: the SHA-256 of what is
    /// taken in place of what was measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub changed_since: BTreeMap<String, String>,
}

/// What a kernel takes: see [`Model`](crate::select::Model) for how these make a time.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// The kernel.
    #[serde(serialize_with = "name", deserialize_with = "by_name")]
    pub kernel: &'static KernelDescriptor,
    /// With one block per multiprocessor, with two, and so on to as many as fit.
    pub aligned: Vec<Pace>,
    /// The same for the entry point for matrices that are not aligned; empty if the kernel
    /// has none.
    pub unaligned: Vec<Pace>,
    /// Another wave of as many blocks as the last of `aligned`, after the first one: waves overlap.
    /// `None` where it was not measured, or for persistent blocks: it takes as long as the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aligned_wave: Option<Pace>,
    /// The same for `unaligned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaligned_wave: Option<Pace>,
    /// For a tile of C that several blocks share: to store their sums, and for the
    /// last one to know that it is the last.
    #[serde(rename = "join_ns")]
    pub reduction_ns: f64,
    /// For each of these blocks: to add up what it left.
    #[serde(rename = "piece_ns")]
    pub partial_ns: f64,
    /// For a persistent block: to go from one tile to the next.
    pub tile_ns: f64,
    /// How many times as long blocks take where C has fewer columns than a tile: all of them read the
    /// same few cache lines of B, and of its copies most bring zeros.
    #[serde(default = "same", skip_serializing_if = "is_same")]
    pub narrow: f64,
    /// How many times as long where B lies as its transpose, and is read so.
    #[serde(default = "same", skip_serializing_if = "is_same")]
    pub transposed_b: f64,
}

fn same() -> f64 {
    1.0
}

fn is_same(factor: &f64) -> bool {
    *factor == same()
}

/// How fast blocks are that share a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// From the beginning of a block to its end, without the steps.
    pub fixed_ns: f64,
    /// A step along K, all of the blocks together.
    pub step_ns: f64,
}

impl Pace {
    /// So many times as slow.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { fixed_ns: factor * self.fixed_ns, step_ns: factor * self.step_ns }
    }
}

/// A product of dense matrices, and the fastest configuration that was measured for it.
///
/// Tables and [files of products](crate::select::ProductFile) have these records. In a table, a
/// kernel for f32 is among the table's `kernels`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredProduct {
    /// What it is computed in.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        serialize_with = "compute_name",
        deserialize_with = "compute_by_name"
    )]
    pub compute: Compute,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Whether A lies transposed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub trans_a: bool,
    /// Whether B lies transposed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub trans_b: bool,
    /// How many products there are, whose matrices lie one below the other.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub batch: usize,
    /// The type of C, in 16 bits; otherwise it makes no difference, and is f32.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        serialize_with = "element_name",
        deserialize_with = "element_by_name"
    )]
    pub output: Element,
    /// Likewise, whether an old C is read: beta is not 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reads_c: bool,
    /// Likewise, whether there is an epilogue.
    #[serde(default, skip_serializing_if = "is_default")]
    pub has_epilogue: bool,
    /// The fastest configuration that was measured.
    pub best: Timed,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn one() -> usize {
    1
}

fn is_one(count: &usize) -> bool {
    *count == one()
}

/// A configuration and its time.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timed {
    /// The kernel.
    #[serde(serialize_with = "name", deserialize_with = "by_name")]
    pub kernel: &'static KernelDescriptor,
    /// Parts of K, each for blocks of their own.
    pub splits: u32,
    /// See [`Configuration::clusters`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub clusters: Option<u32>,
    /// See [`Configuration::blocks_per_multiprocessor`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub blocks_per_multiprocessor: Option<u32>,
    /// Whether A and B are copied first.
    #[serde(default, rename = "packed")]
    pub staged: bool,
    /// The time.
    pub ns: f64,
}

impl Measured {
    /// This device, now, before any kernel is measured: see [`Measured::add`].
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn now(device: &Device) -> Result<Self, Error> {
        let info = device.info();
        let environment = Environment::of(device)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        // The software device has no clock, and a table needs numbers.
        let peak = info.peak.unwrap_or(Peak { clock_khz: 1, multiprocessors: 1, lanes: 1 });
        Ok(Self {
            name: info.name.clone(),
            capability: info.capability,
            multiprocessors: peak.multiprocessors,
            clock_khz: peak.clock_khz,
            lanes: peak.lanes,
            l2_bytes: info.l2_bytes,
            memory_gbytes: info.memory_gbytes.unwrap_or(1.0),
            unix_time: now.map_or(0, |time| time.as_secs()),
            driver_version: environment.driver_version,
            host_version: environment.host_version.to_owned(),
            ptx_sha256: digests::of_every_table(info.capability),
            changed_since: BTreeMap::new(),
        })
    }

    /// Adds a kernel that is measured with its PTX in this program.
    pub fn add(&mut self, kernel: &KernelDescriptor) {
        self.ptx_sha256.extend(digests::of_kernel(self.capability, kernel));
    }
}

impl MeasuredProduct {
    /// Makes the record of a product that [can have one](MeasuredProduct::is_possible).
    ///
    /// In f32, a batch that is launched as one product with more rows has that product's record.
    pub fn new(gemm: &Gemm, best: Timed) -> Self {
        let Store { output, reads_c, has_epilogue } = Store::of(gemm);
        let Gemm { compute, m, n, k, trans_a, trans_b, batch, .. } = as_launched(gemm);
        Self { compute, m, n, k, trans_a, trans_b, batch, output, reads_c, has_epilogue, best }
    }

    /// Whether a product can have a record.
    ///
    /// Its matrices are dense, or vectors of 16 bytes reach the same parts of A and B as in dense
    /// ones; in f32 also of C. Alpha is not 0. It is no batch of pointers, and a batch shares
    /// neither A nor B.
    pub fn is_possible(gemm: &Gemm) -> bool {
        ProductKey::of(gemm).is_some()
    }

    /// The product, of dense matrices, with beta 0 and without an epilogue.
    pub fn gemm(&self) -> Gemm {
        let Self { compute, m, n, k, trans_a, trans_b, batch, output, .. } = *self;
        dense([m, n, k], [trans_a, trans_b], batch, compute).stored_as(output)
    }

    /// The key of the products that the record holds for.
    pub(in crate::select) fn key(&self) -> Option<ProductKey> {
        let Self { output, reads_c, has_epilogue, .. } = *self;
        Some(ProductKey::of(&self.gemm())?.stored(Store { output, reads_c, has_epilogue }))
    }
}

/// In words, as in `bf16 10*64x64x256:TN`.
impl fmt::Display for MeasuredProduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { compute, m, n, k, trans_a, trans_b, batch, .. } = *self;
        if compute != Compute::F32 {
            write!(f, "{compute} ")?;
        }
        if batch != 1 {
            write!(f, "{batch}*")?;
        }
        write!(f, "{m}x{n}x{k}")?;
        let op = |trans: bool| if trans { 'T' } else { 'N' };
        if trans_a || trans_b {
            write!(f, ":{}{}", op(trans_a), op(trans_b))?;
        }
        if self.output != Element::F32 {
            write!(f, ", C in {}", self.output)?;
        }
        f.write_str(if self.reads_c { ", beta" } else { "" })?;
        f.write_str(if self.has_epilogue { ", epilogue" } else { "" })
    }
}

impl fmt::Debug for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in {} ns", self.configuration(), self.ns)
    }
}

impl Timed {
    /// A configuration that took so many nanoseconds.
    pub fn new(configuration: Configuration, ns: f64) -> Self {
        let Configuration { kernel, splits, clusters, blocks_per_multiprocessor, staged } =
            configuration;
        Self { kernel, splits, clusters, blocks_per_multiprocessor, staged, ns }
    }

    /// Without the time.
    pub fn configuration(&self) -> Configuration {
        let Self { kernel, splits, clusters, blocks_per_multiprocessor, staged, .. } = *self;
        Configuration { kernel, splits, clusters, blocks_per_multiprocessor, staged }
    }
}

fn compute_name<S: Serializer>(compute: &Compute, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(compute.name())
}

fn compute_by_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Compute, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

fn element_name<S: Serializer>(element: &Element, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(element.name())
}

fn element_by_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Element, D::Error> {
    let name = String::deserialize(deserializer)?;
    let known = Element::ALL.into_iter().find(|known| known.name() == name);
    known.ok_or_else(|| D::Error::custom(format!("there is no type `{name}` of elements")))
}

fn name<S: Serializer>(
    descriptor: &&'static KernelDescriptor,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(descriptor.name())
}

fn by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<&'static KernelDescriptor, D::Error> {
    let name = String::deserialize(deserializer)?;
    find_kernel(&name).map_err(D::Error::custom)
}
