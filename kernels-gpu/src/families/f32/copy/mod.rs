//! The copies of a block's tiles to shared memory.
//!
//! A thread has one address per matrix, and steps from there. Everything else about a copy is a
//! constant, or was computed before the loop. Past an edge a copy stores zeros and reads nothing,
//! so its address need not lie in the matrix.

mod a;
mod b;

use cuda_std::cp_async;

pub use self::a::CopyA;
pub use self::b::CopyB;
use crate::device::geometry::Geometry;

/// Where row `k` begins in a tile that is transposed as it is copied, with rows of `width`
/// elements.
///
/// Two rows lie side by side, and each pair of rows is padded. In odd rows the two pairs of each
/// four elements are swapped. A warp copies sixteen neighbours along K at a time, of two rows of A
/// or two columns of B: they go to 32 banks.
pub const fn padded_row(width: u32, k: u32) -> u32 {
    k / 2 * (2 * width + 4) + k % 2 * width
}

/// Where element `at` lies in row `k` of such a tile.
pub const fn swapped(at: u32, k: u32) -> u32 {
    at ^ (k % 2 * 2)
}

/// Where row `k` of a tile of B begins. Unless B is copied in fours, its tile is laid out as one
/// that is transposed.
pub const fn row_b(bn: u32, aligned: bool, k: u32) -> u32 {
    if aligned { k * bn } else { padded_row(bn, k) }
}

const fn min(x: u32, y: u32) -> u32 {
    if x < y { x } else { y }
}

const fn max(x: u32, y: u32) -> u32 {
    if x > y { x } else { y }
}

/// Threads that copy: a power of two, as their rows and columns are. In a block of three warps the
/// last does not copy.
const fn copiers(threads: u32) -> u32 {
    1 << threads.ilog2()
}

/// The largest power of two that divides a size.
const fn power_of_two(size: u32) -> u32 {
    1 << size.trailing_zeros()
}

/// A thread's shares of the tiles of A and B.
pub struct Copies<G, const ALIGNED: bool> {
    pub a: CopyA<G, ALIGNED>,
    pub b: CopyB<G, ALIGNED>,
    /// Whether every tile of the block is in bounds, except in the last step along K.
    pub is_interior: bool,
}

impl<G: Geometry, const ALIGNED: bool> Copies<G, ALIGNED> {
    /// Elements from one stage to the next.
    pub const STAGE_A: u32 = padded_row(G::BM, G::BK);
    pub const STAGE_B: u32 = row_b(G::BN, ALIGNED, G::BK);

    /// Copies the next tiles to a stage, with `left` of K left.
    ///
    /// If nothing is left, copies zeros if `zeros` is set, and otherwise nothing.
    ///
    /// # Safety
    /// As for [`CopyA::copy`] and [`CopyB::copy`].
    #[inline(always)]
    pub unsafe fn copy_tile(&mut self, left: u32, stage: u32, zeros: bool) {
        let (to_a, to_b) = (stage * Self::STAGE_A, stage * Self::STAGE_B);
        // SAFETY: the caller's contract.
        unsafe {
            if self.is_interior && left >= G::BK {
                self.a.copy::<true>(to_a, left);
                self.b.copy::<true>(to_b, left);
            } else if left > 0 || zeros {
                self.a.copy::<false>(to_a, left);
                self.b.copy::<false>(to_b, left);
            }
        }
        cp_async::commit_group();
    }

    /// As [`copy_tile`](Self::copy_tile), for a transposed B, in parts.
    ///
    /// The first part has all of A. The copies of B are divided evenly among the parts.
    ///
    /// # Safety
    /// As for [`copy_tile`](Self::copy_tile); all parts of a tile follow each other.
    #[inline(always)]
    pub unsafe fn copy_part(&mut self, [part, parts]: [u32; 2], left: u32, stage: u32) {
        let (to_a, to_b) = (stage * Self::STAGE_A, stage * Self::STAGE_B);
        // SAFETY: the caller's contract.
        unsafe {
            if self.is_interior && left >= G::BK {
                if part == 0 {
                    self.a.copy::<true>(to_a, left);
                }
                self.b.copy_transposed::<true>(to_b, left, [part, parts]);
            } else if left > 0 {
                if part == 0 {
                    self.a.copy::<false>(to_a, left);
                }
                self.b.copy_transposed::<false>(to_b, left, [part, parts]);
            }
        }
        if part + 1 == parts {
            self.b.from = self.b.from.wrapping_add(G::BK as usize);
            cp_async::commit_group();
        }
    }
}
