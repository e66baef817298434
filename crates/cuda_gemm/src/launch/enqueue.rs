//! From addresses of f32 matrices to launches of a kernel.

use cust::memory::DevicePointer;

use super::extras::RawExtras;
use super::kernel::EntryPoints;
use super::parameters::{self, Address, GemmParameters};
use super::plan::Plan;
use super::staging::{Operand, layout};
use super::workspace::Buffers;
use crate::error::Error;
use crate::gemm::{Gemm, Launch};

impl Plan {
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
        factors: [f32; 2],
    ) -> Result<(), Error> {
        let Some([alpha, beta]) = self.plan.gemm().kernel_factors(factors) else { return Ok(()) };
        let EntryPoints { function, unaligned, .. } = self.kernel.entry_points();
        // So that no other thread's launches come between the one that copies A and B and those
        // that compute.
        let _exclusive = self.stream.exclusive();
        let _current = self.stream.device().enter()?;
        if self.kernel.descriptor().abi().has_tensor_maps() {
            // SAFETY: the caller's contract.
            return unsafe { self.enqueue_maps([a, b, c], extras, [alpha, beta]) };
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
    pub(super) fn output(&self, c: DevicePointer<f32>) -> Operand {
        let form = self.plan.form();
        let Gemm { ldc, stride_c, pointers, .. } = form.gemm;
        // `Gemm::validate` accepted the leading dimension.
        let (ld, stride) = (ldc as u32, stride_c as u64);
        let (address, transposed) = (c.as_raw(), form.transposes_c);
        Operand { address, ld, stride, is_addressed: pointers, transposed }
    }

    /// All launches: the first product that each is for, and how many.
    pub(super) fn launches(&self) -> impl Iterator<Item = (usize, u32, &Launch)> {
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
    pub(super) unsafe fn stage(
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

    /// Addresses of the partial sums and the counters; 0 where no launch touches them.
    pub(super) fn workspace(&self) -> [u64; 2] {
        self.buffers.as_ref().map_or([0; 2], Buffers::addresses)
    }
}
