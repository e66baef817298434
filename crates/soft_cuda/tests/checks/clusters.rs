//! Clusters: the shared memory of other blocks, and how long it is there.

use super::{Twin, check};
use soft_cuda::Checks;

/// Kernels of clusters of two blocks.
pub const TWINS: [Twin; 14] = [
    Twin {
        name: "device memory that another block of the cluster writes",
        found: "DataRace",
        threads: 64,
        blocks: 4,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  st.global.b32 [%rd4], %r8;
FIX| barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
BUG| bar.sync 0;
  xor.b32 %r10, %r8, 64; mul.wide.u32 %rd10, %r10, 4; add.s64 %rd10, %rd2, %rd10;
  ld.global.b32 %r12, [%rd10]; add.u32 %r12, %r12, 1; st.shared.b32 [%r4], %r12;",
    },
    Twin {
        name: "another block's shared memory before it is written",
        found: "DataRace",
        threads: 64,
        blocks: 4,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  st.shared.b32 [%r4], %r8;
FIX| barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
BUG| bar.sync 0;
  mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1;
  mapa.shared::cluster.u32 %r11, %r4, %r10; ld.shared::cluster.b32 %r12, [%r11];
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "the same by a generic address",
        found: "DataRace",
        threads: 64,
        blocks: 2,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  st.shared.b32 [%r4], %r8;
FIX| barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1;
  cvt.u64.u32 %rd10, %r4; cvta.shared.u64 %rd10, %rd10; mapa.u64 %rd10, %rd10, %r10;
  ld.b32 %r12, [%rd10];
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a relaxed arrival at the barrier of the cluster",
        found: "DataRace",
        threads: 32,
        blocks: 2,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  st.shared.b32 [%r4], %r8;
FIX| barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
BUG| barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;
  mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1;
  mapa.shared::cluster.u32 %r11, %r4, %r10; ld.shared::cluster.b32 %r12, [%r11];
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a store to another block's shared memory after the arrival",
        found: "DataRace",
        threads: 32,
        blocks: 2,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1; mapa.shared::cluster.u32 %r11, %r4, %r10;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
FIX| st.shared::cluster.b32 [%r11], %r8;
  barrier.cluster.arrive.aligned;
BUG| st.shared::cluster.b32 [%r11], %r8;
  barrier.cluster.wait.aligned;
  ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;
BUG| barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
    },
    Twin {
        name: "both blocks add to one word without atomics",
        found: "DataRace",
        threads: 32,
        blocks: 2,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  mov.b32 %r10, 0; st.shared.b32 [%r4], %r10; mapa.shared::cluster.u32 %r11, %r4, 0;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
FIX| atom.shared::cluster.add.u32 %r12, [%r11], 1;
BUG| ld.shared::cluster.b32 %r12, [%r11]; add.u32 %r12, %r12, 1; st.shared::cluster.b32 [%r11], %r12;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a block that exits while another one may still read its shared memory",
        found: "ExitedBlock",
        threads: 64,
        blocks: 2,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  st.shared.b32 [%r4], %r8;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1; mapa.shared::cluster.u32 %r11, %r4, %r10;
  ld.shared::cluster.b32 %r12, [%r11];
FIX| barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "an arrival at the mbarrier of a block that may have exited",
        found: "ExitedBlock",
        threads: 32,
        blocks: 2,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  @%p1 mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  mov.u32 %r10, %cluster_ctarank; setp.eq.u32 %p2, %r10, 0; @%p2 bra END;
  mapa.shared::cluster.u32 %r11, %r5, 0;
  @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];
END:
FIX| barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
    },
    Twin {
        name: "an mbarrier of another block that may not be initialised",
        found: "BadBarrier",
        threads: 32,
        blocks: 2,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  @%p1 mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
FIX| barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
BUG| bar.sync 0;
  mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1; mapa.shared::cluster.u32 %r11, %r5, %r10;
  @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
    },
    Twin {
        name: "a copy to two blocks over what one of them still reads",
        found: "DataRace|MissingProxyFence",
        threads: 32,
        blocks: 2,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  @%p1 mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
  st.shared.b32 [%r4], %r8;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  ld.shared.b32 %r12, [%r4]; fence.proxy.async.shared::cta;
  mov.u32 %r10, %cluster_ctarank; setp.eq.u32 %p2, %r10, 0; and.pred %p3, %p1, %p2;
FIX| barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
BUG| bar.sync 0;
  @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 128;
  mov.u16 %h1, 3; @!%p3 bra WAIT;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [tile], [%rd1], 128, [%r5], %h1;
WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r5], 0; @!%p4 bra WAIT;
  ld.shared.b32 %r13, [%r4]; add.u32 %r12, %r12, %r13; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "fence.proxy.async of the block's own memory between a store to another block's and a bulk copy of it",
        found: "MissingProxyFence",
        threads: 32,
        blocks: 2,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1; mapa.shared::cluster.u32 %r11, %r4, %r10;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  st.shared::cluster.b32 [%r11], %r1;
BUG| fence.proxy.async.shared::cta;
FIX| fence.proxy.async.shared::cluster;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; @!%p1 bra END;
  cp.async.bulk.global.shared::cta.bulk_group [%rd4], [tile], 128;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:",
    },
    Twin {
        name: "fence.proxy.async only in front of the barrier with blocks that store to this one's memory",
        found: "MissingProxyFence",
        threads: 32,
        blocks: 2,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1; mapa.shared::cluster.u32 %r11, %r4, %r10;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  st.shared::cluster.b32 [%r11], %r1;
BUG| fence.proxy.async.shared::cta;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; @!%p1 bra END;
FIX| fence.proxy.async.shared::cta;
  cp.async.bulk.global.shared::cta.bulk_group [%rd4], [tile], 128;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:",
    },
    Twin {
        name: "a copy to two blocks that one of them does not wait for",
        found: "DataRace|ExitedBlock",
        threads: 32,
        blocks: 2,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  @%p1 mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 128;
  mov.u32 %r10, %cluster_ctarank; setp.eq.u32 %p2, %r10, 0; and.pred %p3, %p1, %p2;
  mov.u16 %h1, 3; @!%p3 bra WAIT;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [tile], [%rd1], 128, [%r5], %h1;
WAIT:
BUG| @!%p2 bra READ;
SPIN: mbarrier.try_wait.parity.shared.b64 %p4, [%r5], 0; @!%p4 bra SPIN;
READ:
BUG| barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  ld.shared.b32 %r13, [%r4]; st.global.b32 [%rd4], %r13;
BUG| barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
    },
    Twin {
        name: "each block arrives at its own mbarrier, and waits for the other's arrival",
        found: "Deadlock",
        threads: 32,
        blocks: 2,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  @%p1 mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  mov.u32 %r10, %cluster_ctarank;
FIX| xor.b32 %r10, %r10, 1;
BUG| mov.b32 %r10, 0;
  mapa.shared::cluster.u32 %r11, %r5, %r10; setp.eq.u32 %p2, %r10, 0;
BUG| and.pred %p1, %p1, %p2; mov.u32 %r12, %cluster_ctarank; setp.eq.and.u32 %p1, %r12, 0, %p1;
  @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r5], 0; @!%p4 bra WAIT;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
    },
];

#[test]
fn twins() {
    check(&TWINS, Checks { races: true, ..Checks::NONE });
}
