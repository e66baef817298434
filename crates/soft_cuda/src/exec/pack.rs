//! `mov` between a register and the parts of another.

use std::marker::PhantomData;

use super::int::Int;
use super::lanes::{W, chunk, write_lanes};
use super::op::{Cx, Handler, Op};

/// `mov.b64 d, {a, b}`: two 32-bit halves to one register, low half first.
pub(crate) struct Pack64;

// SAFETY: touches only the slots `d` (wide), `a` and `b`.
unsafe impl Handler for Pack64 {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have the lane sizes used here.
        unsafe {
            write_lanes(cx, op.d, |j| {
                let (a, b) = (chunk::<u32>(cx, op.a, j), chunk::<u32>(cx, op.b, j));
                let mut r = [0u64; W];
                for i in 0..W {
                    r[i] = u64::from(b[i]) << 32 | u64::from(a[i]);
                }
                r
            });
        }
        false
    }
}

/// The `x` bits from bit `y` up of register `a`, to `d`: one part of
/// `mov.b64 {d, e}, a`. `S` is the lane of `a`, `d` has 32-bit lanes.
pub(crate) struct Unpack<S>(PhantomData<S>);

// SAFETY: touches only the slots `d` and `a`.
unsafe impl<S: Copy + Into<u64>> Handler for Unpack<S> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have the lane sizes used here.
        unsafe {
            let keep = u32::MAX >> (32 - op.x);
            write_lanes(cx, op.d, |j| {
                let a = chunk::<S>(cx, op.a, j);
                let mut r = [0u32; W];
                for i in 0..W {
                    r[i] = (a[i].into() >> op.y) as u32 & keep;
                }
                r
            });
        }
        false
    }
}

/// `d` |= `a` << `x`, of 32-bit lanes into lanes of `S`: one part of packing
/// 16-bit parts.
pub(crate) struct Insert<S>(PhantomData<S>);

// SAFETY: touches only the slots `d` and `a`.
unsafe impl<T: Int> Handler for Insert<T> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have the lane sizes used here.
        unsafe {
            let (d, a) = (cx.slot::<T::Slot>(op.d), cx.slot::<u32>(op.a));
            for i in cx.active() {
                let old = T::get(*d.add(i)).bits64();
                *d.add(i) = T::of_bits(old | u64::from(*a.add(i) & 0xffff) << op.x).put();
            }
        }
        false
    }
}
