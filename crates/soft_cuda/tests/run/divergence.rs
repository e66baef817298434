//! Lanes that go different ways.

use super::{Case, kernel};
use soft_cuda::FaultKind;

/// Runs `code`, which computes `%r10`, in one warp of `threads`.
fn lanes(threads: u32, code: &str) -> Vec<u32> {
    let body = format!("{code}\n  add.s64 %rd5, %rd1, %rd0;\n  st.global.b32 [%rd5], %r10;");
    Case::new(kernel(1, &body), &[vec![0; threads as usize]]).threads(threads).run()
}

#[test]
fn nested_branches_reconverge() {
    let code = "
  and.b32 %r2, %r1, 1; and.b32 %r3, %r1, 2;
  setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r3, 0;
  @%p1 bra EVEN;
  @%p2 bra ODD0;
  mov.b32 %r10, 3; bra.uni ODDEND;
ODD0:
  mov.b32 %r10, 1;
ODDEND:
  bra.uni END;
EVEN:
  @%p2 bra EVEN0;
  mov.b32 %r10, 2; bra.uni END;
EVEN0:
  mov.b32 %r10, 0;
END:
  activemask.b32 %r4;
  popc.b32 %r4, %r4;
  shl.b32 %r4, %r4, 8;
  or.b32 %r10, %r10, %r4;";
    for threads in [32, 20, 64] {
        let got = lanes(threads, code);
        for (i, got) in got.into_iter().enumerate() {
            let in_warp = (threads - i as u32 / 32 * 32).min(32);
            assert_eq!(got, i as u32 & 3 | in_warp << 8, "thread {i} of {threads}");
        }
    }
}

#[test]
fn loops_of_different_length() {
    let code = "
  mov.b32 %r10, 0; mov.b32 %r2, 0;
LOOP:
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra DONE;
  add.s32 %r10, %r10, %r2;
  add.s32 %r2, %r2, 1;
  bra.uni LOOP;
DONE:
  activemask.b32 %r3;
  setp.ne.b32 %p2, %r3, -1;
  @%p2 mov.b32 %r10, 999;";
    let want: Vec<u32> = (0..32).map(|i: u32| i * i.saturating_sub(1) / 2).collect();
    assert_eq!(lanes(32, code), want);
}

#[test]
fn loops_nest_with_breaks() {
    // For each lane: sum over i < lane of the j at which j * j > i.
    let code = "
  mov.b32 %r10, 0; mov.b32 %r2, 0;
OUTER:
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra DONE;
  mov.b32 %r3, 0;
INNER:
  mul.lo.s32 %r4, %r3, %r3;
  setp.gt.u32 %p2, %r4, %r2;
  @%p2 bra NEXT;
  add.s32 %r3, %r3, 1;
  bra.uni INNER;
NEXT:
  add.s32 %r10, %r10, %r3;
  add.s32 %r2, %r2, 1;
  bra.uni OUTER;
DONE:";
    let want: Vec<u32> = (0..32u32)
        .map(|lane| (0..lane).map(|i| (0..).find(|j| j * j > i).unwrap()).sum())
        .collect();
    assert_eq!(lanes(32, code), want);
}

#[test]
fn early_exit_of_some_lanes() {
    let body = "
  setp.gt.u32 %p1, %r1, 4;
  @%p1 exit;
  activemask.b32 %r2;
  add.s64 %rd5, %rd1, %rd0;
  st.global.b32 [%rd5], %r2;";
    let mut want = vec![7; 32];
    want[..5].fill(0x1f);
    assert_eq!(Case::new(kernel(1, body), &[vec![7; 32]]).run(), want);
}

#[test]
fn lanes_of_a_warp_may_wait_for_each_other() {
    // Lane 0 spins until lane 31 has set the flag; either may come first in
    // the code, and the loop may take longer than the device runs on without a look.
    let long = "  add.u32 %r9, %r9, 1;\n".repeat(20_000);
    for (first, spinner, work) in
        [("SPIN", 0, ""), ("SET", 31, ""), ("SPIN", 0, &long), ("SET", 31, &long)]
    {
        let body = format!(
            "
  setp.eq.u32 %p1, %r1, {spinner};
  setp.eq.u32 %p2, %r1, {};
  {}
  @%p2 bra SET;
  bra.uni END;
SPIN:
  ld.volatile.global.b32 %r2, [%rd1];
  setp.eq.u32 %p3, %r2, 0;
{work}  @%p3 bra SPIN;
  bra.uni END;
SET:
  atom.global.exch.b32 %r3, [%rd1], 1;
END:
  ld.global.b32 %r4, [%rd1];
  add.s64 %rd5, %rd2, %rd0;
  st.global.b32 [%rd5], %r4;",
            31 - spinner,
            if first == "SPIN" { "@%p1 bra SPIN;" } else { "@%p2 bra SET;\n  @%p1 bra SPIN;" },
        );
        let case = Case::new(kernel(2, &body), &[vec![0], vec![0; 32]]);
        assert_eq!(case.run()[spinner], 1);
    }
}

#[test]
fn a_lock_taken_lane_by_lane() {
    let long = "  add.u32 %r9, %r9, 1;\n".repeat(3000);
    for (threads, blocks, work) in [(64, 4, ""), (4, 1, &long)] {
        let body = format!(
            "
AGAIN:
{work}  atom.global.cas.b32 %r2, [%rd1], 0, 1;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra AGAIN;
  ld.volatile.global.b32 %r3, [%rd2];
  add.s32 %r3, %r3, 1;
  st.volatile.global.b32 [%rd2], %r3;
  membar.gl;
  atom.global.exch.b32 %r4, [%rd1], 0;"
        );
        let case = Case::new(kernel(2, &body), &[vec![0], vec![0]]).threads(threads).blocks(blocks);
        assert_eq!(case.run(), [threads * blocks]);
    }
}

#[test]
fn functions_are_called() {
    let declarations = "
.func (.param .b32 r) square(.param .b32 a)
{
  .reg .b32 %r<4>;
  .reg .pred %p<2>;
  ld.param.b32 %r1, [a];
  setp.gt.u32 %p1, %r1, 10;
  @%p1 bra BIG;
  mul.lo.s32 %r2, %r1, %r1;
  st.param.b32 [r], %r2;
  ret;
BIG:
  st.param.b32 [r], 1000;
  ret;
}";
    let call = |r: &str| {
        format!(
            "{{ .param .b32 param0; .param .b32 retval0;
  st.param.b32 [param0], {r};
  call.uni (retval0), square, (param0);
  ld.param.b32 {r}, [retval0]; }}"
        )
    };
    let body = format!(
        "  mov.b32 %r2, %r1; {} {} add.s64 %rd5, %rd1, %rd0; st.global.b32 [%rd5], %r2;",
        call("%r2"),
        call("%r2")
    );
    let case = Case::new(super::module(1, declarations, &body), &[vec![0; 32]]);
    let square = |x: u32| if x > 10 { 1000 } else { x * x };
    assert_eq!(case.run(), (0..32).map(|i| square(square(i))).collect::<Vec<_>>());
}

#[test]
fn an_endless_loop_ends_with_the_budget() {
    let body = "  setp.eq.u32 %p1, %r1, 3;\n  @%p1 bra FOREVER;\n  bra.uni END;\nFOREVER:\n  bra.uni FOREVER;\nEND:";
    let case = Case::new(kernel(1, body), &[vec![0]]).budget(10_000);
    let fault = case.fault();
    assert_eq!(fault.kind, FaultKind::BudgetExceeded { budget: 10_000 });
    assert_eq!(fault.thread, [3, 0, 0]);
    assert!(fault.to_string().contains("ran more than 10000 warp instructions"), "{fault}");
}

#[test]
fn a_trap_names_its_thread() {
    let body = "  setp.eq.u32 %p1, %r1, 37;\n  @%p1 trap;";
    let fault = Case::new(kernel(1, body), &[vec![0]]).threads(64).blocks(3).fault();
    assert_eq!((fault.kind, fault.block, fault.thread), (FaultKind::Trap, [0; 3], [37, 0, 0]));
}
