//! Arithmetic of 16-bit floats and of pairs of them.

use cuda_std::half::{self, Arithmetic, Half, bf16, bf16x2, f16, f16x2};
use cuda_std::prelude::*;

/// What one type makes of three operands: sum, difference, product, two `fma`, minima and maxima
/// without and with NaN, the negative and the absolute value.
fn all<T: Arithmetic>(a: T, b: T, c: T) -> [T; 11] {
    [
        half::add(a, b),
        half::sub(a, b),
        half::mul(a, b),
        half::fma(a, b, c),
        half::fma_relu(a, b, c),
        half::min(a, b),
        half::max(a, b),
        half::min_nan(a, b),
        half::max_nan(a, b),
        half::neg(a),
        half::abs(a),
    ]
}

/// How two numbers compare: `==`, `!=`, `<`, `<=`, `>`, `>=`.
fn compare<T: Arithmetic>(a: T, b: T) -> [T::Compared; 6] {
    [
        half::setp_eq(a, b),
        half::setp_ne(a, b),
        half::setp_lt(a, b),
        half::setp_le(a, b),
        half::setp_gt(a, b),
        half::setp_ge(a, b),
    ]
}

fn bits(flags: impl Iterator<Item = bool>) -> u32 {
    flags.enumerate().fold(0, |bits, (i, flag)| bits | u32::from(flag) << i)
}

macro_rules! singles {
    ($($name:ident: $ty:ident;)*) => {$(
        /// Of each element, the numbers and the comparisons.
        #[kernel]
        pub fn $name(
            a: &[u16],
            b: &[u16],
            c: &[u16],
            mut numbers: DisjointSlice<[u16; 11]>,
            mut compared: DisjointSlice<u32>,
        ) {
            let i = thread::index_1d() as usize;
            let (Some(&a), Some(&b), Some(&c)) = (a.get(i), b.get(i), c.get(i)) else { return };
            let (a, b, c) = ($ty::from_bits(a), $ty::from_bits(b), $ty::from_bits(c));
            if let (Some(numbers), Some(compared)) = (numbers.get_mut(), compared.get_mut()) {
                *numbers = all(a, b, c).map($ty::to_bits);
                *compared = bits(compare(a, b).into_iter());
            }
        }
    )*};
}

singles! {
    f16_arithmetic: f16;
    bf16_arithmetic: bf16;
}

macro_rules! pairs {
    ($($name:ident: $ty:ident;)*) => {$(
        /// Of each pair, the numbers, once more by operators, through conversions, and the
        /// comparisons.
        #[kernel]
        pub fn $name(
            a: &[u32],
            b: &[u32],
            c: &[u32],
            mut numbers: DisjointSlice<[u32; 13]>,
            mut compared: DisjointSlice<u32>,
        ) {
            let i = thread::index_1d() as usize;
            let (Some(&a), Some(&b), Some(&c)) = (a.get(i), b.get(i), c.get(i)) else { return };
            let (a, b, c) = ($ty::from_bits(a), $ty::from_bits(b), $ty::from_bits(c));
            if let (Some(numbers), Some(compared)) = (numbers.get_mut(), compared.get_mut()) {
                let [sum, difference, product, rest @ ..] = all(a, b, c).map($ty::to_bits);
                *numbers = [0; 13];
                numbers[..3].copy_from_slice(&[sum, difference, product]);
                numbers[3..11].copy_from_slice(&rest);
                numbers[11] = (-(a + b) * c - $ty::splat(a.high())).to_bits();
                numbers[12] = $ty::narrow($ty::new(b.high(), a.low()).widen()).to_bits();
                let [low, high] = [0, 1].map(|half| bits(compare(a, b).iter().map(|both| both[half])));
                *compared = low | high << 6;
            }
        }
    )*};
}

pairs! {
    f16x2_arithmetic: f16x2;
    bf16x2_arithmetic: bf16x2;
}

/// Each thread adds 1.0, and to halves of pairs 0.5 and 2.0, in device and in shared memory.
///
/// # Safety
/// The pointers are to one element each; blocks of 32 threads.
#[kernel(block = 32)]
pub unsafe fn f16_atomics(one: *mut u16, pair: *mut u32, out: *mut u32) {
    let total = shared_array![f16x2; 1];
    let value = f16x2::new(f16::narrow(0.5), f16::narrow(2.0));
    // SAFETY: as the launch promises; barriers lie around the additions to the total.
    unsafe {
        if thread::thread_idx_x() == 0 {
            total.write(0, f16x2::default());
        }
        thread::sync_threads();
        half::atomic_add_device(one.cast::<f16>(), f16::narrow(1.0));
        half::atomic_add_device(pair.cast::<f16x2>(), value);
        total.fetch_add(0, value);
        thread::sync_threads();
        if thread::thread_idx_x() == 0 {
            *out.add(thread::block_idx_x() as usize) = total.read(0).to_bits();
        }
    }
}

/// The same.
///
/// # Safety
/// The same.
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90"))]
#[kernel(block = 32)]
pub unsafe fn bf16_atomics(one: *mut u16, pair: *mut u32, out: *mut u32) {
    let total = shared_array![bf16x2; 1];
    let value = bf16x2::new(bf16::narrow(0.5), bf16::narrow(2.0));
    // SAFETY: as above.
    unsafe {
        if thread::thread_idx_x() == 0 {
            total.write(0, bf16x2::default());
        }
        thread::sync_threads();
        half::atomic_add_device(one.cast::<bf16>(), bf16::narrow(1.0));
        half::atomic_add_device(pair.cast::<bf16x2>(), value);
        total.fetch_add(0, value);
        thread::sync_threads();
        if thread::thread_idx_x() == 0 {
            *out.add(thread::block_idx_x() as usize) = total.read(0).to_bits();
        }
    }
}
