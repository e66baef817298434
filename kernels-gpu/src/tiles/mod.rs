//! The tiles: one kernel in many sizes, for products that do not fill the GPU with the
//! ladder's big ones.
//!
//! # The idea
//!
//! A product of 512 x 512 x 512 has sixteen tiles of 128 x 128 for 132 multiprocessors, and one
//! of 16 x 4096 x 4096 has most of its work along K. Two things fill the GPU: smaller tiles,
//! and more hands along K. There are two kinds of the latter:
//!
//! ```text
//!            K ->                                    group 0 1 2 3   0 1 2 3
//!   A  |  split 0  |  split 1  |  split 2  |         | step 0      | step 1      | ...
//! ```
//!
//! - *Groups* are the warps of one block. Each takes its share of every step along K, with
//!   outputs of its own for the whole tile, and they add up through shared memory. So a small
//!   tile still has eight warps, each with 8 x 8 outputs per thread.
//! - *Splits* are blocks. Each sums over its part of K and leaves the sums in global memory.
//!   The one that arrives last adds them up.
//!
//! Both add in a fixed order, so that the same call gives the same bits every time.
//!
//! Everything else is as in [`async_copy`](crate::async_copy): copies in a ring of slots, A
//! transposed on the way, fragments one step ahead. They stay ahead from one tile to the next, and
//! multiply-adds go down a column and up the next, as in [`persistent`](crate::persistent): so few of them read
//! two registers of one bank.
//!
//! # Small M or N
//!
//! Where M or N is small, B or A is read once and the same loop waits for memory alone. Then
//! what counts is how much is on its way: 4.8 TB/s times 700 ns of latency are 26 KB per
//! multiprocessor of an H200, and a block here has two tiles, 66 to 72 KiB, on their way while it
//! computes on a third. The copies need no registers, so that the same kernel does both.
//!
//! What still limits that is turning A around, four bytes at a time, where N is small, and how
//! evenly copies follow each other where M is: see [`dots`] and [`sweep`] for these.
//!
//! # How many blocks fit
//!
//! The limits are registers (`min_blocks` keeps the compiler to them) and shared memory; both
//! are checked here for the 228 KiB of Hopper, a KiB per block of which is the system's. GPUs
//! with less hold fewer blocks, and refuse a launch that holds none.

mod copy;
mod sum;
mod tiled;

use cuda_std::prelude::*;

use crate::descriptor::{GridOrder, KernelAbi, KernelDescriptor, Shared, Tile, Unaligned};
use crate::matrix::Output;
use tiled::Tiled;

/// All of them, from the largest tile to the smallest, and what is for few rows or columns.
pub const TILES: &[&KernelDescriptor] = &[
    &tile_64x128::DESCRIPTOR,
    &tile_64x64::DESCRIPTOR,
    &tile_32x128::DESCRIPTOR,
    &tile_64x32::DESCRIPTOR,
    &tile_32x64::DESCRIPTOR,
    &tile_32x32::DESCRIPTOR,
    &tile_128x16::DESCRIPTOR,
    &tile_16x128::DESCRIPTOR,
    &tile_8x128::DESCRIPTOR,
    &tile_4x128::DESCRIPTOR,
    &sweep::sweep_8x128::DESCRIPTOR,
    &sweep::sweep_4x128::DESCRIPTOR,
    &sweep::sweep_2x32::DESCRIPTOR,
    &dots::dots_32x8::DESCRIPTOR,
    &dots::dots_32x4::DESCRIPTOR,
    &dots::dots_32x2::DESCRIPTOR,
    &dots::dots_32x1::DESCRIPTOR,
];

/// The parameters of every entry point: see [`KernelAbi::SplitK`].
#[derive(Clone, Copy)]
struct Call {
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
    depth: u32,
    partials: *mut f32,
    counters: *mut u32,
}

impl Call {
    /// C.
    ///
    /// # Safety
    /// It is as the launch promises, and there is no other output.
    #[inline(always)]
    unsafe fn output(self) -> Output {
        // SAFETY: the caller's contract.
        unsafe { Output::new(self.c, self.ldc, self.m, self.n, self.alpha, self.beta) }
    }

    /// The part of K that is this block's: from, and to. Nothing if the former is not less.
    #[inline(always)]
    fn split(self) -> (u32, u32) {
        let begin = thread::block_idx_z() * self.depth;
        (begin, self.k.min(begin + self.depth))
    }
}

/// Declares a module of the kernel's name, with its [`KernelDescriptor`] and its two entry points. `wide`
/// says for A, B and C whether the first one needs it aligned.
macro_rules! kernel_module {
    (
        $(#[$doc:meta])*
        $name:ident, $unaligned:ident, $summary:literal, $geometry:ty, $tile:expr, wide $wide:expr,
        threads $threads:expr, min_blocks $min_blocks:literal, $source:literal
    ) => {
        $(#[$doc])*
        pub mod $name {
            use super::*;

            type Geometry = $geometry;
            const THREADS: u32 = $threads;

            const _: () = assert!(
                $min_blocks * (Geometry::SHARED_BYTES + 1024) <= 228 * 1024,
                "so many blocks share a multiprocessor's memory"
            );

            /// What the host needs to launch this kernel.
            pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
                name: stringify!($name),
                summary: $summary,
                seed: "none, beyond them",
                tile: $tile,
                block: [THREADS, 1],
                grid: GridOrder::ColumnsAlongX,
                shared: Shared::Dynamic(|_| Geometry::SHARED_BYTES),
                unaligned: Some(Unaligned { name: stringify!($unaligned), wide: $wide }),
                abi: KernelAbi::SplitK,
                source: include_str!($source),
            };

            entry_point!($name, true, $min_blocks);
            entry_point!($unaligned, false, $min_blocks);
        }
    };
}

/// Declares a tile. `block` is BM, BN, BK; `warp` WM, WN; `thread` TM, TN: as in the ladder.
macro_rules! tile {
    (
        $(#[$doc:meta])*
        $name:ident, $unaligned:ident, $summary:literal,
        block ($bm:literal, $bn:literal, $bk:literal), warp ($wm:literal, $wn:literal),
        thread ($tm:literal, $tn:literal), groups $groups:literal, pending $pending:literal,
        threads $threads:literal, min_blocks $min_blocks:literal
    ) => {
        kernel_module! {
            $(#[$doc])*
            #[doc = concat!("\n\nBlocks of ", $threads, " threads per multiprocessor: ", $min_blocks, ".")]
            $name, $unaligned, $summary,
            Tiled<$bm, $bn, $bk, $wm, $wn, $tm, $tn, $groups, $pending, $threads>,
            Tile { bm: $bm, bn: $bn, bk: $bk, tm: $tm, tn: $tn },
            // A is copied one by one anyway, and C looked at by the kernel.
            wide [false, true, false],
            threads $threads, min_blocks $min_blocks, "mod.rs"
        }
    };
}

/// Declares an entry point that calls `Geometry::gemm`.
macro_rules! entry_point {
    ($name:ident, $is_aligned:literal, $min_blocks:literal) => {
        /// `C = alpha * A * B + beta * C`, with K split along the grid's z axis.
        ///
        /// # Safety
        /// - The grid covers C with blocks as [`DESCRIPTOR`] says; along z it has the splits.
        /// - `a`, `b` and `c` are device pointers to matrices of m x k, k x n and m x n
        ///   elements, with rows `lda >= k`, `ldb >= n` and `ldc >= n` elements apart.
        /// - Nothing else writes A or B, or touches C, during the launch.
        /// - `depth`, `partials` and `counters` are as [`KernelAbi::SplitK`] says, and nothing
        ///   else touches the latter two during the launch; `partials` is a multiple of 16.
        /// - For the entry point without `_unaligned`: those matrices that the [`DESCRIPTOR`] calls
        ///   wide are aligned as it says. Rows may be no multiples of 4 elements long, if zeros
        ///   follow up to the next one.
        #[kernel(block = THREADS, min_blocks = $min_blocks)]
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
            depth: u32,
            partials: *mut f32,
            counters: *mut u32,
        ) {
            // SAFETY: the same contract.
            unsafe {
                Geometry::gemm::<$is_aligned>(Call {
                    m,
                    n,
                    k,
                    alpha,
                    a,
                    lda,
                    b,
                    ldb,
                    beta,
                    c,
                    ldc,
                    depth,
                    partials,
                    counters,
                })
            }
        }
    };
}

// Here because they use macros from above.
pub mod dots;
pub mod sweep;

tile! {
    /// For a C that is wide and low: M up to 64.
    tile_64x128, tile_64x128_unaligned,
    "64x128 outputs, 8x8 per thread, 2 groups of 4 warps",
    block (64, 128, 32), warp (32, 64), thread (8, 8),
    groups 2, pending 1, threads 256, min_blocks 2
}

tile! {
    /// Mid-sized products with splits.
    tile_64x64, tile_64x64_unaligned,
    "64x64 outputs, 8x8 per thread, 4 groups of 2 warps",
    block (64, 64, 64), warp (32, 64), thread (8, 8),
    groups 4, pending 1, threads 256, min_blocks 2
}

tile! {
    /// M up to 32.
    tile_32x128, tile_32x128_unaligned,
    "32x128 outputs, 8x8 per thread, 4 groups of 2 warps",
    block (32, 128, 32), warp (32, 64), thread (8, 8),
    groups 4, pending 2, threads 256, min_blocks 2
}

tile! {
    /// 512 x 512 is 128 of these, one per multiprocessor.
    tile_64x32, tile_64x32_unaligned,
    "64x32 outputs, 8x8 per thread, 8 groups of 1 warp",
    block (64, 32, 64), warp (64, 32), thread (8, 8),
    groups 8, pending 1, threads 256, min_blocks 2
}

tile! {
    /// The same for a C that is wide and low.
    tile_32x64, tile_32x64_unaligned,
    "32x64 outputs, 8x8 per thread, 8 groups of 1 warp",
    block (32, 64, 64), warp (32, 64), thread (8, 8),
    groups 8, pending 1, threads 256, min_blocks 2
}

tile! {
    /// The smallest products.
    tile_32x32, tile_32x32_unaligned,
    "32x32 outputs, 8x4 per thread, 8 groups of 1 warp",
    block (32, 32, 64), warp (32, 32), thread (8, 4),
    groups 8, pending 1, threads 256, min_blocks 2
}

tile! {
    /// N up to 16: reads A once.
    tile_128x16, tile_128x16_unaligned,
    "128x16 outputs, 8x8 per thread, 8 groups of 1 warp",
    block (128, 16, 64), warp (128, 16), thread (8, 8),
    groups 8, pending 1, threads 256, min_blocks 2
}

tile! {
    /// M up to 16: reads B once.
    tile_16x128, tile_16x128_unaligned,
    "16x128 outputs, 8x8 per thread, 8 groups of 1 warp",
    block (16, 128, 64), warp (16, 128), thread (8, 8),
    groups 8, pending 1, threads 256, min_blocks 2
}

tile! {
    /// M up to 8.
    tile_8x128, tile_8x128_unaligned,
    "8x128 outputs, 8x4 per thread, 8 groups of 1 warp",
    block (8, 128, 64), warp (8, 128), thread (8, 4),
    groups 8, pending 1, threads 256, min_blocks 2
}

tile! {
    /// M up to 4, vector times matrix among them.
    tile_4x128, tile_4x128_unaligned,
    "4x128 outputs, 4x4 per thread, 8 groups of 1 warp",
    block (4, 128, 64), warp (4, 128), thread (4, 4),
    groups 8, pending 1, threads 256, min_blocks 2
}
