//! A thread's share of a tile, from global memory through registers to shared memory.

use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use crate::device::operand::input::Input;

/// Loads this thread's share of a tile into registers.
///
/// The share is `LOADS` times four elements, `STRIDE` rows apart, the first of them at (row, col).
///
/// # Safety
/// As for [`Input::get4`].
#[inline(always)]
pub unsafe fn load_share<const ALIGNED: bool, const STRIDE: u32, const LOADS: usize>(
    matrix: Input,
    row: u32,
    col: u32,
) -> [F32x4; LOADS] {
    // SAFETY: the caller's contract.
    core::array::from_fn(|i| unsafe { matrix.get4::<ALIGNED>(row + i as u32 * STRIDE, col) })
}

/// Stores this thread's share of a tile unchanged: the first four elements at (row, col).
///
/// # Safety
/// `smem` points to a tile with the leading dimension `LD`, a multiple of four. No other thread
/// reads or writes the share there.
#[inline(always)]
pub unsafe fn store_share<const LD: u32, const STRIDE: u32, const LOADS: usize>(
    smem: SharedPtr<f32>,
    share: [F32x4; LOADS],
    row: u32,
    col: u32,
) {
    for i in 0..LOADS {
        // SAFETY: inside the tile, and this thread's own.
        unsafe { smem.store4((row + i as u32 * STRIDE) * LD + col, share[i]) };
    }
}

/// Stores this thread's share of a tile transposed.
///
/// The element at (row, col) of the matrix's tile goes to (col, row) of the tile in shared memory.
///
/// # Safety
/// As for [`store_share`]; `LD` may be any number.
#[inline(always)]
pub unsafe fn store_share_transposed<const LD: u32, const STRIDE: u32, const LOADS: usize>(
    smem: SharedPtr<f32>,
    share: [F32x4; LOADS],
    row: u32,
    col: u32,
) {
    for i in 0..LOADS {
        for j in 0..4 {
            let (x, y) = (row + i as u32 * STRIDE, col + j);
            // SAFETY: inside the tile, and this thread's own.
            unsafe { smem.store(y * LD + x, share[i][j as usize]) };
        }
    }
}
