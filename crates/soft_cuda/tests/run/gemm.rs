//! A small tiled matrix product, the shape of kernel this device is for.

use super::{Case, module};

/// C = A * B for n x n matrices, n a multiple of 16: 16x16 tiles in shared
/// memory, one thread per element. The inner loop is unrolled, as rustc does.
fn tiled(n: u32) -> String {
    let declarations = ".shared .align 16 .b8 a_smem[1024];\n.shared .align 16 .b8 b_smem[1024];";
    let inner: String = (0..16)
        .map(|k| {
            format!(
                "  ld.shared.b32 %r20, [%r12+{}]; ld.shared.b32 %r21, [%r13+{}]; fma.rn.f32 %r22, %r20, %r21, %r22;\n",
                k * 4,
                k * 64
            )
        })
        .collect();
    let body = format!(
        "
  mov.u32 %r2, %tid.y; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ctaid.y;
  mad.lo.s32 %r5, %r4, 16, %r2;
  mad.lo.s32 %r6, %r3, 16, %r1;
  mad.lo.s32 %r7, %r5, {n}, %r1;
  mul.wide.u32 %rd10, %r7, 4; add.s64 %rd10, %rd1, %rd10;
  mad.lo.s32 %r8, %r2, {n}, %r6;
  mul.wide.u32 %rd11, %r8, 4; add.s64 %rd11, %rd2, %rd11;
  mad.lo.s32 %r9, %r2, 16, %r1; shl.b32 %r9, %r9, 2;
  mov.b32 %r10, a_smem; mov.b32 %r11, b_smem;
  add.s32 %r14, %r10, %r9; add.s32 %r15, %r11, %r9;
  shl.b32 %r12, %r2, 6; add.s32 %r12, %r10, %r12;
  shl.b32 %r13, %r1, 2; add.s32 %r13, %r11, %r13;
  mov.b32 %r22, 0f00000000; mov.b32 %r16, 0;
TILE:
  ld.global.b32 %r17, [%rd10]; st.shared.b32 [%r14], %r17;
  ld.global.b32 %r18, [%rd11]; st.shared.b32 [%r15], %r18;
  bar.sync 0;
{inner}
  bar.sync 0;
  add.s64 %rd10, %rd10, 64; add.s64 %rd11, %rd11, {};
  add.s32 %r16, %r16, 16; setp.lt.u32 %p1, %r16, {n};
  @%p1 bra TILE;
  mad.lo.s32 %r19, %r5, {n}, %r6; mul.wide.u32 %rd12, %r19, 4; add.s64 %rd12, %rd3, %rd12;
  st.global.b32 [%rd12], %r22;",
        n * 64
    );
    module(3, declarations, &body)
}

#[test]
fn a_tiled_product_has_the_bits_of_a_chain_of_fmas() {
    const N: usize = 64;
    let mut state = 1u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let a: Vec<f32> = (0..N * N).map(|_| random()).collect();
    let b: Vec<f32> = (0..N * N).map(|_| random()).collect();
    let bits = |m: &[f32]| m.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
    let mut case = Case::new(tiled(N as u32), &[bits(&a), bits(&b), vec![0; N * N]]);
    case.grid = [N as u32 / 16, N as u32 / 16, 1];
    case.block = [16, 16, 1];
    let got = case.run();
    for i in 0..N {
        for j in 0..N {
            let want = (0..N).fold(0f32, |sum, k| a[i * N + k].mul_add(b[k * N + j], sum));
            assert_eq!(f32::from_bits(got[i * N + j]), want, "element {i}, {j}");
        }
    }
}

#[test]
fn launches_are_counted_and_progress_is_seen() {
    use soft_cuda::{Config, Device, LaunchConfig, Progress};
    let device = Device::new(Config::default());
    assert_eq!(device.progress(), Progress::default());
    let module = device.load(&super::kernel(1, "  st.global.b32 [%rd1], 1;")).unwrap();
    let kernel = module.kernel("k").unwrap();
    let out = device.alloc(4).unwrap();
    let config = LaunchConfig { grid: [7, 2, 1], block: [40, 1, 1], dynamic_shared: 0 };
    let report = device.launch(&kernel, config, &out.to_ne_bytes()).unwrap();
    // Two warps of 32 and 8 threads, five instructions each.
    assert_eq!(report.warp_instructions, 14 * 2 * 5);
    assert_eq!(report.thread_instructions, 14 * 40 * 5);
    assert_eq!(device.progress(), Progress { blocks_done: 14, blocks_total: 14 });
}
