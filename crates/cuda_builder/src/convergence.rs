//! Keeps the optimiser from adding conditions to convergent instructions.
//!
//! A barrier, a shuffle or a vote is *convergent*: threads must execute it together. A copy in each
//! arm of a branch would separate them. A copy under the same conditions is harmless, as in a loop
//! that is unrolled in full. Two kinds of optimisation add conditions:
//!
//! - rustc's MIR pass JumpThreading, which knows no convergent functions. It is switched off.
//! - LLVM's jump threading, sinking and similar passes. They respect the mark `convergent`, which
//!   LLVM's intrinsics have, but rustc does not mark the callers. So every function is marked here,
//!   and LLVM removes the mark where nothing convergent is called, as for CUDA in clang. LLVM's
//!   manual describes this in "Convergent Operation Semantics".
//!
//! rustc cannot mark `asm!`. So [`finish`](crate::ptx::finish) refuses convergent instructions in
//! inline assembly, with two exceptions. They must share a basic block with an intrinsic:
//!
//! | in assembly | with the intrinsic | because |
//! |---|---|---|
//! | `wgmma.mma_async`, and `wgmma.fence` before it | `wgmma.commit_group` after it | LLVM has no intrinsic |
//! | `mma`, `ldmatrix`, `stmatrix` | `activemask`, whose result is unused | their intrinsics are not convergent |
//!
//! Assembly with side effects stays in its basic block. So no condition and no copy can separate it
//! from the convergent intrinsic.

/// The flags for rustc.
pub fn rustflags() -> impl Iterator<Item = String> {
    let mark = ["-Zmir-enable-passes=-JumpThreading", "-Cllvm-args=-force-attribute=convergent"];
    // LLVM's intrinsics are marked as well, and have no body that could disprove the mark.
    let unmark = |name| format!("-Cllvm-args=-force-remove-attribute=llvm.{name}:convergent");
    mark.map(str::to_owned).into_iter().chain(harmless_intrinsics().map(unmark))
}

/// Intrinsics of `core`'s arithmetic and memory, which are not convergent.
///
/// A missing one only limits how far a loop around it is unrolled.
fn harmless_intrinsics() -> impl Iterator<Item = String> {
    const INTEGERS: [&str; 5] = ["i8", "i16", "i32", "i64", "i128"];
    const FLOATS: [&str; 3] = ["f16", "f32", "f64"];
    const ON_INTEGERS: &str = "umin umax smin smax abs ctpop ctlz cttz bswap bitreverse fshl fshr \
        uadd.sat usub.sat sadd.sat ssub.sat uadd.with.overflow usub.with.overflow \
        umul.with.overflow sadd.with.overflow ssub.with.overflow smul.with.overflow";
    const ON_FLOATS: &str = "fma fmuladd fabs sqrt floor ceil trunc rint nearbyint round roundeven \
        copysign minnum maxnum minimum maximum canonicalize";
    const OTHERS: &str = "assume expect.i1 trap lifetime.start.p0 lifetime.end.p0 \
        memcpy.p0.p0.i64 memmove.p0.p0.i64 memset.p0.i64 experimental.noalias.scope.decl";

    let with_types = |names: &'static str, types: &'static [&str]| {
        names.split_whitespace().flat_map(|name| types.iter().map(move |ty| format!("{name}.{ty}")))
    };
    let conversions = INTEGERS.iter().flat_map(|integer| {
        FLOATS.iter().flat_map(move |float| {
            ["fptoui.sat", "fptosi.sat"].map(|name| format!("{name}.{integer}.{float}"))
        })
    });
    let registers = ["tid", "ntid", "ctaid", "nctaid"].into_iter().flat_map(|register| {
        ["x", "y", "z"].map(|axis| format!("nvvm.read.ptx.sreg.{register}.{axis}"))
    });
    with_types(ON_INTEGERS, &INTEGERS)
        .chain(with_types(ON_FLOATS, &FLOATS))
        .chain(conversions)
        .chain(registers)
        .chain(OTHERS.split_whitespace().map(str::to_owned))
}
