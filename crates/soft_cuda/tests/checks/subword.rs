//! Atomics of 8 and 16 bits, which compilers make from atomics of the word around them: other
//! threads own the other bytes of the word.

use super::{Twin, check};
use soft_cuda::Checks;

const RACE: &str = "DataRace";

/// The word around the byte at `%rd10`, what is 1 there, and masks of its bytes.
macro_rules! round {
    () => {
        "
  and.b64 %rd11, %rd10, -4; cvt.u32.u64 %r20, %rd10; and.b32 %r20, %r20, 3; shl.b32 %r20, %r20, 3;
  mov.b32 %r21, 255; shl.b32 %r21, %r21, %r20; not.b32 %r22, %r21; mov.b32 %r23, 1; shl.b32 %r23, %r23, %r20;
"
    };
}

/// Adds 1 to the byte at `%rd10`, as LLVM does.
macro_rules! count {
    () => {
        concat!(
            round!(),
            "  ld.relaxed.sys.b32 %r24, [%rd11];
LOOP: add.s32 %r25, %r24, %r23; and.b32 %r25, %r25, %r21; and.b32 %r26, %r24, %r22; or.b32 %r26, %r26, %r25;
  atom.relaxed.sys.cas.b32 %r27, [%rd11], %r24, %r26; setp.ne.b32 %p9, %r27, %r24; mov.b32 %r24, %r27;
  @%p9 bra LOOP;
"
        )
    };
}

pub const TWINS: [Twin; 9] = [
    Twin {
        name: "a plain store to a byte that others count in",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: concat!(
            "  add.s64 %rd10, %rd1, 3; setp.ge.u32 %p2, %r1, 3; @%p2 bra COUNT;
FIX| cvt.u64.u32 %rd10, %r1; add.s64 %rd10, %rd1, %rd10;
  st.global.b8 [%rd10], 7; bra END;
COUNT:",
            count!(),
            "END:"
        ),
    },
    Twin {
        name: "a plain store to a byte that another block counts in",
        found: RACE,
        threads: 32,
        blocks: 2,
        body: concat!(
            "  add.s64 %rd10, %rd1, 6; setp.eq.u32 %p2, %r2, 0; @%p2 bra COUNT; @!%p1 bra END;
FIX| st.global.b8 [%rd10+1], 7;
BUG| st.global.b8 [%rd10], 7;
  bra END;
COUNT:",
            count!(),
            "END:"
        ),
    },
    Twin {
        name: "a plain load of a byte that others count in",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: concat!(
            "  add.s64 %rd10, %rd1, 1; setp.ge.u32 %p2, %r1, 32; @%p2 bra COUNT;
FIX| ld.global.b8 %h1, [%rd10+1];
BUG| ld.global.b8 %h1, [%rd10];
  st.global.b8 [%rd4], %h1; bra END;
COUNT:",
            count!(),
            "END:"
        ),
    },
    Twin {
        name: "a plain store to the upper byte of 16 bits that others count in",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: concat!(
            "  setp.eq.u32 %p2, %r1, 0; add.s64 %rd10, %rd1, 2; @!%p2 bra COUNT;
FIX| st.global.b8 [%rd10+-1], 7;
BUG| st.global.b8 [%rd10+1], 7;
  bra END;
COUNT:",
            round!(),
            "  ld.b32 %r24, [%rd11];
LOOP: add.s32 %r25, %r24, 0xff0000; and.b32 %r25, %r25, 0xffff0000; and.b32 %r26, %r24, 0xffff; or.b32 %r26, %r26, %r25;
  atom.cas.b32 %r27, [%rd11], %r24, %r26; setp.ne.b32 %p9, %r27, %r24; mov.b32 %r24, %r27; @%p9 bra LOOP;
END:"
        ),
    },
    Twin {
        name: "a plain store to the byte of a flag that others set",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra SET;
FIX| st.global.b8 [%rd1+1], 7;
BUG| st.global.b8 [%rd1], 7;
  bra END;
SET: red.relaxed.gpu.global.or.b32 [%rd1], 1;
END:",
    },
    Twin {
        name: "a plain store to a word that others read by an atomic, which changes nothing",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  st.global.b8 [%rd4], 1; @!%p1 bra READ;
FIX| st.relaxed.gpu.global.b32 [%rd1], 7;
BUG| st.global.b32 [%rd1], 7;
  bra END;
READ: atom.relaxed.gpu.global.or.b32 %r10, [%rd1], 0; atom.relaxed.gpu.global.cas.b32 %r10, [%rd1], 5, 5;
END:",
    },
    Twin {
        name: "an atomic on a byte that has no value, beside one that has",
        found: "Uninitialised",
        threads: 32,
        blocks: 1,
        body: concat!(
            "  @!%p1 bra END; add.s64 %rd10, %rd2, 6;
FIX| st.global.b8 [%rd10], 0;
BUG| st.global.b8 [%rd10+-1], 0;
",
            count!(),
            "END:"
        ),
    },
    Twin {
        name: "an atomic on the byte behind a shared array",
        found: "Uninitialised|NoVariable",
        threads: 32,
        blocks: 1,
        body: concat!(
            "  .shared .align 4 .b8 five[5];
  mov.b64 %rd10, five; cvt.u64.u32 %rd11, %r1; add.s64 %rd11, %rd10, %rd11;
  setp.lt.u32 %p2, %r1, 5; @%p2 st.shared.b8 [%rd11], 0; bar.sync 0; cvta.shared.u64 %rd10, %rd10;
FIX| rem.u32 %r10, %r1, 5;
BUG| rem.u32 %r10, %r1, 6;
  cvt.u64.u32 %rd11, %r10; add.s64 %rd10, %rd10, %rd11;
",
            count!()
        ),
    },
    Twin {
        name: "a lock of one byte that is released by a relaxed store",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: concat!(
            "  and.b32 %r10, %r1, 31; setp.ne.u32 %p2, %r10, 0; @%p2 bra END; add.s64 %rd10, %rd1, 1;",
            round!(),
            "LOOP: ld.relaxed.sys.global.b32 %r24, [%rd11]; and.b32 %r25, %r24, %r22; or.b32 %r26, %r25, %r23;
  atom.relaxed.sys.global.cas.b32 %r27, [%rd11], %r25, %r26; setp.ne.b32 %p9, %r27, %r25; fence.acq_rel.sys;
  @%p9 bra LOOP;
  ld.global.b8 %h1, [%rd1+2]; add.u16 %h1, %h1, 1; st.global.b8 [%rd1+2], %h1;
FIX| st.release.sys.global.b8 [%rd10], 0;
BUG| st.relaxed.sys.global.b8 [%rd10], 0;
END:"
        ),
    },
];

#[test]
fn twins() {
    check(&TWINS, Checks::ALL);
}
