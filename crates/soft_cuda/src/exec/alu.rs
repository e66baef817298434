//! Integer arithmetic, logic and bit operations.

use std::marker::PhantomData;

use super::int::Int;
use super::lanes::{Compare, F1, F2, F3};
use super::machine::FULL;
use super::op::{Cx, Handler, Op};

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $d:ty |$x:pat_param| $body:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name<T>(PhantomData<T>);
        functions!(@impl $name ($($arg: $ty),*) ($d) $x, $body);
    )*};
    (@impl $name:ident ($a:ident: $ta:ty) ($d:ty) $x:pat_param, $body:expr) => {
        impl<T: Int> F1 for $name<T> {
            type A = $ta;
            type D = $d;
            #[inline(always)]
            fn f($a: $ta, $x: u32) -> $d {
                $body
            }
        }
    };
    (@impl $name:ident ($a:ident: $ta:ty, $b:ident: $tb:ty) ($d:ty) $x:pat_param, $body:expr) => {
        impl<T: Int> F2 for $name<T> {
            type A = $ta;
            type B = $tb;
            type D = $d;
            #[inline(always)]
            fn f($a: $ta, $b: $tb, $x: u32) -> $d {
                $body
            }
        }
    };
    (@impl $name:ident ($a:ident: $ta:ty, $b:ident: $tb:ty, $c:ident: $tc:ty) ($d:ty) $x:pat_param, $body:expr) => {
        impl<T: Int> F3 for $name<T> {
            type A = $ta;
            type B = $tb;
            type C = $tc;
            type D = $d;
            #[inline(always)]
            fn f($a: $ta, $b: $tb, $c: $tc, $x: u32) -> $d {
                $body
            }
        }
    };
}

functions! {
    Mov(a: T) -> T |_| a;
    Not(a: T) -> T |_| T::of_bits(!a.bits64());
    CNot(a: T) -> T |_| T::of_bits(u64::from(a.bits64() == 0));
    Neg(a: T) -> T |_| a.neg();
    Abs(a: T) -> T |_| a.abs();
    Popc(a: T) -> u32 |_| a.bits64().count_ones();
    Clz(a: T) -> u32 |_| a.bits64().leading_zeros() - (64 - T::BITS);
    Brev(a: T) -> T |_| T::of_bits(a.bits64().reverse_bits() >> (64 - T::BITS));
    /// Position of the highest bit that differs from the sign; with `x`, the
    /// shift that brings it to the top.
    Bfind(a: T) -> u32 |x| {
        let bits = if T::SIGNED && a < T::of_bits(0) { T::of_bits(!a.bits64()) } else { a }.bits64();
        let high = bits.checked_ilog2();
        match high {
            None => u32::MAX,
            Some(bit) if x != 0 => T::BITS - 1 - bit,
            Some(bit) => bit,
        }
    };
    Add(a: T, b: T) -> T |_| a.add(b);
    Sub(a: T, b: T) -> T |_| a.sub(b);
    MulLo(a: T, b: T) -> T |_| a.mul(b);
    MulHi(a: T, b: T) -> T |_| a.mul_hi(b);
    MulWide(a: T, b: T) -> T::Wide |_| a.mul_wide(b);
    Div(a: T, b: T) -> T |_| a.div(b);
    Rem(a: T, b: T) -> T |_| a.rem(b);
    Min(a: T, b: T) -> T |_| if b < a { b } else { a };
    Max(a: T, b: T) -> T |_| if b > a { b } else { a };
    And(a: T, b: T) -> T |_| a.and(b);
    Or(a: T, b: T) -> T |_| a.or(b);
    Xor(a: T, b: T) -> T |_| a.xor(b);
    Shl(a: T, b: u32) -> T |_| a.shl(b);
    Shr(a: T, b: u32) -> T |_| a.shr(b);
    /// Of the product of the low 24 bits of two numbers of 32: its low 32 bits, or those from bit
    /// 16 on if `x`.
    Mul24(a: T, b: T) -> T |x| match x {
        0 => a.shl(8).shr(8).mul(b.shl(8).shr(8)),
        _ => a.shl(8).mul_hi(b.shl(8)),
    };
    MadLo(a: T, b: T, c: T) -> T |_| a.mul(b).add(c);
    MadHi(a: T, b: T, c: T) -> T |_| a.mul_hi(b).add(c);
    MadWide(a: T, b: T, c: T::Wide) -> T::Wide |_| T::add_wide(a.mul_wide(b), c);
    /// `c` plus the distance of `a` and `b`.
    Sad(a: T, b: T, c: T) -> T |_| c.add(if a < b { b.sub(a) } else { a.sub(b) });
    /// The field of `c` bits at bit `b`.
    Bfe(a: T, b: u32, c: u32) -> T |_| {
        let (pos, len) = (b & 0xff, c & 0xff);
        let top = T::BITS - 1;
        let negative = T::SIGNED && a < T::of_bits(0);
        let field = if pos > top { 0 } else { a.bits64() >> pos };
        let have = if pos > top { 0 } else { T::BITS - pos };
        if len == 0 {
            T::of_bits(0)
        } else if len >= have {
            // Reaches the top: everything above is the sign.
            let fill = if negative && have < 64 { u64::MAX << have } else { 0 };
            T::of_bits(field | fill)
        } else {
            let kept = field & ((1 << len) - 1);
            let sign = T::SIGNED && kept >> (len - 1) & 1 != 0;
            T::of_bits(if sign { kept | u64::MAX << len } else { kept })
        }
    };
    /// The low `b` bits, extended; `x` clamps `b` to 32 instead of wrapping it.
    SzExt(a: T, b: u32) -> T |x| match clamped(b, x) {
        0 => T::of_bits(0),
        bits => a.shl(32 - bits).shr(32 - bits),
    };
    /// `a` if `c` is not negative, else `b`.
    Slct(a: T, b: T, c: i32) -> T |_| if c >= 0 { a } else { b };
    /// As [`Slct`], by the sign of a float; NaN counts as negative.
    SlctF(a: T, b: T, c: f32) -> T |_| if c >= 0.0 { a } else { b };
    /// Any function of three bits: `x` is its truth table.
    Lop3(a: T, b: T, c: T) -> T |x| {
        let (a, b, c) = (a.bits64(), b.bits64(), c.bits64());
        let mut r = 0;
        for i in 0..8 {
            if x >> i & 1 != 0 {
                let term = |value: u64, bit: u32| if i & bit != 0 { value } else { !value };
                r |= term(a, 4) & term(b, 2) & term(c, 1);
            }
        }
        T::of_bits(r)
    };
}

/// `amount`, if `x` at most 32, else modulo 32.
#[inline(always)]
fn clamped(amount: u32, x: u32) -> u32 {
    if x != 0 { amount.min(32) } else { amount & 31 }
}

/// `add.sat.s32` and `sub.sat.s32` (`x` = 1).
pub(crate) struct AddSat;

impl F2 for AddSat {
    type A = i32;
    type B = i32;
    type D = i32;
    #[inline(always)]
    fn f(a: i32, b: i32, x: u32) -> i32 {
        if x != 0 { a.saturating_sub(b) } else { a.saturating_add(b) }
    }
}

/// Funnel shift of the pair `b:a`; `x & 1` shifts right, `x & 2` clamps the
/// amount to 32 instead of wrapping it.
pub(crate) struct Shf;

impl F3 for Shf {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn f(a: u32, b: u32, c: u32, x: u32) -> u32 {
        let pair = u64::from(b) << 32 | u64::from(a);
        let by = clamped(c, x & 2);
        if x & 1 != 0 { (pair >> by) as u32 } else { (pair << by >> 32) as u32 }
    }
}

/// `b` ones from bit `a` on, as far as there are; `x` clamps both to 32 instead of wrapping them.
pub(crate) struct Bmsk;

impl F2 for Bmsk {
    type A = u32;
    type B = u32;
    type D = u32;
    #[inline(always)]
    fn f(a: u32, b: u32, x: u32) -> u32 {
        let ones = (1u64 << clamped(b, x)) - 1;
        (ones << clamped(a, x)) as u32
    }
}

/// The bit of `a` that is the `c`th one from bit `b` on, upwards or, if `c` is negative, downwards.
pub(crate) struct Fns;

impl F3 for Fns {
    type A = u32;
    type B = u32;
    type C = i32;
    type D = u32;
    #[inline(always)]
    fn f(a: u32, b: u32, c: i32, _x: u32) -> u32 {
        let set = |&bit: &u32| a >> bit & 1 != 0;
        let nth = c.unsigned_abs().saturating_sub(1) as usize;
        // PTX leaves a `b` above 31 open; there is nothing there.
        let found = match c {
            _ if b > 31 => None,
            0 => Some(b).filter(set),
            1.. => (b..32).filter(set).nth(nth),
            _ => (0..=b).rev().filter(set).nth(nth),
        };
        found.unwrap_or(u32::MAX)
    }
}

/// Picks four bytes of the pair `b:a`; `x` is the mode, see [`PERMUTES`].
pub(crate) struct Prmt;

/// Modes of `prmt`, in the order of their numbers; the first is the default.
pub(crate) const PERMUTES: [&str; 7] = ["", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"];

impl F3 for Prmt {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn f(a: u32, b: u32, c: u32, x: u32) -> u32 {
        let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
        let i = c & 3;
        let pick = |at: u32| match x {
            0 => c >> (4 * at) & 0xf,
            1 => i + at,
            2 => (i + 8 - at) & 7,
            3 => i,
            4 => at.max(i),
            5 => at.min(i),
            _ => (i & 1) * 2 + (at & 1),
        };
        let mut r = [0; 4];
        for (at, byte) in r.iter_mut().enumerate() {
            let choice = pick(at as u32);
            let value = bytes[(choice & 7) as usize];
            // In the default mode bit 3 replicates the sign.
            *byte = if choice & 8 != 0 { ((value as i8) >> 7) as u8 } else { value };
        }
        u32::from_le_bytes(r)
    }
}

/// Four-way byte dot product plus `c`; `x & 1`: `a` is signed, `x & 2`: `b` is.
pub(crate) struct Dp4a;

impl F3 for Dp4a {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn f(a: u32, b: u32, c: u32, x: u32) -> u32 {
        let mut sum = c;
        for (a, b) in a.to_le_bytes().into_iter().zip(b.to_le_bytes()) {
            let a = if x & 1 != 0 { i32::from(a as i8) } else { i32::from(a) };
            let b = if x & 2 != 0 { i32::from(b as i8) } else { i32::from(b) };
            sum = sum.wrapping_add((a * b) as u32);
        }
        sum
    }
}

/// Dot product of two halves of `a` and two bytes of `b`, plus `c`; `x` as in [`Dp4a`], and `x & 4`
/// takes the upper bytes.
pub(crate) struct Dp2a;

impl F3 for Dp2a {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn f(a: u32, b: u32, c: u32, x: u32) -> u32 {
        let bytes = if x & 4 != 0 { b >> 16 } else { b };
        let term = |i: u32| {
            let (a, b) = ((a >> (16 * i)) as u16, (bytes >> (8 * i)) as u8);
            let a = if x & 1 != 0 { i32::from(a as i16) } else { i32::from(a) };
            let b = if x & 2 != 0 { i32::from(b as i8) } else { i32::from(b) };
            (a * b) as u32
        };
        c.wrapping_add(term(0)).wrapping_add(term(1))
    }
}

/// `cvt.pack.sat`: below `c`, which moves up, `a` and `b` clamped to `x & 31` bits, with a sign if
/// `x & 32`.
pub(crate) struct PackSat;

impl F3 for PackSat {
    type A = i32;
    type B = i32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn f(a: i32, b: i32, c: u32, x: u32) -> u32 {
        let (bits, signed) = (x & 31, x & 32 != 0);
        let least = if signed { -1 << (bits - 1) } else { 0 };
        let most = least + ((1 << bits) - 1);
        let clamped = |value: i32| value.clamp(least, most) as u32 & ((1 << bits) - 1);
        u32::shl(c, 2 * bits) | clamped(a) << bits | clamped(b)
    }
}

/// Parts of a register that video instructions take, in the order of the numbers that operations
/// carry; the number behind them is all of it.
pub(crate) const PARTS: [&str; 6] = ["b0", "b1", "b2", "b3", "h0", "h1"];
/// What the third operand of a video instruction takes part in, in that order, from 1.
pub(crate) const SECONDS: [&str; 3] = ["add", "min", "max"];

/// A part of a word, extended by its sign if it has one.
fn part(word: u32, number: u32, signed: bool) -> i64 {
    let (bits, first) = match number {
        byte @ 0..4 => (8, 8 * byte),
        half @ 4..6 => (16, 16 * (half - 4)),
        _ => (32, 0),
    };
    let raw = word << (32 - bits - first);
    match signed {
        true => i64::from(raw as i32 >> (32 - bits)),
        false => i64::from(raw >> (32 - bits)),
    }
}

/// `vshr`: a part of `a` shifted right by a part of `b`, and then with `c`. `x` has the numbers of
/// the parts, 3 bits each, whether `a` and `c` have a sign, whether an amount above 32 is 32
/// instead of one modulo 32, and the number in [`SECONDS`].
pub(crate) struct Vshr;

impl F3 for Vshr {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn f(a: u32, b: u32, c: u32, x: u32) -> u32 {
        let signed = x >> 6 & 1 != 0;
        let by = part(b, x >> 3 & 7, false);
        let by = if x >> 7 & 1 != 0 { by.min(32) } else { by & 31 };
        let (shifted, c) = (part(a, x & 7, signed) >> by, part(c, PARTS.len() as u32, signed));
        let result = match x >> 8 {
            0 => shifted,
            1 => shifted + c,
            2 => shifted.min(c),
            _ => shifted.max(c),
        };
        result as u32
    }
}

/// Bit field insert: `d` = `b` with the `y` low bits of `a` at bit `c`. Slots
/// `a`, `b`, `d` hold `T`, slots `c` and `y` `u32`.
pub(crate) struct Bfi<T>(PhantomData<T>);

// SAFETY: touches only the slots named.
unsafe impl<T: Int> Handler for Bfi<T> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have the lane sizes of their types.
        unsafe {
            let (a, b) = (cx.slot::<T::Slot>(op.a), cx.slot::<T::Slot>(op.b));
            let (c, y) = (cx.slot::<u32>(op.c), cx.slot::<u32>(op.y));
            let d = cx.slot::<T::Slot>(op.d);
            for i in cx.active() {
                let (pos, len) = (*c.add(i) & 0xff, *y.add(i) & 0xff);
                let (field, old) = (T::get(*a.add(i)).bits64(), T::get(*b.add(i)).bits64());
                let ones = if len >= 64 { u64::MAX } else { (1 << len) - 1 };
                let mask = if pos >= T::BITS { 0 } else { ones << pos };
                let moved = if pos >= T::BITS { 0 } else { field << pos };
                *d.add(i) = T::of_bits(old & !mask | moved & mask).put();
            }
        }
        false
    }
}

/// What [`Carry`] does besides adding: it reads the carry, or writes it.
pub(crate) const READS_CARRY: u32 = 2;
pub(crate) const WRITES_CARRY: u32 = 4;

/// Addition and subtraction with carry. The carry is predicate `c`; `x & 1` subtracts: it adds the
/// complement of `b` and one, or the carry, which so means that nothing was borrowed.
pub(crate) struct Carry<T>(PhantomData<T>);

// SAFETY: touches only the slots `d`, `a`, `b` and the predicate `c`.
unsafe impl<T: Int> Handler for Carry<T> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let sub = op.x & 1 != 0;
        // SAFETY: the slots have lanes of `T`.
        unsafe {
            let (a, b) = (cx.slot::<T::Slot>(op.a), cx.slot::<T::Slot>(op.b));
            let d = cx.slot::<T::Slot>(op.d);
            let carry = match op.x & READS_CARRY != 0 {
                true => cx.pred(op.c),
                false if sub => FULL,
                false => 0,
            };
            let mut out = 0;
            for i in cx.active() {
                let (a, b) = (T::get(*a.add(i)), T::get(*b.add(i)));
                let b = if sub { T::of_bits(!b.bits64()) } else { b };
                let r =
                    u128::from(a.bits64()) + u128::from(b.bits64()) + u128::from(carry >> i & 1);
                *d.add(i) = T::of_bits(r as u64).put();
                out |= u32::from(r >> T::BITS & 1 != 0) << i;
            }
            if op.x & WRITES_CARRY != 0 {
                cx.set_pred(op.c, out);
            }
        }
        false
    }
}

macro_rules! compares {
    ($($name:ident |$a:ident, $b:ident| $body:expr;)*) => {$(
        pub(crate) struct $name<T>(PhantomData<T>);
        impl<T: Int> Compare for $name<T> {
            type T = T;
            #[inline(always)]
            fn f($a: T, $b: T) -> bool {
                $body
            }
        }
    )*};
}

compares! {
    Eq |a, b| a == b;
    Ne |a, b| a != b;
    Lt |a, b| a < b;
    Le |a, b| a <= b;
}
