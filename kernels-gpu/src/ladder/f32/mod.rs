//! The rungs in f32, by FMAs: from one thread per output to persistent blocks with stream-K.

pub mod async_copy;
pub mod coalesced;
pub mod frag_prefetch;
pub mod naive;
pub mod prefetch;
pub mod regtile;
pub mod rows2;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod sm_90a;
pub mod smem2d;
pub mod smem_full;
pub mod smem_tile;
pub mod tile1d;
pub mod tile2d;
pub mod transposed;
pub mod vec4;
pub mod warptile;

/// Declares the two entry points of a rung with vectorised accesses: one for aligned
/// matrices, and one for all others. Both call `$gemm`, a function with the parameters that
/// every rung has, after `const ALIGNED: bool`.
macro_rules! entry_points {
    (
        $(#[$meta:meta])*
        $aligned:ident, $unaligned:ident => $gemm:ident
    ) => {
        entry_points!(@one $(#[$meta])* $aligned, $gemm, true);
        entry_points!(@one $(#[$meta])* $unaligned, $gemm, false);
    };
    (@one $(#[$meta:meta])* $name:ident, $gemm:ident, $is_aligned:literal) => {
        /// `C = alpha * A * B + beta * C`.
        ///
        /// # Safety
        /// - The grid covers C with blocks as [`DESCRIPTOR`] says.
        /// - `a`, `b` and `c` are device pointers to matrices of m x k, k x n and m x n
        ///   elements, with leading dimensions `lda >= k`, `ldb >= n` and `ldc >= n`.
        /// - Nothing else writes A or B, or touches C, during the launch.
        /// - For the entry point without `_unaligned`: the pointers are multiples of 16
        ///   bytes, and `n`, `k`, `lda`, `ldb` and `ldc` multiples of 4.
        $(#[$meta])*
        pub unsafe fn $name(
            m: u32,
            n: u32,
            k: u32,
            alpha: f32,
            a: *const f32,
            lda: u32,
            b: *const f32,
            ldb: u32,
            beta: f32,
            c: *mut f32,
            ldc: u32,
        ) {
            // SAFETY: the same contract.
            unsafe { $gemm::<$is_aligned>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) }
        }
    };
}
pub(crate) use entry_points;
