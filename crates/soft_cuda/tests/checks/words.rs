//! What is noted of each word of device memory: races that are missed if it is too little.

use super::{Twin, check};
use soft_cuda::Checks;

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
    // A word of the flag's allocation, so that reads are noted one by one, in the order of the
    // turns.
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

/// A warp loads from the addresses `%rd10`, which `$address` computes; lane 0 releases, and another
/// warp stores to the first word.
macro_rules! released {
    ($address:literal) => {
        concat!(
            "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1;
INIT: bar.sync 0; setp.ge.u32 %p6, %r1, 32; @%p6 bra WRITER;
  ",
            $address,
            "; ld.global.b32 %r10, [%rd10];
FIX| bar.warp.sync -1;
  @%p1 mbarrier.arrive.shared.b64 _, [%r5]; st.global.b32 [%rd4], %r10; bra END;
WRITER: setp.ne.u32 %p7, %r1, 32; @%p7 bra END;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
  st.global.b32 [%rd1], %r1;
END:"
        )
    };
}

/// Loads of whole warps, which are not noted lane by lane.
const WHOLE_WARPS: [Twin; 7] = [
    Twin {
        name: "lanes that each load a word, and store to that of another one",
        found: RACE,
        threads: 64,
        blocks: 2,
        body: "  ld.global.b32 %r10, [%rd3];
  xor.b32 %r11, %r8, 1; mul.wide.u32 %rd10, %r11, 4; add.s64 %rd10, %rd1, %rd10;
BUG| st.global.b32 [%rd10], %r10;
FIX| st.global.b32 [%rd3], %r10;",
    },
    Twin {
        name: "lanes that each load a vector, and store to that of another one",
        found: RACE,
        threads: 64,
        blocks: 2,
        body: "  mul.wide.u32 %rd10, %r8, 16; add.s64 %rd10, %rd1, %rd10;
  ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd10];
  xor.b32 %r14, %r8, 1; mul.wide.u32 %rd11, %r14, 16; add.s64 %rd11, %rd1, %rd11;
BUG| st.global.b32 [%rd11+12], %r10;
FIX| st.global.b32 [%rd10+12], %r10;",
    },
    Twin {
        name: "a store to what another warp loaded, before it loaded elsewhere",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1; st.shared.b32 [%r4+2048], %r1;
  bar.sync 0;
  ld.shared.b32 %r10, [%r4];
  bar.warp.sync -1;
  ld.shared.b32 %r11, [%r4+2048];
  bar.warp.sync -1;
FIX| bar.sync 0;
  xor.b32 %r12, %r1, 32; mad.lo.u32 %r13, %r12, 4, %r3;
  st.shared.b32 [%r13], %r10;",
    },
    Twin {
        name: "a store to what another warp loaded with a word at a constant distance",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1; st.shared.b32 [%r4+1024], %r1;
  bar.sync 0;
  ld.shared.b32 %r10, [%r4]; ld.shared.b32 %r11, [%r4+1024];
FIX| bar.sync 0;
  xor.b32 %r12, %r1, 32; mad.lo.u32 %r13, %r12, 4, %r3;
  st.shared.b32 [%r13+1024], %r10;",
    },
    Twin {
        name: "a store to what another warp loaded, after it loaded many times",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1;
  bar.sync 0;
  ld.shared.b32 %r10, [%r4];
  mov.b32 %r20, 0;
LOOP: bar.warp.sync -1;
  ld.shared.b32 %r11, [%r4];
  add.u32 %r20, %r20, 1; setp.lt.u32 %p2, %r20, 40; @%p2 bra LOOP;
FIX| bar.sync 0;
  xor.b32 %r12, %r1, 32; mad.lo.u32 %r13, %r12, 4, %r3;
  st.shared.b32 [%r13], %r10;",
    },
    Twin {
        name: "lane 0 releases a word of device memory that its warp has read",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: released!("mov.b64 %rd10, %rd1"),
    },
    Twin {
        name: "lane 0 releases a word of device memory that four lanes have read",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: released!(
            "shr.u32 %r11, %r1, 2; mul.wide.u32 %rd10, %r11, 4; add.s64 %rd10, %rd1, %rd10"
        ),
    },
];

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
READER: ld.relaxed.gpu.global.b32 %r10, [%rd1]; setp.ne.u32 %p3, %r10, 78; @%p3 bra READER;
  ld.acquire.gpu.global.b32 %r10, [%rd1];
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

#[test]
fn after_loads_of_whole_warps() {
    check(&WHOLE_WARPS, ONLY);
}
