//! How products are checked, and get the memory that they need.

use std::iter;

use kernels_gpu::abi::{KernelAbi, Reads};

use super::kernel::{EntryPoints, Kernel};
use super::plan::Plan;
use super::staging::{Requirement, Staging};
use super::workspace::Buffers;
use crate::error::Error;
use crate::gemm::{Gemm, LaunchPlan};
use crate::limits::Limits;
use crate::stream::Stream;

impl Kernel {
    /// Checks a product against the rung and the device, once for any number of calls, and
    /// allocates the memory that these need. [`Kernel::plan`] has settings.
    ///
    /// # Errors
    ///
    /// Those of [`PlanBuilder::prepare`].
    pub fn prepare(&self, gemm: Gemm) -> Result<Plan, Error> {
        self.plan(gemm).prepare()
    }

    /// How to prepare a product: as [`Kernel::prepare`] does, until told otherwise.
    ///
    /// ```
    /// # use cuda_gemm::{Device, DeviceChoice, Gemm, find_kernel};
    /// # let device = Device::open(DeviceChoice::Soft)?;
    /// let kernel = device.kernel(find_kernel("tile_64x64")?)?;
    /// let product = kernel.plan(Gemm::new(64, 64, 4096)).splits(4).staged(true).prepare()?;
    /// assert_eq!(product.launch_plan().splits(), 4);
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn plan(&self, gemm: Gemm) -> PlanBuilder {
        PlanBuilder {
            kernel: self.clone(),
            gemm,
            splits: 1,
            staged: false,
            any_alignment: false,
            limits: self.device().info().limits,
            stream: self.device().stream(),
        }
    }
}

/// How a product is prepared: see [`Kernel::plan`], or [`Auto::plan`](crate::Auto::plan).
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
#[derive(Debug)]
#[must_use]
pub struct PlanBuilder {
    kernel: Kernel,
    gemm: Gemm,
    splits: u32,
    staged: bool,
    any_alignment: bool,
    limits: Limits,
    stream: Stream,
}

impl PlanBuilder {
    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Split-K: K is split among so many blocks per tile of C, and 0 counts as 1; see
    /// [`LaunchPlan::split`].
    pub fn splits(self, splits: u32) -> Self {
        Self { splits, ..self }
    }

    /// Operand staging, for a kernel that can split K: where 128-bit accesses do not reach A or
    /// B, or an operand lies across, it computes with copies of them, made anew by each call, instead of
    /// copying one by one. Where they do, or for another kernel, that changes nothing.
    pub fn staged(self, staged: bool) -> Self {
        Self { staged, ..self }
    }

    /// A and B may begin at any element, rather than on 16 bytes as what a driver allocates does.
    /// A kernel with bulk copies, or with [`PlanBuilder::staged`], allocates memory for copies of
    /// them; for others that changes nothing, since they need none.
    pub fn any_alignment(self) -> Self {
        Self { any_alignment: true, ..self }
    }

    /// The stream that the product goes to, of the kernel's device; its own one until told
    /// otherwise. A, B and C belong to the same stream.
    pub fn on(self, stream: &Stream) -> Self {
        Self { stream: stream.clone(), ..self }
    }

    /// Limits that may be tighter than the device's: a smaller grid makes more launches, and
    /// persistent blocks are as few as multiprocessors.
    pub fn within(self, limits: &Limits) -> Self {
        Self { limits: self.limits.min(limits), ..self }
    }

    /// Checks the product, and allocates the memory that it needs.
    ///
    /// # Errors
    ///
    /// Those of [`LaunchPlan::split`], [`Error::WrongDevice`] if the stream is another device's,
    /// [`Error::DeviceMemory`] and [`Error::Driver`].
    pub fn prepare(self) -> Result<Plan, Error> {
        let Loaded { kernel, stream, plan, mut staging } = self.load()?;
        let buffers = Buffers::new(&stream, plan.workspace())?;
        staging.allocate(&stream)?;
        Ok(Plan::new(kernel, stream, plan, buffers, staging))
    }

    /// Checks the product, and loads every entry point that its calls may take.
    ///
    /// # Errors
    ///
    /// Those of [`PlanBuilder::prepare`] that are not about memory.
    pub(crate) fn load(self) -> Result<Loaded, Error> {
        let Self { kernel, gemm, splits, staged, any_alignment, limits, stream } = self;
        if !stream.device().is_same(kernel.device()) {
            return Err(Error::WrongDevice { what: "the stream" });
        }
        let (descriptor, info) = (kernel.descriptor(), kernel.device().info());
        let plan = LaunchPlan::split(descriptor, gemm, splits, &limits, &info.name)?;
        let EntryPoints { function, unaligned } = kernel.entry_points();
        if plan.shared_bytes() > info.limits.shared_default {
            for function in iter::once(function).chain(unaligned) {
                function.allow_shared(plan.shared_bytes())?;
            }
        }
        let staged = staged && descriptor.abi() == KernelAbi::SplitK;
        let (reads, are_columns) =
            (plan.form().reads(descriptor), plan.form().are_columns(descriptor));
        let requirements = [0, 1].map(|i| match reads[i] {
            Reads::Copied => Requirement::Copy,
            Reads::Aligned if descriptor.abi().has_tensor_maps() => {
                Requirement::AlignedRows { copied_transposed: are_columns[i] }
            }
            Reads::Aligned if staged => Requirement::WholeVectors,
            Reads::Unaligned if staged => Requirement::Copy,
            Reads::Aligned | Reads::Unaligned | Reads::Anywhere => Requirement::None,
        });
        let staging = Staging::new(kernel.device(), &plan, &limits, requirements, any_alignment)?;
        Ok(Loaded { kernel, stream, plan, staging: Box::new(staging) })
    }
}

/// A product that is checked, and whose entry points are loaded.
pub(crate) struct Loaded {
    kernel: Kernel,
    stream: Stream,
    plan: LaunchPlan,
    staging: Box<Staging>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compute, Device, DeviceChoice};

    /// Bytes of copies that a product may need, and those of A and B.
    fn staged(device: &Device, gemm: Gemm) -> [u128; 2] {
        let plan = device.auto().unwrap().plan(gemm).unwrap();
        let bytes = plan.any_alignment().load().unwrap().staging.bytes();
        let [[rows_a, cols_a], [rows_b, cols_b], _] =
            gemm.shapes().map(|shape| shape.map(|size| size as u128));
        [bytes, 4 * gemm.batch as u128 * (rows_a * cols_a + rows_b * cols_b)]
    }

    /// Copies are no larger than A and B, but for a sixteenth of all matrices, or some megabytes.
    #[test]
    fn copies_of_rows_and_columns_are_no_larger_than_these() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let max = crate::gemm::MAX_DIMENSION;
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
        // By bulk copies, with gaps and without, of one product and of several.
        for kernel in Compute::Tf32.f32_kernels().filter(|kernel| kernel.abi().has_tensor_maps()) {
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
