//! TF32 by `mma.sync` on Hopper, for misaligned matrices, transposed or not.
//!
//! # The idea
//!
//! Bulk copies need aligned rows, and `wgmma` accepts TF32 only with K along the lines. Other
//! kernels copy other matrices first. For few rows, or a short K, that copy takes longer than the
//! product. Here threads load single elements, which may begin anywhere, and round them. They store
//! them with K along the lines, whichever way they came.
//!
//! # What changed
//!
//! Against the kernels `tf32_mma_*` of [`mma`](crate::families::tf32::mma), which round what they
//! multiply:
//!
//! ```text
//!   ld.global (step 1)   round, st.shared (step 0)   barrier   mma.sync (step 0)   round, st.shared (step 1)   ..
//! ```
//!
//! - An element is rounded once, by one instruction, before it is stored. Warps that share a
//!   fragment need not round it again.
//! - The elements of a step are in flight, or in registers, while the step in front is multiplied.
//!   Two blocks share a multiprocessor.
//! - If an operand has K along its rows, a warp loads 32 neighbours along K. Otherwise it loads 32
//!   along M or N from each of four rows. Then each thread has four neighbours along K, which it
//!   stores as 16 bytes.
//! - Out-of-bounds rows are read from the last row; their sums are not stored. Beyond K there are
//!   zeros.
//! - C is stored in vectors of 16 bytes wherever its rows begin, as in
//!   [`mma_outer`](crate::families::half::mma_outer).
//! - Blocks can share a tile's K, as in [`split`](super::split).
//!
//! # Shared memory
//!
//! A line is the K of one step, 128 bytes. Chunk c of 16 bytes of line l lies at `c ^ (l % 8)`: no
//! store and no `ldmatrix` has a bank conflict.
//!
//! # What should get better, and what comes next
//!
//! `mma.sync` has two thirds of the rate of `wgmma`, and loads in flight need registers. So large
//! products are left to copies and [`tma`](super::tma). Asynchronous copies of whole vectors, in
//! which lanes skip what is in front of a row, were slower: `NOTES.md` says by how much.

use core::array;

use cuda_std::hint::black_box;
use cuda_std::mma::{FragmentA, FragmentB, Tf32, ldmatrix_x4, mma};
use cuda_std::prelude::*;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vec;

use super::BK;
use crate::abi::layout::{TRANSPOSED_A, TRANSPOSED_B};
use crate::device::output::tensor::TensorOutput;
use crate::device::output::tile::tile_bytes;
use crate::device::pipeline::dependent_launch;
use crate::device::reduce::split_k::{is_last_to_arrive, reduce_sums, tile_number};
use crate::device::schedule::raster::rasterized_tile;
use crate::device::schedule::split_k::Params;

/// Threads of a block, and warps.
const THREADS: u32 = 256;
const WARPS: u32 = THREADS / WARP;
const WARP: u32 = 32;
/// Elements of a chunk of 16 bytes.
const CHUNK: u32 = 4;
/// Extents of one instruction's product: rows, columns, and along K.
const MMA_M: u32 = 16;
const MMA_N: u32 = 8;
const MMA_K: u32 = 8;
/// A warp's matrices of sums, down and across. Below: a thread's sums in a row of matrices, and in
/// all.
const MT: usize = 2;
const NT: usize = 4;
const ROW_SUMS: usize = NT * 4;
const SUMS: usize = MT * ROW_SUMS;
/// Rows and columns of C per warp.
const WM: u32 = MT as u32 * MMA_M;
const WN: u32 = NT as u32 * MMA_N;
/// Stages: one is stored while the other one is multiplied.
const STAGES: u32 = 2;

/// Declares a module for each kernel, with its [`KernelDescriptor`] and its entry point.
///
/// [`KernelDescriptor`]: crate::abi::KernelDescriptor
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $name:ident: $summary:literal, $warps_m:literal x $warps_n:literal warps;
    )*) => {$(
        $(#[$doc])*
        pub mod $name {
            use cuda_std::prelude::*;

            use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, epilogue};
            use crate::device::schedule::split_k::{Params, entry_points};
            use crate::families::tf32::sm_90a::BK;
            use super::{Geometry, MT, NT, THREADS};

            type Kernel = Geometry<
                { $warps_m * super::WM }, { $warps_n * super::WN },
                { ($warps_m * super::WM / super::WARPS) as usize },
                { ($warps_n * super::WN / super::WARPS) as usize },
            >;

            /// What the host needs to launch this kernel.
            pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
                name: stringify!($name),
                summary: $summary,
                origin: None,
                tile: crate::abi::Tile {
                    bm: $warps_m * super::WM,
                    bn: $warps_n * super::WN,
                    bk: BK,
                    tm: 2 * MT as u32,
                    tn: 2 * NT as u32,
                },
                block: [THREADS, 1],
                grid: GridOrder::ColumnsAlongX,
                shared: Shared::Dynamic(|_| Kernel::SHARED_BYTES as u64),
                unaligned: None,
                abi: KernelAbi::SplitK,
                arithmetic: Arithmetic::Tf32,
                target: Target::Sm90a,
                source: include_str!("align1.rs"),
                variants: &[],
                reads_anywhere: [false; 2],
                compensates: false,
            };

            entry_points!($name, min_blocks 2, ALIGNED = false as _);
        }
    )*};
}

kernels! {
    /// For a tall C.
    tf32_mma_128x64_align1:
        "TF32 tensor cores by mma.sync, of unaligned matrices: 128 x 64 per block", 4 x 2 warps;
    /// For a wide C.
    tf32_mma_64x128_align1: "tf32_mma_128x64_align1 with 64 x 128 outputs per block", 2 x 4 warps;
}

/// `lines` lines along M or N, each of K elements, or the transpose.
#[derive(Clone, Copy)]
struct Operand {
    pointer: *const f32,
    ld: u32,
    lines: u32,
    /// Whether K runs along the rows in memory.
    is_k_major: bool,
}

impl Operand {
    /// Loads this thread's part of `PART` x 8 lines, from line `first` on.
    ///
    /// Along K it loads from `k` to `end`, and no further than a step.
    ///
    /// # Safety
    /// The matrix is there, in global memory, nothing writes it, and it has line `first`.
    #[inline(always)]
    unsafe fn load<const PART: usize>(self, first: u32, [k, end]: [u32; 2]) -> [f32; PART] {
        let thread = black_box(thread::thread_idx_x());
        let (warp, lane) = (thread / WARP, thread % WARP);
        let Self { pointer, lines, is_k_major, .. } = self;
        let (ld, last) = (self.ld as usize, lines - 1 - first);
        let first = first as usize;
        let mut elements = [0.0; PART];
        if is_k_major {
            if k + lane < end {
                let from = pointer.wrapping_add(first * ld + (k + lane) as usize);
                for i in 0..PART {
                    let line = (warp + i as u32 * WARPS).min(last);
                    // SAFETY: inside.
                    [elements[i]] = unsafe { vec::load(from.wrapping_add(line as usize * ld)) };
                }
            }
            return elements;
        }
        for j in 0..CHUNK {
            let k = k + warp * CHUNK + j;
            if k < end {
                let from = pointer.wrapping_add(k as usize * ld + first);
                for group in 0..PART / CHUNK as usize {
                    let line = (lane + group as u32 * WARP).min(last);
                    let i = group * CHUNK as usize + j as usize;
                    // SAFETY: inside.
                    [elements[i]] = unsafe { vec::load(from.wrapping_add(line as usize)) };
                }
            }
        }
        elements
    }

    /// Rounds the loaded elements and stores them.
    ///
    /// # Safety
    /// Nobody else uses the shared memory of the lines that were loaded.
    #[inline(always)]
    unsafe fn store<const PART: usize>(self, to: SharedPtr<f32>, elements: [f32; PART]) {
        let thread = black_box(thread::thread_idx_x());
        let (warp, lane) = (thread / WARP, thread % WARP);
        let elements = elements.map(|element| f32::from_bits(Tf32::round_ties_even(element)));
        if self.is_k_major {
            let to = to.add(place(warp, lane / CHUNK) + lane % CHUNK);
            for i in 0..PART {
                // SAFETY: in these lines.
                unsafe { to.store(i as u32 * WARPS * BK, elements[i]) };
            }
            return;
        }
        let to = to.add(place(lane, warp));
        for group in 0..PART / CHUNK as usize {
            let four = array::from_fn(|j| elements[group * CHUNK as usize + j]);
            // SAFETY: as above, on 16 bytes.
            unsafe { to.store4(group as u32 * WARP * BK, four) };
        }
    }
}

/// Where a chunk of a line lies.
#[inline(always)]
fn place(line: u32, chunk: u32) -> u32 {
    line * BK + (chunk ^ (line % 8)) * CHUNK
}

/// A kernel with tiles of `BM` x `BN`. A thread loads `PART_A` and `PART_B` elements per step along
/// K.
struct Geometry<const BM: u32, const BN: u32, const PART_A: usize, const PART_B: usize>;

impl<const BM: u32, const BN: u32, const PART_A: usize, const PART_B: usize>
    Geometry<BM, BN, PART_A, PART_B>
{
    /// Elements of a stage of A, and of both.
    const STAGE_A: u32 = BM * BK;
    const STAGE: u32 = Self::STAGE_A + BN * BK;
    /// Both stages; the epilogue uses this memory for a tile of C.
    const SHARED_BYTES: u32 = {
        let (stages, of_c) = (STAGES * Self::STAGE * 4, tile_bytes([BM, BN]));
        if stages > of_c { stages } else { of_c }
    };

    const CONSISTENT: () = assert!(
        BM / WM * (BN / WN) == WARPS
            && PART_A as u32 * WARPS == BM
            && PART_B as u32 * WARPS == BN
            && BM.is_multiple_of(WARP)
            && BN.is_multiple_of(WARP)
            && WARPS * CHUNK == BK,
        "all warps load as much, and multiply as much"
    );

    /// Where the block's tile begins. Recomputed at each use, so that it occupies no registers
    /// before.
    #[inline(always)]
    fn block() -> [u32; 2] {
        let (y, x) = rasterized_tile();
        [y * BM, x * BN]
    }

    /// Where this thread's warp tile begins in the block's tile.
    #[inline(always)]
    fn warp() -> [u32; 2] {
        let (warp, across) = (black_box(thread::thread_idx_x()) / WARP, BN / WN);
        [warp / across * WM, warp % across * WN]
    }

    /// # Safety
    /// As for the entry points, which are for matrices that lie anywhere.
    #[inline(always)]
    unsafe fn gemm<const ALIGNED: bool>(params: Params) {
        const { Self::CONSISTENT };
        const { assert!(!ALIGNED, "nothing relies on it") };
        // SAFETY: as the launch promises.
        let (params, split) = unsafe { params.of_block() };
        let (begin, end) = params.range(split);
        dependent_launch::begin();
        let Params { m, n, a, lda, b, ldb, layout, .. } = params;
        let is_k_major = layout & TRANSPOSED_A == 0;
        let a = Operand { pointer: a, ld: lda, lines: m, is_k_major };
        let is_k_major = layout & TRANSPOSED_B != 0;
        let b = Operand { pointer: b, ld: ldb, lines: n, is_k_major };
        let [row, col] = Self::block();
        let smem = shared::dynamic_shared_mem::<f32>(); // (STAGES, BM x BK and BN x BK)

        let mut acc = [[0.0f32; ROW_SUMS]; MT];
        // SAFETY: the tile begins inside of C, so A has its first row and B its first column; so
        // below.
        let mut next: ([f32; PART_A], [f32; PART_B]) =
            unsafe { (a.load(row, [begin, end]), b.load(col, [begin, end])) };
        let (mut k, mut stage) = (begin, 0);
        while k < end {
            let a_smem = smem.add(stage * Self::STAGE);
            let b_smem = a_smem.add(Self::STAGE_A);
            // SAFETY: all warps had multiplied what lies there before the barrier of the step in
            // front.
            unsafe {
                a.store(a_smem, next.0);
                b.store(b_smem, next.1);
                next = (a.load(row, [k + BK, end]), b.load(col, [k + BK, end]));
            }
            thread::sync_threads();
            // SAFETY: whole warps, since the conditions of the loops are the same for all threads.
            unsafe { Self::multiply(a_smem, b_smem, (end - k).min(BK), &mut acc) };
            stage = STAGES - 1 - stage;
            k += BK;
        }

        thread::sync_threads();
        // SAFETY: as the launch promises. Every thread of the block comes here, and nobody still
        // uses the stages.
        unsafe {
            if split.count > 1 {
                let is_last =
                    |counters: *mut u32| is_last_to_arrive(split.count, counters, tile_number());
                let mut sums: [f32; SUMS] = array::from_fn(|i| acc[i / ROW_SUMS][i % ROW_SUMS]);
                if !reduce_sums(params, split, BM * BN, &mut sums, is_last) {
                    return;
                }
                acc = array::from_fn(|i| array::from_fn(|j| sums[i * ROW_SUMS + j]));
            }
            let c = TensorOutput::<false>::new(params.output(), 0, params.epilogue());
            c.store_tile::<BM, BN, THREADS, ROW_SUMS, MT>(Self::block(), Self::warp(), smem, &acc);
        }
    }

    /// Adds the products of the first `depth` elements of a step along K.
    ///
    /// # Safety
    /// Whole warps, behind a barrier behind the stores of the step.
    #[inline(always)]
    unsafe fn multiply(
        a_smem: SharedPtr<f32>,
        b_smem: SharedPtr<f32>,
        depth: u32,
        acc: &mut [[f32; ROW_SUMS]; MT],
    ) {
        let lane = black_box(thread::thread_idx_x()) % WARP;
        let [warp_row, warp_col] = Self::warp();
        // Of four matrices of 8 lines and a chunk, lanes 0 to 7 have the lines of the first, 8 to
        // 15 those of the second, and so on. In A, the second is below the first, and the others
        // are beside these. In B, the second is beside the first, and the others are below these.
        let [row, side_a] = [warp_row + lane % 16, lane / 16];
        let [col, side_b] = [warp_col + lane / 16 * 8 + lane % 8, lane / 8 % 2];
        // The compiler must not know `parts`, so that fragments of later parts take no registers.
        let parts = depth.div_ceil(MMA_K);
        let mut part = 0;
        while part < parts {
            let chunk = part * (MMA_K / CHUNK);
            let from_a = a_smem.add(place(row, chunk + side_a));
            let from_b = b_smem.add(place(col, chunk + side_b));
            // SAFETY: inside the stage; the warp is together.
            let a: [FragmentA<Tf32, 4>; MT] = array::from_fn(|i| unsafe {
                FragmentA::from_bits(ldmatrix_x4(from_a.add(i as u32 * MMA_M * BK).cast()))
            });
            for j in 0..NT / 2 {
                // SAFETY: as above.
                let [b0, b1, b2, b3] =
                    unsafe { ldmatrix_x4(from_b.add(j as u32 * 2 * MMA_N * BK).cast()) };
                let b = [FragmentB::<Tf32, 2>::from_bits([b0, b1]), FragmentB::from_bits([b2, b3])];
                for i in 0..MT {
                    for half in 0..2 {
                        let at = (j * 2 + half) * 4;
                        let sums = array::from_fn::<_, 4, _>(|of| acc[i][at + of]);
                        // SAFETY: as above.
                        let sums = unsafe { mma(a[i], b[half], sums) };
                        [acc[i][at], acc[i][at + 1], acc[i][at + 2], acc[i][at + 3]] = sums;
                    }
                }
            }
            part += 1;
        }
    }
}
