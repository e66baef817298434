//! Producers and consumers of bulk copies, and waits for their mbarriers.

use soft_cuda::FaultKind;

use super::bulk::{Case, WAIT, box_at, case, load_box, store_tile};
use super::line_of;

/// Warp 0 loads boxes of 32 by 8, one for each of four steps, into two slots;
/// the warps after it add them up. `full` and `empty` say when.
fn pipeline(skip_full: bool, skip_empty: bool) -> Case {
    let wait = |skip: bool, label: &str, barrier: &str, parity: &str| match skip {
        true => String::new(),
        false => format!(
            "{label}:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [{barrier}], {parity};
  @!%p2 bra {label};
"
        ),
    };
    let body = format!(
        "  setp.ne.b32 %p1, %r1, 0;
  @%p1 bra READY;
  mbarrier.init.shared::cta.b64 [%r3], 1;
  mbarrier.init.shared::cta.b64 [%r3+8], 1;
  mbarrier.init.shared::cta.b64 [%r4], 2;
  mbarrier.init.shared::cta.b64 [%r4+8], 2;
READY:
  bar.sync 0;
  shr.u32 %r5, %r1, 5;
  mov.b32 %r10, 0;
  mov.b32 %r11, 0;
  setp.ne.b32 %p1, %r5, 0;
  @%p1 bra CONSUME;
  setmaxnreg.dec.sync.aligned.u32 24;
  elect.sync %r12|%p4, 0xffffffff;
  @!%p4 bra END;
PRODUCE:
  and.b32 %r13, %r10, 1;
  shl.b32 %r14, %r13, 10;
  add.s32 %r14, %r2, %r14;
  shl.b32 %r15, %r13, 3;
  add.s32 %r16, %r3, %r15;
  add.s32 %r17, %r4, %r15;
  shr.u32 %r18, %r10, 1;
  and.b32 %r18, %r18, 1;
  xor.b32 %r19, %r18, 1;
{empty}  mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r16], 1024;
  shl.b32 %r20, %r10, 3;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r14], [%rd3, {{%r11, %r20}}], [%r16], %rd40;
  add.s32 %r10, %r10, 1;
  setp.lt.u32 %p3, %r10, 4;
  @%p3 bra PRODUCE;
  bra.uni END;
CONSUME:
  setmaxnreg.inc.sync.aligned.u32 240;
  and.b32 %r6, %r1, 31;
  sub.s32 %r7, %r5, 1;
  shl.b32 %r7, %r7, 7;
  shl.b32 %r8, %r6, 2;
  add.s32 %r9, %r7, %r8;
  mov.f32 %r50, 0f00000000;
STEP:
  and.b32 %r13, %r10, 1;
  shl.b32 %r14, %r13, 10;
  add.s32 %r14, %r2, %r14;
  add.s32 %r14, %r14, %r9;
  shl.b32 %r15, %r13, 3;
  add.s32 %r16, %r3, %r15;
  add.s32 %r17, %r4, %r15;
  shr.u32 %r18, %r10, 1;
  and.b32 %r18, %r18, 1;
{full}  ld.shared.f32 %r51, [%r14];
  add.f32 %r50, %r50, %r51;
  bar.warp.sync 0xffffffff;
  setp.eq.b32 %p5, %r6, 0;
  @%p5 mbarrier.arrive.shared::cta.b64 _, [%r17];
  add.s32 %r10, %r10, 1;
  setp.lt.u32 %p3, %r10, 4;
  @%p3 bra STEP;
  barrier.sync 1, 64;
  sub.s32 %r60, %r1, 32;
  mul.wide.u32 %rd20, %r60, 4;
  add.s64 %rd20, %rd2, %rd20;
  st.global.f32 [%rd20], %r50;
END:",
        empty = wait(skip_empty, "EMPTY", "%r17", "%r19"),
        full = wait(skip_full, "FULL", "%r16", "%r18"),
    );
    case(&body).threads(96)
}

#[test]
fn a_pipeline_of_a_producer_and_two_consumers() {
    let got = pipeline(false, false).run();
    for warp in 0..2 {
        for lane in 0..32 {
            // Row `warp` of each box.
            let sum: usize = (0..4).map(|step| (step * 8 + warp) * 64 + lane).sum();
            assert_eq!(got[warp * 32 + lane], sum as f32, "{warp} {lane}");
        }
    }
}

#[test]
fn reading_without_waiting_for_the_copy_is_a_race() {
    let case = pipeline(true, false);
    let fault = case.fault();
    let copy = line_of(&case.ptx, "cp.async.bulk");
    assert_eq!(fault.line, line_of(&case.ptx, "ld.shared.f32"));
    let FaultKind::Race { other_line, other_warp, .. } = fault.kind else { panic!("{fault}") };
    assert_eq!((other_line, other_warp), (copy, 0));
    let text = fault.to_string();
    let says = format!("this load and the asynchronous copy by warp 0 at line {copy} are not");
    assert!(text.contains(&says) && text.contains("wait for that copy's mbarrier"), "{text}");
}

#[test]
fn copying_over_what_is_being_read_is_a_race() {
    // Without waiting, the second round meets the first, which nobody waited for.
    let case = pipeline(false, true);
    let fault = case.fault();
    assert_eq!(fault.line, line_of(&case.ptx, "cp.async.bulk"));
    let FaultKind::Race { .. } = fault.kind else { panic!("{fault}") };
    // A thread that waits for the copy, but not for the other warps' reading.
    let body = load_box(0, 0, 1024)
        + WAIT
        + "  ld.shared.b32 %r30, [%r2+256];
  setp.ne.b32 %p1, %r1, 32;
  @%p1 bra END;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 1024;
  mov.b32 %r10, 0;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd3, {%r10, %r10}], [%r3]; // again
END:";
    let unordered = self::case(&body).threads(64);
    let fault = unordered.fault();
    assert_eq!(fault.line, line_of(&unordered.ptx, "// again"));
    let FaultKind::Race { other_line, other_warp, .. } = fault.kind else { panic!("{fault}") };
    let read = line_of(&unordered.ptx, "ld.shared.b32 %r30");
    assert_eq!((other_line, other_warp), (read, 0));
    // Every way to order the two.
    for order in [
        "bar.sync 0;",
        "barrier.sync 2, 64;",
        "membar.cta; bar.warp.sync 0xffffffff;",
        "fence.acq_rel.gpu;",
    ] {
        let ordered = body.replace("[%r2+256];", &format!("[%r2+256];\n  {order}"));
        let outcome = self::case(&ordered).threads(64).outcome();
        assert!(outcome.is_ok(), "{order}: {outcome:?}");
    }
    // What orders bulk copies and threads does not order threads.
    let proxy = body.replace("[%r2+256];", "[%r2+256];\n  fence.proxy.async.shared::cta;");
    let kind = self::case(&proxy).threads(64).fault().kind;
    assert!(matches!(kind, FaultKind::Race { .. }), "{kind:?}");
}

#[test]
fn what_one_thread_knows_another_learns_at_a_barrier() {
    // Only warp 0 waits for the copy; the barrier tells the others.
    let body = load_box(0, 0, 1024)
        + "  setp.gt.u32 %p1, %r1, 31;
  @%p1 bra MEET;
" + WAIT + "MEET:
  bar.sync 0;
" + &store_tile(256);
    assert_eq!(case(&body).threads(64).run()[..256], box_at(0, 0, 32, 8, 0.0));
    let fault = case(&body.replace("MEET:\n  bar.sync 0;", "MEET:")).threads(64).fault();
    assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}");
    // Generic addresses are checked, too.
    let generic = load_box(0, 0, 1024)
        + "  cvta.shared.u64 %rd30, %rd31;\n  cvt.u64.u32 %rd31, %r2;\n  cvta.shared.u64 %rd30, %rd31;\n  ld.b32 %r30, [%rd30];\n";
    let fault = case(&generic).fault();
    assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}");
}

#[test]
fn a_wait_that_nobody_ends_is_a_deadlock() {
    let body = "  setp.ne.b32 %p1, %r1, 0;
  @%p1 bra READY;
  mbarrier.init.shared::cta.b64 [%r3], 3;
READY:
  bar.sync 0;
  setp.gt.u32 %p1, %r1, 1;
  @%p1 bra END;
  mbarrier.arrive.shared::cta.b64 _, [%r3];
SPIN:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;
  @!%p2 bra SPIN;
END:
  bar.sync 0;";
    let case = case(body).threads(64);
    let fault = case.fault();
    let wait = line_of(&case.ptx, "try_wait");
    assert_eq!(fault.line, wait);
    let FaultKind::Deadlock { waiting } = &fault.kind else { panic!("{fault}") };
    let first = waiting.iter().find(|w| w.line == wait).unwrap();
    assert_eq!((first.warp, first.lanes), (0, 3));
    assert!(first.reason.contains("wait for 1 of 3 arrivals in phase 0"), "{fault}");
    assert!(waiting.iter().any(|w| w.warp == 1 && w.line == wait + 3), "{fault}");
}

#[test]
fn a_failed_wait_leaves_time_for_other_work() {
    // Thread 0 arrives only once its wait has failed; `test_wait` as well.
    for wait in ["try_wait", "test_wait"] {
        let body = format!(
            "  setp.ne.b32 %p1, %r1, 0;
  @%p1 bra END;
  mbarrier.init.shared::cta.b64 [%r3], 1;
  mbarrier.{wait}.parity.shared::cta.b64 %p2, [%r3], 0;
  @%p2 bra END;
  mbarrier.arrive.shared::cta.b64 %rd30, [%r3];
  mbarrier.{wait}.shared::cta.b64 %p3, [%r3], %rd30;
  @!%p3 bra END;
  mbarrier.{wait}.parity.shared::cta.b64 %p4, [%r3], 1;
  @%p4 bra END;
  mov.b32 %r10, 7;
  st.global.b32 [%rd2], %r10;
END:"
        );
        assert_eq!(case(&body).run()[0].to_bits(), 7, "{wait}");
    }
}
