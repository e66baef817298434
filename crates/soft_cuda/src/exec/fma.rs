//! Runs of `fma.rn.f32`, which most of a GEMM is.

use super::float::{Fma, Plain};
use super::lanes::Map3;
use super::op::{Cx, Handler, Op};

/// A run of `c` `fma.rn.f32` operations, whose slots `[d, a, b, c]` start at
/// word `x` of [`Cx::extra`]; saves their dispatch. `full` and masked alike.
pub(crate) struct FmaRun;

// SAFETY: touches only the slots listed.
unsafe impl Handler for FmaRun {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // No function that takes a closure, which might not be inlined, and then not be compiled
        // for the instruction set.
        for &[d, a, b, c] in operands(cx, op) {
            // SAFETY: the words are slots of 32-bit lanes.
            unsafe { OneFma::run(cx, &Op { d, a, b, c, ..*op }) };
        }
        false
    }

    unsafe fn compact(cx: &mut Cx<'_>, op: &Op) -> bool {
        for &[d, a, b, c] in operands(cx, op) {
            // SAFETY: as above.
            unsafe { OneFma::compact(cx, &Op { d, a, b, c, ..*op }) };
        }
        false
    }
}

/// `fma.rn.f32` without flags.
type OneFma = Map3<Plain<Fma<f32>>>;

/// The slots of each operation of a run.
#[inline(always)]
fn operands<'k>(cx: &Cx<'k>, op: &Op) -> &'k [[u32; 4]] {
    cx.extra[op.x as usize..][..4 * op.c as usize].as_chunks::<4>().0
}
