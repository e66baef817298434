//! The launch in front of a kernel that may begin before that has ended.

use soft_cuda::{Device, LaunchConfig};

/// How such a kernel waits for it.
pub const WAIT: &str = "griddepcontrol.wait";

/// Writes words as they are, and anything to others.
const PTX: &str = ".version 8.6
.target sm_90a
.address_size 64
.visible .entry front(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u32 words_a, .param .u32 words_b, .param .u32 words_c, .param .u32 words_d) {
  .reg .pred %p<5>; .reg .b32 %r<12>; .reg .b64 %rd<8>;
  ld.param.b64 %rd1, [a]; ld.param.b64 %rd2, [b]; ld.param.b64 %rd3, [c]; ld.param.b64 %rd4, [d];
  ld.param.b32 %r1, [words_a]; ld.param.b32 %r2, [words_b]; ld.param.b32 %r3, [words_c]; ld.param.b32 %r4, [words_d];
  mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ntid.x; mov.u32 %r7, %tid.x; mad.lo.u32 %r5, %r5, %r6, %r7;
  mul.wide.u32 %rd5, %r5, 4;
  add.s64 %rd1, %rd1, %rd5; add.s64 %rd2, %rd2, %rd5; add.s64 %rd3, %rd3, %rd5; add.s64 %rd4, %rd4, %rd5;
  setp.lt.u32 %p1, %r5, %r1; setp.lt.u32 %p2, %r5, %r2; setp.lt.u32 %p3, %r5, %r3; setp.lt.u32 %p4, %r5, %r4;
  @%p1 ld.global.b32 %r8, [%rd1]; @%p1 st.global.b32 [%rd1], %r8;
  @%p2 ld.global.b32 %r9, [%rd2]; @%p2 st.global.b32 [%rd2], %r9;
  @%p3 ld.global.b32 %r10, [%rd3]; @%p3 st.global.b32 [%rd3], %r10;
  @%p4 st.global.b32 [%rd4], -1;
  ret;
}
";

/// Launches it: an address and a number of words for each; three are kept as they are.
pub fn launch(device: &Device, kept: [(u64, u32); 3], written: (u64, u32)) {
    let kernel = device.load(PTX).unwrap().kernel("front").unwrap();
    let all = [kept[0], kept[1], kept[2], written];
    let mut params: Vec<u8> = all.iter().flat_map(|(at, _)| at.to_le_bytes()).collect();
    params.extend(all.iter().flat_map(|(_, words)| words.to_le_bytes()));
    let words = all.map(|(_, words)| words).into_iter().max().unwrap();
    let (grid, block) = ([words.div_ceil(256), 1, 1], [256, 1, 1]);
    device.launch(&kernel, LaunchConfig { grid, block, dynamic_shared: 0 }, &params).unwrap();
}
