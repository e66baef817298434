//! Atomics among a thread's own variables. PTX has none in local memory.

use core::hint::black_box;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{
    AtomicBool, AtomicI16, AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
};

use cuda_std::atomic::{AtomicF32, AtomicF64, DeviceAtomicU32, SystemAtomicI64};

/// Mixes a value into a sum.
fn mix(sum: u64, value: u64) -> u64 {
    sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ value
}

/// The compiler sees that this one is local.
pub fn inferred(i: u32) -> u64 {
    let count = AtomicU32::new(i);
    let swapped = count.compare_exchange(i, 9, AcqRel, Acquire).is_ok();
    u64::from(count.fetch_add(i, Relaxed) + count.load(Acquire) + u32::from(swapped))
}

/// All operations of a type. The compiler knows only its address.
macro_rules! operations {
    ($($name:ident: $atomic:ident $ty:ident;)*) => {$(
        /// All operations on a neighbour of two others.
        pub fn $name(i: u32) -> u64 {
            #[inline(never)]
            fn all(x: &$atomic, i: $ty) -> u64 {
                let mut sum = 0;
                for (step, order) in [Relaxed, Acquire, Release, AcqRel, SeqCst].into_iter().enumerate() {
                    let load = match order { Release => Relaxed, AcqRel => Acquire, order => order };
                    let store = match order { Acquire => Relaxed, AcqRel => Release, order => order };
                    let value = i.wrapping_mul(37).wrapping_add(step as $ty);
                    let before = [
                        x.fetch_add(value, order),
                        x.fetch_sub(7, order),
                        x.fetch_and(!2, order),
                        x.fetch_or(5, order),
                        x.fetch_xor(value, order),
                        x.fetch_nand(3, order),
                        x.fetch_max(9, order),
                        x.fetch_min(70, order),
                        x.swap(value, order),
                        x.load(load),
                        x.compare_exchange(value, 100, order, load).unwrap_or(1),
                        x.compare_exchange(value, 101, order, load).unwrap_or_else(|now| now),
                        x.fetch_update(order, load, |now| now.checked_add(3)).unwrap_or(2),
                    ];
                    x.store(before[step].wrapping_add(1), store);
                    sum = before.iter().fold(sum, |sum, before| mix(sum, *before as u64));
                }
                mix(sum, x.load(SeqCst) as u64)
            }
            // Neighbours, which must keep their values.
            let all_of = [$atomic::new(1), $atomic::new(i as $ty), $atomic::new(2)];
            let sum = all(&black_box(&all_of)[1], i as $ty);
            all_of.into_iter().fold(sum, |sum, x| mix(sum, x.into_inner() as u64))
        }
    )*};
}

operations! {
    words: AtomicU32 u32;
    signed_words: AtomicI32 i32;
    wide_words: AtomicU64 u64;
    bytes: AtomicU8 u8;
    half_words: AtomicU16 u16;
    signed_half_words: AtomicI16 i16;
}

/// A byte that is a flag.
pub fn flags(i: u32) -> u64 {
    #[inline(never)]
    fn set(flag: &AtomicBool, to: bool) -> u64 {
        let swapped = u64::from(flag.swap(to, AcqRel));
        swapped | u64::from(flag.fetch_not(SeqCst)) << 1 | u64::from(flag.load(Acquire)) << 2
    }
    let flag = AtomicBool::new(i.is_multiple_of(2));
    set(black_box(&flag), i.is_multiple_of(3)) << 1 | u64::from(flag.into_inner())
}

/// A lock that nobody else has.
struct Lock(AtomicBool);

impl Lock {
    #[inline(never)]
    fn with<T>(&self, f: impl FnOnce() -> T) -> T {
        while self.0.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {}
        let value = f();
        self.0.store(false, Release);
        value
    }
}

/// Locks twice.
pub fn locks(i: u32) -> u64 {
    let lock = Lock(AtomicBool::new(false));
    let lock = black_box(&lock);
    lock.with(|| u64::from(i)) + lock.with(|| u64::from(i) * 3)
}

/// `cuda_std`'s floats.
pub fn floats(i: u32) -> u64 {
    #[inline(never)]
    fn of(x: &AtomicF32, y: &AtomicF64, i: u32) -> u64 {
        let narrow = x.fetch_add(i as f32, Relaxed) + x.swap(0.5, AcqRel) + x.load(SeqCst);
        let wide = y.fetch_add(f64::from(i) * 0.3, SeqCst) + y.swap(1.5, Release) + y.load(Acquire);
        mix(u64::from(narrow.to_bits()), wide.to_bits())
    }
    let (x, y) = (AtomicF32::new(0.25), AtomicF64::new(0.1));
    let sum = of(black_box(&x), black_box(&y), i);
    mix(mix(sum, u64::from(x.into_inner().to_bits())), y.into_inner().to_bits())
}

/// `cuda_std`'s integers of a scope.
pub fn scoped(i: u32) -> u64 {
    #[inline(never)]
    fn of(x: &DeviceAtomicU32, y: &SystemAtomicI64, i: u32) -> u64 {
        let narrow = [
            x.fetch_add(i, Relaxed),
            x.fetch_max(20, AcqRel),
            x.compare_exchange(20, 11, SeqCst, Relaxed).unwrap_or_else(|now| now),
            x.load(Acquire),
        ];
        let wide = [y.fetch_min(i64::from(i) - 30, Acquire), y.fetch_xor(77, Release)];
        y.store(y.load(Relaxed) + 1, Release);
        let sum = narrow.iter().fold(0, |sum, before| mix(sum, u64::from(*before)));
        wide.iter().fold(sum, |sum, before| mix(sum, *before as u64))
    }
    let (x, y) = (DeviceAtomicU32::new(3), SystemAtomicI64::new(-4));
    let sum = of(black_box(&x), black_box(&y), i);
    mix(mix(sum, u64::from(x.into_inner())), y.into_inner() as u64)
}
