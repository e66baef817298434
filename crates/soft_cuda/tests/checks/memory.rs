//! Reads of what nobody wrote, and accesses where no variable is.

use super::{Twin, check};
use soft_cuda::Checks;

const UNWRITTEN: &str = "Uninitialised";

pub const TWINS: [Twin; 16] = [
    Twin {
        name: "shared memory",
        found: UNWRITTEN,
        threads: 32,
        blocks: 2,
        body: "
FIX| st.shared.b32 [%r4], 1;
  ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "one element of a vector in shared memory, which max would swallow",
        found: UNWRITTEN,
        threads: 32,
        blocks: 1,
        body: "  @!%p1 bra END; mov.b32 %r10, 0;
  st.shared.v2.b32 [tile], {%r10, %r10}; st.shared.b32 [tile+8], %r10;
FIX| st.shared.b32 [tile+12], %r10;
  ld.shared.v4.b32 {%r11, %r12, %r13, %r14}, [tile];
  max.f32 %r11, %r11, %r14; st.global.b32 [%rd4], %r11;
END:",
    },
    Twin {
        name: "shared memory, a constant distance behind what was written",
        found: "Uninitialised",
        threads: 64,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1;
FIX| st.shared.b32 [%r4+1024], %r1;
  bar.sync 0;
  ld.shared.b32 %r10, [%r4]; ld.shared.b32 %r11, [%r4+1024]; add.u32 %r10, %r10, %r11;
  st.global.b32 [%rd4], %r10;",
    },
    Twin {
        name: "shared memory that the block before has written",
        found: UNWRITTEN,
        threads: 32,
        blocks: 2,
        body: "
FIX| setp.lt.u32 %p2, %r2, 2;
BUG| setp.eq.u32 %p2, %r2, 0;
  @!%p2 bra READ; st.shared.b32 [%r4], 1;
READ: ld.shared.b32 %r12, [%r4]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "an atomic on shared memory that has no value",
        found: UNWRITTEN,
        threads: 32,
        blocks: 1,
        body: "
FIX| @%p1 st.shared.b32 [tile], 0;
FIX| bar.sync 0;
  red.shared.add.u32 [tile], 1;",
    },
    Twin {
        name: "device memory",
        found: UNWRITTEN,
        threads: 32,
        blocks: 1,
        body: "
FIX| st.global.b32 [%rd4], 1;
  ld.global.b32 %r12, [%rd4]; st.global.b32 [%rd3], %r12;",
    },
    Twin {
        name: "half a word of device memory",
        found: UNWRITTEN,
        threads: 1,
        blocks: 1,
        body: "  mov.b16 %h1, 1; st.global.b16 [%rd2], %h1;
FIX| st.global.b16 [%rd2+2], %h1;
  ld.global.b32 %r12, [%rd2]; st.global.b32 [%rd1], %r12;",
    },
    Twin {
        name: "the source of a copy",
        found: UNWRITTEN,
        threads: 32,
        blocks: 1,
        body: "
FIX| cp.async.ca.shared.global [%r4], [%rd3], 4;
BUG| cp.async.ca.shared.global [%r4], [%rd4], 4;
  cp.async.wait_all;",
    },
    Twin {
        name: "local memory",
        found: UNWRITTEN,
        threads: 32,
        blocks: 2,
        // The clean one writes a value with padding, and copies all of it.
        body: "  st.local.b32 [depot], 1;
FIX| st.local.b8 [depot+4], 1;
  ld.local.b32 %r12, [depot+4]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "local memory through a generic address",
        found: UNWRITTEN,
        threads: 32,
        blocks: 1,
        body: "  mov.b64 %rd10, depot; cvta.local.u64 %rd10, %rd10;
FIX| st.b32 [%rd10+8], 1;
  ld.b32 %r12, [%rd10+8]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a store past the end of a shared array",
        found: "NoVariable",
        threads: 32,
        blocks: 1,
        body: "
FIX| st.shared.b32 [%r4+3968], 1;
BUG| st.shared.b32 [%r4+4096], 1;",
    },
    Twin {
        name: "a load past the end of a shared array",
        found: UNWRITTEN,
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4+3968], 1; st.shared.b32 [next], 1;
FIX| ld.shared.b32 %r12, [%r4+3968]; st.global.b32 [%rd4], %r12;
BUG| ld.shared.b32 %r12, [%r4+4096]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a variable of the module without an initial value is zero, local memory is not",
        found: UNWRITTEN,
        threads: 32,
        blocks: 1,
        body: "
FIX| ld.global.b32 %r12, [zeros+4]; st.global.b32 [%rd4], %r12;
BUG| ld.local.b32 %r12, [depot]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a function that does not set its result",
        found: "Uninitialised|UninitialisedRegister",
        threads: 32,
        blocks: 2,
        body: "  { .param .b32 x; .param .b32 y;
  st.param.b32 [x], %r1;
FIX| call (y), sets, (x);
BUG| call (y), forgets, (x);
  ld.param.b32 %r12, [y]; }
  st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "ld.nc of what this launch wrote",
        found: "ReadOnlyCache",
        threads: 32,
        blocks: 1,
        body: "  st.global.b32 [%rd3], 1;
FIX| ld.global.b32 %r12, [%rd3]; st.global.b32 [%rd4], %r12;
BUG| ld.global.nc.b32 %r12, [%rd3]; st.global.b32 [%rd4], %r12;",
    },
    Twin {
        name: "a write after ld.nc, and after loads that came later",
        found: "ReadOnlyCache",
        threads: 96,
        blocks: 1,
        body: "  st.global.b32 [%rd3+2048], 1;
  setp.eq.u32 %p2, %r1, 32;
  setp.eq.u32 %p3, %r1, 64;
  bar.sync 0;
FIX| @%p1 ld.global.b32 %r12, [%rd1];
BUG| @%p1 ld.global.nc.b32 %r12, [%rd1];
  bar.sync 0;
  @%p2 ld.global.b32 %r12, [%rd1];
  bar.sync 0;
  @%p3 ld.global.b32 %r12, [%rd1];
  bar.sync 0;
  @%p1 st.global.b32 [%rd1], 1;",
    },
];

/// Loads that repeat nothing, so that every one is a record of its own.
#[test]
fn a_gather_longer_than_the_log_of_its_cluster_is_checked() {
    let body = "  mov.u32 %r12, %r1; mov.u32 %r13, 0;
again:
  mad.lo.u32 %r12, %r12, 1664525, 1013904223;
  shr.u32 %r14, %r12, 20;
  mad.wide.u32 %rd6, %r14, 4, %rd1;
  ld.global.b32 %r15, [%rd6];
  add.u32 %r13, %r13, 1;
  setp.lt.u32 %p2, %r13, 20000;
  @%p2 bra again;
BUG| @%p1 st.global.b32 [%rd1+64], 1;";
    // Of the block's reads only those by thread 0 come before its write.
    let gather = Twin { name: "a gather", found: "DataRace", threads: 64, blocks: 1, body };
    check(&[gather], Checks { races: true, ..Checks::NONE });
}

#[test]
fn twins() {
    check(&TWINS, Checks { memory: true, ..Checks::NONE });
}
