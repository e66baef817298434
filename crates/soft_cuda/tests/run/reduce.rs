//! Bulk reductions, `cp.reduce.async.bulk`.

use super::{Case, f, line_of, module};
use soft_cuda::{Fault, FaultKind};

/// One thread reduces the words of the first buffer, by `instruction`, into those of the second
/// one, whose address is in `%rd2`; `%r3` has that of the words in shared memory, `%r4` their
/// bytes.
fn kernel(words: usize, instruction: &str, wait: &str) -> String {
    let body = format!(
        "  mov.b32 %r3, tile; mov.b32 %r4, {}; mov.b32 %r5, 0;
LOOP: cvt.u64.u32 %rd3, %r5; add.s64 %rd4, %rd1, %rd3; ld.global.b32 %r6, [%rd4];
  add.u32 %r7, %r3, %r5; st.shared.b32 [%r7], %r6;
  add.u32 %r5, %r5, 4; setp.lt.u32 %p1, %r5, %r4; @%p1 bra LOOP;
  fence.proxy.async;
  {instruction}
  cp.async.bulk.commit_group; {wait}",
        words * 4
    );
    sm_90a(&module(2, ".shared .align 16 .b8 tile[4096];", &body))
}

fn sm_90a(ptx: &str) -> String {
    ptx.replace("sm_80", "sm_90a")
}

fn to_global(how: &str) -> String {
    format!("cp.reduce.async.bulk.global.shared::cta.bulk_group.{how} [%rd2], [%r3], %r4;")
}

const WAIT: &str = "cp.async.bulk.wait_group 0;";

fn case(from: &[u32], to: &[u32], instruction: &str, wait: &str) -> Case {
    let ptx = kernel(from.len(), instruction, wait);
    Case::new(ptx, &[from.to_vec(), to.to_vec()]).threads(1)
}

/// The words of elements of `bits` bits.
fn packed(elements: &[u64], bits: usize) -> Vec<u32> {
    let bytes: Vec<u8> =
        elements.iter().flat_map(|e| e.to_le_bytes()[..bits / 8].to_vec()).collect();
    bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

/// Reduces each of `operands` into each of `olds`; the results in that order, `olds` outside.
fn table(how: &str, bits: usize, olds: &[u64], operands: &[u64]) -> Vec<u32> {
    let pairs = || olds.iter().flat_map(|&old| operands.iter().map(move |&b| (old, b)));
    let (to, from): (Vec<u64>, Vec<u64>) = pairs().unzip();
    case(&packed(&from, bits), &packed(&to, bits), &to_global(how), WAIT).run()
}

#[test]
fn integers() {
    type Operation = fn(u64, u64) -> u64;
    let narrow: [(&str, Operation); 13] = [
        ("add.u32", |a, b| a + b),
        ("add.s32", |a, b| a + b),
        ("min.u32", u64::min),
        ("max.u32", u64::max),
        ("min.s32", |a, b| (a as i32).min(b as i32) as u64),
        ("max.s32", |a, b| (a as i32).max(b as i32) as u64),
        ("inc.u32", |a, b| if a >= b { 0 } else { a + 1 }),
        ("dec.u32", |a, b| if a == 0 || a > b { b } else { a - 1 }),
        ("and.b32", |a, b| a & b),
        ("or.b32", |a, b| a | b),
        ("xor.b32", |a, b| a ^ b),
        ("L2::cache_hint.add.u32", |a, b| a + b),
        ("L2::cache_hint.max.s32", |a, b| (a as i32).max(b as i32) as u64),
    ];
    let values = [0, 1, 2, 7, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x1234_5678];
    for (how, operation) in narrow {
        let all: Vec<u64> =
            values.iter().flat_map(|&a| values.map(|b| operation(a, b) & 0xffff_ffff)).collect();
        let mut instruction = to_global(how);
        if how.starts_with("L2") {
            instruction = instruction.replace("%r4;", "%r4, %rd1;");
        }
        let (to, from): (Vec<u64>, Vec<u64>) =
            values.iter().flat_map(|&a| values.map(|b| (a, b))).unzip();
        let got = case(&packed(&from, 32), &packed(&to, 32), &instruction, WAIT).run();
        assert_eq!(got, packed(&all, 32), "{how}");
    }
    let wide: [(&str, Operation); 8] = [
        ("add.u64", u64::wrapping_add),
        ("min.u64", u64::min),
        ("max.u64", u64::max),
        ("min.s64", |a, b| (a as i64).min(b as i64) as u64),
        ("max.s64", |a, b| (a as i64).max(b as i64) as u64),
        ("and.b64", |a, b| a & b),
        ("or.b64", |a, b| a | b),
        ("xor.b64", |a, b| a ^ b),
    ];
    let values = [0, 1, 7, i64::MAX as u64, 1 << 63, u64::MAX, 0x1234_5678_9abc_def0, 1 << 32];
    for (how, operation) in wide {
        let all: Vec<u64> = values.iter().flat_map(|&a| values.map(|b| operation(a, b))).collect();
        assert_eq!(table(how, 64, &values, &values), packed(&all, 64), "{how}");
    }
}

#[test]
fn floats_as_an_h200_computes_them() {
    // 0, -0, the least number and its negative, 1, -1, and two NaNs.
    for (name, one, nans) in [("f16", 0x3c00, [0x7c01, 0xfe00]), ("bf16", 0x3f80, [0x7f81, 0xffc0])]
    {
        let values = [0, 0x8000, 1, 0x8001, one, one | 0x8000, nans[0], nans[1]];
        let sums = [
            [0, 0, 1, 0x8001, one, one | 0x8000],
            [0, 0x8000, 1, 0x8001, one, one | 0x8000],
            [1, 1, 2, 0, one, one | 0x8000],
            [0x8001, 0x8001, 0, 0x8002, one, one | 0x8000],
            [one, one, one, one, 0x4000, 0],
            [one | 0x8000, one | 0x8000, one | 0x8000, one | 0x8000, 0, 0xc000],
        ];
        let sums = sums.iter().flat_map(|row| row.iter().copied().chain([0x7fff; 2]));
        let all: Vec<u64> = sums.chain([0x7fff; 16]).collect();
        let how = format!("add.noftz.{name}");
        assert_eq!(table(&how, 16, &values, &values), packed(&all, 16), "{how}");
        // The order of the first six; NaN gives way to a number.
        let rank = [3, 2, 4, 1, 5, 0];
        let best = |a: usize, b: usize, min: bool| match (a < 6, b < 6) {
            (true, true) if (rank[a] < rank[b]) == min => values[a],
            (true, true) | (false, true) => values[b],
            (true, false) => values[a],
            (false, false) => 0x7fff,
        };
        for (operation, min) in [("min", true), ("max", false)] {
            let all: Vec<u64> = (0..8)
                .flat_map(|a| (0..8).map(move |b| (a, b)))
                .map(|(a, b)| best(a, b, min))
                .collect();
            let how = format!("{operation}.{name}");
            assert_eq!(table(&how, 16, &values, &values), packed(&all, 16), "{how}");
        }
    }
    let values = [0, 1 << 31, 1, 0x8000_0001, 0x3f80_0000, 0x7f80_0001, 0xffc0_0000, 0x007f_ffff];
    let sums = [
        [0, 0, 1, 0x8000_0001, 0x3f80_0000, 0x7fff_ffff, 0x7fff_ffff, 0x007f_ffff],
        [1, 1, 2, 0, 0x3f80_0000, 0x7fff_ffff, 0x7fff_ffff, 0x0080_0000],
    ];
    let all: Vec<u64> = sums.concat();
    assert_eq!(table("add.f32", 32, &[0, 1], &values), packed(&all, 32));
    // The NaN that is added, or else that in memory, and neither is made quiet.
    let (inf, quiet, loud) = (0x7ffu64 << 52, 0xfff8_0000_0000_0005, 0x7ff0_0000_0000_0001);
    let values = [0, 1023 << 52, loud, quiet, inf, inf | 1 << 63];
    let sums = [
        [0, 1023 << 52, loud, quiet, inf, inf | 1 << 63],
        [loud, loud, loud, quiet, loud, loud],
        [quiet, quiet, loud, quiet, quiet, quiet],
        [inf, inf, loud, quiet, inf, 0xfff8 << 48],
    ];
    let got = table("add.f64", 64, &[0, loud, quiet, inf], &values);
    assert_eq!(got, packed(&sums.concat(), 64));
}

#[test]
fn they_happen_at_the_wait_or_at_the_end() {
    let read = |wait: &str| {
        format!(
            "{wait} ld.global.b32 %r8, [%rd2]; st.global.b32 [%rd2+16], %r8; st.shared.b32 [%r3], 99;"
        )
    };
    let (from, to) = ([1, 2, 3, 4], [10, 20, 30, 40, 0]);
    let run = |wait: &str| case(&from, &to, &to_global("add.u32"), &read(wait)).run();
    assert_eq!(run(WAIT), [11, 22, 33, 44, 11]);
    assert_eq!(run("cp.async.bulk.wait_group.read 0;"), [11, 22, 33, 44, 11]);
    // The source is another one at the end.
    assert_eq!(run(""), [109, 22, 33, 44, 10]);
    let unwaited = case(&from, &to, &to_global("add.u32"), "").run();
    assert_eq!(unwaited, [11, 22, 33, 44, 0]);
    // Blocks add to the same words.
    let blocks = case(&from, &to, &to_global("add.u32"), "").blocks(50).run();
    assert_eq!(blocks, [60, 120, 180, 240, 0]);
}

/// Blocks on all threads of the host add to the same words, often, and so do ordinary reductions.
#[test]
fn no_sum_is_lost() {
    const BLOCKS: u32 = 16;
    const ROUNDS: u32 = 60;
    let sums = u64::from(BLOCKS * ROUNDS);
    for (how, bits, one, many) in [
        ("add.u32", 32, 1, sums),
        ("add.f32", 32, u64::from(f(1.0)), u64::from(f(sums as f32))),
        ("add.u64", 64, 1, sums),
        ("add.f64", 64, 1f64.to_bits(), (sums as f64).to_bits()),
        // 960 is 1.875 * 2^9.
        ("add.noftz.f16", 16, 0x3c00, (15 + 9) << 10 | 0x380),
    ] {
        // More than are accessed at once: all blocks are in the same words for some time.
        let from = packed(&vec![one; 8192 / bits], bits);
        // Behind them a word for ordinary reductions.
        let to = vec![0; from.len() + 1];
        let reduce = to_global(how);
        let after = to.len() * 4 - 4;
        let rounds = format!(
            "mov.b32 %r8, 1; mov.b32 %r9, 0;
AGAIN: {reduce} cp.async.bulk.commit_group; {WAIT}
  red.global.add.u32 [%rd2+{after}], %r8;
  add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, {ROUNDS}; @%p2 bra AGAIN;"
        );
        let got = case(&from, &to, &rounds, WAIT).blocks(BLOCKS).run();
        let (ordinary, got) = got.split_last().unwrap();
        assert_eq!(got, packed(&vec![many; 8192 / bits], bits), "{how}");
        assert_eq!(u64::from(*ordinary), sums, "{how}");
    }
}

/// Two blocks of a cluster: each has 100 in the 8 words of `sum`, and adds its rank plus 5 to those
/// of the block whose rank is `to` from its own, 0 or 1, as often as it has threads.
fn cluster(to: u32, threads: u32, instruction: &str) -> Case {
    let body = format!(
        "  mov.u32 %r10, %cluster_ctarank; mov.b32 %r3, tile; mov.b32 %r4, sum; mov.b32 %r5, full;
  setp.ne.u32 %p1, %r1, 0; @%p1 bra INIT;
  add.u32 %r6, %r10, 5; st.shared.v4.b32 [%r3], {{%r6, %r6, %r6, %r6}}; st.shared.v4.b32 [%r3+16], {{%r6, %r6, %r6, %r6}};
  mov.b32 %r7, 100; st.shared.v4.b32 [%r4], {{%r7, %r7, %r7, %r7}}; st.shared.v4.b32 [%r4+16], {{%r7, %r7, %r7, %r7}};
  mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r5], {};
INIT: fence.proxy.async;
  barrier.cluster.arrive; barrier.cluster.wait;
  xor.b32 %r11, %r10, {to}; mapa.shared::cluster.u32 %r12, %r4, %r11; mapa.shared::cluster.u32 %r13, %r5, %r11;
  {instruction}
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
  barrier.cluster.arrive; barrier.cluster.wait;
  setp.gt.u32 %p1, %r1, 0; @%p1 bra END;
  mul.wide.u32 %rd5, %r10, 32; add.s64 %rd5, %rd1, %rd5;
  ld.shared.v4.b32 {{%r14, %r15, %r16, %r17}}, [%r4]; st.global.v4.b32 [%rd5], {{%r14, %r15, %r16, %r17}};
  ld.shared.v4.b32 {{%r14, %r15, %r16, %r17}}, [%r4+16]; st.global.v4.b32 [%rd5+16], {{%r14, %r15, %r16, %r17}};
END:",
        32 * threads
    );
    let shared = ".shared .align 16 .b8 tile[32];\n.shared .align 16 .b8 sum[32];\n.shared .align 8 .b64 full;";
    let ptx = sm_90a(&module(1, shared, &body));
    let ptx = ptx.replace(")\n{", ")\n.reqnctapercluster 2, 1, 1\n{");
    Case::new(ptx, &[vec![0; 16]]).threads(threads).blocks(2)
}

const TO_CLUSTER: &str = "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r12], [%r3], 32, [%r13];";

#[test]
fn to_the_shared_memory_of_a_cluster() {
    // All threads of a block, in two warps, add at once.
    for threads in [1, 40] {
        let want = |to: u32| [0, 1].map(|rank| [100 + threads * (5 + (rank ^ to)); 8]).concat();
        assert_eq!(cluster(1, threads, TO_CLUSTER).run(), want(1));
        // An H200 reduces to the block's own memory, too.
        assert_eq!(cluster(0, threads, TO_CLUSTER).run(), want(0));
    }
    for (how, want) in [
        ("add.s32", 106),
        ("max.u32", 100),
        ("min.s32", 6),
        ("inc.u32", 0),
        ("dec.u32", 6),
        ("and.b32", 4),
        ("or.b32", 102),
        ("xor.b32", 98),
    ] {
        let got = cluster(1, 1, &TO_CLUSTER.replace("add.u32", how)).run();
        assert_eq!(got[0], want, "{how}");
    }
    // Of 64-bit words.
    assert_eq!(cluster(1, 1, &TO_CLUSTER.replace("add.u32", "add.u64")).run()[..2], [106, 106]);
    // A copy at the same time is a race.
    let both =
        format!("{TO_CLUSTER} {}", TO_CLUSTER.replace("reduce.", "").replace(".add.u32", ""));
    let fault = cluster(1, 1, &both).fault();
    assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}");
}

#[test]
fn what_is_wrong_with_their_places() {
    let good = to_global("add.u32");
    for (from, to, text) in [
        ("[%r3]", "[%r3+8]", "not a multiple of 16"),
        ("[%rd2]", "[%rd2+4]", "not a multiple of 16"),
        ("%r4;", "12;", "a bulk copy of 12 bytes"),
        ("[%rd2]", "[%rd2+4096]", "out of bounds"),
        ("[%r3]", "[%r3+65536]", "out of bounds"),
    ] {
        let bad: Case = case(&[1; 4], &[1; 4], &good.replace(from, to), WAIT);
        let fault: Fault = bad.fault();
        assert_eq!(fault.line, line_of(&bad.ptx, "cp.reduce"), "{fault}");
        assert!(fault.to_string().contains(text), "{fault}");
    }
}
