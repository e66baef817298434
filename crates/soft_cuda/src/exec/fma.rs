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
        // SAFETY: the words are slots of 32-bit lanes.
        unsafe { each_fma(cx, op, |cx, one| OneFma::run(cx, one)) }
    }

    unsafe fn compact(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: as above.
        unsafe { each_fma(cx, op, |cx, one| OneFma::compact(cx, one)) }
    }
}

/// `fma.rn.f32` without flags.
type OneFma = Map3<Plain<Fma<f32>>>;

/// Calls `f` with every operation of a run.
#[inline(always)]
fn each_fma(cx: &mut Cx<'_>, op: &Op, mut f: impl FnMut(&mut Cx<'_>, &Op) -> bool) -> bool {
    let words = &cx.extra[op.x as usize..][..4 * op.c as usize];
    for &[d, a, b, c] in words.as_chunks::<4>().0 {
        f(cx, &Op { d, a, b, c, ..*op });
    }
    false
}
