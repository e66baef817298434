//! Many `fma.rn.f32` at once, which most of a GEMM is.

use super::float::Float;
use super::lanes::{part, write_chunk};
use super::machine::LANES;
use super::op::{Cx, Handler, Op};

/// The most rows and columns of a tile.
pub(crate) const SIDE: usize = 4;

/// `c` tiles of chains of FMAs, whose words start at `x` of [`Cx::extra`]. Each tile has three
/// words, rows, columns and steps, and then slots: the accumulators' first and last values, row by
/// row, and for each step a factor for each row and one for each column. No result shares its slot
/// with what is read, but with the first value of its own accumulator.
pub(crate) struct FmaTiles;

/// Calls the `$tile` of so many `$rows` and `$columns`.
macro_rules! by_shape {
    ($tile:ident, $of:expr, $arguments:tt) => {
        match ($of.rows, $of.columns) {
            (4, 4) => $tile::<4, 4> $arguments,
            (4, 2) => $tile::<4, 2> $arguments,
            (4, _) => $tile::<4, 1> $arguments,
            (2, 4) => $tile::<2, 4> $arguments,
            (2, 2) => $tile::<2, 2> $arguments,
            (2, _) => $tile::<2, 1> $arguments,
            (_, 4) => $tile::<1, 4> $arguments,
            (_, 2) => $tile::<1, 2> $arguments,
            _ => $tile::<1, 1> $arguments,
        }
    };
}

// SAFETY: touches only the slots listed.
unsafe impl Handler for FmaTiles {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let mut words = &cx.extra[op.x as usize..];
        for _ in 0..op.c {
            let (of, rest) = Words::split(words);
            // SAFETY: the words are slots of 32-bit lanes.
            unsafe { by_shape!(fma_tile, of, (cx, of.slots)) };
            words = rest;
        }
        false
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn avx512(cx: &mut Cx<'_>, op: &Op) -> bool {
        use super::avx512::fma_tile as avx512_tile;
        let mut words = &cx.extra[op.x as usize..];
        for _ in 0..op.c {
            let (of, rest) = Words::split(words);
            // SAFETY: as above.
            unsafe { by_shape!(avx512_tile, of, (cx, of.slots)) };
            words = rest;
        }
        false
    }
}

/// The words of a tile.
struct Words<'k> {
    rows: u32,
    columns: u32,
    /// The slots of the first values, of the last ones, and of the factors, step by step.
    slots: [&'k [u32]; 3],
}

impl<'k> Words<'k> {
    #[inline(always)]
    fn split(words: &'k [u32]) -> (Words<'k>, &'k [u32]) {
        let [rows, columns, steps] = [words[0], words[1], words[2]];
        let (first, rest) = words[3..].split_at((rows * columns) as usize);
        let (last, rest) = rest.split_at((rows * columns) as usize);
        let (factors, rest) = rest.split_at(((rows + columns) * steps) as usize);
        (Words { rows, columns, slots: [first, last, factors] }, rest)
    }
}

/// Lanes and columns of a tile that are computed at once: with AVX2, the sums of four rows, which
/// it has, and what is multiplied fit the 16 registers of eight lanes each.
const VECTOR: usize = 8;
const COLUMNS: usize = 2;

/// # Safety
/// The words are slots of 32-bit lanes, of a tile of this shape.
#[inline(always)]
unsafe fn fma_tile<const R: usize, const C: usize>(cx: &Cx<'_>, slots: [&[u32]; 3]) {
    for lane in (0..LANES).step_by(VECTOR) {
        // SAFETY: by contract.
        unsafe {
            match C {
                1 => fma_part::<R, C, 1>(cx, slots, (lane, 0)),
                _ => {
                    for column in (0..C).step_by(COLUMNS) {
                        fma_part::<R, C, COLUMNS>(cx, slots, (lane, column));
                    }
                }
            }
        }
    }
}

/// `P` columns of a tile, in some lanes, from a lane and a column on.
///
/// # Safety
/// As for [`fma_tile`], and the tile has so many lanes and columns from there on.
#[inline(always)]
unsafe fn fma_part<const R: usize, const C: usize, const P: usize>(
    cx: &Cx<'_>,
    [first, last, factors]: [&[u32]; 3],
    (lane, column): (usize, usize),
) {
    let mut sums = [[[0.0f32; VECTOR]; P]; R];
    // SAFETY: by contract.
    unsafe {
        for (r, sums) in sums.iter_mut().enumerate() {
            for (c, sum) in sums.iter_mut().enumerate() {
                *sum = part(cx, first[r * C + column + c], lane);
            }
        }
        for step in factors.chunks_exact(R + C) {
            let mut columns = [[0.0f32; VECTOR]; P];
            for (c, factor) in columns.iter_mut().enumerate() {
                *factor = part(cx, step[R + column + c], lane);
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let row: [f32; VECTOR] = part(cx, step[r], lane);
                for (sum, factor) in sums.iter_mut().zip(&columns) {
                    for i in 0..VECTOR {
                        sum[i] = row[i].mul_add(factor[i], sum[i]);
                    }
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (c, sum) in sums.iter().enumerate() {
                // NaN stays NaN, so that the last value is the one to look at.
                let sum = sum.map(Float::canonical);
                write_chunk(cx, last[r * C + column + c], lane, sum);
            }
        }
    }
}
