//! AVX2 instructions that no loop is compiled to: for loads, all lanes' addresses are checked and
//! compared in a few of them.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_loadu_si256, _mm256_mullo_epi32, _mm256_or_si256,
    _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi32, _mm256_setzero_si256,
    _mm256_sub_epi32, _mm256_sub_epi64, _mm256_testz_si256, _mm256_xor_si256,
};

use super::address::Addresses;
use super::lanes::W;
use super::machine::LANES;

/// What is computed by instructions of AVX2, on a host that has them.
pub(crate) struct Avx2;

impl Addresses for Avx2 {
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn inside64(lanes: *const u64, base: u64, limit: u64, align: u64) -> bool {
        let (base, limit) = (_mm256_set1_epi64x(base as i64), _mm256_set1_epi64x(limit as i64));
        let mut over = _mm256_setzero_si256();
        let mut low = _mm256_setzero_si256();
        for i in (0..LANES).step_by(4) {
            // SAFETY: by contract.
            let offsets = _mm256_sub_epi64(unsafe { load(lanes.add(i)) }, base);
            low = _mm256_or_si256(low, offsets);
            over = _mm256_or_si256(over, _mm256_sub_epi64(limit, offsets));
        }
        // The sign says whether any offset exceeds `limit`.
        let over = _mm256_or_si256(over, low);
        let fits = _mm256_testz_si256(over, _mm256_set1_epi64x(i64::MIN));
        fits & _mm256_testz_si256(low, _mm256_set1_epi64x(align as i64 - 1)) != 0
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn inside32(lanes: *const u32, base: u32, limit: u32, align: u32) -> bool {
        let (base, limit) = (_mm256_set1_epi32(base as i32), _mm256_set1_epi32(limit as i32));
        let mut over = _mm256_setzero_si256();
        let mut low = _mm256_setzero_si256();
        for i in (0..LANES).step_by(8) {
            // SAFETY: by contract.
            let offsets = _mm256_sub_epi32(unsafe { load(lanes.add(i)) }, base);
            low = _mm256_or_si256(low, offsets);
            over = _mm256_or_si256(over, _mm256_sub_epi32(limit, offsets));
        }
        let over = _mm256_or_si256(over, low);
        let fits = _mm256_testz_si256(over, _mm256_set1_epi32(i32::MIN));
        fits & _mm256_testz_si256(low, _mm256_set1_epi32(align as i32 - 1)) != 0
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn uniform64(lanes: *const u64) -> bool {
        // SAFETY: by contract.
        let first = _mm256_set1_epi64x(unsafe { *lanes } as i64);
        let mut differ = _mm256_setzero_si256();
        for i in (0..W).step_by(4) {
            // SAFETY: by contract.
            let xor = _mm256_xor_si256(unsafe { load(lanes.add(i)) }, first);
            differ = _mm256_or_si256(differ, xor);
        }
        _mm256_testz_si256(differ, differ) != 0
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn same64(one: *const u64, other: *const u64) -> bool {
        let mut differ = _mm256_setzero_si256();
        for i in (0..W).step_by(4) {
            // SAFETY: by contract.
            let [one, other] = unsafe { [load(one.add(i)), load(other.add(i))] };
            differ = _mm256_or_si256(differ, _mm256_xor_si256(one, other));
        }
        _mm256_testz_si256(differ, differ) != 0
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn progression32(lanes: *const u32, step: u32) -> bool {
        let steps = _mm256_set1_epi32(step as i32);
        let offsets = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), steps);
        // SAFETY: by contract.
        let first = _mm256_set1_epi32(unsafe { *lanes } as i32);
        let mut wanted = _mm256_add_epi32(first, offsets);
        let mut differ = _mm256_setzero_si256();
        for i in (0..W).step_by(8) {
            // SAFETY: by contract.
            let xor = _mm256_xor_si256(unsafe { load(lanes.add(i)) }, wanted);
            differ = _mm256_or_si256(differ, xor);
            wanted = _mm256_add_epi32(wanted, _mm256_set1_epi32(step.wrapping_mul(8) as i32));
        }
        _mm256_testz_si256(differ, differ) != 0
    }
}

/// # Safety
/// The host has AVX2, and 32 bytes can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load<T>(at: *const T) -> __m256i {
    // SAFETY: by contract.
    unsafe { _mm256_loadu_si256(at.cast()) }
}
