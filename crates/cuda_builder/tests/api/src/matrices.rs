//! Matrices in the registers of a warp, each fragment made element by element as `cuda_std::mma`
//! says.

use cuda_std::mma::{
    Bf16, F16, FragmentA, FragmentB, Multiply, Tf32, ldmatrix_x1, ldmatrix_x1_trans, ldmatrix_x2,
    ldmatrix_x2_trans, ldmatrix_x4, ldmatrix_x4_trans, mma,
};
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
use cuda_std::mma::{
    stmatrix_x1, stmatrix_x1_trans, stmatrix_x2, stmatrix_x2_trans, stmatrix_x4, stmatrix_x4_trans,
};
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

/// Registers that a lane has of the results of all loads: 1, 2 and 4, and the same transposed.
pub const WORDS: u32 = 14;
/// Elements of four matrices.
const ELEMENTS: u32 = 4 * 64;

/// How the elements of A and B get into registers.
trait Element: Sized {
    /// Elements of a register.
    const PER_REGISTER: u32;

    /// A register of elements.
    fn pack(values: impl Fn(u32) -> f32) -> u32;
}

macro_rules! halves {
    ($($ty:ident: $pair:ident;)*) => {$(
        impl Element for $ty {
            const PER_REGISTER: u32 = 2;

            fn pack(values: impl Fn(u32) -> f32) -> u32 {
                cuda_std::half::$pair::narrow([values(0), values(1)]).to_bits()
            }
        }
    )*};
}

halves! { Bf16: bf16x2; F16: f16x2; }

impl Element for Tf32 {
    const PER_REGISTER: u32 = 1;

    fn pack(values: impl Fn(u32) -> f32) -> u32 {
        Tf32::round(values(0))
    }
}

/// The fragments of A, 16 x K, and of B, K x 8, both row-major.
///
/// # Safety
/// So many elements lie there.
unsafe fn fragments<T: Element, const A: usize, const B: usize>(
    a: *const f32,
    b: *const f32,
) -> (FragmentA<T, A>, FragmentB<T, B>) {
    let lane = warp::lane_id();
    let (per_register, width) = (T::PER_REGISTER, 4 * T::PER_REGISTER);
    let k = width * B as u32;
    let (mut a_bits, mut b_bits) = ([0; A], [0; B]);
    for (i, bits) in (0..).zip(&mut a_bits) {
        let (row, col) = (i % 2 * 8 + lane / 4, i / 2 * width + lane % 4 * per_register);
        // SAFETY: inside.
        *bits = T::pack(|j| unsafe { *a.add((row * k + col + j) as usize) });
    }
    for (i, bits) in (0..).zip(&mut b_bits) {
        let (row, col) = (i * width + lane % 4 * per_register, lane / 4);
        // SAFETY: inside.
        *bits = T::pack(|j| unsafe { *b.add(((row + j) * 8 + col) as usize) });
    }
    (FragmentA::from_bits(a_bits), FragmentB::from_bits(b_bits))
}

macro_rules! products {
    ($($name:ident: $ty:ident, $a:literal, $b:literal;)*) => {$(
        /// `d = a * b + c`, row-major, with c and d of 16 x 8.
        ///
        /// # Safety
        /// One warp; the matrices have so many elements, and nothing else touches d.
        #[kernel(block = 32)]
        pub unsafe fn $name(a: *const f32, b: *const f32, c: *const f32, d: *mut f32) {
            let lane = warp::lane_id();
            let at = |i: usize| (lane as usize / 4 + i / 2 * 8) * 8 + lane as usize % 4 * 2 + i % 2;
            // SAFETY: as the launch promises; all of the warp multiply.
            unsafe {
                let (a, b) = fragments::<$ty, $a, $b>(a, b);
                let c = core::array::from_fn(|i| *c.add(at(i)));
                let result: [f32; 4] = mma(a, b, c);
                for (i, value) in result.into_iter().enumerate() {
                    *d.add(at(i)) = value;
                }
            }
        }
    )*};
}

products! {
    bf16_k8: Bf16, 2, 1;
    bf16_k16: Bf16, 4, 2;
    f16_k8: F16, 2, 1;
    f16_k16: F16, 4, 2;
    tf32_k4: Tf32, 2, 1;
    tf32_k8: Tf32, 4, 2;
}

macro_rules! half_products {
    ($($name:ident: $a:literal, $b:literal;)*) => {$(
        /// `d = a * b + c` with accumulators in f16.
        ///
        /// # Safety
        /// As for `f16_k16`.
        #[kernel(block = 32)]
        pub unsafe fn $name(a: *const f32, b: *const f32, c: *const f32, d: *mut f32) {
            let lane = warp::lane_id();
            let at = |i: u32| ((lane / 4 + i * 8) * 8 + lane % 4 * 2) as usize;
            // SAFETY: as the launch promises; all of the warp multiply.
            unsafe {
                let (a, b) = fragments::<F16, $a, $b>(a, b);
                let sums = [0, 1].map(|i| F16::pack(|j| *c.add(at(i) + j as usize)));
                let result: [u32; 2] = F16::multiply(a, b, sums);
                for (i, pair) in (0..).zip(result) {
                    let [low, high] = cuda_std::half::f16x2::from_bits(pair).widen();
                    *d.add(at(i)) = low;
                    *d.add(at(i) + 1) = high;
                }
            }
        }
    )*};
}

half_products! {
    f16_k8_f16: 2, 1;
    f16_k16_f16: 4, 2;
}

/// Four matrices in shared memory: one place in the source for all kernels.
fn shared() -> SharedPtr<u16> {
    // Rows begin on 16 bytes.
    shared_array![u32; (ELEMENTS / 2) as usize].cast()
}

/// What the loads give each lane, of four matrices, one behind the other.
///
/// # Safety
/// One warp; `matrices` has four of them, and `words` [`WORDS`] for each lane, which nothing else
/// touches.
#[kernel(block = 32)]
pub unsafe fn loads_matrices(matrices: *const u16, words: *mut u32) {
    let (lane, tile) = (warp::lane_id(), shared());
    // SAFETY: as the launch promises; each lane points to its own row, and all come to all loads.
    unsafe {
        for i in 0..8 {
            tile.store(lane * 8 + i, *matrices.add((lane * 8 + i) as usize));
        }
        thread::sync_threads();
        let row = tile.add(lane * 8);
        let (one, two, four) = (ldmatrix_x1(row), ldmatrix_x2(row), ldmatrix_x4(row));
        let (one_t, two_t) = (ldmatrix_x1_trans(row), ldmatrix_x2_trans(row));
        let four_t = ldmatrix_x4_trans(row);
        let all = one.iter().chain(&two).chain(&four).chain(&one_t).chain(&two_t).chain(&four_t);
        for (i, &word) in all.enumerate() {
            *words.add((lane * WORDS) as usize + i) = word;
        }
    }
}

/// What the stores make of the words that the loads give.
///
/// # Safety
/// One warp; `words` has [`WORDS`] for each lane, and `matrices` 14, which nothing else touches.
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
#[kernel(block = 32)]
pub unsafe fn stores_matrices(words: *const u32, matrices: *mut u16) {
    let (lane, tile) = (warp::lane_id(), shared());
    let row = tile.add(lane * 8);
    let mut done = 0;
    // SAFETY: as the launch promises; each lane points to its own row, and all come to all stores,
    // between barriers.
    unsafe {
        let words = words.add((lane * WORDS) as usize);
        let mut copy = |count: u32| {
            thread::sync_threads();
            for at in (lane..count * 64).step_by(32) {
                *matrices.add((done + at) as usize) = tile.load(at);
            }
            done += count * 64;
            thread::sync_threads();
        };
        stmatrix_x1(row, [*words]);
        copy(1);
        stmatrix_x2(row, [*words.add(1), *words.add(2)]);
        copy(2);
        stmatrix_x4(row, core::array::from_fn(|i| *words.add(3 + i)));
        copy(4);
        stmatrix_x1_trans(row, [*words.add(7)]);
        copy(1);
        stmatrix_x2_trans(row, [*words.add(8), *words.add(9)]);
        copy(2);
        stmatrix_x4_trans(row, core::array::from_fn(|i| *words.add(10 + i)));
        copy(4);
    }
}
