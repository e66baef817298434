//! AVX-512 instructions that no loop is compiled to: for loads, all lanes' addresses are checked
//! and compared in a few of them; and for the sums of a tensor core.

use std::arch::x86_64::{
    __m512, __m512i, __mmask16, _CMP_UNORD_Q, _mm512_add_epi32, _mm512_castsi512_ps,
    _mm512_cmp_ps_mask, _mm512_cmpgt_epu32_mask, _mm512_cmpgt_epu64_mask, _mm512_cvttps_epi32,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_mov_ps,
    _mm512_mask_storeu_ps, _mm512_max_epi32, _mm512_mul_ps, _mm512_mullo_epi32, _mm512_or_si512,
    _mm512_set1_epi32, _mm512_set1_epi64, _mm512_set1_ps, _mm512_setr_epi32, _mm512_setzero_ps,
    _mm512_setzero_si512, _mm512_slli_epi32, _mm512_storeu_si512, _mm512_sub_epi32,
    _mm512_sub_epi64, _mm512_test_epi32_mask, _mm512_test_epi64_mask, _mm512_xor_si512,
};

use super::address::Addresses;
use super::lanes::W;
use super::machine::LANES;
use super::op::Cx;
use super::tensor_core::{AddUp, FRACTION, Factors, LEAST, NOTHING, Row, Sums};

/// What is computed by instructions of AVX-512F, on a host that has them.
pub(crate) struct Avx512;

impl Addresses for Avx512 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn inside64(lanes: *const u64, base: u64, limit: u64, align: u64) -> bool {
        let (base, limit) = (_mm512_set1_epi64(base as i64), _mm512_set1_epi64(limit as i64));
        // SAFETY: by contract.
        let [a, b, c, d] = unsafe { [0, 8, 16, 24].map(|i| load(lanes.add(i))) };
        let [a, b, c, d] = [a, b, c, d].map(|lanes| _mm512_sub_epi64(lanes, base));
        let [over_a, over_b, over_c, over_d] =
            [a, b, c, d].map(|offsets| _mm512_cmpgt_epu64_mask(offsets, limit));
        let low = _mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d));
        let odd = _mm512_test_epi64_mask(low, _mm512_set1_epi64(align as i64 - 1));
        over_a | over_b | over_c | over_d | odd == 0
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn inside32(lanes: *const u32, base: u32, limit: u32, align: u32) -> bool {
        let (base, limit) = (_mm512_set1_epi32(base as i32), _mm512_set1_epi32(limit as i32));
        // SAFETY: by contract.
        let [a, b] = unsafe { [0, 16].map(|i| load(lanes.add(i))) };
        let [a, b] = [a, b].map(|lanes| _mm512_sub_epi32(lanes, base));
        let [over_a, over_b] = [a, b].map(|offsets| _mm512_cmpgt_epu32_mask(offsets, limit));
        let odd =
            _mm512_test_epi32_mask(_mm512_or_si512(a, b), _mm512_set1_epi32(align as i32 - 1));
        over_a | over_b | odd == 0
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn uniform64(lanes: *const u64) -> bool {
        // SAFETY: by contract.
        let (first, a, b) =
            unsafe { (_mm512_set1_epi64(*lanes as i64), load(lanes), load(lanes.add(8))) };
        let differ = _mm512_or_si512(_mm512_xor_si512(a, first), _mm512_xor_si512(b, first));
        _mm512_test_epi64_mask(differ, differ) == 0
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn same64(one: *const u64, other: *const u64) -> bool {
        // SAFETY: by contract.
        let [a, b] =
            unsafe { [0, 8].map(|i| _mm512_xor_si512(load(one.add(i)), load(other.add(i)))) };
        let differ = _mm512_or_si512(a, b);
        _mm512_test_epi64_mask(differ, differ) == 0
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn progression32(lanes: *const u32, step: u32) -> bool {
        const _: () = assert!(W == 16);
        let numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let offsets = _mm512_mullo_epi32(numbers, _mm512_set1_epi32(step as i32));
        // SAFETY: by contract.
        let (first, all) = unsafe { (_mm512_set1_epi32(*lanes as i32), load(lanes)) };
        let differ = _mm512_xor_si512(all, _mm512_add_epi32(first, offsets));
        _mm512_test_epi32_mask(differ, differ) == 0
    }
}

/// # Safety
/// The host has AVX-512F, and 64 bytes can be read.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load<T>(at: *const T) -> __m512i {
    // SAFETY: by contract.
    unsafe { _mm512_loadu_si512(at.cast()) }
}

/// Adds a tile of `R` rows and `C` columns of chains of FMAs up, in registers. The slots are those
/// of the accumulators' first values, of their last ones, and, step by step, of the factors of each
/// row and of each column.
///
/// # Safety
/// The host has AVX-512F, and the slots have 32-bit lanes.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn fma_tile<const R: usize, const C: usize>(
    cx: &Cx<'_>,
    [first, last, factors]: [&[u32]; 3],
) {
    assert!(first.len() == R * C && last.len() == R * C);
    for j in (0..LANES).step_by(W) {
        let mask = (cx.mask >> j) as __mmask16;
        let mut sums = [[_mm512_setzero_ps(); C]; R];
        // SAFETY: by contract; each step has `R + C` slots.
        unsafe {
            let at = |slots: &[u32], i: usize| cx.slot::<f32>(*slots.get_unchecked(i)).add(j);
            for (i, sum) in sums.as_flattened_mut().iter_mut().enumerate() {
                *sum = _mm512_loadu_ps(at(first, i));
            }
            for step in factors.chunks_exact(R + C) {
                let mut columns = [_mm512_setzero_ps(); C];
                for (c, column) in columns.iter_mut().enumerate() {
                    *column = _mm512_loadu_ps(at(step, R + c));
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let row = _mm512_loadu_ps(at(step, r));
                    for (sum, &column) in sums.iter_mut().zip(&columns) {
                        *sum = _mm512_fmadd_ps(row, column, *sum);
                    }
                }
            }
            let nan = _mm512_set1_ps(f32::from_bits(0x7fff_ffff));
            for (i, &sum) in sums.as_flattened().iter().enumerate() {
                // NaN stays NaN, so that the last value is the one to look at.
                let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(sum, sum);
                let sum = _mm512_mask_mov_ps(sum, is_nan, nan);
                _mm512_mask_storeu_ps(at(last, i), mask, sum);
            }
        }
    }
}

impl AddUp for Avx512 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn add_up(
        accumulators: ([f32; W], [i32; W]),
        (significands, exponents): Row<'_>,
        b: &Factors,
        (col, cols): (usize, usize),
    ) -> Sums {
        let all = |k: usize| k * cols + col..k * cols + col + W;
        // SAFETY: the arrays have 16 elements.
        let (old, own) = unsafe {
            (
                _mm512_loadu_ps(accumulators.0.as_ptr()),
                _mm512_loadu_si512(accumulators.1.as_ptr().cast()),
            )
        };
        let mut top = _mm512_max_epi32(own, _mm512_set1_epi32(LEAST));
        for (k, &exponent) in exponents.iter().enumerate() {
            // SAFETY: the slice has 16 elements.
            let theirs = unsafe { _mm512_loadu_si512(b.exponents[all(k)].as_ptr().cast()) };
            top = _mm512_max_epi32(top, _mm512_add_epi32(theirs, _mm512_set1_epi32(exponent)));
        }
        let (bias, nothing) = (_mm512_set1_epi32(127 + FRACTION), _mm512_set1_epi32(NOTHING));
        let term = |(significand, exponent): (f32, i32), with: __m512, theirs: __m512i| {
            let below =
                _mm512_add_epi32(theirs, _mm512_sub_epi32(_mm512_set1_epi32(exponent), top));
            let below = _mm512_add_epi32(_mm512_max_epi32(below, nothing), bias);
            let scale = _mm512_castsi512_ps(_mm512_slli_epi32::<23>(below));
            let product = _mm512_mul_ps(_mm512_set1_ps(significand), with);
            _mm512_cvttps_epi32(_mm512_mul_ps(product, scale))
        };
        let mut halves = [term((1.0, 0), old, own), _mm512_setzero_si512()];
        for (k, (&significand, &exponent)) in significands.iter().zip(exponents).enumerate() {
            // SAFETY: the slices have 16 elements.
            let (with, theirs) = unsafe {
                (
                    _mm512_loadu_ps(b.significands[all(k)].as_ptr()),
                    _mm512_loadu_si512(b.exponents[all(k)].as_ptr().cast()),
                )
            };
            let term = term((significand, exponent), with, theirs);
            halves = [halves[1], _mm512_add_epi32(halves[0], term)];
        }
        let mut sums = Sums { halves: [[0; W]; 2], top: [0; W] };
        // SAFETY: the arrays have 16 elements.
        unsafe {
            _mm512_storeu_si512(sums.halves[0].as_mut_ptr().cast(), halves[0]);
            _mm512_storeu_si512(sums.halves[1].as_mut_ptr().cast(), halves[1]);
            _mm512_storeu_si512(sums.top.as_mut_ptr().cast(), top);
        }
        sums
    }
}
