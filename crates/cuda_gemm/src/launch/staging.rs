//! Operand staging: copies of A and B for kernels that cannot read the originals.
//!
//! [`kernels_gpu::utility::staging`] makes the copies before each product. An operand is copied for
//! one of two reasons:
//!
//! - It is stored transposed, and the kernel cannot read it so.
//! - Its rows are misaligned for the kernel's 128-bit or bulk copies.

use kernels_gpu::abi::layout::{
    POINTERS_A, POINTERS_B, POINTERS_C, TRANSPOSED_A, TRANSPOSED_B, TRANSPOSED_C,
};
use kernels_gpu::utility::staging;

use super::parameters::{Address, STAGE_OPERANDS, StageOperands, pointers};
use crate::device::{Device, EntryPoint, Limits, Stream};
use crate::error::Error;
use crate::matrix::Memory;
use crate::plan::{LaunchPlan, copy_ld};

/// Bytes of a vector, copied at once.
const VECTOR_BYTES: u32 = 16;

/// The most multiprocessors assumed for a copy's grid, which stays below the grid limit.
const MAX_MULTIPROCESSORS: u32 = 1 << 16;

/// The alignment that a kernel needs of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// The alignment of an element.
    None,
    /// Rows begin on 16 bytes; the flag says whether a copy is stored transposed.
    AlignedRows { copied_transposed: bool },
    /// Rows begin on 16 bytes and consist of whole 16-byte vectors.
    WholeVectors,
    /// Always a copy, even of an aligned operand.
    Copy,
}

/// The staging of a plan's A and B.
pub(crate) struct Staging {
    /// The most blocks of a copy, for each entry point.
    most_blocks: [u32; 2],
    /// The most products per launch of a copy.
    most_products: u32,
    /// The kernel's A and B, and their names.
    sources: [Source; 2],
    names: [&'static str; 2],
    /// The kernels that copy unchanged and transposed, if they may be launched.
    entry_points: [Option<EntryPoint>; 2],
}

/// A caller's matrix, and the memory of its copy if the plan may need one.
///
/// Launches on one stream use the copy one after the other.
struct Source {
    /// Rows and columns as they are stored.
    shape: [u32; 2],
    /// The caller's matrices, at no address yet.
    operand: Operand,
    /// The number of different matrices.
    products: u32,
    requirement: Requirement,
    /// Whether some call may need a copy.
    may_be_copied: bool,
    copy: Option<Memory>,
}

/// A matrix as the kernel accepts it.
///
/// It has an address, a leading dimension, and a stride in elements from one product to the next.
/// The address may be that of an array of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Operand {
    pub(super) address: u64,
    pub(super) ld: u32,
    pub(super) stride: u64,
    /// Bytes of an element.
    pub(super) bytes: u32,
    /// Whether an array of addresses replaces the matrices, whose alignment is then unknown.
    pub(super) is_addressed: bool,
    /// Whether the operand is stored transposed.
    pub(super) transposed: bool,
}

impl Operand {
    /// The operand of one product of the batch.
    pub(super) fn of_product(self, product: usize) -> Self {
        if self.is_addressed {
            return Self { address: self.address.wrapping_add(8 * product as u64), ..self };
        }
        Self { address: self.at(self.stride.wrapping_mul(product as u64)), ..self }
    }

    /// The address `offset` elements after the first.
    pub(super) fn at(self, offset: u64) -> u64 {
        self.address.wrapping_add(u64::from(self.bytes).wrapping_mul(offset))
    }

    /// Offset in elements of (row, col) of the operand.
    pub(super) fn offset(self, row: u64, col: u64) -> u64 {
        let [row, col] = if self.transposed { [col, row] } else { [row, col] };
        row * u64::from(self.ld) + col
    }

    /// The address and stride of the part from an element on.
    ///
    /// For an array of addresses, the array stays as it is, and the stride is the offset of the
    /// part.
    pub(super) fn part(self, offset: u64) -> (Address, u64) {
        match self.is_addressed {
            true => (Address(self.address), offset),
            false => (Address(self.at(offset)), self.stride),
        }
    }
}

impl Staging {
    /// Plans the copies of A and B, and loads the kernels for them.
    ///
    /// An operand may be copied if its shape or leading dimension does not meet the requirement.
    /// With `any_alignment` this also holds if its address may not.
    pub(crate) fn new(
        device: &Device,
        plan: &LaunchPlan,
        limits: &Limits,
        requirements: [Requirement; 2],
        any_alignment: bool,
    ) -> Result<Self, Error> {
        let gemm = &plan.form().gemm;
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [m, n, k] = [gemm.m, gemm.n, gemm.depth()].map(|size| size as u32);
        let bytes = gemm.compute.element().bytes() as u32;
        let source = |i: usize, shape, ld: usize, transposed| {
            let (stride, is_addressed) = (gemm.strides()[i] as u64, gemm.has_pointers());
            let products = if stride == 0 && !is_addressed { 1 } else { gemm.batch as u32 };
            let operand =
                Operand { address: 0, ld: ld as u32, stride, bytes, is_addressed, transposed };
            Source::new(shape, operand, products, requirements[i])
        };
        let mut sources =
            [source(0, [m, k], gemm.lda, gemm.trans_a), source(1, [k, n], gemm.ldb, gemm.trans_b)];
        let is_f32 = bytes == 4;
        let mut entry_points = [None, None];
        // Copies are only for operands that are read: C and the sum are not empty.
        if plan.reads_operands() {
            // The least aligned address of an element.
            let address = if any_alignment { bytes.into() } else { 0 };
            for source in &mut sources {
                source.may_be_copied = !source.serves(address);
                if source.may_be_copied {
                    let at = usize::from(source.is_turned());
                    // 16-bit operands are copied unchanged.
                    let name = match (is_f32, source.is_turned()) {
                        (true, false) => "stage_operands",
                        (true, true) => "stage_transposed",
                        (false, _) => "stage_halves",
                    };
                    entry_points[at] = Some(device.entry_point(name)?);
                }
            }
        }
        let multiprocessors = limits.multiprocessors.clamp(1, MAX_MULTIPROCESSORS);
        let plain = if is_f32 { staging::OPERANDS_BLOCKS } else { staging::BLOCKS };
        let most_blocks = [plain, staging::BLOCKS].map(|each| multiprocessors * each);
        let most_products = limits.grid[1].max(1);
        let names = plan.form().order(["A", "B"]);
        Ok(Self { most_blocks, most_products, sources, names, entry_points })
    }

    /// Allocates the memory of the copies.
    pub(crate) fn allocate(&mut self, stream: &Stream) -> Result<(), Error> {
        // Checks the sum before any allocation.
        stream.device().require_memory(self.bytes())?;
        for source in self.sources.iter_mut().filter(|source| source.may_be_copied) {
            // They fit, since the bytes are no more than the device has; so there are fewer than
            // 2^31 tiles. The copy stores every element before any is loaded.
            let words = source.copied_bytes().div_ceil(4) as usize;
            source.copy = Some(Memory::uninitialized(stream, words)?);
        }
        Ok(())
    }

    /// Bytes of the copies.
    pub(crate) fn bytes(&self) -> u128 {
        let copied = self.sources.iter().filter(|source| source.may_be_copied);
        copied.map(Source::copied_bytes).sum()
    }

    /// Whether A and B meet the requirements of 128-bit accesses at any address, copied if need be.
    pub(crate) fn meets_every_requirement(&self) -> [bool; 2] {
        [0, 1].map(|i| {
            matches!(self.sources[i].requirement, Requirement::WholeVectors | Requirement::Copy)
        })
    }

    /// Returns usable A and B, after enqueueing the copies that they need.
    ///
    /// One launch copies both operands if both or neither are transposed by it.
    ///
    /// # Errors
    ///
    /// [`Error::PlannedAlignment`] if there is no memory for a copy that is needed;
    /// [`Error::Driver`].
    ///
    /// # Safety
    ///
    /// - The matrices are at these addresses, and neither is empty.
    /// - Nothing writes them until the copies are done.
    /// - The stream is the one that the memory was allocated for.
    pub(super) unsafe fn operands(
        &self,
        stream: &Stream,
        addresses: [u64; 2],
    ) -> Result<[Operand; 2], Error> {
        let mut operands = [0, 1].map(|i| self.sources[i].at(addresses[i]));
        // The blocks of each entry point.
        let mut work = [[0; 2]; 2];
        for (i, source) in self.sources.iter().enumerate() {
            if !source.serves(addresses[i]) {
                let what = self.names[i];
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

    /// Enqueues copies, with the wanted blocks up to the launch limit.
    ///
    /// # Safety
    ///
    /// - The contract of [`Staging::operands`].
    /// - The entry point is that of the matrices for which blocks are wanted.
    /// - These matrices have copies, which are the `operands`.
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
            // A matrix that all products share is copied with the first.
            let wanted = [0, 1].map(|i| if first < copied[i] { wanted[i] } else { 0 });
            let [blocks_a, blocks_b] = blocks(wanted, (most_blocks / count).max(2));
            let from = [0, 1].map(|i| self.sources[i].at(addresses[i]).of_product(first as usize));
            let to = operands.map(|operand| operand.of_product(first as usize));
            let mut arguments = StageOperands {
                a: Address(from[0].address),
                lda: a.operand.ld,
                to_a: Address(to[0].address),
                ld_to_a: to[0].ld,
                a_rows: a.shape[0],
                a_cols: a.shape[1],
                b: Address(from[1].address),
                ldb: b.operand.ld,
                to_b: Address(to[1].address),
                ld_to_b: to[1].ld,
                b_rows: b.shape[0],
                b_cols: b.shape[1],
                a_blocks: blocks_a,
                stride_a: a.operand.stride,
                stride_b: b.operand.stride,
                pointer_batch: pointer_batch([&from[0], &from[1]]),
            };
            let grid = (blocks_a + blocks_b, count);
            // SAFETY:
            // - The driver copies the arguments during the call, and they are the kernel's: see
            //   `parameters`.
            // - The grid and the block are as the kernel asks, with blocks only for a matrix whose
            //   copy has memory.
            // - The caller vouches for the matrices, which are not empty.
            // - The copies have room, and are freed after all work.
            unsafe {
                let pointers = &pointers(&mut arguments, STAGE_OPERANDS)[..STAGE_OPERANDS.len()];
                entry_point.launch(stream, grid, staging::THREADS, 0, pointers)?;
            }
        }
        Ok(())
    }
}

/// The operands that are arrays of addresses, as a kernel parameter.
fn pointer_batch<const N: usize>(operands: [&Operand; N]) -> u32 {
    let numbers = [POINTERS_A, POINTERS_B, POINTERS_C];
    let addressed = operands.iter().zip(numbers).filter(|(operand, _)| operand.is_addressed);
    addressed.map(|(_, number)| number).sum()
}

/// The storage of A, B and C, as a kernel parameter.
pub(super) fn layout(operands: [&Operand; 3]) -> u32 {
    let numbers = [TRANSPOSED_A, TRANSPOSED_B, TRANSPOSED_C];
    let transposed = operands.iter().zip(numbers).filter(|(operand, _)| operand.transposed);
    pointer_batch(operands) + transposed.map(|(_, number)| number).sum::<u32>()
}

/// Divides at most `most` blocks between A and B, in proportion to the wanted blocks; `most` >= 2.
fn blocks(wanted: [u64; 2], most: u32) -> [u32; 2] {
    let (all, most) = (wanted[0] + wanted[1], u64::from(most));
    // Both are below 2^53, and `most` is below 2^19.
    let blocks = match () {
        () if all <= most => wanted,
        () if wanted[0] == 0 => [0, most],
        () if wanted[1] == 0 => [most, 0],
        () => {
            // The smaller share is rounded up: one block means little to the larger, and much to
            // the smaller.
            let lesser = wanted[0].min(wanted[1]);
            let share = (u128::from(lesser) * u128::from(most)).div_ceil(u128::from(all)) as u64;
            let share = share.clamp(1, most - 1);
            if wanted[0] == lesser { [share, most - share] } else { [most - share, share] }
        }
    };
    blocks.map(|blocks| blocks as u32)
}

impl Source {
    /// Describes an operand that the kernel accepts with this shape.
    fn new(
        [rows, cols]: [u32; 2],
        operand: Operand,
        products: u32,
        requirement: Requirement,
    ) -> Self {
        let shape = if operand.transposed { [cols, rows] } else { [rows, cols] };
        Self { shape, operand, products, requirement, may_be_copied: false, copy: None }
    }

    /// The caller's matrices, the first at this address.
    fn at(&self, address: u64) -> Operand {
        Operand { address, ..self.operand }
    }

    /// The copies, the first at this address.
    fn copied_to(&self, address: u64) -> Operand {
        let Operand { stride, bytes, is_addressed, .. } = self.operand;
        let ([rows, _], ld) = (self.copied(), self.copy_ld());
        let is_shared = stride == 0 && !is_addressed;
        let stride = if is_shared { 0 } else { u64::from(rows) * u64::from(ld) };
        let transposed = self.copied_transposed();
        Operand { address, ld, stride, bytes, is_addressed: false, transposed }
    }

    /// Whether the copy is stored as the transpose of the kernel's operand.
    fn copied_transposed(&self) -> bool {
        self.requirement == Requirement::AlignedRows { copied_transposed: true }
    }

    /// Whether the copy is the transpose of the stored matrix.
    fn is_turned(&self) -> bool {
        self.operand.transposed != self.copied_transposed()
    }

    /// Whether the kernel can read the matrix itself at this address.
    fn serves(&self, address: u64) -> bool {
        let Operand { ld, stride, bytes, is_addressed, .. } = self.operand;
        let vector = VECTOR_BYTES / bytes;
        let begins_on_vectors = !is_addressed
            && address.is_multiple_of(VECTOR_BYTES.into())
            && ld.is_multiple_of(vector)
            && (self.products == 1 || stride.is_multiple_of(vector.into()));
        match self.requirement {
            Requirement::None => true,
            Requirement::AlignedRows { .. } => begins_on_vectors,
            Requirement::WholeVectors => begins_on_vectors && self.shape[1].is_multiple_of(vector),
            Requirement::Copy => false,
        }
    }

    /// Rows and columns of the copy.
    fn copied(&self) -> [u32; 2] {
        let [rows, cols] = self.shape;
        if self.is_turned() { [cols, rows] } else { [rows, cols] }
    }

    /// The leading dimension of the copy; no more than 2^31.
    fn copy_ld(&self) -> u32 {
        copy_ld(self.copied()[1].into(), self.operand.bytes.into()) as u32
    }

    /// The blocks with which all of the matrix is in flight at once.
    fn wanted_blocks(&self) -> u64 {
        if self.is_turned() {
            let tiles = |size: u32| u64::from(size.div_ceil(staging::TRANSPOSE_TILE));
            return tiles(self.shape[0]) * tiles(self.shape[1]);
        }
        let row_vectors = self.copy_ld() * self.operand.bytes / VECTOR_BYTES;
        let vectors = u64::from(self.shape[0]) * u64::from(row_vectors);
        vectors.div_ceil(u64::from(staging::THREADS * staging::QUADS))
    }

    /// Bytes of the copy.
    fn copied_bytes(&self) -> u128 {
        let matrix = u128::from(self.copied()[0]) * u128::from(self.copy_ld());
        u128::from(self.operand.bytes) * matrix * u128::from(self.products)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(shape: [u32; 2], ld: u32, transposed: bool, requirement: Requirement) -> Source {
        let operand = Operand { ld, bytes: 4, transposed, ..Operand::default() };
        Source::new(shape, operand, 1, requirement)
    }

    #[test]
    fn requirements() {
        const ALIGNED_ROWS: Requirement = Requirement::AlignedRows { copied_transposed: false };
        let rows = |cols, ld, requirement| source([3, cols], ld, false, requirement);
        assert!(rows(5, 8, ALIGNED_ROWS).serves(0x1010));
        assert!(!rows(5, 8, ALIGNED_ROWS).serves(0x1004));
        assert!(!rows(5, 6, ALIGNED_ROWS).serves(0));
        assert!(!rows(5, 8, Requirement::WholeVectors).serves(0x1010));
        assert!(rows(8, 12, Requirement::WholeVectors).serves(0x1010));
        assert!(rows(5, 7, Requirement::None).serves(0x1004));
        let copy_ld = |cols, ld| rows(cols, ld, ALIGNED_ROWS).copy_ld();
        assert_eq!([copy_ld(5, 6), copy_ld(8, 9)], [8, 8]);
        assert_eq!(copy_ld(i32::MAX as u32, i32::MAX as u32), 1 << 31);
        // The kernel accepts a transposed operand as 3 x 5, and its copy has that shape.
        let transposed = source([3, 5], 4, true, Requirement::Copy);
        assert!(!transposed.serves(0));
        assert!(source([3, 5], 4, true, ALIGNED_ROWS).serves(0));
        assert_eq!(transposed.shape, [5, 3]);
        assert_eq!((transposed.copied(), transposed.copy_ld()), ([3, 5], 8));
        assert_eq!(source([65, 128], 65, true, Requirement::None).wanted_blocks(), 4);
        // A column is copied to a row, whether or not it is one already.
        let as_row = Requirement::AlignedRows { copied_transposed: true };
        for (ld, transposed) in [(3, false), (5, true)] {
            let column = source([5, 1], ld, transposed, as_row);
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
