//! Races in shared memory, between threads and with asynchronous copies.

use super::{Twin, check, module, run};
use soft_cuda::{Access, Checks, FaultKind, Isa, Schedule};

const RACE: &str = "DataRace";
const ONLY: Checks = Checks { races: true, ..Checks::NONE };
// So that waits may say "not yet".
const WITH_SYNC: Checks = Checks { sync: true, ..ONLY };

pub const SHARED: [Twin; 14] = [
    Twin {
        name: "no barrier between a store and another warp's load",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1;
FIX| bar.sync 0;
  xor.b32 %r10, %r1, 32; mad.lo.u32 %r11, %r10, 4, %r3;
  ld.shared.b32 %r12, [%r11]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "no barrier between a load and the next tile's store",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  mov.b32 %r20, 0; xor.b32 %r10, %r1, 32; mad.lo.u32 %r11, %r10, 4, %r3;
LOOP: st.shared.b32 [%r4], %r20;
  bar.sync 0;
  ld.shared.b32 %r12, [%r11];
FIX| bar.sync 0;
  add.u32 %r20, %r20, 1; setp.lt.u32 %p2, %r20, 3; @%p2 bra LOOP;
  st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "no bar.warp.sync between the lanes of a warp",
        found: RACE,
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1;
FIX| bar.warp.sync -1;
  xor.b32 %r10, %r1, 1; mad.lo.u32 %r11, %r10, 4, %r3;
  ld.shared.b32 %r12, [%r11]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a warp barrier of half of the lanes",
        found: RACE,
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1;
  setp.lt.u32 %p2, %r1, 16; @%p2 bra LOW;
  bar.warp.sync 0xffff0000;
  bra NEXT;
LOW: bar.warp.sync 0x0000ffff;
NEXT:
FIX| xor.b32 %r10, %r1, 8;
BUG| xor.b32 %r10, %r1, 16;
  mad.lo.u32 %r11, %r10, 4, %r3;
  ld.shared.b32 %r12, [%r11]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "two lanes of one instruction store different values to one word",
        found: RACE,
        threads: 32,
        blocks: 1,
        body: "
FIX| mov.b32 %r10, 7;
BUG| mov.b32 %r10, %r1;
  st.shared.b32 [%r3], %r10;
  bar.sync 0;
  ld.shared.b32 %r12, [%r3]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "two warps wait at different named barriers",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1;
FIX| mov.b32 %r13, 1; mov.b32 %r14, 64;
BUG| shr.u32 %r13, %r1, 5; add.u32 %r13, %r13, 1; mov.b32 %r14, 32;
  barrier.sync %r13, %r14;
  xor.b32 %r10, %r1, 32; mad.lo.u32 %r11, %r10, 4, %r3;
  ld.shared.b32 %r12, [%r11]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "the consumer does not wait for bar.arrive of the producer",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  setp.lt.u32 %p2, %r1, 32; @%p2 bra PRODUCER;
FIX| bar.sync 1, 64;
  ld.shared.b32 %r12, [%r4+-128]; st.global.b32 [%rd4], %r12;
BUG| bar.sync 1, 64;
  bra END;
PRODUCER: st.shared.b32 [%r4], %r1;
  bar.arrive 1, 64;
END:",
    },
    Twin {
        name: "a flag without fences",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra INIT; st.shared.b32 [next], 0;
INIT: bar.sync 0;
  setp.eq.u32 %p2, %r1, 32; @%p2 bra READER; @!%p1 bra END;
  st.shared.b32 [tile], 5;
FIX| membar.cta;
  st.volatile.shared.b32 [next], 1;
  bra END;
READER: ld.volatile.shared.b32 %r10, [next]; setp.eq.u32 %p3, %r10, 0; @%p3 bra READER;
FIX| membar.cta;
  ld.shared.b32 %r12, [tile]; st.global.b32 [%rd4], %r12;
END:",
    },
    Twin {
        name: "a plain store beside atomics",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra INIT; st.shared.b32 [tile], 0;
INIT:
FIX| bar.sync 0;
  red.shared.add.u32 [tile], 1;
  bar.sync 0;
  ld.shared.b32 %r12, [tile]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "cp.async into a buffer that others still read",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  cp.async.ca.shared.global [%r4], [%rd3], 4; cp.async.commit_group;
  cp.async.wait_group 0; bar.sync 0;
  xor.b32 %r10, %r1, 32; mad.lo.u32 %r11, %r10, 4, %r3;
  ld.shared.b32 %r12, [%r11];
FIX| bar.sync 0;
  cp.async.ca.shared.global [%r4], [%rd3+4], 4; cp.async.commit_group;
  cp.async.wait_group 0; bar.sync 0;
  ld.shared.b32 %r13, [%r11]; add.u32 %r12, %r12, %r13; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a wait that leaves the group which is read",
        found: RACE,
        threads: 32,
        blocks: 1,
        body: "  cp.async.ca.shared.global [%r4], [%rd3], 4; cp.async.commit_group;
BUG| cp.async.wait_group 1;
FIX| cp.async.wait_group 0;
  ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a wait for one's own copies, and no barrier for the others'",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  cp.async.ca.shared.global [%r4], [%rd3], 4;
  cp.async.wait_all;
FIX| bar.sync 0;
  xor.b32 %r10, %r1, 32; mad.lo.u32 %r11, %r10, 4, %r3;
  ld.shared.b32 %r12, [%r11]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a race through generic addresses",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  mov.b64 %rd10, tile; cvta.shared.u64 %rd10, %rd10;
  xor.b32 %r10, %r1, 32;
  mul.wide.u32 %rd11, %r1, 4; add.s64 %rd11, %rd10, %rd11;
  mul.wide.u32 %rd12, %r10, 4; add.s64 %rd12, %rd10, %rd12;
  st.b32 [%rd11], %r1;
FIX| bar.sync 0;
  ld.b32 %r12, [%rd12]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "bytes of one word",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  add.u32 %r10, %r3, %r1; cvt.u16.u32 %h1, %r1;
  st.shared.u8 [%r10], %h1;
FIX| ld.shared.u8 %h2, [%r10];
BUG| xor.b32 %r11, %r1, 32; add.u32 %r11, %r3, %r11; ld.shared.u8 %h2, [%r11];
  cvt.u32.u16 %r12, %h2; st.global.b32 [%rd4], %r12;",
    },
];

pub const MBARRIERS: [Twin; 8] = [
    Twin {
        name: "a consumer that does not wait for the bulk copy",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1;
  fence.mbarrier_init.release.cluster;
INIT: bar.sync 0; @!%p1 bra WAIT;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 256;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 256, [%r5];
WAIT:
FIX| mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
  ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "lane 0 releases the buffer before the other lanes have read it",
        found: RACE,
        threads: 64,
        blocks: 1,
        body:
            "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1; mbarrier.init.shared.b64 [%r6], 1;
  fence.mbarrier_init.release.cluster;
INIT: st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.sync 0;
  setp.lt.u32 %p3, %r1, 32; @%p3 bra PRODUCER;
  ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;
FIX| bar.warp.sync -1;
  setp.eq.u32 %p4, %r1, 32; @%p4 mbarrier.arrive.shared.b64 _, [%r6];
  bra END;
PRODUCER: @!%p1 bra END;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r6], 0; @!%p2 bra WAIT;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 256;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 256, [%r5];
END:",
    },
    Twin {
        name: "an mbarrier for fewer arrivals than there are consumers",
        found: "DataRace|Deadlock",
        threads: 96,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1;
FIX| mbarrier.init.shared.b64 [%r6], 2;
BUG| mbarrier.init.shared.b64 [%r6], 1;
  fence.mbarrier_init.release.cluster;
INIT: st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.sync 0;
  setp.lt.u32 %p3, %r1, 32; @%p3 bra PRODUCER;
  ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;
  bar.warp.sync -1; and.b32 %r13, %r1, 31; setp.eq.u32 %p4, %r13, 0;
  @%p4 mbarrier.arrive.shared.b64 _, [%r6];
  bra END;
PRODUCER: @!%p1 bra END;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r6], 0; @!%p2 bra WAIT;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 384;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 384, [%r5];
END:",
    },
    Twin {
        name: "no wait for the mbarrier that copies arrive at",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 64;
INIT: bar.sync 0; cp.async.ca.shared.global [%r4], [%rd3], 4;
  cp.async.mbarrier.arrive.noinc.shared.b64 [%r5];
FIX| WAIT: mbarrier.test_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
  xor.b32 %r10, %r1, 32; mad.lo.u32 %r11, %r10, 4, %r3;
  ld.shared.b32 %r12, [%r11]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a wait for the copies of another stage",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 64; mbarrier.init.shared.b64 [%r6], 128;
INIT: bar.sync 0; cp.async.ca.shared.global [%r4], [%rd3], 4;
  cp.async.mbarrier.arrive.noinc.shared.b64 [%r5];
  cp.async.ca.shared.global [%r4+1024], [%rd3], 4;
  cp.async.mbarrier.arrive.shared.b64 [%r6]; mbarrier.arrive.shared.b64 _, [%r6], 2;
WAIT: mbarrier.test_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
FIX| AGAIN: mbarrier.test_wait.parity.shared.b64 %p2, [%r6], 0; @!%p2 bra AGAIN;
  xor.b32 %r10, %r1, 32; mad.lo.u32 %r11, %r10, 4, %r3;
  ld.shared.b32 %r12, [%r11+1024]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a relaxed arrival",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 32;
  fence.mbarrier_init.release.cluster;
INIT: bar.sync 0; setp.lt.u32 %p3, %r1, 32; @%p3 bra WAIT;
  st.shared.b32 [%r4+-128], %r1;
BUG| mbarrier.arrive.relaxed.cta.shared.b64 _, [%r5];
FIX| mbarrier.arrive.release.cta.shared.b64 _, [%r5];
  bra END;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
  ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;
END:",
    },
    Twin {
        name: "only one lane waits, and the others go ahead",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 32;
  fence.mbarrier_init.release.cluster;
INIT: bar.sync 0; setp.lt.u32 %p3, %r1, 32; @%p3 bra CONSUMER;
  st.shared.b32 [%r4+-128], %r1; mbarrier.arrive.shared.b64 _, [%r5];
  bra END;
CONSUMER: @!%p1 bra READ;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
READ:
FIX| bar.warp.sync -1;
  ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;
END:",
    },
    Twin {
        name: "the answer of a wait is read, but not minded",
        found: RACE,
        threads: 64,
        blocks: 1,
        body: "  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 32;
  fence.mbarrier_init.release.cluster;
INIT: bar.sync 0; setp.lt.u32 %p3, %r1, 32; @%p3 bra WAIT;
  mov.b32 %r20, 0;
LATE: add.u32 %r20, %r20, 1; setp.lt.u32 %p5, %r20, 5000; @%p5 bra LATE;
  st.shared.b32 [%r4+-128], %r1; mbarrier.arrive.shared.b64 _, [%r5];
  bra END;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0;
FIX| @!%p2 bra WAIT;
  selp.b32 %r13, 1, 2, %p2; st.global.b32 [%rd4], %r13;
  ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;
END:",
    },
];

#[test]
fn in_shared_memory() {
    check(&SHARED, ONLY);
}

#[test]
fn with_mbarriers_and_bulk_copies() {
    check(&MBARRIERS, WITH_SYNC);
}

#[test]
fn a_report_names_both_accesses() {
    let body = ".loc 1 41 5
  st.shared.b32 [%r4], %r1;
.loc 1 42 5
BUG| and.b32 %r10, %r1, 31; mad.lo.u32 %r11, %r10, 4, %r3; ld.shared.b32 %r12, [%r11];";
    let ptx = module(body, "BUG|") + ".file 1 \"src/kernel.rs\"\n";
    let twin = Twin { name: "report", found: RACE, threads: 64, blocks: 3, body };
    let fault = run(&ptx, &twin, ONLY, Schedule::InOrder, Isa::Auto).unwrap();
    let line = |needle: &str| ptx.lines().position(|l| l.contains(needle)).unwrap() as u32 + 1;
    assert_eq!(fault.line, line("ld.shared.b32 %r12"));
    assert_eq!(fault.source.as_ref().unwrap().to_string(), "src/kernel.rs:42:5");
    assert_eq!(fault.thread, [32, 0, 0]);
    let FaultKind::DataRace { place, access, earlier, .. } = &fault.kind else { panic!("{fault}") };
    assert_eq!((place.as_str(), *access), ("byte 0 of `tile`", Access::Load));
    assert_eq!((earlier.access, earlier.line), (Access::Store, line("st.shared.b32 [%r4]")));
    assert_eq!((earlier.block, earlier.thread), (fault.block, [0, 0, 0]));
    assert_eq!(earlier.source.as_ref().unwrap().line, 41);
    let text = fault.to_string();
    let race = "race on shared memory at 0x400 (byte 0 of `tile`): this load and the store by block (0, 0, 0), thread (0, 0, 0) at PTX line";
    assert!(text.contains(race), "{text}");
}
