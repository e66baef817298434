//! Instructions that lanes execute together.

use super::{Case, kernel};
use soft_cuda::FaultKind;

fn lanes(threads: u32, code: &str) -> Vec<u32> {
    let body = format!("{code}\n  add.s64 %rd5, %rd1, %rd0;\n  st.global.b32 [%rd5], %r10;");
    Case::new(kernel(1, &body), &[vec![0; threads as usize]]).threads(threads).run()
}

fn map(f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(f).collect()
}

#[test]
fn shuffles() {
    assert_eq!(lanes(32, "shfl.sync.bfly.b32 %r10, %r1, 5, 31, -1;"), map(|i| i ^ 5));
    assert_eq!(lanes(32, "shfl.sync.idx.b32 %r10, %r1, 3, 31, -1;"), map(|_| 3));
    let down = lanes(32, "shfl.sync.down.b32 %r10|%p1, %r1, 4, 31, -1; @!%p1 mov.b32 %r10, 99;");
    assert_eq!(down, map(|i| if i < 28 { i + 4 } else { 99 }));
    let up = lanes(32, "shfl.sync.up.b32 %r10|%p1, %r1, 1, 0, -1; @!%p1 mov.b32 %r10, 99;");
    assert_eq!(up, map(|i| if i > 0 { i - 1 } else { 99 }));
    // Segments of eight lanes.
    let segments = lanes(32, "shfl.sync.idx.b32 %r10, %r1, 2, 0x181f, -1;");
    assert_eq!(segments, map(|i| i / 8 * 8 + 2));
    let segments = lanes(32, "shfl.sync.down.b32 %r10, %r1, 1, 0x1807, -1;");
    assert_eq!(segments, map(|i| if i % 8 == 7 { i } else { i + 1 }));
}

#[test]
fn a_warp_reduction() {
    let code = "add.s32 %r10, %r1, 1;".to_owned()
        + &[16, 8, 4, 2, 1]
            .map(|d| format!("shfl.sync.bfly.b32 %r2, %r10, {d}, 31, -1; add.s32 %r10, %r10, %r2;"))
            .concat();
    assert_eq!(lanes(32, &code), [528; 32]);
}

#[test]
fn votes_matches_and_reductions() {
    let p = "setp.lt.u32 %p1, %r1, 5;";
    assert_eq!(lanes(32, &format!("{p} vote.sync.ballot.b32 %r10, %p1, -1;")), [31; 32]);
    assert_eq!(lanes(20, &format!("{p} vote.sync.ballot.b32 %r10, !%p1, -1;")), [0xf_ffe0; 20]);
    for (mode, want) in [("any", 1), ("all", 0), ("uni", 0)] {
        let code = format!("{p} vote.sync.{mode}.pred %p2, %p1, -1; selp.b32 %r10, 1, 0, %p2;");
        assert_eq!(lanes(32, &code), [want; 32], "{mode}");
    }
    let got = lanes(32, "shr.u32 %r2, %r1, 3; match.any.sync.b32 %r10, %r2, -1;");
    assert_eq!(got, map(|i| 0xff << (i / 8 * 8)));
    let got = lanes(
        32,
        "mov.b64 %rd10, 5; match.all.sync.b64 %r10|%p1, %rd10, -1; @!%p1 mov.b32 %r10, 0;",
    );
    assert_eq!(got, [u32::MAX; 32]);
    assert_eq!(lanes(32, "redux.sync.add.s32 %r10, %r1, -1;"), [496; 32]);
    assert_eq!(
        lanes(32, "sub.s32 %r2, %r1, 9; redux.sync.min.s32 %r10, %r2, -1;"),
        [-9i32 as u32; 32]
    );
    assert_eq!(lanes(32, "redux.sync.xor.b32 %r10, %r1, -1;"), [0; 32]);
    let got = lanes(32, "elect.sync %r10|%p1, -1; @%p1 mov.b32 %r10, 77;");
    assert_eq!((got[0], got[1]), (77, 0));
}

#[test]
fn groups_with_masks_of_their_own() {
    let code = "setp.lt.u32 %p1, %r1, 16; selp.b32 %r2, 0xffff, 0xffff0000, %p1; redux.sync.add.u32 %r10, %r1, %r2;";
    assert_eq!(lanes(32, code), map(|i| if i < 16 { 120 } else { 376 }));
    // Inside a branch, by the lanes of the branch.
    let code = "mov.b32 %r10, 0; setp.gt.u32 %p1, %r1, 15;
  @%p1 bra END;
  redux.sync.add.u32 %r10, %r1, 0xffff;
END:";
    assert_eq!(lanes(32, code), map(|i| if i < 16 { 120 } else { 0 }));
}

#[test]
fn lanes_that_come_later_are_waited_for() {
    // The halves of the warp come to the same shuffle by different ways.
    let code = "
  setp.gt.u32 %p1, %r1, 15;
  mov.b32 %r2, 0;
  @%p1 bra LATE;
  bra.uni MEET;
LATE:
  add.s32 %r2, %r2, 1;
  setp.lt.u32 %p2, %r2, 100;
  @%p2 bra LATE;
MEET:
  shfl.sync.bfly.b32 %r10, %r1, 16, 31, -1;";
    assert_eq!(lanes(32, code), map(|i| i ^ 16));
    let code = "
  setp.gt.u32 %p1, %r1, 15;
  @%p1 bra ELSE;
  st.global.b32 [%rd1], 5;
  bar.warp.sync -1;
  mov.b32 %r10, 1;
  bra.uni END;
ELSE:
  bar.warp.sync -1;
  ld.global.b32 %r10, [%rd1];
END:";
    assert_eq!(lanes(32, code), map(|i| if i > 15 { 5 } else { 1 }));
}

#[test]
fn a_missing_lane_is_an_error() {
    let body = "
  setp.gt.u32 %p1, %r1, 15;
  @%p1 bra END;
  shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;
END:
  bar.warp.sync -1;
  st.global.b32 [%rd1], %r1;";
    let fault = Case::new(kernel(1, body), &[vec![0]]).fault();
    assert!(matches!(fault.kind, FaultKind::BarrierDivergence { .. }), "{fault}");
    assert!(fault.instruction.starts_with("shfl.sync"), "{fault}");
}
