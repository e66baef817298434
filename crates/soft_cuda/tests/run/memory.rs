//! Loads and stores of every kind.

use super::{Case, kernel, module};
use soft_cuda::{Config, Device, LaunchConfig};

#[test]
fn widths_and_signs() {
    let body = "
  ld.global.u8 %r2, [%rd1]; ld.global.s8 %r3, [%rd1]; ld.global.u16 %r4, [%rd1]; ld.global.s16 %r5, [%rd1];
  ld.global.s32 %rd10, [%rd1]; shr.u64 %rd11, %rd10, 32; cvt.u32.u64 %r6, %rd11;
  ld.global.b64 %rd12, [%rd1]; cvt.u32.u64 %r7, %rd12;
  ld.global.nc.L1::evict_last.L2::128B.b16 %h1, [%rd1+4]; cvt.u32.u16 %r8, %h1;
  st.global.v4.b32 [%rd2], {%r2, %r3, %r4, %r5};
  st.global.v2.b32 [%rd2+16], {%r6, %r7};
  st.global.u8 [%rd2+24], %r7; st.global.u16 [%rd2+26], %r7;
  st.global.b32 [%rd2+28], %r8;";
    let got =
        Case::new(kernel(2, body), &[vec![0x8000_80ff, 0x1234_5678], vec![0; 8]]).threads(1).run();
    assert_eq!(
        got,
        [0xff, u32::MAX, 0x80ff, 0xffff_80ff, u32::MAX, 0x8000_80ff, 0x80ff_00ff, 0x5678]
    );
}

#[test]
fn vectors_through_shared_memory() {
    let declarations =
        ".shared .align 16 .b8 fixed[64];\n.extern .shared .align 128 .b8 dynamic[];";
    let body = "
  mov.b32 %r2, dynamic; shl.b32 %r3, %r1, 4; add.s32 %r2, %r2, %r3;
  mul.lo.s32 %r4, %r1, 4; add.s32 %r5, %r4, 1; add.s32 %r6, %r4, 2; add.s32 %r7, %r4, 3;
  st.shared.v4.b32 [%r2], {%r4, %r5, %r6, %r7};
  mov.b32 %r8, fixed; st.shared.b32 [%r8], 5;
  bar.sync 0;
  xor.b32 %r3, %r3, 16; mov.b32 %r2, dynamic; add.s32 %r2, %r2, %r3;
  ld.shared.v4.f32 {%r2, %r10, %r11, %r12}, [%r2];
  ld.shared.v2.b64 {%rd10, %rd11}, [dynamic+16];
  cvt.u32.u64 %r13, %rd11;
  add.s32 %r2, %r2, %r12; add.s32 %r2, %r2, %r13;
  mov.u32 %r14, %dynamic_smem_size; add.s32 %r2, %r2, %r14;
  add.s64 %rd5, %rd1, %rd0; st.global.b32 [%rd5], %r2;";
    let case = Case::new(module(1, declarations, body), &[vec![0; 64]]).threads(64).shared(1024);
    let want: Vec<u32> = (0..64u32).map(|i| 8 * (i ^ 1) + 3 + 6 + 1024).collect();
    assert_eq!(case.run(), want);
}

#[test]
fn local_memory_is_private() {
    let body = "
  .local .align 4 .b8 depot[128];
  mov.b64 %rd10, depot; cvta.local.u64 %rd11, %rd10;
  and.b32 %r2, %r1, 7; mul.wide.u32 %rd12, %r2, 4; add.s64 %rd13, %rd11, %rd12;
  st.b32 [%rd13], %r1;
  add.s64 %rd14, %rd10, %rd12;
  ld.local.b32 %r3, [%rd14];
  add.s64 %rd5, %rd1, %rd0; st.global.b32 [%rd5], %r3;";
    let got = Case::new(kernel(1, body), &[vec![0; 64]]).threads(64).run();
    assert_eq!(got, (0..64).collect::<Vec<u32>>());
}

#[test]
fn generic_addresses_of_all_spaces() {
    let shared = ".shared .align 4 .b8 tile[256];";
    // Even lanes load from shared, odd lanes from global memory, in one instruction.
    let body = "
  mov.b64 %rd10, tile; cvta.shared.u64 %rd11, %rd10; add.s64 %rd11, %rd11, %rd0;
  st.b32 [%rd11], %r1;
  add.s64 %rd12, %rd1, %rd0;
  and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0;
  selp.b64 %rd13, %rd11, %rd12, %p1;
  isspacep.shared %p2, %rd13; isspacep.global %p3, %rd13;
  ld.b32 %r3, [%rd13];
  selp.b32 %r4, 1000, 0, %p2; selp.b32 %r5, 2000, 0, %p3;
  add.s32 %r3, %r3, %r4; add.s32 %r3, %r3, %r5;
  add.s64 %rd5, %rd2, %rd0; st.b32 [%rd5], %r3;";
    let input: Vec<u32> = (0..32).map(|i| i * 100).collect();
    let got = Case::new(module(2, shared, body), &[input, vec![0; 32]]).run();
    let want: Vec<u32> =
        (0..32).map(|i| if i % 2 == 0 { i + 1000 } else { i * 100 + 2000 }).collect();
    assert_eq!(got, want);
}

#[test]
fn variables_of_the_module() {
    let declarations = "
.const .align 4 .b32 table[4] = {10, 20, 0x1E, 0b101};
.global .align 8 .u64 pointer = generic(bytes)+2;
.global .align 1 .b8 bytes[4] = {1, 2, 3, 255};
.global .f32 one = 0f3F800000;";
    let body = "
  ld.const.b32 %r2, [table+8];
  ld.global.b64 %rd10, [pointer]; ld.u8 %r3, [%rd10+1];
  mov.u64 %rd11, bytes; ld.global.u8 %r4, [%rd11+1];
  ld.global.f32 %r5, [one];
  st.global.v4.b32 [%rd1], {%r2, %r3, %r4, %r5};";
    let case = Case::new(module(1, declarations, body), &[vec![0; 4]]).threads(1);
    assert_eq!(case.run(), [30, 255, 2, 1f32.to_bits()]);
}

#[test]
fn byte_parameters() {
    let ptx = ".version 8.7\n.target sm_80\n.address_size 64
.entry k(.param .align 8 .b8 p[24])
{ .reg .b32 %r<4>; .reg .b64 %rd<8>;
  ld.param.b64 %rd1, [p]; ld.param.v2.b32 {%r1, %r2}, [p+8]; ld.param.u16 %r3, [p+18];
  add.s32 %r1, %r1, %r2; add.s32 %r1, %r1, %r3; st.global.b32 [%rd1], %r1; ret; }";
    let device = soft_cuda::Device::new(soft_cuda::Config::default());
    let module = device.load(ptx).unwrap();
    let out = device.alloc(4).unwrap();
    let mut params = [0u8; 24];
    params[..8].copy_from_slice(&out.to_ne_bytes());
    params[8..12].copy_from_slice(&5u32.to_ne_bytes());
    params[12..16].copy_from_slice(&6u32.to_ne_bytes());
    params[18..20].copy_from_slice(&700u16.to_ne_bytes());
    let config = soft_cuda::LaunchConfig { grid: [1; 3], block: [1; 3], dynamic_shared: 0 };
    device.launch(&module.kernel("k").unwrap(), config, &params).unwrap();
    let mut word = [0; 4];
    device.read(out, &mut word).unwrap();
    assert_eq!(u32::from_ne_bytes(word), 711);
}

#[test]
fn indices_in_three_dimensions() {
    let body = "
  mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y;
  mad.lo.s32 %r6, %r3, %r5, %r2; mad.lo.s32 %r6, %r6, %r4, %r1;
  mov.u32 %r7, %ctaid.x; mov.u32 %r8, %ctaid.y; mov.u32 %r9, %nctaid.x; mad.lo.s32 %r10, %r8, %r9, %r7;
  mov.u32 %r11, %ntid.z; mul.lo.s32 %r12, %r4, %r5; mul.lo.s32 %r12, %r12, %r11;
  mad.lo.s32 %r13, %r10, %r12, %r6;
  mul.wide.u32 %rd5, %r13, 4; add.s64 %rd5, %rd1, %rd5;
  mov.u32 %r14, %warpid; mov.u32 %r15, %laneid; mad.lo.s32 %r14, %r14, 32, %r15;
  mad.lo.s32 %r14, %r10, 1000, %r14;
  st.global.b32 [%rd5], %r14;";
    let mut case = Case::new(kernel(1, body), &[vec![0; 6 * 60]]);
    case.grid = [3, 2, 1];
    case.block = [5, 4, 3];
    let want: Vec<u32> = (0..360).map(|i| i / 60 * 1000 + i % 60).collect();
    assert_eq!(case.run(), want);
}

#[test]
fn atomics() {
    let body = "
  atom.global.add.u32 %r2, [%rd1], 1;
  red.global.max.s32 [%rd1+4], %r1; neg.s32 %r3, %r1; atom.relaxed.gpu.global.min.s32 %r4, [%rd1+8], %r3;
  atom.global.inc.u32 %r4, [%rd1+12], 9; red.global.or.b32 [%rd1+16], %r1;
  red.global.add.f32 [%rd1+20], 0f3F800000; atom.add.u64 %rd10, [%rd1+24], 4294967296;
  atom.global.dec.u32 %r4, [%rd1+32], 3; red.global.xor.b32 [%rd1+36], 1; red.global.and.b32 [%rd1+40], 12;";
    let start = vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff];
    let got = Case::new(kernel(1, body), &[start]).threads(64).blocks(10).run();
    assert_eq!(got, [640, 63, -63i32 as u32, 0, 63, 640f32.to_bits(), 0, 640, 0, 0, 12]);
}

#[test]
fn atomics_on_shared_memory() {
    let declarations = ".shared .align 4 .b8 count[4];";
    let body = "
  mov.b32 %r2, count;
  setp.ne.u32 %p1, %r1, 0; @!%p1 st.shared.b32 [%r2], 0;
  bar.sync 0;
  atom.shared.add.u32 %r3, [%r2], %r1;
  red.shared::cta.add.u32 [count], 1;
  bar.sync 0;
  ld.shared.b32 %r4, [%r2];
  add.s64 %rd5, %rd1, %rd0; st.global.b32 [%rd5], %r4;";
    let got = Case::new(module(1, declarations, body), &[vec![0; 64]]).threads(64).run();
    assert_eq!(got, [63 * 64 / 2 + 64; 64]);
}

/// Copies to shared memory asynchronously, then reads it back after `wait`.
fn async_copy(copy: &str, wait: &str) -> Vec<u32> {
    let declarations = ".shared .align 16 .b8 tile[1024];";
    let body = format!(
        "
  mov.b32 %r2, tile; shl.b32 %r3, %r1, 4; add.s32 %r2, %r2, %r3; mul.wide.u32 %rd10, %r1, 16; add.s64 %rd11, %rd1, %rd10;
  mov.b32 %r9, 7; st.shared.v4.b32 [%r2], {{%r9, %r9, %r9, %r9}};
  {copy}
  {wait}
  ld.shared.b32 %r4, [%r2]; ld.shared.b32 %r5, [%r2+12]; mad.lo.s32 %r4, %r5, 1000, %r4;
  add.s64 %rd5, %rd2, %rd0; st.global.b32 [%rd5], %r4;"
    );
    let input = (0..128).collect();
    Case::new(module(2, declarations, &body), &[input, vec![0; 32]]).run()
}

#[test]
fn asynchronous_copies_appear_at_the_wait() {
    let word = |i: u32| 4 * i + (4 * i + 3) * 1000;
    let all: Vec<u32> = (0..32).map(word).collect();
    let copy = "cp.async.cg.shared.global.L2::128B [%r2], [%rd11], 16; cp.async.commit_group;";
    assert_eq!(async_copy(copy, "cp.async.wait_group 0;"), all);
    assert_eq!(async_copy(copy, "cp.async.wait_all;"), all);
    assert_eq!(async_copy(copy, "cp.async.wait_group 1;"), [7007; 32], "not waited for");
    assert_eq!(async_copy(copy, ""), [7007; 32], "not waited for");
    let uncommitted = "cp.async.ca.shared.global [%r2], [%rd11], 4;";
    assert_eq!(async_copy(uncommitted, "cp.async.wait_group 0;"), [7007; 32], "not committed");
    let some: Vec<u32> = (0..32).map(|i| 4 * i + 7000).collect();
    assert_eq!(async_copy(uncommitted, "cp.async.wait_all;"), some);
    // Fewer source bytes than the size: the rest is zero.
    let short = "cp.async.ca.shared.global [%r2], [%rd11], 16, 4; cp.async.commit_group;";
    let filled: Vec<u32> = (0..32).map(|i| 4 * i).collect();
    assert_eq!(async_copy(short, "cp.async.wait_group 0;"), filled);
    // No source bytes: the source may be anywhere.
    let none =
        "mov.b64 %rd11, 0; cp.async.cg.shared.global [%r2], [%rd11], 16, 0; cp.async.commit_group;";
    assert_eq!(async_copy(none, "cp.async.wait_group 0;"), [0; 32]);
    // Two groups, the older one waited for.
    let two = "cp.async.ca.shared.global [%r2], [%rd11], 4; cp.async.commit_group;
  cp.async.ca.shared.global [%r2+12], [%rd11+12], 4; cp.async.commit_group;";
    assert_eq!(async_copy(two, "cp.async.wait_group 1;"), some);
}

#[test]
fn shared_variables_of_one_name_in_two_scopes_are_two() {
    let body = "
  { .shared .b32 x; st.shared.b32 [x], 1; mov.b32 %r2, x; }
  { .shared .b32 x; st.shared.b32 [x], 2; mov.b32 %r3, x; }
  ld.shared.b32 %r4, [%r2]; st.global.b32 [%rd1], %r4;
  ld.shared.b32 %r4, [%r3]; st.global.b32 [%rd1+4], %r4;";
    assert_eq!(Case::new(kernel(1, body), &[vec![0; 2]]).run(), [1, 2]);
    // An inner one hides the module's, which is another one still.
    let body = "
  st.shared.b32 [x], 1;
  { .shared .b32 x; st.shared.b32 [x], 2; }
  ld.shared.b32 %r4, [x]; st.global.b32 [%rd1], %r4;";
    let ptx = module(1, ".shared .b32 x;", body);
    assert_eq!(Case::new(ptx, &[vec![0]]).run(), [1]);
}

#[test]
fn a_function_has_its_own_shared_variables() {
    // One for all calls of `f`, and another one for `g`.
    let functions = "
.func f(.param .b32 by) { .reg .b32 %r<4>; .shared .b32 x;
  ld.param.b32 %r1, [by]; ld.shared.b32 %r2, [x]; add.u32 %r2, %r2, %r1; st.shared.b32 [x], %r2; ret; }
.func (.param .b32 got) g() { .reg .b32 %r<4>; .shared .b32 x;
  st.shared.b32 [x], 100; ld.shared.b32 %r1, [x]; st.param.b32 [got], %r1; ret; }";
    // `x` starts as NaN, all ones.
    let body = "
  .shared .b32 x; .param .b32 by; .param .b32 got;
  st.shared.b32 [x], 7;
  st.param.b32 [by], 3; call f, (by);
  call (got), g;
  st.param.b32 [by], 4; call f, (by);
  ld.shared.b32 %r2, [x]; st.global.b32 [%rd1], %r2;
  ld.param.b32 %r2, [got]; st.global.b32 [%rd1+4], %r2;
  mov.b32 %r3, x; ld.shared.b32 %r2, [%r3+4]; st.global.b32 [%rd1+8], %r2;";
    let got = Case::new(module(1, functions, body), &[vec![0; 3]]).threads(1).run();
    assert_eq!(got, [7, 100, u32::MAX.wrapping_add(7)]);
}

/// The word that a lane loads, by lane, for each way in which the words of a warp may lie.
const PATTERNS: [fn(u32) -> u32; 8] = [
    |_| 12,
    |lane| 4 * lane,
    |lane| lane / 16 * 4,
    |lane| lane % 16 * 4,
    |lane| (31 - lane) * 4,
    |lane| lane * 8,
    |lane| if lane == 9 { 40 } else { 16 },
    |lane| if lane == 31 { 0 } else { 4 * lane },
];

#[test]
fn loads_of_every_pattern() {
    let values: Vec<u32> = (0..1024).map(|i| i * 7 + 3).collect();
    for pattern in PATTERNS {
        let words: Vec<u32> = (0..32).map(pattern).collect();
        for (vector, registers) in [(1, "%r2"), (2, "{%r2, %r3}"), (4, "{%r2, %r3, %r4, %r5}")] {
            let of = if vector == 1 { String::new() } else { format!(".v{vector}") };
            let body = format!(
                "  .shared .align 16 .b8 tile[4096];
  add.s64 %rd5, %rd2, %rd0; ld.global.b32 %r10, [%rd5];
  mul.wide.u32 %rd6, %r10, 4; add.s64 %rd6, %rd1, %rd6;
  mov.b32 %r11, 0; mul.lo.u32 %r12, %r1, 4;
COPY: mul.wide.u32 %rd7, %r12, 1; add.s64 %rd7, %rd1, %rd7; ld.global.b32 %r13, [%rd7];
  mov.b32 %r14, tile; add.u32 %r14, %r14, %r12; st.shared.b32 [%r14], %r13;
  add.u32 %r12, %r12, 128; setp.lt.u32 %p1, %r12, 4096; @%p1 bra COPY;
  bar.sync 0;
  mov.b32 %r3, 0; mov.b32 %r4, 0; mov.b32 %r5, 0;
  ld.global{of}.b32 {registers}, [%rd6];
  mad.lo.u32 %r20, %r3, 3, %r2; mad.lo.u32 %r20, %r4, 5, %r20; mad.lo.u32 %r20, %r5, 9, %r20;
  mov.b32 %r15, tile; mad.lo.u32 %r15, %r10, 4, %r15;
  mov.b32 %r3, 0; mov.b32 %r4, 0; mov.b32 %r5, 0;
  ld.shared{of}.b32 {registers}, [%r15];
  mad.lo.u32 %r21, %r3, 3, %r2; mad.lo.u32 %r21, %r4, 5, %r21; mad.lo.u32 %r21, %r5, 9, %r21;
  mul.wide.u32 %rd8, %r1, 8; add.s64 %rd8, %rd3, %rd8; st.global.v2.b32 [%rd8], {{%r20, %r21}};"
            );
            let buffers = [values.clone(), words.clone(), vec![0; 64]];
            let got = Case::new(kernel(3, &body), &buffers).threads(32).run();
            let wanted = words.iter().flat_map(|&word| {
                let factors = [1, 3, 5, 9].into_iter().take(vector);
                let sum = factors.zip(word..).map(|(f, at)| f * values[at as usize]).sum::<u32>();
                [sum, sum]
            });
            assert_eq!(got, wanted.collect::<Vec<u32>>(), "{words:?}, {vector}");
        }
    }
}

#[test]
fn one_lane_that_is_out_of_bounds_is_found() {
    for (space, base) in [("global", "%rd1"), ("shared", "%rd4")] {
        for (lane, step) in [(0, 1 << 20), (17, 1 << 20), (31, 1 << 20), (31, 2)] {
            let address = if space == "global" { "%rd6" } else { "%r12" };
            let body = format!(
                "  .shared .align 16 .b8 tile[256];
  mov.b64 %rd4, 0; setp.eq.u32 %p1, %r1, {lane}; mov.b32 %r10, 0; @%p1 mov.b32 %r10, {step};
  mul.wide.u32 %rd6, %r10, 1; add.s64 %rd6, {base}, %rd6;
  mov.b32 %r12, tile; add.u32 %r12, %r12, %r10;
  ld.{space}.b32 %r2, [{address}];"
            );
            let fault = Case::new(kernel(1, &body), &[vec![0; 64]]).threads(32).fault();
            assert_eq!(fault.thread, [lane, 0, 0], "{fault}");
        }
    }
}

#[test]
fn variables_in_device_memory_of_a_function() {
    // Each hides the module's `v`; they keep their values from launch to launch.
    let ptx = ".version 8.7\n.target sm_80\n.address_size 64
.global .u32 v = 5;
.func (.reg .u32 r) counter() {
  .global .u32 v = 100;
  atom.global.add.u32 r, [v], 1;
  ret;
}
.entry k(.param .u64 p) {
  .global .u32 v[2] = {1, 2};
  .global .u64 place = v+4;
  .const .f32 half = 0.5;
  .reg .b32 %r<9>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p];
  ld.global.u32 %r1, [v];
  ld.global.u64 %rd2, [place];
  ld.global.u32 %r2, [%rd2];
  ld.const.f32 %r3, [half];
  call (%r4), counter, ();
  st.global.v4.b32 [%rd1], {%r1, %r2, %r3, %r4};
  add.u32 %r1, %r1, 10;
  st.global.u32 [v], %r1;
  ret;
}
.entry other(.param .u64 p) {
  .reg .b32 %r<9>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p];
  { .global .u32 v = 9; ld.global.u32 %r1, [v]; }
  ld.global.u32 %r2, [v];
  call (%r3), counter, ();
  st.global.v4.b32 [%rd1], {%r1, %r2, %r3, %r3};
  ret;
}";
    let device = Device::new(Config::default());
    let before = device.memory_info();
    let module = device.load(ptx).unwrap();
    let out = device.alloc(16).unwrap();
    let run = |name: &str| {
        let config = LaunchConfig { grid: [1; 3], block: [1; 3], dynamic_shared: 0 };
        device.launch(&module.kernel(name).unwrap(), config, &out.to_ne_bytes()).unwrap();
        let mut bytes = [0; 16];
        device.read(out, &mut bytes).unwrap();
        let (words, _) = bytes.as_chunks::<4>();
        [0, 1, 2, 3].map(|i| u32::from_ne_bytes(words[i]))
    };
    let half = 0.5f32.to_bits();
    assert_eq!(run("k"), [1, 2, half, 100]);
    assert_eq!(run("k"), [11, 2, half, 101]);
    assert_eq!(run("other"), [9, 5, 102, 102]);
    assert!(module.global("place").is_none(), "it is the kernel's own");
    device.free(out).unwrap();
    drop(module);
    assert_eq!(device.memory_info(), before);
}

#[test]
fn memory_reserved_for_the_system() {
    // As cooperative groups of several warps use it.
    let body = "
  mov.u32 %r2, %reserved_smem_offset_1;
  mov.u32 %r3, %reserved_smem_offset_begin;
  mov.u32 %r4, %reserved_smem_offset_end;
  mov.u32 %r5, %reserved_smem_offset_cap;
  sub.u32 %r3, %r2, %r3;
  sub.u32 %r4, %r4, %r2;
  mov.u32 %r6, %total_smem_size;
  mov.u32 %r7, %aggr_smem_size;
  st.shared.u32 [own], 77;
  st.shared.u32 [open], 78;
  mad.lo.u32 %r8, %r1, 4, %r2;
  cvt.u64.u32 %rd4, %r8;
  cvta.shared.u64 %rd4, %rd4;
  st.u32 [%rd4], %r1;
  bar.sync 0;
  xor.b32 %r9, %r1, 33;
  mad.lo.u32 %r8, %r9, 4, %r2;
  ld.shared.u32 %r9, [%r8];
  ld.shared.u32 %r10, [own];
  ld.shared.u32 %r11, [open];
  add.u32 %r10, %r10, %r11;
  mul.wide.u32 %rd5, %r1, 32;
  add.s64 %rd5, %rd1, %rd5;
  st.global.v4.b32 [%rd5], {%r3, %r4, %r5, %r6};
  st.global.v4.b32 [%rd5+16], {%r7, %r9, %r10, %r1};";
    let ptx = module(1, ".shared .b32 own[4];\n.extern .shared .b32 open[];", body);
    let got = Case::new(ptx.clone(), &[vec![0; 8 * 64]]).threads(64).shared(32).run();
    let expected = |i: u32| [0, 288, 1024, 48, 48 + 1024, i ^ 33, 155, i];
    assert_eq!(got, (0..64).flat_map(expected).collect::<Vec<_>>());
    let loaded = Device::new(Config::default()).load(&ptx).unwrap();
    assert_eq!(loaded.kernel("k").unwrap().static_shared_bytes(), 16);
}
