//! Checked products, ready for their matrices.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use gemm_matrix::Scalar;

use super::alignment::is_aligned;
use super::configuration::Configuration;
use super::expected::expect_planned;
use super::extras::{Extras, RawExtras};
use super::launches::LaunchPlan;
use crate::device::{EntryPoint, Stream};
use crate::error::Error;
use crate::launch::{Buffers, MapCache, Staging};
use crate::matrix::{
    IntoOperand, IntoOperandMut, OperandMut, OperandRef, PointerBatch, PointerBatchMut,
};
use crate::problem::Gemm;

/// A product with checked launches; only the matrices are missing.
///
/// A plan owns the memory that its launches need. So a call allocates nothing, and can be captured
/// into a CUDA graph: see [`Stream::capture`]. Any thread may use a plan, also several at once.
/// Clones share everything.
///
/// A plan made by [`Product::plan`](crate::Product::plan) keeps its epilogue's inputs, for the
/// lifetime `'m`. Other plans are `Plan<'static>`.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, Matrix, Plan, find_kernel};
///
/// struct Layer {
///     weights: DeviceMatrix<f32>,
///     product: Plan<'static>,
/// }
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let kernel = device.kernel(find_kernel("tile_64x64")?)?;
/// let layer = Layer {
///     weights: DeviceMatrix::from_slice(&device, [4, 2], &[0.5; 8])?,
///     product: kernel.prepare(Gemm::new(3, 2, 4))?,
/// };
/// assert!(layer.product.stream().is_same(&device.stream()));
/// let input = DeviceMatrix::<f32>::from_host(&device, &Matrix::from_fn(3, 4, |row, _| row as f32))?;
/// let mut output = DeviceMatrix::<f32>::zeros(&device, [3, 2])?;
/// layer.product.run(&input, &layer.weights, &mut output)?;
/// assert_eq!(output.to_vec()?, [0.0, 0.0, 2.0, 2.0, 4.0, 4.0]);
///
/// // The same by addresses, and the entry point that it takes: rows of C are too short for
/// // 128-bit accesses.
/// let addresses = [input.address(), layer.weights.address(), output.address()];
/// assert_eq!(layer.product.entry_point(addresses), "tile_64x64_unaligned");
/// // SAFETY: they are the matrices above, which nothing else uses.
/// unsafe { layer.product.run_raw(addresses, Default::default())? };
/// device.synchronize()?;
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone)]
pub struct Plan<'m> {
    pub(crate) core: Arc<Core>,
    /// The epilogue's inputs, if the plan keeps them.
    kept: Option<RawExtras>,
    matrices: PhantomData<&'m [f32]>,
}

/// The state that all calls share.
pub(crate) struct Core {
    pub(crate) stream: Stream,
    pub(crate) launches: LaunchPlan,
    /// The kernel's own entry point.
    pub(crate) function: EntryPoint,
    /// The entry point for misaligned matrices, if the kernel has one.
    pub(crate) unaligned: Option<EntryPoint>,
    /// The kernel that lists the tiles of groups, if there are any.
    pub(crate) grouping: Option<EntryPoint>,
    pub(crate) buffers: Option<Buffers>,
    pub(crate) staging: Box<Staging>,
    pub(crate) maps: MapCache,
}

impl fmt::Debug for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Core { stream, launches, .. } = &*self.core;
        let mut parts = f.debug_struct("Plan");
        parts.field("configuration", launches.configuration()).field("gemm", launches.gemm());
        parts.field("stream", stream).finish_non_exhaustive()
    }
}

impl<'m> Plan<'m> {
    /// Makes a plan of a checked product with its memory.
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, kept: None, matrices: PhantomData }
    }

    /// Keeps these inputs of the epilogue in the plan.
    pub(crate) fn keeping(self, extras: Extras<'m>) -> Result<Self, Error> {
        let kept = extras.checked(self.stream(), self.gemm())?;
        Ok(Self { kept: Some(kept), ..self })
    }

    /// The product.
    pub fn gemm(&self) -> &Gemm {
        self.core.launches.gemm()
    }

    /// The kernel, and its division of the product.
    pub fn configuration(&self) -> &Configuration {
        self.core.launches.configuration()
    }

    /// The launches.
    pub fn launch_plan(&self) -> &LaunchPlan {
        &self.core.launches
    }

    /// The stream of the product.
    pub fn stream(&self) -> &Stream {
        &self.core.stream
    }

    /// The entry point for A, B and C at these addresses.
    ///
    /// It is the kernel's own, or its unaligned one if some row is misaligned for 128-bit accesses.
    pub fn entry_point(&self, addresses: [u64; 3]) -> &'static str {
        match self.configuration().kernel.unaligned() {
            Some(unaligned) if !self.core.is_aligned(addresses) => unaligned.name,
            _ => self.core.launches.entry_point(),
        }
    }

    /// Enqueues `C = alpha * op(A) * op(B) + beta * C` on the plan's stream.
    ///
    /// The matrices have the plan's types, shapes, leading dimensions and strides. A transposed
    /// operand is a [transposed view](crate::DeviceMatrixRef::t).
    ///
    /// On a GPU the call returns at once, on the software device after the work. The next
    /// [`Stream::synchronize`] or download reports a fault in the kernel.
    ///
    /// # Errors
    ///
    /// - [`Error::WrongDevice`], [`Error::WrongStream`], [`Error::PlannedType`], [`Error::Shape`],
    ///   [`Error::PlannedTranspose`], [`Error::PlannedLd`] or [`Error::PlannedBatch`] if a matrix
    ///   differs from the plan.
    /// - [`Error::PlannedAlignment`] if an address requires a copy: see
    ///   [`PlanBuilder::any_alignment`](super::PlanBuilder::any_alignment).
    /// - [`Error::Extras`] if the product needs extras, or is a batch of pointers.
    /// - [`Error::Driver`] if the driver refuses the launch.
    pub fn run<'c>(
        &self,
        a: impl IntoOperand<'c>,
        b: impl IntoOperand<'c>,
        c: impl IntoOperandMut<'c>,
    ) -> Result<(), Error> {
        let extras = match self.kept {
            Some(kept) => kept,
            None => Extras::new().checked(self.stream(), self.gemm())?,
        };
        self.run_checked([a.into_operand(), b.into_operand()], c.into_operand_mut(), extras)
    }

    /// Enqueues the product with these extras instead of those that the plan keeps.
    ///
    /// Extras are the epilogue's inputs, and alpha and beta in device memory.
    ///
    /// # Errors
    ///
    /// The errors of [`Plan::run`], and [`Error::Extras`] if an extra is missing or was not
    /// planned.
    pub fn run_with<'c>(
        &self,
        a: impl IntoOperand<'c>,
        b: impl IntoOperand<'c>,
        c: impl IntoOperandMut<'c>,
        extras: Extras<'c>,
    ) -> Result<(), Error> {
        let extras = extras.checked(self.stream(), self.gemm())?;
        self.run_checked([a.into_operand(), b.into_operand()], c.into_operand_mut(), extras)
    }

    /// Enqueues the product with checked extras.
    fn run_checked(
        &self,
        [a, b]: [OperandRef<'_>; 2],
        c: OperandMut<'_>,
        extras: RawExtras,
    ) -> Result<(), Error> {
        let operands = [a, b, c.view()];
        let gemm = self.gemm();
        if gemm.has_pointers() {
            return Err(Error::Extras { what: "the batch of pointers", is_missing: true });
        }
        expect_planned(self.stream(), gemm, &operands)?;
        // SAFETY:
        // - The matrices are on this device and stream, and have the plan's shapes, leading
        //   dimensions and strides. So have the extras.
        // - C is borrowed mutably, so it is none of the others.
        // - All stay allocated while the kernel runs: freeing device memory waits for earlier work,
        //   and other work with them is enqueued on the same stream.
        unsafe { self.enqueue(operands.map(|operand| operand.address()), extras) }
    }

    /// Enqueues a product with a [batch of pointers](Gemm::batched_pointers).
    ///
    /// # Errors
    ///
    /// See [`Plan::run_with`].
    pub fn run_pointers<T: Scalar, U: Scalar>(
        &self,
        a: &PointerBatch<'_, T>,
        b: &PointerBatch<'_, T>,
        c: &mut PointerBatchMut<'_, U>,
        extras: Extras<'_>,
    ) -> Result<(), Error> {
        let (gemm, stream) = (self.gemm(), self.stream());
        if !gemm.has_pointers() {
            return Err(Error::Extras { what: "a batch of pointers", is_missing: false });
        }
        let operands =
            [a.operand(gemm.trans_a)?, b.operand(gemm.trans_b)?, c.view().operand(false)?];
        expect_planned(stream, gemm, &operands)?;
        let extras = extras.checked(stream, gemm)?;
        // SAFETY: as in `run_checked`. The arrays stay allocated in the same way, and nothing
        // writes them.
        unsafe { self.enqueue(operands.map(|operand| operand.address()), extras) }
    }

    /// Enqueues the product on raw addresses of A, B and C.
    ///
    /// Leading dimensions and strides are the plan's. For a [batch of
    /// pointers](Gemm::batched_pointers) the addresses are those of three arrays of addresses, also
    /// in device memory.
    ///
    /// # Errors
    ///
    /// - [`Error::PlannedAlignment`]: see [`Plan::run`].
    /// - [`Error::Extras`] if an extra that the product needs has no address.
    /// - [`Error::Driver`] if the driver refuses the launch.
    ///
    /// # Safety
    ///
    /// The matrices have the plan's types, shapes, leading dimensions and, in a batch, strides.
    ///
    /// - A and B are at their addresses, all initialised, in this device's memory. Exceptions: k is
    ///   0, or alpha is 0 and not in device memory.
    /// - C is at its address in that memory, initialised unless beta is 0.
    /// - All three are aligned to their elements, arrays of addresses to 8 bytes, and the ends of
    ///   groups to 4.
    /// - C overlaps neither A nor B, and no two C of a batch overlap.
    /// - The extras that the product was prepared for are at their addresses, all initialised.
    /// - The extras do not overlap C. Exception: the residual may be C itself, with its leading
    ///   dimension and stride.
    /// - Until the work is done, only work enqueued on the same stream frees any of this memory,
    ///   writes memory that is read, or accesses C.
    pub unsafe fn run_raw(&self, addresses: [u64; 3], extras: RawExtras) -> Result<(), Error> {
        extras.expect(self.gemm())?;
        // SAFETY: the caller's contract.
        unsafe { self.enqueue(addresses, extras) }
    }

    /// Enqueues the product with the plan's factors.
    ///
    /// # Safety
    ///
    /// The contract of [`Plan::run_raw`], and every extra that the product needs has an address.
    unsafe fn enqueue(&self, addresses: [u64; 3], extras: RawExtras) -> Result<(), Error> {
        let Gemm { alpha, beta, .. } = *self.gemm();
        // SAFETY: the caller's contract.
        unsafe { self.core.enqueue(addresses, extras, [alpha, beta]) }
    }
}

impl Core {
    /// Whether the kernel's own entry point accepts these addresses, or copies of A and B.
    pub(crate) fn is_aligned(&self, [a, b, c]: [u64; 3]) -> bool {
        let form = self.launches.form();
        let [a, b] = form.order([a, b]);
        let has_copy = self.staging.meets_every_requirement();
        is_aligned(self.launches.configuration().kernel, form, [a, b, c], has_copy)
    }
}

#[cfg(test)]
mod tests {
    use gemm_matrix::{Axis, Matrix};

    use super::*;
    use crate::{Device, DeviceChoice, DeviceMatrix, DeviceMatrixRef, Epilogue, find_kernel};

    #[test]
    fn batches_of_pointers_are_as_planned() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let plan = device.auto().unwrap().prepare(Gemm::new(2, 3, 4).batched_pointers(2)).unwrap();
        let zeros = |rows, cols| DeviceMatrix::<f32>::zeros(&device, [rows, cols]).unwrap();
        let (a, b, short_b) = (zeros(2, 4), zeros(4, 3), zeros(3, 3));
        let [mut c, mut d] = [(); 2].map(|()| zeros(2, 3));
        let [mut short_c, mut short_d] = [(); 2].map(|()| zeros(1, 3));
        let [one_b, two_b, two_short_b] =
            [vec![b.view()], vec![b.view(); 2], vec![short_b.view(); 2]]
                .map(|views| PointerBatch::new(&views).unwrap());
        let a = PointerBatch::new(&[a.view(); 2]).unwrap();
        let run = |b: &PointerBatch<'_, f32>, c: &mut PointerBatchMut<'_, f32>| {
            plan.run_pointers(&a, b, c, Extras::new())
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

    /// Each product reads its own extras, whichever launch computes it.
    #[test]
    fn each_product_has_its_own_extras() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let (m, n, k, count) = (3, 5, 8, 5);
        let epilogue = Epilogue::new().scale(Axis::Row).bias(Axis::Column).residual();
        let gemm = Gemm::new(m, n, k).stacked(count).then(epilogue);
        // Whole numbers, so that sums are exact.
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
        let on = |matrix: &Matrix| DeviceMatrix::<f32>::from_host(&device, matrix).unwrap();
        let (a, b, scale, bias, residual) = (on(&a), on(&b), on(&scale), on(&bias), on(&residual));
        for name in ["tile_64x64", "persistent", "tf32_64x64", "tf32_64x128"] {
            let mut plan =
                device.kernel(find_kernel(name).unwrap()).unwrap().prepare(gemm).unwrap();
            let core = Arc::get_mut(&mut plan.core).unwrap();
            core.launches.products_per_launch = 2;
            fn each(matrix: &DeviceMatrix<f32>, count: usize) -> DeviceMatrixRef<'_, f32> {
                matrix.batch(count).unwrap()
            }
            let extras = Extras::new().scale(each(&scale, count)).bias(each(&bias, count));
            let extras = extras.residual(each(&residual, count));
            let mut c = DeviceMatrix::<f32>::zeros(&device, [count * m, n]).unwrap();
            let to = c.view_mut().batch(count).unwrap();
            plan.run_with(each(&a, count), each(&b, count), to, extras).unwrap();
            assert_eq!(c.download().unwrap(), right, "{name}");
        }
    }

    /// A call with other matrices, or another part of C, does not reuse the last tensor maps.
    #[test]
    fn the_last_tensor_maps_are_those_of_the_same_matrices() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let host =
            |from: usize| Matrix::from_fn(8, 8, |row, col| ((from + 3 * row + col) % 8) as f32);
        let [a, b] =
            [0, 1].map(|from| DeviceMatrix::<f32>::from_host(&device, &host(from)).unwrap());
        let mut c = DeviceMatrix::<f32>::zeros(&device, [8, 8]).unwrap();
        for name in ["tma", "persistent", "tf32_64x128"] {
            let plan =
                device.kernel(find_kernel(name).unwrap()).unwrap().prepare(Gemm::new(8, 8, 8));
            let plan = plan.unwrap();
            for ((a, from_a), (b, from_b)) in
                [((&a, 0), (&a, 0)), ((&a, 0), (&b, 1)), ((&b, 1), (&b, 1)), ((&b, 1), (&a, 0))]
            {
                plan.run(a, b, &mut c).unwrap();
                let (a, b) = (host(from_a), host(from_b));
                let right = Matrix::from_fn(8, 8, |row, col| {
                    (0..8).map(|i| a.at(row, i) * b.at(i, col)).sum()
                });
                assert_eq!(c.download().unwrap(), right, "{name}");
            }
        }
    }
}
