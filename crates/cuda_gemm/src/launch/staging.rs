//! Operand staging: a kernel that makes 128-bit or bulk copies takes A and B where the caller has
//! them, or, if they are not aligned for it, copies of them, made by
//! [`stage_operands`](kernels_gpu::staging) before each product.

use kernels_gpu::staging;

use super::alignment::is_wide;
use super::parameters;
use crate::device::EntryPoint;
use crate::error::Error;
use crate::gemm::LaunchPlan;
use crate::limits::Limits;
use crate::matrix::Memory;
use crate::stream::Stream;

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
pub(super) struct Staging {
    /// The most blocks that copy.
    most_blocks: u32,
    /// A and B.
    sources: [Source; 2],
}

/// A matrix as the caller has it, and the memory of its copy, if the plan may need one. Work on
/// one stream uses that one launch after the other.
struct Source {
    rows: u32,
    cols: u32,
    ld: u32,
    requirement: Requirement,
    copy: Option<Memory>,
}

/// A matrix as the kernel takes it: its address and leading dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    pub(super) address: u64,
    pub(super) ld: u32,
}

impl Staging {
    /// For a plan's A and B. Allocates the copies that are needed: those whose shape or leading
    /// dimension does not meet the requirement, and with `any_alignment` those whose address may
    /// not.
    pub(super) fn new(
        stream: &Stream,
        plan: &LaunchPlan,
        limits: &Limits,
        requirements: [Requirement; 2],
        any_alignment: bool,
    ) -> Result<Self, Error> {
        let gemm = plan.gemm();
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [m, n, k] = [gemm.m, gemm.n, gemm.depth()].map(|size| size as u32);
        let [lda, ldb] = [gemm.lda, gemm.ldb].map(|ld| ld as u32);
        let mut sources =
            [Source::new(m, k, lda, requirements[0]), Source::new(k, n, ldb, requirements[1])];
        // A copy is for what is read: not where C or the sum is empty.
        if plan.reads_operands() {
            // The least aligned address that an element has.
            let address = if any_alignment { 4 } else { 0 };
            for source in &mut sources {
                if !source.meets_requirement(address) {
                    source.allocate(stream)?;
                }
            }
        }
        let most_blocks = limits.multiprocessors.clamp(1, MOST_MULTIPROCESSORS) * staging::BLOCKS;
        Ok(Self { most_blocks, sources })
    }

    /// A and B where they meet the requirements, or else their copies, which are enqueued, with
    /// one launch for both.
    ///
    /// # Errors
    ///
    /// [`Error::PlannedAlignment`] if there is no memory for a copy that is needed;
    /// [`Error::Driver`].
    ///
    /// # Safety
    ///
    /// The matrices are at these addresses, neither is empty, and nothing writes them until
    /// the copies are done. The stream is the one that the memory was allocated for, and the
    /// entry point is `stage_operands` on its device.
    pub(super) unsafe fn operands(
        &self,
        stream: &Stream,
        stage_operands: &EntryPoint,
        addresses: [u64; 2],
    ) -> Result<[Operand; 2], Error> {
        let mut operands =
            [0, 1].map(|i| Operand { address: addresses[i], ld: self.sources[i].ld });
        let mut vectors = [0; 2];
        for (i, source) in self.sources.iter().enumerate() {
            if !source.meets_requirement(addresses[i]) {
                let what = ["A", "B"][i];
                let copy = source.copy.as_ref().ok_or(Error::PlannedAlignment { what })?;
                operands[i] = Operand { address: copy.address(), ld: source.copy_ld() };
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
        // copy has memory. The caller vouches for the matrices, which are not empty, and the
        // copies have room; they are freed after all work.
        unsafe {
            stage_operands.launch(stream, grid, staging::THREADS, 0, &arguments.pointers())?;
        }
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

impl Source {
    fn new(rows: u32, cols: u32, ld: u32, requirement: Requirement) -> Self {
        Self { rows, cols, ld, requirement, copy: None }
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

    /// Allocates the memory of the copy.
    fn allocate(&mut self, stream: &Stream) -> Result<(), Error> {
        let elements = u128::from(self.rows) * u128::from(self.copy_ld());
        Memory::require(stream.device(), 4 * elements)?;
        // It fits, since the bytes are no more than the device has. `stage_operands` stores every
        // element before any is loaded.
        self.copy = Some(Memory::uninitialized(stream, elements as usize)?);
        Ok(())
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
