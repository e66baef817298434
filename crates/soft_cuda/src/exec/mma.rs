//! Matrices in the registers of a warp: `ldmatrix`, `stmatrix`, `movmatrix` and `mma`.

use super::address::resolve_lanes;
use super::lanes::W;
use super::machine::{FULL, LANES, SPACES};
use super::op::{Cx, Handler, Op};
use super::tensor_core::{
    AddUp, Extent, Factors, INPUTS, Input, Portable, f32_to_half, half_to_f32, multiply,
};
use crate::fault::{Access, FaultKind, Waiting};

/// Rows, and elements of a row, of a matrix of 16-bit elements.
const SIDE: usize = 8;
/// Bytes of a row.
const ROW: u32 = 16;

/// Fails unless all lanes of a warp execute the instruction at PTX line `line` together.
pub(super) fn whole_warp(cx: &mut Cx<'_>, line: u32) -> bool {
    if cx.mask == FULL {
        return true;
    }
    let warp = cx.warp as u32;
    let group = |lanes, reason: &str| Waiting { warp, lanes, line, reason: reason.to_owned() };
    let others = !cx.mask;
    let waiting = vec![
        group(cx.mask, "execute the instruction"),
        group(
            others,
            "are elsewhere or have exited; all 32 lanes must execute this instruction together",
        ),
    ];
    cx.fail(cx.mask.trailing_zeros(), FaultKind::BarrierDivergence { waiting });
    false
}

/// The register and the half of it that hold element `(row, col)` of a matrix of 16-bit elements,
/// of which each lane has two neighbours in a row.
fn held(row: usize, col: usize) -> (usize, u32) {
    (row * 4 + col / 2, 16 * (col as u32 & 1))
}

/// `ldmatrix`: `a` address slot, `b` whether the matrices are transposed; [`Cx::extra`] from `x`:
/// offset, space, whether the address has 64 bits, PTX line, number of matrices, and their slots.
pub(crate) struct LoadMatrix;

/// `stmatrix`, as [`LoadMatrix`].
pub(crate) struct StoreMatrix;

// SAFETY: touches only the slots named.
unsafe impl Handler for LoadMatrix {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        unsafe { transfer(cx, op, Access::Load) }
    }
}

// SAFETY: touches only the slots named.
unsafe impl Handler for StoreMatrix {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        unsafe { transfer(cx, op, Access::Store) }
    }
}

/// # Safety
/// As for [`LoadMatrix`].
#[inline(never)]
unsafe fn transfer(cx: &mut Cx<'_>, op: &Op, access: Access) -> bool {
    let [offset, space, wide, line, count] = std::array::from_fn(|i| cx.extra[op.x as usize + i]);
    let slots = &cx.extra[op.x as usize + 5..][..count as usize];
    if !whole_warp(cx, line) {
        return true;
    }
    // The lanes whose addresses count.
    cx.mask = FULL >> (LANES - SIDE * slots.len());
    // SAFETY: the words describe slot `a`.
    let rows =
        unsafe { resolve_lanes(cx, op, (wide != 0, offset), ROW, SPACES[space as usize], access) };
    cx.mask = FULL;
    let Some(rows) = rows else { return true };
    let outside =
        |row: &*mut u8| (*row as usize).wrapping_sub(cx.shared as usize) >= cx.shared_size as usize;
    if let Some(lane) = rows[..SIDE * slots.len()].iter().position(outside) {
        let reason = "the address is not in the block's shared memory, where it has to be";
        return cx.fail(lane as u32, FaultKind::BadMatrix { reason: reason.to_owned() });
    }
    for (rows, &slot) in rows.chunks(SIDE).zip(slots) {
        for (i, &row) in rows.iter().enumerate() {
            for j in 0..SIDE {
                let (lane, shift) = if op.b != 0 { held(j, i) } else { held(i, j) };
                // SAFETY: the slots have 32-bit lanes, and a row its bytes, which are aligned:
                // `resolve_lanes` checked them.
                unsafe {
                    let register = cx.slot::<u32>(slot).add(lane);
                    let element = row.cast::<u16>().add(j);
                    match access {
                        Access::Load => {
                            let kept = *register & !(0xffff << shift);
                            *register = kept | u32::from(element.read()) << shift;
                        }
                        _ => element.write((*register >> shift) as u16),
                    }
                }
            }
        }
    }
    false
}

/// `movmatrix`: `d` and `a` slots, `x` PTX line.
pub(crate) struct TransposeMatrix;

// SAFETY: touches only the slots `d` and `a`.
unsafe impl Handler for TransposeMatrix {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        if !whole_warp(cx, op.x) {
            return true;
        }
        // SAFETY: the slots have 32-bit lanes.
        unsafe {
            let from = cx.slot::<[u32; LANES]>(op.a).read();
            let mut to = [0; LANES];
            for row in 0..SIDE {
                for col in 0..SIDE {
                    let ((lane, shift), (other, down)) = (held(row, col), held(col, row));
                    to[lane] |= (from[other] >> down & 0xffff) << shift;
                }
            }
            cx.slot::<[u32; LANES]>(op.d).write(to);
        }
        false
    }
}

/// Bits of the inputs of row `row` and column `col` of a matrix with 8 rows, or 16 as A has them:
/// `slots` are its registers, of [`Input::bytes`] each.
///
/// # Safety
/// `slots` are slots of 32-bit lanes, as many as the matrix has.
#[inline(always)]
pub(super) unsafe fn fragment(
    cx: &Cx<'_>,
    input: Input,
    slots: &[u32],
    tall: bool,
    (row, col): (usize, usize),
) -> u32 {
    let per_lane = 4 / input.bytes() as usize;
    // A matrix of 8 rows is as wide as four lanes of registers.
    let (matrix, within) = (col / (4 * per_lane), col % (4 * per_lane));
    let register = if tall { 2 * matrix + row / SIDE } else { matrix };
    let lane = row % SIDE * 4 + within / per_lane;
    // SAFETY: by contract.
    let word = unsafe { *cx.slot::<u32>(slots[register]).add(lane) };
    match input {
        Input::Tf32 => word,
        _ => word >> (16 * (within % 2)) & 0xffff,
    }
}

/// The lane, the register and the bit of it that hold element (row, col) of an accumulator of 16
/// rows, in f32 or, `half`, f16.
#[inline(always)]
fn accumulator(row: usize, col: usize, half: bool) -> (usize, usize, u32) {
    let lane = row % SIDE * 4 + col % SIDE / 2;
    let pair = col / SIDE * 2 + row / SIDE;
    if half { (lane, pair, 16 * (col as u32 % 2)) } else { (lane, 2 * pair + col % 2, 0) }
}

/// `mma`: `a` number of the inputs' type, `b` whether accumulators are f16, `c` K, `d` PTX line;
/// [`Cx::extra`] from `x`: how many registers D, A and B have, and the slots of D, A, B and C.
pub(crate) struct Mma;

/// M and N of `mma`.
const MMA_M: usize = 16;
const MMA_N: usize = 8;
/// The accumulators are computed transposed, so that M is what vectors are long.
const _: () = assert!(MMA_M == W);

// SAFETY: touches only the slots named.
unsafe impl Handler for Mma {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        unsafe { mma::<Portable>(cx, op) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn avx512(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        unsafe { mma::<super::avx512::Avx512>(cx, op) }
    }
}

/// # Safety
/// As for [`Mma`] and `A`.
#[inline(always)]
unsafe fn mma<A: AddUp>(cx: &mut Cx<'_>, op: &Op) -> bool {
    if !whole_warp(cx, op.d) {
        return true;
    }
    let (input, half, depth) = (INPUTS[op.a as usize], op.b != 0, op.c as usize);
    let words = &cx.extra[op.x as usize..];
    let [nd, na, nb] = [0, 1, 2].map(|i| words[i] as usize);
    let (d, rest) = words[3..].split_at(nd);
    let (a, rest) = rest.split_at(na);
    let (b, c) = (&rest[..nb], &rest[nb..][..nd]);
    // SAFETY: the slots have 32-bit lanes, as many of them as the shape says.
    unsafe {
        let mut a_bits = [0; MMA_M * 16];
        for k in 0..depth {
            for m in 0..MMA_M {
                a_bits[k * MMA_M + m] = fragment(cx, input, a, true, (m, k));
            }
        }
        let mut b_bits = [0; MMA_N * 16];
        for n in 0..MMA_N {
            for k in 0..depth {
                b_bits[n * depth + k] = fragment(cx, input, b, false, (n, k));
            }
        }
        let a = Factors::new(input, &a_bits[..MMA_M * depth], false);
        let b = Factors::new(input, &b_bits[..MMA_N * depth], false);
        let mut acc = [0.0; MMA_M * MMA_N];
        for n in 0..MMA_N {
            for m in 0..MMA_M {
                let (lane, register, shift) = accumulator(m, n, half);
                let word = *cx.slot::<u32>(c[register]).add(lane);
                acc[n * MMA_M + m] = match half {
                    true => half_to_f32((word >> shift) as u16),
                    false => f32::from_bits(word),
                };
            }
        }
        multiply::<A>(&mut acc, &b, &a, Extent { rows: MMA_N, cols: MMA_M, depth }, half);
        for n in 0..MMA_N {
            for m in 0..MMA_M {
                store(cx, d, (m, n), half, acc[n * MMA_M + m]);
            }
        }
    }
    false
}

/// Sets an element of an accumulator.
///
/// # Safety
/// `slots` are slots of 32-bit lanes, as many as the accumulator has.
#[inline(always)]
unsafe fn store(cx: &Cx<'_>, slots: &[u32], (row, col): (usize, usize), half: bool, value: f32) {
    let (lane, register, shift) = accumulator(row, col, half);
    // SAFETY: by contract.
    unsafe {
        let word = cx.slot::<u32>(slots[register]).add(lane);
        *word = match half {
            true => *word & !(0xffff << shift) | u32::from(f32_to_half(value)) << shift,
            false => value.to_bits(),
        };
    }
}
