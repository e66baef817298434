//! Element types of register lanes, and loops over the lanes of a warp.
//!
//! The loops work on chunks of [`W`] lanes held in small arrays, which the
//! compiler keeps in vector registers. A chunk is read before it is written,
//! so a destination may share its slot with an operand.

use std::marker::PhantomData;

use super::machine::{FULL, LANES, NO_SLOT};
use super::op::{Cx, Handler, Op};

/// Lanes of one chunk.
pub(crate) const W: usize = 16;
const _: () = assert!(LANES.is_multiple_of(W));

/// The lanes of a warp on the stack, aligned so that no vector of them is in two lines of the
/// cache.
#[repr(align(64))]
pub(crate) struct AlignedLanes<T>(pub T);

/// A type that a register lane can be read and written as.
pub(crate) trait Lane: Copy {
    /// `u32` for registers up to 32 bits, `u64` for 64 bits.
    type Slot: Copy + Default;
    fn get(slot: Self::Slot) -> Self;
    fn put(self) -> Self::Slot;
}

macro_rules! lane {
    ($($ty:ty as $slot:ty: $get:expr, $put:expr;)*) => {$(
        impl Lane for $ty {
            type Slot = $slot;
            #[inline(always)]
            fn get(slot: $slot) -> $ty {
                const GET: fn($slot) -> $ty = $get;
                GET(slot)
            }
            #[inline(always)]
            fn put(self) -> $slot {
                const PUT: fn($ty) -> $slot = $put;
                PUT(self)
            }
        }
    )*};
}

// Registers narrower than 32 bits are kept zero-extended.
lane! {
    u16 as u32: |s| s as u16, |v| v as u32;
    i16 as u32: |s| s as i16, |v| v as u16 as u32;
    u32 as u32: |s| s, |v| v;
    i32 as u32: |s| s as i32, |v| v as u32;
    u64 as u64: |s| s, |v| v;
    i64 as u64: |s| s as i64, |v| v as u64;
    f32 as u32: f32::from_bits, f32::to_bits;
    f64 as u64: f64::from_bits, f64::to_bits;
}

/// Writes the active lanes of slot `d`; `f` computes the chunk that starts at
/// a lane, from operands it reads before it returns.
///
/// # Safety
/// `d` is a slot of lanes the size of `S`.
#[inline(always)]
pub(crate) unsafe fn write_lanes<S: Copy>(cx: &Cx<'_>, d: u32, f: impl Fn(usize) -> [S; W]) {
    // One call of `f` in the text, so that it is inlined here, for this instruction set.
    for j in (0..LANES).step_by(W) {
        // SAFETY: by contract.
        unsafe { write_chunk(cx, d, j, f(j)) };
    }
}

/// Writes the active lanes of the chunk of slot `d` that starts at lane `j`, or of a part of it.
///
/// # Safety
/// `d` is a slot of lanes the size of `S`, and `j` the first of a chunk, or of a part of one of `N`
/// lanes.
#[inline(always)]
pub(crate) unsafe fn write_chunk<S: Copy, const N: usize>(
    cx: &Cx<'_>,
    d: u32,
    j: usize,
    mut new: [S; N],
) {
    // SAFETY: `d` is a slot of `S` lanes, so every chunk is inside it.
    unsafe {
        let at = cx.slot::<S>(d).add(j).cast::<[S; N]>();
        if cx.mask != FULL {
            let old = at.read();
            for i in 0..N {
                new[i] = if cx.mask >> (j + i) & 1 != 0 { new[i] } else { old[i] };
            }
        }
        at.write(new);
    }
}

/// The chunk of slot `s` that starts at lane `j`.
///
/// # Safety
/// `s` is a slot of lanes the size of `S`.
#[inline(always)]
pub(crate) unsafe fn chunk<S: Copy>(cx: &Cx<'_>, s: u32, j: usize) -> [S; W] {
    // SAFETY: by contract.
    unsafe { part(cx, s, j) }
}

/// `N` lanes of slot `s` from lane `j` on.
///
/// # Safety
/// `s` is a slot of lanes the size of `S`, and `j + N <= LANES`.
#[inline(always)]
pub(crate) unsafe fn part<S: Copy, const N: usize>(cx: &Cx<'_>, s: u32, j: usize) -> [S; N] {
    // SAFETY: by contract.
    unsafe { cx.slot::<S>(s).add(j).cast::<[S; N]>().read() }
}

/// Lane `i` of slot `s`.
///
/// # Safety
/// `s` is a slot of `L` lanes.
#[inline(always)]
unsafe fn lane<L: Lane>(cx: &Cx<'_>, s: u32, i: usize) -> L {
    // SAFETY: by contract.
    L::get(unsafe { *cx.slot::<L::Slot>(s).add(i) })
}

/// A function of one operand; `x` is the operation's immediate.
pub(crate) trait F1 {
    type A: Lane;
    type D: Lane;
    fn f(a: Self::A, x: u32) -> Self::D;
}

/// A function of two operands; `x` is the operation's immediate.
pub(crate) trait F2 {
    type A: Lane;
    type B: Lane;
    type D: Lane;
    fn f(a: Self::A, b: Self::B, x: u32) -> Self::D;
}

/// A function of three operands; `x` is the operation's immediate.
pub(crate) trait F3 {
    type A: Lane;
    type B: Lane;
    type C: Lane;
    type D: Lane;
    fn f(a: Self::A, b: Self::B, c: Self::C, x: u32) -> Self::D;
}

/// A predicate of two operands.
pub(crate) trait Compare {
    type T: Lane;
    fn f(a: Self::T, b: Self::T) -> bool;
}

/// Lane by lane: `d = f(a)`.
pub(crate) struct Map1<F>(PhantomData<F>);
/// Lane by lane: `d = f(a, b)`.
pub(crate) struct Map2<F>(PhantomData<F>);
/// Lane by lane: `d = f(a, b, c)`.
pub(crate) struct Map3<F>(PhantomData<F>);

// SAFETY: touches only the slots `d` and `a`.
unsafe impl<F: F1> Handler for Map1<F> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have the lane sizes of the operation's types.
        unsafe {
            write_lanes(cx, op.d, |j| {
                let a = chunk(cx, op.a, j);
                let mut r = [<F::D as Lane>::Slot::default(); W];
                for i in 0..W {
                    r[i] = F::f(F::A::get(a[i]), op.x).put();
                }
                r
            });
        }
        false
    }

    unsafe fn compact(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have the lane sizes of the operation's types.
        unsafe {
            let d = cx.slot::<<F::D as Lane>::Slot>(op.d);
            for i in cx.active() {
                *d.add(i) = F::f(lane(cx, op.a, i), op.x).put();
            }
        }
        false
    }
}

// SAFETY: touches only the slots `d`, `a` and `b`.
unsafe impl<F: F2> Handler for Map2<F> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have the lane sizes of the operation's types.
        unsafe {
            write_lanes(cx, op.d, |j| {
                let (a, b) = (chunk(cx, op.a, j), chunk(cx, op.b, j));
                let mut r = [<F::D as Lane>::Slot::default(); W];
                for i in 0..W {
                    r[i] = F::f(F::A::get(a[i]), F::B::get(b[i]), op.x).put();
                }
                r
            });
        }
        false
    }

    unsafe fn compact(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have the lane sizes of the operation's types.
        unsafe {
            let d = cx.slot::<<F::D as Lane>::Slot>(op.d);
            for i in cx.active() {
                *d.add(i) = F::f(lane(cx, op.a, i), lane(cx, op.b, i), op.x).put();
            }
        }
        false
    }
}

// SAFETY: touches only the slots `d`, `a`, `b` and `c`.
unsafe impl<F: F3> Handler for Map3<F> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have the lane sizes of the operation's types.
        unsafe {
            write_lanes(cx, op.d, |j| {
                let (a, b, c) = (chunk(cx, op.a, j), chunk(cx, op.b, j), chunk(cx, op.c, j));
                let mut r = [<F::D as Lane>::Slot::default(); W];
                for i in 0..W {
                    r[i] = F::f(F::A::get(a[i]), F::B::get(b[i]), F::C::get(c[i]), op.x).put();
                }
                r
            });
        }
        false
    }

    unsafe fn compact(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have the lane sizes of the operation's types.
        unsafe {
            let d = cx.slot::<<F::D as Lane>::Slot>(op.d);
            for i in cx.active() {
                *d.add(i) =
                    F::f(lane(cx, op.a, i), lane(cx, op.b, i), lane(cx, op.c, i), op.x).put();
            }
        }
        false
    }
}

/// `setp`: predicate `d` = compare(`a`, `b`), combined with predicate `c` (or
/// [`NO_SLOT`]) as `x` says: 0 and, 1 or, 2 xor; `x & 4`
/// negates `c`. Predicate `y`, if any, gets the same of the opposite.
pub(crate) struct SetP<F>(PhantomData<F>);

// SAFETY: touches only the slots `a`, `b` and the predicates `c`, `d`, `y`.
unsafe impl<F: Compare> Handler for SetP<F> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let mut mask = 0u32;
        // SAFETY: the slots have lanes of `F::T`.
        unsafe {
            for j in (0..LANES).step_by(W) {
                let (a, b) = (chunk(cx, op.a, j), chunk(cx, op.b, j));
                let mut bits = 0u32;
                for i in 0..W {
                    bits |= if F::f(F::T::get(a[i]), F::T::get(b[i])) { 1 << i } else { 0 };
                }
                mask |= bits << j;
            }
            set_predicates(cx, op, mask);
        }
        false
    }

    unsafe fn compact(cx: &mut Cx<'_>, op: &Op) -> bool {
        let mut mask = 0u32;
        // SAFETY: the slots have lanes of `F::T`.
        unsafe {
            for i in cx.active() {
                mask |= u32::from(F::f(lane(cx, op.a, i), lane(cx, op.b, i))) << i;
            }
            set_predicates(cx, op, mask);
        }
        false
    }
}

/// Sets the predicates of a `setp` whose comparison is true in the lanes `mask`.
///
/// # Safety
/// `op` is a [`SetP`].
#[inline(always)]
unsafe fn set_predicates(cx: &mut Cx<'_>, op: &Op, mask: u32) {
    // SAFETY: the fields are predicates of the kernel that runs.
    unsafe {
        if op.c == NO_SLOT && op.y == NO_SLOT {
            cx.set_pred(op.d, mask);
        } else {
            combine(cx, op, mask);
        }
    }
}

/// The rarer forms of `setp`.
///
/// # Safety
/// `d`, and `c` and `y` where present, are predicates.
#[inline(never)]
unsafe fn combine(cx: &mut Cx<'_>, op: &Op, mask: u32) {
    // SAFETY: by contract.
    unsafe {
        let apply = |value: u32| {
            if op.c == NO_SLOT {
                return value;
            }
            let c = cx.pred(op.c) ^ if op.x & 4 != 0 { FULL } else { 0 };
            match op.x & 3 {
                0 => value & c,
                1 => value | c,
                _ => value ^ c,
            }
        };
        let (p, q) = (apply(mask), apply(!mask));
        cx.set_pred(op.d, p);
        if op.y != NO_SLOT {
            cx.set_pred(op.y, q);
        }
    }
}

/// `selp`: `d` = predicate `c` ? `a` : `b`, for slots of `S`.
pub(crate) struct Select<S>(PhantomData<S>);

// SAFETY: touches only the slots `d`, `a`, `b` and the predicate `c`.
unsafe impl<S: Copy + Default> Handler for Select<S> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have lanes of `S`.
        unsafe {
            let p = cx.pred(op.c);
            write_lanes(cx, op.d, |j| {
                let (a, b) = (chunk::<S>(cx, op.a, j), chunk::<S>(cx, op.b, j));
                let mut r = [S::default(); W];
                for i in 0..W {
                    r[i] = if p >> (j + i) & 1 != 0 { a[i] } else { b[i] };
                }
                r
            });
        }
        false
    }
}

/// Logic on predicates: `d` = op(`a`, `b`); `x`: 0 and, 1 or, 2 xor, 3 not `a`,
/// 4 `a`, 5 false, 6 true; `x & 8` and `x & 16` negate `a` and `b` first.
pub(crate) struct PredLogic;

// SAFETY: touches only the predicates `d`, `a` and `b`.
unsafe impl Handler for PredLogic {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        unsafe {
            let a = cx.pred(op.a) ^ if op.x & 8 != 0 { FULL } else { 0 };
            let b = cx.pred(op.b) ^ if op.x & 16 != 0 { FULL } else { 0 };
            let value = match op.x & 7 {
                0 => a & b,
                1 => a | b,
                2 => a ^ b,
                3 => !a,
                4 => a,
                5 => 0,
                _ => FULL,
            };
            cx.set_pred(op.d, value);
        }
        false
    }
}
