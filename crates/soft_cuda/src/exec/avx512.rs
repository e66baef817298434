//! Loads by AVX-512 instructions that no loop is compiled to: all lanes' addresses are checked and
//! compared in a few of them.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_cmpgt_epu32_mask, _mm512_cmpgt_epu64_mask,
    _mm512_loadu_si512, _mm512_mullo_epi32, _mm512_or_si512, _mm512_set1_epi32, _mm512_set1_epi64,
    _mm512_setr_epi32, _mm512_sub_epi32, _mm512_sub_epi64, _mm512_test_epi32_mask,
    _mm512_test_epi64_mask, _mm512_xor_si512,
};

use super::lanes::W;

/// Whether all of 32 addresses, less `base`, are at most `limit` and multiples of `align`.
///
/// # Safety
/// The host has AVX-512F, and 32 addresses can be read.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn inside64(lanes: *const u64, base: u64, limit: u64, align: u64) -> bool {
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

/// As [`inside64`].
///
/// # Safety
/// As for [`inside64`].
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn inside32(lanes: *const u32, base: u32, limit: u32, align: u32) -> bool {
    let (base, limit) = (_mm512_set1_epi32(base as i32), _mm512_set1_epi32(limit as i32));
    // SAFETY: by contract.
    let [a, b] = unsafe { [0, 16].map(|i| load(lanes.add(i))) };
    let [a, b] = [a, b].map(|lanes| _mm512_sub_epi32(lanes, base));
    let [over_a, over_b] = [a, b].map(|offsets| _mm512_cmpgt_epu32_mask(offsets, limit));
    let odd = _mm512_test_epi32_mask(_mm512_or_si512(a, b), _mm512_set1_epi32(align as i32 - 1));
    over_a | over_b | odd == 0
}

/// Whether all addresses of a chunk are the same.
///
/// # Safety
/// The host has AVX-512F, and 16 addresses can be read.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn uniform64(lanes: *const u64) -> bool {
    // SAFETY: by contract.
    let (first, a, b) =
        unsafe { (_mm512_set1_epi64(*lanes as i64), load(lanes), load(lanes.add(8))) };
    let differ = _mm512_or_si512(_mm512_xor_si512(a, first), _mm512_xor_si512(b, first));
    _mm512_test_epi64_mask(differ, differ) == 0
}

/// Whether the addresses of two chunks are the same.
///
/// # Safety
/// As for [`uniform64`], for both.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn same64(one: *const u64, other: *const u64) -> bool {
    // SAFETY: by contract.
    let [a, b] = unsafe { [0, 8].map(|i| _mm512_xor_si512(load(one.add(i)), load(other.add(i)))) };
    let differ = _mm512_or_si512(a, b);
    _mm512_test_epi64_mask(differ, differ) == 0
}

/// Whether each address of a chunk is `step` more than the one before.
///
/// # Safety
/// As for [`uniform64`].
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn progression32(lanes: *const u32, step: u32) -> bool {
    const _: () = assert!(W == 16);
    let numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let offsets = _mm512_mullo_epi32(numbers, _mm512_set1_epi32(step as i32));
    // SAFETY: by contract.
    let (first, all) = unsafe { (_mm512_set1_epi32(*lanes as i32), load(lanes)) };
    let differ = _mm512_xor_si512(all, _mm512_add_epi32(first, offsets));
    _mm512_test_epi32_mask(differ, differ) == 0
}

/// # Safety
/// The host has AVX-512F, and 64 bytes can be read.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load<T>(at: *const T) -> __m512i {
    // SAFETY: by contract.
    unsafe { _mm512_loadu_si512(at.cast()) }
}
