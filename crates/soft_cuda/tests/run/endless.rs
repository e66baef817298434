//! Kernels that never end: the instruction budget ends them, and so does another
//! block's fault.

use super::{Case, kernel, line_of, module};
use soft_cuda::{Config, Device, FaultKind, LaunchConfig, LaunchError};
use std::num::NonZero;

const SHARED: &str = ".shared .align 8 .b64 bar;\n.shared .align 4 .b32 word;";

/// The bodies of loops that never end, each with one way to let others run.
const LOOPS: [(&str, &str); 13] = [
    ("bar.sync", "LOOP: bar.sync 0;\n  bra.uni LOOP;"),
    ("bar.sync of one warp", "LOOP: bar.sync 3, 32;\n  bra.uni LOOP;"),
    ("barrier.sync", "LOOP: barrier.sync 0;\n  bra.uni LOOP;"),
    ("bar.arrive", "LOOP: bar.arrive 1, 64;\n  bra.uni LOOP;"),
    ("bar.red", "  setp.eq.u32 %p1, %r1, 0;\nLOOP: bar.red.or.pred %p2, 0, %p1;\n  @%p2 bra LOOP;"),
    ("bar.warp.sync", "LOOP: bar.warp.sync -1;\n  bra.uni LOOP;"),
    (
        "mbarrier, complete",
        "  mov.b32 %r9, bar; mbarrier.init.shared.b64 [%r9], 1;
LOOP: mbarrier.arrive.shared.b64 %rd9, [%r9];
WAIT: mbarrier.try_wait.shared.b64 %p1, [%r9], %rd9;
  @!%p1 bra WAIT;
  bra.uni LOOP;",
    ),
    (
        "mbarrier, tested",
        "  mov.b32 %r9, bar; mbarrier.init.shared.b64 [%r9], 1000000;
LOOP: mbarrier.arrive.shared.b64 %rd9, [%r9];
  mbarrier.test_wait.shared.b64 %p1, [%r9], %rd9;
  bra.uni LOOP;",
    ),
    (
        "bar.warp.sync of lanes that come apart",
        "LOOP: setp.lt.u32 %p1, %r1, 16;
  @%p1 bra LOW;
  bar.warp.sync -1;
  bra.uni NEXT;
LOW: bar.warp.sync -1;
NEXT: @%p7 bra OUT;
  bra.uni LOOP;
OUT:",
    ),
    (
        "lanes that diverge and meet",
        "  setp.lt.u32 %p1, %r1, 16;
LOOP: @%p7 bra OUT;
  @%p1 bra LOW;
  add.u32 %r3, %r3, 1;
  bra.uni LOOP;
LOW: add.u32 %r3, %r3, 2;
  bra.uni LOOP;
OUT:",
    ),
    (
        "bar.warp.sync in both arms, and no way out",
        "  setp.lt.u32 %p1, %r1, 16;
LOOP: @%p1 bra LOW;
  bar.warp.sync -1;
  bra.uni LOOP;
LOW: bar.warp.sync -1;
  bra.uni LOOP;",
    ),
    (
        "bar.warp.sync in both arms, one of which may exit",
        "  setp.lt.u32 %p1, %r1, 16;
LOOP: @%p1 bra LOW;
  bar.warp.sync -1;
  bra.uni LOOP;
LOW: bar.warp.sync -1;
  @%p7 exit;
  bra.uni LOOP;",
    ),
    ("nanosleep", "LOOP: nanosleep.u32 100;\n  bra.uni LOOP;"),
];

#[test]
fn the_budget_ends_every_loop() {
    for (name, body) in LOOPS {
        let ptx = module(1, SHARED, body).replace("sm_80", "sm_90");
        let fault = Case::new(ptx, &[vec![0]]).budget(100_000).fault();
        let budget = 100_000;
        assert_eq!(fault.kind, FaultKind::BudgetExceeded { budget }, "{name}: {fault}");
    }
    // With several warps, which wait for each other.
    let body = "LOOP: bar.sync 0;\n  bra.uni LOOP;";
    let fault = Case::new(kernel(1, body), &[vec![0]]).threads(256).budget(100_000).fault();
    assert!(matches!(fault.kind, FaultKind::BudgetExceeded { .. }), "{fault}");
}

/// A launch of two blocks on two host threads, without a budget: the block `looping` never
/// ends, and the other one stores to null once both run.
fn fault_beside(body: &str, looping: u32) {
    let meet = "  atom.global.add.u32 %r2, [%rd1], 1;
MEET: ld.volatile.global.u32 %r2, [%rd1]; setp.lt.u32 %p9, %r2, 2; @%p9 bra MEET;";
    let body = format!(
        "  setp.ne.u32 %p9, %r1, 0; @%p9 bra BEGUN;
{meet}
BEGUN: bar.sync 0;
  mov.u32 %r2, %ctaid.x; setp.eq.u32 %p9, %r2, {looping}; @%p9 bra ENDLESS;
  mov.b64 %rd9, 0; st.global.b32 [%rd9], 1;
ENDLESS:
{body}"
    );
    let ptx = module(1, SHARED, &body).replace("sm_80", "sm_90");
    let host_threads = NonZero::new(2);
    let device = Device::new(Config { host_threads, ..Config::default() });
    let module = device.load(&ptx).unwrap();
    let address = device.alloc(4).unwrap();
    let config = LaunchConfig { grid: [2, 1, 1], block: [32, 1, 1], dynamic_shared: 0 };
    let error =
        device.launch(&module.kernel("k").unwrap(), config, &address.to_ne_bytes()).unwrap_err();
    let LaunchError::Fault(fault) = error else { panic!("{error}") };
    assert_eq!(fault.block, [1 - looping, 0, 0], "{fault}");
    assert_eq!(fault.line, line_of(&ptx, "st.global.b32 [%rd9]"), "{fault}");
}

#[test]
fn a_fault_ends_the_loop_of_a_later_block() {
    for (_, body) in LOOPS {
        fault_beside(body, 1);
    }
}

#[test]
fn a_fault_ends_the_loop_of_an_earlier_block() {
    fault_beside("LOOP: bra.uni LOOP;", 0);
    fault_beside(LOOPS[0].1, 0);
    fault_beside(LOOPS[6].1, 0);
}

#[test]
fn the_budget_hides_no_fault_of_another_block() {
    // Block 0 runs out of the budget long after block 1 has failed.
    let body = "  atom.global.add.u32 %r2, [%rd1], 1;
MEET: ld.volatile.global.u32 %r2, [%rd1]; setp.lt.u32 %p9, %r2, 2; @%p9 bra MEET;
  mov.u32 %r2, %ctaid.x; setp.eq.u32 %p9, %r2, 0; @%p9 bra LOOP;
  mov.b64 %rd9, 0; st.global.b32 [%rd9], 1;
LOOP: bar.sync 0;\n  bra.uni LOOP;";
    let host_threads = NonZero::new(2);
    let instruction_budget = Some(4_000_000);
    let device = Device::new(Config { host_threads, instruction_budget, ..Config::default() });
    let module = device.load(&kernel(1, body)).unwrap();
    let address = device.alloc(4).unwrap();
    let config = LaunchConfig { grid: [2, 1, 1], block: [1, 1, 1], dynamic_shared: 0 };
    let error =
        device.launch(&module.kernel("k").unwrap(), config, &address.to_ne_bytes()).unwrap_err();
    let LaunchError::Fault(fault) = error else { panic!("{error}") };
    assert_eq!(fault.block, [1, 0, 0], "{fault}");
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { .. }), "{fault}");
}

#[test]
fn the_budget_ends_loops_of_any_length() {
    let adds = "  add.u32 %r3, %r3, 1;\n".repeat(20_000);
    let count = "  add.u32 %r4, %r4, 1; st.global.b32 [%rd1], %r4;";
    for (name, body) in [
        ("together", format!("LOOP:\n{count}\n{adds}  bra.uni LOOP;")),
        (
            "half of them at a time",
            format!(
                "  setp.lt.u32 %p1, %r1, 16;\nLOOP: @%p7 bra OUT;\n{count}
  @%p1 bra LOW;\n{adds}  bra.uni LOOP;\nLOW: bra.uni LOOP;\nOUT:"
            ),
        ),
    ] {
        let instruction_budget = Some(200_000);
        let device = Device::new(Config { instruction_budget, ..Config::default() });
        let module = device.load(&kernel(1, &body)).unwrap();
        let address = device.alloc(4).unwrap();
        let config = LaunchConfig { grid: [1; 3], block: [32, 1, 1], dynamic_shared: 0 };
        let params = address.to_ne_bytes();
        let error = device.launch(&module.kernel("k").unwrap(), config, &params).unwrap_err();
        let LaunchError::Fault(fault) = error else { panic!("{error}") };
        assert!(matches!(fault.kind, FaultKind::BudgetExceeded { budget: 200_000 }), "{fault}");
        let mut rounds = [0; 4];
        device.read(address, &mut rounds).unwrap();
        // 10 rounds are the budget; it is looked at in every one.
        assert!((9..=12).contains(&u32::from_ne_bytes(rounds)), "{name}: {rounds:?}");
    }
}
