//! Barriers: all threads, some threads, and never.

use super::{Case, kernel, line_of, module};
use soft_cuda::FaultKind;

const SHARED: &str = ".shared .align 4 .b8 tile[4096];";

/// Each thread writes its own word and reads that of its mirror image.
fn mirror(sync: &str) -> String {
    let body = format!(
        "  mov.b32 %r2, tile; shl.b32 %r3, %r1, 2; add.s32 %r4, %r2, %r3;
  st.shared.b32 [%r4], %r1;
  {sync}
  mov.u32 %r5, %ntid.x; sub.s32 %r5, %r5, 1; sub.s32 %r5, %r5, %r1; shl.b32 %r5, %r5, 2; add.s32 %r5, %r2, %r5;
  ld.shared.b32 %r6, [%r5];
  add.s64 %rd5, %rd1, %rd0; st.global.b32 [%rd5], %r6;"
    );
    module(1, SHARED, &body)
}

#[test]
fn a_barrier_orders_shared_memory() {
    for sync in
        ["bar.sync 0;", "barrier.sync 3;", "bar.sync 1, 256;", "barrier.cta.sync.aligned 0;"]
    {
        let got = Case::new(mirror(sync), &[vec![0; 256]]).threads(256).run();
        assert_eq!(got, (0..256).rev().collect::<Vec<u32>>(), "{sync}");
    }
    // Without one, the first warp sees what nobody has written yet.
    let got = Case::new(mirror(""), &[vec![0; 256]]).threads(256).run();
    assert_eq!(got[0], u32::MAX);
}

#[test]
fn partial_warps_and_early_exits_count() {
    let got = Case::new(mirror("bar.sync 0;"), &[vec![0; 40]]).threads(40).run();
    assert_eq!(got, (0..40).rev().collect::<Vec<u32>>());
    let body = "  setp.gt.u32 %p1, %r1, 49;\n  @%p1 bra END;\n  bar.sync 0;\n  add.s64 %rd5, %rd1, %rd0;\n  st.global.b32 [%rd5], %r1;\nEND:";
    let got = Case::new(kernel(1, body), &[vec![9; 64]]).threads(64).run();
    assert_eq!((got[49], got[50]), (49, 9));
}

#[test]
fn a_barrier_in_a_divergent_branch_is_an_error() {
    let body = "
  setp.gt.u32 %p1, %r1, 15;
  @%p1 bra SKIP;
  bar.sync 0;
SKIP:
  add.s64 %rd5, %rd1, %rd0;
  st.global.b32 [%rd5], %r1;";
    let ptx = kernel(1, body);
    let fault = Case::new(ptx.clone(), &[vec![0; 32]]).fault();
    let line = line_of(&ptx, "bar.sync");
    assert_eq!(fault.line, line);
    let FaultKind::BarrierDivergence { waiting } = &fault.kind else { panic!("{fault}") };
    assert_eq!((waiting[0].lanes, waiting[0].line), (0xffff, line));
    assert_eq!((waiting[1].lanes, waiting[1].line), (0xffff_0000, line_of(&ptx, "SKIP:") + 1));
    let text = fault.to_string();
    assert!(text.contains("warp 0 lanes 0x0000ffff wait at the barrier at line"), "{text}");
}

#[test]
fn two_barriers_in_two_arms_are_an_error() {
    let body = "
  setp.gt.u32 %p1, %r1, 15;
  @%p1 bra ELSE;
  bar.sync 0;
  bra.uni END;
ELSE:
  bar.sync 0;
END:";
    let kind = Case::new(kernel(1, body), &[vec![0; 32]]).fault_kind();
    assert!(matches!(kind, FaultKind::BarrierDivergence { .. }), "{kind:?}");
    // Not aligned, the same is allowed.
    let body = body.replace("bar.sync", "barrier.sync");
    Case::new(kernel(1, &body), &[vec![0; 32]]).run();
}

#[test]
fn different_barriers_deadlock() {
    let body = "
  setp.gt.u32 %p1, %r1, 31;
  @%p1 bra ELSE;
  bar.sync 1;
  bra.uni END;
ELSE:
  bar.sync 2;
END:";
    let fault = Case::new(kernel(1, body), &[vec![0]]).threads(64).fault();
    let FaultKind::Deadlock { waiting } = &fault.kind else { panic!("{fault}") };
    assert_eq!(waiting.len(), 2);
    assert!(fault.to_string().contains("deadlock"), "{fault}");
}

#[test]
fn named_barriers_of_some_warps() {
    // Warps 0 and 1 meet at barrier 1, warps 2 and 3 at barrier 2.
    let body = "
  shr.u32 %r2, %r1, 6; add.s32 %r3, %r2, 1;
  bar.sync %r3, 64;
  add.s64 %rd5, %rd1, %rd0; st.global.b32 [%rd5], %r3;";
    let got = Case::new(kernel(1, body), &[vec![0; 128]]).threads(128).run();
    assert_eq!((got[0], got[127]), (1, 2));
    // A producer arrives, a consumer waits.
    let body = "
  setp.gt.u32 %p1, %r1, 31;
  @%p1 bra WAIT;
  st.global.b32 [%rd1], 5;
  bar.arrive 1, 64;
  bra.uni END;
WAIT:
  bar.sync 1, 64;
  ld.global.b32 %r2, [%rd1];
  st.global.b32 [%rd1+4], %r2;
END:";
    assert_eq!(Case::new(kernel(1, body), &[vec![0; 2]]).threads(64).run(), [5, 5]);
}

#[test]
fn reductions_at_a_barrier() {
    let body = "
  setp.lt.u32 %p1, %r1, 40;
  bar.red.popc.u32 %r2, 0, %p1;
  bar.red.and.pred %p2, 0, %p1;
  bar.red.or.pred %p3, 0, !%p1;
  selp.b32 %r3, 1000, 0, %p2; selp.b32 %r4, 100, 0, %p3;
  add.s32 %r2, %r2, %r3; add.s32 %r2, %r2, %r4;
  add.s64 %rd5, %rd1, %rd0; st.global.b32 [%rd5], %r2;";
    assert_eq!(Case::new(kernel(1, body), &[vec![0; 64]]).threads(64).run(), [140; 64]);
}

#[test]
fn bad_operands_are_errors() {
    for body in ["  bar.sync 16;", "  bar.sync %r1;", "  bar.sync 0, 33;"] {
        let kind = Case::new(kernel(1, body), &[vec![0]]).fault_kind();
        assert!(matches!(kind, FaultKind::BadBarrier { .. }), "{body}: {kind:?}");
    }
}
