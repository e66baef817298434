//! `cp.async.mbarrier.arrive`: copies that say to an mbarrier that they are complete.

use super::{Case, module};

/// A warp copies the first words of vectors of the input to `first`, and second ones to `second`,
/// around `between`, `code` after that, and reads what its neighbour has copied.
fn copied(arrivals: u32, between: &str, code: &str) -> Case {
    let declarations = ".shared .align 16 .b8 first[128];
.shared .align 16 .b8 second[128];
.shared .align 8 .b64 full[2];";
    let body = format!(
        "
  mov.b32 %r2, first; mov.b32 %r3, second; mov.b32 %r4, full; shl.b32 %r5, %r1, 2;
  add.s32 %r6, %r2, %r5; add.s32 %r7, %r3, %r5; mul.wide.u32 %rd10, %r1, 8; add.s64 %rd11, %rd1, %rd10;
  st.shared.b32 [%r6], 7; st.shared.b32 [%r7], 7;
  setp.ne.u32 %p1, %r1, 0; @%p1 bra READY;
  mbarrier.init.shared.b64 [%r4], {arrivals}; mbarrier.init.shared.b64 [%r4+8], {arrivals};
READY: bar.sync 0;
  cp.async.ca.shared.global [%r6], [%rd11], 4;
  {between}
  cp.async.ca.shared.global [%r7], [%rd11+4], 4;
  {code}
  xor.b32 %r8, %r5, 4; add.s32 %r9, %r2, %r8; ld.shared.b32 %r10, [%r9];
  add.s32 %r9, %r3, %r8; ld.shared.b32 %r11, [%r9]; mad.lo.s32 %r10, %r11, 1000, %r10;
  add.s64 %rd5, %rd2, %rd0; st.global.b32 [%rd5], %r10;"
    );
    Case::new(module(2, declarations, &body), &[(0..64).collect(), vec![0; 32]])
}

/// Code that waits for the first phase of an mbarrier.
fn wait(barrier: usize) -> String {
    format!(
        "SPIN{barrier}: mbarrier.test_wait.parity.shared.b64 %p2, [%r4+{}], 0; @!%p2 bra SPIN{barrier};\n",
        8 * barrier
    )
}

/// What is read where the copies to `first` and `second` are complete, or not.
fn words(first: bool, second: bool) -> Vec<u32> {
    let one = |complete: bool, value: u32| if complete { value } else { 7 };
    (0..32).map(|i| one(first, 2 * (i ^ 1)) + 1000 * one(second, 2 * (i ^ 1) + 1)).collect()
}

#[test]
fn a_wait_for_the_mbarrier_ends_when_the_copies_are_complete() {
    let arrive = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r4];";
    let both = wait(0);
    assert_eq!(copied(32, "", &format!("{arrive} {both}")).run(), words(true, true));
    // No later copy is waited for, and nothing is without a wait.
    assert_eq!(copied(32, arrive, &both).run(), words(true, false));
    assert_eq!(copied(32, arrive, "").run(), words(false, false));
    // By a generic address, and two phases of two mbarriers.
    let generic = "cvt.u64.u32 %rd12, %r4; cvta.shared.u64 %rd12, %rd12;
  cp.async.mbarrier.arrive.noinc.b64 [%rd12];";
    let second = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r4+8];";
    let code = format!("{second} {}", wait(0));
    assert_eq!(copied(32, generic, &code).run(), words(true, false));
    let code = format!("{second} {} {}", wait(1), wait(0));
    assert_eq!(copied(32, generic, &code).run(), words(true, true));
}

#[test]
fn an_arrival_that_is_not_expected_is_added_to_the_phase() {
    // Each thread's own arrival is the one that completes the phase.
    let arrive = "cp.async.mbarrier.arrive.shared.b64 [%r4];";
    let code = format!("{arrive} mbarrier.arrive.shared.b64 %rd13, [%r4]; {}", wait(0));
    assert_eq!(copied(32, "", &code).run(), words(true, true));
    let code = format!(
        "{arrive} mbarrier.arrive.shared.b64 %rd13, [%r4];
SPIN: mbarrier.test_wait.shared.b64 %p2, [%r4], %rd13; @!%p2 bra SPIN;"
    );
    assert_eq!(copied(32, arrive, &code).run(), words(true, true));
    // The phase lacks the threads' own arrivals.
    let fault = copied(32, "", &format!("{arrive} {}", wait(0))).fault().to_string();
    assert!(fault.contains("64 of 32 arrivals in phase 0"), "{fault}");
}

#[test]
fn a_phase_takes_no_more_arrivals_than_it_lacks() {
    let arrive = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r4];";
    let fault = copied(31, arrive, "").fault().to_string();
    assert!(fault.contains("more arrivals at the mbarrier"), "{fault}");
    assert!(fault.contains("phase 0 of 31"), "{fault}");
}

#[test]
fn a_wait_that_began_before_the_copies() {
    // Warp 0 waits before warp 1 copies.
    let declarations = ".shared .align 16 .b8 tile[128];\n.shared .align 8 .b64 full;";
    let body = format!(
        "
  mov.b32 %r2, tile; mov.b32 %r4, full; and.b32 %r3, %r1, 31; shl.b32 %r5, %r3, 2;
  add.s32 %r6, %r2, %r5; mul.wide.u32 %rd10, %r3, 4; add.s64 %rd11, %rd1, %rd10;
  setp.ne.u32 %p1, %r1, 0; @%p1 bra READY; mbarrier.init.shared.b64 [%r4], 33;
READY: bar.sync 0; setp.lt.u32 %p3, %r1, 32; @%p3 bra CONSUME;
  cp.async.ca.shared.global [%r6], [%rd11], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [%r4];
  setp.eq.u32 %p4, %r1, 40; @%p4 mbarrier.arrive.shared.b64 %rd13, [%r4]; bra END;
CONSUME: {} ld.shared.b32 %r10, [%r6]; add.s64 %rd5, %rd2, %rd10; st.global.b32 [%rd5], %r10;
END:",
        wait(0)
    );
    let case = Case::new(module(2, declarations, &body), &[(5..37).collect(), vec![0; 32]]);
    assert_eq!(case.threads(64).run(), (5..37).collect::<Vec<u32>>());
}

#[test]
fn commit_groups_are_those_of_commits() {
    // The arrival between them closes no group that `wait_group` counts.
    let arrive = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r4];";
    let commit = "cp.async.commit_group;";
    let group = |keep: u32| format!("{commit} cp.async.wait_group {keep};");
    assert_eq!(copied(32, arrive, &group(1)).run(), words(false, false));
    assert_eq!(copied(32, arrive, &group(0)).run(), words(true, true));
    assert_eq!(copied(32, &format!("{commit} {arrive}"), &group(1)).run(), words(true, false));
    assert_eq!(copied(32, arrive, "cp.async.wait_group 0;").run(), words(false, false));
    let late = format!("{commit} {arrive} cp.async.wait_group 0;");
    assert_eq!(copied(32, commit, &late).run(), words(true, true));
    // More of them than are remembered.
    let many = format!("{} {commit}", arrive_many(70));
    assert_eq!(copied(70 * 32, &many, "cp.async.wait_group 0;").run(), words(true, false));
    assert_eq!(copied(70 * 32, &many, &group(1)).run(), words(true, false));
}

fn arrive_many(times: usize) -> String {
    "cp.async.mbarrier.arrive.noinc.shared.b64 [%r4];".repeat(times)
}
