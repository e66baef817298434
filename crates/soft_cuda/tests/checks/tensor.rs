//! Matrix instructions, and the async proxy.

use super::{Twin, check, module, run};
use soft_cuda::{Checks, Isa, Schedule};

/// Tiles of A, 64 x 16, in `tile`, and of B, 8 x 16, in `next`, by all threads of a warpgroup;
/// their descriptors in `%rd10` and `%rd11`, the accumulators in `%r30` to `%r33`. `%r20` and
/// `%r22` are what the thread wrote.
macro_rules! tiles {
    () => {
        "  mov.b32 %r21, next; mad.lo.u32 %r20, %r1, 16, %r3; mad.lo.u32 %r22, %r1, 16, %r21;
  st.shared.v4.b32 [%r20], {%r1, %r1, %r1, %r1}; st.shared.v4.b32 [%r22], {%r1, %r1, %r1, %r1};
"
    };
}
macro_rules! descriptors {
    () => {
        "  shr.u32 %r23, %r3, 4; cvt.u64.u32 %rd10, %r23; or.b64 %rd10, %rd10, 0x0000000800400000;
  shr.u32 %r23, %r21, 4; cvt.u64.u32 %rd11, %r23; or.b64 %rd11, %rd11, 0x0000000800080000;
  mov.b32 %r30, 0; mov.b32 %r31, 0; mov.b32 %r32, 0; mov.b32 %r33, 0; setp.eq.u32 %p5, 0, 0;
"
    };
}
macro_rules! ready {
    () => {
        concat!(tiles!(), "  fence.proxy.async.shared::cta; bar.sync 0;\n", descriptors!())
    };
}
macro_rules! multiply {
    () => {
        "  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r30, %r31, %r32, %r33}, %rd10, %rd11, %p5, 1, 1, 0, 0;
"
    };
}
macro_rules! multiply_registers {
    () => {
        "  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r30, %r31, %r32, %r33}, {%r34, %r35, %r36, %r37}, %rd11, %p5, 1, 1, 0;
"
    };
}

const FENCE: &str = "MissingProxyFence";

pub const TWINS: [Twin; 23] = [
    Twin {
        name: "an accumulator read before wait_group",
        found: "BadMatrix",
        threads: 128,
        blocks: 1,
        body: concat!(
            ready!(),
            "  wgmma.fence.sync.aligned;\n",
            multiply!(),
            "  wgmma.commit_group.sync.aligned;
BUG| st.global.b32 [%rd4], %r30;
  wgmma.wait_group.sync.aligned 0;
FIX| st.global.b32 [%rd4], %r30;"
        ),
    },
    Twin {
        name: "an accumulator written before wait_group",
        found: "BadMatrix",
        threads: 128,
        blocks: 1,
        body: concat!(
            ready!(),
            "  wgmma.fence.sync.aligned;\n",
            multiply!(),
            "  wgmma.commit_group.sync.aligned;
BUG| mov.b32 %r31, 0;
  wgmma.wait_group.sync.aligned 0;
  st.global.b32 [%rd4], %r31;"
        ),
    },
    Twin {
        name: "a wait that leaves the product whose accumulators are read",
        found: "BadMatrix",
        threads: 128,
        blocks: 1,
        body: concat!(
            ready!(),
            "  wgmma.fence.sync.aligned;\n",
            multiply!(),
            "  wgmma.commit_group.sync.aligned;
BUG| wgmma.wait_group.sync.aligned 1;
FIX| wgmma.wait_group.sync.aligned 0;
  st.global.b32 [%rd4], %r33;"
        ),
    },
    Twin {
        name: "a product that belongs to no group",
        found: "BadMatrix",
        threads: 128,
        blocks: 1,
        body: concat!(
            ready!(),
            "  wgmma.fence.sync.aligned;\n",
            multiply!(),
            "
FIX| wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0; st.global.b32 [%rd4], %r30;"
        ),
    },
    Twin {
        name: "a register of A changed while wgmma reads it",
        found: "BadMatrix",
        threads: 128,
        blocks: 1,
        body: concat!(
            ready!(),
            "  mov.b32 %r34, %r1; mov.b32 %r35, %r1; mov.b32 %r36, %r1; mov.b32 %r37, %r1;
  wgmma.fence.sync.aligned;\n",
            multiply_registers!(),
            "  wgmma.commit_group.sync.aligned;
BUG| add.u32 %r36, %r36, 1;
  wgmma.wait_group.sync.aligned 0;
FIX| add.u32 %r36, %r36, 1;
  st.global.b32 [%rd4], %r30;"
        ),
    },
    Twin {
        name: "no wgmma.fence before the first product",
        found: "BadMatrix",
        threads: 128,
        blocks: 1,
        body: concat!(
            ready!(),
            "
FIX| wgmma.fence.sync.aligned;\n",
            multiply!(),
            "  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
        ),
    },
    Twin {
        name: "no wgmma.fence after an accumulator was set",
        found: "BadMatrix",
        threads: 128,
        blocks: 1,
        body: concat!(
            ready!(),
            "  wgmma.fence.sync.aligned;\n",
            multiply!(),
            "  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
  mov.b32 %r32, 0;
FIX| wgmma.fence.sync.aligned;\n",
            multiply!(),
            "  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
        ),
    },
    Twin {
        name: "an accumulator of wgmma that nothing set",
        found: "UninitialisedRegister",
        threads: 128,
        blocks: 1,
        body: concat!(
            ready!(),
            "
BUG| setp.eq.u32 %p6, 0, 0;
FIX| setp.ne.u32 %p6, 0, 0;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r40, %r41, %r42, %r43}, %rd10, %rd11, %p6, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; st.global.b32 [%rd4], %r40;"
        ),
    },
    Twin {
        name: "a tile overwritten while wgmma reads it",
        found: "DataRace",
        threads: 128,
        blocks: 1,
        body: concat!(
            ready!(),
            "  wgmma.fence.sync.aligned;\n",
            multiply!(),
            "  wgmma.commit_group.sync.aligned;
BUG| st.shared.b32 [%r20], %r2;
  wgmma.wait_group.sync.aligned 0;
FIX| bar.sync 0; st.shared.b32 [%r20], %r2;"
        ),
    },
    Twin {
        name: "a tile released for the next copy before the product is complete",
        found: "DataRace",
        threads: 160,
        blocks: 1,
        body: concat!(
            "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1; mbarrier.init.shared.b64 [%r6], 1;
  fence.mbarrier_init.release.cluster;
INIT: setp.ge.u32 %p6, %r1, 128; @%p6 bra READY;
",
            tiles!(),
            "READY: fence.proxy.async.shared::cta; bar.sync 0; @%p6 bra PRODUCER;
",
            descriptors!(),
            "  wgmma.fence.sync.aligned;\n",
            multiply!(),
            "  wgmma.commit_group.sync.aligned;
BUG| @%p1 mbarrier.arrive.shared.b64 _, [%r6];
  wgmma.wait_group.sync.aligned 0;
FIX| @%p1 mbarrier.arrive.shared.b64 _, [%r6];
  st.global.b32 [%rd4], %r30; bra END;
PRODUCER: setp.ne.u32 %p7, %r1, 128; @%p7 bra END;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r6], 0; @!%p2 bra WAIT;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 128;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 128, [%r5];
END:"
        ),
    },
    Twin {
        name: "a tile overwritten before the other warpgroup has waited",
        found: "DataRace",
        threads: 256,
        blocks: 1,
        body: concat!(
            ready!(),
            "  wgmma.fence.sync.aligned;\n",
            multiply!(),
            "  wgmma.commit_group.sync.aligned; setp.eq.u32 %p7, %r1, 128;
BUG| bar.sync 0;
  wgmma.wait_group.sync.aligned 0;
FIX| bar.sync 0;
  @%p7 st.shared.b32 [%r21], %r2;"
        ),
    },
    Twin {
        name: "a wait for a product in place of a barrier",
        found: "DataRace",
        threads: 128,
        blocks: 1,
        body: concat!(
            ready!(),
            "  wgmma.fence.sync.aligned;\n",
            multiply!(),
            "  wgmma.commit_group.sync.aligned; xor.b32 %r24, %r4, 128;
  st.shared.b32 [%r4+2048], %r1; wgmma.wait_group.sync.aligned 0;
FIX| bar.sync 0;
  ld.shared.b32 %r25, [%r24+2048]; st.global.b32 [%rd4], %r25;"
        ),
    },
    Twin {
        name: "one arrival for the four warps whose product is complete, and whose threads read as well",
        found: "DataRace",
        threads: 160,
        blocks: 1,
        body: concat!(
            "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1;
  mbarrier.init.shared.b64 [%r6], 1;
  fence.mbarrier_init.release.cluster;
INIT: setp.ge.u32 %p6, %r1, 128; @%p6 bra READY;
",
            tiles!(),
            "READY: fence.proxy.async.shared::cta; bar.sync 0; @%p6 bra PRODUCER;
",
            descriptors!(),
            "  wgmma.fence.sync.aligned;\n",
            multiply!(),
            "  wgmma.commit_group.sync.aligned; 
BUG| ld.shared.b32 %r25, [%r22];
  wgmma.wait_group.sync.aligned 0;
  @%p1 mbarrier.arrive.shared.b64 _, [%r6];
  st.global.b32 [%rd4], %r30; bra END;
PRODUCER: setp.ne.u32 %p7, %r1, 128; @%p7 bra END;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r6], 0; @!%p2 bra WAIT;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 128;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [next], [%rd1], 128, [%r5];
END:"
        ),
    },
    Twin {
        name: "a tile that not all threads have written yet",
        found: "DataRace|Uninitialised",
        threads: 128,
        blocks: 1,
        body: concat!(
            tiles!(),
            "  fence.proxy.async.shared::cta;
FIX| bar.sync 0;
BUG| bar.warp.sync -1;\n",
            descriptors!(),
            "  wgmma.fence.sync.aligned;\n",
            multiply!(),
            "  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
        ),
    },
    Twin {
        name: "no fence.proxy.async between stores and wgmma",
        found: FENCE,
        threads: 128,
        blocks: 1,
        body: concat!(
            tiles!(),
            "
FIX| fence.proxy.async.shared::cta;
  bar.sync 0;\n",
            descriptors!(),
            "  wgmma.fence.sync.aligned;\n",
            multiply!(),
            "  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
        ),
    },
    Twin {
        name: "fence.proxy.async in front of the stores",
        found: FENCE,
        threads: 128,
        blocks: 1,
        body: concat!(
            "
BUG| fence.proxy.async.shared::cta;\n",
            tiles!(),
            "
FIX| fence.proxy.async.shared::cta;
  bar.sync 0;\n",
            descriptors!(),
            "  wgmma.fence.sync.aligned;\n",
            multiply!(),
            "  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
        ),
    },
    Twin {
        name: "no fence.proxy.async between a store and a bulk copy of it",
        found: FENCE,
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1;
FIX| fence.proxy.async.shared::cta;
  bar.sync 0; @!%p1 bra END;
  cp.async.bulk.global.shared::cta.bulk_group [%rd2], [tile], 128;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:",
    },
    Twin {
        name: "no fence.proxy.async between a store and a bulk copy over it",
        found: FENCE,
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1;
  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
INIT:
FIX| fence.proxy.async.shared::cta;
  bar.sync 0; @!%p1 bra WAIT;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 128;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 128, [%r5];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;",
    },
    Twin {
        name: "fence.proxy.async of device memory between a store and a bulk copy of it",
        found: FENCE,
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1;
BUG| fence.proxy.async.global;
FIX| fence.proxy.async.shared::cta;
  bar.sync 0; @!%p1 bra END;
  cp.async.bulk.global.shared::cta.bulk_group [%rd2], [tile], 128;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:",
    },
    Twin {
        name: "wgmma by part of a warpgroup",
        found: "WarpgroupDivergence",
        threads: 128,
        blocks: 1,
        body: concat!(
            ready!(),
            "
BUG| setp.ge.u32 %p6, %r1, 96; @%p6 bra END;
  wgmma.fence.sync.aligned;\n",
            multiply!(),
            "  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
BUG|END:"
        ),
    },
    Twin {
        name: "mma by part of a warp",
        found: "BarrierDivergence",
        threads: 32,
        blocks: 1,
        body: "  mov.b32 %r30, 0; mov.b32 %r31, 0; mov.b32 %r32, 0; mov.b32 %r33, 0;
BUG| setp.ge.u32 %p6, %r1, 16; @%p6 bra END;
  mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%r30, %r31, %r32, %r33}, {%r1, %r1}, {%r1}, {%r30, %r31, %r32, %r33};
BUG|END:",
    },
    Twin {
        name: "no barrier between a store and ldmatrix",
        found: "DataRace",
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1; mad.lo.u32 %r20, %r1, 16, %r3;
FIX| bar.warp.sync -1;
  ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r21}, [%r20]; st.global.b32 [%rd4], %r21;",
    },
    Twin {
        name: "no barrier between stmatrix and a load",
        found: "DataRace",
        threads: 32,
        blocks: 1,
        body: "  mad.lo.u32 %r20, %r1, 16, %r3;
  stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r20], {%r1};
FIX| bar.warp.sync -1;
  ld.shared.b32 %r21, [%r4]; st.global.b32 [%rd4], %r21;",
    },
];

#[test]
fn twins() {
    check(&TWINS, Checks::ALL);
}

/// Whether a missing fence is found in the bug of `body`, with and without the check of proxies,
/// and anything in its clean twin.
fn missing_fence(body: &'static str) -> [Option<&'static str>; 3] {
    let twin = Twin { name: "proxies", found: FENCE, threads: 32, blocks: 1, body };
    [("BUG|", true), ("BUG|", false), ("FIX|", true)].map(|(keep, proxies)| {
        let checks = Checks { proxies, ..Checks::ALL };
        let fault = run(&module(body, keep), &twin, checks, Schedule::InOrder, Isa::Auto);
        fault.map(|fault| fault.kind.name())
    })
}

/// Only where it is asked for: a GPU does not need it where the value was used.
#[test]
fn a_bulk_copy_over_what_threads_have_read() {
    let body = "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta;
  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
INIT: bar.sync 0; ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;
FIX| fence.proxy.async.shared::cta;
  bar.sync 0; @!%p1 bra WAIT;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 128;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 128, [%r5];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;";
    assert_eq!(missing_fence(body), [Some(FENCE), None, None]);
}

/// An asynchronous read behind that of a thread needs no fence; the thread's still does.
#[test]
fn a_bulk_copy_over_what_threads_and_then_a_bulk_copy_have_read() {
    let body = "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta;
  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
INIT: bar.sync 0; ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;
FIX| fence.proxy.async.shared::cta;
  bar.sync 0; @!%p1 bra WAIT;
  cp.async.bulk.global.shared::cta.bulk_group [%rd2+1024], [tile], 128;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 128;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 128, [%r5];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;";
    assert_eq!(missing_fence(body), [Some(FENCE), None, None]);
}
