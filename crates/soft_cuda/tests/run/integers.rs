//! Integer instructions.

use super::arithmetic::{check, check_wide, check1, check2, op3};
use super::{Case, kernel};

#[test]
fn integers_wrap_and_divide() {
    let min = i32::MIN as u32;
    check2("add.s32", &[(u32::MAX, 1, 0), (min, min, 0)]);
    check2("sub.s32", &[(0, 1, u32::MAX)]);
    check2("mul.lo.s32", &[(0x1234_5678, 0x9abc_def0, 0x1234_5678u32.wrapping_mul(0x9abc_def0))]);
    check2("mul.hi.u32", &[(u32::MAX, u32::MAX, u32::MAX - 1), (1 << 31, 2, 1)]);
    check2("mul.hi.s32", &[(u32::MAX, u32::MAX, 0), (min, 2, u32::MAX), (min, min, 1 << 30)]);
    check2("div.u32", &[(7, 2, 3), (7, 0, u32::MAX)]);
    check2("div.s32", &[(-7i32 as u32, 2, -3i32 as u32), (min, u32::MAX, min), (5, 0, u32::MAX)]);
    check2("rem.u32", &[(7, 4, 3), (7, 0, 7)]);
    check2("rem.s32", &[(-7i32 as u32, 4, -3i32 as u32), (min, u32::MAX, 0)]);
    check2("min.s32", &[(u32::MAX, 1, u32::MAX)]);
    check2("min.u32", &[(u32::MAX, 1, 1)]);
    check2("max.s32", &[(u32::MAX, 1, 1)]);
    check1("abs.s32", &[(u32::MAX, 1), (min, min)]);
    check1("neg.s32", &[(5, -5i32 as u32), (min, min)]);
    check2("add.sat.s32", &[(i32::MAX as u32, 1, i32::MAX as u32), (min, u32::MAX, min)]);
    check("mad.lo.s32", 3, &[([3, 4, 5], 17)]);
    check("mad.hi.u32", 3, &[([u32::MAX, u32::MAX, 2], 0)]);
    check("sad.u32", 3, &[([3, 10, 5], 12)]);
    check_wide("mul.hi.u64", 2, &[([u64::MAX, u64::MAX, 0], u64::MAX - 1)]);
    check_wide("mul.hi.s64", 2, &[([u64::MAX, u64::MAX, 0], 0)]);
    check_wide(
        "div.s64",
        2,
        &[([i64::MIN as u64, u64::MAX, 0], i64::MIN as u64), ([9, 0, 0], u64::MAX)],
    );
    check_wide("rem.u64", 2, &[([10, 4, 0], 2)]);
    check_wide("mad.lo.s64", 3, &[([1 << 40, 3, 7], (3 << 40) + 7)]);
}

#[test]
fn shifts_beyond_the_width() {
    check2("shl.b32", &[(1, 31, 1 << 31), (1, 32, 0), (1, 33, 0), (1, u32::MAX, 0)]);
    check2("shr.u32", &[(1 << 31, 31, 1), (u32::MAX, 32, 0), (u32::MAX, u32::MAX, 0)]);
    check2("shr.s32", &[(1 << 31, 31, u32::MAX), (1 << 31, 64, u32::MAX), (1, 40, 0)]);
    for (by, want) in [("63", 1u64 << 63), ("64", 0), ("200", 0)] {
        let body = format!(
            "  mov.b64 %rd10, 1; mov.b32 %r20, {by}; shl.b64 %rd11, %rd10, %r20; st.global.b64 [%rd1], %rd11;"
        );
        let got = Case::new(kernel(1, &body), &[vec![0; 2]]).run();
        assert_eq!(u64::from(got[1]) << 32 | u64::from(got[0]), want);
    }
    check("shf.l.wrap.b32", 3, &[([0x8000_0001, 0xf, 4], 0xf8), ([1, 2, 32], 2)]);
    check("shf.r.clamp.b32", 3, &[([0x10, 0xab, 4], 0xb000_0001), ([1, 2, 40], 2)]);
}

#[test]
fn bit_fields_and_permutes() {
    check(
        "bfe.u32",
        3,
        &[([0xabcd_1234, 8, 8], 0x12), ([u32::MAX, 31, 8], 1), ([u32::MAX, 4, 0], 0)],
    );
    check(
        "bfe.s32",
        3,
        &[
            ([0xabcd_1294, 4, 4], u32::MAX << 3 | 1),
            ([1 << 31, 31, 1], u32::MAX),
            ([1 << 31, 40, 4], u32::MAX),
            ([0x7f, 0, 32], 0x7f),
        ],
    );
    check(
        "prmt.b32",
        3,
        &[
            ([0x3322_1100, 0x7766_5544, 0x7531], 0x7755_3311),
            ([0x0000_0080, 0, 0x0008], 0x8080_80ff),
        ],
    );
    let got = op3("lop3.b32 %r10, %r2, %r3, %r4, 0x96;", &[[0xff00, 0x0ff0, 0x00ff]]);
    assert_eq!(got, [0xff00 ^ 0x0ff0 ^ 0x00ff]);
    let got = op3("bfi.b32 %r10, %r2, %r3, 8, 4;", &[[0xabc, 0xffff_ffff, 0]]);
    assert_eq!(got, [0xffff_fcff]);
    check1("popc.b32", &[(0xf0f0_0001, 9)]);
    check1("clz.b32", &[(1, 31), (0, 32)]);
    check1("brev.b32", &[(1, 1 << 31)]);
    check1("bfind.u32", &[(0, u32::MAX), (0x100, 8)]);
    check1("bfind.s32", &[(u32::MAX, u32::MAX), (-256i32 as u32, 7)]);
    check1("cnot.b32", &[(0, 1), (7, 0)]);
    check1("not.b32", &[(0, u32::MAX)]);
    check("dp4a.u32.u32", 3, &[([0x0102_0304, 0x0101_0101, 10], 20)]);
    check("dp4a.s32.s32", 3, &[([0xff, 2, 0], -2i32 as u32)]);
}

#[test]
fn sixteen_bit_arithmetic() {
    let code = "cvt.u16.u32 %h1, %r2; cvt.u16.u32 %h2, %r3; OP cvt.u32.u16 %r10, %h3;";
    for (op, a, b, want) in [
        ("add.s16 %h3, %h1, %h2;", 0xffff, 2, 1),
        ("mul.lo.s16 %h3, %h1, %h2;", 0x1234, 0x100, 0x3400),
        ("shr.s16 %h3, %h1, 20;", 0x8000, 0, 0xffff),
        ("shr.u16 %h3, %h1, 4;", 0x8000, 0, 0x0800),
        ("min.s16 %h3, %h1, %h2;", 0x8000, 1, 0x8000),
        ("min.u16 %h3, %h1, %h2;", 0x8000, 1, 1),
        ("not.b16 %h3, %h1;", 0x00ff, 0, 0xff00),
    ] {
        assert_eq!(op3(&code.replace("OP", op), &[[a, b, 0]]), [want], "{op}");
    }
    let wide = op3("cvt.u16.u32 %h1, %r2; mul.wide.s16 %r10, %h1, %h1;", &[[0xffff, 0, 0]]);
    assert_eq!(wide, [1]);
}

#[test]
fn carries() {
    let code = "add.cc.u32 %r5, %r2, %r3; addc.u32 %r10, %r4, 0;";
    assert_eq!(op3(code, &[[u32::MAX, 1, 5], [1, 1, 5]]), [6, 5]);
    let code = "sub.cc.u32 %r5, %r2, %r3; subc.u32 %r10, %r4, 0;";
    assert_eq!(op3(code, &[[0, 1, 5], [1, 1, 5]]), [4, 5]);
}

#[test]
fn the_carry_of_a_difference_says_that_nothing_was_borrowed() {
    // As an H200 does.
    for (code, want) in [
        ("sub.cc.u32 %r5, 0, 1; addc.u32 %r10, 0, 0;", 0),
        ("sub.cc.u32 %r5, 1, 0; addc.u32 %r10, 0, 0;", 1),
        ("sub.cc.u32 %r5, 0, 1; subc.u32 %r10, 5, 0;", 4),
        ("add.cc.u32 %r5, -1, 1; subc.u32 %r10, 5, 0;", 5),
        ("add.cc.u32 %r5, 0, 1; subc.u32 %r10, 5, 0;", 4),
        ("add.cc.u32 %r5, -1, 1; addc.u32 %r10, 0, 0;", 1),
    ] {
        assert_eq!(op3(code, &[[0; 3]]), [want], "{code}");
    }
}

#[test]
fn integers_saturate_to_one() {
    for source in ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"] {
        for (value, one) in [(2i64, true), (1, true), (0, false), (-3, source.starts_with('u'))] {
            for (to, register, want) in [
                ("f16", "%h1", 0x3c00),
                ("bf16", "%h1", 0x3f80),
                ("f32", "%r4", 0x3f80_0000),
                ("f64", "%rd12", 0x3ff0_0000_0000_0000u64),
            ] {
                let bits = match to {
                    "f64" => 64,
                    "f32" => 32,
                    _ => 16,
                };
                let body = format!(
                    "  ld.global.b64 %rd11, [%rd1]; cvt.u32.u64 %r3, %rd11;
  cvt.rn.sat.{to}.{source} {register}, {};
  st.global.b{bits} [%rd2], {register};",
                    if source.ends_with("64") { "%rd11" } else { "%r3" }
                );
                let value = vec![value as u32, (value >> 32) as u32];
                let got = Case::new(kernel(2, &body), &[value.clone(), vec![0; 2]]).run();
                let got = u64::from(got[1]) << 32 | u64::from(got[0]);
                let want = if one { want } else { 0 };
                assert_eq!(got, want, "cvt.rn.sat.{to}.{source} of {value:x?} gave {got:#x}");
            }
        }
    }
}
