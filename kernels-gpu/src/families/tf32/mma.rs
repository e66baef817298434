//! TF32 by `mma.sync`, from compute capability 8.0.
//!
//! # The idea
//!
//! `mma.sync` multiplies registers, wherever their elements came from, so threads can round them
//! there. Tiles come to shared memory unchanged, by `cp.async`, which needs no producer. Each lane
//! rounds or splits the elements that it holds.
//!
//! - A lies with K along its lines. A lane holds 32-bit elements of A as it would hold pairs of 16
//!   bits, so `ldmatrix` loads them: 16 bytes of a line are four elements.
//! - B lies with N along its lines, and `ldmatrix` transposes only 16-bit elements. But the kernel
//!   chooses which column of C a column of `mma.sync` stands for. So a lane loads four neighbours
//!   of a line of B at once, one for each of four `mma.sync`. Its sums are then eight neighbours of
//!   a row of C.
//!
//! ```text
//!   columns of B:        0  1  2  3 | 4  5  6  7 | 8 ...  31
//!   of lanes             0 to 3       4 to 7      8 to 31       lane % 4: the line, along K
//!   of mma.sync number   0  1  2  3   0  1  2  3  0 ...
//! ```
//!
//! # What changed
//!
//! Against [`mma`](crate::ladder::tensor::mma), whose pipeline it shares:
//!
//! - Rounding costs four instructions per element, mostly on integers. Rounding NaN, infinity and
//!   overflow correctly would cost twice as many. So elements are also added up, in `check`: if
//!   that is finite, so are they. If not, the block computes its tile once more, with care.
//! - With `tf32x3` a step's products take two passes: first those with `small`, then `big` by
//!   `big`, for which fragments are loaded again. That needs fewer registers than a second set of
//!   sums.
//! - A block has one tile of C, or with split-K a part of its sum. There are batches and
//!   [epilogues](crate::abi::epilogue), as in [`tiles`](crate::families::f32). Transposed operands
//!   are copied first. Misaligned operands are copied in units of 4 bytes, or first.
//!
//! # Shared memory
//!
//! Chunks of 16 bytes are swizzled by the number of their line. No fragment load, and no copy of 16
//! bytes, has a bank conflict:
//!
//! - Chunk c of line k of B lies at `c ^ (k % 4 * 2)`. Eight lanes that load at once have two
//!   chunks of each of four lines.
//! - If lines of A are 128 bytes long, chunk c of line l lies at `c ^ (l % 8)`.
//! - If they are 64 bytes long, two lines cover all banks, and chunk c of line l lies at `c ^ (l /
//!   2 % 4)`.
//!
//! # What should get better, and what comes next
//!
//! These kernels are for GPUs without `wgmma`, and were not measured on any. NVIDIA's rates for an
//! A100 predict, per step of `tf32_mma_128x128`: 512 cycles for the tensor cores, and 384 each for
//! shared memory and rounding. The tensor cores of `tf32x3_mma_128x128` take 1.6 times as long as
//! either.

mod copy;

use core::array;

use cuda_std::cp_async;
use cuda_std::hint::black_box;
use cuda_std::mma::ldmatrix_x4;
use cuda_std::prelude::*;
use cuda_std::shared;

use super::warp_tile::Fragments;
use crate::device::operand::input::Input;
use crate::device::output::matrix::Output;
use crate::device::pipeline::dependent_launch;
use crate::device::reduce::split_k::{is_last_to_arrive, reduce_sums, tile_number};
use crate::device::schedule::raster::rasterized_tile;
use crate::device::schedule::split_k::Params;

/// Elements of a chunk of 16 bytes.
const CHUNK: u32 = 4;
/// Elements along K that one instruction multiplies.
const MMA_K: u32 = 8;
/// Columns of B that are loaded at once: eight for each of four instructions.
const GROUP_N: u32 = 32;
/// A thread's sums in one row of such columns.
const PART: usize = 8;

/// Declares a module for each kernel, with its [`KernelDescriptor`] and its two entry points.
///
/// [`KernelDescriptor`]: crate::abi::KernelDescriptor
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $name:ident: $summary:literal,
        $warps_m:literal x $warps_n:literal warps of $mt:literal x $nt:literal,
        steps of $bk:literal, $stages:literal stages, split $split:literal, min_blocks $min_blocks:literal;
    )*) => {$(
        $(#[$doc])*
        pub mod $name {
            use cuda_std::prelude::*;

            use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Reads, Shared, Target, Unaligned, epilogue};
            use crate::device::schedule::split_k::{Params, entry_points};
            use super::Geometry;

            type Kernel = Geometry<
                $warps_m, $warps_n, $mt, $nt, { $mt * $nt * 4 }, $bk, { $stages - 2 }, $split,
            >;

            const THREADS: u32 = Kernel::THREADS;

            const _: () = assert!(
                $min_blocks * (Kernel::SHARED_BYTES + 1024) <= 164 * 1024,
                "a multiprocessor of compute capability 8.0 has memory for its blocks"
            );
            const _: () = assert!(
                Kernel::SHARED_BYTES <= 99 * 1024,
                "a block has no more on compute capability 8.6"
            );

            /// What the host needs to launch this kernel.
            pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
                name: stringify!($name),
                summary: $summary,
                origin: None,
                tile: Kernel::TILE,
                block: [THREADS, 1],
                grid: GridOrder::ColumnsAlongX,
                shared: Shared::Dynamic(|_| Kernel::SHARED_BYTES as u64),
                unaligned: Some(Unaligned {
                    name: concat!(stringify!($name), "_unaligned"),
                    vectorized: [true, true, false],
                    transposed: [Reads::Copied; 2],
                    transposes_c: false,
                }),
                abi: KernelAbi::SplitK,
                arithmetic: if $split { Arithmetic::Tf32x3 } else { Arithmetic::Tf32 },
                target: Target::Sm80,
                source: include_str!("mma.rs"),
                variants: &[],
                reads_anywhere: [false; 2],
                compensates: false,
            };

            entry_points!($name, min_blocks $min_blocks, ALIGNED = true as _ | false as unaligned);
        }
    )*};
}

kernels! {
    /// For large products.
    tf32_mma_128x128:
        "TF32 tensor cores by mma.sync, rounded in registers: 128 x 128 per block",
        2 x 2 warps of 4 x 8, steps of 16, 3 stages, split false, min_blocks 2;
    /// For small products.
    tf32_mma_64x64: "tf32_mma_128x128 with 64 x 64 outputs per block",
        2 x 2 warps of 2 x 4, steps of 16, 4 stages, split false, min_blocks 4;
    /// For large products.
    tf32x3_mma_128x128:
        "three TF32 products by mma.sync for the accuracy of f32: 128 x 128 per block",
        2 x 4 warps of 4 x 4, steps of 32, 3 stages, split true, min_blocks 1;
    /// For small products.
    tf32x3_mma_64x64: "tf32x3_mma_128x128 with 64 x 64 outputs per block",
        2 x 2 warps of 2 x 4, steps of 32, 3 stages, split true, min_blocks 3;
}

/// A kernel: `WARPS_M` x `WARPS_N` warps, each with `MT` x `NT` matrices of 16 x 8 sums.
///
/// `SUMS` is a thread's number of sums. `PENDING` tiles are still in flight when one has arrived.
/// `SPLIT` means `tf32x3`.
struct Geometry<
    const WARPS_M: u32,
    const WARPS_N: u32,
    const MT: usize,
    const NT: usize,
    const SUMS: usize,
    const BK: u32,
    const PENDING: u32,
    const SPLIT: bool,
>;

/// A block's part of a product.
#[derive(Clone, Copy)]
struct Block {
    a: Input,
    b: Input,
    /// The first row and column of its tile.
    row: u32,
    col: u32,
    /// Where its part of K begins and ends.
    begin: u32,
    end: u32,
    /// Whether all of its rows and columns are in bounds.
    is_interior: bool,
}

impl<
    const WARPS_M: u32,
    const WARPS_N: u32,
    const MT: usize,
    const NT: usize,
    const SUMS: usize,
    const BK: u32,
    const PENDING: u32,
    const SPLIT: bool,
> Geometry<WARPS_M, WARPS_N, MT, NT, SUMS, BK, PENDING, SPLIT>
{
    const WM: u32 = MT as u32 * 16;
    const WN: u32 = NT as u32 * 8;
    const BM: u32 = WARPS_M * Self::WM;
    const BN: u32 = WARPS_N * Self::WN;
    const TILE: crate::abi::Tile = crate::abi::Tile {
        bm: Self::BM,
        bn: Self::BN,
        bk: BK,
        tm: 2 * MT as u32,
        tn: 2 * NT as u32,
    };
    const THREADS: u32 = WARPS_M * WARPS_N * 32;
    const STAGES: u32 = PENDING + 2;
    /// Elements of a stage of A, and of both.
    const STAGE_A: u32 = Self::BM * BK;
    const STAGE: u32 = Self::STAGE_A + Self::BN * BK;
    const SHARED_BYTES: u32 = Self::STAGES * Self::STAGE * 4;
    /// Parts of a step.
    const PARTS: u32 = BK / MMA_K;

    const CONSISTENT: () = {
        assert!(SUMS == MT * NT * 4, "an array for all sums of a thread");
        assert!(Self::WN.is_multiple_of(GROUP_N), "four neighbours of B are loaded at once");
        assert!(BK == 16 || BK == 32, "whole lines of A have all banks");
        assert!(
            Self::STAGE_A.is_multiple_of(Self::THREADS * CHUNK)
                && (Self::BN * BK).is_multiple_of(Self::THREADS * CHUNK)
                && Self::THREADS.is_multiple_of(Self::BN)
                && Self::THREADS.is_multiple_of(BK),
            "every thread copies the same columns of as many lines"
        );
    };

    /// Where an element lies in a tile of A; below, in a tile of B.
    #[inline(always)]
    const fn at_a(row: u32, k: u32) -> u32 {
        row * BK + (k ^ (row / (32 / BK) % (BK / CHUNK) * CHUNK))
    }

    #[inline(always)]
    const fn at_b(k: u32, col: u32) -> u32 {
        k * Self::BN + (col ^ (k % 4 * 2 * CHUNK))
    }

    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn gemm<const ALIGNED: bool>(params: Params) {
        const { Self::CONSISTENT };
        // SAFETY: as the launch promises.
        let (params, split) = unsafe { params.of_block() };
        let (begin, end) = params.range(split);
        let Params { m, n, a, lda, b, ldb, .. } = params;
        let (row, col) = Self::block();
        let is_interior = row + Self::BM <= m && col + Self::BN <= n;
        dependent_launch::begin();
        // SAFETY: as the launch promises.
        let (a, b) = unsafe { (Input::new(a, lda, m, end), Input::new(b, ldb, end, n)) };
        let block = Block { a, b, row, col, begin, end, is_interior };
        let mut sums = [0.0; SUMS];
        // SAFETY: as the launch promises; every thread of the block comes here.
        unsafe {
            let check = Self::multiply::<ALIGNED, false>(block, &mut sums);
            if thread::sync_threads_or(!check.is_finite()) != 0 {
                sums = [0.0; SUMS];
                Self::multiply::<ALIGNED, true>(block, &mut sums);
            }
        }
        let mut sums = Self::by_rows(&sums);
        // SAFETY: as the launch promises; every thread of the block comes here.
        unsafe {
            let is_last =
                |counters: *mut u32| is_last_to_arrive(split.count, counters, tile_number());
            let elements = Self::BM * Self::BN;
            if split.count > 1 && !reduce_sums(params, split, elements, &mut sums, is_last) {
                return;
            }
            Self::store(params.output(), params, &sums);
        }
    }

    /// Where the block's tile begins.
    #[inline(always)]
    fn block() -> (u32, u32) {
        let (y, x) = rasterized_tile();
        (y * Self::BM, x * Self::BN)
    }

    /// Where the tile of a thread's warp begins in the block's.
    #[inline(always)]
    fn warp(tid: u32) -> (u32, u32) {
        let warp = tid / 32;
        (warp / WARPS_N * Self::WM, warp % WARPS_N * Self::WN)
    }

    /// Adds the products to `sums`.
    ///
    /// The result is not finite if an element may not be finite, or may overflow as TF32. Then the
    /// sums may be wrong, unless `CAREFUL`.
    ///
    /// # Safety
    /// Every thread of the block comes here, and nobody uses shared memory.
    #[inline(always)]
    unsafe fn multiply<const ALIGNED: bool, const CAREFUL: bool>(
        block: Block,
        sums: &mut [f32; SUMS],
    ) -> f32 {
        let smem = shared::dynamic_shared_mem::<f32>(); // (STAGES, BM x BK and BK x BN)
        let stage_at = |stage: u32| smem.add(stage * Self::STAGE);
        let tid = thread::thread_idx_x();
        let lane = tid % 32;
        let (warp_row, warp_col) = Self::warp(tid);
        let Block { begin, end, .. } = block;

        for stage in 0..Self::STAGES - 1 {
            // SAFETY: nobody uses the stage.
            unsafe { Self::copy::<ALIGNED>(block, begin + stage * BK, stage_at(stage)) };
            cp_async::commit_group();
        }
        let mut check = 0.0;
        // Of four matrices of 8 x 4, lanes 0 to 7 have the lines of the first, 8 to 15 those of the
        // one below. Lanes 16 to 31 have the two beside these.
        let (row, side) = (warp_row + lane % 16, lane / 16 * CHUNK);
        let b_from = Self::STAGE_A + Self::at_b(lane % 4, warp_col + lane / 4 * CHUNK);
        let load = |stage: u32, part: u32| {
            let a = stage_at(stage).add(Self::at_a(row, part * MMA_K + side));
            let b = stage_at(stage).add(b_from + part * MMA_K * Self::BN);
            let mut frag = Fragments::<MT, NT>::ZEROS;
            for i in 0..MT {
                // SAFETY: inside the tile, which was waited for before the barrier; so below. The
                // warp is together: `copy` gives all its lanes the same number of iterations.
                let words = unsafe { ldmatrix_x4(a.add(i as u32 * 16 * BK).cast()) };
                frag.a[i] = words.map(f32::from_bits);
            }
            for j in (0..NT).step_by(4) {
                let at = j as u32 / 4 * GROUP_N;
                for half in 0..2 {
                    // SAFETY: as above.
                    let four = unsafe { b.load4(at + half as u32 * 4 * Self::BN) };
                    for i in 0..4 {
                        frag.b[j + i][half] = four[i];
                    }
                }
            }
            frag
        };

        let mut stage = 0;
        let mut k = begin;
        while k < end {
            // The tile has arrived, and all threads have loaded what they need of the one before.
            cp_async::wait_group::<PENDING>();
            thread::sync_threads();
            let free = if stage == 0 { Self::STAGES - 1 } else { stage - 1 };
            // SAFETY: the stage is no longer in use.
            unsafe { Self::copy::<ALIGNED>(block, k + (Self::STAGES - 1) * BK, stage_at(free)) };
            cp_async::commit_group();
            // The compiler must not know `parts`. So it does not unroll these loops, and fragments
            // of later parts take no registers.
            let parts = (end - k).div_ceil(MMA_K).min(Self::PARTS);
            let mut part = 0;
            if SPLIT {
                let mut acc = [0.0; SUMS];
                while part < parts {
                    let frag = load(stage, part);
                    // SAFETY: the conditions of the loops are the same for all threads; so below.
                    unsafe { frag.multiply_small::<CAREFUL, SUMS>(&mut acc, &mut check) };
                    part += 1;
                }
                part = 0;
                while part < parts {
                    // SAFETY: as above.
                    unsafe { load(stage, part).multiply_big::<CAREFUL, SUMS>(&mut acc) };
                    part += 1;
                }
                for i in 0..SUMS {
                    sums[i] += acc[i];
                }
            } else {
                while part < parts {
                    // SAFETY: as above.
                    unsafe { load(stage, part).multiply::<CAREFUL, SUMS>(sums, &mut check) };
                    part += 1;
                }
            }
            stage = if stage + 1 == Self::STAGES { 0 } else { stage + 1 };
            k += BK;
        }
        check
    }

    /// The sums in the order of [`place`](Self::place): eight neighbours of a row after another.
    #[inline(always)]
    fn by_rows(sums: &[f32; SUMS]) -> [f32; SUMS] {
        array::from_fn(|at| {
            let (part, neighbour) = (at / PART, at % PART);
            let (lower, i) = (part % 2, part / 2 / (NT / 4));
            let j = part / 2 % (NT / 4) * 4 + neighbour % 4;
            sums[(i * NT + j) * 4 + lower * 2 + neighbour / 4]
        })
    }

    /// Where a part of a thread's sums begins.
    #[inline(always)]
    fn place(tid: u32, part: u32) -> (u32, u32) {
        let (lane, groups) = (tid % 32, NT as u32 / 4);
        let (block_row, block_col) = Self::block();
        let (warp_row, warp_col) = Self::warp(tid);
        let row = part / 2 / groups * 16 + part % 2 * 8 + lane / 4;
        let col = part / 2 % groups * GROUP_N + lane % 4 * PART as u32;
        (block_row + warp_row + row, block_col + warp_col + col)
    }

    /// Stores a thread's sums.
    ///
    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn store(c: Output, params: Params, sums: &[f32; SUMS]) {
        // Read again behind `black_box`, so that it takes no registers in the loop.
        let tid = black_box(thread::thread_idx_x());
        let is_aligned = c.is_aligned();
        if !params.epilogue.is_some() {
            for part in 0..SUMS / PART {
                let (row, col) = Self::place(tid, part as u32);
                let quad = |first: usize| array::from_fn(|i| sums[part * PART + first + i]);
                // SAFETY: each element belongs to one thread.
                unsafe {
                    let [left, right] = [col, col + 4].map(|col| c.load4(is_aligned, row, col));
                    c.store4_over(is_aligned, row, col, quad(0), left);
                    c.store4_over(is_aligned, row, col + 4, quad(4), right);
                }
            }
            return;
        }
        let epilogue = params.epilogue();
        let mut next = 0;
        while next < SUMS / PART {
            // Behind `black_box`: one piece of code for all parts.
            let part = black_box(next as u32) as usize;
            let mut values = [0.0; PART];
            for i in 0..SUMS {
                if i / PART == part {
                    values[i % PART] = sums[i];
                }
            }
            let (row, col) = Self::place(tid, part as u32);
            let at = |i: usize| (row, col + i as u32);
            // SAFETY: as above.
            unsafe { c.store_epilogue(epilogue, is_aligned, PART, at, values) };
            next = part + 1;
        }
    }
}
