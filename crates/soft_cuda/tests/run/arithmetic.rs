//! Results of instructions, bit by bit.

use super::{Case, f, kernel};

const NAN: u32 = 0x7fff_ffff;

/// Runs `code`, which computes `%r10` from `%r2`, `%r3`, `%r4`, for each row
/// of operands.
pub(super) fn op3(code: &str, rows: &[[u32; 3]]) -> Vec<u32> {
    let body = format!(
        "  add.s64 %rd5, %rd1, %rd0; ld.global.b32 %r2, [%rd5];
  add.s64 %rd6, %rd2, %rd0; ld.global.b32 %r3, [%rd6];
  add.s64 %rd7, %rd3, %rd0; ld.global.b32 %r4, [%rd7];
  {code}
  add.s64 %rd8, %rd4, %rd0; st.global.b32 [%rd8], %r10;"
    );
    let column = |i: usize| rows.iter().map(|row| row[i]).collect::<Vec<u32>>();
    let buffers = [column(0), column(1), column(2), vec![0; rows.len()]];
    let case = Case::new(kernel(4, &body), &buffers).threads(rows.len() as u32);
    // Also with all 32 lanes, where other code runs.
    let mut padded = buffers.clone();
    for buffer in &mut padded {
        buffer.resize(32, buffer[0]);
    }
    let full = Case::new(kernel(4, &body), &padded).run();
    let partial = case.run();
    assert_eq!(full[..rows.len()], partial[..], "{code}: full and partial warps disagree");
    partial
}

/// As [`op3`] for one operation in the usual form.
pub(super) fn check(opcode: &str, arity: usize, rows: &[([u32; 3], u32)]) {
    let operands = ["%r2", "%r3", "%r4"][..arity].join(", ");
    let inputs: Vec<[u32; 3]> = rows.iter().map(|row| row.0).collect();
    let got = op3(&format!("{opcode} %r10, {operands};"), &inputs);
    for (row, got) in rows.iter().zip(got) {
        assert_eq!(got, row.1, "{opcode} of {:#x?} gave {got:#x}, not {:#x}", row.0, row.1);
    }
}

pub(super) fn check1(opcode: &str, rows: &[(u32, u32)]) {
    let rows: Vec<_> = rows.iter().map(|&(a, d)| ([a, 0, 0], d)).collect();
    check(opcode, 1, &rows);
}

pub(super) fn check2(opcode: &str, rows: &[(u32, u32, u32)]) {
    let rows: Vec<_> = rows.iter().map(|&(a, b, d)| ([a, b, 0], d)).collect();
    check(opcode, 2, &rows);
}

/// As [`check`] for 64-bit operands; results are compared in full.
pub(super) fn check_wide(opcode: &str, arity: usize, rows: &[([u64; 3], u64)]) {
    for (input, want) in rows {
        let operands = ["%rd10", "%rd11", "%rd12"][..arity].join(", ");
        let body = format!(
            "  ld.global.v2.b64 {{%rd10, %rd11}}, [%rd1]; ld.global.b64 %rd12, [%rd1+16];
  {opcode} %rd13, {operands};
  st.global.b64 [%rd2], %rd13;"
        );
        let words: Vec<u32> = input.iter().flat_map(|&v| [v as u32, (v >> 32) as u32]).collect();
        let got = Case::new(kernel(2, &body), &[words, vec![0; 2]]).run();
        let got = u64::from(got[1]) << 32 | u64::from(got[0]);
        assert_eq!(got, *want, "{opcode} of {input:#x?} gave {got:#x}, not {want:#x}");
    }
}

const INF: f32 = f32::INFINITY;
/// The smallest denormal, and the smallest normal number.
const TINY: u32 = 1;
const MIN: u32 = 0x0080_0000;

#[test]
fn fma_rounds_once() {
    check(
        "fma.rn.f32",
        3,
        &[
            // Through f64 this would be 16777216.
            ([f(24929.0), f(673.0), f(2f32.powi(-40))], f(16_777_218.0)),
            ([f(2.0), f(3.0), f(4.0)], f(10.0)),
            ([f(INF), f(0.0), f(1.0)], NAN),
            ([f(1.0), f(INF), f(-INF)], NAN),
            ([0xffc0_1234, f(1.0), f(1.0)], NAN),
            ([f(-0.0), f(1.0), f(-0.0)], f(-0.0)),
            ([f(-0.0), f(1.0), f(0.0)], f(0.0)),
            ([TINY, f(1.0), f(0.0)], TINY),
            ([f(f32::MAX), f(2.0), f(0.0)], f(INF)),
        ],
    );
}

#[test]
fn a_run_of_fmas_gives_the_same() {
    let code = "fma.rn.f32 %r5, %r2, %r3, %r4; fma.rn.f32 %r6, %r5, %r3, %r2;
  fma.rn.f32 %r6, %r6, %r6, %r6; fma.rn.f32 %r10, %r6, %r5, %r6;";
    let rows = [[f(1.5), f(-2.25), f(0.1)], [f(INF), f(0.0), f(1.0)], [f(3.0), f(1e-30), f(1e-9)]];
    let got = op3(code, &rows);
    for (row, got) in rows.iter().zip(got) {
        let [a, b, c] = row.map(f32::from_bits);
        let r5 = a.mul_add(b, c);
        let r6 = r5.mul_add(b, a);
        let r6 = r6.mul_add(r6, r6);
        let want = r6.mul_add(r5, r6);
        assert_eq!(got, if want.is_nan() { NAN } else { f(want) });
    }
}

#[test]
fn nan_is_canonical_and_zeros_keep_their_sign() {
    check2(
        "add.rn.f32",
        &[
            (f(INF), f(-INF), NAN),
            (0x7fc0_0001, f(1.0), NAN),
            (f(-0.0), f(-0.0), f(-0.0)),
            (f(-0.0), f(0.0), f(0.0)),
            (f(1.0), f(-1.0), f(0.0)),
        ],
    );
    check2("mul.rn.f32", &[(f(0.0), f(INF), NAN), (f(-0.0), f(2.0), f(-0.0))]);
    check2("sub.f32", &[(f(INF), f(INF), NAN), (f(0.0), f(0.0), f(0.0))]);
    check2(
        "div.rn.f32",
        &[(f(0.0), f(0.0), NAN), (f(1.0), f(-0.0), f(-INF)), (f(1.0), f(3.0), f(1.0 / 3.0))],
    );
    check1("sqrt.rn.f32", &[(f(-1.0), NAN), (f(-0.0), f(-0.0)), (f(2.0), f(2f32.sqrt()))]);
    check1("rcp.rn.f32", &[(f(3.0), f(1.0 / 3.0)), (f(-0.0), f(-INF))]);
    check_wide(
        "add.rn.f64",
        2,
        &[
            ([0x7ff0_0000_0000_0000, 0xfff0_0000_0000_0000, 0], 0xfff8_0000_0000_0000),
            ([0.1f64.to_bits(), 0.2f64.to_bits(), 0], (0.1f64 + 0.2).to_bits()),
        ],
    );
    check_wide(
        "fma.rn.f64",
        3,
        &[(
            [0.1f64.to_bits(), 10f64.to_bits(), (-1f64).to_bits()],
            0.1f64.mul_add(10.0, -1.0).to_bits(),
        )],
    );
}

/// The words of f64 operands: loud and quiet NaNs of both signs, and what makes NaN of others.
const WIDE: [u64; 8] = [
    0x7ff0_0000_0000_0001,
    0xfff0_0000_0000_0002,
    0x7ff8_0000_0000_0003,
    0xfff8_0000_0000_0004,
    0x3ff0_0000_0000_0000,
    0,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
];

/// The first NaN of `operands`, made quiet, or that of an operation without one.
fn kept(operands: &[u64]) -> u64 {
    let nan = operands.iter().find(|&&bits| f64::from_bits(bits).is_nan());
    nan.map_or(0xfff8 << 48, |bits| bits | 1 << 51)
}

#[test]
fn nan_operands_of_f64_keep_their_payloads() {
    let pairs = || WIDE.iter().flat_map(|&a| WIDE.map(|b| (a, b)));
    // Registers, and constants on either side.
    let forms = |opcode: &str, a: u64, b: u64| {
        [
            format!("{opcode} %rd13, %rd10, %rd11;"),
            format!("{opcode} %rd13, 0d{a:016x}, %rd11;"),
            format!("{opcode} %rd13, %rd10, 0d{b:016x};"),
        ]
    };
    let f = f64::from_bits;
    let mut code = String::new();
    let (mut words, mut want) = (Vec::new(), Vec::new());
    let mut add = |lines: &[String], operands: &[u64], result: f64, nan: u64| {
        for line in lines {
            let at = 8 * want.len();
            for (register, bits) in ["%rd10", "%rd11", "%rd12"].iter().zip(operands) {
                let from = 4 * words.len();
                code += &format!("  ld.global.b64 {register}, [%rd1+{from}];\n");
                words.extend([*bits as u32, (bits >> 32) as u32]);
            }
            code += &format!("  {line} st.global.b64 [%rd2+{at}], %rd13;\n");
            want.push(if result.is_nan() { nan } else { result.to_bits() });
        }
    };
    for (a, b) in pairs() {
        for (opcode, result) in [
            ("add.f64", f(a) + f(b)),
            ("add.rz.f64", f(a) + f(b)),
            ("sub.rn.f64", f(a) - f(b)),
            ("mul.f64", f(a) * f(b)),
            ("mul.rp.f64", f(a) * f(b)),
        ] {
            add(&forms(opcode, a, b), &[a, b], result, kept(&[b, a]));
        }
        for c in WIDE {
            let result = f(a).mul_add(f(b), f(c));
            let lines = ["fma.rn.f64", "fma.rm.f64", "mad.rn.f64"]
                .map(|opcode| format!("{opcode} %rd13, %rd10, %rd11, %rd12;"));
            add(&lines, &[a, b, c], result, kept(&[b, c, a]));
        }
    }
    let count = want.len();
    let got = Case::new(kernel(2, &code), &[words, vec![0; 2 * count]]).run();
    for (i, (got, want)) in got.as_chunks::<2>().0.iter().zip(want).enumerate() {
        let got = u64::from(got[1]) << 32 | u64::from(got[0]);
        assert_eq!(
            got,
            want,
            "{}",
            code.lines().filter(|line| line.contains("st.")).nth(i).unwrap()
        );
    }
}

#[test]
fn approximations_of_the_upper_words_of_f64() {
    const NAN: u64 = 0x7fff_ffff << 32;
    let rows = |rows: &[(u64, u64)]| -> Vec<([u64; 3], u64)> {
        rows.iter().map(|&(a, d)| ([a, 0, 0], d)).collect()
    };
    let (one, inf, sign) = (0x3ff0u64 << 48, 0x7ff0u64 << 48, 1u64 << 63);
    // The lower bits do not count: those of a NaN may be all that it has.
    let same = [
        (one, one),
        (one | 0xffff_ffff, one),
        (inf, 0),
        (inf | 1, 0),
        (inf | 1 << 32, NAN),
        (0xfff8_0000_0000_0005, NAN),
        (0, inf),
        (sign, inf | sign),
        (0x0008_0000_0000_0000, inf),
        (sign | 1, inf | sign),
    ];
    check_wide("rcp.approx.ftz.f64", 1, &rows(&same));
    check_wide("rsqrt.approx.ftz.f64", 1, &rows(&same));
    // 1 / 3, the largest number, whose reciprocal is subnormal, and -2.
    let others =
        [(0x4008 << 48, 0x3fd5_5555 << 32), (0x7fef_ffff << 32, 0), (0xc000 << 48, 0xbfe0 << 48)];
    check_wide("rcp.approx.ftz.f64", 1, &rows(&others));
    let others = [(0x4010 << 48, 0x3fe0 << 48), (0xc000 << 48, NAN), (inf | sign, NAN)];
    check_wide("rsqrt.approx.ftz.f64", 1, &rows(&others));
    check_wide("rsqrt.approx.f64", 1, &rows(&[(0x7ff0_0000_0000_0007, 0x7ff8_0000_0000_0007)]));
}

#[test]
fn flushing_is_per_operation() {
    check2(
        "add.ftz.f32",
        &[(TINY, TINY, f(0.0)), (TINY | 1 << 31, f(-0.0), f(-0.0)), (MIN, 0, MIN)],
    );
    check2("add.f32", &[(TINY, TINY, 2)]);
    check2("mul.ftz.f32", &[(MIN, f(0.5), f(0.0)), (MIN, f(-0.5), f(-0.0))]);
    check2("mul.f32", &[(MIN, f(0.5), MIN / 2)]);
    check2(
        "add.sat.f32",
        &[(f(0.75), f(0.5), f(1.0)), (f(-2.0), f(1.0), f(0.0)), (NAN, f(1.0), f(0.0))],
    );
}

#[test]
fn min_and_max_order_zeros_and_drop_nan() {
    check2(
        "min.f32",
        &[
            (f(-0.0), f(0.0), f(-0.0)),
            (f(0.0), f(-0.0), f(-0.0)),
            (NAN, f(1.0), f(1.0)),
            (f(1.0), 0xffc0_0000, f(1.0)),
            (NAN, NAN, NAN),
            (f(-3.0), f(2.0), f(-3.0)),
        ],
    );
    check2(
        "max.f32",
        &[(f(-0.0), f(0.0), f(0.0)), (f(0.0), f(-0.0), f(0.0)), (f(5.0), NAN, f(5.0))],
    );
    check2("max.NaN.f32", &[(f(5.0), NAN, NAN), (f(5.0), f(6.0), f(6.0))]);
}

#[test]
fn comparisons() {
    let set = |cmp: &str, rows: &[(u32, u32, bool)]| {
        let code = format!("setp.{cmp} %p1, %r2, %r3; selp.b32 %r10, 1, 0, %p1;");
        let inputs: Vec<_> = rows.iter().map(|&(a, b, _)| [a, b, 0]).collect();
        let want: Vec<u32> = rows.iter().map(|row| row.2.into()).collect();
        assert_eq!(op3(&code, &inputs), want, "{cmp}");
    };
    set("lt.s32", &[(u32::MAX, 0, true), (0, 0, false)]);
    set("lt.u32", &[(u32::MAX, 0, false), (0, 1, true)]);
    set("hi.u32", &[(u32::MAX, 0, true)]);
    set("ge.s32", &[(u32::MAX, 0, false), (3, 3, true)]);
    set("ne.b32", &[(1, 2, true), (2, 2, false)]);
    for (cmp, with_nan, equal, less, greater) in [
        ("eq", false, true, false, false),
        ("ne", false, false, true, true),
        ("lt", false, false, true, false),
        ("le", false, true, true, false),
        ("gt", false, false, false, true),
        ("ge", false, true, false, true),
        ("equ", true, true, false, false),
        ("neu", true, false, true, true),
        ("ltu", true, false, true, false),
        ("leu", true, true, true, false),
        ("gtu", true, false, false, true),
        ("geu", true, true, false, true),
        ("num", false, true, true, true),
        ("nan", true, false, false, false),
    ] {
        let rows = [
            (NAN, f(1.0), with_nan),
            (f(1.0), NAN, with_nan),
            (f(0.0), f(-0.0), equal),
            (f(1.0), f(2.0), less),
            (f(2.0), f(1.0), greater),
        ];
        set(&format!("{cmp}.f32"), &rows);
    }
    set("eq.ftz.f32", &[(TINY, 0, true)]);
    set("eq.f32", &[(TINY, 0, false)]);
    let code = "setp.ne.u32 %p3, %r4, 0; setp.lt.and.u32 %p1|%p2, %r2, %r3, !%p3;
  selp.b32 %r5, 1, 0, %p1; selp.b32 %r6, 2, 0, %p2; or.b32 %r10, %r5, %r6;";
    assert_eq!(op3(code, &[[1, 2, 0], [1, 2, 1], [2, 1, 0]]), [1, 0, 2]);
    let code = "testp.finite.f32 %p1, %r2; selp.b32 %r10, 1, 0, %p1;";
    assert_eq!(op3(code, &[[f(1.0), 0, 0], [f(INF), 0, 0], [NAN, 0, 0]]), [1, 0, 0]);
    let code = "testp.subnormal.f32 %p1, %r2; selp.b32 %r10, 1, 0, %p1;";
    assert_eq!(op3(code, &[[TINY, 0, 0], [MIN, 0, 0], [0, 0, 0]]), [1, 0, 0]);
    check2("set.lt.u32.s32", &[(u32::MAX, 0, u32::MAX), (1, 0, 0)]);
    check2("set.lt.f32.s32", &[(u32::MAX, 0, f(1.0))]);
}

#[test]
fn predicate_logic() {
    let code = "setp.ne.u32 %p1, %r2, 0; setp.ne.u32 %p2, %r3, 0;
  and.pred %p3, %p1, %p2; xor.pred %p4, %p1, !%p2; not.pred %p5, %p1; or.pred %p6, %p3, %p5; mov.pred %p7, -1;
  selp.b32 %r5, 1, 0, %p3; selp.b32 %r6, 2, 0, %p4; selp.b32 %r7, 4, 0, %p6; selp.b32 %r8, 8, 0, %p7;
  or.b32 %r5, %r5, %r6; or.b32 %r7, %r7, %r8; or.b32 %r10, %r5, %r7;";
    assert_eq!(
        op3(code, &[[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]]),
        [2 + 4 + 8, 4 + 8, 8, 1 + 2 + 4 + 8]
    );
}

#[test]
fn conversions_saturate() {
    check1(
        "cvt.rzi.s32.f32",
        &[
            (f(-1.9), -1i32 as u32),
            (f(3e9), i32::MAX as u32),
            (f(-3e9), i32::MIN as u32),
            (NAN, 0),
            (f(INF), i32::MAX as u32),
        ],
    );
    check1("cvt.rzi.u32.f32", &[(f(-1.0), 0), (f(5e9), u32::MAX), (f(3.99), 3)]);
    check1("cvt.rni.s32.f32", &[(f(2.5), 2), (f(3.5), 4), (f(-2.5), -2i32 as u32)]);
    check1("cvt.rmi.f32.f32", &[(f(-1.5), f(-2.0)), (f(-0.0), f(-0.0))]);
    check1("cvt.rpi.f32.f32", &[(f(1.1), f(2.0))]);
    check1("cvt.rn.f32.s32", &[(u32::MAX, f(-1.0)), (16_777_217, f(16_777_216.0))]);
    check1("cvt.rn.f32.u32", &[(u32::MAX, f(4_294_967_296.0))]);
    check1("cvt.rz.f32.u32", &[(u32::MAX, f(4_294_967_040.0))]);
    check1("cvt.rp.f32.u32", &[(16_777_217, f(16_777_218.0))]);
    check1("cvt.u32.u8", &[(0x1ff, 0xff)]);
    check1("cvt.s32.s8", &[(0x80, -128i32 as u32)]);
    check1("cvt.sat.u8.s32", &[(300, 255), (-5i32 as u32, 0)]);
    check1("cvt.sat.f32.f32", &[(f(2.0), f(1.0)), (NAN, f(0.0))]);
    check1(
        "cvt.rna.tf32.f32",
        &[(0x3f80_1000, 0x3f80_2000), (0x3f80_0fff, 0x3f80_0000), (NAN, 0x7fff_e000)],
    );
    let to64 = op3(
        "cvt.s64.s32 %rd10, %r2; shr.s64 %rd10, %rd10, 32; cvt.u32.u64 %r10, %rd10;",
        &[[u32::MAX, 0, 0]],
    );
    assert_eq!(to64, [u32::MAX]);
    let double = op3(
        "cvt.f64.f32 %rd10, %r2; add.f64 %rd10, %rd10, 0d3DF0000000000000; cvt.rn.f32.f64 %r10, %rd10;",
        &[[f(1.5), 0, 0]],
    );
    assert_eq!(double, [f(1.5)]);
}

#[test]
fn half_precision_conversions() {
    let code = "cvt.rn.f16.f32 %h1, %r2; cvt.u32.u16 %r10, %h1;";
    let rows = [
        (1.0, 0x3c00),
        (-2.0, 0xc000),
        (65504.0, 0x7bff),
        (65520.0, 0x7c00),
        (65519.0, 0x7bff),
        (2f32.powi(-24), 1),
        (2f32.powi(-25), 0),
        (2f32.powi(-14), 0x0400),
        (0.1, 0x2e66),
        (-0.0, 0x8000),
    ];
    let got = op3(code, &rows.map(|(value, _)| [f(value), 0, 0]));
    assert_eq!(got, rows.map(|row| row.1));
    let back = "cvt.u16.u32 %h1, %r2; cvt.f32.f16 %r10, %h1;";
    let got = op3(back, &rows.map(|(_, half)| [half, 0, 0]));
    assert_eq!(got[0], f(1.0));
    assert_eq!(got[2], f(65504.0));
    assert_eq!(got[5], f(2f32.powi(-24)));
    let pair = op3("cvt.rn.bf16x2.f32 %r10, %r2, %r3;", &[[f(1.0), f(-2.0), 0]]);
    assert_eq!(pair, [0x3f80_c000]);
}

#[test]
fn moves_pack_and_unpack() {
    let code = "mov.b64 %rd10, {%r2, %r3}; mov.b64 {%r5, %r6}, %rd10; sub.s32 %r10, %r6, %r5;";
    assert_eq!(op3(code, &[[3, 10, 0]]), [7]);
    let code = "mov.b32 {%h1, %h2}, %r2; mov.b32 %r10, {%h2, %h1};";
    assert_eq!(op3(code, &[[0x1234_abcd, 0, 0]]), [0xabcd_1234]);
    // A part that overwrites its source.
    let code = "mov.b64 %rd10, {%r2, %r3}; mov.b64 {%r3, %r2}, %rd10; sub.s32 %r10, %r2, %r3;";
    assert_eq!(op3(code, &[[3, 10, 0]]), [7]);
}

#[test]
fn approximations_are_close() {
    let code = "ex2.approx.ftz.f32 %r5, %r2; lg2.approx.f32 %r6, %r5; rsqrt.approx.f32 %r7, %r3; mul.f32 %r8, %r7, %r7; mul.f32 %r8, %r8, %r3; add.f32 %r10, %r6, %r8;";
    let got = op3(code, &[[f(3.25), f(7.0), 0]]);
    assert!((f32::from_bits(got[0]) - 4.25).abs() < 1e-5);
}

#[test]
fn guarded_instructions_keep_the_other_lanes() {
    let code = "mov.b32 %r10, 7; setp.gt.u32 %p1, %r2, 10; @%p1 add.u32 %r10, %r2, 1; @!%p1 mov.b32 %r10, %r3;";
    assert_eq!(op3(code, &[[20, 5, 0], [3, 5, 0]]), [21, 5]);
    let code = "mov.b32 %r10, 7; setp.gt.u32 %p1, %r2, 10; @%p1 mov.b32 %r10, %r3;";
    assert_eq!(op3(code, &[[20, 5, 0], [3, 5, 0]]), [5, 7]);
}

#[test]
fn nan_to_an_integer() {
    // PTX ISA, `cvt`: 0 if the source is not `.f64` and the destination has no 64 bits,
    // else the highest bit of the destination.
    for (source, nan) in [("f16", 0x7e00), ("f32", 0x7fc0_0000), ("f64", 0x7ff8_0000_0000_0000)] {
        for bits in [8, 16, 32, 64] {
            let highest = 1u64 << (bits - 1);
            let want = if source == "f64" || bits == 64 { highest } else { 0 };
            for (rounding, sign) in
                ["rni", "rzi", "rmi", "rpi"].iter().flat_map(|r| [(r, "u"), (r, "s")])
            {
                let of = if source == "f64" { "%rd11" } else { "%r4" };
                let to = if bits == 64 { "%rd12" } else { "%r5" };
                let body = format!(
                    "  ld.global.b64 %rd11, [%rd1]; cvt.u32.u64 %r4, %rd11;
  cvt.{rounding}.{sign}{bits}.{source} {to}, {of};
  st.global.b{bits} [%rd2], {to};"
                );
                let nan: u64 = nan;
                let nan = vec![nan as u32, (nan >> 32) as u32];
                let got = Case::new(kernel(2, &body), &[nan, vec![0; 2]]).run();
                let got = u64::from(got[1]) << 32 | u64::from(got[0]);
                assert_eq!(got, want, "cvt.{rounding}.{sign}{bits}.{source} gave {got:#x}");
            }
        }
    }
}
