//! Products by tensor cores that are checked, and wait for their matrices.

use std::sync::Arc;

use cust::memory::{DeviceCopy, DevicePointer};
use gemm_matrix::Element;

use super::copies::Copies;
use super::division::Division;
use super::kernel::TensorCoreKernel;
use crate::device::EntryPoint;
use crate::error::Error;
use crate::gemm::{Gemm, MAX_DIMENSION};
use crate::launch::extras::{Extras, RawExtras};
use crate::launch::map_cache::MapCache;
use crate::launch::tensor_map::HalfKey;
use crate::launch::workspace::Buffers;
use crate::matrix::{OperandLayout, OperandMut, OperandRef};
use crate::stream::Stream;

#[cfg(test)]
mod tests;

/// A product by tensor cores that has been checked: only the matrices are missing.
///
/// A and B are `bf16` or `f16`, never silently: the kernel says which, and takes no others. Their
/// products are exact, and summed in f32, as are alpha, beta and all that an epilogue reads; C is of
/// f32, or of the type of A and B, as the product [says](Gemm::output).
///
/// ```no_run
/// use cuda_gemm::{Compute, Device, DeviceChoice, DeviceHalfMatrix, DeviceMatrix, Gemm, InputType, Matrix};
///
/// let device = Device::open(DeviceChoice::Gpu)?;
/// let gemm = Gemm::new(512, 256, 1024).computed_in(Compute::Bf16);
/// let product = device.auto()?.tensor_core(&gemm)?.prepare(gemm)?;
///
/// let ones = |rows, cols| {
///     DeviceHalfMatrix::from_host(&device, InputType::Bf16, &Matrix::from_fn(rows, cols, |_, _| 1.0))
/// };
/// let (a, b) = (ones(512, 1024)?, ones(1024, 256)?);
/// let mut c = DeviceMatrix::zeros(&device, 512, 256)?;
/// product.enqueue(&a, &b, &mut c)?;
/// assert_eq!(c.download()?.at(7, 7), 1024.0);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct TensorCorePlan {
    pub(super) kernel: TensorCoreKernel,
    pub(super) stream: Stream,
    pub(super) gemm: Gemm,
    /// With no tiles if there are no products.
    pub(super) division: Division,
    /// The most products that a launch computes.
    pub(super) most_products: usize,
    /// Those that may be needed, for A and B as they lie: see [`Division::entry`].
    pub(super) functions: [Option<Arc<EntryPoint>>; 4],
    pub(super) copies: Option<Copies>,
    /// What clusters share tiles by.
    pub(super) workspace: Option<Buffers>,
    pub(super) map_cache: MapCache<HalfKey>,
}

impl std::fmt::Debug for TensorCorePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kernel, stream, gemm, .. } = self;
        let mut parts = f.debug_struct("TensorCorePlan");
        parts.field("kernel", kernel).field("stream", stream).field("gemm", gemm);
        parts.finish_non_exhaustive()
    }
}

impl TensorCorePlan {
    /// The product.
    pub fn gemm(&self) -> &Gemm {
        &self.gemm
    }

    /// The kernel.
    pub fn kernel(&self) -> &TensorCoreKernel {
        &self.kernel
    }

    /// Parts of K that are summed over by blocks of their own.
    pub fn splits(&self) -> u32 {
        self.division.splits
    }

    /// Clusters that share the steps of all tiles, if there is not one for each tile: see
    /// [`TensorCoreBuilder::clusters`](super::TensorCoreBuilder::clusters).
    pub fn clusters(&self) -> Option<u32> {
        self.division.clusters
    }

    /// Blocks that are to share a multiprocessor: see
    /// [`TensorCoreBuilder::blocks_per_multiprocessor`](super::TensorCoreBuilder::blocks_per_multiprocessor).
    pub fn blocks_per_multiprocessor(&self) -> u32 {
        self.division.blocks
    }

    /// Alpha and beta.
    fn factors(&self) -> [f32; 2] {
        [self.gemm.alpha, self.gemm.beta]
    }

    /// The stream that the product goes to.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Enqueues `C = alpha * op(A) * op(B) + beta * C` on the plan's stream, of matrices with the
    /// plan's [shapes](Gemm::shapes). Leading dimensions and strides of A and B, and of a C in 16
    /// bits, are their own; those of an f32 C are the plan's.
    ///
    /// A GPU returns at once, the software device when it is done. Either way a fault in the kernel is
    /// reported by the next [`Stream::synchronize`] or download.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`], [`Error::WrongStream`], [`Error::PlannedType`], [`Error::Shape`],
    /// [`Error::PlannedBatch`] or [`Error::PlannedLd`] if a matrix is not what was prepared for;
    /// [`Error::PlannedAlignment`] if bulk copies do not reach the rows of A or B, and the kernel needs that: see
    /// [`TensorCoreBuilder::any_alignment`](super::TensorCoreBuilder::any_alignment); with it, [`Error::PlannedBatch`] if they must be copied, and one
    /// for all products was prepared for; [`Error::Extras`] if the product needs some; [`Error::Driver`] if the driver
    /// refuses the launch.
    pub fn enqueue<'m>(
        &self,
        a: impl Into<OperandRef<'m>>,
        b: impl Into<OperandRef<'m>>,
        c: impl Into<OperandMut<'m>>,
    ) -> Result<(), Error> {
        self.enqueue_with(a, b, c, Extras::new())
    }

    /// As [`TensorCorePlan::enqueue`], with what the product's epilogue reads, and alpha and beta in
    /// device memory.
    ///
    /// # Errors
    ///
    /// As there, and [`Error::Extras`] if something is missing, or was not prepared for.
    pub fn enqueue_with<'m>(
        &self,
        a: impl Into<OperandRef<'m>>,
        b: impl Into<OperandRef<'m>>,
        c: impl Into<OperandMut<'m>>,
        extras: Extras<'m>,
    ) -> Result<(), Error> {
        let (a, b, c) = (a.into(), b.into(), c.into());
        let operands = [a, b, c.view()];
        let elements = [self.gemm.compute.element(), self.gemm.compute.element(), self.gemm.output];
        for (i, what) in ["A", "B", "C"].into_iter().enumerate() {
            self.stream.expect(what, operands[i].stream())?;
            self.expect(what, &operands[i].layout(), elements[i], i)?;
        }
        let extras = extras.checked(&self.stream, &self.gemm)?;
        // SAFETY: the three are on this device and stream, with the plan's shapes and these leading
        // dimensions and strides, as are the extras. C is borrowed mutably, so it is none of the
        // others. They stay allocated while the kernel runs: freeing device memory waits for the work
        // that was enqueued before, and other work with them is enqueued on the same stream.
        unsafe { self.launch(operands.map(|operand| operand.layout()), extras, self.factors()) }
    }

    /// Whether matrices are what was planned for A, B or C.
    fn expect(
        &self,
        what: &'static str,
        layout: &OperandLayout,
        element: Element,
        i: usize,
    ) -> Result<(), Error> {
        let OperandLayout { element: found, shape: [rows, cols], ld, count, stride, .. } = *layout;
        let gemm = &self.gemm;
        if found != element {
            let (found, planned) = (found.name(), element.name());
            return Err(Error::PlannedType { what, found, planned });
        }
        let [need_rows, need_cols] = gemm.shapes()[i];
        if [rows, cols] != [need_rows, need_cols] {
            return Err(Error::Shape { what, rows, cols, need_rows, need_cols });
        }
        // C in f32 lies as planned.
        let is_as_planned = i == 2 && found == Element::F32;
        if is_as_planned && ld != gemm.ldc {
            return Err(Error::PlannedLd { what, ld, planned: gemm.ldc });
        }
        if ld > MAX_DIMENSION {
            return Err(Error::TooLarge { what: "ld", value: ld, max: MAX_DIMENSION });
        }
        // Those of a batch come one below the other or side by side, so that no two C overlap.
        let (planned_count, planned_stride) = (gemm.batch, gemm.strides()[i]);
        if count != planned_count || is_as_planned && count > 1 && stride != planned_stride {
            return Err(Error::PlannedBatch { what, count, stride, planned_count, planned_stride });
        }
        Ok(())
    }

    /// Enqueues the product on bare addresses, of 16-bit elements for A and B and of the planned ones
    /// for C, with the plan's leading dimensions and strides.
    ///
    /// # Errors
    ///
    /// [`Error::PlannedAlignment`] (see [`TensorCorePlan::enqueue`]); [`Error::Extras`] if the product
    /// needs some; [`Error::Driver`] if the driver refuses the launch.
    ///
    /// # Safety
    ///
    /// With the plan's shapes, leading dimensions and, if it is of a batch, strides:
    /// - unless k is 0, or alpha is 0 and not in device memory, `a` and `b` point to A and B, all initialised, in
    ///   this device's memory;
    /// - `c` points to C there, initialised unless beta is 0;
    /// - all are aligned as elements are, C overlaps neither A nor B, and until the work is done
    ///   nothing frees them, writes A or B, or touches C, but what is enqueued on the same stream.
    pub unsafe fn enqueue_raw<T: DeviceCopy>(
        &self,
        a: DevicePointer<u16>,
        b: DevicePointer<u16>,
        c: DevicePointer<T>,
    ) -> Result<(), Error> {
        Extras::new().checked(&self.stream, &self.gemm)?;
        // SAFETY: the caller's contract, and no extras are read.
        unsafe { self.enqueue_raw_with(a, b, c, RawExtras::default()) }
    }

    /// As [`TensorCorePlan::enqueue_raw`], with what the product's epilogue reads, and alpha and beta
    /// in device memory.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Safety
    ///
    /// As there; and of the extras, what the product was prepared for is at these addresses, all initialised, and until the
    /// work is done nothing frees or writes it but what is enqueued on the same stream. None of it overlaps C.
    pub unsafe fn enqueue_raw_with<T: DeviceCopy>(
        &self,
        a: DevicePointer<u16>,
        b: DevicePointer<u16>,
        c: DevicePointer<T>,
        extras: RawExtras,
    ) -> Result<(), Error> {
        let addresses = [a.as_raw(), b.as_raw(), c.as_raw()];
        // SAFETY: the caller's contract.
        unsafe { self.enqueue_scaled(addresses, extras, self.factors()) }
    }

    /// As [`TensorCorePlan::enqueue_raw_with`], with other factors than the plan's, of which each is 0 if and only if
    /// the plan's is.
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn enqueue_scaled(
        &self,
        addresses: [u64; 3],
        extras: RawExtras,
        factors: [f32; 2],
    ) -> Result<(), Error> {
        let Gemm { lda, ldb, ldc, compute, output, .. } = self.gemm;
        let (lds, elements) = ([lda, ldb, ldc], [compute.element(), compute.element(), output]);
        let operands = [0, 1, 2].map(|i| OperandLayout {
            address: addresses[i],
            element: elements[i],
            shape: self.gemm.shapes()[i],
            ld: lds[i],
            count: self.gemm.batch,
            stride: self.gemm.strides()[i],
        });
        // SAFETY: the caller's contract.
        unsafe { self.launch(operands, extras, factors) }
    }
}
