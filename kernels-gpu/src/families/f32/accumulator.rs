//! Sums that lose less to rounding than plain ones.

use cuda_std::prelude::*;
use cuda_std::warp;

/// A thread's sum of products.
pub trait Accumulator: Copy {
    fn of(value: f32) -> Self;

    fn plus(self, other: Self) -> Self;

    /// Adds four products.
    fn plus_products(self, a: F32x4, b: F32x4) -> Self;

    fn value(self) -> f32;

    /// The sum of the lane whose number differs in the bit `distance`.
    ///
    /// # Safety
    /// The whole warp makes this call together.
    unsafe fn shuffle_xor(self, distance: u32) -> Self;
}

/// Plain: four products are added up first, so that no sum is long.
impl Accumulator for f32 {
    #[inline(always)]
    fn of(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }

    #[inline(always)]
    fn plus_products(self, a: F32x4, b: F32x4) -> Self {
        let mut sum = a[0] * b[0];
        for e in 1..4 {
            sum = fma(a[e], b[e], sum);
        }
        self + sum
    }

    #[inline(always)]
    fn value(self) -> f32 {
        self
    }

    #[inline(always)]
    unsafe fn shuffle_xor(self, distance: u32) -> Self {
        // SAFETY: the caller's contract.
        unsafe { warp::warp_shuffle_xor(warp::FULL_MASK, self, distance, 32).0 }
    }
}

/// A sum, and what rounding has taken from it and from its products (Knuth's TwoSum).
///
/// A product that overflows is infinite, where an FMA with a sum of the other sign might not be.
#[derive(Clone, Copy)]
pub struct CompensatedSum {
    sum: f32,
    lost: f32,
}

impl CompensatedSum {
    /// Adds one product.
    #[inline(always)]
    pub fn plus_product(self, a: f32, b: f32) -> Self {
        let product = a * b;
        self.plus(Self { sum: product, lost: fma(a, b, -product) })
    }
}

impl Accumulator for CompensatedSum {
    #[inline(always)]
    fn of(value: f32) -> Self {
        Self { sum: value, lost: 0.0 }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        let sum = self.sum + other.sum;
        let back = sum - self.sum;
        let lost = (self.sum - (sum - back)) + (other.sum - back);
        Self { sum, lost: self.lost + other.lost + lost }
    }

    #[inline(always)]
    fn plus_products(mut self, a: F32x4, b: F32x4) -> Self {
        for e in 0..4 {
            self = self.plus_product(a[e], b[e]);
        }
        self
    }

    #[inline(always)]
    fn value(self) -> f32 {
        // `lost` means nothing if the sum is infinite, nor if adding it overflows.
        let value = self.sum + self.lost;
        if value.is_finite() { value } else { self.sum }
    }

    #[inline(always)]
    unsafe fn shuffle_xor(self, distance: u32) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            Self { sum: self.sum.shuffle_xor(distance), lost: self.lost.shuffle_xor(distance) }
        }
    }
}
