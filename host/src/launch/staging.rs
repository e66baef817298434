//! Operand staging: a kernel that makes 128-bit or bulk copies takes A and B where the caller has
//! them, or, if they are not aligned for it, copies of them, made by
//! [`stage_operands`](kernels_gpu::staging) before each product.

use std::cell::OnceCell;

use cust::function::Function;
use cust::memory::DeviceBuffer;
use kernels_gpu::staging;

use super::alignment::is_wide;
use super::parameters;
use super::workspace::require_memory;
use crate::device::Device;
use crate::error::Error;
use crate::gemm::Plan;
use crate::limits::Limits;

/// Elements of a vector that is copied at once: 16 bytes.
const VECTOR: u32 = 4;

/// For how many multiprocessors `stage_operands` is launched at most: the blocks stay below its limit.
const MOST_MULTIPROCESSORS: u32 = 1 << 16;

/// How a kernel needs an operand to be aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requirement {
    /// To no more than elements are.
    None,
    /// Rows begin on 16 bytes.
    AlignedRows,
    /// The same, and consist of whole vectors of four elements.
    WholeVectors,
}

/// The staging of a plan's A and B.
pub(super) struct Staging<'k, 'd> {
    device: &'d Device,
    stage_operands: &'k Function<'d>,
    /// The most blocks that copy.
    most_blocks: u32,
    /// A and B.
    sources: [Source; 2],
}

/// A matrix as the caller has it, and the buffer of its copy once there is one. Work on the
/// device's one stream uses that one launch after the other.
struct Source {
    rows: u32,
    cols: u32,
    ld: u32,
    requirement: Requirement,
    copy: OnceCell<DeviceBuffer<f32>>,
}

/// A matrix as the kernel takes it: its address and leading dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    pub(super) address: u64,
    pub(super) ld: u32,
}

impl<'k, 'd> Staging<'k, 'd> {
    /// For a plan's A and B; allocates the copies that are needed whatever the addresses.
    pub(super) fn new(
        device: &'d Device,
        stage_operands: &'k Function<'d>,
        plan: &Plan,
        limits: &Limits,
        requirements: [Requirement; 2],
    ) -> Result<Self, Error> {
        let gemm = plan.gemm();
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [m, n, k] = [gemm.m, gemm.n, gemm.depth()].map(|size| size as u32);
        let [lda, ldb] = [gemm.lda, gemm.ldb].map(|ld| ld as u32);
        let sources =
            [Source::new(m, k, lda, requirements[0]), Source::new(k, n, ldb, requirements[1])];
        // A copy is for what is read: not where C or the sum is empty.
        if plan.reads_operands() {
            for source in &sources {
                if !source.meets_requirement(0) {
                    source.buffer(device)?;
                }
            }
        }
        let most_blocks = limits.multiprocessors.clamp(1, MOST_MULTIPROCESSORS) * staging::BLOCKS;
        Ok(Self { device, stage_operands, most_blocks, sources })
    }

    /// A and B where they meet the requirements, or else their copies, which are enqueued, with
    /// one launch for both.
    ///
    /// # Safety
    ///
    /// The matrices are at these addresses, neither is empty, and nothing writes them until
    /// the copies are done. The device's context is current.
    pub(super) unsafe fn operands(&self, addresses: [u64; 2]) -> Result<[Operand; 2], Error> {
        let mut operands =
            [0, 1].map(|i| Operand { address: addresses[i], ld: self.sources[i].ld });
        let mut vectors = [0; 2];
        for (i, source) in self.sources.iter().enumerate() {
            if !source.meets_requirement(addresses[i]) {
                let address = source.buffer(self.device)?.as_device_ptr().as_raw();
                operands[i] = Operand { address, ld: source.copy_ld() };
                vectors[i] = u64::from(source.rows) * u64::from(source.copy_ld() / VECTOR);
            }
        }
        if vectors == [0; 2] {
            return Ok(operands);
        }
        let [blocks_a, blocks_b] = blocks(vectors, self.most_blocks);
        let [a, b] = &self.sources;
        let mut arguments = parameters::StageOperands {
            a: addresses[0],
            lda: a.ld,
            to_a: operands[0].address,
            ld_to_a: operands[0].ld,
            a_rows: a.rows,
            a_cols: a.cols,
            b: addresses[1],
            ldb: b.ld,
            to_b: operands[1].address,
            ld_to_b: operands[1].ld,
            b_rows: b.rows,
            b_cols: b.cols,
            a_blocks: blocks_a,
        };
        let grid = blocks_a + blocks_b;
        // SAFETY: the driver copies the arguments during the call, and they are the kernel's: see
        // `parameters`; the grid and the block are as it asks, with blocks only for a matrix whose
        // buffer is allocated. The caller vouches for the matrices, which are not empty, and the
        // buffers are as large as their copies; they are freed after all work.
        unsafe {
            let stream = self.device.stream();
            stream.launch(self.stage_operands, grid, staging::THREADS, 0, &arguments.pointers())
        }
        .map_err(|e| self.device.error("launching the copy of a matrix", e))?;
        Ok(operands)
    }
}

/// How many of `most` blocks, two at least, copy so many vectors of A and of B.
fn blocks(vectors: [u64; 2], most: u32) -> [u32; 2] {
    let per_block = u64::from(staging::THREADS * staging::QUADS);
    let wanted = vectors.map(|vectors| vectors.div_ceil(per_block));
    let (all, most) = (wanted[0] + wanted[1], u64::from(most));
    // Both are below 2^51, and `most` is below 2^19.
    let blocks = match () {
        () if all <= most => wanted,
        () if wanted[0] == 0 => [0, most],
        () if wanted[1] == 0 => [most, 0],
        () => {
            let share = (u128::from(wanted[0]) * u128::from(most) / u128::from(all)) as u64;
            let share = share.clamp(1, most - 1);
            [share, most - share]
        }
    };
    blocks.map(|blocks| blocks as u32)
}

impl Drop for Staging<'_, '_> {
    fn drop(&mut self) {
        // The copies are freed in the current context; see `Device::drop`.
        let _ = self.device.make_current();
    }
}

impl Source {
    fn new(rows: u32, cols: u32, ld: u32, requirement: Requirement) -> Self {
        Self { rows, cols, ld, requirement, copy: OnceCell::new() }
    }

    /// Whether the matrix meets the requirement, if it is at this address.
    fn meets_requirement(&self, address: u64) -> bool {
        match self.requirement {
            Requirement::None => true,
            Requirement::AlignedRows => is_wide(address, self.ld as usize, VECTOR as usize),
            Requirement::WholeVectors => is_wide(address, self.ld as usize, self.cols as usize),
        }
    }

    /// The leading dimension of the copy; no more than 2^31.
    fn copy_ld(&self) -> u32 {
        self.cols.next_multiple_of(VECTOR)
    }

    /// The buffer of the copy, allocated by the first call.
    fn buffer(&self, device: &Device) -> Result<&DeviceBuffer<f32>, Error> {
        if let Some(buffer) = self.copy.get() {
            return Ok(buffer);
        }
        let elements = u128::from(self.rows) * u128::from(self.copy_ld());
        require_memory(device, 4 * elements)?;
        // It fits, since the bytes are no more than the device has.
        // SAFETY: `stage_operands` stores every element before any is loaded.
        let buffer = unsafe { DeviceBuffer::uninitialized(elements as usize) }
            .map_err(|e| device.error("allocating device memory", e))?;
        Ok(self.copy.get_or_init(|| buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements() {
        let source = |cols, ld, requirement| Source::new(3, cols, ld, requirement);
        assert!(source(5, 8, Requirement::AlignedRows).meets_requirement(0x1010));
        assert!(!source(5, 8, Requirement::AlignedRows).meets_requirement(0x1004));
        assert!(!source(5, 6, Requirement::AlignedRows).meets_requirement(0));
        assert!(!source(5, 8, Requirement::WholeVectors).meets_requirement(0x1010));
        assert!(source(8, 12, Requirement::WholeVectors).meets_requirement(0x1010));
        assert!(source(5, 7, Requirement::None).meets_requirement(0x1004));
        let copy_ld = |cols, ld| source(cols, ld, Requirement::AlignedRows).copy_ld();
        assert_eq!([copy_ld(5, 6), copy_ld(8, 9)], [8, 8]);
        assert_eq!(copy_ld(i32::MAX as u32, i32::MAX as u32), 1 << 31);
    }

    #[test]
    fn both_matrices_get_their_share_of_blocks() {
        assert_eq!(blocks([1, 0], 8), [1, 0]);
        assert_eq!(blocks([1025, 1024], 8), [2, 1]);
        assert_eq!(blocks([0, u64::MAX >> 16], 8), [0, 8]);
        assert_eq!(blocks([1 << 40, 3 << 40], 8), [2, 6]);
        assert_eq!(blocks([1 << 60, 1], 528), [527, 1]);
        assert_eq!(blocks([1, 1 << 60], 4), [1, 3]);
    }
}
