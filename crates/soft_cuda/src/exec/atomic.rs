//! Atomic read-modify-write operations.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};

use super::float::Float;
use super::half::{self, Bf16, F16};
use super::machine::NO_SLOT;
use super::op::{Cx, Handler, Op};
use super::rmw::{RMWS, Rmw};
use super::subword::resolve_words;
use crate::fault::Access;

/// A word that atomics work on.
pub(crate) trait Word: Copy + PartialEq + 'static {
    /// The register that holds one.
    type Slot: Copy;
    fn get(slot: Self::Slot) -> Self;
    fn put(self) -> Self::Slot;
    /// The new value for `old`.
    fn apply(rmw: Rmw, old: Self, b: Self, c: Self) -> Self;
    /// # Safety
    /// `at` is aligned memory that is accessed only atomically.
    unsafe fn update(at: *mut u8, f: impl Fn(Self) -> Self) -> Self;
}

macro_rules! word {
    ($ty:ident in $slot:ident, $signed:ident, $atomic:ident, $add_float:expr) => {
        impl Word for $ty {
            type Slot = $slot;
            fn get(slot: $slot) -> $ty {
                slot as $ty
            }
            fn put(self) -> $slot {
                self.into()
            }
            fn apply(rmw: Rmw, old: $ty, b: $ty, c: $ty) -> $ty {
                match rmw {
                    Rmw::Add => old.wrapping_add(b),
                    Rmw::Min => old.min(b),
                    Rmw::Max => old.max(b),
                    Rmw::MinSigned => (old as $signed).min(b as $signed) as $ty,
                    Rmw::MaxSigned => (old as $signed).max(b as $signed) as $ty,
                    Rmw::Inc => {
                        if old >= b {
                            0
                        } else {
                            old + 1
                        }
                    }
                    Rmw::Dec => {
                        if old == 0 || old > b {
                            b
                        } else {
                            old - 1
                        }
                    }
                    Rmw::And => old & b,
                    Rmw::Or => old | b,
                    Rmw::Xor => old ^ b,
                    Rmw::Exchange => b,
                    Rmw::CompareExchange => {
                        if old == b {
                            c
                        } else {
                            old
                        }
                    }
                    float => $add_float(float, old, b),
                }
            }
            unsafe fn update(at: *mut u8, f: impl Fn($ty) -> $ty) -> $ty {
                // SAFETY: by contract.
                let word = unsafe { &*at.cast::<$atomic>() };
                let mut old = word.load(SeqCst);
                loop {
                    match word.compare_exchange_weak(old, f(old), SeqCst, SeqCst) {
                        Ok(_) => return old,
                        Err(now) => old = now,
                    }
                }
            }
        }
    };
}

fn add_narrow(rmw: Rmw, old: u32, b: u32) -> u32 {
    match rmw {
        Rmw::AddF16x2 => half::sum::<F16, 2>(old, b),
        Rmw::AddBf16x2 => half::sum::<Bf16, 2>(old, b),
        _ => (f32::from_bits(old) + f32::from_bits(b)).canonical().to_bits(),
    }
}

/// The sum, or the operand that is NaN as it is, as an H200 adds in device memory.
fn add_wide(_: Rmw, old: u64, b: u64) -> u64 {
    let nan = [b, old].into_iter().find(|&bits| f64::from_bits(bits).is_nan());
    nan.unwrap_or_else(|| (f64::from_bits(old) + f64::from_bits(b)).canonical().to_bits())
}

fn of_halves(rmw: Rmw, old: u16, b: u16) -> u16 {
    let (old, b) = (old.into(), b.into());
    let new = match rmw {
        Rmw::AddBf16 => half::sum::<Bf16, 1>(old, b),
        Rmw::MinF16 => half::least::<F16>(old, b),
        Rmw::MaxF16 => half::most::<F16>(old, b),
        Rmw::MinBf16 => half::least::<Bf16>(old, b),
        Rmw::MaxBf16 => half::most::<Bf16>(old, b),
        _ => half::sum::<F16, 1>(old, b),
    };
    new as u16
}

word!(u16 in u32, i16, AtomicU16, of_halves);
word!(u32 in u32, i32, AtomicU32, add_narrow);
word!(u64 in u64, i64, AtomicU64, add_wide);

/// `atom` and `red`: `d` receives the old value unless it is
/// [`NO_SLOT`]; `a` address slot; `b` and `c` operand slots; `y` the number
/// of the [`Rmw`]; [`Cx::extra`] from `x`: offset, space, whether the address
/// has 64 bits, slot of what it was rounded down by or [`NO_SLOT`]. Lanes run in increasing order.
pub(crate) struct Atomic<T>(PhantomData<T>);

// SAFETY: touches only the slots named.
unsafe impl<T: Word> Handler for Atomic<T> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let rmw = RMWS[op.y as usize];
        // SAFETY: the slots have lanes of `T`, the pointers are good.
        unsafe {
            let bytes = size_of::<T>() as u32;
            // No address of 64-bit words is rounded down.
            let touched = |cx: &Cx<'_>, lane: usize, first: u32| {
                let operand = |slot| *cx.slot::<u32>(slot).add(lane);
                1 << first | rmw.changes(bytes, [operand(op.b), operand(op.c)])
            };
            let pointers = resolve_words(cx, op, bytes, Access::Atomic, touched);
            let Some(pointers) = pointers else { return true };
            for i in cx.active() {
                let operand = |slot| T::get(*cx.slot::<T::Slot>(slot).add(i));
                let (b, c) = (operand(op.b), operand(op.c));
                let old = T::update(pointers[i], |old| T::apply(rmw, old, b, c));
                if op.d != NO_SLOT {
                    *cx.slot::<T::Slot>(op.d).add(i) = old.put();
                }
            }
        }
        false
    }
}
