//! Accesses that are wrong, and what is said about them.

use super::{Case, kernel, line_of, module};
use soft_cuda::{
    Access, AddressSpace, Config, Device, FaultKind, InvalidLaunch, LaunchConfig, LaunchError,
    MemoryCall, Place,
};

#[test]
fn out_of_bounds_says_everything() {
    let body = "  add.s64 %rd5, %rd1, %rd0;\n  ld.global.b32 %r2, [%rd5+64];\n  st.global.b32 [%rd5], %r2;";
    let ptx = kernel(1, body);
    let fault = Case::new(ptx.clone(), &[vec![0; 40]]).fault();
    let base = 0x50_0000_0000_0000u64;
    assert_eq!(fault.line, line_of(&ptx, "[%rd5+64]"));
    assert_eq!(fault.thread, [24, 0, 0]);
    assert_eq!(
        fault.kind,
        FaultKind::OutOfBounds {
            address: base + 160,
            bytes: 4,
            access: Access::Load,
            space: AddressSpace::Global,
            place: Place::After { base, size: 160, past_end: 0 },
        }
    );
    assert_eq!(
        fault.to_string(),
        format!(
            "kernel `k`, PTX line {} (`ld.global.b32 %r2, [%rd5+64];`), block (0, 0, 0), thread (24, 0, 0): \
             4-byte global load out of bounds at 0x500000000000a0: 0 bytes past the end of the 160-byte allocation at 0x50000000000000",
            fault.line
        )
    );
}

#[test]
fn a_long_line_is_cut() {
    let quoted = |line: &str| {
        let fault = Case::new(kernel(1, line), &[vec![0]]).fault();
        let (message, start) = (fault.to_string(), format!("PTX line {} (`", fault.line));
        let (_, quote) = message.split_once(&start).unwrap();
        quote.split_once("`), block").unwrap().0.to_owned()
    };
    // Short enough to be quoted whole, and one character longer.
    let padded = |n| format!("trap; //{}", "é".repeat(n - "trap; //".len()));
    assert_eq!(quoted(&padded(120)), padded(120));
    assert_eq!(quoted(&padded(121)), padded(119) + "…");
    assert_eq!(quoted(&padded(36_000)), padded(119) + "…");
}

#[test]
fn the_first_block_is_reported() {
    let body = "  mov.u32 %r2, %ctaid.x;\n  mul.wide.u32 %rd5, %r2, 4;\n  add.s64 %rd5, %rd1, %rd5;\n  st.global.b32 [%rd5], %r2;";
    for _ in 0..10 {
        let fault = Case::new(kernel(1, body), &[vec![0; 50]]).blocks(1000).fault();
        assert_eq!((fault.block, fault.thread), ([50, 0, 0], [0, 0, 0]));
    }
}

#[test]
fn other_wrong_addresses() {
    let place = |kind| match kind {
        FaultKind::OutOfBounds { place, .. } => place,
        other => panic!("{other:?}"),
    };
    let run = |body: &str| Case::new(kernel(1, body), &[vec![0; 40]]).fault_kind();
    let base = 0x50_0000_0000_0000u64;
    let before = run("  ld.global.b32 %r2, [%rd1+-8];");
    assert_eq!(place(before), Place::Before { base, size: 160, distance: 8 });
    let over_the_end = run("  ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd1+160];");
    assert_eq!(place(over_the_end), Place::After { base, size: 160, past_end: 0 });
    assert_eq!(place(run("  mov.b64 %rd5, 0; ld.b32 %r2, [%rd5];")), Place::Nowhere);
    assert_eq!(place(run("  mov.b64 %rd5, 140000000000000; st.b32 [%rd5], 1;")), Place::Nowhere);
    let kind = run("  st.global.b32 [%rd1+2], 1;");
    assert_eq!(
        kind.to_string(),
        "4-byte global store at 0x50000000000002, which is not a multiple of 4"
    );
    let kind = run("  ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd1+8];");
    assert!(matches!(kind, FaultKind::Misaligned { bytes: 16, .. }), "{kind:?}");
    let kind = run("  atom.global.add.u32 %r2, [%rd1+160], 1;");
    assert!(matches!(kind, FaultKind::OutOfBounds { access: Access::Atomic, .. }), "{kind:?}");
}

#[test]
fn shared_memory_has_an_end_and_a_beginning() {
    let shared = ".shared .align 16 .b8 tile[64];";
    let run = |body: &str| Case::new(module(1, shared, body), &[vec![0; 40]]).fault();
    let fault = run("  mov.b32 %r2, tile;\n  ld.shared.b32 %r3, [%r2+64];");
    assert_eq!(
        fault.kind.to_string(),
        "4-byte shared load out of bounds at 0x440: 0 bytes past the end of the 64-byte allocation at 0x400"
    );
    let fault = run("  mov.b32 %r2, 0;\n  st.shared.b32 [%r2], 1;");
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { space: AddressSpace::Shared, .. }));
    let fault = run("  mov.b32 %r2, tile;\n  st.shared.v4.b32 [%r2+8], {%r1, %r1, %r1, %r1};");
    assert!(matches!(fault.kind, FaultKind::Misaligned { bytes: 16, .. }));
    let fault =
        run("  mov.b64 %rd5, tile;\n  cvta.shared.u64 %rd6, %rd5;\n  ld.b32 %r3, [%rd6+64];");
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { space: AddressSpace::Generic, .. }));
    // A shared address is not a global one.
    let fault =
        run("  mov.b64 %rd5, tile;\n  cvta.shared.u64 %rd6, %rd5;\n  ld.global.b32 %r3, [%rd6];");
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { space: AddressSpace::Global, .. }));
}

#[test]
fn use_after_free_is_told_from_out_of_bounds() {
    let device = Device::new(Config::default());
    let module = device.load(&kernel(1, "  ld.global.b32 %r2, [%rd1+8];")).unwrap();
    let (a, _b) = (device.alloc(64).unwrap(), device.alloc(64).unwrap());
    device.free(a).unwrap();
    let config = LaunchConfig { grid: [1; 3], block: [1; 3], dynamic_shared: 0 };
    let error = device.launch(&module.kernel("k").unwrap(), config, &a.to_ne_bytes()).unwrap_err();
    let LaunchError::Fault(fault) = error else { panic!("{error}") };
    assert_eq!(
        fault.kind,
        FaultKind::UseAfterFree {
            address: a + 8,
            bytes: 4,
            access: Access::Load,
            base: a,
            size: 64,
            allocated: MemoryCall { name: "alloc", ordinal: 1, launches: 0 },
            freed: MemoryCall { name: "free", ordinal: 3, launches: 0 },
        }
    );
    assert!(fault.to_string().contains("after free"), "{fault}");
}

#[test]
fn parameters_are_read_only() {
    let body = "  mov.b64 %rd5, p1;\n  cvta.param.u64 %rd6, %rd5;\n  ld.b64 %rd7, [%rd6];\n  st.b64 [%rd6], %rd7;";
    let kind = Case::new(kernel(1, body), &[vec![0]]).fault_kind();
    assert!(matches!(kind, FaultKind::ReadOnly { .. }), "{kind:?}");
}

#[test]
fn launches_that_do_not_fit() {
    let device = Device::new(Config::default());
    let ptx = ".version 8.7\n.target sm_80\n.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.entry req() .reqntid 16, 16 { ret; }
.entry max() .maxntid 64 { ret; }
.entry shared() { .reg .b32 %r<2>; mov.b32 %r1, dynamic; ret; }
.entry params(.param .u32 a, .param .u64 b) { ret; }";
    let module = device.load(ptx).unwrap();
    let launch = |name: &str, grid, block, dynamic_shared, params: &[u8]| {
        let config = LaunchConfig { grid, block, dynamic_shared };
        match device.launch(&module.kernel(name).unwrap(), config, params) {
            Err(LaunchError::Invalid { reason, .. }) => Some(reason),
            Err(other) => panic!("{other}"),
            Ok(_) => None,
        }
    };
    assert_eq!(launch("req", [1; 3], [16, 16, 1], 0, &[]), None);
    assert_eq!(
        launch("req", [1; 3], [256, 1, 1], 0, &[]),
        Some(InvalidLaunch::RequiredBlock { block: [256, 1, 1], required: [16, 16, 1] })
    );
    assert_eq!(
        launch("max", [1; 3], [65, 1, 1], 0, &[]),
        Some(InvalidLaunch::TooManyThreads { block: [65, 1, 1], threads: 65, limit: 64 })
    );
    assert!(matches!(
        launch("params", [1; 3], [33, 32, 1], 0, &[0; 16]),
        Some(InvalidLaunch::Block { .. })
    ));
    assert!(matches!(
        launch("req", [1, 0, 1], [16, 16, 1], 0, &[]),
        Some(InvalidLaunch::Grid { .. })
    ));
    assert!(matches!(
        launch("req", [1, 65536, 1], [16, 16, 1], 0, &[]),
        Some(InvalidLaunch::Grid { .. })
    ));
    assert_eq!(launch("shared", [1; 3], [1; 3], 232_448, &[]), None);
    assert_eq!(
        launch("shared", [1; 3], [1; 3], 232_449, &[]),
        Some(InvalidLaunch::SharedMemory {
            bytes: 232_449,
            fixed: 0,
            dynamic: 232_449,
            limit: 232_448
        })
    );
    assert_eq!(
        launch("params", [1; 3], [1; 3], 0, &[0; 12]),
        Some(InvalidLaunch::Parameters { expected: 16, got: 12 })
    );
    assert_eq!(launch("params", [1; 3], [1; 3], 0, &[0; 16]), None);
}

/// Loads at constant distances are one operation.
#[test]
fn a_misaligned_lane_of_several_loads_is_named() {
    for (vector, all, align, step) in [
        ("v2", ["{%r10, %r11}", "{%r12, %r13}"], 8, 4),
        ("v4", ["{%r10, %r11, %r12, %r13}", "{%r14, %r15, %r16, %r17}"], 16, 8),
    ] {
        let [first, second] = all;
        let body = format!(
            "  mov.b32 %r2, tile; mad.lo.u32 %r3, %r1, {align}, %r2;
  setp.eq.u32 %p1, %r1, 5; @%p1 add.u32 %r3, %r3, {step};
  ld.shared.{vector}.b32 {first}, [%r3];
  ld.shared.{vector}.b32 {second}, [%r3+512];
  add.u32 %r20, %r10, %r12; st.global.b32 [%rd1], %r20;"
        );
        let ptx = module(1, ".shared .align 16 .b8 tile[2048];", &body);
        let line = line_of(&ptx, first);
        let fault = Case::new(ptx, &[vec![0; 40]]).fault();
        assert!(
            matches!(fault.kind, FaultKind::Misaligned { bytes, .. } if bytes == align),
            "{fault}"
        );
        assert_eq!((fault.line, fault.thread), (line, [5, 0, 0]));
    }
}

#[test]
fn constant_memory_is_named() {
    let table = ".const .align 8 .b32 table[4] = {1, 2, 3, 4};";
    let run = |body: &str| Case::new(module(1, table, body), &[vec![0; 4]]).fault_kind();
    let kind = run("  mov.b64 %rd5, table;\n  ld.const.b32 %r2, [%rd5+16];");
    assert!(kind.to_string().starts_with("4-byte constant load out of bounds at 0x"), "{kind}");
    for body in ["  ld.const.b32 %r2, [table+16];", "  ld.const.v2.b32 {%r2, %r3}, [table+16];"] {
        let kind = run(body);
        let FaultKind::OutOfBounds { space, .. } = kind else { panic!("{kind}") };
        assert_eq!(space, AddressSpace::Const, "{body}");
    }
    let kind = run("  mov.b64 %rd5, table;\n  ld.const.b32 %r2, [%rd5+2];");
    assert!(matches!(kind, FaultKind::Misaligned { space: AddressSpace::Const, .. }), "{kind}");
    let kind = run("  mov.b64 %rd5, table;\n  ld.global.b32 %r2, [%rd5+16];");
    assert!(matches!(kind, FaultKind::OutOfBounds { space: AddressSpace::Global, .. }), "{kind}");
}
