//! Products that are checked, and wait for their matrices.

use std::fmt;

use cust::memory::DevicePointer;

use super::alignment::is_aligned;
use super::expected::{expect_matrix, expect_planned};
use super::extras::{Extras, RawExtras};
use super::kernel::Kernel;
use super::map_cache::MapCache;
use super::staging::Staging;
use super::tensor_map::PartKey;
use super::workspace::Buffers;
use crate::error::Error;
use crate::gemm::{Gemm, LaunchPlan};
use crate::matrix::{DeviceBatchMut, DeviceBatchRef, PointerBatch, PointerBatchMut};
use crate::stream::Stream;

/// A product whose launches have been checked: only the matrices are missing.
///
/// It has the memory that launches need, so that a call allocates nothing, and can be captured
/// into a CUDA graph: see [`Stream::capture`]. It may be used by any thread, and by several at
/// once.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, Matrix, Plan, find_kernel};
///
/// struct Layer {
///     weights: DeviceMatrix,
///     product: Plan,
/// }
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let kernel = device.kernel(find_kernel("tile_64x64")?)?;
/// let layer = Layer {
///     weights: DeviceMatrix::from_host(&device, &Matrix::from_fn(4, 2, |_, _| 0.5))?,
///     product: kernel.prepare(Gemm::new(3, 2, 4))?,
/// };
/// assert!(layer.product.stream().is_same(&device.stream()));
/// let input = DeviceMatrix::from_host(&device, &Matrix::from_fn(3, 4, |row, _| row as f32))?;
/// let mut output = DeviceMatrix::zeros(&device, 3, 2)?;
/// layer.product.enqueue(&input, &layer.weights, &mut output)?;
/// assert_eq!(output.download()?.as_slice(), [0.0, 0.0, 2.0, 2.0, 4.0, 4.0]);
///
/// // The same by addresses, and the entry point that it takes: rows of C are too short for
/// // 128-bit accesses.
/// let [a, b, c] = [&input, &layer.weights, &output].map(DeviceMatrix::as_device_ptr);
/// assert_eq!(layer.product.entry_point(a, b, c), "tile_64x64_unaligned");
/// // SAFETY: they are the matrices above, which nothing else uses.
/// unsafe { layer.product.enqueue_raw(a, b, c)? };
/// device.synchronize()?;
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct Plan {
    pub(super) kernel: Kernel,
    pub(super) stream: Stream,
    pub(super) plan: LaunchPlan,
    pub(super) buffers: Option<Buffers>,
    pub(super) staging: Box<Staging>,
    pub(super) map_cache: MapCache<PartKey>,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, stream, plan, .. } = self;
        let mut parts = f.debug_struct("Plan");
        parts.field("kernel", kernel).field("stream", stream).field("plan", plan);
        parts.finish_non_exhaustive()
    }
}

impl Plan {
    /// Of a product that is checked, with the memory that it needs, which was allocated for this
    /// stream.
    pub(super) fn new(
        kernel: Kernel,
        stream: Stream,
        plan: LaunchPlan,
        buffers: Option<Buffers>,
        staging: Box<Staging>,
    ) -> Self {
        Self { kernel, stream, plan, buffers, staging, map_cache: MapCache::default() }
    }

    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The launches.
    pub fn launch_plan(&self) -> &LaunchPlan {
        &self.plan
    }

    /// The entry point that is launched for matrices at these addresses: the rung's own,
    /// or, where 128-bit accesses do not reach every row that they should, its unaligned one.
    pub fn entry_point(
        &self,
        a: DevicePointer<f32>,
        b: DevicePointer<f32>,
        c: DevicePointer<f32>,
    ) -> &'static str {
        let descriptor = self.kernel.descriptor();
        match descriptor.unaligned() {
            Some(unaligned) if !self.is_aligned([a, b, c]) => unaligned.name,
            _ => descriptor.name(),
        }
    }

    /// Whether the rung's own entry point takes matrices at these addresses, or copies of A
    /// and B.
    pub(super) fn is_aligned(&self, pointers: [DevicePointer<f32>; 3]) -> bool {
        let [a, b, c] = pointers.map(|pointer| pointer.as_raw());
        let [a, b] = self.plan.form().order([a, b]);
        let has_copy = self.staging.meets_every_requirement();
        is_aligned(self.kernel.descriptor(), self.plan.form(), [a, b, c], has_copy)
    }

    /// The stream that the product goes to.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Enqueues `C = alpha * op(A) * op(B) + beta * C` on the plan's stream, of matrices with the
    /// [shapes](Gemm::shapes), leading dimensions and strides of the plan.
    ///
    /// A GPU returns at once, the software device when it is done. Either way a fault in
    /// the kernel is reported by the next [`Stream::synchronize`] or download.
    ///
    /// A kernel that copies in bulk cannot reach rows that do not begin on 16 bytes, and
    /// computes with a copy of such a matrix, made anew by each call; so does one with
    /// [`PlanBuilder::staged`](super::PlanBuilder::staged), and a kernel that does not take a transposed
    /// operand as it lies: see [`reads`](kernels_gpu::abi::KernelDescriptor::reads).
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`], [`Error::WrongStream`], [`Error::Shape`], [`Error::PlannedLd`] or
    /// [`Error::PlannedBatch`] if a matrix is not what was prepared for; [`Error::PlannedAlignment`] if a copy is needed
    /// because of an address: see [`PlanBuilder::any_alignment`](super::PlanBuilder::any_alignment); [`Error::Extras`] if the
    /// product needs some, or is of a batch of pointers; [`Error::Driver`] if the driver refuses the launch.
    pub fn enqueue<'m>(
        &self,
        a: impl Into<DeviceBatchRef<'m>>,
        b: impl Into<DeviceBatchRef<'m>>,
        c: impl Into<DeviceBatchMut<'m>>,
    ) -> Result<(), Error> {
        self.enqueue_with(a, b, c, Extras::new())
    }

    /// As [`Plan::enqueue`], with what the product's epilogue reads, and alpha and beta in device
    /// memory.
    ///
    /// # Errors
    ///
    /// As there, and [`Error::Extras`] if something is missing, or was not prepared for.
    pub fn enqueue_with<'m>(
        &self,
        a: impl Into<DeviceBatchRef<'m>>,
        b: impl Into<DeviceBatchRef<'m>>,
        c: impl Into<DeviceBatchMut<'m>>,
        extras: Extras<'m>,
    ) -> Result<(), Error> {
        let (a, b, c) = (a.into(), b.into(), c.into());
        let operands = [a, b, c.view()];
        let gemm = self.plan.gemm();
        if gemm.pointers {
            return Err(Error::Extras { what: "the batch of pointers", is_missing: true });
        }
        expect_planned(&self.stream, gemm, operands)?;
        let extras = extras.checked(&self.stream, gemm)?;
        let [a, b, c] = operands.map(|operand| operand.first().as_device_ptr());
        // SAFETY: the matrices are on this device and stream, and have the shapes, leading
        // dimensions and strides of the plan, as have the extras. C is borrowed mutably, so it is none
        // of the others. They
        // stay allocated while the kernel runs: freeing device memory waits for the work
        // that was enqueued before, and other work with them is enqueued on the same stream.
        unsafe { self.enqueue_raw_with(a, b, c, extras) }
    }

    /// As [`Plan::enqueue_with`], of a product with a [batch of pointers](Gemm::batched_pointers).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn enqueue_pointers(
        &self,
        a: &PointerBatch<'_>,
        b: &PointerBatch<'_>,
        c: &mut PointerBatchMut<'_>,
        extras: Extras<'_>,
    ) -> Result<(), Error> {
        let gemm = self.plan.gemm();
        if !gemm.pointers {
            return Err(Error::Extras { what: "a batch of pointers", is_missing: false });
        }
        let operands = [a, b, c.view()];
        let lds = [gemm.lda, gemm.ldb, gemm.ldc];
        for (i, what) in ["A", "B", "C"].into_iter().enumerate() {
            let [rows, cols, ld] = operands[i].shape();
            let on = operands[i].stream();
            expect_matrix(what, &self.stream, on, [rows, cols, ld], gemm.shapes()[i], lds[i])?;
            let (count, planned_count) = (operands[i].count(), gemm.batch);
            if count != planned_count {
                let [stride, planned_stride] = [0; 2];
                return Err(Error::PlannedBatch {
                    what,
                    count,
                    stride,
                    planned_count,
                    planned_stride,
                });
            }
        }
        let extras = extras.checked(&self.stream, gemm)?;
        let [a, b, c] = operands.map(PointerBatch::as_device_ptr);
        // SAFETY: as in `enqueue_with`. The arrays stay allocated likewise, and nothing writes them.
        unsafe { self.enqueue_raw_with(a, b, c, extras) }
    }

    /// Enqueues the product on bare addresses, with the plan's leading dimensions and strides. Of a
    /// [batch of pointers](Gemm::batched_pointers) they are the addresses of three arrays of
    /// addresses, in device memory, too.
    ///
    /// # Errors
    ///
    /// [`Error::PlannedAlignment`] (see [`Plan::enqueue`]); [`Error::Extras`] if the product needs
    /// some; [`Error::Driver`] if the driver refuses the launch.
    ///
    /// # Safety
    ///
    /// With the plan's shapes, leading dimensions and, if it is of a batch, strides:
    /// - unless k is 0, or alpha is 0 and not in device memory, `a` and `b` point to A and B, all initialised, in
    ///   this device's memory;
    /// - `c` points to C there, initialised unless beta is 0;
    /// - all three are aligned to 4 bytes (arrays of addresses to 8), C overlaps neither A nor B, no
    ///   two C of a batch overlap, and until the
    ///   work is done nothing frees them, writes A or B, or touches C, but what is enqueued on the
    ///   same stream.
    pub unsafe fn enqueue_raw(
        &self,
        a: DevicePointer<f32>,
        b: DevicePointer<f32>,
        c: DevicePointer<f32>,
    ) -> Result<(), Error> {
        Extras::new().checked(&self.stream, self.plan.gemm())?;
        // SAFETY: the caller's contract, and no extras are read.
        unsafe { self.enqueue_raw_with(a, b, c, RawExtras::default()) }
    }

    /// As [`Plan::enqueue_raw`], with what the product's epilogue reads, and alpha and beta in device
    /// memory.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Safety
    ///
    /// As there; and of the extras, what the product was prepared for is at these addresses, all initialised, and until the
    /// work is done nothing frees or writes it but what is enqueued on the same stream. It does not overlap C, but that the
    /// residual may be C itself, with its leading dimension and stride.
    pub unsafe fn enqueue_raw_with(
        &self,
        a: DevicePointer<f32>,
        b: DevicePointer<f32>,
        c: DevicePointer<f32>,
        extras: RawExtras,
    ) -> Result<(), Error> {
        let Gemm { alpha, beta, .. } = *self.plan.gemm();
        // SAFETY: the caller's contract.
        unsafe { self.enqueue_scaled(a, b, c, extras, [alpha, beta]) }
    }
}

#[cfg(test)]
mod tests {
    use gemm_matrix::{Axis, Matrix};

    use super::*;
    use crate::{Device, DeviceChoice, DeviceMatrix, Epilogue, find_kernel};

    #[test]
    fn batches_of_pointers_are_as_planned() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let plan = device.auto().unwrap().prepare(Gemm::new(2, 3, 4).batched_pointers(2)).unwrap();
        let zeros = |rows, cols| DeviceMatrix::zeros(&device, rows, cols).unwrap();
        let (a, b, short_b) = (zeros(2, 4), zeros(4, 3), zeros(3, 3));
        let [mut c, mut d] = [(); 2].map(|()| zeros(2, 3));
        let [mut short_c, mut short_d] = [(); 2].map(|()| zeros(1, 3));
        let [one_b, two_b, two_short_b] =
            [vec![b.view()], vec![b.view(); 2], vec![short_b.view(); 2]]
                .map(|views| PointerBatch::new(&views).unwrap());
        let a = PointerBatch::new(&[a.view(); 2]).unwrap();
        let run = |b: &PointerBatch<'_>, c: &mut PointerBatchMut<'_>| {
            plan.enqueue_pointers(&a, b, c, Extras::new())
        };

        let mut two = PointerBatchMut::new(vec![c.view_mut(), d.view_mut()]).unwrap();
        run(&two_b, &mut two).unwrap();
        let refused = run(&two_short_b, &mut two).unwrap_err();
        assert!(matches!(refused, Error::Shape { what: "B", rows: 3, .. }), "{refused}");
        let refused = run(&one_b, &mut two).unwrap_err();
        assert!(matches!(refused, Error::PlannedBatch { what: "B", count: 1, .. }), "{refused}");
        drop(two);

        let mut one = PointerBatchMut::new(vec![c.view_mut()]).unwrap();
        let refused = run(&two_b, &mut one).unwrap_err();
        assert!(matches!(refused, Error::PlannedBatch { what: "C", count: 1, .. }), "{refused}");
        let mut short = PointerBatchMut::new(vec![short_c.view_mut(), short_d.view_mut()]).unwrap();
        let refused = run(&two_b, &mut short).unwrap_err();
        assert!(matches!(refused, Error::Shape { what: "C", rows: 1, .. }), "{refused}");
    }

    /// What an epilogue reads is of each product, in whichever launch it is.
    #[test]
    fn each_product_has_its_own_extras() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let (m, n, k, count) = (3, 5, 8, 5);
        let epilogue = Epilogue::new().scale(Axis::Row).bias(Axis::Column).residual();
        let gemm = Gemm::new(m, n, k).stacked(count).then(epilogue);
        // Whole numbers, whose sums are exact.
        let host = |rows, cols, step: usize| {
            Matrix::from_fn(rows, cols, |row, col| ((row * step + col) % 9) as f32)
        };
        let (a, b) = (host(count * m, k, 2), host(count * k, n, 4));
        let (scale, bias) = (host(count, m, 5), host(count, n, 7));
        let residual = host(count * m, n, 1);
        let right = Matrix::from_fn(count * m, n, |at, col| {
            let (product, row) = (at / m, at % m);
            let sum: f32 = (0..k).map(|i| a.at(at, i) * b.at(product * k + i, col)).sum();
            sum * scale.at(product, row) + bias.at(product, col) + residual.at(at, col)
        });
        let on = |matrix: &Matrix| DeviceMatrix::from_host(&device, matrix).unwrap();
        let (a, b, scale, bias, residual) = (on(&a), on(&b), on(&scale), on(&bias), on(&residual));
        for name in ["tile_64x64", "persistent", "tf32_64x64", "tf32_64x128"] {
            let mut plan =
                device.kernel(find_kernel(name).unwrap()).unwrap().prepare(gemm).unwrap();
            plan.plan.products_per_launch = 2;
            fn each(matrix: &DeviceMatrix, count: usize) -> DeviceBatchRef<'_> {
                matrix.view().split_rows(count).unwrap()
            }
            let extras = Extras::new().scale(each(&scale, count)).bias(each(&bias, count));
            let extras = extras.residual(each(&residual, count));
            let mut c = DeviceMatrix::zeros(&device, count * m, n).unwrap();
            let to = c.view_mut().split_rows(count).unwrap();
            plan.enqueue_with(each(&a, count), each(&b, count), to, extras).unwrap();
            assert_eq!(c.download().unwrap(), right, "{name}");
        }
    }

    /// Whoever calls again with another matrix, or part of C, does not get the tensor maps of the last.
    #[test]
    fn the_last_tensor_maps_are_those_of_the_same_matrices() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let host =
            |from: usize| Matrix::from_fn(8, 8, |row, col| ((from + 3 * row + col) % 8) as f32);
        let [a, b] = [0, 1].map(|from| DeviceMatrix::from_host(&device, &host(from)).unwrap());
        let mut c = DeviceMatrix::zeros(&device, 8, 8).unwrap();
        for name in ["tma", "persistent", "tf32_64x128"] {
            let plan =
                device.kernel(find_kernel(name).unwrap()).unwrap().prepare(Gemm::new(8, 8, 8));
            let plan = plan.unwrap();
            for ((a, from_a), (b, from_b)) in
                [((&a, 0), (&a, 0)), ((&a, 0), (&b, 1)), ((&b, 1), (&b, 1)), ((&b, 1), (&a, 0))]
            {
                plan.enqueue(a, b, &mut c).unwrap();
                let (a, b) = (host(from_a), host(from_b));
                let right = Matrix::from_fn(8, 8, |row, col| {
                    (0..8).map(|i| a.at(row, i) * b.at(i, col)).sum()
                });
                assert_eq!(c.download().unwrap(), right, "{name}");
            }
        }
    }
}
