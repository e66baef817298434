//! Copies of matrices in 16 bits whose rows bulk copies do not reach.

use kernels_gpu::staging::{BLOCKS, THREADS};

use crate::device::EntryPoint;
use crate::error::Error;
use crate::gemm::Gemm;
use crate::launch::alignment::copy_ld;
use crate::launch::parameters::{Address, StageHalves};
use crate::matrix::{Memory, OperandLayout};
use crate::stream::Stream;

/// Elements of 16 bytes.
const VECTOR: usize = 8;

/// The leading dimension of a copy of so many columns.
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
    /// For a product's A and B, by the entry point `stage_halves`.
    pub(super) fn new(stream: &Stream, gemm: &Gemm, function: EntryPoint) -> Result<Self, Error> {
        let counts = [0, 1].map(|i| if gemm.strides()[i] == 0 { 1 } else { gemm.batch });
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

    /// Enqueues a copy of A or B.
    ///
    /// # Safety
    ///
    /// The matrices are there, and not empty.
    pub(super) unsafe fn copy(
        &self,
        stream: &Stream,
        which: usize,
        what: &'static str,
        from: OperandLayout,
    ) -> Result<OperandLayout, Error> {
        let OperandLayout { count, stride, .. } = from;
        let products = if stride == 0 { 1 } else { count };
        if products > self.counts[which] {
            let (planned_count, planned_stride) = (count, 0);
            return Err(Error::PlannedBatch { what, count, stride, planned_count, planned_stride });
        }
        let limits = &stream.device().info().limits;
        let [rows, cols] = from.shape;
        let ld = ld(cols);
        let stride = if products == 1 { 0 } else { rows * ld };
        let to = OperandLayout { address: self.memory[which].address(), ld, stride, ..from };
        let wanted = (rows as u64 * (ld / VECTOR) as u64).div_ceil(THREADS.into());
        let blocks = wanted.min((limits.multiprocessors.clamp(1, 1 << 16) * BLOCKS).into()) as u32;
        let most = self.most_products;
        for first in (0..products).step_by(most) {
            let (from, to) = (from.of_product(first), to.of_product(first));
            let mut arguments = StageHalves {
                from: Address(from.address),
                // They fit, as `launch` asks.
                ld: from.ld as u32,
                stride: from.stride as u64,
                to: Address(to.address),
                ld_to: ld as u32,
                rows: rows as u32,
                cols: cols as u32,
            };
            let grid = (blocks, most.min(products - first) as u32);
            // SAFETY: the driver copies the arguments during the call, and they are the kernel's; the
            // grid and the block are as it asks. The caller vouches for the matrices, and the copies
            // have room; they are freed after all work.
            unsafe { self.function.launch(stream, grid, THREADS, 0, &arguments.pointers())? };
        }
        Ok(to)
    }
}
