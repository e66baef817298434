//! Products of a warpgroup: `wgmma` on tiles of 16-bit elements in shared memory.

use cuda_std::shared::SharedPtr;
use cuda_std::sm_90a::wgmma::{Accumulator, Tile};

/// Multiplies one step along K, from tiles that lie as they were copied.
///
/// # Safety
/// As for [`Accumulator::multiply_bf16`].
#[inline(always)]
pub unsafe fn multiply_step<
    const SUMS: usize,
    const F16: bool,
    const TRANS_A: bool,
    const TRANS_B: bool,
>(
    acc: &mut [f32; SUMS],
    [a, b]: [SharedPtr<u16>; 2],
    accumulate: bool,
) where
    [f32; SUMS]: Accumulator,
{
    // SAFETY: the caller's contract.
    unsafe {
        match (TRANS_A, TRANS_B) {
            (false, false) => {
                multiply::<SUMS, F16, _, _>(acc, Tile::k_major(a), Tile::mn_major(b), accumulate);
            }
            (true, false) => {
                multiply::<SUMS, F16, _, _>(acc, Tile::mn_major(a), Tile::mn_major(b), accumulate);
            }
            (false, true) => {
                multiply::<SUMS, F16, _, _>(acc, Tile::k_major(a), Tile::k_major(b), accumulate);
            }
            (true, true) => {
                multiply::<SUMS, F16, _, _>(acc, Tile::mn_major(a), Tile::k_major(b), accumulate);
            }
        }
    }
}

/// [`multiply_step`] with descriptors of the tiles.
///
/// # Safety
/// As for [`Accumulator::multiply_bf16`].
#[inline(always)]
pub unsafe fn multiply<const SUMS: usize, const F16: bool, const A: bool, const B: bool>(
    acc: &mut [f32; SUMS],
    a: Tile<A>,
    b: Tile<B>,
    accumulate: bool,
) where
    [f32; SUMS]: Accumulator,
{
    // SAFETY: the caller's contract.
    unsafe {
        match F16 {
            true => acc.multiply_f16(a, b, accumulate),
            false => acc.multiply_bf16(a, b, accumulate),
        }
    }
}

/// [`multiply`] for the first `cols` columns, a multiple of 16. B's tile has `cols` columns.
///
/// Each width has its instructions behind a branch. `ptxas` accepts that if the branch holds the
/// whole group, from fence to commit.
///
/// # Safety
/// As for [`Accumulator::multiply_bf16`]. All threads of the warpgroup have the same `cols`.
#[inline(always)]
pub unsafe fn multiply_cols<const SUMS: usize, const F16: bool, const A: bool, const B: bool>(
    acc: &mut [f32; SUMS],
    cols: u32,
    a: Tile<A>,
    b: Tile<B>,
    accumulate: bool,
) where
    [f32; SUMS]: Accumulator,
{
    macro_rules! by_width {
        ($($sums:literal)*) => {
            $(
                if $sums == SUMS || $sums < SUMS && cols <= 2 * $sums {
                    if let Some(first) = acc.first_chunk_mut::<$sums>() {
                        // SAFETY: the caller's contract.
                        unsafe { multiply::<$sums, F16, _, _>(first, a, b, accumulate) };
                    }
                    return;
                }
            )*
        };
    }
    // In halves, so that few conditions come before a group.
    if SUMS > 64 && cols > 128 {
        if SUMS > 96 && cols > 192 {
            by_width!(104 112 120 128);
        }
        by_width!(72 80 88 96);
    }
    if SUMS > 32 && cols > 64 {
        by_width!(40 48 56 64);
    }
    by_width!(8 16 24 32);
}
