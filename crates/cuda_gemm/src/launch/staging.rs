//! Operand staging: a kernel takes A and B where the caller has them, or copies of them, made by
//! [`kernels_gpu::utility::staging`] before each product: of one that lies across, for a kernel that does not take
//! it so, and for a kernel that makes 128-bit or bulk copies of one that is not aligned for it.

use kernels_gpu::abi::layout::{
    POINTERS_A, POINTERS_B, POINTERS_C, TRANSPOSED_A, TRANSPOSED_B, TRANSPOSED_C,
};
use kernels_gpu::utility::staging;

use super::alignment::{copy_ld, is_wide};
use super::parameters::{self, Address};
use crate::device::{Device, EntryPoint};
use crate::error::Error;
use crate::gemm::{Gemm, LaunchPlan};
use crate::limits::Limits;
use crate::matrix::Memory;
use crate::stream::Stream;

/// Elements of a vector that is copied at once: 16 bytes.
const VECTOR: u32 = 4;

/// For how many multiprocessors a copy is launched at most: the blocks stay below its limit.
const MAX_MULTIPROCESSORS: u32 = 1 << 16;

/// How a kernel needs an operand to be aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requirement {
    /// To no more than elements are.
    None,
    /// Rows begin on 16 bytes; whether a copy lies as the transpose.
    AlignedRows { copied_transposed: bool },
    /// The same, and consist of whole vectors of four elements.
    WholeVectors,
    /// It takes a copy, however the operand is aligned.
    Copy,
}

/// The staging of a plan's A and B.
pub(super) struct Staging {
    /// The most blocks that copy, of each entry point.
    most_blocks: [u32; 2],
    /// The most products that a launch copies for.
    most_products: u32,
    /// A and B.
    sources: [Source; 2],
    /// `stage_operands` and `stage_transposed`, where they may be launched.
    entry_points: [Option<EntryPoint>; 2],
}

/// A matrix as the caller has it, and the memory of its copy, if the plan may need one. Work on
/// one stream uses that one launch after the other.
struct Source {
    rows: u32,
    cols: u32,
    ld: u32,
    /// Whether the operand lies as its transpose.
    transposed: bool,
    /// Elements from one product's matrix to the next one's, and how many products there are; one
    /// for all if they have the same.
    stride: u64,
    products: u32,
    /// Whether an array of addresses is in place of the matrices, of which nothing is known then.
    is_addressed: bool,
    requirement: Requirement,
    /// Whether a call may need a copy.
    may_be_copied: bool,
    copy: Option<Memory>,
}

/// A matrix as the kernel takes it: its address, its leading dimension, and elements from one
/// product's to the next one's; or the address of an array of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Operand {
    pub(super) address: u64,
    pub(super) ld: u32,
    pub(super) stride: u64,
    pub(super) is_addressed: bool,
    /// Whether it lies as its transpose.
    pub(super) transposed: bool,
}

impl Operand {
    /// That of a product of the batch.
    pub(super) fn of_product(self, product: usize) -> Self {
        if self.is_addressed {
            return Self { address: self.address.wrapping_add(8 * product as u64), ..self };
        }
        let offset = self.stride.wrapping_mul(product as u64);
        Self { address: self.address.wrapping_add(4 * offset), ..self }
    }

    /// Elements from the first to that of the operand at (row, col).
    pub(super) fn offset(self, row: u64, col: u64) -> u64 {
        let [row, col] = if self.transposed { [col, row] } else { [row, col] };
        row * u64::from(self.ld) + col
    }

    /// The part from an element on, and its stride: of an array of addresses that is how far from there
    /// the part begins.
    pub(super) fn part(self, offset: u64) -> (Address, u64) {
        match self.is_addressed {
            true => (Address(self.address), offset),
            false => (Address(self.address.wrapping_add(4 * offset)), self.stride),
        }
    }
}

impl Staging {
    /// For a plan's A and B. Loads what makes the copies that are needed: those whose shape or leading
    /// dimension does not meet the requirement, and with `any_alignment` those whose address may
    /// not.
    pub(super) fn new(
        device: &Device,
        plan: &LaunchPlan,
        limits: &Limits,
        requirements: [Requirement; 2],
        any_alignment: bool,
    ) -> Result<Self, Error> {
        let gemm = &plan.form().gemm;
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [m, n, k] = [gemm.m, gemm.n, gemm.depth()].map(|size| size as u32);
        let [lda, ldb] = [gemm.lda, gemm.ldb].map(|ld| ld as u32);
        let mut sources = [
            Source::new([m, k], lda, gemm.trans_a, requirements[0]).strided(gemm, gemm.stride_a),
            Source::new([k, n], ldb, gemm.trans_b, requirements[1]).strided(gemm, gemm.stride_b),
        ];
        let mut entry_points = [None, None];
        // A copy is for what is read: not where C or the sum is empty.
        if plan.reads_operands() {
            // The least aligned address that an element has.
            let address = if any_alignment { 4 } else { 0 };
            for source in &mut sources {
                source.may_be_copied = !source.serves(address);
                if source.may_be_copied {
                    let at = usize::from(source.is_turned());
                    let name = ["stage_operands", "stage_transposed"][at];
                    entry_points[at] = Some(device.entry_point(name)?);
                }
            }
        }
        let multiprocessors = limits.multiprocessors.clamp(1, MAX_MULTIPROCESSORS);
        let most_blocks =
            [staging::OPERANDS_BLOCKS, staging::BLOCKS].map(|each| multiprocessors * each);
        let most_products = limits.grid[1].max(1);
        Ok(Self { most_blocks, most_products, sources, entry_points })
    }

    /// Allocates the memory of the copies.
    pub(super) fn allocate(&mut self, stream: &Stream) -> Result<(), Error> {
        // Before any of it is allocated.
        stream.device().require_memory(self.bytes())?;
        let copied = self.sources.iter_mut().filter(|source| source.may_be_copied);
        copied.into_iter().try_for_each(|source| source.allocate(stream))
    }

    /// Bytes of that memory.
    pub(super) fn bytes(&self) -> u128 {
        let copied = self.sources.iter().filter(|source| source.may_be_copied);
        copied.map(|source| 4 * source.copied_elements()).sum()
    }

    /// Whether A and B meet the requirements of 128-bit accesses, wherever they are: by a copy, if
    /// need be.
    pub(super) fn meets_every_requirement(&self) -> [bool; 2] {
        [0, 1].map(|i| {
            matches!(self.sources[i].requirement, Requirement::WholeVectors | Requirement::Copy)
        })
    }

    /// A and B where they serve, or else their copies, which are enqueued, with one launch for both
    /// where both or neither are copied to their transposes.
    ///
    /// # Errors
    ///
    /// [`Error::PlannedAlignment`] if there is no memory for a copy that is needed;
    /// [`Error::Driver`].
    ///
    /// # Safety
    ///
    /// The matrices are at these addresses, neither is empty, and nothing writes them until
    /// the copies are done. The stream is the one that the memory was allocated for.
    pub(super) unsafe fn operands(
        &self,
        stream: &Stream,
        addresses: [u64; 2],
    ) -> Result<[Operand; 2], Error> {
        let mut operands = [0, 1].map(|i| self.sources[i].at(addresses[i]));
        // What each entry point copies.
        let mut work = [[0; 2]; 2];
        for (i, source) in self.sources.iter().enumerate() {
            if !source.serves(addresses[i]) {
                let what = ["A", "B"][i];
                let copy = source.copy.as_ref().ok_or(Error::PlannedAlignment { what })?;
                operands[i] = source.copied_to(copy.address());
                work[usize::from(source.is_turned())][i] = source.wanted_blocks();
            }
        }
        for (at, wanted) in work.into_iter().enumerate() {
            if let Some(entry_point) = self.entry_points[at].as_ref().filter(|_| wanted != [0; 2]) {
                let launched = (entry_point, self.most_blocks[at]);
                // SAFETY: the caller's contract.
                unsafe { self.copy(stream, launched, wanted, addresses, operands)? };
            }
        }
        Ok(operands)
    }

    /// Enqueues copies, with as many of the wanted blocks of both as are launched at most.
    ///
    /// # Safety
    ///
    /// As for [`Staging::operands`]. The entry point is that of the matrices for which blocks are
    /// wanted; they have copies, which are the `operands`.
    unsafe fn copy(
        &self,
        stream: &Stream,
        (entry_point, most_blocks): (&EntryPoint, u32),
        wanted: [u64; 2],
        addresses: [u64; 2],
        operands: [Operand; 2],
    ) -> Result<(), Error> {
        let [a, b] = &self.sources;
        let products = [a, b].map(|source| source.products);
        let copied = [0, 1].map(|i| if wanted[i] > 0 { products[i] } else { 0 });
        let all = copied[0].max(copied[1]);
        for first in (0..all).step_by(self.most_products as usize) {
            let count = self.most_products.min(all - first);
            // What all products share is copied with the first.
            let wanted = [0, 1].map(|i| if first < copied[i] { wanted[i] } else { 0 });
            let [blocks_a, blocks_b] = blocks(wanted, (most_blocks / count).max(2));
            let from = [0, 1].map(|i| self.sources[i].at(addresses[i]).of_product(first as usize));
            let to = operands.map(|operand| operand.of_product(first as usize));
            let mut arguments = parameters::StageOperands {
                a: Address(from[0].address),
                lda: a.ld,
                to_a: Address(to[0].address),
                ld_to_a: to[0].ld,
                a_rows: a.rows,
                a_cols: a.cols,
                b: Address(from[1].address),
                ldb: b.ld,
                to_b: Address(to[1].address),
                ld_to_b: to[1].ld,
                b_rows: b.rows,
                b_cols: b.cols,
                a_blocks: blocks_a,
                stride_a: a.stride,
                stride_b: b.stride,
                pointer_batch: pointer_batch([&from[0], &from[1]]),
            };
            let grid = (blocks_a + blocks_b, count);
            // SAFETY: the driver copies the arguments during the call, and they are the kernel's:
            // see `parameters`; the grid and the block are as it asks, with blocks only for a
            // matrix whose copy has memory. The caller vouches for the matrices, which are not
            // empty, and the copies have room; they are freed after all work.
            unsafe {
                entry_point.launch(stream, grid, staging::THREADS, 0, &arguments.pointers())?;
            }
        }
        Ok(())
    }
}

/// Which of A, B and C are arrays of addresses, as kernels take it.
fn pointer_batch<const N: usize>(operands: [&Operand; N]) -> u32 {
    let numbers = [POINTERS_A, POINTERS_B, POINTERS_C];
    let addressed = operands.iter().zip(numbers).filter(|(operand, _)| operand.is_addressed);
    addressed.map(|(_, number)| number).sum()
}

/// How A, B and C lie, as kernels take it.
pub(super) fn layout(operands: [&Operand; 3]) -> u32 {
    let numbers = [TRANSPOSED_A, TRANSPOSED_B, TRANSPOSED_C];
    let transposed = operands.iter().zip(numbers).filter(|(operand, _)| operand.transposed);
    pointer_batch(operands) + transposed.map(|(_, number)| number).sum::<u32>()
}

/// How many of `most` blocks, two at least, copy A and B, for which so many are wanted.
pub(super) fn blocks(wanted: [u64; 2], most: u32) -> [u32; 2] {
    let (all, most) = (wanted[0] + wanted[1], u64::from(most));
    // Both are below 2^53, and `most` is below 2^19.
    let blocks = match () {
        () if all <= most => wanted,
        () if wanted[0] == 0 => [0, most],
        () if wanted[1] == 0 => [most, 0],
        () => {
            // Of the smaller one rounded up: a block more or less is nothing to the other, and much to it.
            let lesser = wanted[0].min(wanted[1]);
            let share = (u128::from(lesser) * u128::from(most)).div_ceil(u128::from(all)) as u64;
            let share = share.clamp(1, most - 1);
            if wanted[0] == lesser { [share, most - share] } else { [most - share, share] }
        }
    };
    blocks.map(|blocks| blocks as u32)
}

impl Source {
    /// Of an operand that the kernel takes as `rows` x `cols`.
    fn new([rows, cols]: [u32; 2], ld: u32, transposed: bool, requirement: Requirement) -> Self {
        let [rows, cols] = if transposed { [cols, rows] } else { [rows, cols] };
        let (stride, products, is_addressed) = (0, 1, false);
        let (may_be_copied, copy) = (false, None);
        Self {
            rows,
            cols,
            ld,
            transposed,
            stride,
            products,
            is_addressed,
            requirement,
            may_be_copied,
            copy,
        }
    }

    /// The same of each product of a batch.
    fn strided(self, gemm: &Gemm, stride: usize) -> Self {
        // `Gemm::validate` accepted the batch.
        let products = if stride == 0 && !gemm.pointers { 1 } else { gemm.batch as u32 };
        Self { stride: stride as u64, products, is_addressed: gemm.pointers, ..self }
    }

    /// The caller's matrices, the first at this address.
    fn at(&self, address: u64) -> Operand {
        let Self { ld, stride, is_addressed, transposed, .. } = *self;
        Operand { address, ld, stride, is_addressed, transposed }
    }

    /// The copies, the first at this address.
    fn copied_to(&self, address: u64) -> Operand {
        let [rows, ld] = [self.copied()[0], self.copy_ld()].map(u64::from);
        let stride = if self.stride == 0 && !self.is_addressed { 0 } else { rows * ld };
        let ld = self.copy_ld();
        let transposed = self.copied_transposed();
        Operand { address, ld, stride, is_addressed: false, transposed }
    }

    /// Whether the copy lies as the transpose of what the kernel takes.
    fn copied_transposed(&self) -> bool {
        self.requirement == Requirement::AlignedRows { copied_transposed: true }
    }

    /// Whether the copy is the transpose of the matrix.
    fn is_turned(&self) -> bool {
        self.transposed != self.copied_transposed()
    }

    /// Whether the kernel takes the matrix as it is, if it is at this address.
    fn serves(&self, address: u64) -> bool {
        let is_strided_by_vectors = self.stride.is_multiple_of(VECTOR.into());
        let is_wide = |cols| {
            !self.is_addressed && is_strided_by_vectors && is_wide(address, self.ld as usize, cols)
        };
        match self.requirement {
            Requirement::None => true,
            Requirement::AlignedRows { .. } => is_wide(VECTOR as usize),
            Requirement::WholeVectors => is_wide(self.cols as usize),
            Requirement::Copy => false,
        }
    }

    /// Rows and columns of the copy.
    fn copied(&self) -> [u32; 2] {
        if self.is_turned() { [self.cols, self.rows] } else { [self.rows, self.cols] }
    }

    /// The leading dimension of the copy; no more than 2^31.
    fn copy_ld(&self) -> u32 {
        copy_ld(self.copied()[1].into(), size_of::<f32>() as u64) as u32
    }

    /// Blocks that have all of the matrix in flight.
    fn wanted_blocks(&self) -> u64 {
        if self.is_turned() {
            let tiles = |size: u32| u64::from(size.div_ceil(staging::TRANSPOSE_TILE));
            return tiles(self.rows) * tiles(self.cols);
        }
        let vectors = u64::from(self.rows) * u64::from(self.copy_ld() / VECTOR);
        vectors.div_ceil(u64::from(staging::THREADS * staging::QUADS))
    }

    /// Elements of the copy.
    fn copied_elements(&self) -> u128 {
        let matrix = u128::from(self.copied()[0]) * u128::from(self.copy_ld());
        matrix * u128::from(self.products)
    }

    /// Allocates the memory of the copy.
    fn allocate(&mut self, stream: &Stream) -> Result<(), Error> {
        // It fits, since the bytes are no more than the device has; so there are less than 2^31
        // tiles, too. The copy stores every element before any is loaded.
        self.copy = Some(Memory::uninitialized(stream, self.copied_elements() as usize)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements() {
        const ALIGNED_ROWS: Requirement = Requirement::AlignedRows { copied_transposed: false };
        let source = |cols, ld, requirement| Source::new([3, cols], ld, false, requirement);
        assert!(source(5, 8, ALIGNED_ROWS).serves(0x1010));
        assert!(!source(5, 8, ALIGNED_ROWS).serves(0x1004));
        assert!(!source(5, 6, ALIGNED_ROWS).serves(0));
        assert!(!source(5, 8, Requirement::WholeVectors).serves(0x1010));
        assert!(source(8, 12, Requirement::WholeVectors).serves(0x1010));
        assert!(source(5, 7, Requirement::None).serves(0x1004));
        let copy_ld = |cols, ld| source(cols, ld, ALIGNED_ROWS).copy_ld();
        assert_eq!([copy_ld(5, 6), copy_ld(8, 9)], [8, 8]);
        assert_eq!(copy_ld(i32::MAX as u32, i32::MAX as u32), 1 << 31);
        // The kernel takes a transposed operand as 3 x 5, and its copy is so.
        let transposed = Source::new([3, 5], 4, true, Requirement::Copy);
        assert!(!transposed.serves(0));
        assert!(Source::new([3, 5], 4, true, ALIGNED_ROWS).serves(0));
        assert_eq!([transposed.rows, transposed.cols], [5, 3]);
        assert_eq!((transposed.copied(), transposed.copy_ld()), ([3, 5], 8));
        assert_eq!(Source::new([65, 128], 65, true, Requirement::None).wanted_blocks(), 4);
        // A column is copied to a row, whether it is one already or not.
        let as_row = Requirement::AlignedRows { copied_transposed: true };
        for (ld, transposed) in [(3, false), (5, true)] {
            let column = Source::new([5, 1], ld, transposed, as_row);
            assert_eq!((column.copied(), column.copy_ld()), ([1, 5], 8));
            assert_eq!(column.is_turned(), !transposed);
            assert!(column.copied_to(0).transposed);
        }
    }

    #[test]
    fn both_matrices_get_their_share_of_blocks() {
        assert_eq!(blocks([1, 0], 8), [1, 0]);
        assert_eq!(blocks([2, 1], 8), [2, 1]);
        assert_eq!(blocks([0, u64::MAX >> 16], 8), [0, 8]);
        assert_eq!(blocks([1 << 40, 3 << 40], 8), [2, 6]);
        assert_eq!(blocks([1 << 60, 1], 528), [527, 1]);
        assert_eq!(blocks([1, 1 << 60], 4), [1, 3]);
    }
}
