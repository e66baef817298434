//! Products that are checked, and wait for their matrices.

use std::iter;

use cust::memory::DevicePointer;
use kernels_gpu::{KernelAbi, Unaligned};

use super::alignment::is_aligned;
use super::kernel::Kernel;
use super::staging::{Requirement, Staging};
use super::workspace::Buffers;
use super::{parameters, tensor};
use crate::device::Device;
use crate::error::Error;
use crate::gemm::{Gemm, Plan};
use crate::limits::Limits;
use crate::matrix::DeviceMatrix;

impl<'d> Kernel<'d> {
    /// Checks a product against the rung and the device, once for any number of calls, and
    /// allocates the memory that these need. [`Kernel::plan`] has settings.
    ///
    /// # Errors
    ///
    /// Those of [`PlanBuilder::prepare`].
    pub fn prepare(&self, gemm: Gemm) -> Result<Prepared<'_, 'd>, Error> {
        self.plan(gemm).prepare()
    }

    /// How to prepare a product: as [`Kernel::prepare`] does, until told otherwise.
    ///
    /// ```
    /// # use host::{Device, DeviceChoice, Gemm, find_kernel};
    /// # let device = Device::open(DeviceChoice::Soft)?;
    /// let kernel = device.kernel(find_kernel("tile_64x64")?)?;
    /// let product = kernel.plan(Gemm::new(64, 64, 4096)).splits(4).staged(true).prepare()?;
    /// assert_eq!(product.plan().splits(), 4);
    /// # Ok::<(), host::Error>(())
    /// ```
    pub fn plan(&self, gemm: Gemm) -> PlanBuilder<'_, 'd> {
        let limits = self.device.info().limits;
        PlanBuilder { kernel: self, gemm, splits: 1, staged: false, limits }
    }
}

/// How a product is prepared: see [`Kernel::plan`].
#[must_use]
pub struct PlanBuilder<'k, 'd> {
    kernel: &'k Kernel<'d>,
    gemm: Gemm,
    splits: u32,
    staged: bool,
    limits: Limits,
}

impl<'k, 'd> PlanBuilder<'k, 'd> {
    /// Split-K: K is split among so many blocks per tile of C; see [`Plan::split`].
    pub fn splits(self, splits: u32) -> Self {
        Self { splits, ..self }
    }

    /// Operand staging, for a kernel that can split K: where 128-bit accesses do not reach A or
    /// B, it computes with copies of them, made anew by each call, instead of copying one by one.
    /// Where they do, or for another kernel, that changes nothing.
    ///
    /// Buffers of copies are allocated as for bulk copies: see [`Prepared::enqueue`].
    pub fn staged(self, staged: bool) -> Self {
        Self { staged, ..self }
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
    /// Those of [`Plan::split`], [`Error::DeviceMemory`] and [`Error::Driver`].
    pub fn prepare(self) -> Result<Prepared<'k, 'd>, Error> {
        let Self { kernel, gemm, splits, staged, limits } = self;
        let info = kernel.device.info();
        let plan = Plan::split(kernel.spec, gemm, splits, &limits, &info.name)?;
        if plan.shared_bytes() > info.limits.shared_default {
            for function in iter::once(&kernel.function).chain(&kernel.unaligned) {
                kernel.allow_shared(function, plan.shared_bytes())?;
            }
        }
        let buffers = Buffers::new(kernel.device, plan.workspace())?;
        let wide = kernel.spec.unaligned().map_or([false; 3], |unaligned| unaligned.vectorized);
        let requirements = match kernel.spec.abi() {
            KernelAbi::TensorMap | KernelAbi::StreamK => Some([Requirement::AlignedRows; 2]),
            KernelAbi::SplitK if staged => Some([wide[0], wide[1]].map(|wide| match wide {
                true => Requirement::WholeVectors,
                false => Requirement::None,
            })),
            KernelAbi::Gemm | KernelAbi::SplitK => None,
        };
        let staging = match (&kernel.stage_operands, requirements) {
            (Some(function), Some(requirements)) => {
                Some(Box::new(Staging::new(kernel.device, function, &plan, &limits, requirements)?))
            }
            _ => None,
        };
        Ok(Prepared { kernel, plan, buffers, staging })
    }
}

/// A product whose launches have been checked: only the matrices are missing.
pub struct Prepared<'k, 'd> {
    kernel: &'k Kernel<'d>,
    plan: Plan,
    buffers: Option<Buffers<'d>>,
    /// Of A and B: always for a kernel with bulk copies, on demand for one with 128-bit accesses.
    staging: Option<Box<Staging<'k, 'd>>>,
}

impl Prepared<'_, '_> {
    /// The launches.
    pub fn plan(&self) -> &Plan {
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
        let spec = self.kernel.spec;
        match spec.unaligned() {
            Some(unaligned) if !self.is_aligned([a, b, c]) => unaligned.name,
            _ => spec.name(),
        }
    }

    /// Addresses of the partial sums and the counters; 0 where no launch touches them.
    fn workspace(&self) -> [u64; 2] {
        self.buffers.as_ref().map_or([0; 2], Buffers::addresses)
    }

    /// Whether the rung's own entry point takes matrices at these addresses, or copies of A
    /// and B.
    fn is_aligned(&self, pointers: [DevicePointer<f32>; 3]) -> bool {
        let Some(Unaligned { vectorized: mut wide, .. }) = self.kernel.spec.unaligned() else {
            return true;
        };
        if self.staging.is_some() {
            [wide[0], wide[1]] = [false; 2];
        }
        is_aligned(wide, self.plan.gemm(), pointers.map(|pointer| pointer.as_raw()))
    }

    /// Enqueues the product on the device's stream.
    ///
    /// A GPU returns at once, the software device when it is done. Either way a fault in
    /// the kernel is reported by the next [`Device::synchronize`] or download.
    ///
    /// A kernel that copies in bulk cannot reach rows that do not begin on 16 bytes, and
    /// computes with a copy of such a matrix, made anew by each call; so does one with
    /// [`PlanBuilder::staged`]. Its buffer is allocated with the plan if the shape or the
    /// leading dimension is to blame, and by the first call if it is the address.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`], [`Error::Shape`] or [`Error::PlannedLd`] if a matrix is not
    /// what was prepared for; [`Error::DeviceMemory`] if a copy does not fit;
    /// [`Error::Driver`] if the driver refuses the launch.
    pub fn enqueue(
        &self,
        a: &DeviceMatrix<'_>,
        b: &DeviceMatrix<'_>,
        c: &mut DeviceMatrix<'_>,
    ) -> Result<(), Error> {
        expect_planned(self.kernel.device, self.plan.gemm(), [a, b, c])?;
        // SAFETY: the three matrices are on this device and have the shapes and leading
        // dimensions of the plan. C is borrowed mutably, so it is neither A nor B. They
        // stay allocated while the kernel runs: freeing device memory waits for the work
        // that was enqueued before, and so do copies.
        unsafe { self.enqueue_raw(a.as_device_ptr(), b.as_device_ptr(), c.as_device_ptr()) }
    }

    /// Enqueues the product on bare addresses, with the plan's leading dimensions.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceMemory`] if a copy does not fit (see [`Prepared::enqueue`]);
    /// [`Error::Driver`] if the driver refuses the launch.
    ///
    /// # Safety
    ///
    /// With the plan's m, n, k and leading dimensions:
    /// - unless alpha or k is 0, `a` and `b` point to m x k and k x n elements, all
    ///   initialised, in this device's memory;
    /// - `c` points to m x n elements there, initialised unless beta is 0;
    /// - all three are aligned to 4 bytes, C overlaps neither A nor B, and until the
    ///   work is done nothing frees them, writes A or B, or touches C.
    pub unsafe fn enqueue_raw(
        &self,
        a: DevicePointer<f32>,
        b: DevicePointer<f32>,
        c: DevicePointer<f32>,
    ) -> Result<(), Error> {
        let Kernel { device, function, unaligned, .. } = self.kernel;
        device.make_current()?;
        if let (Some(staging), true) = (&self.staging, self.kernel.spec.abi().has_tensor_maps()) {
            // SAFETY: the caller's contract.
            return unsafe { self.enqueue_tensor(staging, a, b, c) };
        }
        // Panels keep what holds for the whole, because tiles are multiples of four wide.
        let function = match unaligned {
            Some(unaligned) if !self.is_aligned([a, b, c]) => unaligned,
            _ => function,
        };
        let gemm = self.plan.gemm();
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [k, mut lda, mut ldb, ldc] =
            [gemm.depth(), gemm.lda, gemm.ldb, gemm.ldc].map(|size| size as u32);
        let (mut first_a, mut first_b) = (a.as_raw(), b.as_raw());
        if let Some(staging) = self.staging.as_ref().filter(|_| self.plan.reads_operands()) {
            // SAFETY: the caller vouches for the matrices, which are not empty.
            let [a, b] = unsafe { staging.operands([first_a, first_b]) }?;
            (first_a, lda, first_b, ldb) = (a.address, a.ld, b.address, b.ld);
        }
        let [partials, counters] = self.workspace();
        for launch in self.plan.launches() {
            // Panels of A are rows, and those of B columns.
            let row = launch.a_offset / gemm.lda.max(1);
            let mut arguments = parameters::Gemm {
                m: launch.m,
                n: launch.n,
                k,
                alpha: gemm.alpha,
                a: first_a.wrapping_add(4 * row as u64 * u64::from(lda)),
                lda,
                b: first_b.wrapping_add(4 * launch.b_offset as u64),
                ldb,
                beta: gemm.beta,
                c: c.wrapping_add(launch.c_offset).as_raw(),
                ldc,
                depth: self.plan.split_depth(),
                partials,
                counters,
            };
            let count = parameters::kinds(self.kernel.spec.abi()).len();
            // SAFETY: the driver copies the arguments during the call, and they are the
            // kernel's: see `parameters`. The grid covers this panel of C and no more, the block
            // is the rung's own, the matrices are aligned as this entry point needs, and
            // the caller vouches for the memory. The workspace is as large as the largest
            // launch needs; one launch after the other uses it, and it is freed after them.
            unsafe {
                device.stream().launch(
                    function,
                    (launch.grid[0], launch.grid[1], self.plan.splits()),
                    (self.plan.block()[0], self.plan.block()[1]),
                    self.plan.shared_bytes(),
                    &arguments.pointers()[..count],
                )
            }
            .map_err(|e| device.error("launching a kernel", e))?;
        }
        Ok(())
    }

    /// [`Prepared::enqueue_raw`] for a kernel with tensor maps. The device's context is current.
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn enqueue_tensor(
        &self,
        staging: &Staging<'_, '_>,
        a: DevicePointer<f32>,
        b: DevicePointer<f32>,
        c: DevicePointer<f32>,
    ) -> Result<(), Error> {
        let Kernel { device, spec, function, .. } = self.kernel;
        let gemm = self.plan.gemm();
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [k, ldc] = [gemm.depth(), gemm.ldc].map(|size| size as u32);
        let [partials, counters] = self.workspace();
        // Where nothing is summed A and B need not be there.
        let operands = if self.plan.reads_operands() {
            // SAFETY: the caller vouches for the matrices, which are not empty.
            Some(unsafe { staging.operands([a.as_raw(), b.as_raw()]) }?)
        } else {
            None
        };
        for launch in self.plan.launches() {
            let [m, n] = [launch.m, launch.n];
            let [map_a, map_b] = match operands {
                None => Default::default(),
                Some(operands) => tensor::maps(device, spec.tile(), gemm, launch, operands)?,
            };
            let mut arguments = parameters::Tensor {
                m,
                n,
                k,
                alpha: gemm.alpha,
                map_a,
                map_b,
                beta: gemm.beta,
                c: c.wrapping_add(launch.c_offset).as_raw(),
                ldc,
                stream_k_tiles: launch.stream_k_tiles,
                accumulation_steps: launch.accumulation_steps,
                partials,
                counters,
            };
            let count = parameters::kinds(spec.abi()).len();
            // SAFETY: the driver copies the arguments during the call, and they are the kernel's:
            // see `parameters`. The plan's grid and stream-K tiles are what the kernel asks for,
            // the block is the rung's own, the maps describe this panel's part of A and B, and
            // the caller vouches for the memory. The workspace and the copies of A and B are as
            // large as the largest launch needs; one launch after the other uses them, and they
            // are freed after them.
            unsafe {
                device.stream().launch(
                    function,
                    (launch.grid[0], launch.grid[1]),
                    (self.plan.block()[0], self.plan.block()[1]),
                    self.plan.shared_bytes(),
                    &arguments.pointers()[..count],
                )
            }
            .map_err(|e| device.error("launching a kernel", e))?;
        }
        Ok(())
    }
}

/// Whether A, B and C are on this device, and have the shapes and the leading dimensions that a
/// call was prepared for.
pub(crate) fn expect_planned(
    device: &Device,
    gemm: &Gemm,
    [a, b, c]: [&DeviceMatrix<'_>; 3],
) -> Result<(), Error> {
    let Gemm { m, n, k, lda, ldb, ldc, .. } = *gemm;
    let operands = [("A", a, [m, k], lda), ("B", b, [k, n], ldb), ("C", c, [m, n], ldc)];
    for (what, matrix, [need_rows, need_cols], planned) in operands {
        if !std::ptr::eq(matrix.device(), device) {
            return Err(Error::WrongDevice { what });
        }
        let (rows, cols) = (matrix.rows(), matrix.cols());
        if (rows, cols) != (need_rows, need_cols) {
            return Err(Error::Shape { what, rows, cols, need_rows, need_cols });
        }
        let ld = matrix.layout().ld;
        if ld != planned {
            return Err(Error::PlannedLd { what, ld, planned });
        }
    }
    Ok(())
}
