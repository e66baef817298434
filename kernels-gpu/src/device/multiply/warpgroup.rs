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

/// A warpgroup's work on a tile whose number of columns is known only at run time.
pub trait ByWidth {
    /// Works on the first `SUMS` accumulators of each thread, those of `2 * SUMS` columns.
    ///
    /// # Safety
    /// As the implementation says.
    unsafe fn on<const SUMS: usize>(self, acc: &mut [f32; SUMS])
    where
        [f32; SUMS]: Accumulator;
}

/// Does the work on the first sums, those of `cols` columns.
///
/// Each width has its own instructions, from the first `wgmma` to the wait for the last. A branch
/// in a loop along K would cost 35 cycles a step for each of its conditions.
///
/// # Safety
/// As for the work. All threads of the warpgroup have the same `cols`: those of `SUMS`, or fewer,
/// in whole `UNIT`s.
#[inline(always)]
pub unsafe fn by_width<const SUMS: usize, const UNIT: u32>(
    acc: &mut [f32; SUMS],
    cols: u32,
    work: impl ByWidth,
) where
    [f32; SUMS]: Accumulator,
{
    macro_rules! widths {
        ($($sums:literal)*) => {
            $(
                if $sums == SUMS || $sums < SUMS && 2 * $sums % UNIT == 0 && cols <= 2 * $sums {
                    if let Some(first) = acc.first_chunk_mut::<$sums>() {
                        // SAFETY: the caller's contract.
                        unsafe { work.on::<$sums>(first) };
                    }
                    return;
                }
            )*
        };
    }
    widths!(8 16 24 32 40 48 56 64 72 80 88 96 104 112 120 128);
}
