//! Bulk copies: what they read and write, until when.

use super::{Twin, check, device};
use soft_cuda::{
    Checks, Fill, Isa, LaunchConfig, LaunchError, Schedule, Swizzle, TensorElement, TensorMap,
};

const RACE: &str = "DataRace";

pub const TWINS: [Twin; 8] = [
    Twin {
        name: "the source of a bulk copy that nobody wrote",
        found: "Uninitialised",
        threads: 32,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;
INIT: bar.sync 0; @!%p1 bra WAIT;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 128;
FIX| cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 128, [%r5];
BUG| cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd2], 128, [%r5];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
  ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a buffer overwritten while a bulk copy still reads it",
        found: RACE,
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p1 bra NEXT;
  cp.async.bulk.global.shared::cta.bulk_group [%rd2], [tile], 128; cp.async.bulk.commit_group;
FIX| cp.async.bulk.wait_group.read 0;
NEXT: bar.warp.sync -1;
  st.shared.b32 [%r4], 7;
  @%p1 cp.async.bulk.wait_group 0;",
    },
    Twin {
        name: "what a bulk copy writes to device memory, read before it is there",
        found: "DataRace|Uninitialised",
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p1 bra NEXT;
  cp.async.bulk.global.shared::cta.bulk_group [%rd2], [tile], 128; cp.async.bulk.commit_group;
FIX| cp.async.bulk.wait_group 0;
BUG| cp.async.bulk.wait_group.read 0;
NEXT: bar.warp.sync -1;
  ld.global.b32 %r10, [%rd4]; st.global.b32 [%rd3], %r10;",
    },
    Twin {
        name: "tiles that blocks store by bulk copies up to the kernel's end overlap",
        found: RACE,
        threads: 32,
        blocks: 2,
        body: "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p1 bra END;
FIX| mul.wide.u32 %rd10, %r2, 128; add.s64 %rd10, %rd2, %rd10;
BUG| mul.wide.u32 %rd10, %r2, 112; add.s64 %rd10, %rd2, %rd10;
  cp.async.bulk.global.shared::cta.bulk_group [%rd10], [tile], 128; cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
END:",
    },
    Twin {
        name: "a bulk copy up to the kernel's end over what another block has read",
        found: RACE,
        threads: 32,
        blocks: 2,
        body: "  setp.eq.u32 %p2, %r2, 1; @%p2 bra STORE;
FIX| ld.global.b32 %r10, [%rd1+256];
BUG| ld.global.b32 %r10, [%rd1+124];
  st.global.b32 [%rd4], %r10; bra END;
STORE: st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p1 bra END;
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [tile], 128; cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
END:",
    },
    Twin {
        name: "what a bulk copy writes, which has only read its source, read between two barriers",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.sync 0; @!%p1 bra NEXT;
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [tile], 256; cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
FIX| cp.async.bulk.wait_group 0;
NEXT: bar.sync 0;
  ld.global.b32 %r10, [%rd3]; st.global.b32 [%rd4], %r10;
  bar.sync 0;
FIX| @%p1 st.global.b32 [%rd1], 1;",
    },
    Twin {
        name: "a buffer overwritten while another lane's bulk copy still reads it",
        found: RACE,
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1; st.shared.b32 [%r4+128], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1;
  setp.lt.u32 %p2, %r1, 2; @!%p2 bra NEXT;
  mad.lo.u32 %r10, %r1, 128, %r3; mul.wide.u32 %rd10, %r1, 128; add.s64 %rd10, %rd2, %rd10;
  cp.async.bulk.global.shared::cta.bulk_group [%rd10], [%r10], 128; cp.async.bulk.commit_group;
FIX| cp.async.bulk.wait_group.read 0;
BUG| @%p1 cp.async.bulk.wait_group.read 0;
NEXT: bar.warp.sync -1;
  @%p1 st.shared.b32 [tile+128], 7;
  @%p2 cp.async.bulk.wait_group 0;",
    },
    Twin {
        name: "a buffer overwritten while a bulk copy to shared memory still reads it",
        found: RACE,
        threads: 32,
        blocks: 2,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1;
  mapa.shared::cluster.u32 %r11, next, %r10; mapa.shared::cluster.u32 %r12, %r5, %r10;
  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 128;
INIT: st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; @!%p1 bra NEXT;
  cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r11], [tile], 128, [%r12];
NEXT: bar.warp.sync -1;
BUG| st.shared.b32 [%r4], 7;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
FIX| st.shared.b32 [%r4], 7;
  ld.shared.b32 %r13, [next]; st.global.b32 [%rd4], %r13;",
    },
];

#[test]
fn twins() {
    check(&TWINS, Checks::ALL);
}

/// The source of a bulk copy to shared memory, stored over before the copy is complete.
pub const SOURCES: [Twin; 3] = [
    Twin {
        name: "a source of a bulk copy to shared memory, overwritten by its thread before the wait",
        found: RACE,
        threads: 32,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
INIT: bar.sync 0; @!%p1 bra WAIT;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 128;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 128, [%r5];
BUG| st.global.b32 [%rd1+64], 7;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
FIX| @%p1 st.global.b32 [%rd1+64], 7;
  ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a source of two bulk copies to shared memory, overwritten behind a wait for one of them",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1; mbarrier.init.shared.b64 [%r6], 1;
  fence.mbarrier_init.release.cluster;
INIT: bar.sync 0; @!%p1 bra NEXT;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 256; mbarrier.arrive.expect_tx.shared.b64 _, [%r6], 256;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 256, [%r5];
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [next], [%rd1+256], 256, [%r6];
NEXT: bar.sync 0;
FULL: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra FULL;
FIX| st.global.b32 [%rd3], %r1;
BUG| st.global.b32 [%rd3+256], %r1;
EMPTY: mbarrier.try_wait.parity.shared.b64 %p2, [%r6], 0; @!%p2 bra EMPTY;
  ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a source of a bulk copy to shared memory, overwritten by another block before the wait",
        found: RACE,
        threads: 32,
        blocks: 2,
        body: "  setp.eq.u32 %p3, %r2, 1; @%p3 bra OTHER;
  @!%p1 bra END; mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 128;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 128, [%r5];
BUG| st.release.gpu.global.b32 [%rd1+512], 77;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
FIX| st.release.gpu.global.b32 [%rd1+512], 77;
  ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12; bra END;
OTHER: @!%p1 bra END;
SPIN: ld.acquire.gpu.global.b32 %r10, [%rd1+512]; setp.ne.u32 %p2, %r10, 77; @%p2 bra SPIN;
  st.global.b32 [%rd1+64], 7;
END:",
    },
];

#[test]
fn sources_of_bulk_copies_are_read_until_their_phase() {
    check(&SOURCES, Checks::ALL);
}

/// Blocks that may end while a bulk copy still reads their shared memory.
pub const EXITS: [Twin; 3] = [
    Twin {
        name: "a block that ends while a bulk copy may still read its shared memory",
        found: "MissingWait",
        threads: 32,
        blocks: 2,
        body: "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p1 bra END;
  mul.wide.u32 %rd10, %r2, 128; add.s64 %rd10, %rd2, %rd10;
  cp.async.bulk.global.shared::cta.bulk_group [%rd10], [tile], 128; cp.async.bulk.commit_group;
FIX| cp.async.bulk.wait_group.read 0;
END:",
    },
    Twin {
        name: "a block that ends after a wait for all but the last bulk copy from its shared memory",
        found: "MissingWait",
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p1 bra END;
  cp.async.bulk.global.shared::cta.bulk_group [%rd2], [tile], 64; cp.async.bulk.commit_group;
  cp.async.bulk.global.shared::cta.bulk_group [%rd2+64], [tile], 64; cp.async.bulk.commit_group;
FIX| cp.async.bulk.wait_group 0;
BUG| cp.async.bulk.wait_group 1;
END:",
    },
    Twin {
        name: "a wait in front of the commit of a bulk copy from shared memory",
        found: "MissingWait",
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p1 bra END;
  cp.async.bulk.global.shared::cta.bulk_group [%rd2], [tile], 128;
FIX| cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
END:",
    },
];

#[test]
fn waits_for_what_reads_the_memory_of_a_block_that_ends() {
    check(&EXITS, Checks { sync: true, ..Checks::NONE });
}

/// Loads a box of 8 rows of 32 words, and stores to the sixth row of it.
const TENSOR: &str = ".version 8.6
.target sm_90a
.address_size 64
.shared .align 128 .b8 tile[1024];
.shared .align 8 .b64 full;
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 p) {
  .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
  ld.param.b64 %rd1, [p]; mov.b64 %rd2, map; cvta.param.u64 %rd2, %rd2;
  mov.b32 %r1, 0; mov.b32 %r3, tile; mov.b32 %r4, full;
  mbarrier.init.shared::cta.b64 [%r4], 1; fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 1024;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd2, {%r1, %r1}], [%r4];
BUG| st.global.b32 [%rd1+680], %r1;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0; @!%p1 bra WAIT;
FIX| st.global.b32 [%rd1+680], %r1;
  ret;
}
";

#[test]
fn sources_of_tensor_copies_are_read_until_their_phase() {
    for (keep, drop) in [("BUG|", "FIX|"), ("FIX|", "BUG|")] {
        let lines = TENSOR.lines().filter(|line| !line.starts_with(drop));
        let ptx: String = lines.map(|line| line.replace(keep, "") + "\n").collect();
        let device = device(Checks::ALL, Schedule::InOrder, Isa::Auto, 0);
        let address = device.alloc(1024).unwrap();
        device.fill_u32(address, 1, 256).unwrap();
        let layout = (Swizzle::None, Fill::Zeros);
        let element = TensorElement::F32;
        let map = TensorMap::of(element, address, &[32, 8], &[128], &[32, 8], layout).unwrap();
        let mut params = map.to_bytes().to_vec();
        params.extend(address.to_ne_bytes());
        let kernel = device.load(&ptx).unwrap().kernel("k").unwrap();
        let config = LaunchConfig { grid: [1; 3], block: [1; 3], dynamic_shared: 0 };
        let found = match device.launch(&kernel, config, &params) {
            Ok(_) => None,
            Err(LaunchError::Fault(fault)) => Some(fault.kind.name()),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(found, (keep == "BUG|").then_some(RACE));
    }
}
