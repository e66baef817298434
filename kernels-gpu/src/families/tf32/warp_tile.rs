//! A warp's products by `mma.sync`: each lane rounds, or splits, the elements that it holds.

use core::array;

use cuda_std::mma::{FragmentA, FragmentB, Tf32, mma};
use cuda_std::warp;

use super::rounding::{nearest, rounded, split};

/// A thread's elements of `MT` matrices of A, 16 x 8, and `NT` of B, 8 x 8.
///
/// Those of A lie below each other, those of B side by side. What is added to `check` is not finite
/// if an element may not be finite or, if it is split, may overflow as TF32. Then the products may
/// be wrong, unless `CAREFUL`.
#[derive(Clone, Copy)]
pub struct Fragments<const MT: usize, const NT: usize> {
    pub a: [[f32; 4]; MT],
    pub b: [[f32; 2]; NT],
}

impl<const MT: usize, const NT: usize> Fragments<MT, NT> {
    pub const ZEROS: Self = Self { a: [[0.0; 4]; MT], b: [[0.0; 2]; NT] };

    /// Adds products of numbers rounded to nearest.
    ///
    /// # Safety
    /// The warp is together.
    #[inline(always)]
    pub unsafe fn multiply<const CAREFUL: bool, const SUMS: usize>(
        &self,
        acc: &mut [f32; SUMS],
        check: &mut f32,
    ) {
        let mut round = |x: f32| {
            *check += x;
            nearest::<CAREFUL>(x).to_bits()
        };
        let b = self.b.map(|b| b.map(&mut round));
        for i in 0..MT {
            // SAFETY: the caller's contract.
            unsafe { multiply_row::<CAREFUL, NT, SUMS>(i, self.a[i].map(&mut round), &b, acc) };
        }
    }

    /// Adds the products of a `small` by a `big`.
    ///
    /// # Safety
    /// The warp is together.
    #[inline(always)]
    pub unsafe fn multiply_small<const CAREFUL: bool, const SUMS: usize>(
        &self,
        acc: &mut [f32; SUMS],
        check: &mut f32,
    ) {
        let mut parts =
            |x: f32| split::<CAREFUL>(x, rounded::<CAREFUL>(x), check).map(f32::to_bits);
        let b = self.b.map(|b| b.map(&mut parts));
        let [b_big, b_small] = [0, 1].map(|which| b.map(|b| b.map(|parts| parts[which])));
        for i in 0..MT {
            let a = self.a[i].map(&mut parts);
            let [a_big, a_small] = [0, 1].map(|which| a.map(|parts| parts[which]));
            // SAFETY: the caller's contract.
            unsafe {
                multiply_row::<CAREFUL, NT, SUMS>(i, a_small, &b_big, acc);
                multiply_row::<CAREFUL, NT, SUMS>(i, a_big, &b_small, acc);
            }
        }
    }

    /// Adds the products of a `big` by a `big`.
    ///
    /// # Safety
    /// The warp is together.
    #[inline(always)]
    pub unsafe fn multiply_big<const CAREFUL: bool, const SUMS: usize>(
        &self,
        acc: &mut [f32; SUMS],
    ) {
        let big = |x: f32| split::<CAREFUL>(x, rounded::<CAREFUL>(x), &mut 0.0)[0].to_bits();
        let b = self.b.map(|b| b.map(big));
        for i in 0..MT {
            // SAFETY: the caller's contract.
            unsafe { multiply_row::<CAREFUL, NT, SUMS>(i, self.a[i].map(big), &b, acc) };
        }
    }
}

/// Adds the products of row `i` of the matrices of A to its sums.
///
/// There are four sums for each matrix of C, row by row.
///
/// # Safety
/// The warp is together.
#[inline(always)]
unsafe fn multiply_row<const CAREFUL: bool, const NT: usize, const SUMS: usize>(
    i: usize,
    a: [u32; 4],
    b: &[[u32; 2]; NT],
    acc: &mut [f32; SUMS],
) {
    if CAREFUL {
        // `CAREFUL` branches, and behind a branch the lanes may be apart.
        // SAFETY: the caller's contract.
        unsafe { warp::sync_warp(u32::MAX) };
    }
    for j in 0..NT {
        let at = (i * NT + j) * 4;
        let (a, b) = (FragmentA::<Tf32, 4>::from_bits(a), FragmentB::from_bits(b[j]));
        // SAFETY: the caller's contract.
        let four = unsafe { mma(a, b, array::from_fn::<_, 4, _>(|of| acc[at + of])) };
        [acc[at], acc[at + 1], acc[at + 2], acc[at + 3]] = four;
    }
}
