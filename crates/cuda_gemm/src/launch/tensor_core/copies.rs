//! Copies of matrices in 16 bits whose rows bulk copies do not reach.

use kernels_gpu::utility::staging::{BLOCKS, QUADS, THREADS};

use crate::device::EntryPoint;
use crate::error::Error;
use crate::gemm::Gemm;
use crate::launch::alignment::copy_ld;
use crate::launch::parameters::{Address, StageOperands};
use crate::launch::staging::blocks;
use crate::matrix::{Memory, OperandLayout};
use crate::stream::Stream;

/// Elements of 16 bytes.
const VECTOR: usize = 8;

/// The leading dimension of a copy of this number of columns.
fn ld(cols: usize) -> usize {
    copy_ld(cols as u64, size_of::<u16>() as u64) as usize
}

/// Memory for copies of A and B whose rows begin on 16 bytes, and what makes them. Work on one stream
/// uses it one launch after the other.
pub(super) struct Copies {
    memory: [Memory; 2],
    /// How many matrices there is room for; one if all products have the same.
    pub(super) counts: [usize; 2],
    /// The most products that a launch copies for.
    pub(super) most_products: usize,
    function: EntryPoint,
}

impl Copies {
    /// For a product's A and B, or those of them that may be copied, by the entry point `stage_halves`.
    pub(super) fn new(
        stream: &Stream,
        gemm: &Gemm,
        may_be_copied: [bool; 2],
        function: EntryPoint,
    ) -> Result<Self, Error> {
        let counts = [0, 1].map(|i| match (may_be_copied[i], gemm.strides()[i]) {
            (false, _) => 0,
            (true, 0) => 1,
            (true, _) => gemm.batch,
        });
        let words = |i: usize| {
            let [rows, cols] = gemm.shapes()[i];
            rows as u128 * ld(cols) as u128 * counts[i] as u128 / 2
        };
        let words = [words(0), words(1)];
        stream.device().require_memory(4 * (words[0] + words[1]))?;
        // They fit, since the bytes are no more than the device has. The copy stores every element
        // before any is loaded.
        let memory = |words| Memory::uninitialized(stream, words as usize);
        let most_products = stream.device().info().limits.grid[1].max(1) as usize;
        let memory = [memory(words[0])?, memory(words[1])?];
        Ok(Self { memory, counts, most_products, function })
    }

    /// Enqueues copies of A and B, of those of them that are to be copied, with one launch, and says where these lie.
    ///
    /// # Safety
    ///
    /// The matrices are there, and not empty.
    pub(super) unsafe fn copy(
        &self,
        stream: &Stream,
        from: [OperandLayout; 2],
        is_copied: [bool; 2],
    ) -> Result<[OperandLayout; 2], Error> {
        let mut to = from;
        let (mut products, mut wanted) = ([0; 2], [0; 2]);
        for i in (0..2).filter(|i| is_copied[*i]) {
            let OperandLayout { count, stride, shape: [rows, cols], .. } = from[i];
            products[i] = if stride == 0 { 1 } else { count };
            if products[i] > self.counts[i] {
                let (what, planned_count, planned_stride) = (["A", "B"][i], count, 0);
                return Err(Error::PlannedBatch {
                    what,
                    count,
                    stride,
                    planned_count,
                    planned_stride,
                });
            }
            let ld = ld(cols);
            let stride = if products[i] == 1 { 0 } else { rows * ld };
            to[i] = OperandLayout { address: self.memory[i].address(), ld, stride, ..from[i] };
            wanted[i] = (rows as u64 * (ld / VECTOR) as u64).div_ceil((THREADS * QUADS).into());
        }
        let multiprocessors = stream.device().info().limits.multiprocessors.clamp(1, 1 << 16);
        let most_blocks = multiprocessors * BLOCKS;
        let all = products[0].max(products[1]);
        for first in (0..all).step_by(self.most_products) {
            let count = self.most_products.min(all - first) as u32;
            // What all products share is copied with the first.
            let wanted = [0, 1].map(|i| if first < products[i] { wanted[i] } else { 0 });
            let [blocks_a, blocks_b] = blocks(wanted, (most_blocks / count).max(2));
            let ([from_a, from_b], [to_a, to_b]) =
                (from.map(|of| of.of_product(first)), to.map(|of| of.of_product(first)));
            let [[a_rows, a_cols], [b_rows, b_cols]] =
                [from_a, from_b].map(|of| of.shape.map(|size| size as u32));
            let [stride_a, stride_b] =
                [0, 1].map(|i| if products[i] > 1 { from[i].stride as u64 } else { 0 });
            let mut arguments = StageOperands {
                a: Address(from_a.address),
                // They fit, as `launch` asks.
                lda: from_a.ld as u32,
                to_a: Address(to_a.address),
                ld_to_a: to_a.ld as u32,
                a_rows,
                a_cols,
                b: Address(from_b.address),
                ldb: from_b.ld as u32,
                to_b: Address(to_b.address),
                ld_to_b: to_b.ld as u32,
                b_rows,
                b_cols,
                a_blocks: blocks_a,
                stride_a,
                stride_b,
                // It is not passed.
                pointer_batch: 0,
            };
            let grid = (blocks_a + blocks_b, count);
            // SAFETY: the driver copies the arguments during the call, and they are the kernel's; the
            // grid and the block are as it asks, with blocks only for what is copied. The caller vouches for the matrices, and the
            // copies have room; they are freed after all work.
            unsafe {
                let pointers = &arguments.pointers()[..StageOperands::OF_HALVES];
                self.function.launch(stream, grid, THREADS, 0, pointers)?;
            }
        }
        Ok(to)
    }
}
