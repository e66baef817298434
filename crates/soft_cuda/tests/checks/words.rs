//! What is noted of each word of device memory: races that are missed if it is too little.

use super::{Twin, check, device};
use soft_cuda::{
    Checks, Fill, Isa, LaunchConfig, LaunchError, Schedule, Swizzle, TensorElement, TensorMap,
};

const RACE: &str = "DataRace";
// So that waits may say "not yet".
const ONLY: Checks = Checks { races: true, sync: true, ..Checks::NONE };

const READS: [Twin; 5] = [
    Twin {
        name: "lane 0 loads a word once more that its warp has loaded, and releases it",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1;
INIT: bar.sync 0; setp.ge.u32 %p6, %r1, 32; @%p6 bra WRITER;
  ld.global.b32 %r10, [%rd1]; @%p1 ld.global.b32 %r11, [%rd1];
FIX| bar.warp.sync -1;
  @%p1 mbarrier.arrive.shared.b64 _, [%r5]; st.global.b32 [%rd4], %r10; bra END;
WRITER: setp.ne.u32 %p7, %r1, 32; @%p7 bra END;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
  st.global.b32 [%rd1], %r1;
END:",
    },
    Twin {
        name: "two lanes load a group of words once more, as vectors, and release them",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 2;
INIT: bar.sync 0; setp.ge.u32 %p6, %r1, 32; @%p6 bra WRITER;
  ld.global.b32 %r10, [%rd3];
  mul.wide.u32 %rd10, %r1, 16; add.s64 %rd10, %rd1, %rd10;
  ld.global.v4.b32 {%r11, %r12, %r13, %r14}, [%rd10];
FIX| bar.warp.sync -1;
  setp.lt.u32 %p3, %r1, 2; @%p3 mbarrier.arrive.shared.b64 _, [%r5];
  add.u32 %r10, %r10, %r11; st.global.b32 [%rd4], %r10; bra END;
WRITER: setp.ne.u32 %p7, %r1, 32; @%p7 bra END;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
  st.global.b32 [%rd1+20], %r1;
END:",
    },
    // The words of the first group are stored by the lanes 0 and 1, and loaded by the lanes 0 to 7.
    Twin {
        name: "a group of words that lanes store as vectors, and as many again load one by one",
        found: RACE,
        threads: 32,
        blocks: 1,
        body:
            "  setp.lt.u32 %p2, %r1, 2; selp.b32 %r10, 0, 2048, %p2; mad.lo.u32 %r10, %r1, 16, %r10;
  cvt.u64.u32 %rd10, %r10; add.s64 %rd10, %rd1, %rd10;
  st.global.v4.b32 [%rd10], {%r1, %r1, %r1, %r1};
FIX| bar.warp.sync -1;
  ld.global.b32 %r11, [%rd3]; st.global.b32 [%rd4], %r11;",
    },
    // A word of the flag's allocation, so that reads are noted one by one, in the order of the turns.
    Twin {
        name: "a store to a word that four others have loaded, of which it comes after three",
        found: RACE,
        threads: 160,
        blocks: 1,
        body:
            "  and.b32 %r10, %r1, 31; shr.u32 %r11, %r1, 5; setp.ne.u32 %p2, %r10, 0; @%p2 bra READ;
  add.u32 %r12, %r11, 100; add.u32 %r13, %r12, 1;
  @%p1 st.relaxed.gpu.global.b32 [%rd1+512], 100;
TURN: ld.relaxed.gpu.global.b32 %r14, [%rd1+512]; setp.ne.u32 %p3, %r14, %r12; @%p3 bra TURN;
  setp.lt.u32 %p4, %r11, 4; @%p4 ld.global.b32 %r15, [%rd1];
  @%p4 st.relaxed.gpu.global.b32 [%rd1+512], %r13;
READ: setp.eq.u32 %p5, %r11, 1; bar.warp.sync -1;
FIX| bar.sync 0;
BUG| @%p5 bra END; barrier.sync 1, 128;
  setp.eq.u32 %p6, %r1, 128; @%p6 st.global.b32 [%rd1], %r1;
END:",
    },
    Twin {
        name: "stores of a whole warp over what another warp has loaded",
        found: RACE,
        threads: 64,
        blocks: 1,
        body:
            "  @%p1 st.shared.b32 [next], 0; bar.sync 0; setp.lt.u32 %p2, %r1, 32; @%p2 bra STORE;
  ld.global.b32 %r10, [%rd3]; st.volatile.shared.b32 [next], 1;
FIX| bar.sync 0;
  st.global.b32 [%rd4], %r10; bra END;
STORE: ld.volatile.shared.b32 %r11, [next]; setp.eq.u32 %p3, %r11, 0; @%p3 bra STORE;
FIX| bar.sync 0;
  st.global.b32 [%rd3+128], %r11;
END:",
    },
];

/// Atomics of two blocks, the second behind the first, of which one has its block's scope alone.
const SCOPES: [Twin; 2] = [
    Twin {
        name: "an atomic of the block's scope, and one of the device's behind it",
        found: RACE,
        threads: 1,
        blocks: 2,
        body: "  setp.eq.u32 %p2, %r2, 1; @%p2 bra SECOND;
FIX| red.relaxed.gpu.global.add.u32 [%rd1], 1;
BUG| red.relaxed.cta.global.add.u32 [%rd1], 1;
  st.relaxed.gpu.global.b32 [%rd1+256], 77; bra END;
SECOND: ld.relaxed.gpu.global.b32 %r10, [%rd1+256]; setp.ne.u32 %p3, %r10, 77; @%p3 bra SECOND;
  red.relaxed.gpu.global.add.u32 [%rd1], 1;
END:",
    },
    Twin {
        name: "an atomic of the device's scope, and one of the block's behind it",
        found: RACE,
        threads: 1,
        blocks: 2,
        body: "  setp.eq.u32 %p2, %r2, 1; @%p2 bra SECOND;
  red.relaxed.gpu.global.add.u32 [%rd1], 1;
  st.relaxed.gpu.global.b32 [%rd1+256], 77; bra END;
SECOND: ld.relaxed.gpu.global.b32 %r10, [%rd1+256]; setp.ne.u32 %p3, %r10, 77; @%p3 bra SECOND;
FIX| red.relaxed.gpu.global.add.u32 [%rd1], 1;
BUG| red.relaxed.cta.global.add.u32 [%rd1], 1;
END:",
    },
];

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
    check(&SOURCES, ONLY);
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

#[test]
fn reads_of_words_are_kept() {
    check(&READS, ONLY);
}

#[test]
fn scopes_of_atomics_count_on_both_sides() {
    check(&SCOPES, ONLY);
}

/// A flag in device memory that is stored again behind its release.
pub const FLAGS: [Twin; 2] = [
    Twin {
        name: "a released flag that its thread plainly stores again",
        found: RACE,
        threads: 1,
        blocks: 2,
        body: "  setp.eq.u32 %p2, %r2, 1; @%p2 bra READER;
  st.global.b32 [%rd2], 5;
BUG| st.release.gpu.global.b32 [%rd1], 77; st.global.b32 [%rd1], 78;
FIX| st.release.gpu.global.b32 [%rd1], 78;
  bra END;
READER: ld.acquire.gpu.global.b32 %r10, [%rd1]; setp.ne.u32 %p3, %r10, 78; @%p3 bra READER;
  ld.global.b32 %r12, [%rd2]; st.global.b32 [%rd2+16], %r12;
END:",
    },
    Twin {
        name: "a released flag in device memory that another thread stores again",
        found: RACE,
        threads: 96,
        blocks: 1,
        body: "  setp.eq.u32 %p2, %r1, 32; @%p2 bra SECOND; setp.eq.u32 %p2, %r1, 64; @%p2 bra THIRD; @!%p1 bra END;
  st.global.b32 [%rd2], 5; st.release.gpu.global.b32 [%rd1], 77; bra END;
SECOND: ld.relaxed.gpu.global.b32 %r10, [%rd1]; setp.ne.u32 %p3, %r10, 77; @%p3 bra SECOND;
FIX| atom.relaxed.gpu.global.add.u32 %r11, [%rd1], 1; bra END;
BUG| st.relaxed.gpu.global.b32 [%rd1], 78; bra END;
THIRD: ld.relaxed.gpu.global.b32 %r10, [%rd1]; setp.ne.u32 %p3, %r10, 78; @%p3 bra THIRD;
  ld.acquire.gpu.global.b32 %r10, [%rd1];
  ld.global.b32 %r12, [%rd2]; st.global.b32 [%rd2+16], %r12;
END:",
    },
];

#[test]
fn flags_are_replaced_by_stores() {
    check(&FLAGS, ONLY);
}
