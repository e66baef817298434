//! Checks products, and allocates their memory.

use std::sync::Arc;

use kernels_gpu::abi::{Arithmetic, KernelAbi, Reads, Shared};

use super::configuration::Configuration;
use super::kernel::Kernel;
use super::launches::LaunchPlan;
use super::planned::{Core, Plan};
use crate::device::{Limits, Stream};
use crate::error::Error;
use crate::launch::{Buffers, MapCache, Requirement, Staging};
use crate::problem::Gemm;

impl Kernel {
    /// Checks a product and allocates its memory, once for any number of calls.
    ///
    /// [`Kernel::plan`] has settings.
    ///
    /// # Errors
    ///
    /// See [`PlanBuilder::prepare`].
    pub fn prepare(&self, gemm: Gemm) -> Result<Plan<'static>, Error> {
        self.plan(gemm).prepare()
    }

    /// Begins a plan, with the settings of [`Kernel::prepare`].
    ///
    /// ```
    /// # use cuda_gemm::{Device, DeviceChoice, Gemm, find_kernel};
    /// # let device = Device::open(DeviceChoice::Soft)?;
    /// let kernel = device.kernel(find_kernel("tile_64x64")?)?;
    /// let product = kernel.plan(Gemm::new(64, 64, 4096)).splits(4).staged(true).prepare()?;
    /// assert_eq!(product.configuration().to_string(), "tile_64x64 in 4 splits, staged");
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn plan(&self, gemm: Gemm) -> PlanBuilder {
        PlanBuilder {
            kernel: self.clone(),
            gemm,
            configuration: Configuration::new(self.descriptor()),
            any_alignment: false,
            limits: self.device().info().limits,
            stream: self.device().stream(),
        }
    }
}

/// Settings of a plan: see [`Kernel::plan`] or [`Auto::plan`](crate::Auto::plan).
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Gemm, Limits, Stream};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let stream = Stream::new(&device)?;
/// let narrow = Limits { grid: [1; 3], ..device.info().limits };
/// let plan = device.auto()?.plan(Gemm::new(300, 200, 100))?;
/// // A and B may begin at any element, all goes to this stream, and blocks come one by one.
/// let product = plan.any_alignment().on(&stream).within(&narrow).prepare()?;
/// assert!(product.stream().is_same(&stream) && product.launch_plan().launches().len() > 1);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct PlanBuilder {
    kernel: Kernel,
    gemm: Gemm,
    configuration: Configuration,
    any_alignment: bool,
    limits: Limits,
    stream: Stream,
}

impl PlanBuilder {
    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The requested division of the product.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Divides the product like `configuration`; the kernel stays.
    pub fn divided(self, configuration: &Configuration) -> Self {
        let kernel = self.configuration.kernel;
        Self { configuration: Configuration { kernel, ..*configuration }, ..self }
    }

    /// Split-K: divides K among `splits` blocks per tile of C; 0 counts as 1.
    pub fn splits(mut self, splits: u32) -> Self {
        self.configuration.splits = splits;
        self
    }

    /// Stream-K with `clusters` clusters: see [`Configuration::clusters`].
    ///
    /// Memory for their partial sums is allocated. If there are `n` clusters for `n` tiles, each
    /// has one tile. 0 counts as 1.
    pub fn clusters(mut self, clusters: u32) -> Self {
        self.configuration.clusters = Some(clusters);
        self
    }

    /// Columns of a tile: see [`Configuration::columns`].
    ///
    /// The number is rounded up to a possible one. From the kernel's own on it has no effect.
    pub fn columns(mut self, columns: u32) -> Self {
        self.configuration.columns = Some(columns);
        self
    }

    /// Whether C is stored as the transpose of the result: see [`Configuration::transposes_c`].
    pub fn transposes_c(mut self, transposes_c: bool) -> Self {
        self.configuration.transposes_c = Some(transposes_c);
        self
    }

    /// Sets the blocks that share a multiprocessor: the most, or one with more stages.
    ///
    /// Any number below the most counts as one. See [`Configuration::blocks_per_multiprocessor`].
    pub fn blocks_per_multiprocessor(mut self, blocks: u32) -> Self {
        let most = self.configuration.kernel.blocks_per_multiprocessor();
        self.configuration.blocks_per_multiprocessor = (blocks < most).then_some(1);
        self
    }

    /// Operand staging, for a kernel with [`KernelAbi::SplitK`].
    ///
    /// Each call first copies an operand that is stored transposed, or is misaligned for 128-bit
    /// accesses. Without staging the kernel reads such operands element by element. Other kernels
    /// ignore this setting.
    pub fn staged(mut self, staged: bool) -> Self {
        self.configuration.staged = staged;
        self
    }

    /// Lets A and B begin at any element, not only on 16 bytes as driver allocations do.
    ///
    /// A kernel that needs more alignment allocates memory for copies of them.
    pub fn any_alignment(self) -> Self {
        Self { any_alignment: true, ..self }
    }

    /// Sets the stream of the product, by default the device's own.
    ///
    /// The stream belongs to the kernel's device. A, B and C belong to the same stream.
    pub fn on(self, stream: &Stream) -> Self {
        Self { stream: stream.clone(), ..self }
    }

    /// Sets limits tighter than the device's.
    ///
    /// A smaller grid makes more launches. Persistent blocks are at most one per multiprocessor of
    /// the limits.
    pub fn within(self, limits: &Limits) -> Self {
        Self { limits: self.limits.min(limits), ..self }
    }

    /// Checks the product, and allocates its memory.
    ///
    /// # Errors
    ///
    /// - The errors of [`LaunchPlan::new`].
    /// - [`Error::WrongDevice`] if the stream is another device's.
    /// - [`Error::Jit`] if the driver refuses the PTX.
    /// - [`Error::NotInPtx`] if the PTX for this device lacks the kernel.
    /// - [`Error::DeviceMemory`] and [`Error::Driver`].
    pub fn prepare(self) -> Result<Plan<'static>, Error> {
        let mut core = self.load()?;
        core.buffers = Buffers::new(&core.stream, core.launches.workspace())?;
        core.staging.allocate(&core.stream)?;
        Ok(Plan::new(Arc::new(core)))
    }

    /// Checks the product, and loads every entry point that its calls may use; allocates nothing.
    ///
    /// # Errors
    ///
    /// The errors of [`PlanBuilder::prepare`] that are not about memory.
    pub(crate) fn load(self) -> Result<Core, Error> {
        let Self { kernel, gemm, configuration, any_alignment, limits, stream } = self;
        if !stream.device().is_same(kernel.device()) {
            return Err(Error::WrongDevice { what: "the stream" });
        }
        let (descriptor, device) = (kernel.descriptor(), kernel.device());
        let launches = LaunchPlan::new(&configuration, gemm, &limits, &device.info().name)?;
        // The most over all plans.
        let shared = match descriptor.shared() {
            Shared::Stages { bytes, .. } => bytes[0].max(bytes[1]),
            Shared::Static(_) | Shared::Dynamic(_) => launches.shared_bytes(),
        };
        let shared = shared.min(device.info().limits.shared_optin);
        let load = |name| {
            let function = device.entry_point(name)?;
            if shared > device.info().limits.shared_default {
                function.allow_shared(shared)?;
            }
            Ok::<_, Error>(function)
        };
        let unaligned = descriptor.unaligned().map(|other| load(other.name)).transpose()?;
        let function = load(launches.entry_point())?;
        let requirements = requirements(&launches);
        let staging = Staging::new(device, &launches, &limits, requirements, any_alignment)?;
        let (staging, maps) = (Box::new(staging), MapCache::default());
        // An empty C has no tiles.
        let has_groups = gemm.is_grouped() && !launches.launches().is_empty();
        let grouping = has_groups.then(|| device.entry_point("group_tiles")).transpose()?;
        Ok(Core { stream, launches, function, unaligned, grouping, buffers: None, staging, maps })
    }
}

/// The alignment that these launches need of A and B.
fn requirements(launches: &LaunchPlan) -> [Requirement; 2] {
    let Configuration { kernel, staged, .. } = *launches.configuration();
    let staged = staged && kernel.abi() == KernelAbi::SplitK;
    let form = launches.form();
    let (reads, are_columns) = (form.reads(kernel), form.are_columns(kernel));
    let lie_transposed = [form.gemm.trans_a, form.gemm.trans_b];
    let is_read_as_it_lies = kernel.arithmetic() == Arithmetic::Bits16;
    [0, 1].map(|i| match reads[i] {
        // Kernels for 16 bits read no arrays of addresses of A and B.
        _ if is_read_as_it_lies && form.gemm.has_pointers() => {
            Requirement::AlignedRows { copied_transposed: lie_transposed[i] }
        }
        Reads::Copied => Requirement::Copy,
        Reads::Aligned if is_read_as_it_lies => {
            Requirement::AlignedRows { copied_transposed: lie_transposed[i] }
        }
        Reads::Aligned if kernel.abi().has_tensor_maps() => {
            Requirement::AlignedRows { copied_transposed: are_columns[i] }
        }
        Reads::Aligned if staged => Requirement::WholeVectors,
        Reads::Unaligned if staged => Requirement::Copy,
        Reads::Aligned | Reads::Unaligned | Reads::Anywhere => Requirement::None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compute, Device, DeviceChoice};

    /// Bytes of the copies that a product may need, and of A and B.
    fn staged(device: &Device, gemm: Gemm) -> [u128; 2] {
        let plan = device.auto().unwrap().plan(gemm).unwrap();
        let bytes = plan.any_alignment().load().unwrap().staging.bytes();
        let [[rows_a, cols_a], [rows_b, cols_b], _] =
            gemm.shapes().map(|shape| shape.map(|size| size as u128));
        [bytes, 4 * gemm.batch as u128 * (rows_a * cols_a + rows_b * cols_b)]
    }

    /// Checks that copies are at most a sixteenth of all matrices, or some megabytes, larger than A
    /// and B.
    #[test]
    fn copies_of_rows_and_columns_are_no_larger_than_these() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let max = crate::problem::MAX_DIMENSION;
        let layouts = [[false, false], [true, false], [false, true], [true, true]];
        for compute in [Compute::F32, Compute::Tf32, Compute::Tf32x3] {
            for [m, n, k] in [[1, 1, max], [max, 1, 1], [1, max, 1], [7, 1, max], [max, 1, 100]] {
                for [trans_a, trans_b] in layouts {
                    let gemm = Gemm::new(m, n, k).transposed(trans_a, trans_b);
                    let [bytes, own] = staged(&device, gemm.computed_in(compute));
                    let all = own + 4 * (m * n) as u128;
                    assert!(bytes <= own + all / 16 + (16 << 20), "{gemm:?}: {bytes} of {own}");
                }
            }
        }
        // With bulk copies: dense and with gaps, one product and several.
        for kernel in Compute::Tf32.kernels().filter(|kernel| kernel.abi().has_tensor_maps()) {
            let kernel = device.kernel(kernel).unwrap();
            for (gemm, needed) in [
                (Gemm::new(1, 1, 1003), 0),
                (Gemm::new(1, 1, 1003).transposed(true, true), 0),
                (Gemm::new(1, 1, 1003).leading_dimensions(1005, 1, 1), 0),
                // Long rows of a copy begin on cache lines.
                (Gemm::new(1, 1, 1003).leading_dimensions(1003, 3, 1), 4 * 1024),
                (Gemm::new(1, 1, 1003).stacked(5), 2 * 5 * 4 * 1024),
                (Gemm::new(9, 1, 1004).stacked(5), 0),
            ] {
                let bytes = kernel.plan(gemm).load().unwrap().staging.bytes();
                assert_eq!(bytes, needed, "{gemm:?}");
            }
        }
    }
}
