//! Random straight-line code of FMAs, moves, additions and loads from shared memory, which the
//! loader fuses, next to the same code by Rust.

use std::fmt::Write as _;

use super::{Case, module};

/// Registers of f32, from `%r20` on, and of addresses, from `%r5` on.
const VALUES: usize = 14;
const ADDRESSES: usize = 4;
const LANES: usize = 32;
/// Words of shared memory.
const WORDS: usize = 1024;
const PROGRAMS: u64 = 400;

/// A generator of Marsaglia's (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % end as u64) as usize
    }
}

/// An instruction; registers by their numbers among those of their kind.
#[derive(Clone, Copy, Debug)]
enum Code {
    /// Of three factors, the last one added.
    Fma(usize, [usize; 3]),
    /// So many words from an address and an offset on.
    Load {
        to: usize,
        words: usize,
        from: usize,
        offset: usize,
    },
    /// Of a constant to an address, in odd lanes alone if the last says so.
    Add(usize, usize, usize, bool),
    Move(usize, usize),
}

impl Code {
    fn random(random: &mut Random, registers: usize, fmas: usize) -> Code {
        match random.below(20) {
            kind if kind < fmas => {
                Code::Fma(random.below(registers), std::array::from_fn(|_| random.below(registers)))
            }
            19 => {
                let (to, from) = (random.below(ADDRESSES), random.below(ADDRESSES));
                Code::Add(to, from, 16 * random.below(6), random.below(4) == 0)
            }
            18 => Code::Move(random.below(registers), random.below(registers)),
            _ => {
                let words = [1, 1, 2, 4][random.below(4)];
                // The address of register 0 is aligned for one word alone.
                let from = if words > 1 { 1 + random.below(3) } else { random.below(ADDRESSES) };
                let to = random.below(registers - words + 1);
                Code::Load { to, words, from, offset: 4 * words * random.below(24) }
            }
        }
    }

    fn ptx(self) -> String {
        let value = |number: usize| format!("%r{}", 20 + number);
        match self {
            Code::Fma(d, [a, b, c]) => {
                let [d, a, b, c] = [d, a, b, c].map(value);
                format!("  fma.rn.f32 {d}, {a}, {b}, {c};\n")
            }
            Code::Move(d, a) => format!("  mov.b32 {}, {};\n", value(d), value(a)),
            Code::Add(d, a, constant, odd) => {
                let guard = if odd { "@%p1 " } else { "" };
                format!("  {guard}add.s32 %r{}, %r{}, {constant};\n", 5 + d, 5 + a)
            }
            Code::Load { to, words: 1, from, offset } => {
                format!("  ld.shared.b32 {}, [%r{}+{offset}];\n", value(to), 5 + from)
            }
            Code::Load { to, words, from, offset } => {
                let to: Vec<_> = (to..to + words).map(value).collect();
                let to = to.join(", ");
                format!("  ld.shared.v{words}.b32 {{{to}}}, [%r{}+{offset}];\n", 5 + from)
            }
        }
    }
}

/// What one lane has at the end; `None` if a load is misaligned or reaches too far.
fn compute(code: &[Code], rounds: usize, words: &[u32], lane: usize) -> Option<[f32; VALUES]> {
    let mut values: [f32; VALUES] =
        std::array::from_fn(|i| f32::from_bits(words[i * LANES + lane]));
    let mut addresses = [4 * lane, 16 * lane, 64, 128];
    for instruction in (0..rounds).flat_map(|_| code) {
        match *instruction {
            Code::Fma(d, [a, b, c]) => values[d] = values[a].mul_add(values[b], values[c]),
            Code::Move(d, a) => values[d] = values[a],
            Code::Add(d, a, constant, odd) => {
                if !odd || lane % 2 == 1 {
                    addresses[d] = addresses[a] + constant;
                }
            }
            Code::Load { to, words: count, from, offset } => {
                let at = addresses[from] + offset;
                if at + 4 * count > 4 * WORDS || !at.is_multiple_of(4 * count) {
                    return None;
                }
                for i in 0..count {
                    values[to + i] = f32::from_bits(words[at / 4 + i]);
                }
            }
        }
    }
    Some(values)
}

fn ptx(code: &[Code], rounds: usize) -> String {
    let mut body = String::from(
        "  mov.b32 %r2, tile; add.s64 %rd5, %rd1, %rd0;
  shl.b32 %r3, %r1, 2; add.s32 %r4, %r2, %r3;\n",
    );
    for i in (0..WORDS / LANES).map(|i| 4 * LANES * i) {
        let _ = writeln!(body, "  ld.global.b32 %r10, [%rd5+{i}]; st.shared.b32 [%r4+{i}], %r10;");
    }
    body += "  bar.sync 0;
  add.s32 %r5, %r2, %r3; shl.b32 %r9, %r1, 4; add.s32 %r6, %r2, %r9;
  add.s32 %r7, %r2, 64; add.s32 %r8, %r2, 128;
  and.b32 %r11, %r1, 1; setp.eq.u32 %p1, %r11, 1; mov.u32 %r12, 0;\n";
    for i in 0..VALUES {
        let _ = writeln!(body, "  ld.shared.b32 %r{}, [%r4+{}];", 20 + i, 4 * LANES * i);
    }
    body += "again:\n";
    body.extend(code.iter().map(|instruction| instruction.ptx()));
    let _ = writeln!(body, "  add.u32 %r12, %r12, 1; setp.lt.u32 %p2, %r12, {rounds};");
    body += "  @%p2 bra again;\n  add.s64 %rd6, %rd2, %rd0;\n";
    for i in 0..VALUES {
        let _ = writeln!(body, "  st.global.b32 [%rd6+{}], %r{};", 4 * LANES * i, 20 + i);
    }
    module(2, ".shared .align 16 .b8 tile[4096];", &body)
}

#[test]
fn random_code_computes_what_rust_does() {
    let mut compared = 0;
    for seed in 1..=PROGRAMS {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Small numbers, and now and then an infinity, whose products with zero are NaN.
        let words: Vec<u32> = (0..WORDS)
            .map(|_| match random.below(200) {
                0 => f32::INFINITY.to_bits(),
                _ => ((random.below(9) as f32 - 4.0) / 4.0).to_bits(),
            })
            .collect();
        let registers = 4 + random.below(VALUES - 3);
        let (rounds, fmas) = (1 + random.below(2), 6 + random.below(10));
        let length = 5 + random.below(60);
        let code: Vec<_> =
            (0..length).map(|_| Code::random(&mut random, registers, fmas)).collect();
        let lanes: Option<Vec<_>> =
            (0..LANES).map(|lane| compute(&code, rounds, &words, lane)).collect();
        let Some(lanes) = lanes else { continue };
        let result = Case::new(ptx(&code, rounds), &[words, vec![0; VALUES * LANES]]).run();
        for (i, &bits) in result.iter().enumerate() {
            let value = lanes[i % LANES][i / LANES];
            let expected = if value.is_nan() { 0x7fff_ffff } else { value.to_bits() };
            let (register, lane) = (i / LANES, i % LANES);
            assert_eq!(
                bits, expected,
                "program {seed}, register {register}, lane {lane}: {bits:x}, not {expected:x}; \
                 {rounds} times {code:?}"
            );
        }
        compared += 1;
    }
    assert!(compared > PROGRAMS / 4, "{compared}");
}

/// Of a chain of FMAs the values in between are not kept, unless they are read elsewhere.
#[test]
fn a_sum_that_two_instructions_read_is_kept() {
    let body = "  cvt.rn.f32.u32 %r10, %r1; mov.b32 %r11, 0f40400000; mov.b32 %r12, 0f3F800000;
  fma.rn.f32 %r20, %r10, %r11, %r12;
  fma.rn.f32 %r21, %r11, %r11, %r20;
  add.s64 %rd3, %rd1, %rd0;
  st.global.b32 [%rd3], %r21; st.global.b32 [%rd3+128], %r20;";
    let stored = Case::new(module(1, "", body), &[vec![0; 2 * LANES]]).run();
    let sums: Vec<f32> = stored.iter().map(|&word| f32::from_bits(word)).collect();
    let first = (0..LANES).map(|lane| 3.0 * lane as f32 + 1.0);
    let expected: Vec<f32> = first.clone().map(|sum| sum + 9.0).chain(first).collect();
    assert_eq!(sums, expected);
}
