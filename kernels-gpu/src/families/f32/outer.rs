//! Short K: for products that take as long as it takes to write C.
//!
//! # The idea
//!
//! With K below 16 there is next to nothing to read and little to multiply. A product is a sum of a
//! few outer products, and the traffic is C. All of A and B that a block needs arrives in one step,
//! so a block waits for memory once. Then it writes its tile. The lanes of a warp lie along rows of
//! C, one column apart, so each store of a warp is one run of C, wherever rows begin:
//!
//! ```text
//!           n ->  lane 0  lane 1 ... lane 31   lane 0  lane 1 ...
//!   warp 0  row 0 |  .   |  .   ... |  .     ||  .   |  .   ...
//!           row 1 |  .   |  .   ... |  .     ||  .   |  .   ...
//!           ...
//!   warp 1  row TM ...
//! ```
//!
//! # What is different from the tiles
//!
//! Copies to shared memory are of single elements; B is copied in pairs if its rows are even. So
//! one entry point accepts matrices of any alignment, and no operand is staged. Neither operand is
//! transposed on the way. A lane loads four k of a row of A at once, the same as all lanes of the
//! row, and four rows of B. Either operand may lie transposed. There is no slice-K and no split-K.
//! A longer K takes more steps through a circular buffer.

use core::marker::PhantomData;

use cuda_std::cp_async;
use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use super::copy::{CopyB, row_b, swapped};
use crate::abi::layout::{TRANSPOSED_A, TRANSPOSED_B};
use crate::device::geometry::Geometry;
use crate::device::pipeline::dependent_launch;
use crate::device::schedule::split_k::Params;

/// Declares a module of the kernel's name, with its [`KernelDescriptor`] and its entry point, for a
/// [`Geometry`] with the listed constants.
///
/// For `unrolled` see [`Outer`]. `min_blocks` is the number of blocks that registers are left for.
///
/// [`KernelDescriptor`]: crate::abi::KernelDescriptor
macro_rules! outer_module {
    (
        $(#[$doc:meta])*
        $name:ident, $summary:literal, { $($constant:ident: $value:literal),* },
        unrolled $unrolled:literal, min_blocks $min_blocks:literal
    ) => {
        $(#[$doc])*
        #[doc = concat!("\n\nBlocks per multiprocessor: ", $min_blocks, ".")]
        pub mod $name {
            use cuda_std::cp_async;
            use cuda_std::prelude::*;

            use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, epilogue};
            use crate::device::geometry::Geometry;
            use crate::device::schedule::split_k::{Params, entry_points};
            use super::Outer;

            struct Shape;

            impl Geometry for Shape {
                $(const $constant: u32 = $value;)*
                const BK: u32 = 16;
                const SLICES: u32 = 1;
                const STAGES: u32 = 3;

                #[inline(always)]
                fn wait_for_oldest() {
                    cp_async::wait_group::<{ Shape::STAGES - 2 }>();
                }
            }

            const THREADS: u32 = Shape::THREADS;
            type Kernel = Outer<Shape, { Shape::TM as usize }, { Shape::TN as usize }, $unrolled>;

            const _: () = assert!(
                $min_blocks * (Kernel::SHARED_BYTES + 1024) <= 228 * 1024,
                "so many blocks share a multiprocessor's memory"
            );

            /// What the host needs to launch this kernel.
            pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
                name: stringify!($name),
                summary: $summary,
                origin: None,
                tile: Shape::TILE,
                block: [THREADS, 1],
                grid: GridOrder::ColumnsAlongX,
                shared: Shared::Dynamic(|_| Kernel::SHARED_BYTES),
                unaligned: None,
                abi: KernelAbi::Batched,
                arithmetic: Arithmetic::Fma,
                target: Target::Sm80,
                source: include_str!("outer.rs"),
                variants: &[],
                reads_anywhere: [false; 2],
                compensates: false,
            };

            entry_points!($name, min_blocks $min_blocks, ALIGNED = false as _);
        }
    };
}

outer_module! {
    /// A large C.
    outer_32x128, "32x128 outputs, 8x4 per thread, for a short K",
    { BM: 32, BN: 128, WM: 8, WN: 128, TM: 8, TN: 4 }, unrolled false, min_blocks 6
}

outer_module! {
    /// A wide C.
    outer_16x128, "16x128 outputs, 4x4 per thread, for a short K",
    { BM: 16, BN: 128, WM: 4, WN: 128, TM: 4, TN: 4 }, unrolled true, min_blocks 6
}

outer_module! {
    /// A small C.
    outer_32x64, "32x64 outputs, 4x4 per thread, for a short K",
    { BM: 32, BN: 64, WM: 8, WN: 64, TM: 4, TN: 4 }, unrolled true, min_blocks 5
}

outer_module! {
    /// A tall C.
    outer_64x32, "64x32 outputs, 4x4 per thread, for a short K",
    { BM: 64, BN: 32, WM: 16, WN: 32, TM: 4, TN: 4 }, unrolled true, min_blocks 6
}

/// Up to this K, four products are added up, and then their sums, as in
/// [`skinny_n`](super::skinny_n).
///
/// The error is smaller, and nobody waits for the extra arithmetic. With a longer K it costs 6 to
/// 14 %.
const BY_FOURS: u32 = 48;

/// The kernel, for a geometry. `TM` and `TN` are the geometry's: stable Rust allows only parameters
/// as lengths of arrays.
///
/// With `UNROLLED` a whole step is no loop, which is faster, and takes more registers.
struct Outer<G, const TM: usize, const TN: usize, const UNROLLED: bool>(PhantomData<G>);

impl<G: Geometry, const TM: usize, const TN: usize, const UNROLLED: bool>
    Outer<G, TM, TN, UNROLLED>
{
    /// Lanes along a row and along a column of C, and warps along a row of the block's tile.
    const LANES_N: u32 = G::WN / G::TN;
    const LANES_M: u32 = 32 / Self::LANES_N;
    const WARPS_N: u32 = G::BN / G::WN;

    /// Elements from one row of A to the next in shared memory. Rows are padded, so that those that
    /// a warp reads at once lie in different banks.
    const LD_A: u32 = G::BK + 4;
    /// Elements from one stage to the next.
    const STAGE_A: u32 = G::BM * Self::LD_A;
    const fn stage_b(aligned: bool) -> u32 {
        row_b(G::BN, aligned, G::BK)
    }
    /// Rows of A that the block copies in one go; below, columns of a transposed A. All of a
    /// thread's columns have the same place in every step.
    const ROWS_A: u32 = G::THREADS / G::BK;
    const COLS_A: u32 = G::THREADS / G::BM;

    const SHARED_BYTES: u64 = (G::STAGES * (Self::STAGE_A + Self::stage_b(false))) as u64 * 4;

    const CONSISTENT: () = {
        assert!(TM == G::TM as usize && TN == G::TN as usize, "arrays are as long as they are");
        assert!(G::WM == G::TM * Self::LANES_M, "the lanes of a warp fill its tile");
        assert!(Self::LANES_N.is_multiple_of(4), "quads belong to neighbours");
        assert!(G::BM.is_multiple_of(G::WM) && G::BN.is_multiple_of(G::WN), "warps fill a block");
        assert!(G::SLICES == 1 && G::BK.is_multiple_of(4), "steps along K are in fours");
        assert!(
            G::THREADS.is_multiple_of(G::BK)
                && G::BM.is_multiple_of(Self::ROWS_A)
                && G::THREADS.is_multiple_of(G::BM)
                && G::BK.is_multiple_of(Self::COLS_A),
            "every thread copies the same share of A"
        );
    };

    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn gemm<const ALIGNED: bool>(params: Params) {
        const { Self::CONSISTENT };
        // SAFETY: as the launch promises.
        let (params, _) = unsafe { params.of_block() };
        let Params { m, n, k, a, lda, b, ldb, layout, .. } = params;
        let tid = thread::thread_idx_x();
        let (warp, lane) = (tid / 32, tid % 32);
        let (block_row, block_col) = (thread::block_idx_y() * G::BM, thread::block_idx_x() * G::BN);
        let (row, col) = (
            warp / Self::WARPS_N * G::WM + lane / Self::LANES_N,
            warp % Self::WARPS_N * G::WN + lane % Self::LANES_N,
        );

        let smem = shared::dynamic_shared_mem::<f32>();
        let a_smem = smem; // (STAGES, BM, BK), padded
        let b_smem = smem.add(G::STAGES * Self::STAGE_A); // (STAGES, BK, BN)
        let a_frag = a_smem.add(row * Self::LD_A);
        let b_quad = b_smem.add(col / 4 * 4);

        // What this thread copies of A in each step: an element of every `ROWS_A` rows or, if A
        // lies transposed, of every `COLS_A` columns.
        let [a_transposed, b_transposed] =
            [TRANSPOSED_A, TRANSPOSED_B].map(|which| layout & which != 0);
        let (row_a, col_a) =
            if a_transposed { (tid % G::BM, tid / G::BM) } else { (tid / G::BK, tid % G::BK) };
        let (across, along) = (block_row as usize + row_a as usize, col_a as usize);
        let mut from_a = a.wrapping_add(match a_transposed {
            true => along * lda as usize + across,
            false => across * lda as usize + along,
        });
        let to_a = a_smem.add(row_a * Self::LD_A + col_a);
        let rows = m.saturating_sub(block_row + row_a);
        let mut copy_b = CopyB::<G, ALIGNED>::new(b, ldb, b_transposed, n, 0, block_col, b_smem);
        // Copies the next step, with `left` of K left; nothing if none is.
        let mut copy = |left: u32, stage: u32| {
            if left > 0 {
                let (mut to, mut from) = (to_a.add(stage * Self::STAGE_A), from_a);
                if a_transposed {
                    for col in (0..G::BK).step_by(Self::COLS_A as usize) {
                        // SAFETY: as below.
                        unsafe { cp_async::copy_zfill(to, from, rows > 0 && col + col_a < left) };
                        to = to.add(Self::COLS_A);
                        from = from.wrapping_add(Self::COLS_A as usize * lda as usize);
                    }
                    from_a = from;
                } else {
                    for row in (0..G::BM).step_by(Self::ROWS_A as usize) {
                        // SAFETY: this thread's own place in a stage that nobody uses before the
                        // copies are waited for. It is inside A if it is read.
                        unsafe { cp_async::copy_zfill(to, from, row < rows && col_a < left) };
                        to = to.add(Self::ROWS_A * Self::LD_A);
                        from = from.wrapping_add(Self::ROWS_A as usize * lda as usize);
                    }
                    from_a = from_a.wrapping_add(G::BK as usize);
                }
                // SAFETY: as above, for B.
                unsafe { copy_b.copy::<false>(stage * Self::stage_b(ALIGNED), left) };
            }
            cp_async::commit_group();
        };

        let mut acc = [[0.0f32; TN]; TM];
        let mut left = k;
        dependent_launch::begin();
        let mut stage = 0;
        while stage < G::STAGES - 1 {
            copy(left.saturating_sub(stage * G::BK), stage);
            // Behind `black_box`: one piece of code for all stages, since there are many ways to
            // copy.
            stage = black_box(stage + 1);
        }
        let mut stage = 0;
        while left > 0 {
            // The next step has arrived, and nobody still uses the stage before it.
            G::wait_for_oldest();
            // SAFETY: the loop is the same for all threads of the block.
            unsafe { thread::sync_threads_aligned() };
            let free = if stage == 0 { G::STAGES - 1 } else { stage - 1 };
            copy(left.saturating_sub((G::STAGES - 1) * G::BK), free);

            let a_tile = a_frag.add(stage * Self::STAGE_A);
            // Places in even and in odd rows of B. Recomputed, so that they take no registers in
            // between.
            let place = black_box(thread::thread_idx_x()) % 4;
            let places = [place, if ALIGNED { place } else { swapped(place, 1) }];
            let b_tile = places.map(|at| b_quad.add(stage * Self::stage_b(ALIGNED) + at));
            // SAFETY: inside the stage, which was waited for before the barrier. Past the end of K,
            // the last four have zeros.
            unsafe {
                if UNROLLED && k > BY_FOURS && left >= G::BK {
                    for k in (0..G::BK).step_by(4) {
                        let a = a_tile.add(k);
                        let b = b_tile.map(|b| b.add(row_b(G::BN, ALIGNED, k)));
                        Self::outer_products::<false, ALIGNED>(a, b, &mut acc);
                    }
                } else {
                    for k in (0..left.min(G::BK)).step_by(4) {
                        let a = a_tile.add(k);
                        let b = b_tile.map(|b| b.add(row_b(G::BN, ALIGNED, k)));
                        Self::outer_products::<true, ALIGNED>(a, b, &mut acc);
                    }
                }
            }
            stage = if stage + 1 == G::STAGES { 0 } else { stage + 1 };
            left = left.saturating_sub(G::BK);
        }
        // SAFETY: as the launch promises.
        let c = unsafe { params.output() };
        if params.epilogue.is_some() {
            let epilogue = params.epilogue();
            let mut next = 0;
            while next < G::TM {
                // Behind `black_box`: one piece of code for all rows.
                let i = black_box(next);
                let mut values = [0.0; TN];
                for r in 0..TM {
                    for j in 0..TN {
                        if r == i as usize {
                            values[j] = acc[r][j];
                        }
                    }
                }
                let at = |j: usize| {
                    let (row, col) = (row + i * Self::LANES_M, col + j as u32 * Self::LANES_N);
                    (block_row + row, block_col + col)
                };
                // SAFETY: as below.
                unsafe { c.store_epilogue(epilogue, false, TN, at, values) };
                next = i + 1;
            }
            return;
        }
        // SAFETY: each element of the tile belongs to one thread.
        unsafe {
            c.store_spaced(block_row + row, block_col + col, [Self::LANES_M, Self::LANES_N], &acc);
        }
    }

    /// Adds the products of four columns from `a` on and four rows from `b` on.
    ///
    /// `b` has this thread's places in even rows and in odd ones. With `GROUPED`, four products are
    /// added up first.
    ///
    /// # Safety
    /// They were stored to shared memory before the last barrier. `a` is a multiple of four.
    #[inline(always)]
    unsafe fn outer_products<const GROUPED: bool, const ALIGNED: bool>(
        a: SharedPtr<f32>,
        b: [SharedPtr<f32>; 2],
        acc: &mut [[f32; TN]; TM],
    ) {
        let mut frag_b = [[0.0f32; TN]; 4];
        for k in 0..4 {
            for j in 0..TN {
                let at = row_b(G::BN, ALIGNED, k as u32) + j as u32 * Self::LANES_N;
                // SAFETY: the caller's contract.
                frag_b[k][j] = unsafe { b[k % 2].load(at) };
            }
        }
        for i in 0..TM {
            // SAFETY: the caller's contract; rows are multiples of four long.
            let frag_a: F32x4 = unsafe { a.load4(i as u32 * Self::LANES_M * Self::LD_A) };
            for j in 0..TN {
                let mut sum = if GROUPED { 0.0 } else { acc[i][j] };
                for k in 0..4 {
                    sum = fma(frag_a[k], frag_b[k][j], sum);
                }
                acc[i][j] = if GROUPED { acc[i][j] + sum } else { sum };
            }
        }
    }
}
