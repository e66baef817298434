//! An operand with misaligned rows, which bulk copies cannot read.
//!
//! The producer's threads load its elements, and store them where a bulk copy would have.

use cuda_std::shared::SharedPtr;
use cuda_std::warp;

use crate::device::operand::half_rows;
use crate::device::operand::half_rows::{HalfRows, Loaded, VECTOR};
use crate::device::pipeline::roles::WARPGROUP;

/// Rows of a box, and elements of a row, which is 128 bytes.
const SIZE: u32 = 64;
/// Vectors of a row; vectors of a box that a thread copies; and rows from one of these to the next.
const VECTORS: u32 = SIZE / VECTOR;
const OF_THREAD: usize = (SIZE * VECTORS / WARPGROUP) as usize;
const STEP: u32 = WARPGROUP / VECTORS;

const _: () =
    assert!(STEP.is_multiple_of(VECTOR), "a thread's rows begin equally far behind 16 bytes");

/// A matrix of 16-bit elements in device memory.
///
/// If `MN`, K runs from row to row. Otherwise it runs along each row.
#[derive(Clone, Copy)]
pub struct Unaligned<const MN: bool> {
    rows: HalfRows,
    /// Elements from one product of a batch to the next.
    stride: u64,
}

/// A thread's loaded part of a box.
pub type Part = [Loaded; OF_THREAD];

impl<const MN: bool> Unaligned<MN> {
    /// A matrix with `size` elements along K and along the other dimension.
    #[inline(always)]
    pub fn new(pointer: *const u16, ld: u32, stride: u64, size: [u32; 2]) -> Self {
        let [rows, cols] = Self::ordered(size);
        Self { rows: HalfRows { pointer, ld, rows, cols }, stride }
    }

    /// The matrix of a product.
    #[inline(always)]
    pub fn of_product(self, product: u32) -> Self {
        let offset = product as usize * self.stride as usize;
        let pointer = self.rows.pointer.wrapping_add(offset);
        Self { rows: HalfRows { pointer, ..self.rows }, ..self }
    }

    /// Orders values for K and for the other dimension as values for rows and for columns.
    #[inline(always)]
    fn ordered([k, other]: [u32; 2]) -> [u32; 2] {
        if MN { [k, other] } else { [other, k] }
    }

    /// A thread's first vector of a box at `place`: its row, and its number in that row.
    #[inline(always)]
    fn first(place: [u32; 2], thread: u32) -> (u32, u32) {
        let [row, col] = Self::ordered(place);
        (row + thread / VECTORS, col / VECTOR + thread % VECTORS)
    }

    /// Loads a thread's part of the box at `place`: K, a multiple of 64, and the other dimension.
    ///
    /// All loads are in flight when this returns.
    ///
    /// # Safety
    /// As for [`HalfRows::load`]; the thread is one of [`WARPGROUP`].
    #[inline(always)]
    pub unsafe fn load(self, place: [u32; 2], thread: u32) -> Part {
        let (row, number) = Self::first(place, thread);
        let mut part = [[0; VECTOR as usize]; OF_THREAD];
        if self.is_inside(place) {
            let window = self.rows.window(row, number);
            let mut at = window.pointer;
            for i in 0..OF_THREAD {
                // SAFETY: inside of the matrix, and as far behind 16 bytes as the first.
                let [a, b, c, d] = unsafe { half_rows::load_vector(at) };
                let mut behind = [0; VECTOR as usize / 2];
                // For other threads, the neighbour has loaded it.
                if is_last_of_row(thread) {
                    // SAFETY: as above.
                    behind = unsafe { half_rows::load_vector(at.wrapping_add(VECTOR as usize)) };
                }
                let [e, f, g, h] = behind;
                part[i] = [a, b, c, d, e, f, g, h];
                at = at.wrapping_add(STEP as usize * self.rows.ld as usize);
            }
        } else {
            for i in 0..OF_THREAD {
                // SAFETY: the caller's contract.
                part[i] = unsafe { self.rows.load(row + i as u32 * STEP, number) };
            }
        }
        part
    }

    /// Whether a box is inside, together with all aligned vectors that have any of it.
    #[inline(always)]
    fn is_inside(self, place: [u32; 2]) -> bool {
        let [row, col] = Self::ordered(place);
        row + SIZE <= self.rows.rows && col >= VECTOR && col + SIZE + VECTOR <= self.rows.cols
    }

    /// Stores the part to a box in shared memory, with the swizzle of 128 bytes.
    ///
    /// Past the end of K there are zeros. Elements outside of the other dimension belong to sums
    /// that are not stored.
    ///
    /// # Safety
    /// - The box is there, on [`ALIGNMENT`](crate::abi::tensor_core::ALIGNMENT) bytes.
    /// - Nobody else accesses what the thread stores.
    /// - Whole warps call this together.
    #[inline(always)]
    pub unsafe fn store(self, place: [u32; 2], thread: u32, part: Part, to: SharedPtr<u16>) {
        let (row, number) = Self::first(place, thread);
        // Vectors are swizzled within 128 bytes, in all rows of a thread in the same way.
        let first = to.add((thread ^ (thread / VECTORS % VECTORS)) * VECTOR).cast::<u32>();
        let store = |i: usize, words| {
            // SAFETY: in the box.
            unsafe { first.store_vec(i as u32 * WARPGROUP * VECTOR / 2, words) };
        };
        if self.is_inside(place) {
            let window = self.rows.window(row, number);
            for i in 0..OF_THREAD {
                let [a, b, c, d, e, f, g, h] = part[i];
                let next = |own: u32, behind: u32| {
                    // SAFETY: the caller's contract; the condition above is the same for all
                    // threads.
                    let (next, _) = unsafe { warp::warp_shuffle_down(u32::MAX, own, 1, VECTORS) };
                    if is_last_of_row(thread) { behind } else { next }
                };
                let loaded = [a, b, c, d, next(a, e), next(b, f), next(c, g), next(d, h)];
                store(i, window.neighbours(loaded));
            }
            return;
        }
        for i in 0..OF_THREAD {
            let row = row + i as u32 * STEP;
            let words = self.rows.neighbours(row, number, part[i]);
            store(i, if MN && row >= self.rows.rows { [0; 4] } else { words });
        }
    }
}

/// Whether a thread copies the last vectors of its rows.
#[inline(always)]
fn is_last_of_row(thread: u32) -> bool {
    thread % VECTORS == VECTORS - 1
}
