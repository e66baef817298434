//! Idioms of kernels that are right, each with what is easily got wrong about it.

use super::{Twin, check};
use soft_cuda::Checks;

const RACE: &str = "DataRace";

pub const TWINS: [Twin; 34] = [
    Twin {
        name: "warp-aggregated atomics: the leader's base without the lane's rank",
        found: RACE,
        threads: 64,
        blocks: 2,
        body: "  and.b32 %r10, %r1, 1; setp.eq.u32 %p2, %r10, 0; @!%p2 bra END;
  activemask.b32 %r11; brev.b32 %r12, %r11; clz.b32 %r12, %r12; mov.u32 %r13, %laneid;
  popc.b32 %r14, %r11; setp.eq.u32 %p3, %r13, %r12; mov.b32 %r15, 0;
  @%p3 atom.global.add.u32 %r15, [%rd1], %r14;
  shfl.sync.idx.b32 %r15, %r15, %r12, 31, %r11;
  mov.u32 %r16, %lanemask_lt; and.b32 %r16, %r16, %r11; popc.b32 %r16, %r16;
FIX| add.u32 %r15, %r15, %r16;
  mul.wide.u32 %rd10, %r15, 4; add.s64 %rd10, %rd2, %rd10; st.global.b32 [%rd10], %r1;
END:",
    },
    Twin {
        name: "a buffer between named barriers: the producer does not wait until it is empty",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  setp.lt.u32 %p2, %r1, 32; mov.b32 %r20, 0; mov.b32 %r21, 0;
  @%p2 bra PRODUCER;
CONSUMER: bar.sync 1, 64;
  ld.shared.b32 %r12, [%r4+-128]; add.u32 %r21, %r21, %r12;
  bar.arrive 2, 64;
  add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, 4; @%p3 bra CONSUMER;
  st.global.b32 [%rd4], %r21; bra END;
PRODUCER:
FIX| setp.eq.u32 %p4, %r20, 0; @%p4 bra EMPTY; bar.sync 2, 64;
EMPTY: st.shared.b32 [%r4], %r20;
  bar.arrive 1, 64;
  add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, 4; @%p3 bra PRODUCER;
FIX| bar.sync 2, 64;
END:",
    },
    Twin {
        name: "two buffers of cp.async: no empty group behind the last copies",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  xor.b32 %r10, %r1, 32; mad.lo.u32 %r11, %r10, 4, %r3; mov.b32 %r20, 0; mov.b32 %r21, 0;
  cp.async.ca.shared.global [%r4], [%rd3], 4; cp.async.commit_group;
LOOP: setp.ge.u32 %p2, %r20, 3; and.b32 %r22, %r20, 1; shl.b32 %r22, %r22, 9; xor.b32 %r23, %r22, 512;
  add.u32 %r24, %r4, %r23; add.u32 %r25, %r11, %r22;
  @%p2 bra NONE; add.s64 %rd3, %rd3, 256; cp.async.ca.shared.global [%r24], [%rd3], 4;
BUG| cp.async.commit_group;
NONE:
FIX| cp.async.commit_group;
  cp.async.wait_group 1; bar.sync 0;
  ld.shared.b32 %r12, [%r25]; add.u32 %r21, %r21, %r12;
  bar.sync 0;
  add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, 4; @%p3 bra LOOP;
  st.global.b32 [%rd4], %r21;",
    },
    Twin {
        name: "two buffers with one barrier for each turn: a single buffer",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  xor.b32 %r10, %r1, 32; mad.lo.u32 %r11, %r10, 4, %r3; mov.b32 %r20, 0; mov.b32 %r21, 0;
LOOP:
FIX| and.b32 %r22, %r20, 1;
BUG| mov.b32 %r22, 0;
  shl.b32 %r22, %r22, 9; add.u32 %r24, %r4, %r22; add.u32 %r25, %r11, %r22;
  st.shared.b32 [%r24], %r20; bar.sync 0;
  ld.shared.b32 %r12, [%r25]; add.u32 %r21, %r21, %r12;
  add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, 5; @%p3 bra LOOP;
  st.global.b32 [%rd4], %r21;",
    },
    Twin {
        name: "a ring of mbarriers: the parity stays as it is",
        found: "DataRace|Deadlock",
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 32; mbarrier.init.shared.b64 [%r6], 32;
INIT: bar.sync 0; setp.lt.u32 %p2, %r1, 32; mov.b32 %r20, 0; mov.b32 %r21, 0; mov.b32 %r22, 0;
  @%p2 bra PRODUCER;
FULL: mbarrier.try_wait.parity.shared.b64 %p3, [%r5], %r22; @!%p3 bra FULL;
  ld.shared.b32 %r12, [%r4+-128]; add.u32 %r21, %r21, %r12;
  mbarrier.arrive.shared.b64 _, [%r6];
FIX| xor.b32 %r22, %r22, 1;
  add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, 5; @%p3 bra FULL;
  st.global.b32 [%rd4], %r21; bra END;
PRODUCER: xor.b32 %r23, %r22, 1;
EMPTY: mbarrier.try_wait.parity.shared.b64 %p3, [%r6], %r23; @!%p3 bra EMPTY;
  st.shared.b32 [%r4], %r20; mbarrier.arrive.shared.b64 _, [%r5];
  xor.b32 %r22, %r22, 1;
  add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, 5; @%p3 bra PRODUCER;
END:",
    },
    Twin {
        name: "a state of an mbarrier that is waited for: of a phase before",
        found: "DataRace|Uninitialised",
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 64;
INIT: bar.sync 0; xor.b32 %r10, %r1, 32; mad.lo.u32 %r11, %r10, 4, %r3;
  mbarrier.arrive.shared.b64 %rd10, [%r5];
W1: mbarrier.test_wait.shared.b64 %p2, [%r5], %rd10; @!%p2 bra W1;
  st.shared.b32 [%r4], %r1;
FIX| mbarrier.arrive.shared.b64 %rd10, [%r5];
BUG| mbarrier.arrive.shared.b64 %rd11, [%r5];
W2: mbarrier.test_wait.shared.b64 %p2, [%r5], %rd10; @!%p2 bra W2;
  ld.shared.b32 %r12, [%r11]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a message that a block passes on: without acquire",
        found: RACE,
        threads: 1,
        blocks: 3,
        body: "  setp.eq.u32 %p2, %r2, 1; @%p2 bra B; setp.eq.u32 %p2, %r2, 2; @%p2 bra C;
  st.global.b32 [%rd2], 5; st.release.gpu.global.b32 [%rd1], 77; bra END;
B:
FIX| ld.acquire.gpu.global.b32 %r10, [%rd1];
BUG| ld.relaxed.gpu.global.b32 %r10, [%rd1];
  setp.ne.u32 %p3, %r10, 77; @%p3 bra B; st.release.gpu.global.b32 [%rd1+128], 78; bra END;
C: ld.acquire.gpu.global.b32 %r10, [%rd1+128]; setp.ne.u32 %p3, %r10, 78; @%p3 bra C;
  ld.global.b32 %r12, [%rd2]; st.global.b32 [%rd2+16], %r12;
END:",
    },
    Twin {
        name: "a message behind an acquire, which is no release",
        found: RACE,
        threads: 1,
        blocks: 2,
        body: "  setp.eq.u32 %p2, %r2, 1; @%p2 bra READER;
  st.global.b32 [%rd2], 5; ld.acquire.gpu.global.b32 %r11, [%rd1+128];
FIX| st.release.gpu.global.b32 [%rd1], 77;
BUG| st.relaxed.gpu.global.b32 [%rd1], 77;
  bra END;
READER: ld.acquire.gpu.global.b32 %r10, [%rd1]; setp.ne.u32 %p3, %r10, 77; @%p3 bra READER;
  ld.global.b32 %r12, [%rd2]; st.global.b32 [%rd2+16], %r12;
END:",
    },
    Twin {
        name: "a barrier with a reduction: a vote of the warp in its place",
        found: "DataRace|Uninitialised",
        threads: 64,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1; setp.gt.u32 %p2, %r1, 60;
FIX| barrier.red.or.pred %p3, 0, %p2;
BUG| vote.sync.any.pred %p3, %p2, -1;
  xor.b32 %r10, %r1, 32; mad.lo.u32 %r11, %r10, 4, %r3;
  ld.shared.b32 %r12, [%r11]; selp.b32 %r13, %r12, 0, %p3; st.global.b32 [%rd4], %r13;",
    },
    Twin {
        name: "a shuffle in the place of a barrier of the warp",
        found: RACE,
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1;
FIX| bar.warp.sync -1;
  shfl.sync.bfly.b32 %r13, %r1, 1, 31, -1;
  xor.b32 %r10, %r1, 1; mad.lo.u32 %r11, %r10, 4, %r3;
  ld.shared.b32 %r12, [%r11]; add.u32 %r12, %r12, %r13; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "shared memory as words, then as bytes, with no barrier between",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1; bar.sync 0;
  xor.b32 %r10, %r1, 32; mad.lo.u32 %r11, %r10, 4, %r3; ld.shared.b32 %r12, [%r11];
FIX| bar.sync 0;
  add.u32 %r13, %r3, %r1; cvt.u16.u32 %h1, %r12; st.shared.u8 [%r13], %h1;
  bar.sync 0;
  and.b32 %r14, %r1, 7; mad.lo.u32 %r15, %r14, 8, %r3; ld.shared.b64 %rd10, [%r15];
  cvt.u32.u64 %r16, %rd10; st.global.b32 [%rd4], %r16;",
    },
    Twin {
        name: "a lock of the whole block: released by one thread before the others are done",
        found: RACE,
        threads: 64,
        blocks: 2,
        body: "  @!%p1 bra IN;
LOCK: atom.acquire.gpu.global.cas.b32 %r10, [%rd1], 0, 1; setp.ne.u32 %p2, %r10, 0; @%p2 bra LOCK;
IN: bar.sync 0; mul.wide.u32 %rd10, %r1, 4; add.s64 %rd10, %rd1, %rd10;
  ld.global.b32 %r11, [%rd10+1024]; add.u32 %r11, %r11, 1; st.global.b32 [%rd10+1024], %r11;
FIX| bar.sync 0;
  @%p1 fence.acq_rel.gpu;
  @%p1 atom.relaxed.gpu.global.exch.b32 %r10, [%rd1], 0;",
    },
    Twin {
        name: "a ticket lock: the next ticket is called before the store",
        found: RACE,
        threads: 1,
        blocks: 4,
        body: "  atom.relaxed.gpu.global.add.u32 %r10, [%rd1], 1;
WAIT: ld.acquire.gpu.global.b32 %r11, [%rd1+512]; sub.u32 %r11, %r11, 128; setp.ne.u32 %p2, %r11, %r10; @%p2 bra WAIT;
  ld.global.b32 %r12, [%rd1+1024]; add.u32 %r12, %r12, 1;
FIX| st.global.b32 [%rd1+1024], %r12;
  add.u32 %r13, %r10, 129; st.release.gpu.global.b32 [%rd1+512], %r13;
BUG| st.global.b32 [%rd1+1024], %r12;",
    },
    Twin {
        name: "a barrier of the grid: the block's own barrier is missing in front of it",
        found: RACE,
        threads: 64,
        blocks: 2,
        body: "  st.global.b32 [%rd4], %r1;
FIX| bar.sync 0;
  @!%p1 bra AFTER; fence.acq_rel.gpu; atom.relaxed.gpu.global.add.u32 %r10, [%rd1], 1;
SPIN: ld.relaxed.gpu.global.b32 %r11, [%rd1]; setp.lt.u32 %p2, %r11, 2; @%p2 bra SPIN;
  fence.acq_rel.gpu;
AFTER: bar.sync 0;
  xor.b32 %r12, %r8, 64; mul.wide.u32 %rd10, %r12, 4; add.s64 %rd10, %rd2, %rd10;
  ld.global.b32 %r13, [%rd10]; st.global.b32 [%rd3+4096], %r13;",
    },
    Twin {
        name: "an atomic of the block's scope for two blocks",
        found: RACE,
        threads: 32,
        blocks: 2,
        body: "
FIX| red.relaxed.gpu.global.add.u32 [%rd1], 1;
BUG| red.relaxed.cta.global.add.u32 [%rd1], 1;",
    },
    Twin {
        name: "a release of the block's scope for another block",
        found: RACE,
        threads: 1,
        blocks: 2,
        body: "  setp.eq.u32 %p2, %r2, 1; @%p2 bra READER;
  st.global.b32 [%rd2], 5;
FIX| st.release.gpu.global.b32 [%rd1], 77;
BUG| st.release.cta.global.b32 [%rd1], 77;
  bra END;
READER: ld.acquire.gpu.global.b32 %r10, [%rd1]; setp.ne.u32 %p3, %r10, 77; @%p3 bra READER;
  ld.global.b32 %r12, [%rd2]; st.global.b32 [%rd2+16], %r12;
END:",
    },
    Twin {
        name: "an acquire of the block's scope for another block",
        found: RACE,
        threads: 1,
        blocks: 2,
        body: "  setp.eq.u32 %p2, %r2, 1; @%p2 bra READER;
  st.global.b32 [%rd2], 5; st.release.gpu.global.b32 [%rd1], 77;
  bra END;
READER:
FIX| ld.acquire.gpu.global.b32 %r10, [%rd1];
BUG| ld.acquire.cta.global.b32 %r10, [%rd1];
  setp.ne.u32 %p3, %r10, 77; @%p3 bra READER;
  ld.global.b32 %r12, [%rd2]; st.global.b32 [%rd2+16], %r12;
END:",
    },
    Twin {
        name: "atomics of two sizes on the same bytes",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  setp.lt.u32 %p2, %r1, 32; mov.b64 %rd10, 1;
FIX| @%p2 red.global.add.u64 [%rd1+8], %rd10;
BUG| @%p2 red.global.add.u64 [%rd1], %rd10;
  @!%p2 red.global.add.u32 [%rd1], 1;",
    },
    Twin {
        name: "an atomic on device memory that has no value",
        found: "Uninitialised",
        threads: 32,
        blocks: 1,
        body: "
FIX| @%p1 st.global.b32 [%rd2], 0;
FIX| bar.warp.sync -1;
  red.global.add.u32 [%rd2], 1;",
    },
    Twin {
        name: "a copy that fills with zeros, and one that leaves off",
        found: "Uninitialised",
        threads: 32,
        blocks: 1,
        body: "  mad.lo.u32 %r10, %r1, 16, %r3; mul.wide.u32 %rd10, %r1, 16; add.s64 %rd10, %rd1, %rd10;
FIX| mov.b32 %r11, 4; cp.async.cg.shared.global [%r10], [%rd10], 16, %r11;
BUG| cp.async.ca.shared.global [%r10], [%rd10], 4;
  cp.async.wait_all;
  ld.shared.b32 %r12, [%r10+12]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a release of the cluster's scope for a block of another cluster",
        found: RACE,
        threads: 1,
        blocks: 2,
        body: "  setp.eq.u32 %p2, %r2, 1; @%p2 bra READER;
  st.global.b32 [%rd2], 5;
FIX| st.release.gpu.global.b32 [%rd1], 77;
BUG| st.release.cluster.global.b32 [%rd1], 77;
  bra END;
READER: ld.acquire.gpu.global.b32 %r10, [%rd1]; setp.ne.u32 %p3, %r10, 77; @%p3 bra READER;
  ld.global.b32 %r12, [%rd2]; st.global.b32 [%rd2+16], %r12;
END:",
    },
    Twin {
        name: "one named barrier for two pairs of warps at the same time",
        found: "BadBarrier|DataRace",
        threads: 128,
        blocks: 1,
        body: "  shr.u32 %r13, %r1, 6;
FIX| add.u32 %r13, %r13, 1;
BUG| mov.b32 %r13, 1;
  st.shared.b32 [%r4], %r1; barrier.sync %r13, 64;
  xor.b32 %r10, %r1, 32; mad.lo.u32 %r11, %r10, 4, %r3;
  ld.shared.b32 %r12, [%r11]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a value for the other lanes of a branch: the mask names those of both branches",
        found: "BadMask|BarrierDivergence",
        threads: 32,
        blocks: 1,
        body: "  and.b32 %r10, %r1, 1; setp.eq.u32 %p2, %r10, 0; mov.b32 %r11, 0; @!%p2 bra ODD;
FIX| shfl.sync.idx.b32 %r11, %r1, 4, 31, 0x55555555;
BUG| shfl.sync.idx.b32 %r11, %r1, 4, 31, 0xffffffff;
ODD: bar.warp.sync -1; st.global.b32 [%rd4], %r11;",
    },
    Twin {
        name: "lanes that leave early: a mask with them",
        found: "BadMask|BarrierDivergence",
        threads: 32,
        blocks: 1,
        body: "  setp.lt.u32 %p2, %r1, 24; @!%p2 bra END;
FIX| mov.b32 %r10, 0x00ffffff;
BUG| mov.b32 %r10, 0x00fffff0;
  vote.sync.ballot.b32 %r11, %p1, %r10; st.global.b32 [%rd4], %r11;
END:",
    },
    Twin {
        name: "a flag that is handed on by atomics, and one that a store has replaced",
        found: RACE,
        threads: 96,
        blocks: 1,
        body: "  @%p1 st.shared.b32 [next], 0; bar.sync 0;
  setp.eq.u32 %p2, %r1, 32; @%p2 bra SECOND; setp.eq.u32 %p2, %r1, 64; @%p2 bra THIRD; @!%p1 bra END;
  st.shared.b32 [tile], 5; st.release.cta.shared.b32 [next], 1; bra END;
SECOND: ld.relaxed.cta.shared.b32 %r10, [next]; setp.ne.u32 %p3, %r10, 1; @%p3 bra SECOND;
FIX| atom.relaxed.cta.shared.add.u32 %r11, [next], 1; bra END;
BUG| st.relaxed.cta.shared.b32 [next], 2; bra END;
THIRD: ld.relaxed.cta.shared.b32 %r10, [next]; setp.ne.u32 %p3, %r10, 2; @%p3 bra THIRD;
  ld.acquire.cta.shared.b32 %r10, [next];
  ld.shared.b32 %r12, [tile]; st.global.b32 [%rd4], %r12;
END:",
    },
    Twin {
        name: "a histogram in shared memory: the counts are not atomic",
        found: RACE,
        threads: 64,
        blocks: 2,
        body: "  st.shared.b32 [%r4], 0; bar.sync 0;
  ld.global.b32 %r10, [%rd3]; and.b32 %r10, %r10, 7; mad.lo.u32 %r11, %r10, 4, %r3;
FIX| red.shared.add.u32 [%r11], 1;
BUG| ld.shared.b32 %r12, [%r11]; add.u32 %r12, %r12, 1; st.shared.b32 [%r11], %r12;
  bar.sync 0; setp.lt.u32 %p2, %r1, 8; @!%p2 bra END;
  ld.shared.b32 %r13, [%r4]; mul.wide.u32 %rd10, %r1, 4; add.s64 %rd10, %rd1, %rd10;
  red.global.add.u32 [%rd10+8192], %r13;
END:",
    },
    Twin {
        name: "a tree of sums in shared memory: no barrier of the warp in the last steps",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1; mov.b32 %r20, 32;
LOOP: bar.sync 0; setp.ge.u32 %p2, %r1, %r20; @%p2 bra SKIP;
  mad.lo.u32 %r11, %r20, 4, %r4; ld.shared.b32 %r12, [%r11]; ld.shared.b32 %r13, [%r4]; add.u32 %r12, %r12, %r13; st.shared.b32 [%r4], %r12;
SKIP: shr.u32 %r20, %r20, 1; setp.gt.u32 %p3, %r20, 8; @%p3 bra LOOP;
  bar.sync 0; setp.ge.u32 %p2, %r1, 32; @%p2 bra END;
LAST: mad.lo.u32 %r11, %r20, 4, %r4; ld.shared.b32 %r12, [%r11]; ld.shared.b32 %r13, [%r4]; add.u32 %r12, %r12, %r13;
FIX| bar.warp.sync -1;
  st.shared.b32 [%r4], %r12;
FIX| bar.warp.sync -1;
  shr.u32 %r20, %r20, 1; setp.gt.u32 %p3, %r20, 0; @%p3 bra LAST;
  st.global.b32 [%rd4], %r12;
END:",
    },
    Twin {
        name: "a transpose in shared memory with no barrier",
        found: "DataRace|Uninitialised",
        threads: 64,
        blocks: 1,
        body: "  and.b32 %r10, %r1, 7; shr.u32 %r11, %r1, 3; mad.lo.u32 %r12, %r10, 9, %r11; mad.lo.u32 %r13, %r11, 9, %r10;
  mad.lo.u32 %r12, %r12, 4, %r3; mad.lo.u32 %r13, %r13, 4, %r3;
  ld.global.b32 %r14, [%rd3]; st.shared.b32 [%r12], %r14;
FIX| bar.sync 0;
  ld.shared.b32 %r15, [%r13]; st.global.b32 [%rd4], %r15;",
    },
    Twin {
        name: "stores of vectors that overlap those of the neighbour",
        found: RACE,
        threads: 32,
        blocks: 1,
        body: "
FIX| mul.wide.u32 %rd10, %r1, 16;
BUG| shr.u32 %r10, %r1, 1; mul.wide.u32 %rd10, %r10, 16;
  add.s64 %rd10, %rd2, %rd10; st.global.v4.b32 [%rd10], {%r1, %r1, %r1, %r1};",
    },
    Twin {
        name: "a block's partial vectors, read by another one after a flag of another round",
        found: RACE,
        threads: 32,
        blocks: 2,
        body: "  mul.wide.u32 %rd10, %r1, 16; add.s64 %rd10, %rd2, %rd10; setp.eq.u32 %p2, %r2, 1; @%p2 bra READER;
  st.global.v4.b32 [%rd10], {%r1, %r1, %r1, %r1};
BUG| bar.warp.sync -1; @%p1 st.release.gpu.global.b32 [%rd1], 77;
  st.global.v4.b32 [%rd10+512], {%r1, %r1, %r1, %r1};
FIX| bar.warp.sync -1; @%p1 st.release.gpu.global.b32 [%rd1], 77;
  bra END;
READER: @!%p1 bra SEEN;
SPIN: ld.acquire.gpu.global.b32 %r10, [%rd1]; setp.ne.u32 %p3, %r10, 77; @%p3 bra SPIN;
SEEN: bar.warp.sync -1;
  ld.global.v4.b32 {%r11, %r12, %r13, %r14}, [%rd10]; ld.global.v4.b32 {%r15, %r16, %r17, %r18}, [%rd10+512];
  add.u32 %r11, %r11, %r15; st.global.b32 [%rd3+4096], %r11;
END:",
    },
    Twin {
        name: "a block's partial vectors, one word of which another thread replaces",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  mul.wide.u32 %rd10, %r1, 16; add.s64 %rd10, %rd2, %rd10;
  st.global.v4.b32 [%rd10], {%r1, %r1, %r1, %r1};
  bar.sync 0;
  setp.eq.u32 %p2, %r1, 40; @%p2 st.global.b32 [%rd2+20], %r1;
FIX| bar.sync 0;
  ld.global.v4.b32 {%r11, %r12, %r13, %r14}, [%rd10]; add.u32 %r11, %r11, %r12; st.global.b32 [%rd3+4096], %r11;",
    },
    Twin {
        name: "a block's partial vectors, stored over a word that another thread reads",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  mul.wide.u32 %rd10, %r1, 16; add.s64 %rd10, %rd2, %rd10;
  st.global.v4.b32 [%rd10], {%r1, %r1, %r1, %r1};
  bar.sync 0;
  setp.eq.u32 %p2, %r1, 40; @%p2 ld.global.b32 %r20, [%rd2+20];
FIX| bar.sync 0;
  st.global.v4.b32 [%rd10], {%r1, %r1, %r1, %r1};
  @%p2 st.global.b32 [%rd3+4096], %r20;",
    },
    Twin {
        name: "a transposed tile, whose rows overlap",
        found: RACE,
        threads: 32,
        blocks: 1,
        body: "  and.b32 %r10, %r1, 1; shr.u32 %r11, %r1, 1;
FIX| mad.lo.u32 %r12, %r10, 16, %r11;
BUG| mad.lo.u32 %r12, %r10, 15, %r11;
  mad.lo.u32 %r12, %r12, 4, %r3; st.shared.b32 [%r12], %r1;",
    },
    Twin {
        name: "a transposed tile, stored over what others still read",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  and.b32 %r10, %r1, 1; shr.u32 %r11, %r1, 1; mad.lo.u32 %r12, %r10, 32, %r11;
  mad.lo.u32 %r12, %r12, 4, %r3; st.shared.b32 [%r12], %r1; bar.sync 0;
  ld.shared.b32 %r13, [%r4];
FIX| bar.sync 0;
  st.shared.b32 [%r12], %r13;",
    },
];

#[test]
fn twins() {
    check(&TWINS, Checks::ALL);
}
