//! Products that are checked, and wait for their matrices.

use std::fmt;

use cust::memory::DevicePointer;
use kernels_gpu::KernelAbi;
use kernels_gpu::tensor_core::options;

use super::alignment::is_aligned;
use super::expected::{expect_matrix, expect_planned};
use super::extras::{Extras, RawExtras};
use super::kernel::{EntryPoints, Kernel};
use super::parameters::{self, Address, GemmParameters, TensorParameters, Tf32Parameters};
use super::staging::{Operand, Staging, layout};
use super::tensor::{self, LastMaps, PartKey};
use super::workspace::Buffers;
use crate::error::Error;
use crate::gemm::{Gemm, Launch, LaunchPlan};
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
    kernel: Kernel,
    stream: Stream,
    plan: LaunchPlan,
    buffers: Option<Buffers>,
    staging: Box<Staging>,
    last_maps: Box<LastMaps<PartKey>>,
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
        Self { kernel, stream, plan, buffers, staging, last_maps: Box::default() }
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

    /// Addresses of the partial sums and the counters; 0 where no launch touches them.
    fn workspace(&self) -> [u64; 2] {
        self.buffers.as_ref().map_or([0; 2], Buffers::addresses)
    }

    /// Whether the rung's own entry point takes matrices at these addresses, or copies of A
    /// and B.
    fn is_aligned(&self, pointers: [DevicePointer<f32>; 3]) -> bool {
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
    /// operand as it lies: see [`reads`](kernels_gpu::KernelDescriptor::reads).
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`], [`Error::WrongStream`], [`Error::Shape`], [`Error::PlannedLd`] or
    /// [`Error::PlannedBatch`] if a matrix is not what was prepared for; [`Error::PlannedAlignment`] if a copy is needed
    /// because of an address: see [`PlanBuilder::any_alignment`](super::PlanBuilder::any_alignment); [`Error::Driver`] if the driver
    /// refuses the launch.
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
    /// - unless alpha or k is 0, `a` and `b` point to A and B, all initialised, in this device's
    ///   memory;
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
    /// As there; and of the extras, what the product was prepared for is at these addresses, as C is
    /// with `beta`. The residual may be C itself, with its leading dimension and stride.
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

    /// As [`Plan::enqueue_raw_with`], with other factors than the plan's, of which each is 0 if and
    /// only if the plan's is.
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn enqueue_scaled(
        &self,
        a: DevicePointer<f32>,
        b: DevicePointer<f32>,
        c: DevicePointer<f32>,
        extras: RawExtras,
        [alpha, beta]: [f32; 2],
    ) -> Result<(), Error> {
        let EntryPoints { function, unaligned, .. } = self.kernel.entry_points();
        // So that no other thread's launches come between the one that copies A and B and those
        // that compute.
        let _exclusive = self.stream.exclusive();
        if self.kernel.descriptor().abi().has_tensor_maps() {
            // SAFETY: the caller's contract.
            return unsafe { self.enqueue_tensor(a, b, c, extras, [alpha, beta]) };
        }
        // Panels keep what holds for the whole, because tiles are multiples of four wide.
        let function = match unaligned {
            Some(unaligned) if !self.is_aligned([a, b, c]) => unaligned,
            _ => function,
        };
        let gemm = &self.plan.form().gemm;
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [k, lda, ldb] = [gemm.depth(), gemm.lda, gemm.ldb].map(|size| size as u32);
        // SAFETY: the caller's contract.
        let operands = unsafe { self.stage([a, b]) }?;
        // Where nothing is summed, they are not read.
        let unread = |ld| Operand { ld, ..Operand::default() };
        let [a, b] = operands.unwrap_or([unread(lda), unread(ldb)]);
        let c = self.output(c);
        let [partials, counters] = self.workspace();
        let is_single = gemm.batch == 1 && !gemm.pointers;
        for (product, products, launch) in self.launches() {
            let [a, b, c] = [a, b, c].map(|operand| operand.of_product(product));
            let [row, col] = [launch.row, launch.col].map(|at| at as u64);
            let layout = layout([&a, &b, &c]);
            let (a_at, stride_a) = a.part(a.offset(row, 0));
            let (b_at, stride_b) = b.part(b.offset(0, col));
            let (c_at, stride_c) = c.part(c.offset(row, col));
            // Where the part of C begins, as C lies.
            let of_c = self.plan.form().order([launch.row, launch.col]);
            let mut arguments = GemmParameters {
                m: launch.m,
                n: launch.n,
                k,
                alpha,
                a: a_at,
                lda: a.ld,
                b: b_at,
                ldb: b.ld,
                beta,
                c: c_at,
                ldc: c.ld,
                depth: self.plan.split_depth(),
                partials: Address(partials),
                counters: Address(counters),
                splits: if is_single { 0 } else { self.plan.splits() },
                stride_a,
                stride_b,
                stride_c,
                layout,
                epilogue: extras.parameters(gemm, of_c, product),
            };
            let count = parameters::kinds(self.kernel.descriptor().abi()).len();
            // SAFETY: the driver copies the arguments during the call, and they are the
            // kernel's: see `parameters`. The grid covers this panel of C and no more, for as many
            // products as a launch may have, the block is the rung's own, the matrices are aligned
            // as this entry point needs, and the caller vouches for the memory. The workspace is
            // as large as the largest launch needs; one launch after the other uses it, and it is
            // freed after them.
            unsafe {
                function.launch(
                    &self.stream,
                    (launch.grid[0], launch.grid[1], self.plan.splits() * products),
                    (self.plan.block()[0], self.plan.block()[1]),
                    self.plan.shared_bytes(),
                    &arguments.pointers()[..count],
                )?;
            }
        }
        Ok(())
    }

    /// C as the kernel takes it.
    fn output(&self, c: DevicePointer<f32>) -> Operand {
        let form = self.plan.form();
        let Gemm { ldc, stride_c, pointers, .. } = form.gemm;
        // `Gemm::validate` accepted the leading dimension.
        let (ld, stride) = (ldc as u32, stride_c as u64);
        let (address, transposed) = (c.as_raw(), form.transposes_c);
        Operand { address, ld, stride, is_addressed: pointers, transposed }
    }

    /// All launches: the first product that each is for, and how many.
    fn launches(&self) -> impl Iterator<Item = (usize, u32, &Launch)> {
        let (batch, each) = (self.plan.form().gemm.batch, self.plan.products_per_launch());
        (0..batch).step_by(each as usize).flat_map(move |product| {
            // It fits, being no more than `each`.
            let products = (batch - product).min(each as usize) as u32;
            self.plan.launches().iter().map(move |launch| (product, products, launch))
        })
    }

    /// A and B as the kernel takes them; none where nothing is summed, and they need not be
    /// there.
    ///
    /// # Safety
    ///
    /// As for [`Plan::enqueue_raw`].
    unsafe fn stage(
        &self,
        operands: [DevicePointer<f32>; 2],
    ) -> Result<Option<[Operand; 2]>, Error> {
        if !self.plan.reads_operands() {
            return Ok(None);
        }
        let addresses = self.plan.form().order(operands).map(|pointer| pointer.as_raw());
        // SAFETY: the caller vouches for the matrices, which are not empty. The memory of the
        // copies was allocated for this stream.
        unsafe { self.staging.operands(&self.stream, addresses) }.map(Some)
    }

    /// [`Plan::enqueue_raw`] for a kernel with tensor maps.
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn enqueue_tensor(
        &self,
        a: DevicePointer<f32>,
        b: DevicePointer<f32>,
        c: DevicePointer<f32>,
        extras: RawExtras,
        [alpha, beta]: [f32; 2],
    ) -> Result<(), Error> {
        let (device, descriptor) = (self.kernel.device(), self.kernel.descriptor());
        let function = &self.kernel.entry_points().function;
        let gemm = &self.plan.form().gemm;
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [k, ldc] = [gemm.depth(), gemm.ldc].map(|size| size as u32);
        let [partials, counters] = self.workspace();
        // SAFETY: the caller's contract.
        let operands = unsafe { self.stage([a, b]) }?;
        let first_c = self.output(c);
        for (product, products, launch) in self.launches() {
            let Launch { m, n, row, col, .. } = *launch;
            let make = |of: [Operand; 2]| {
                let of = of.map(|operand| operand.of_product(product));
                let maps = || tensor::part_maps(device, descriptor, gemm, launch, of, products);
                self.last_maps.get(([row, col], of, products), maps)
            };
            let [map_a, map_b] = operands.map(make).transpose()?.unwrap_or_default();
            let offset = first_c.offset(row as u64, col as u64);
            let layout = operands.map_or(0, |[a, b]| layout([&a, &b, &first_c]));
            let of_c = self.plan.form().order([row, col]);
            let c = Address(first_c.of_product(product).address.wrapping_add(4 * offset));
            let epilogue = extras.parameters(gemm, of_c, product);
            let grid = (launch.grid[0], launch.grid[1]);
            let block = (self.plan.block()[0], self.plan.block()[1]);
            let shared = self.plan.shared_bytes();
            if descriptor.abi() == KernelAbi::Tf32TensorMap {
                let is_shared = |i: usize| u32::from(operands.is_some_and(|of| of[i].stride == 0));
                let mut arguments = Tf32Parameters {
                    m,
                    n,
                    k,
                    alpha,
                    map_a,
                    map_b,
                    beta,
                    c,
                    ldc,
                    batch: products,
                    stride_c: first_c.stride,
                    options: is_shared(0) * options::SHARED_A + is_shared(1) * options::SHARED_B,
                    layout,
                    epilogue,
                };
                // SAFETY: as below, and the maps describe A and B of so many products.
                unsafe {
                    function.launch(&self.stream, grid, block, shared, &arguments.pointers())?
                };
                continue;
            }
            let step = |i: usize| u32::from(operands.is_some_and(|of| of[i].stride != 0));
            let mut arguments = TensorParameters {
                m,
                n,
                k,
                alpha,
                map_a,
                map_b,
                beta,
                c,
                ldc,
                stream_k_tiles: launch.stream_k_tiles,
                accumulation_steps: launch.accumulation_steps,
                partials: Address(partials),
                counters: Address(counters),
                layout,
                batch: products,
                step_a: step(0),
                step_b: step(1),
                stride_c: first_c.stride,
                epilogue,
            };
            let pointers = &arguments.pointers()[..parameters::kinds(descriptor.abi()).len()];
            // SAFETY: the driver copies the arguments during the call, and they are the kernel's:
            // see `parameters`. The plan's grid and stream-K tiles are what the kernel asks for,
            // the block is the rung's own, the maps describe this panel's part of A and B, and
            // the caller vouches for the memory. The workspace and the copies of A and B are as
            // large as the largest launch needs; one launch after the other uses them, and they
            // are freed after them.
            unsafe { function.launch(&self.stream, grid, block, shared, pointers)? };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, DeviceChoice, DeviceMatrix};

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
}
