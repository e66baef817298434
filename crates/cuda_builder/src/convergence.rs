//! Keeping the optimiser from putting under other conditions what threads must execute together.
//!
//! A barrier, a shuffle or a vote is *convergent*: a copy of it in each arm of a branch is not
//! what the program says, nor is one that was moved into an arm, because the threads that should
//! meet are at different places then. A copy under the same conditions does no harm: where a loop is unrolled
//! in full, its threads meet in each copy. Two kinds of optimisation add conditions, and each is kept from it:
//!
//! - rustc's MIR pass JumpThreading, which knows of no convergent function. It is switched off.
//! - LLVM's jump threading, sinking and their like, which leave alone what is marked `convergent`.
//!   LLVM's own intrinsics for such instructions are, but rustc does not mark the functions that
//!   call them. Here every function is marked, and LLVM takes the mark from those that call nothing
//!   convergent: as clang does it for CUDA. See "Convergent Operation Semantics" in LLVM's manual.
//!
//! What remains is `asm!`, which rustc cannot mark. [`finish`](crate::ptx::finish) refuses a kernel
//! that has a convergent instruction in inline assembly, with two exceptions. LLVM has no intrinsic for
//! `wgmma.mma_async`, before which a `wgmma.fence` belongs; it has one for the `wgmma.commit_group` that
//! must follow. And its intrinsics for `mma`, `ldmatrix` and `stmatrix` are not convergent: a loop around
//! one is unrolled with a remainder. Behind these stands `activemask`, whose result nobody uses. What is
//! in one basic block with a convergent intrinsic comes under no other condition than that, and copies have
//! both, since assembly with side effects stays in its block: so `finish` takes these in assembly, and no
//! other `wgmma`, if the rest of their basic block has a `wgmma.commit_group` or an `activemask` that is not.

/// The flags for rustc.
pub fn rustflags() -> impl Iterator<Item = String> {
    let mark = ["-Zmir-enable-passes=-JumpThreading", "-Cllvm-args=-force-attribute=convergent"];
    // The mark falls on LLVM's intrinsics, too, which have no body to see that it is wrong.
    let unmark = |name| format!("-Cllvm-args=-force-remove-attribute=llvm.{name}:convergent");
    mark.map(str::to_owned).into_iter().chain(harmless_intrinsics().map(unmark))
}

/// The intrinsics that rustc writes for `core`'s arithmetic and memory, none of which is
/// convergent. One that is missing here keeps a loop around it from being unrolled as far as it
/// could be, and does no other harm.
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
