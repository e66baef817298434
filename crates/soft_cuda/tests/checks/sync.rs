//! Barriers, member masks and waits.

use super::{Twin, check};
use soft_cuda::Checks;

pub const TWINS: [Twin; 15] = [
    Twin {
        name: "a bulk copy that may not see its mbarrier initialised",
        found: "BadBarrier",
        threads: 32,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1;
FIX| fence.proxy.async.shared::cta;
INIT: bar.sync 0; @!%p1 bra WAIT;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 128;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 128, [%r5];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
  ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a lane outside of its own mask",
        found: "BadMask",
        threads: 32,
        blocks: 1,
        body: "
FIX| mov.b32 %r10, -1;
BUG| mov.b32 %r10, 0xfffffffe;
  shfl.sync.bfly.b32 %r11, %r1, 1, 31, %r10; st.global.b32 [%rd4], %r11;",
    },
    Twin {
        name: "lanes that disagree about the mask",
        found: "BadMask",
        threads: 32,
        blocks: 1,
        body: "
FIX| mov.b32 %r10, -1;
BUG| mov.b32 %r10, -1; @%p1 mov.b32 %r10, 0x0000ffff;
  vote.sync.ballot.b32 %r11, %p1, %r10; st.global.b32 [%rd4], %r11;",
    },
    Twin {
        name: "a mask that names lanes which the block does not have",
        found: "BadMask",
        threads: 20,
        blocks: 1,
        body: "
FIX| mov.b32 %r10, 0x000fffff;
BUG| mov.b32 %r10, -1;
  bar.warp.sync %r10;",
    },
    Twin {
        name: "a shuffle from a lane that does not take part",
        found: "BadMask",
        threads: 32,
        blocks: 1,
        body: "  setp.lt.u32 %p2, %r1, 16; @!%p2 bra END;
FIX| shfl.sync.idx.b32 %r11, %r1, 3, 31, 0x0000ffff; st.global.b32 [%rd4], %r11;
BUG| shfl.sync.idx.b32 %r11, %r1, 20, 31, 0x0000ffff; st.global.b32 [%rd4], %r11;
END:",
    },
    Twin {
        name: "a barrier that half of a warp does not come to",
        found: "BarrierDivergence",
        threads: 64,
        blocks: 1,
        body: "
BUG| setp.lt.u32 %p2, %r1, 16; @%p2 bra WAIT;
  bar.sync 0;
BUG| bra END;
BUG|WAIT: bar.warp.sync 0x0000ffff; bar.sync 1;
BUG|END:",
    },
    Twin {
        name: "two counts for one barrier",
        found: "BadBarrier",
        threads: 96,
        blocks: 1,
        body: "  mov.b32 %r10, 96;
BUG| setp.lt.u32 %p2, %r1, 32; @%p2 mov.b32 %r10, 64;
  barrier.sync 1, %r10;",
    },
    Twin {
        name: "more threads at a barrier than it counts",
        found: "BadBarrier",
        threads: 96,
        blocks: 1,
        body: "
FIX| barrier.sync 1, 96;
BUG| barrier.sync 1, 64;",
    },
    Twin {
        name: "an mbarrier initialised twice",
        found: "BadBarrier",
        threads: 32,
        blocks: 1,
        body: "  @!%p1 bra END; mbarrier.init.shared.b64 [%r5], 1;
FIX| mbarrier.inval.shared.b64 [%r5];
  mbarrier.init.shared.b64 [%r5], 2;
END:",
    },
    Twin {
        name: "a wait whose answer nothing reads",
        found: "BadBarrier",
        threads: 32,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1;
INIT: bar.sync 0; @!%p1 bra WAIT; mbarrier.arrive.shared.b64 _, [%r5];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0;
FIX| @!%p2 bra WAIT;",
    },
    Twin {
        name: "an mbarrier used before others can know that it is there",
        found: "BadBarrier",
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 64;
INIT:
FIX| bar.sync 0;
  mbarrier.arrive.shared.b64 _, [%r5];",
    },
    Twin {
        name: "an mbarrier for too many arrivals",
        found: "Deadlock",
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra INIT;
FIX| mbarrier.init.shared.b64 [%r5], 64;
BUG| mbarrier.init.shared.b64 [%r5], 65;
INIT: bar.sync 0; mbarrier.arrive.shared.b64 _, [%r5];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;",
    },
    Twin {
        name: "setmaxnreg by part of a warpgroup",
        found: "WarpgroupDivergence",
        threads: 128,
        blocks: 1,
        body: "
BUG| setp.lt.u32 %p2, %r1, 32; @%p2 bra END;
  setmaxnreg.dec.sync.aligned.u32 40;
BUG|END:",
    },
    Twin {
        name: "setmaxnreg.inc by part of a warpgroup",
        found: "WarpgroupDivergence",
        threads: 128,
        blocks: 1,
        body: "
BUG| setp.ge.u32 %p2, %r1, 96; @%p2 bra END;
  setmaxnreg.inc.sync.aligned.u32 232;
BUG|END:",
    },
    Twin {
        name: "setmaxnreg by part of a warp",
        found: "WarpgroupDivergence",
        threads: 128,
        blocks: 1,
        body: "
BUG| setp.lt.u32 %p2, %r1, 16; @%p2 bra END;
  setmaxnreg.dec.sync.aligned.u32 40;
BUG|END:",
    },
];

#[test]
fn twins() {
    check(&TWINS, Checks { sync: true, races: true, ..Checks::NONE });
}
