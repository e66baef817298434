//! The parts of a table, as in JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use gemm_matrix::Element;
use kernels_gpu::abi::KernelDescriptor;
use serde::{Deserialize, Serialize};

use crate::device::Environment;
use crate::device::{Device, Peak};
use crate::error::Error;
use crate::plan::{Configuration, by_name};
use crate::problem::{Compute, Gemm};
use crate::select::digests;
use crate::select::product_key::{ProductKey, Stored, as_launched, dense};

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
    /// The multiprocessors' highest clock, in kHz.
    pub clock_khz: u32,
    /// FP32 lanes of each multiprocessor.
    pub lanes: u32,
    /// Bytes of the L2 cache.
    pub l2_bytes: u64,
    /// The peak memory bandwidth, in GB/s (10^9).
    pub memory_gbytes: f64,
    /// The time of the measurement, in seconds since 1970.
    pub unix_time: u64,
    /// The driver's version, if the system reports it.
    pub driver_version: Option<String>,
    /// The version of this library.
    pub host_version: String,
    /// The SHA-256 of each measured entry point's PTX.
    pub ptx_sha256: BTreeMap<String, String>,
    /// Entry points whose PTX changed after the measurement. The SHA-256 is of the PTX that the
    /// table accepts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub changed_since: BTreeMap<String, String>,
}

/// The costs of a kernel. A [`Model`](crate::select::Model) makes times of them.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// The kernel.
    #[serde(with = "by_name")]
    pub kernel: &'static KernelDescriptor,
    /// The first entry point.
    pub aligned: EntryCosts,
    /// The entry point for misaligned matrices, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaligned: Option<EntryCosts>,
}

/// The costs of an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryCosts {
    /// Blocks that are resident on a multiprocessor.
    pub resident: u32,
    /// A lone block's step along K, in nanoseconds. No other block is on its multiprocessor.
    pub step_ns: f64,
    /// A step along K of each of several blocks. They are resident together, and the time is in
    /// nanoseconds of the multiprocessor.
    pub shared_step_ns: f64,
    /// A block's start and last store, in nanoseconds.
    pub block_ns: f64,
    /// A tile's store, in nanoseconds of the multiprocessor.
    pub store_ns: f64,
    /// A further tile of the same block. It is relative to `block_ns` and `store_ns`.
    pub next_tile: f64,
    /// Meeting at a shared tile, in nanoseconds. It is for split-K and stream-K.
    pub reduction_ns: f64,
    /// Adding one block's partial sums, in nanoseconds. It is for split-K and stream-K.
    pub partial_ns: f64,
    /// The growth of a step for out-of-bounds tiles. It is for a tile that is almost entirely out
    /// of bounds.
    pub out_of_bounds: f64,
    /// The growth of `store_ns` for a misaligned C. Its rows do not begin on 16 bytes.
    pub misaligned_c: f64,
    /// The growth of `store_ns` for a C that is stored as the transpose of the result. It is for a
    /// kernel whose launch chooses.
    #[serde(default, skip_serializing_if = "is_default")]
    pub transposed_c: f64,
    /// The growth of a step for misaligned operands. Threads read an A or B whose rows do not begin
    /// on 16 bytes.
    pub misaligned_operand: f64,
    /// The part of a step that does not shrink with the columns of a tile. It is relative to the
    /// step of the widest tile.
    #[serde(default, skip_serializing_if = "is_default")]
    pub narrow_step: f64,
    /// The growth of a step of stream-K whose clusters begin within tiles.
    #[serde(default, skip_serializing_if = "is_default")]
    pub uneven_step: f64,
}

impl EntryCosts {
    /// The names and values of all costs.
    pub fn fields(&mut self) -> [(&'static str, &mut f64); 13] {
        [
            ("step_ns", &mut self.step_ns),
            ("shared_step_ns", &mut self.shared_step_ns),
            ("block_ns", &mut self.block_ns),
            ("store_ns", &mut self.store_ns),
            ("next_tile", &mut self.next_tile),
            ("reduction_ns", &mut self.reduction_ns),
            ("partial_ns", &mut self.partial_ns),
            ("out_of_bounds", &mut self.out_of_bounds),
            ("misaligned_c", &mut self.misaligned_c),
            ("transposed_c", &mut self.transposed_c),
            ("misaligned_operand", &mut self.misaligned_operand),
            ("narrow_step", &mut self.narrow_step),
            ("uneven_step", &mut self.uneven_step),
        ]
    }

    /// All times multiplied by this factor.
    #[must_use]
    pub fn times(mut self, factor: f64) -> Self {
        for (name, value) in self.fields() {
            if name.ends_with("_ns") {
                *value *= factor;
            }
        }
        self
    }
}

/// The costs of launches and memory, whatever the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceCosts {
    /// A launch that has nothing to do, in nanoseconds.
    pub launch_ns: f64,
    /// The rate of a copy, in GB/s (10^9). Bytes read and bytes written count.
    pub copy_gbytes: f64,
    /// The rate at which the L2 cache delivers what it holds, in GB/s (10^9).
    pub l2_gbytes: f64,
    /// The rate at which one multiprocessor reads device memory, in GB/s (10^9), if the others are
    /// idle.
    pub multiprocessor_gbytes: f64,
    /// Staging A and B, in nanoseconds, without their bytes.
    pub staging_ns: f64,
    /// Resident clusters of 1 to 8 blocks. A multiprocessor holds one of their blocks.
    pub clusters: [u32; 8],
    /// A store's growth for each vector of an epilogue. Scale and bias are vectors.
    pub vector: f64,
    /// A store's growth for an activation.
    pub activation: f64,
    /// A store's growth for each matrix that is read. It may be an old C or a residual.
    pub matrix: f64,
}

/// A product of dense matrices, and its fastest configuration.
///
/// Tables and [files of products](crate::select::ProductFile) have these records. In a table, a
/// kernel for f32 is among the table's `kernels`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredProduct {
    /// The precision.
    #[serde(default, skip_serializing_if = "is_default")]
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
    /// The number of products. Their matrices lie one below the other.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub batch: usize,
    /// The type of C. Only products in 16 bits distinguish types; for others it is f32.
    #[serde(default, skip_serializing_if = "is_default", with = "ElementName")]
    pub output: Element,
    /// Whether an old C is read (beta not 0). Only products in 16 bits distinguish this.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reads_c: bool,
    /// Whether there is an epilogue. Only products in 16 bits distinguish this.
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
    *count == 1
}

/// A configuration and its time.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timed {
    /// The configuration.
    #[serde(flatten)]
    pub configuration: Configuration,
    /// The time, in nanoseconds.
    pub ns: f64,
}

impl Measured {
    /// Describes this device before any kernel is measured. [`Measured::add`] adds kernels.
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

    /// Adds a kernel, with this program's PTX.
    pub fn add(&mut self, kernel: &KernelDescriptor) {
        self.ptx_sha256.extend(digests::of_kernel(self.capability, kernel));
    }
}

impl MeasuredProduct {
    /// Makes the record of a product. The product must be [able to have
    /// one](MeasuredProduct::is_possible).
    ///
    /// In f32, a batch that is launched as one product with more rows has that product's record.
    pub fn new(gemm: &Gemm, best: Timed) -> Self {
        let Stored { output, reads_c, has_epilogue } = Stored::of(gemm);
        let Gemm { compute, m, n, k, trans_a, trans_b, batch, .. } = as_launched(gemm);
        Self { compute, m, n, k, trans_a, trans_b, batch, output, reads_c, has_epilogue, best }
    }

    /// Whether a product can have a record.
    ///
    /// Its matrices are dense, or vectors of 16 bytes reach the same parts of A, B and C as in
    /// dense ones. Alpha is not 0. It is no batch of pointers. A batch that is launched as a batch
    /// shares neither A nor B.
    pub fn is_possible(gemm: &Gemm) -> bool {
        ProductKey::of(gemm).is_some()
    }

    /// The product of dense matrices. Its beta is 0, and it has no epilogue.
    pub fn gemm(&self) -> Gemm {
        let Self { compute, m, n, k, trans_a, trans_b, batch, output, .. } = *self;
        dense([m, n, k], [trans_a, trans_b], batch, compute).stored_as(output)
    }

    /// The key of products that the record covers.
    pub(in crate::select) fn key(&self) -> Option<ProductKey> {
        let Self { output, reads_c, has_epilogue, .. } = *self;
        Some(ProductKey::of(&self.gemm())?.stored(Stored { output, reads_c, has_epilogue }))
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
        write!(f, "`{}` in {} ns", self.configuration, self.ns)
    }
}

impl Timed {
    /// A configuration and its time, in nanoseconds.
    pub fn new(configuration: Configuration, ns: f64) -> Self {
        Self { configuration, ns }
    }
}

/// The names of types of elements.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Element", rename_all = "lowercase")]
enum ElementName {
    F32,
    Bf16,
    F16,
}
