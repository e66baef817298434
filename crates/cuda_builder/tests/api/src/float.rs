//! Approximate functions, and 16-bit floats.

use cuda_std::half::{Half, bf16, f16};
use cuda_std::prelude::*;
use cuda_std::{fast, max_nan, warp};

/// All of `fast`, for each `x`, and the larger one of `x` and 1, and of that and NaN: 17 results.
#[kernel]
pub fn approximations(x: &[f32], mut out: DisjointSlice<[f32; 17]>) {
    for (i, out) in out.iter_mut() {
        if let Some(&x) = x.get(i) {
            *out = [
                fast::sin(x),
                fast::cos(x),
                fast::sin_cos(x).1,
                fast::tan(x),
                fast::exp2(x),
                fast::exp(x),
                fast::log2(x),
                fast::ln(x),
                fast::recip(x),
                fast::sqrt(x),
                fast::rsqrt(x),
                fast::tanh(x),
                fast::div(1.0, x) + fast::powf(x, 2.0),
                fast::exp2_ftz(x),
                fast::recip_ftz(x),
                max_nan(x, 1.0),
                max_nan(f32::NAN, max_nan(1.0, x)),
            ];
        }
    }
}

/// Conversions, and arithmetic in software: the bits of `x` as f16 and as bf16 widened, and the
/// nearest of either to `y`.
#[kernel]
pub fn halves(
    x: &[u16],
    y: &[f32],
    mut wide: DisjointSlice<[f32; 2]>,
    mut narrow: DisjointSlice<[u16; 4]>,
) {
    for (i, wide) in wide.iter_mut() {
        if let Some(&x) = x.get(i) {
            *wide = [f16::from_bits(x).widen(), bf16::from_bits(x).widen()];
        }
    }
    for (i, narrow) in narrow.iter_mut() {
        if let (Some(&y), Some(&x)) = (y.get(i), x.get(i)) {
            *narrow = [
                f16::narrow(y).to_bits(),
                bf16::narrow(y).to_bits(),
                (f16::narrow(y) + f16::from_bits(x)).to_bits(),
                (bf16::narrow(y) * bf16::from_bits(x)).to_bits(),
            ];
        }
    }
}

/// The neighbour's number, as both types.
///
/// # Safety
/// One block of 32 threads.
#[kernel(block = 32)]
pub unsafe fn halves_shuffled(mut out: DisjointSlice<f32>) {
    let lane = warp::lane_id() as f32;
    // SAFETY: a whole warp, with the same arguments in all lanes.
    let ((a, _), (b, _)) = unsafe {
        (
            warp::warp_shuffle_xor(warp::FULL_MASK, f16::narrow(lane), 1, 32),
            warp::warp_shuffle_xor(warp::FULL_MASK, bf16::narrow(lane), 2, 32),
        )
    };
    if let Some(out) = out.get_mut() {
        *out = a.widen() * 100.0 + b.widen();
    }
}
