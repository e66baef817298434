//! Constants in instructions and in initial values: converted to the type of their use,
//! or refused with the line.

use super::{Case, f, kernel, line_of, module};
use soft_cuda::{Config, Device, KernelError, LoadError};

/// The words that `body` has stored to its buffer.
fn stored(declarations: &str, body: &str, words: usize) -> Vec<u32> {
    Case::new(module(1, declarations, body), &[vec![0; words]]).threads(1).run()
}

/// The bytes of the variable `v` after loading.
fn initial(declaration: &str) -> Vec<u8> {
    let device = Device::new(Config::default());
    let module = device.load(&module(0, declaration, "")).unwrap_or_else(|e| panic!("{e}"));
    let (address, bytes) = module.global("v").unwrap();
    let mut out = vec![0xaa; bytes as usize];
    device.read(address, &mut out).unwrap();
    out
}

/// Why the module, or its kernel `k`, is refused.
fn refuse(ptx: &str) -> LoadError {
    match Device::new(Config::default()).load(ptx).map(|module| module.kernel("k")) {
        Err(error) | Ok(Err(KernelError::Refused { error, .. })) => error,
        other => panic!("{other:?}:\n{ptx}"),
    }
}

#[test]
fn floats_in_instructions() {
    let body = "
  mov.f32 %r2, 1.5; st.global.b32 [%rd1], %r2;
  add.f32 %r2, %r2, 0d3FF8000000000000; st.global.b32 [%rd1+4], %r2;
  st.global.f32 [%rd1+8], -2.5;
  setp.lt.f32 %p1, %r2, 1e2; selp.f32 %r3, 4.0, 5.0, %p1; st.global.b32 [%rd1+12], %r3;
  st.global.v2.f32 [%rd1+16], {0f3F800000, .5};
  mov.b32 %r4, 0f40000000; st.global.b32 [%rd1+24], %r4;
  st.global.b32 [%rd1+28], 0f40000000;
  cvt.rzi.s32.f32 %r5, 7.9; st.global.b32 [%rd1+32], %r5;
  slct.f32.f32 %r6, 1.0, 2.0, -1.0; st.global.b32 [%rd1+36], %r6;
  cvt.rn.bf16x2.f32 %r7, 1.0, -2.0; st.global.b32 [%rd1+56], %r7;
  mov.f64 %rd4, 1.e-1; st.global.f64 [%rd1+40], %rd4;
  st.global.f64 [%rd1+48], 0.1;";
    let tenth = 0.1f64.to_bits();
    let tenth = [tenth as u32, (tenth >> 32) as u32];
    let mut want = [1.5f32, 3.0, -2.5, 4.0, 1.0, 0.5, 2.0, 2.0].map(f).to_vec();
    want.extend([7, f(2.0)]);
    want.extend(tenth.iter().chain(&tenth));
    want.push(0x3f80_c000);
    assert_eq!(stored("", body, 15), want);
}

#[test]
fn integers_in_instructions() {
    let body = "
  mov.u32 %r2, 0x1F; st.global.b32 [%rd1], %r2;
  mov.u32 %r2, 017; st.global.b32 [%rd1+4], %r2;
  mov.u32 %r2, 0b101U; st.global.b32 [%rd1+8], %r2;
  mov.s32 %r2, -1; st.global.b32 [%rd1+12], %r2;
  add.u32 %r2, %r2, 0x123456789; st.global.b32 [%rd1+16], %r2;
  mov.u16 %h1, 70000; cvt.u32.u16 %r2, %h1; st.global.b32 [%rd1+20], %r2;
  mov.b64 %rd4, {1, -1}; st.global.b64 [%rd1+24], %rd4;
  cvt.rn.f32.s32 %r2, -3; st.global.b32 [%rd1+32], %r2;
  st.global.u8 [%rd1+36], 300;";
    let want =
        [0x1f, 0o17, 0b101, u32::MAX, 0x2345_6788, 70_000 & 0xffff, 1, u32::MAX, f(-3.0), 44];
    assert_eq!(stored("", body, 10), want);
}

#[test]
fn special_registers_in_instructions() {
    let body = "
  mov.b32 %r2, WARP_SZ; st.global.b32 [%rd1], %r2;
  st.global.u32 [%rd1+4], WARP_SZ;
  mov.u64 %rd4, WARP_SZ; st.global.u64 [%rd1+8], %rd4;
  cvt.rn.f32.u32 %r2, WARP_SZ; st.global.f32 [%rd1+16], %r2;
  slct.f32.s32 %r2, 1.0, 2.0, WARP_SZ; st.global.f32 [%rd1+20], %r2;
  mov.u16 %h1, %ntid.x; cvt.u32.u16 %r2, %h1; st.global.b32 [%rd1+24], %r2;
  mov.b32 %r2, %cluster_nctarank; st.global.b32 [%rd1+28], %r2;
  cvt.u64.u32 %rd4, %ntid.x; st.global.u64 [%rd1+32], %rd4;";
    assert_eq!(stored("", body, 10), [32, 32, 32, 0, f(32.0), f(1.0), 1, 1, 1, 0]);
}

#[test]
fn constants_of_another_type_are_refused() {
    for inst in [
        "add.f32 %r2, %r3, 1;",
        "mov.f32 %r2, 1;",
        "add.f64 %rd2, %rd3, 1;",
        "add.f64 %rd2, %rd3, 0f3F800000;",
        "fma.rn.f32 %r2, %r3, 2, %r4;",
        "setp.eq.f32 %p1, %r2, 0;",
        "selp.f32 %r2, 1, 2, %p1;",
        "slct.f32.s32 %r2, 1, 2, %r3;",
        "slct.s32.f32 %r2, 1, 2, 1;",
        "neg.f32 %r2, 5U;",
        "cvt.rzi.s32.f32 %r2, 1;",
        "cvt.f32.f16 %r2, 0x3c00;",
        "cvt.rna.tf32.f32 %r2, 1;",
        "cvt.rn.bf16x2.f32 %r2, 1, 2.0;",
        "st.global.f32 [%rd1], 1;",
        "st.global.f64 [%rd1], 1;",
        "st.global.v2.f32 [%rd1], {1.0, 2};",
        "st.global.v2.b32 [%rd1], {%rd2, 1.5};",
        "st.global.u32 [%rd1], 0f3F800000;",
        "st.global.b32 [%rd1], 1.5;",
        "atom.global.add.f32 %r2, [%rd1], 1;",
        "mov.u32 %r2, 0f3F800000;",
        "mov.u64 %rd2, 1.5;",
        "mov.b64 %rd2, 0f3F800000;",
        "mov.b32 %r2, 1.5;",
        "mov.b16 %h1, 0f3F800000;",
        "add.u32 %r2, %r3, 1.5;",
        "shl.b32 %r2, %r3, 0f3F800000;",
        "add.u64 %rd2, %rd3, 0x1FFFFFFFFFFFFFFFF;",
        "add.f32 %r2, %r3, WARP_SZ;",
        "add.f64 %rd2, %rd3, WARP_SZ;",
        "mov.f32 %r2, WARP_SZ;",
        "selp.f32 %r2, WARP_SZ, %r1, %p1;",
        "slct.s32.f32 %r2, %r1, %r3, WARP_SZ;",
        "cvt.rzi.s32.f32 %r2, WARP_SZ;",
        "cvt.f32.f16 %r2, WARP_SZ;",
        "cvt.rn.bf16x2.f32 %r2, WARP_SZ, %r3;",
        "st.global.f32 [%rd1], WARP_SZ;",
        "st.global.f64 [%rd1], WARP_SZ;",
        "atom.global.add.f32 %r2, [%rd1], WARP_SZ;",
        "mov.f32 %r2, %laneid;",
        "mov.f64 %rd2, %gridid;",
        "add.f32 %r2, %r3, %tid.x;",
        "setp.eq.f32 %p1, %r2, %tid.x;",
        "cvt.rzi.s32.f32 %r2, %laneid;",
        "cvt.f32.f16 %r2, %laneid;",
        "st.global.f32 [%rd1], %tid.x;",
        "mov.f32 %r2, %cluster_ctaid.x;",
        "mov.f32 %r2, %cluster_nctarank;",
        "mov.u64 %rd2, %cluster_ctarank;",
        "mov.u16 %h1, %cluster_ctarank;",
        "mov.u16 %h1, %laneid;",
        "mov.u16 %h1, %clock;",
        "mov.f32 %r2, %clock;",
        "mov.f64 %rd2, %clock64;",
        "mov.f32 %r2, %globaltimer_lo;",
    ] {
        let ptx = kernel(1, &format!("  {inst}"));
        match refuse(&ptx) {
            LoadError::Operands { line, .. } => assert_eq!(line, line_of(&ptx, inst), "{inst}"),
            other => panic!("{inst}: {other}"),
        }
    }
}

#[test]
fn initial_values_have_the_type_of_the_variable() {
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let floats = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    assert_eq!(initial(".global .f32 v[2] = {1.5, 2.5};"), floats(&[1.5, 2.5]));
    assert_eq!(initial(".global .f32 v = 0d3FF8000000000000;"), floats(&[1.5]));
    assert_eq!(initial(".global .f32 v[3] = {-1.5, 0f3F800000};"), floats(&[-1.5, 1.0, 0.0]));
    assert_eq!(initial(".const .f64 v = 0.1;"), 0.1f64.to_le_bytes());
    assert_eq!(initial(".global .f64 v = 0dBFF8000000000000;"), (-1.5f64).to_le_bytes());
    assert_eq!(initial(".global .b32 v = 1.5;"), floats(&[1.5]));
    assert_eq!(initial(".global .b64 v = 1.5;"), 1.5f64.to_le_bytes());
    assert_eq!(
        initial(".global .v2 .f32 v[2] = {{1.0, 2.0}, {3.0, 4.0}};"),
        floats(&[1.0, 2.0, 3.0, 4.0])
    );
    assert_eq!(
        initial(".global .v4 .f32 v = {1.0, 2.0, 3.0, 4.0};"),
        floats(&[1.0, 2.0, 3.0, 4.0])
    );
    assert_eq!(initial(".global .s32 v[][2] = {{-1, 0}, {1, 2}};"), words(&[u32::MAX, 0, 1, 2]));
    assert_eq!(initial(".global .u32 v[2][2] = {{1, 2}};"), words(&[1, 2, 0, 0]));
    assert_eq!(initial(".global .u8 v[5] = {0xFF, 010, 0b11, 7U, -1};"), [255, 8, 3, 7, 255]);
    assert_eq!(initial(".global .s8 v = 200;"), [200]);
    assert_eq!(initial(".global .b16 v[2] = {0x3c00, -2};"), [0, 0x3c, 0xfe, 0xff]);
    assert_eq!(initial(".global .u64 v = -1;"), [0xff; 8]);
}

#[test]
fn initial_values_that_do_not_fit_are_refused() {
    for declaration in [
        ".global .f32 v = 1;",
        ".global .f64 v[2] = {1.0, 2};",
        ".global .f64 v = 0f3F800000;",
        ".global .u32 v = 1.5;",
        ".global .u32 v = 0f3F800000;",
        ".global .b16 v = 1.5;",
        ".global .f16 v = 1.0;",
        ".global .f16x2 v = 5;",
        ".global .b128 v = 5;",
        ".global .u8 v = 300;",
        ".global .s8 v = -129;",
        ".global .u32 v = 0x1FFFFFFFF;",
        ".global .u64 v = 0x1FFFFFFFFFFFFFFFF;",
        ".global .u32 v[2] = {1, 2, 3};",
        ".global .u32 v[2][2] = {{1, 2, 3}};",
        ".global .u32 v[2][2] = {{1}, {2, 3}};",
        ".global .u32 v[2][2] = {1, 2};",
        ".global .u32 v = {1};",
        ".global .u32 v[2] = 1;",
        ".global .u32 v = v;",
        ".global .u8 v[8] = {v};",
        ".global .u8 v[2] = {0xFF(v), 0xFF00(v)};",
        ".shared .u32 v = 1;",
    ] {
        let ptx = module(0, declaration, "");
        match refuse(&ptx) {
            LoadError::Syntax { line, .. } => assert_eq!(line, line_of(&ptx, declaration)),
            other => panic!("{declaration}: {other}"),
        }
    }
    let deep = format!(".global .u32 v{} = 1;", "[1]".repeat(100_000));
    assert!(refuse(&module(0, &deep, "")).to_string().contains("at most 16 dimensions"));
}
