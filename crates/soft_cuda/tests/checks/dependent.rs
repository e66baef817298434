//! Programmatic dependent launch: kernels that begin before the one in front of them has ended.

use super::{Twin, WORDS, check, device, early};
use soft_cuda::{Access, Checks, Device, FaultKind, Isa, LaunchConfig, LaunchError, Schedule};

const RACE: &str = "DataRace";
const ONLY: Checks = Checks { races: true, ..Checks::NONE };

/// Kernels of which two launches follow each other.
pub const TWINS: [Twin; 4] = [
    Twin {
        name: "a kernel that stores before it waits for the one in front",
        found: RACE,
        threads: 64,
        blocks: 2,
        body: "  griddepcontrol.launch_dependents;
FIX| griddepcontrol.wait;
  st.global.b32 [%rd4], %r1;
BUG| griddepcontrol.wait;",
    },
    Twin {
        name: "a kernel that loads what the one in front writes, before it waits for that",
        found: RACE,
        threads: 64,
        blocks: 2,
        body: "  griddepcontrol.launch_dependents;
FIX| griddepcontrol.wait;
  ld.global.b32 %r10, [%rd3];
BUG| griddepcontrol.wait;
  add.u32 %r10, %r10, 1; st.global.b32 [%rd3], %r10;",
    },
    Twin {
        name: "one thread waits for the kernel in front, and the others go ahead",
        found: RACE,
        threads: 64,
        blocks: 2,
        body: "  @%p1 griddepcontrol.wait;
FIX| bar.sync 0;
  st.global.b32 [%rd4], %r1;",
    },
    Twin {
        name: "a bulk copy of what the kernel in front writes, before a wait for that",
        found: RACE,
        threads: 32,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1;
  fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;
FIX| griddepcontrol.wait;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 128;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 128, [%r5];
BUG| griddepcontrol.wait;
INIT: bar.sync 0;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
  ld.shared.b32 %r10, [%r4]; add.u32 %r10, %r10, 1; st.global.b32 [%rd3], %r10;",
    },
];

#[test]
fn twins() {
    check(&TWINS, Checks { sync: true, ..ONLY });
}

const PTX: &str = ".version 8.6
.target sm_90a
.address_size 64
.visible .entry reads(.param .u64 p) {
  .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.param.b64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2;
  ld.global.b32 %r2, [%rd1]; st.global.b32 [%rd1+1024], %r2;
  ret;
}
.visible .entry writes(.param .u64 p) {
  .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.param.b64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2;
  st.global.b32 [%rd1], %r1;
  ret;
}
.visible .entry adds(.param .u64 p) {
  .reg .b64 %rd<4>;
  ld.param.b64 %rd1, [p]; red.global.add.u32 [%rd1+2048], 1;
  ret;
}
";

/// Launches `first`, does `between`, and launches `second`, which may begin early.
fn after(first: &str, between: impl FnOnce(&Device, u64), second: &str) -> Option<FaultKind> {
    let device = device(ONLY, Schedule::InOrder, Isa::Auto, 0);
    let module = device.load(PTX).unwrap();
    let address = device.alloc(WORDS * 4).unwrap();
    let config = LaunchConfig { grid: [1; 3], block: [32, 1, 1], dynamic_shared: 0 };
    let params = address.to_ne_bytes();
    device.launch(&module.kernel(first).unwrap(), config, &params).unwrap();
    between(&device, address);
    let kernel = module.kernel(second).unwrap();
    match device.launch_with(&kernel, config, [1; 3], &params, early()) {
        Ok(_) => None,
        Err(LaunchError::Fault(fault)) => {
            assert_eq!(fault.kernel, second);
            Some(fault.kind)
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_write_of_what_the_kernel_in_front_reads_names_both_kernels() {
    let kind = after("reads", |_, _| {}, "writes").unwrap();
    let text = kind.to_string();
    assert!(
        text.contains("this store and the load of kernel `reads`, launched before, by"),
        "{text}"
    );
    assert!(text.ends_with("let a `griddepcontrol.wait` come before this access"), "{text}");
    let FaultKind::DataRace { access, earlier, .. } = kind else { panic!("{text}") };
    assert_eq!((access, earlier.access), (Access::Store, Access::Load));
    assert_eq!(earlier.kernel.as_deref(), Some("reads"));
    assert!(earlier.instruction.contains("ld.global.b32 %r2"), "{}", earlier.instruction);
}

#[test]
fn reads_behind_reads_and_atomics_behind_atomics_need_no_wait() {
    assert_eq!(after("adds", |_, _| {}, "adds"), None);
    assert_eq!(after("adds", |_, _| {}, "writes"), None);
    assert!(after("writes", |_, _| {}, "reads").is_some());
}

#[test]
fn what_comes_between_two_launches_orders_them() {
    assert_eq!(after("reads", |device, _| device.synchronize(), "writes"), None);
    assert_eq!(after("reads", |device, at| device.fill_u8(at, 0, 4).unwrap(), "writes"), None);
    let read = |device: &Device, at| device.read(at, &mut [0; 4]).unwrap();
    assert_eq!(after("reads", read, "writes"), None);
}
