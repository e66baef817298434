//! Arithmetic of 16-bit floats and of pairs of them, against exact sums.

use super::{Case, kernel};
use soft_cuda::{Config, Device};

#[path = "../reference/half.rs"]
mod reference;

use reference::{BF16, F16, Format, INSTRUCTIONS, NAN, Number, THREADS, one, operands};

/// Runs `body`, which has the operands in `%r10` to `%r12`, and their lower halves in `%h1` to
/// `%h3`, and stores `words` words of each thread from `%rd9` on.
fn run(body: &str, words: usize) -> ([Vec<u32>; 3], Vec<u32>) {
    let body = format!(
        "  mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 256, %r1;
  mul.wide.u32 %rd5, %r3, 4;
  add.s64 %rd6, %rd1, %rd5; add.s64 %rd7, %rd2, %rd5; add.s64 %rd8, %rd3, %rd5;
  mul.wide.u32 %rd9, %r3, {}; add.s64 %rd9, %rd4, %rd9;
  ld.global.b32 %r10, [%rd6]; ld.global.b32 %r11, [%rd7]; ld.global.b32 %r12, [%rd8];
  cvt.u16.u32 %h1, %r10; cvt.u16.u32 %h2, %r11; cvt.u16.u32 %h3, %r12;\n{body}",
        words * 4
    );
    let [a, b, c] = operands();
    let ptx = kernel(4, &body).replace("sm_80", "sm_90a");
    let out = vec![0xdead_beef; THREADS * words];
    let case = Case::new(ptx, &[a.clone(), b.clone(), c.clone(), out]);
    ([a, b, c], case.threads(256).blocks((THREADS / 256) as u32).budget(1 << 30).run())
}

fn halves(words: &[Vec<u32>; 3], i: usize, shift: u32) -> [u16; 3] {
    [0, 1, 2].map(|k| (words[k][i] >> shift) as u16)
}

#[test]
fn arithmetic_is_rounded_once() {
    for (format, single, pair) in [(F16, "f16", "f16x2"), (BF16, "bf16", "bf16x2")] {
        let mut body = String::new();
        for (k, (instruction, count, _)) in INSTRUCTIONS.iter().enumerate() {
            let pairs = ["%r10", "%r11", "%r12"][..*count].join(", ");
            let singles = ["%h1", "%h2", "%h3"][..*count].join(", ");
            body += &format!(
                "  {instruction}.{pair} %r20, {pairs}; st.global.b32 [%rd9+{}], %r20;
  {instruction}.{single} %h4, {singles}; cvt.u32.u16 %r20, %h4; st.global.b32 [%rd9+{}], %r20;\n",
                k * 8,
                k * 8 + 4
            );
        }
        let words = INSTRUCTIONS.len() * 2;
        let (operands, found) = run(&body, words);
        for (i, found) in found.chunks_exact(words).enumerate() {
            for (k, (instruction, _, expected)) in INSTRUCTIONS.iter().enumerate() {
                let [low, high] = [0, 16].map(|shift| {
                    let [a, b, c] = halves(&operands, i, shift);
                    u32::from(expected(format, a, b, c))
                });
                let said = |found: u32| {
                    let words = operands.each_ref().map(|words| words[i]);
                    format!("{instruction}.{pair} of {words:08x?}: {found:08x}")
                };
                assert_eq!(found[k * 2], high << 16 | low, "{}", said(found[k * 2]));
                assert_eq!(found[k * 2 + 1], low, "{}", said(found[k * 2 + 1]));
            }
        }
    }
}

#[test]
fn flushing_and_saturation() {
    let body = "
  fma.rn.ftz.f16x2 %r20, %r10, %r11, %r12; st.global.b32 [%rd9], %r20;
  fma.rn.sat.f16x2 %r20, %r10, %r11, %r12; st.global.b32 [%rd9+4], %r20;
  add.ftz.sat.f16x2 %r20, %r10, %r11; st.global.b32 [%rd9+8], %r20;
  neg.ftz.f16x2 %r20, %r10; st.global.b32 [%rd9+12], %r20;
  max.ftz.NaN.f16x2 %r20, %r10, %r11; st.global.b32 [%rd9+16], %r20;";
    let (operands, found) = run(body, 5);
    let f = F16;
    let saturate = |bits: u16| match bits {
        _ if f.is_nan(bits) || bits >> 15 != 0 => 0,
        bits => bits.min(one(f)),
    };
    for (i, found) in found.chunks_exact(5).enumerate() {
        let word = |of: &dyn Fn([u16; 3]) -> u16| {
            u32::from(of(halves(&operands, i, 0))) | u32::from(of(halves(&operands, i, 16))) << 16
        };
        let flushed = |of: &dyn Fn([u16; 3]) -> u16| {
            word(&|operands| f.flush(of(operands.map(|bits| f.flush(bits)))))
        };
        let expected = [
            flushed(&|[a, b, c]| f.fma(a, b, c)),
            word(&|[a, b, c]| saturate(f.fma(a, b, c))),
            flushed(&|[a, b, _]| saturate(f.fma(a, one(f), b))),
            flushed(&|[a, ..]| if f.is_nan(a) { NAN } else { a ^ 0x8000 }),
            flushed(&|[a, b, _]| f.extreme(a, b, false, true)),
        ];
        assert_eq!(found, expected, "{:08x?}", operands.each_ref().map(|words| words[i]));
    }
}

#[test]
fn comparisons() {
    let body = "
  setp.lt.f16x2 %p1|%p2, %r10, %r11; setp.geu.bf16x2 %p3|%p4, %r10, %r11;
  setp.eq.f16 %p5|%p6, %h1, %h2; setp.num.and.bf16 %p7, %h1, %h2, %p1;
  setp.le.ftz.f16 %p8, %h1, %h2; setp.gt.or.f16x2 %p9|%p10, %r10, %r11, !%p5;
  mov.b32 %r20, 0;
  @%p1 or.b32 %r20, %r20, 1; @%p2 or.b32 %r20, %r20, 2; @%p3 or.b32 %r20, %r20, 4;
  @%p4 or.b32 %r20, %r20, 8; @%p5 or.b32 %r20, %r20, 16; @%p6 or.b32 %r20, %r20, 32;
  @%p7 or.b32 %r20, %r20, 64; @%p8 or.b32 %r20, %r20, 128; @%p9 or.b32 %r20, %r20, 256;
  @%p10 or.b32 %r20, %r20, 512;
  st.global.b32 [%rd9], %r20;";
    let (operands, found) = run(body, 1);
    let value = |f: Format, bits: u16| match bits {
        _ if f.is_nan(bits) => f64::NAN,
        _ if f.is_infinite(bits) => {
            if bits >> 15 != 0 {
                f64::NEG_INFINITY
            } else {
                f64::INFINITY
            }
        }
        bits => {
            let Number { negative, units, power } = f.number(bits);
            let magnitude = units as f64 * 2f64.powi(power);
            if negative { -magnitude } else { magnitude }
        }
    };
    for (i, found) in found.into_iter().enumerate() {
        let ([a, b, _], [c, d, _]) = (halves(&operands, i, 0), halves(&operands, i, 16));
        let (x, y) = (value(F16, a), value(F16, b));
        let (z, w) = (value(F16, c), value(F16, d));
        let (u, v) = (value(BF16, a), value(BF16, b));
        let (s, t) = (value(BF16, c), value(BF16, d));
        let expected = [
            x < y,
            z < w,
            u >= v || u.is_nan() || v.is_nan(),
            s >= t || s.is_nan() || t.is_nan(),
            x == y,
            x != y,
            !u.is_nan() && !v.is_nan() && x < y,
            value(F16, F16.flush(a)) <= value(F16, F16.flush(b)),
            x > y || x != y,
            z > w || x != y,
        ];
        let expected =
            expected.iter().enumerate().map(|(bit, &yes)| u32::from(yes) << bit).sum::<u32>();
        assert_eq!(found, expected, "{a:04x} {b:04x} {c:04x} {d:04x}");
    }
}

#[test]
fn atomic_additions() {
    // One warp adds lane after lane; the order of the lanes is that of their numbers here.
    let body = "
  add.u32 %r2, %r1, 1; cvt.rn.f32.u32 %r3, %r2;
  cvt.rn.f16x2.f32 %r4, %r3, %r3; cvt.rn.bf16x2.f32 %r5, %r3, %r3;
  mov.b32 {%h1, %h2}, %r4; mov.b32 {%h3, %h4}, %r5;
  atom.global.add.noftz.f16x2 %r6, [%rd1], %r4;
  red.relaxed.gpu.global.add.noftz.bf16x2 [%rd1+4], %r5;
  atom.global.add.noftz.f16 %h5, [%rd1+10], %h1;
  red.global.add.noftz.bf16 [%rd1+12], %h3;
  atom.global.cas.b16 %h6, [%rd1+18], %h1, %h2;
  cvt.u32.u16 %r7, %h5; add.s64 %rd2, %rd1, %rd0; st.global.b32 [%rd2+32], %r7;
  st.global.b32 [%rd2+160], %r6;";
    let mut buffer = vec![0u32; 8 + 64];
    buffer[0] = 0xc000_0000;
    buffer[4] = 0x3c00_1234;
    let found = Case::new(kernel(1, body).replace("sm_80", "sm_90a"), &[buffer]).run();
    let sums = |format: Format, first: u16| {
        (1..=32).scan(first, move |sum, i: u16| {
            let old = *sum;
            *sum = format.fma(
                old,
                one(format),
                format.round(Number { negative: false, units: i.into(), power: 0 }),
            );
            Some((old, *sum))
        })
    };
    let last = |format, first| u32::from(sums(format, first).last().unwrap().1);
    assert_eq!(found[0], last(F16, 0) | last(F16, 0xc000) << 16);
    assert_eq!(found[1], last(BF16, 0) | last(BF16, 0) << 16);
    assert_eq!(found[2..4], [last(F16, 0) << 16, last(BF16, 0)]);
    // Lane 0 exchanges 1.0 for itself; no other finds what it compares with.
    assert_eq!(found[4], 0x3c00_1234);
    for (lane, (low, _)) in sums(F16, 0).enumerate() {
        assert_eq!(found[8 + lane], u32::from(low));
        assert_eq!(found[40 + lane] & 0xffff, u32::from(low));
    }
}

#[test]
fn architectures_that_have_them() {
    let device = Device::new(Config::default());
    for (inst, sm) in [
        ("add.f16x2 %r2, %r3, %r4;", 70),
        ("fma.rn.f16 %h2, %h3, %h4, %h5;", 70),
        ("fma.rn.relu.f16 %h2, %h3, %h4, %h5;", 80),
        ("fma.rn.bf16x2 %r2, %r3, %r4, %r5;", 80),
        ("max.f16 %h2, %h3, %h4;", 80),
        ("max.xorsign.abs.bf16 %h2, %h3, %h4;", 86),
        ("neg.bf16 %h2, %h3;", 80),
        ("add.bf16x2 %r2, %r3, %r4;", 90),
        ("setp.lt.bf16 %p1, %h3, %h4;", 90),
        ("red.global.add.noftz.f16 [%rd1], %h1;", 70),
        ("red.global.add.noftz.bf16x2 [%rd1], %r2;", 90),
    ] {
        for target in [70, 80, 86, 90] {
            let ptx = kernel(1, inst).replace("sm_80", &format!("sm_{target}"));
            match device.load(&ptx).unwrap().kernel("k") {
                Ok(_) => assert!(target >= sm, "{inst} on sm_{target}"),
                Err(error) => {
                    assert!(target < sm, "{inst} on sm_{target}: {error}");
                    assert!(error.to_string().contains(&format!("sm_{sm}")), "{error}");
                }
            }
        }
    }
    for inst in [
        "add.sat.bf16 %h2, %h3, %h4;",
        "fma.rn.ftz.bf16x2 %r2, %r3, %r4, %r5;",
        "fma.f16 %h2, %h3, %h4, %h5;",
        "div.rn.f16 %h2, %h3, %h4;",
        "setp.lt.f16x2 %p1, %r3, %r4;",
        "red.global.add.f16x2 [%rd1], %r2;",
        "red.global.max.noftz.f16x2 [%rd1], %r2;",
    ] {
        let loaded = device.load(&kernel(1, inst).replace("sm_80", "sm_90a")).unwrap();
        assert!(loaded.kernel("k").is_err(), "{inst}");
    }
}
