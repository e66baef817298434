//! A thread's values of a tile in shared memory, loaded 128 bits at a time.

use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

/// A thread's eight values of one row of a tile: two groups of four, half a row apart.
///
/// The threads of a warp read neighbouring groups.
///
/// # Safety
/// - `row` points to a row of `LEN` elements in shared memory, stored before the last barrier.
/// - `first` is a multiple of four below `LEN / 2`.
#[inline(always)]
pub unsafe fn fragment<const LEN: u32>(row: SharedPtr<f32>, first: u32) -> [f32; 8] {
    // SAFETY: inside the row; `first` and `LEN / 2` are multiples of four.
    let ([x0, x1, x2, x3], [x4, x5, x6, x7]) =
        unsafe { (row.load4(first), row.load4(first + LEN / 2)) };
    [x0, x1, x2, x3, x4, x5, x6, x7]
}

/// As [`fragment`], with four groups of four, a quarter of the row apart.
///
/// # Safety
/// As for [`fragment`], with `first` below `LEN / 4`.
#[inline(always)]
pub unsafe fn fragment16<const LEN: u32>(row: SharedPtr<f32>, first: u32) -> [f32; 16] {
    let mut values = [0.0; 16];
    for group in 0..4 {
        // SAFETY: inside the row; `first` and `LEN / 4` are multiples of four.
        let four: F32x4 = unsafe { row.load4(first + group * (LEN / 4)) };
        for j in 0..4 {
            values[group as usize * 4 + j] = four[j];
        }
    }
    values
}
