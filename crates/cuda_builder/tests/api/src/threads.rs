//! Indices, and what the lanes of a warp do together.

use cuda_std::prelude::*;
use cuda_std::warp::{WarpReductionOp, warp_match_all, warp_match_any, warp_reduce};
use cuda_std::warp::{warp_shuffle_down, warp_shuffle_idx, warp_shuffle_up, warp_shuffle_xor};

/// Every thread's indices, where [`thread::index`] says.
///
/// # Safety
/// `out` has 16 elements for each thread, which nothing else touches.
#[kernel]
pub unsafe fn indices(out: *mut u32) {
    let [t, b] = [thread::thread_idx(), thread::block_idx()];
    let [dim, grid] = [thread::block_dim(), thread::grid_dim()];
    let (two, three) = (thread::index_2d(), thread::index_3d());
    #[rustfmt::skip]
    let values = [
        t.x, t.y, t.z, b.x, b.y, b.z, dim.element_product(), grid.element_product(),
        two.x, two.y, three.x, three.y, three.z, thread::index_1d(), thread::first().into(), 0,
    ];
    for (i, value) in values.into_iter().enumerate() {
        // SAFETY: as the launch promises.
        unsafe { *out.add(thread::index() as usize * 16 + i) = value };
    }
}

/// A kernel that shuffles `value(i)` of thread `i` in all four ways, for each width: the result and
/// the predicate.
macro_rules! shuffles {
    ($($name:ident: $ty:ty = |$i:ident| $value:expr;)*) => {$(
        /// Shuffles.
        ///
        /// # Safety
        /// One block of 64 threads; `got` and `inside` have 64 * 24 elements, which nothing else
        /// touches.
        #[kernel(block = 64)]
        pub unsafe fn $name(got: *mut $ty, inside: *mut u8) {
            let $i = thread::thread_idx_x();
            let value: $ty = $value;
            let mut at = $i as usize * 24;
            let mut put = |(result, is_inside): ($ty, bool)| {
                // SAFETY: as the launch promises.
                unsafe {
                    *got.add(at) = result;
                    *inside.add(at) = is_inside.into();
                }
                at += 1;
            };
            for log in 0..6 {
                let width = 1u32 << log;
                // SAFETY: two whole warps, with the same arguments in all lanes.
                unsafe {
                    put(warp_shuffle_up(warp::FULL_MASK, value, 3, width));
                    put(warp_shuffle_down(warp::FULL_MASK, value, 5, width));
                    put(warp_shuffle_idx(warp::FULL_MASK, value, 9, width));
                    put(warp_shuffle_xor(warp::FULL_MASK, value, 6, width));
                }
            }
        }
    )*};
}

shuffles! {
    shuffles_u8: u8 = |i| i as u8;
    shuffles_i16: i16 = |i| i as i16 - 40;
    shuffles_f32: f32 = |i| i as f32 * 0.5;
    shuffles_i64: i64 = |i| (i as i64 - 20) * 0x1_0000_0003;
    shuffles_f64: f64 = |i| i as f64 / 3.0;
    shuffles_u128: u128 = |i| (i as u128) << 100 | (i as u128) << 40 | i as u128;
}

/// Reductions and matches.
///
/// # Safety
/// One block of 32 threads; `out` has 32 * 16 elements, which nothing else touches.
#[kernel(block = 32)]
pub unsafe fn reductions(out: *mut u32) {
    let lane = warp::lane_id();
    let signed = 7 - lane as i32;
    let bits = lane | 0x100;
    let full = warp::FULL_MASK;
    // SAFETY: a whole warp, with the same mask in all lanes; the halves meet their own.
    let values = unsafe {
        [
            warp_reduce(full, bits, WarpReductionOp::Add),
            warp_reduce(full, bits, WarpReductionOp::Min),
            warp_reduce(full, bits, WarpReductionOp::Max),
            warp_reduce(full, bits, WarpReductionOp::And),
            warp_reduce(full, bits, WarpReductionOp::Or),
            warp_reduce(full, bits, WarpReductionOp::Xor),
            warp_reduce(full, signed, WarpReductionOp::Add) as u32,
            warp_reduce(full, signed, WarpReductionOp::Min) as u32,
            warp_reduce(full, signed, WarpReductionOp::Max) as u32,
            warp_match_any(full, (lane / 8) as f64),
            warp_match_any(full, lane as i64 % 2),
            warp_match_all(full, lane as u64 / 32).unwrap_or(5),
            warp_match_all(full, lane as f32).unwrap_or(5),
            warp::lanemask_lt(),
            warp::lanemask_ge(),
            warp::lanemask_eq() | warp::lanemask_gt() & !warp::lanemask_le(),
        ]
    };
    for (i, value) in values.into_iter().enumerate() {
        // SAFETY: as the launch promises.
        unsafe { *out.add(lane as usize * 16 + i) = value };
    }
}
