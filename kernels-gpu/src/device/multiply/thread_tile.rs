//! A thread's 8 x 16 outputs in the rungs with tensor maps, from
//! [`tma`](crate::ladder::f32::sm_90a::tma) on.
//!
//! These are the fragments that it loads, their products, and the places of the outputs.
//!
//! The warps of a block's 128 x 256 outputs, and the threads of a warp, lie as in
//! [`warptile`](crate::ladder::f32::warptile).

use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use crate::device::operand::fragment::{fragment, fragment16};
use crate::device::pipeline::f32_stages::{BM, BN};

/// Rows and columns of C per warp.
pub const WM: u32 = 64;
pub const WN: u32 = 64;
/// Rows of C per thread, in two groups of four.
pub const TM: u32 = 8;
/// Columns of C per thread, in four groups of four.
pub const TN: u32 = 16;
/// Threads that compute a block's outputs.
pub const THREADS: u32 = BM / WM * WARPS_N * 32;

/// Warps across a block's columns, and threads across a warp's.
const WARPS_N: u32 = BN / WN;
pub const LANES_N: u32 = WN / TN;

/// A thread's sums.
pub type Accumulators = [[f32; TN as usize]; TM as usize];

/// A thread's values of A and of B for one step along K, and for the step after.
///
/// [`frag_prefetch`](crate::ladder::f32::frag_prefetch) says why.
pub struct Fragments {
    a: [[f32; TM as usize]; 2],
    b: [[f32; TN as usize]; 2],
}

impl Fragments {
    /// None yet.
    #[inline(always)]
    pub fn new() -> Self {
        Fragments { a: [[0.0; TM as usize]; 2], b: [[0.0; TN as usize]; 2] }
    }

    /// Loads the values of step `kk`, from tiles that begin at this thread's first elements.
    ///
    /// # Safety
    /// The tiles have that row, and may be read.
    #[inline(always)]
    pub unsafe fn load(&mut self, a: SharedPtr<f32>, b: SharedPtr<f32>, kk: u32) {
        let buffer = kk as usize % 2;
        // SAFETY: the caller's contract.
        unsafe {
            self.b[buffer] = fragment16::<WN>(b.add(kk * BN), 0);
            self.a[buffer] = fragment::<WM>(a.add(kk * BM), 0);
        }
    }

    /// `acc += a * b`, an outer product, with the values of step `kk`.
    ///
    /// It goes down a column and up the next. Each column's element of B stays in the reuse cache,
    /// and at the turns that of A does. Of 96 orders this was the fastest.
    #[inline(always)]
    pub fn multiply(&self, acc: &mut Accumulators, kk: u32) {
        let (a, b) = (&self.a[kk as usize % 2], &self.b[kk as usize % 2]);
        for j in 0..TN as usize {
            for step in 0..TM as usize {
                let i = if j % 2 == 0 { step } else { TM as usize - 1 - step };
                acc[i][j] = fma(a[i], b[j], acc[i][j]);
            }
        }
    }
}

/// Where a thread's outputs lie in the block's tile.
#[derive(Clone, Copy)]
pub struct ThreadTile {
    pub warp: u32,
    pub lane: u32,
    /// The warp's first row and column.
    pub row: u32,
    pub col: u32,
    pub lane_col: u32,
}

impl ThreadTile {
    /// The places of a lane of one of `THREADS / 32` warps.
    #[inline(always)]
    pub fn new(warp: u32, lane: u32) -> Self {
        ThreadTile {
            warp,
            lane,
            row: warp / WARPS_N * WM,
            col: warp % WARPS_N * WN,
            lane_col: lane % LANES_N * 4,
        }
    }

    /// This thread's first elements in the tiles at `a` and `b`.
    #[inline(always)]
    pub fn operands(
        self,
        a: SharedPtr<f32>,
        b: SharedPtr<f32>,
    ) -> (SharedPtr<f32>, SharedPtr<f32>) {
        let (lane_row, lane_col) = (self.lane / LANES_N * 4, self.lane % LANES_N * 4);
        (a.add(self.row + lane_row), b.add(self.col + lane_col))
    }
}
