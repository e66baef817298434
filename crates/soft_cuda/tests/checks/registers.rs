//! Reads of registers that were not written.

use super::{Twin, check};
use soft_cuda::Checks;

const UNWRITTEN: &str = "UninitialisedRegister";

pub const TWINS: [Twin; 3] = [
    Twin {
        name: "a register that nothing writes",
        found: UNWRITTEN,
        threads: 32,
        blocks: 1,
        // The clean one moves another to local memory, which is no use of it.
        body: "
FIX| mov.b32 %r20, 0; st.local.b32 [depot], %r21;
  add.u32 %r20, %r20, 1; st.global.b32 [%rd4], %r20;",
    },
    Twin {
        name: "a register that is written on one path only",
        found: UNWRITTEN,
        threads: 32,
        blocks: 1,
        body: "  setp.lt.u32 %p2, %r1, 31;
FIX| mov.b32 %r20, 5;
  @%p2 mov.b32 %r20, 7;
  st.global.b32 [%rd4], %r20;",
    },
    Twin {
        name: "an accumulator that is not set to zero",
        found: UNWRITTEN,
        threads: 32,
        blocks: 2,
        body: "  mov.b32 %r10, 0;
FIX| mov.b32 %r20, 0f00000000;
LOOP: fma.rn.f32 %r20, %r1, %r1, %r20;
  add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 4; @%p2 bra LOOP;
  st.global.b32 [%rd4], %r20;",
    },
];

#[test]
fn twins() {
    check(&TWINS, Checks { memory: true, ..Checks::NONE });
}
