//! Bulk reductions: what they race with, and until when.

use super::{Twin, check};
use soft_cuda::Checks;

const RACE: &str = "DataRace";

pub const TWINS: [Twin; 9] = [
    Twin {
        name: "a bulk reduction into device memory that nobody wrote",
        found: "Uninitialised",
        threads: 32,
        blocks: 2,
        body: "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p1 bra END;
FIX| cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [tile], 128;
BUG| cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2], [tile], 128;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:",
    },
    Twin {
        name: "a bulk reduction where another block copies",
        found: RACE,
        threads: 32,
        blocks: 2,
        body: "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p1 bra END;
  setp.eq.u32 %p2, %r2, 0; @%p2 bra ADD;
FIX| cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1+64], [tile], 128;
BUG| cp.async.bulk.global.shared::cta.bulk_group [%rd1+64], [tile], 128;
  bra WAIT;
ADD: cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [tile], 128;
WAIT: cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
END:",
    },
    Twin {
        name: "a bulk reduction where another block stores",
        found: RACE,
        threads: 32,
        blocks: 2,
        body: "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p1 bra END;
  setp.eq.u32 %p2, %r2, 0; @%p2 bra ADD;
FIX| red.global.add.u32 [%rd1+64], 1;
BUG| st.global.u32 [%rd1+64], 1;
  bra END;
ADD: cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [tile], 128;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:",
    },
    Twin {
        name: "bulk reductions of one place with elements of 4 and of 8 bytes",
        found: RACE,
        threads: 32,
        blocks: 2,
        body: "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p1 bra END;
  setp.eq.u32 %p2, %r2, 0; @%p2 bra ADD;
FIX| cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s64 [%rd1], [tile], 128;
BUG| cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [%rd1], [tile], 128;
  bra WAIT;
ADD: cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u64 [%rd1], [tile], 128;
WAIT: cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:",
    },
    Twin {
        name: "what a bulk reduction adds to, read before the sum is there",
        found: RACE,
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p1 bra NEXT;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.min.s32 [%rd1], [tile], 128; cp.async.bulk.commit_group;
FIX| cp.async.bulk.wait_group 0;
BUG| cp.async.bulk.wait_group.read 0;
NEXT: bar.warp.sync -1;
  ld.global.b32 %r10, [%rd3]; st.global.b32 [%rd4], %r10;",
    },
    Twin {
        name: "a buffer overwritten while a bulk reduction still reads it",
        found: RACE,
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p1 bra NEXT;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.or.b32 [%rd1], [tile], 128; cp.async.bulk.commit_group;
FIX| cp.async.bulk.wait_group.read 0;
NEXT: bar.warp.sync -1;
  st.shared.b32 [%r4], 7;
  @%p1 cp.async.bulk.wait_group 0;",
    },
    Twin {
        name: "no fence.proxy.async between a store and a bulk reduction of it",
        found: "MissingProxyFence",
        threads: 32,
        blocks: 1,
        body: "  st.shared.b32 [%r4], %r1;
FIX| fence.proxy.async.shared::cta;
  bar.warp.sync -1; @!%p1 bra END;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [tile], 128;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:",
    },
    Twin {
        name: "another block's sums of bulk reductions, read before their phase is complete",
        found: RACE,
        threads: 64,
        blocks: 2,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1;
  mov.b32 %r13, next; mad.lo.u32 %r13, %r1, 4, %r13; st.shared.b32 [%r13], 0;
  mapa.shared::cluster.u32 %r11, next, %r10; mapa.shared::cluster.u32 %r12, %r5, %r10;
  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 512;
INIT: st.shared.b32 [%r4], %r1; fence.proxy.async;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  and.b32 %r14, %r1, 31; setp.ne.u32 %p2, %r14, 0; @%p2 bra WAIT;
  cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r11], [tile], 256, [%r12];
WAIT:
FIX| mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
  ld.shared.b32 %r14, [%r13]; st.global.b32 [%rd4], %r14;
BUG|SPIN: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra SPIN;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
    },
    Twin {
        name: "a bulk reduction into another block's memory that has no value",
        found: "Uninitialised",
        threads: 32,
        blocks: 2,
        body: "HEAD|.reqnctapercluster 2, 1, 1
  mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1;
FIX| mov.b32 %r13, next; mad.lo.u32 %r13, %r1, 4, %r13; st.shared.b32 [%r13], 0;
  mapa.shared::cluster.u32 %r11, next, %r10; mapa.shared::cluster.u32 %r12, %r5, %r10;
  @!%p1 bra INIT; mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 128;
INIT: st.shared.b32 [%r4], %r1; fence.proxy.async;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; @!%p1 bra WAIT;
  cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r11], [tile], 128, [%r12];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
    },
];

#[test]
fn twins() {
    check(&TWINS, Checks::ALL);
}

pub const EXITS: [Twin; 1] = [Twin {
    name: "a block that ends while a bulk reduction may still read its shared memory",
    found: "MissingWait",
    threads: 32,
    blocks: 2,
    body: "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p1 bra END;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [tile], 128; cp.async.bulk.commit_group;
FIX| cp.async.bulk.wait_group.read 0;
END:",
}];

#[test]
fn waits_for_what_reads_the_memory_of_a_block_that_ends() {
    check(&EXITS, Checks { sync: true, ..Checks::NONE });
}

/// The twins whose reductions go to device memory, with reductions of tensors instead.
fn of_tensors(twins: &[Twin]) -> Vec<Twin> {
    let plain = "cp.reduce.async.bulk.global.shared::cta.bulk_group.";
    let of_tensor = |instruction: &str| {
        let (how, places) = instruction.split_once(' ').unwrap();
        let (operation, ty) = how.split_once('.').unwrap();
        let ty = ty.replace('b', "u");
        let place = places.split(']').next().unwrap();
        let (base, offset) = place.split_once('+').unwrap_or((place, "0"));
        let buffer = if base == "[%rd1" { "in" } else { "out" };
        let bytes: u32 = if ty.ends_with("64") { 8 } else { 4 };
        let start = offset.parse::<u32>().unwrap() / bytes;
        format!(
            "mov.b64 %rd50, {buffer}_{ty}; cvta.param.u64 %rd50, %rd50; mov.b32 %r50, {start}; cp.reduce.async.bulk.tensor.1d.global.shared::cta.{operation}.tile.bulk_group [%rd50, {{%r50}}], [tile]"
        )
    };
    let twins = twins.iter().filter(|twin| twin.body.contains(plain));
    twins
        .map(|twin| {
            let mut parts = twin.body.split(plain);
            let mut body = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                let (instruction, rest) = part.split_once(';').unwrap();
                body += &of_tensor(instruction);
                body += ";";
                body += rest;
            }
            Twin { body: body.leak(), ..*twin }
        })
        .collect()
}

#[test]
fn twins_of_tensors() {
    let twins = of_tensors(&TWINS);
    assert_eq!(twins.len(), 7);
    check(&twins, Checks::ALL);
    let exits = of_tensors(&EXITS);
    assert_eq!(exits.len(), 1);
    check(&exits, Checks { sync: true, ..Checks::NONE });
}

/// Two words of a row lie in the tensor, but they are not one atomic of 8 bytes.
const TWO_WORDS: [Twin; 1] = [Twin {
    name: "two words of a tensor reduced where another block has an atomic of 8 bytes",
    found: RACE,
    threads: 32,
    blocks: 2,
    body:
        "  st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; @!%p1 bra END;
  setp.eq.u32 %p2, %r2, 0; @%p2 bra ADD;
FIX| red.global.add.u32 [%rd1], 1;
BUG| red.global.add.u64 [%rd1], 1;
  bra END;
ADD: mov.b64 %rd50, in_two_u32; cvta.param.u64 %rd50, %rd50; mov.b32 %r50, 0;
  cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%rd50, {%r50}], [tile];
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:",
}];

#[test]
fn two_words_are_not_one_of_8_bytes() {
    check(&TWO_WORDS, Checks::ALL);
}
