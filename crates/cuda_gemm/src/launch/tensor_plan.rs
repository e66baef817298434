//! Products by tensor cores that are checked, and wait for their matrices.

use std::sync::Arc;

use cust::memory::{DeviceCopy, DevicePointer};
use gemm_matrix::Element;
use kernels_gpu::TensorCoreAbi;
use kernels_gpu::tensor_core::options;

use super::extras::{Extras, RawExtras};
use super::parameters::{Address, TensorCoreParameters, TensorCorePointers};
use super::tensor::{HalfKey, LastMaps, as_row, half_maps, may_be_row, reaches_halves};
use super::tensor_copies::Copies;
use super::tensor_core::{MOST_TILES, TensorCoreKernel};
use super::tensor_cost::division;
use super::tensor_division::Division;
use crate::device::EntryPoint;
use crate::error::Error;
use crate::gemm::{Compute, Gemm};
use crate::matrix::{OperandLayout, OperandMut, OperandRef};
use crate::stream::Stream;

impl TensorCoreKernel {
    /// Checks a product, once for any number of calls on the device's own stream.
    ///
    /// # Errors
    ///
    /// Those of [`TensorCoreBuilder::prepare`].
    pub fn prepare(&self, gemm: Gemm) -> Result<TensorCorePlan, Error> {
        self.plan(gemm).prepare()
    }

    /// How to prepare a product: as [`TensorCoreKernel::prepare`] does, until told otherwise. It is
    /// [computed](Compute) in the kernel's type.
    pub fn plan(&self, gemm: Gemm) -> TensorCoreBuilder {
        let stream = self.device().stream();
        TensorCoreBuilder { kernel: self.clone(), gemm, stream, splits: None, any_alignment: false }
    }
}

/// How a product by tensor cores is prepared: see [`TensorCoreKernel::plan`].
#[derive(Debug)]
#[must_use]
pub struct TensorCoreBuilder {
    kernel: TensorCoreKernel,
    gemm: Gemm,
    stream: Stream,
    splits: Option<u32>,
    any_alignment: bool,
}

impl TensorCoreBuilder {
    /// The kernel.
    pub fn kernel(&self) -> &TensorCoreKernel {
        &self.kernel
    }

    /// The stream that the product goes to, of the kernel's device; its own one until told otherwise.
    /// A, B and C belong to the same stream.
    pub fn on(self, stream: &Stream) -> Self {
        Self { stream: stream.clone(), ..self }
    }

    /// K is split in so many parts, or as many as the kernel can have of it, rather than as seems best; for a
    /// kernel that [splits](kernels_gpu::TensorCoreDescriptor::splits) it.
    pub fn splits(self, splits: u32) -> Self {
        Self { splits: Some(splits), ..self }
    }

    /// A and B may have rows that do not begin on 16 bytes, and begin anywhere. Memory for copies of
    /// them is allocated, which a call makes where it needs them.
    pub fn any_alignment(self) -> Self {
        Self { any_alignment: true, ..self }
    }

    /// Checks the product, and allocates the memory that it needs.
    ///
    /// # Errors
    ///
    /// What [`Gemm::validate`] finds; [`Error::CannotSplit`]; [`Error::Compute`] for a product [in another precision](Compute)
    /// than the kernel's; [`Error::TensorCoreShape`] for a batch of pointers, and for all
    /// but a single plain product if the kernel has no [layouts]; [`Error::TooLarge`] for a C of too
    /// many tiles; [`Error::WrongDevice`]; [`Error::DeviceMemory`] and those of
    /// [`Device::kernel`](crate::Device::kernel).
    ///
    /// [layouts]: kernels_gpu::TensorCoreDescriptor::layouts
    pub fn prepare(self) -> Result<TensorCorePlan, Error> {
        let Loaded { kernel, stream, gemm, division, functions, stage_halves } = self.load()?;
        let copies = stage_halves.map(|function| Copies::new(&stream, &gemm, function));
        let (copies, last_maps) = (copies.transpose()?, Box::default());
        Ok(TensorCorePlan { kernel, stream, gemm, division, functions, copies, last_maps })
    }

    /// Checks the product, and loads every entry point that its calls may take.
    ///
    /// # Errors
    ///
    /// Those of [`TensorCoreBuilder::prepare`] that are not about memory.
    pub(crate) fn load(self) -> Result<Loaded, Error> {
        let Self { kernel, gemm, stream, splits, any_alignment } = self;
        if !stream.device().is_same(kernel.device()) {
            return Err(Error::WrongDevice { what: "the stream" });
        }
        let (descriptor, input) = (kernel.descriptor(), kernel.input());
        let own = Compute::of(input);
        let gemm = gemm.computed_in(gemm.compute.by_hand(descriptor.name(), own)?);
        gemm.validate()?;
        if splits.is_some_and(|splits| splits != 1) && !descriptor.splits() {
            return Err(Error::CannotSplit { kernel: descriptor.name() });
        }
        let refused =
            |what, hint| Err(Error::TensorCoreShape { kernel: descriptor.name(), what, hint });
        if gemm.pointers {
            return refused("batches of pointers", "enqueue one product after the other");
        }
        let hint = match descriptor.abi() {
            TensorCoreAbi::TensorMap => {
                "choose `auto`, which takes one that does (`Device::tensor_core_for`)"
            }
            TensorCoreAbi::Pointer => {
                "those of `wgmma_persistent` do, on compute capability 9.0, which `soft-sm90` has, too"
            }
        };
        let layouts = descriptor.layouts(input);
        for (is_asked, what) in [
            (gemm.trans_a || gemm.trans_b, "transposes"),
            (gemm.batch != 1, "batches"),
            (!gemm.epilogue.is_none(), "epilogues"),
            (gemm.factors_on_device, "alpha and beta in device memory"),
            (gemm.output != Element::F32, "C in 16 bits"),
        ] {
            if is_asked && layouts.is_none() {
                return refused(what, hint);
            }
        }
        let multiprocessors = kernel.device().info().limits.multiprocessors;
        let mut division = division(&gemm, descriptor, multiprocessors, splits);
        if gemm.batch == 0 {
            // Of no products there is nothing to be counted.
            division.tiles = 0;
        }
        let tiles = division.tiles;
        if tiles.saturating_mul(division.splits.into()) >= MOST_TILES {
            let max = ((MOST_TILES - 1) / u64::from(division.splits)) as usize;
            return Err(Error::TooLarge {
                what: "the number of tiles of C",
                value: tiles as usize,
                max,
            });
        }
        let device = kernel.device();
        let load = |name| -> Result<_, Error> {
            let function = Arc::new(device.entry_point(name)?);
            if descriptor.shared_bytes() > device.info().limits.shared_default {
                function.allow_shared(descriptor.shared_bytes())?;
            }
            Ok(function)
        };
        let mut functions = [const { None }; 4];
        match layouts {
            // It takes no transposes.
            None => functions[0] = Some(load(descriptor.entry_point(input))?),
            Some(layouts) => {
                let [column_a, column_b] = [0, 1].map(|i| may_be_row(gemm.shapes()[i]));
                for (flip_a, flip_b) in [(false, false), (true, false), (false, true), (true, true)]
                {
                    if flip_a && !column_a || flip_b && !column_b {
                        continue;
                    }
                    let at = entry([gemm.trans_a ^ flip_a, gemm.trans_b ^ flip_b], division);
                    functions[at] = Some(load(layouts[at])?);
                }
            }
        }
        let is_read = tiles > 0 && gemm.depth() > 0;
        let stage_halves = match any_alignment && is_read {
            true => Some(device.entry_point("stage_halves")?),
            false => None,
        };
        Ok(Loaded { kernel, stream, gemm, division, functions, stage_halves })
    }
}

/// A product that is checked, and whose entry points are loaded.
pub(crate) struct Loaded {
    kernel: TensorCoreKernel,
    stream: Stream,
    gemm: Gemm,
    division: Division,
    functions: [Option<Arc<EntryPoint>>; 4],
    /// What copies A and B, if they may lie anywhere.
    stage_halves: Option<EntryPoint>,
}

/// The place of the entry point for A and B that lie so, or as their transposes.
fn entry(transposes: [bool; 2], division: Division) -> usize {
    let [trans_a, trans_b] = division.transposes(transposes).map(usize::from);
    trans_a + 2 * trans_b
}

/// A product by tensor cores that has been checked: only the matrices are missing.
///
/// A and B are `bf16` or `f16`, never silently: the kernel says which, and takes no others. Their
/// products are exact, and summed in f32, as are alpha, beta and all that an epilogue reads; C is of
/// f32, or of the type of A and B, as the product [says](Gemm::output).
///
/// ```no_run
/// use cuda_gemm::{Device, DeviceChoice, DeviceHalfMatrix, DeviceMatrix, Gemm, InputType, Matrix};
///
/// let device = Device::open(DeviceChoice::Gpu)?;
/// let gemm = Gemm::new(512, 256, 1024);
/// let product = device.tensor_core_for(&gemm, InputType::Bf16)?.prepare(gemm)?;
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
    kernel: TensorCoreKernel,
    stream: Stream,
    gemm: Gemm,
    /// With no tiles if there are no products.
    division: Division,
    /// Those that may be needed, for A and B as they lie: see [`entry`].
    functions: [Option<Arc<EntryPoint>>; 4],
    copies: Option<Copies>,
    last_maps: Box<LastMaps<HalfKey>>,
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
    /// [`Error::PlannedAlignment`] if bulk copies do not reach the rows of A or B: see
    /// [`TensorCoreBuilder::any_alignment`]; with it, [`Error::PlannedBatch`] if they must be copied, and one
    /// for all products was prepared for; [`Error::Driver`] if the driver refuses the launch.
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
        unsafe { self.launch(operands.map(|operand| operand.layout()), extras) }
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
        if ld > crate::gemm::MAX_DIMENSION {
            return Err(Error::TooLarge { what: "ld", value: ld, max: crate::gemm::MAX_DIMENSION });
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
    /// - unless alpha or k is 0, `a` and `b` point to A and B, all initialised, in this device's
    ///   memory;
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
    /// As there; and of the extras, what the product was prepared for is at these addresses, as C is
    /// with `beta`.
    pub unsafe fn enqueue_raw_with<T: DeviceCopy>(
        &self,
        a: DevicePointer<u16>,
        b: DevicePointer<u16>,
        c: DevicePointer<T>,
        extras: RawExtras,
    ) -> Result<(), Error> {
        let Gemm { lda, ldb, ldc, compute, output, .. } = self.gemm;
        let addresses = [a.as_raw(), b.as_raw(), c.as_raw()];
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
        unsafe { self.launch(operands, extras) }
    }

    /// Enqueues the product.
    ///
    /// # Safety
    ///
    /// As for [`TensorCorePlan::enqueue_raw_with`], with these leading dimensions and strides, which fit
    /// 31 bits.
    unsafe fn launch(&self, [a, b, c]: [OperandLayout; 3], extras: RawExtras) -> Result<(), Error> {
        let Self { kernel, stream, gemm, division, functions, .. } = self;
        let (device, descriptor) = (kernel.device(), kernel.descriptor());
        let Division { transposed, tiles, splits } = *division;
        if tiles == 0 {
            return Ok(());
        }
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [m, n, k] = [gemm.m, gemm.n, gemm.depth()].map(|size| size as u32);
        let _exclusive = stream.exclusive();
        let mut operands = [a, b];
        let mut transposes = [gemm.trans_a, gemm.trans_b];
        if k > 0 {
            if descriptor.layouts(kernel.input()).is_some() {
                for (operand, is_transposed) in operands.iter_mut().zip(&mut transposes) {
                    let (row, flips) = as_row(*operand);
                    (*operand, *is_transposed) = (row, *is_transposed ^ flips);
                }
            }
            // SAFETY: the caller vouches for the matrices, which are not empty.
            operands = unsafe { self.staged(operands) }?;
        }
        let [a, b] = operands;
        // So many that all tiles can be counted.
        let most = ((MOST_TILES - 1) / (tiles * u64::from(splits))) as usize;
        let function = functions[entry(transposes, *division)].as_ref();
        let function = function.expect("`prepare` has loaded what these shapes may need");
        if descriptor.abi() == TensorCoreAbi::Pointer {
            // SAFETY: the caller's contract.
            return unsafe { self.launch_plain(function, [m, n, k], [a, b, c]) };
        }
        for first in (0..gemm.batch).step_by(most) {
            let products = most.min(gemm.batch - first);
            let [a, b, c] = [a, b, c].map(|operand| operand.of_product(first));
            let ([a, b], [m, n]) = (division.ordered([a, b]), division.ordered([m, n]));
            let transposes = division.transposes(transposes);
            let (input, count) = (kernel.input(), products as u64);
            let [map_a, map_b] = match k {
                0 => Default::default(),
                _ => self.last_maps.get(([a, b], count), || {
                    half_maps(device, descriptor, input, transposes, [a, b], count)
                })?,
            };
            let is_shared = |operand: OperandLayout| operand.stride == 0;
            let options = [
                (is_shared(a), options::SHARED_A),
                (is_shared(b), options::SHARED_B),
                (gemm.output != Element::F32, options::HALF_OUTPUT),
                (transposed, options::TRANSPOSED_C),
            ];
            let mut arguments = TensorCoreParameters {
                m,
                n,
                k,
                alpha: gemm.alpha,
                map_a,
                map_b,
                beta: gemm.beta,
                c: Address(c.address),
                ldc: c.ld as u32,
                batch: products as u32,
                stride_c: c.stride as u64,
                options: options.iter().filter(|(is, _)| *is).map(|(_, option)| option).sum(),
                epilogue: extras.parameters(gemm, [0; 2], first),
            };
            let all = tiles * u64::from(splits) * products as u64;
            let grid = match descriptor.is_persistent() {
                true => all.min(device.info().limits.multiprocessors.max(1).into()),
                false => all,
            } as u32;
            // SAFETY: the driver copies the arguments during the call, and they are the kernel's: see
            // `parameters`. The maps describe A and B, the block is the kernel's own, and there are no
            // more blocks than tiles, or as many clusters; the caller vouches for the memory.
            unsafe {
                function.launch_in_clusters(
                    stream,
                    (grid, splits, descriptor.starts_early()),
                    descriptor.threads(),
                    descriptor.shared_bytes(),
                    arguments.pointers_for(descriptor).as_ref(),
                )?;
            }
        }
        Ok(())
    }

    /// Enqueues the product by a kernel that reads A and B where they lie.
    ///
    /// # Safety
    ///
    /// As for [`TensorCorePlan::launch`]; rows of A and B begin on 16 bytes.
    unsafe fn launch_plain(
        &self,
        function: &EntryPoint,
        [m, n, k]: [u32; 3],
        [a, b, c]: [OperandLayout; 3],
    ) -> Result<(), Error> {
        let descriptor = self.kernel.descriptor();
        let Gemm { alpha, beta, .. } = self.gemm;
        let [lda, ldb, ldc] = [a, b, c].map(|operand| operand.ld as u32);
        let [a, b, c] = [a, b, c].map(|operand| Address(operand.address));
        let mut arguments = TensorCorePointers { m, n, k, alpha, a, lda, b, ldb, beta, c, ldc };
        let (threads, shared) = (descriptor.threads(), descriptor.shared_bytes());
        // SAFETY: as in `launch`; there is a block for each tile.
        unsafe {
            let tiles = self.division.tiles as u32;
            function.launch(&self.stream, tiles, threads, shared, &arguments.pointers())
        }
    }

    /// A and B where bulk copies reach their rows, or else copies of them, which are enqueued.
    ///
    /// # Safety
    ///
    /// The matrices are there, and not empty.
    unsafe fn staged(&self, operands: [OperandLayout; 2]) -> Result<[OperandLayout; 2], Error> {
        let mut staged = operands;
        for (i, what) in ["A", "B"].into_iter().enumerate() {
            if reaches_halves(&operands[i]) {
                continue;
            }
            let copies = self.copies.as_ref().ok_or(Error::PlannedAlignment { what })?;
            // SAFETY: the caller's contract.
            staged[i] = unsafe { copies.copy(&self.stream, i, what, operands[i]) }?;
        }
        Ok(staged)
    }
}

#[cfg(test)]
mod tests {
    use gemm_matrix::Matrix;
    use kernels_gpu::{InputType, wgmma, wgmma_persistent};

    use super::*;
    use crate::device::{Device, DeviceChoice};
    use crate::gemm::Epilogue;
    use crate::matrix::{DeviceHalfMatrix, DeviceHalfRef, DeviceMatrix};

    #[test]
    fn what_was_not_planned_is_refused() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let (input, gemm) = (InputType::Bf16, Gemm::new(8, 8, 8));
        let kernel = device.tensor_core(&wgmma_persistent::TILE_64X64, input).unwrap();
        let plain = device.tensor_core(&wgmma::DESCRIPTOR, input).unwrap();
        let epilogue = gemm.then(Epilogue::new().residual());
        for (gemm, wrong) in [
            (gemm.transposed(true, false), "transposes"),
            (gemm.device_factors(), "alpha and beta in device memory"),
            (gemm.stacked(2), "batches"),
            (gemm.batched_pointers(2), "batches of pointers"),
            (epilogue, "epilogues"),
            (gemm.stored_as(Element::Bf16), "C in 16 bits"),
        ] {
            let refused = plain.prepare(gemm).unwrap_err();
            let is_right = matches!(refused, Error::TensorCoreShape { what, .. } if what == wrong);
            assert!(is_right, "{refused}");
            assert_eq!(kernel.prepare(gemm).is_ok(), !gemm.pointers, "{wrong}");
        }
        let refused = kernel.prepare(gemm.stored_as(Element::F16)).unwrap_err();
        assert!(matches!(refused, Error::Compute { .. }), "{refused}");
        for other in [Compute::F16, Compute::Tf32, Compute::Tf32x3] {
            let refused = kernel.prepare(gemm.computed_in(other)).unwrap_err().to_string();
            assert!(refused.contains(".computed_in(Compute::Bf16)"), "{refused}");
        }
        let own = kernel.prepare(gemm.computed_in(Compute::Bf16)).unwrap();
        assert_eq!(own.gemm(), kernel.prepare(gemm).unwrap().gemm());

        let other = Stream::new(&device).unwrap();
        let plan = kernel.prepare(gemm).unwrap();
        let half = |on: &Stream| DeviceHalfMatrix::zeros(on, input, 8, 8).unwrap();
        let (a, b) = (half(&device.stream()), half(&device.stream()));
        let mut c = DeviceMatrix::zeros(&device, 8, 8).unwrap();
        let mut wide = DeviceMatrix::zeros(&device, 8, 9).unwrap();
        let part = wide.submatrix_mut(0..8, 0..8).unwrap();
        let refused = plan.enqueue(&a, &b, part).unwrap_err();
        assert!(matches!(refused, Error::PlannedLd { what: "C", ld: 9, planned: 8 }), "{refused}");

        let mut other_c = DeviceMatrix::zeros(&other, 8, 8).unwrap();
        for (refused, wrong) in [
            (plan.enqueue(&half(&other), &b, &mut c), "A"),
            (plan.enqueue(&a, &half(&other), &mut c), "B"),
            (plan.enqueue(&a, &b, &mut other_c), "C"),
        ] {
            let is_right = matches!(refused, Err(Error::WrongStream { what }) if what == wrong);
            assert!(is_right, "{refused:?}");
        }
        let mut half_c = half(&device.stream());
        let f32_a = DeviceMatrix::zeros(&device, 8, 8).unwrap();
        for (refused, wrong) in
            [(plan.enqueue(&a, &b, &mut half_c), "C"), (plan.enqueue(&f32_a, &b, &mut c), "A")]
        {
            let is_right = matches!(refused, Err(Error::PlannedType { what, .. }) if what == wrong);
            assert!(is_right, "{refused:?}");
        }
        let refused = plan.enqueue(a.view().broadcast(2), &b, &mut c).unwrap_err();
        assert!(matches!(refused, Error::PlannedBatch { what: "A", count: 2, .. }), "{refused}");
        // Two of C with 8 elements between them, and without.
        let apart = kernel.prepare(gemm.batched(2, [0, 0, 72])).unwrap();
        let mut both = DeviceMatrix::zeros(&device, 16, 8).unwrap();
        let (a2, b2) = (a.view().broadcast(2), b.view().broadcast(2));
        let c2 = both.view_mut().split_rows(2).unwrap();
        let refused = apart.enqueue(a2, b2, c2).unwrap_err();
        let is_right = matches!(
            refused,
            Error::PlannedBatch { what: "C", stride: 64, planned_stride: 72, .. }
        );
        assert!(is_right, "{refused}");
        let refused = apart.enqueue(a2, b2, &mut c).unwrap_err();
        let is_right = matches!(refused, Error::PlannedBatch { what: "C", count: 1, .. });
        assert!(is_right, "{refused}");

        // Rows of 16 bytes that do not begin on 16.
        let at = |matrix: &DeviceHalfMatrix, skip| DevicePointer::from_raw(matrix.address() + skip);
        for (skips, wrong) in [([2, 0], "A"), ([0, 8], "B")] {
            let [a, b] = [at(&a, skips[0]), at(&b, skips[1])];
            // SAFETY: nothing is enqueued.
            let refused = unsafe { plan.enqueue_raw(a, b, c.as_device_ptr()) }.unwrap_err();
            let is_right = matches!(refused, Error::PlannedAlignment { what, .. } if what == wrong);
            assert!(is_right, "{refused}");
        }
    }

    fn bf16(device: &Device, rows: usize, cols: usize, from: usize) -> DeviceHalfMatrix {
        let at = |row, col| ((from + 3 * row + col) % 8) as f32;
        DeviceHalfMatrix::from_host(device, InputType::Bf16, &Matrix::from_fn(rows, cols, at))
            .unwrap()
    }

    /// What the kernel computes of such matrices, by three loops.
    fn expected(m: usize, n: usize, k: usize, [from_a, from_b]: [usize; 2]) -> Matrix {
        let at = |from, row, col| ((from + 3 * row + col) % 8) as f32;
        Matrix::from_fn(m, n, |row, col| {
            (0..k).map(|i| at(from_a, row, i) * at(from_b, i, col)).sum()
        })
    }

    fn planned(device: &Device, gemm: Gemm) -> TensorCorePlan {
        let kernel = device.tensor_core(&wgmma_persistent::TILE_64X64, InputType::Bf16).unwrap();
        kernel.plan(gemm).any_alignment().prepare().unwrap()
    }

    #[test]
    fn the_last_tensor_maps_are_those_of_the_same_matrices() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let plan = planned(&device, Gemm::new(8, 8, 16));
        let [a, other_a] = [0, 1].map(|from| bf16(&device, 8, 16, from));
        let [b, other_b] = [2, 3].map(|from| bf16(&device, 16, 8, from));
        let mut c = DeviceMatrix::zeros(&device, 8, 8).unwrap();
        for (a, b, from) in [
            (&a, &b, [0, 2]),
            (&a, &b, [0, 2]),
            (&other_a, &b, [1, 2]),
            (&other_a, &other_b, [1, 3]),
        ] {
            plan.enqueue(a, b, &mut c).unwrap();
            assert_eq!(c.download().unwrap(), expected(8, 8, 16, from), "{from:?}");
        }
    }

    #[test]
    fn addresses_go_with_the_plans_leading_dimensions() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let plan = planned(&device, Gemm::new(8, 8, 16).strided(16, 8, 12));
        let (a, b) = (bf16(&device, 8, 16, 0), bf16(&device, 16, 8, 2));
        let c = DeviceMatrix::zeros(&device, 8, 12).unwrap();
        let [pa, pb] = [&a, &b].map(|matrix| DevicePointer::from_raw(matrix.address()));
        // SAFETY: the matrices lie as planned, and nothing else uses them.
        unsafe { plan.enqueue_raw(pa, pb, c.as_device_ptr()) }.unwrap();
        let (result, right) = (c.download().unwrap(), expected(8, 8, 16, [0, 2]));
        for row in 0..8 {
            assert_eq!(
                (&result.row(row)[..8], &result.row(row)[8..]),
                (right.row(row), &[0.0; 4][..])
            );
        }
    }

    #[test]
    fn copies_are_of_each_product_or_of_one_for_all() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let (m, n, k, count) = (1, 3, 5, 5);
        let gemm = Gemm::new(m, n, k);
        let mut plan = planned(&device, gemm.stacked(count));
        // Without their first columns, no rows begin on 16 bytes.
        let a = bf16(&device, count * m, 1 + k, 0);
        let (b, one_b) = (bf16(&device, count * k, 1 + n, 1), bf16(&device, k, 1 + n, 1));
        fn part(matrix: &DeviceHalfMatrix) -> DeviceHalfRef<'_> {
            matrix.view().submatrix(0..matrix.rows(), 1..matrix.cols()).unwrap()
        }
        // Products of several launches.
        plan.copies.as_mut().unwrap().most_products = 2;
        let run = |plan: &TensorCorePlan, b: DeviceHalfRef<'_>| {
            let mut c = DeviceMatrix::zeros(&device, count * m, n).unwrap();
            let a = part(&a).split_rows(count)?;
            plan.enqueue(a, b, c.view_mut().split_rows(count)?)?;
            c.download()
        };
        let each_b = part(&b).split_rows(count).unwrap();
        let shared_b = part(&one_b).broadcast(count);
        let (each, shared) = (run(&plan, each_b).unwrap(), run(&plan, shared_b).unwrap());
        for product in 0..count {
            let right = expected(m, n, k, [1 + 3 * product, 2 + 3 * k * product]);
            assert_eq!(each.row(product), right.row(0), "{product}");
            let right = expected(m, n, k, [1 + 3 * product, 2]);
            assert_eq!(shared.row(product), right.row(0), "{product}");
        }

        let plan = planned(&device, gemm.batched(count, [m * k, 0, m * n]));
        assert_eq!(plan.copies.as_ref().unwrap().counts, [count, 1]);
        assert_eq!(run(&plan, shared_b).unwrap(), shared);
        let refused = run(&plan, each_b).unwrap_err();
        let is_right = matches!(refused, Error::PlannedBatch { what: "B", planned_stride: 0, .. });
        assert!(is_right, "{refused}");
    }

    /// Heads that lie side by side, and a C of odd strides.
    #[test]
    fn matrices_of_a_batch_may_lie_side_by_side() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let (m, n, k, heads) = (5, 3, 8, 2);
        let gemm = Gemm::new(m, n, k).strided(heads * k, heads * n, 8).stored_as(Element::Bf16);
        let plan = planned(&device, gemm.batched(heads, [k, n, n]));
        let (a, b) = (bf16(&device, m, heads * k, 0), bf16(&device, k, heads * n, 1));
        let mut c = DeviceHalfMatrix::zeros(&device, InputType::Bf16, m, heads * n).unwrap();
        let parts = c.view_mut().split_cols(heads).unwrap();
        let (a, b) = (a.view().split_cols(heads).unwrap(), b.view().split_cols(heads).unwrap());
        plan.enqueue(a, b, parts).unwrap();
        for head in 0..heads {
            let part = c.view().submatrix(0..m, head * n..(head + 1) * n).unwrap();
            let right = expected(m, n, k, [head * k, 1 + head * n]);
            assert_eq!(part.download().unwrap(), right.rounded(Element::Bf16), "{head}");
        }
    }

    #[test]
    fn of_no_products_nothing_is_done() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let (most, none) = (crate::gemm::MAX_DIMENSION, DevicePointer::<u16>::null());
        let gemm = Gemm::new(most, most, most);
        let kernel = device.tensor_core(&wgmma_persistent::TILE_64X64, InputType::Bf16).unwrap();
        assert!(matches!(kernel.prepare(gemm), Err(Error::TooLarge { .. })));
        let plan = planned(&device, gemm.batched(0, [0; 3]));
        // SAFETY: there are no matrices.
        unsafe { plan.enqueue_raw(none, none, none.cast::<f32>()) }.unwrap();
    }
}
