//! Races in device memory, between blocks and between threads of a block.

use super::{Twin, check, module, run};
use soft_cuda::{Checks, Isa, Schedule};

const RACE: &str = "DataRace";
const ONLY: Checks = Checks { races: true, ..Checks::NONE };

pub const TWINS: [Twin; 11] = [
    Twin {
        name: "two blocks store to one word",
        found: RACE,
        threads: 32,
        blocks: 2,
        body: "
FIX| mov.u64 %rd10, %rd4;
BUG| mul.wide.u32 %rd10, %r1, 4; add.s64 %rd10, %rd2, %rd10;
  st.global.b32 [%rd10], %r2;",
    },
    Twin {
        name: "a block reads what another one writes",
        found: RACE,
        threads: 32,
        blocks: 3,
        body: "
FIX| ld.global.b32 %r10, [%rd3];
BUG| mul.wide.u32 %rd10, %r1, 4; add.s64 %rd10, %rd1, %rd10; ld.global.b32 %r10, [%rd10];
  st.global.b32 [%rd3], %r10;",
    },
    Twin {
        name: "an addition that is not atomic",
        found: RACE,
        threads: 64,
        blocks: 2,
        body: "
FIX| red.global.add.u32 [%rd1], 1;
BUG| ld.global.b32 %r10, [%rd1]; add.u32 %r10, %r10, 1; st.global.b32 [%rd1], %r10;",
    },
    Twin {
        name: "threads of a block in device memory",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  st.global.b32 [%rd4], %r1;
FIX| bar.sync 0;
  xor.b32 %r10, %r1, 32; mul.wide.u32 %rd10, %r10, 4; add.s64 %rd10, %rd2, %rd10;
  ld.global.b32 %r12, [%rd10];
  st.global.b32 [%rd3], %r12;",
    },
    Twin {
        name: "the last block sums up without a fence by the others",
        found: RACE,
        threads: 32,
        blocks: 4,
        body: "  st.global.b32 [%rd4], %r2;
FIX| membar.gl;
  bar.warp.sync -1;
  mov.b32 %r20, 0;
  @%p1 atom.global.add.u32 %r20, [%rd1], 1;
  shfl.sync.idx.b32 %r20, %r20, 0, 31, -1;
  setp.ne.u32 %p2, %r20, 3; @%p2 bra END;
FIX| membar.gl; bar.warp.sync -1;
  mul.wide.u32 %rd10, %r1, 4; add.s64 %rd10, %rd2, %rd10;
  ld.global.b32 %r11, [%rd10]; ld.global.b32 %r12, [%rd10+128];
  add.u32 %r11, %r11, %r12; st.global.b32 [%rd3+8192], %r11;
END:",
    },
    Twin {
        name: "a fence for the block where one for the device is needed",
        found: RACE,
        threads: 1,
        blocks: 2,
        body: "  setp.eq.u32 %p2, %r2, 1; @%p2 bra READER;
  st.global.b32 [%rd2], 5;
BUG| fence.acq_rel.cta;
FIX| fence.acq_rel.gpu;
  st.relaxed.gpu.global.b32 [%rd1], 77;
  bra END;
READER: ld.relaxed.gpu.global.b32 %r10, [%rd1]; setp.ne.u32 %p3, %r10, 77; @%p3 bra READER;
  fence.acq_rel.gpu;
  ld.global.b32 %r12, [%rd2]; st.global.b32 [%rd2+16], %r12;
END:",
    },
    Twin {
        name: "release and acquire, one of them forgotten",
        found: RACE,
        threads: 1,
        blocks: 2,
        body: "  setp.eq.u32 %p2, %r2, 1; @%p2 bra READER;
  st.global.b32 [%rd2], 5;
  st.release.gpu.global.b32 [%rd1], 77;
  bra END;
READER:
FIX| ld.acquire.gpu.global.b32 %r10, [%rd1];
BUG| ld.relaxed.gpu.global.b32 %r10, [%rd1];
  setp.ne.u32 %p3, %r10, 77; @%p3 bra READER;
  ld.global.b32 %r12, [%rd2]; st.global.b32 [%rd2+16], %r12;
END:",
    },
    Twin {
        name: "the lock is released before the store",
        found: RACE,
        threads: 1,
        blocks: 4,
        body: "LOCK: atom.acquire.gpu.global.cas.b32 %r10, [%rd1], 0, 1;
  setp.ne.u32 %p2, %r10, 0; @%p2 bra LOCK;
  ld.global.b32 %r11, [%rd1+64]; add.u32 %r11, %r11, 1;
FIX| st.global.b32 [%rd1+64], %r11;
  st.release.gpu.global.b32 [%rd1], 0;
BUG| st.global.b32 [%rd1+64], %r11;",
    },
    Twin {
        name: "two of three warps that load a word meet at a named barrier, and one stores",
        found: RACE,
        threads: 96,
        blocks: 1,
        body: "  ld.global.b32 %r10, [%rd1];
  st.global.b32 [%rd4], %r10;
FIX| bar.sync 0;
  setp.ge.u32 %p2, %r1, 64; @%p2 bra END;
  barrier.sync 1, 64;
  @%p1 st.global.b32 [%rd1], %r1;
END:",
    },
    Twin {
        name: "a block loads a word, and another one, all of whose warps load it, stores to it",
        found: RACE,
        threads: 96,
        blocks: 2,
        body: "
FIX| mul.wide.u32 %rd10, %r2, 4; add.s64 %rd10, %rd1, %rd10;
BUG| mov.b64 %rd10, %rd1;
  ld.global.b32 %r10, [%rd10];
  bar.sync 0;
  setp.eq.u32 %p2, %r8, 96;
  @%p2 st.global.b32 [%rd10], %r10;
  st.global.b32 [%rd4], %r10;",
    },
    Twin {
        name: "a store to what another block loads in two loops",
        found: RACE,
        threads: 32,
        blocks: 2,
        body: "  mul.wide.u32 %rd10, %r1, 4; add.s64 %rd10, %rd1, %rd10;
  mov.b32 %r20, 0; mov.b32 %r22, 0;
OUTER: mov.b32 %r21, 0;
INNER: ld.global.b32 %r10, [%rd10]; add.u32 %r22, %r22, %r10;
  add.s64 %rd10, %rd10, 128; add.u32 %r21, %r21, 1; setp.lt.u32 %p2, %r21, 4; @%p2 bra INNER;
  bar.sync 0;
  add.s64 %rd10, %rd10, 256; add.u32 %r20, %r20, 1; setp.lt.u32 %p2, %r20, 3; @%p2 bra OUTER;
  st.global.b32 [%rd4], %r22;
  setp.eq.u32 %p3, %r8, 32;
BUG| @%p3 st.global.b32 [%rd1+1680], %r22;
FIX| @%p3 st.global.b32 [%rd1+520], %r22;",
    },
];

/// Blocks run on threads of the host, where they overtake each other.
#[test]
fn blocks_that_race_at_the_same_time_find_each_other() {
    let races = ["two blocks store to one word", "a block reads what another one writes"];
    for twin in TWINS.iter().filter(|twin| races.contains(&twin.name)) {
        let buggy = module(twin.body, "BUG|");
        let is_found = || run(&buggy, twin, ONLY, Schedule::InOrder, Isa::Auto).is_some();
        let missed = (0..400).filter(|_| !is_found()).count();
        assert_eq!(missed, 0, "{}", twin.name);
    }
}

#[test]
fn twins() {
    check(&TWINS, ONLY);
}
