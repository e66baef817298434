//! What is refused at load, and the line it is refused at.

use super::{kernel, line_of, module};
use soft_cuda::{Config, Device, KernelError, LaunchConfig, LoadError};

/// Why the kernel `k` is refused. Its module loads.
fn refuse(ptx: &str) -> LoadError {
    let module = Device::new(Config::default()).load(ptx).unwrap_or_else(|e| panic!("{e}:\n{ptx}"));
    match module.kernel("k") {
        Err(KernelError::Refused { error, .. }) => error,
        other => panic!("{other:?}:\n{ptx}"),
    }
}

#[test]
fn unknown_instructions_and_modifiers() {
    for (inst, part) in [
        ("frobnicate.b32 %r2, %r3;", "this instruction is unknown"),
        ("add.frob.s32 %r2, %r3, %r4;", "`.frob` is unknown"),
        ("ld.global.frob.b32 %r2, [%rd1];", "`.frob` is unknown"),
        ("sqrt.approx.rz.f32 %r2, %r3;", "`.rz` is unknown"),
        ("cvt.rz.s32.f32 %r2, %r3;", "`.rzi`"),
        ("cvt.rni.f32.f64 %r2, %rd3;", "`.rzi`"),
        ("cvt.rn.s32.s64 %r2, %rd3;", "`.rzi`"),
        ("cvt.rm.tf32.f32 %r2, %r3;", "`.rna`"),
        ("mad24.lo.sat.s32 %r2, %r3, %r4, %r5;", "`.sat` is unknown"),
        ("mad24.hi.cc.u32 %r2, %r3, %r4, %r5;", "`.cc` is unknown"),
        ("madc.wide.u32 %rd2, %r3, %r4, %rd5;", "`.lo` or `.hi`"),
        ("mul24.lo.u64 %rd2, %rd3, %rd4;", "not available for this type"),
        ("bmsk.b32 %r2, %r3, %r4;", "`.wrap` or `.clamp`"),
        ("cvt.pack.sat.u8.s32 %r2, %r3, %r4;", "third operand"),
        ("dp2a.u32.u32 %r2, %r3, %r4, %r5;", "`.lo` or `.hi`"),
        ("vshr.u32.s32.u32.wrap %r2, %r3, %r4;", "twice, and `.u32`"),
        ("vshr.u32.u32.u32 %r2, %r3, %r4;", "`.wrap` or `.clamp`"),
        ("vshr.u32.u32.u32.wrap %r2.h0, %r3, %r4, %r5;", "a whole register"),
        ("vadd.u32.u32.u32 %r2, %r3, %r4;", "this instruction is unknown"),
        ("mul.s32 %r2, %r3, %r4;", "`.lo`, `.hi` or `.wide`"),
        ("wgmma.fence.sync.aligned;", "`.target sm_90a` alone"),
        ("brx %r2, TABLE;", "`.idx`"),
    ] {
        let ptx = kernel(1, &format!("  mov.b32 %r3, 0;\n  {inst}"));
        let error = refuse(&ptx);
        let LoadError::Unsupported { line, opcode, .. } = &error else { panic!("{inst}: {error}") };
        assert_eq!(*line, line_of(&ptx, inst), "{inst}");
        assert!(inst.starts_with(opcode.as_str()), "{inst}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn what_the_device_leaves_out_is_refused_by_name() {
    for (inst, part) in [
        (
            "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r2}, %rd2, %rd3, %p1, 1, 1;",
            "m64nNk16",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n260k8.f32.tf32.tf32 {%r2}, %rd2, %rd3, %p1, 1, 1;",
            "256",
        ),
        ("wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.tf32.tf32 {%r2}, %rd2, %rd3, %p1;", "m64n"),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r2}, {%r3}, {%r4}, {%r5};", "m16n8k16"),
        ("mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16 {%r2}, {%r3}, {%r4}, {%r5};", ".f32"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r2}, [%r3];", ""),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r2, %r3}, [%r4];", "m8n8"),
        ("movmatrix.sync.aligned.m8n8.b16 %r2, %r3;", "trans"),
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r2], %r3, [%r4];", "cluster"),
        (
            "red.async.shared::cluster.mbarrier::complete_tx::bytes.inc.u32 [%r2], %r3, [%r4];",
            "cluster",
        ),
        (
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.and.u32 [%rd2], [%r3], 16;",
            "its operation is not available",
        ),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%rd2], [%r3], 16;", ".noftz"),
        (
            "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.min.u64 [%r2], [%r3], 16, [%r4];",
            "its operation is not available",
        ),
        (
            "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.im2col_no_offs.bulk_group [%rd2, {%r3, %r4, %r5}], [%r6];",
            "the modifier `.im2col_no_offs` is unknown",
        ),
        (
            "cp.reduce.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%rd2, {%r3}], [%r6];",
            "needs the operation",
        ),
        (
            "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.u32.bulk_group [%rd2, {%r3}], [%r6];",
            "the modifier `.u32` is unknown",
        ),
        (
            "cp.reduce.async.bulk.tensor.1d.shared::cluster.shared::cta.add.mbarrier::complete_tx::bytes [%r2], [%rd2, {%r3}], [%r4];",
            "tensors are",
        ),
        ("cp.async.bulk.prefetch.L2.global [%rd2], 16;", "only copies"),
        (
            "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r2], [%rd2, {%r3, %r4, %r5}], [%r6], {0};",
            ".im2col",
        ),
        ("cp.async.mbarrier.test_wait.shared.b64 [%r2];", "arrive"),
        ("mbarrier.arrive_drop.shared.b64 %rd2, [%r3];", ""),
        ("mbarrier.pending_count.b64 %r2, %rd3;", ""),
        ("tensormap.replace.tile.global_address.global.b1024.b64 [%rd2], %rd3;", ""),
        ("fence.proxy.tensormap::generic.acquire.gpu [%rd2], 128;", ".async"),
        ("multimem.ld_reduce.global.add.f32 %r2, [%rd2];", ""),
        ("tex.2d.v4.f32.s32 {%r2, %r3, %r4, %r5}, [%rd2, {%r6, %r7}];", ""),
        ("suld.b.1d.b32.clamp {%r2}, [%rd2, {%r6}];", ""),
        ("tanh.approx.bf16x2 %r2, %r3;", "this type"),
        ("ex2.approx.f16 %h2, %h3;", "this type"),
    ] {
        let ptx = kernel(1, &format!("  mov.b32 %r3, 0;\n  {inst}")).replace("sm_80", "sm_90a");
        assert!(ptx.contains(".target sm_90a"));
        let error = refuse(&ptx);
        let LoadError::Unsupported { line, opcode, .. } = &error else { panic!("{inst}: {error}") };
        let name = inst.split([' ', ';']).next().unwrap();
        assert_eq!((*line, opcode.as_str()), (line_of(&ptx, inst), name));
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn wrong_operands() {
    for inst in [
        "add.s32 %r2, %r3;",
        "add.s32 %r2, %r3, %rd4;",
        "add.s64 %rd2, %rd3, %r4;",
        "mov.b32 %p1, %r2;",
        "ld.global.b32 %r2, [%r3];",
        "ld.global.v2.b32 %r2, [%rd1];",
        "ld.global.v2.b32 {%r2, %r3, %r4, %r5}, [%rd1];",
        "ld.param.b64 %rd2, [p1+4];",
        "st.param.b32 [p1], %r2;",
        "setp.eq.s32 %r2, %r3, %r4;",
        "add.s32 5, %r3, %r4;",
        "cp.async.cg.shared.global [%r2], [%rd3], 8;",
        "lop3.b32 %r2, %r3, %r4, %r5, 256;",
        "vshr.u32.u32.u32.clamp.add %r2, %r3, %r4;",
        "vshr.u32.u32.u32.clamp %r2, %r3, %r4, %r5;",
        "cvt.pack.sat.u16.s32 %r2, %r3, %r4, %r5;",
        // Positions and lengths of bit fields are integers.
        "bfe.u32 %r2, %r3, 0f3F800000, 4;",
        "bfe.u32 %r2, %r3, 4, 0f3F800000;",
        "bfe.u64 %rd2, %rd3, 0f3F800000, 4;",
        "bfe.u64 %rd2, %rd3, 4, 0f3F800000;",
        // Addresses are integers of 32 or 64 bits, and those of global variables need 64.
        "mov.u16 %h1, shared;",
        "mov.b16 %h1, shared+4;",
        "mov.f32 %r2, shared;",
        "mov.f64 %rd2, shared+4;",
        "mov.u16 %h1, global;",
        "mov.u32 %r2, global;",
        "mov.f32 %r2, global;",
        "mov.f64 %rd2, global;",
        "mov.u16 %h1, local;",
        "mov.f32 %r2, p1;",
    ] {
        let declarations = ".shared .b32 shared[2];\n.global .b32 global;";
        let ptx = module(1, declarations, &format!("  .local .b32 local;\n  {inst}"));
        match refuse(&ptx) {
            LoadError::Operands { line, .. } => assert_eq!(line, line_of(&ptx, inst), "{inst}"),
            other => panic!("{inst}: {other}"),
        }
    }
}

#[test]
fn names() {
    let undeclared = |body: &str, name: &str| {
        let ptx = kernel(1, body);
        match refuse(&ptx) {
            LoadError::Undeclared { name: found, line } => {
                assert_eq!((found.as_str(), line), (name, line_of(&ptx, name)));
            }
            other => panic!("{body}: {other}"),
        }
    };
    undeclared("  bra.uni NOWHERE;", "NOWHERE");
    undeclared("  mov.b32 %r2, %r100;", "%r100");
    undeclared("  ld.global.b32 %r2, [nothing];", "nothing");
    undeclared("  mov.u32 %r2, %frob;", "%frob");
    undeclared("  { .reg .b32 %q; }\n  mov.b32 %q0, 1;", "%q0");
    undeclared("  call nobody;", "nobody");
    undeclared("  brx.idx %r2, TABLE;", "TABLE");
    undeclared("  TABLE: .branchtargets NOWHERE; brx.idx %r2, TABLE;", "NOWHERE");
    undeclared("  call %rd2, (), NONE;", "NONE");
    let scoped = kernel(1, "  { .reg .b32 inner; }\n  mov.b32 inner, 1;");
    assert!(matches!(refuse(&scoped), LoadError::Undeclared { .. }));
    let twice = kernel(1, "L:\nL:");
    assert!(matches!(refuse(&twice), LoadError::Redeclared { .. }));
}

#[test]
fn a_refusal_names_the_line_of_the_source() {
    let ptx = kernel(1, "  .loc 1 12 3\n  frob.u32 %r2;") + "\t.file 1 \"src/a.rs\"\n";
    assert_eq!(refuse(&ptx).place(&ptx).unwrap().to_string(), "src/a.rs:12:3");
    let device = Device::new(Config::default());
    let error = device.load(&ptx).unwrap().kernel("k").unwrap_err().to_string();
    assert!(error.ends_with("(from src/a.rs:12:3)"), "{error}");
    let bare = ptx.replace("  .loc 1 12 3\n", "");
    assert_eq!(refuse(&bare).place(&bare), None);
}

#[test]
fn functions_without_a_body() {
    let external = module(1, ".extern .func panic () .noreturn;", "  call.uni panic, ();");
    assert!(refuse(&external).to_string().contains("`panic` has no body"));
    // Not called, they do no harm.
    let device = Device::new(Config::default());
    let loaded = device.load(&module(1, ".extern .func panic () .noreturn;", "")).unwrap();
    loaded.kernel("k").unwrap();
}

#[test]
fn hostile_text_is_refused_without_a_panic() {
    let ptx = kernel(
        1,
        "  add.s32 %r2, %r3, 0f3F800000; ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd1+16];",
    );
    let device = Device::new(Config::default());
    let load = |text: &str| device.load(text).is_ok_and(|module| module.kernel("k").is_ok());
    assert!(!load(&ptx));
    for end in 0..ptx.len() {
        load(&ptx[..end]);
    }
    for at in 0..ptx.len() {
        for junk in ["{", "}", "[", ";", "-9223372036854775809", "\u{e9}", "%r1", "."] {
            load(&format!("{}{junk}{}", &ptx[..at], &ptx[at + 1..]));
        }
    }
}

#[test]
fn what_a_module_tells() {
    let ptx = module(
        2,
        ".global .align 4 .b8 table[40];\n.shared .align 16 .b8 a[64];\n.shared .b8 unused[99];",
        "  mov.b32 %r2, a;",
    );
    let device = Device::new(Config::default());
    let before = device.memory_info();
    let loaded = device.load(&ptx).unwrap();
    let kernel = loaded.kernel("k").unwrap();
    assert_eq!(kernel.static_shared_bytes(), 64);
    assert_eq!(kernel.params().len(), 2);
    assert_eq!((kernel.params()[1].offset, kernel.params()[1].size), (8, 8));
    assert_eq!(kernel.max_threads(), 1024);
    let (address, size) = loaded.global("table").unwrap();
    assert_eq!((size, device.contains(address)), (40, true));
    let unknown = loaded.kernel("nobody").unwrap_err();
    assert_eq!(unknown.to_string(), "the module has no kernel named nobody");
    drop((loaded, kernel));
    assert_eq!(device.memory_info(), before);
}

#[test]
fn a_kernel_pays_for_the_shared_memory_that_it_uses() {
    let device = Device::new(Config::default());
    let shared = ".shared .b8 s1[64];\n.shared .b8 t[128];\n.func f() { .reg .b32 %r<2>; mov.b32 %r1, s1; ret; }";
    for (body, bytes) in [
        // The kernel's own names hide the module's: registers, one by one and in ranges,
        // variables, parameters and labels, each as long as its scope is open.
        ("  .reg .b32 s1; mov.b32 s1, 1;", 0),
        ("  .reg .b32 s<2>; mov.b32 s1, 1;", 0),
        ("  .reg .b32 s<1>; mov.b32 %r2, s1;", 64),
        ("  .local .b32 s1; st.local.b32 [s1], 1;", 0),
        ("  .shared .b32 s1; st.shared.b32 [s1], 1;", 4),
        ("  bra s1;\ns1:", 0),
        ("  { .reg .b32 s1; mov.b32 s1, 1; }", 0),
        ("  { .reg .b32 s1; }\n  mov.b32 %r2, s1;", 64),
        ("  mov.b32 %r2, s1; { .reg .b32 s1; mov.b32 s1, 1; }", 64),
        // A call names a function, and what that uses counts.
        ("  call f;", 64),
        ("  .reg .b32 f; mov.b32 f, 1;", 0),
        ("  .reg .b32 f; mov.b32 f, 1; call.uni f, ();", 64),
        ("  .reg .b32 s1; mov.b32 s1, 1; call f;", 64),
        ("  mov.b32 %r2, t;", 128),
        ("  st.shared.v2.b32 [s1+8], {%r1, %r1};", 64),
        ("  mov.b32 %r2, s1+4;", 64),
    ] {
        let loaded =
            device.load(&module(0, shared, body)).unwrap_or_else(|e| panic!("{body}: {e}"));
        assert_eq!(loaded.kernel("k").unwrap().static_shared_bytes(), bytes, "{body}");
    }
    let params = ".shared .b8 s1[64];\n.func g(.param .b32 s1) { .reg .b32 %r<2>; ld.param.b32 %r1, [s1]; ret; }
.entry k(.param .b32 s1) { .param .b32 x; .reg .b32 %r<2>; ld.param.b32 %r1, [s1]; call g, (x); ret; }";
    let loaded = device.load(&format!(".version 8.7\n.target sm_80\n.address_size 64\n{params}"));
    assert_eq!(loaded.unwrap().kernel("k").unwrap().static_shared_bytes(), 0);
}

#[test]
fn a_kernel_that_is_refused_takes_no_other_with_it() {
    let ptx = ".version 8.7\n.target sm_80\n.address_size 64
.global .u32 counter;
.func frobs() { frobnicate.b32; ret; }
.func indirect() { call frobs; ret; }
.func odd(.frob .b32 x) { ret; }
.entry good() { .reg .b32 %r<2>; ld.global.u32 %r1, [counter]; ret; }
.entry modifier() { .reg .b32 %r<2>; add.frob.u32 %r1, %r1, 1; ret; }
.entry special() { .reg .b32 %r<2>; mov.u32 %r1, %frob; ret; }
.entry calls() { call indirect; ret; }
.entry calls_odd() { call odd; ret; }
.entry directive() .frobclusters 2 { { ret; } }
.entry in_body() { .frob 3; ret; }
.entry grammar() { add.u32 %r1 %r2, 3; { ret; } }
.entry parameter(.param .frob x) { ret; }
.entry clusters() .explicitcluster { ret; }
.entry last() { ret; }";
    let device = Device::new(Config::default());
    let loaded = device.load(ptx).unwrap();
    let bad = [
        ("modifier", "add.frob", "`.frob` is unknown"),
        ("special", "%frob", "`%frob` is not declared"),
        ("calls", "frobnicate", "no `frobnicate.b32`: this instruction is unknown"),
        ("calls_odd", "odd(", "a parameter is declared with `.param`"),
        ("directive", ".frobclusters", "`.frobclusters`: this is not a kernel directive"),
        ("in_body", ".frob 3", "`.frob`: this is not a directive"),
        ("grammar", "%r1 %r2", "`,` belongs here"),
        ("parameter", ".param .frob", "`.frob`: this is not a PTX type"),
        ("clusters", ".explicitcluster", "clusters need `.target sm_90`"),
    ];
    for name in ["good", "last"] {
        let kernel = loaded.kernel(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        device
            .launch(&kernel, LaunchConfig { grid: [1; 3], block: [1; 3], dynamic_shared: 0 }, &[])
            .unwrap();
    }
    for (name, needle, part) in bad {
        let error = loaded.kernel(name).unwrap_err().to_string();
        let line = format!("PTX line {}: ", line_of(ptx, needle));
        assert!(error.starts_with(&line) && error.contains(part), "{name}: {error}");
    }
    assert_eq!(loaded.names().len(), bad.len() + 2);
    // What is not in a function refuses the module.
    for bad in [".frob x;", ".global .frob x;", ".global .u32 counter;", ".entry good() { ret; }"] {
        let error = device.load(&format!("{ptx}\n{bad}")).unwrap_err();
        assert_eq!(error.line(), line_of(ptx, "last") + 1, "{bad}: {error}");
    }
}

#[test]
fn directives_without_spaces_and_opaque_types() {
    let declarations =
        ".global.align 4 .b8 table[4];\n.global .texref tex = { a = b };\n.global .surfref s;";
    let body =
        "  {.reg.b16 a, b; mov.b16 a, 0;}\n  .shared.align 16 .b8 tile[48];\n  mov.b32 %r2, tile;";
    let loaded = Device::new(Config::default()).load(&module(1, declarations, body)).unwrap();
    assert_eq!(loaded.kernel("k").unwrap().static_shared_bytes(), 48);
}
