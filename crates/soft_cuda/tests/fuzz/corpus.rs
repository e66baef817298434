//! The texts that are mutated, and what is put into them.

/// Words of PTX, and what looks like one.
pub const WORDS: [&str; 46] = [
    ".entry",
    ".func",
    ".shared",
    ".global",
    ".const",
    ".local",
    ".param",
    ".reg",
    ".extern",
    ".visible",
    ".align",
    ".b8",
    ".b32",
    ".b64",
    ".u64",
    ".f32",
    ".f64",
    ".pred",
    ".v2",
    ".v4",
    ".reqntid",
    ".maxntid",
    ".reqnctapercluster",
    "call",
    "bra",
    "bar.sync",
    "barrier.cluster.wait",
    "mbarrier.init.shared.b64",
    "ld.shared.b32",
    "st.global.v4.b32",
    "cp.async.wait_group",
    "shfl.sync.idx.b32",
    "ret",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ",",
    "@",
    "%r1",
    "%rd1",
    "%p1",
    "<",
];

/// Numbers at the edges of what fits.
pub const NUMBERS: [&str; 20] = [
    "0",
    "1",
    "-1",
    "31",
    "32",
    "33",
    "255",
    "4096",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211455",
    "0x7fffffffffffffff",
    "0f7fc00000",
];

/// Small kernels that together use most of what there is.
pub const CORPUS: [&str; 8] = [
    ".version 8.0 .target sm_80 .address_size 64
.shared .align 16 .b8 tile[512];
.global .align 4 .b32 table[4] = {1, 2, 3, 4};
.entry k(.param .u64 a, .param .u64 b) .reqntid 64 {
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
  mov.u32 %r1, %tid.x; mov.b32 %r2, tile; mad.lo.u32 %r3, %r1, 4, %r2;
  mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3;
  ld.global.b32 %r4, [%rd4]; st.shared.b32 [%r3], %r4;
  bar.sync 0;
  xor.b32 %r5, %r1, 1; mad.lo.u32 %r6, %r5, 4, %r2; ld.shared.b32 %r7, [%r6];
  ld.global.b32 %r8, [table+4]; add.u32 %r7, %r7, %r8;
  st.global.b32 [%rd4], %r7;
  ret;
}
",
    ".version 8.0 .target sm_80 .address_size 64
.extern .shared .align 128 .b8 dynamic[];
.func (.param .b32 result) twice(.param .b32 x) {
  .reg .b32 %r<4>; ld.param.b32 %r1, [x]; shl.b32 %r2, %r1, 1; st.param.b32 [result], %r2; ret;
}
.visible .entry k(.param .align 8 .b8 s[24]) {
  .local .align 8 .b8 depot[32];
  .reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .f32 %f<8>; .reg .f64 %d<4>;
  ld.param.u64 %rd1, [s+8];
  mov.u32 %r1, %tid.x; mov.u32 %r9, 0;
LOOP:
  { .param .b32 arg; .param .b32 res;
    st.param.b32 [arg], %r9; call.uni (res), twice, (arg); ld.param.b32 %r2, [res]; }
  add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 3; @%p1 bra LOOP;
  st.local.b32 [depot+4], %r2; ld.local.b32 %r3, [depot+4];
  cvt.rn.f32.u32 %f1, %r3; sqrt.rn.f32 %f2, %f1; fma.rn.f32 %f3, %f1, %f2, 0f3f800000;
  fma.rm.ftz.sat.f32 %f4, %f1, %f2, %f3; div.rp.f32 %f5, %f1, %f4; cvt.rzi.u64.f32 %rd2, %f5;
  cvt.f64.f32 %d1, %f3; sqrt.rz.f64 %d2, %d1; rcp.rm.f64 %d3, %d2; cvt.rp.f32.f64 %f6, %d3;
  cvt.rmi.f32.f32 %f7, %f6; cvt.u16.u32 %h1, %r3; div.u32 %r4, %r3, %r1;
  shfl.sync.bfly.b32 %r5|%p2, %r3, 16, 31, -1; vote.sync.ballot.b32 %r6, %p2, -1;
  selp.b32 %r7, %r5, %r6, %p2; prmt.b32 %r8, %r7, %r6, 0x5410;
  atom.global.add.u32 %r10, [%rd1], %r8; red.global.max.u32 [%rd1+4], %r8;
  membar.gl; @!%p2 st.global.v2.b32 [%rd1+8], {%r7, %r8};
  ret;
}
",
    ".version 8.0 .target sm_80 .address_size 64
.shared .align 16 .b8 stage[1024];
.entry k(.param .u64 a, .param .u64 b) {
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
  ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; mov.b32 %r2, stage;
  mad.lo.u32 %r3, %r1, 16, %r2; mul.wide.u32 %rd3, %r1, 16; add.s64 %rd4, %rd1, %rd3;
  cp.async.cg.shared.global [%r3], [%rd4], 16, 8; cp.async.commit_group;
  cp.async.ca.shared.global [%r3], [%rd4], 4; cp.async.wait_group 0; cp.async.wait_all;
  mbarrier.init.shared.b64 [%r2], 64; cp.async.mbarrier.arrive.shared.b64 [%r2];
  cp.async.mbarrier.arrive.noinc.b64 [%rd1];
  barrier.sync 1, 64; bar.arrive 2, 128; bar.warp.sync 0xffffffff;
  bar.red.popc.u32 %r5, 0, %p1; activemask.b32 %r6; setp.ne.u32 %p1, %r6, 0;
  @%p1 bra THEN; bra ELSE;
THEN: trap;
ELSE: match.any.sync.b32 %r7, %r1, -1; elect.sync %r8|%p2, -1; redux.sync.add.u32 %r9, %r1, -1;
  exit;
}
",
    ".version 8.0 .target sm_90a .address_size 64
.shared .align 128 .b8 tile[1024];
.shared .align 8 .b64 full;
.entry k(.param .u64 a, .param .align 64 .b8 map[128]) {
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
  ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; mov.b32 %r2, tile; mov.b32 %r3, full;
  setp.ne.u32 %p1, %r1, 0; @%p1 bra WAIT;
  mbarrier.init.shared.b64 [%r3], 1; fence.mbarrier_init.release.cluster; fence.proxy.async;
  mbarrier.arrive.expect_tx.shared.b64 %rd2, [%r3], 256;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 256, [%r3];
  mov.b64 %rd5, map; cvta.param.u64 %rd5, %rd5; prefetch.tensormap [%rd5];
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd5, {%r1, %r1}], [%r3];
WAIT: bar.sync 0;
SPIN: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; @!%p2 bra SPIN;
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 256; cp.async.bulk.commit_group;
  cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd5, {%r1, %r1}], [%r2];
  cp.async.bulk.wait_group 0; setmaxnreg.dec.sync.aligned.u32 40; mbarrier.inval.shared.b64 [%r3];
  ret;
}
",
    ".version 8.0 .target sm_80 .address_size 64
.const .align 8 .b64 pointers[2] = {generic(counter), counter+8};
.global .align 8 .b64 counter[4];
.entry a() { ret; }
.entry k(.param .u64 a, .param .u32 n) .maxntid 128, 1, 1 .minnctapersm 2 {
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
  .loc 1 2 3
  ld.const.b64 %rd1, [pointers]; ld.b64 %rd2, [%rd1]; isspacep.global %p1, %rd1;
  bfe.u32 %r1, %r2, 3, 5; bfi.b32 %r3, %r1, %r2, 4, 8; lop3.b32 %r4, %r1, %r2, %r3, 0xe8;
  add.cc.u32 %r5, %r1, %r2; addc.u32 %r6, %r1, %r3; clz.b32 %r7, %r1; brev.b32 %r8, %r7;
  sub.cc.u32 %r5, %r1, %r2; madc.hi.cc.u32 %r6, %r1, %r3, %r2; mad24.hi.sat.s32 %r7, %r1, %r2, %r3;
  bmsk.clamp.b32 %r8, %r1, %r2; szext.wrap.s32 %r9, %r1, %r2; fns.b32 %r10, %r1, 3, -1;
  vshr.u32.u32.u32.clamp.add %r5, %r1.h1, %r2, %r3;
  dp2a.lo.s32.u32 %r11, %r1, %r2, %r3; cvt.pack.sat.u8.s32.b32 %r12, %r1, %r2, %r3;
  shf.l.wrap.b32 %r9, %r1, %r2, 7; dp4a.u32.u32 %r10, %r1, %r2, %r3; sad.u32 %r11, %r1, %r2, %r3;
  mov.b64 %rd3, {%r1, %r2}; mov.b64 {%r3, %r4}, %rd3; cvta.to.global.u64 %rd4, %rd1;
  ld.acquire.gpu.global.b32 %r12, [%rd1]; st.release.gpu.global.b32 [%rd1], %r12; nanosleep.u32 20;
  ret;
}
",
    ".version 8.0 .target sm_80 .address_size 64
.entry k(.param .u64 a) {
  .reg .pred %p<4>; .reg .b32 %r<20>;
  mov.u32 %r1, %laneid; mov.b32 %r2, 0;
OUTER: setp.gt.u32 %p1, %r2, %r1; @%p1 bra DONE; mov.b32 %r3, 0;
INNER: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, %r1; @%p2 bra INNER;
  add.u32 %r2, %r2, 1; bra.uni OUTER;
DONE: bar.sync 0; bra OUTER;
}
",
    ".version 8.0 .target sm_90a .address_size 64
.shared .align 1024 .b8 tile[4096];
.entry k(.param .u64 a) {
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .f32 %f<8>;
  mov.u32 %r1, %tid.x; mov.b32 %r2, tile; mad.lo.u32 %r3, %r1, 16, %r2; mov.f32 %f1, 0f00000000;
  ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r4, %r5, %r6, %r7}, [%r3+16];
  stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r3], {%r4, %r5}; movmatrix.sync.aligned.m8n8.trans.b16 %r8, %r4;
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r4, %r5, %r6, %r7}, {%r4, %r5}, {%f1, %f1, %f1, %f1};
  mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r9, %r10}, {%r4, %r5}, {%r6}, {%r7, %r7};
  shr.u32 %r11, %r2, 4; cvt.u64.u32 %rd1, %r11; or.b64 %rd1, %rd1, 0x4000004000000000;
  fence.proxy.async.shared::cta; wgmma.fence.sync.aligned; setp.ne.u32 %p1, %r1, 0;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd1, %rd1, %p1, 1, -1, 0, 1;
  wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1, %f2, %f3, %f4}, {%r4, %r5, %r6, %r7}, %rd1, %p1, -1, 1;
  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
  ret;
}
",
    ".version 8.0 .target sm_90a .address_size 64
.shared .align 128 .b8 tile[1024];
.shared .align 8 .b64 full;
.entry k(.param .u64 a) .reqnctapercluster 2, 1, 1 {
  .reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
  ld.param.u64 %rd1, [a]; mov.u32 %r1, %cluster_ctarank; xor.b32 %r2, %r1, 1; mov.b32 %r3, full;
  setp.eq.u32 %p1, %r1, 0; mbarrier.init.shared.b64 [%r3], 32; fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  mapa.shared::cluster.u32 %r4, tile, %r2; st.shared::cluster.b32 [%r4+4], %r1; mapa.u64 %rd2, %rd1, %r2;
  atom.shared::cluster.add.u32 %r5, [%r4], 1; getctarank.shared::cluster.u32 %r6, %r4; mov.u16 %h1, 3;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [tile], [%rd1], 16, [%r3], %h1;
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];
  fma.rn.f16x2 %r7, %r1, %r2, %r3; add.bf16 %h2, %h1, %h3; setp.lt.f16x2 %p2|%p3, %r1, %r2;
  atom.global.add.noftz.f16 %h4, [%rd1], %h2; cvt.rn.relu.bf16x2.f32 %r8, %r1, %r2;
  barrier.cluster.arrive.relaxed; barrier.cluster.wait;
  ret;
}
",
];
