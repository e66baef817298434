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
    pub(super) costs: DeviceCosts,
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
    /// The first entry point.
    pub aligned: EntryCosts,
    /// The entry point for misaligned matrices, if the kernel has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaligned: Option<EntryCosts>,
}

/// What an entry point takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryCosts {
    /// Blocks that are resident on a multiprocessor.
    pub resident: u32,
    /// A step along K of a block that is alone on its multiprocessor, in nanoseconds.
    pub step_ns: f64,
    /// A step along K of each of several resident blocks, in nanoseconds of the multiprocessor.
    pub shared_step_ns: f64,
    /// The start of a block, and its last store, in nanoseconds.
    pub block_ns: f64,
    /// A tile's store, in nanoseconds of the multiprocessor.
    pub store_ns: f64,
    /// A further tile of the same block, relative to `block_ns` and `store_ns`.
    pub next_tile: f64,
    /// Split-K and stream-K: to meet at a shared tile, in nanoseconds.
    pub reduction_ns: f64,
    /// Split-K and stream-K: to add one block's partial sums, in nanoseconds.
    pub partial_ns: f64,
    /// The growth of a step for a tile that lies almost entirely out of bounds.
    pub out_of_bounds: f64,
    /// The growth of `store_ns` for a C whose rows do not begin on 16 bytes.
    pub misaligned_c: f64,
    /// The growth of a step for an A or B that the threads read and whose rows do not begin on 16
    /// bytes.
    pub misaligned_operand: f64,
}

impl EntryCosts {
    /// All times multiplied by this factor.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let times = |ns: f64| factor * ns;
        Self {
            step_ns: times(self.step_ns),
            shared_step_ns: times(self.shared_step_ns),
            block_ns: times(self.block_ns),
            store_ns: times(self.store_ns),
            reduction_ns: times(self.reduction_ns),
            partial_ns: times(self.partial_ns),
            ..self
        }
    }
}

/// What launches and memory take, whatever the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceCosts {
    /// A launch that has nothing to do, in nanoseconds.
    pub launch_ns: f64,
    /// Bytes read plus bytes written in a copy, in GB/s (10^9).
    pub copy_gbytes: f64,
    /// The copies of A and B before a product, without their bytes, in nanoseconds.
    pub staging_ns: f64,
    /// Clusters of 1 to 8 blocks that run at once, with one block per multiprocessor.
    pub clusters: [u32; 8],
    /// The growth of a tile's store for each vector of an epilogue: a scale or a bias.
    pub vector: f64,
    /// The growth of a tile's store for an activation.
    pub activation: f64,
    /// The growth of a tile's store for each matrix that is read: an old C or a residual.
    pub matrix: f64,
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
