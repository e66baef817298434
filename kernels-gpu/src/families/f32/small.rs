//! Small: a warp for each product of a batch of tiny ones.
//!
//! # The idea
//!
//! A batch of tiny products has enough blocks, and waits for memory. So a block is a single warp.
//! It asks at once for all that it needs, and then executes few instructions. Many blocks share a
//! multiprocessor: while some wait, others compute.
//!
//! ```text
//!            n ->  lane 0      lane 1            lane 7        A: rows as they lie, 16 bytes
//!          row 0  | . . . . | . . . . |  ...  | . . . . |         along K at a time
//!          row 1  | lane 8 ..                           |      B: rows as they lie, 16 bytes
//!          row 2  | lane 16 ..                          |         along N at a time
//!          row 3  | lane 24 ..                          |
//!          row 4  | lane 0 again, as every fourth row
//! ```
//!
//! # What is different from the tiles
//!
//! A is not transposed on its way: a lane loads four k of a row at once. Compared with a transposed
//! A, the loads from shared memory are equal, and the copies are a quarter. Rows are padded, so
//! that the four rows that a warp reads at once lie in different banks. There is no slice-K and no
//! split-K. If rows are misaligned, or operands transposed, single elements are copied, along the
//! contiguous dimension.
//!
//! # Not for larger products
//!
//! The kernel with 64 x 64 outputs in one or two warps, 8 x 8 or 8 x 16 per thread, is slower than
//! the tiles. Too few warps hide the latency of shared memory. `NOTES.md` has the figures.

use core::marker::PhantomData;

use cuda_std::cp_async;
use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use super::kernel::kernel_module;
use crate::abi::KernelAbi;
use crate::abi::layout::{TRANSPOSED_A, TRANSPOSED_B};
use crate::device::geometry::{Geometry, stages};
use crate::device::output::places::{NoColumnBias, OUTPUTS_AT_ONCE, QuadPlaces};
use crate::device::pipeline::dependent_launch;
use crate::device::schedule::split_k::Params;

kernel_module! {
    /// Products up to 32 x 32.
    small_32x32,
    "32x32 outputs, 8x4 per thread, 1 warp, for batches",
    Small {
        BM: 32, BN: 32, BK: 16, WM: 32, WN: 32, TM: 8, TN: 4, SLICES: 1, STAGES: 3
    },
    vectorized [true, true, false], transposed [Reads::Unaligned, Reads::Unaligned],
    transposes_c false, min_blocks 14, "small.rs"
}

/// Quads that are stored at once, unless they are stored without an epilogue and a beta.
const STORED: u32 = OUTPUTS_AT_ONCE as u32 / 4;

/// Elements from one row to the next in shared memory.
const fn padded(cols: u32) -> u32 {
    cols + 4
}

/// A thread's share of an operand's tiles, which lie in shared memory as padded rows.
///
/// Tiles of A are BM x BK, those of B are BK x BN. If `ALIGNED`, four neighbours in a row are
/// copied at a time. If not, the operand may lie transposed.
struct Copy<G, const IS_B: bool, const ALIGNED: bool> {
    /// The first element of the share in the next tile.
    from: *const f32,
    ld: u32,
    transposed: bool,
    to: SharedPtr<f32>,
    /// The place of the share's first element in a tile.
    place: [u32; 2],
    geometry: PhantomData<G>,
}

impl<G: Geometry, const IS_B: bool, const ALIGNED: bool> Copy<G, IS_B, ALIGNED> {
    const ROWS: u32 = if IS_B { G::BK } else { G::BM };
    const COLS: u32 = if IS_B { G::BN } else { G::BK };
    /// Elements that a thread copies at once.
    const WIDTH: u32 = if ALIGNED { 4 } else { 1 };
    /// Rows and columns that the block copies in one go; below, those of a transposed operand.
    const PASS: [u32; 2] = {
        let (elements, cols) = (G::THREADS * Self::WIDTH, Self::COLS);
        if elements < cols { [1, elements] } else { [elements / cols, cols] }
    };
    const PASS_T: [u32; 2] = {
        let (elements, rows) = (G::THREADS, Self::ROWS);
        if elements < rows { [elements, 1] } else { [rows, elements / rows] }
    };

    const EVEN: () = assert!(
        Self::ROWS.is_multiple_of(Self::PASS[0])
            && Self::COLS.is_multiple_of(Self::PASS[1])
            && Self::ROWS.is_multiple_of(Self::PASS_T[0])
            && Self::COLS.is_multiple_of(Self::PASS_T[1])
            && Self::COLS.is_multiple_of(4),
        "every thread has the same share"
    );

    /// For the tiles from element (`row`, `col`) of the operand on.
    #[inline(always)]
    fn new(
        pointer: *const f32,
        ld: u32,
        transposed: bool,
        [row, col]: [u32; 2],
        smem: SharedPtr<f32>,
    ) -> Self {
        const { Self::EVEN };
        let transposed = !ALIGNED && transposed;
        let tid = thread::thread_idx_x();
        let place = match transposed {
            true => [tid % Self::PASS_T[0], tid / Self::PASS_T[0]],
            false => [tid * Self::WIDTH / Self::PASS[1], tid * Self::WIDTH % Self::PASS[1]],
        };
        let [row, col] = [row + place[0], col + place[1]].map(|at| at as usize);
        let first = if transposed { col * ld as usize + row } else { row * ld as usize + col };
        Copy {
            from: pointer.wrapping_add(first),
            ld,
            transposed,
            to: smem.add(place[0] * padded(Self::COLS) + place[1]),
            place,
            geometry: PhantomData,
        }
    }

    /// Asks for the share in the next tile.
    ///
    /// It goes to the stage at `offset` elements from the first. `left` are the operand's rows and
    /// columns that remain, from the tile's first on; past them are zeros.
    ///
    /// # Safety
    /// - `new` and the parameters tell the truth about the operand, whose rows are aligned if
    ///   `ALIGNED`.
    /// - Nothing uses the stage.
    #[inline(always)]
    unsafe fn copy(&mut self, offset: u32, left: [u32; 2]) {
        let (to, mut from) = (self.to.add(offset), self.from);
        let rows = left[0].saturating_sub(self.place[0]);
        let cols = left[1].saturating_sub(self.place[1]);
        let ld = self.ld as usize;
        // Tiles of A follow each other along its rows, and those of B along its columns.
        let is_along = self.transposed == IS_B;
        let step = if IS_B { Self::ROWS } else { Self::COLS } as usize;
        self.from = self.from.wrapping_add(if is_along { step } else { step * ld });
        if self.transposed {
            for col in (0..Self::COLS).step_by(Self::PASS_T[1] as usize) {
                for row in (0..Self::ROWS).step_by(Self::PASS_T[0] as usize) {
                    let to = to.add(row * padded(Self::COLS) + col);
                    let inside = row < rows && col < cols;
                    // SAFETY: this thread's own place of the stage, and inside the operand if it is
                    // read.
                    unsafe { cp_async::copy_zfill(to, from.wrapping_add(row as usize), inside) };
                }
                from = from.wrapping_add(Self::PASS_T[1] as usize * ld);
            }
            return;
        }
        for row in (0..Self::ROWS).step_by(Self::PASS[0] as usize) {
            for col in (0..Self::COLS).step_by(Self::PASS[1] as usize) {
                let (to, from) =
                    (to.add(row * padded(Self::COLS) + col), from.wrapping_add(col as usize));
                let inside = row < rows && col < cols;
                // SAFETY: as above; if four are copied, all four are in bounds or none.
                unsafe {
                    if ALIGNED {
                        cp_async::copy4_zfill(to, from, inside);
                    } else {
                        cp_async::copy_zfill(to, from, inside);
                    }
                }
            }
            from = from.wrapping_add(Self::PASS[0] as usize * ld);
        }
    }
}

/// A thread's shares of the tiles of A and B.
struct Copies<G, const ALIGNED: bool> {
    a: Copy<G, false, ALIGNED>,
    b: Copy<G, true, ALIGNED>,
    /// Rows and columns from the tile's first to the edges of C.
    edges: [u32; 2],
}

impl<G: Geometry, const ALIGNED: bool> Copies<G, ALIGNED> {
    /// Elements of a stage, which has a tile of A and then one of B.
    const STAGE_A: u32 = G::BM * padded(G::BK);
    const STAGE: u32 = Self::STAGE_A + G::BK * padded(G::BN);

    /// Asks for the next step, with `left` of K left; for nothing if none is.
    ///
    /// # Safety
    /// As for [`Copy::copy`].
    #[inline(always)]
    unsafe fn copy(&mut self, left: u32, stage: u32) {
        let (offset, [rows, cols]) = (stage * Self::STAGE, self.edges);
        if left > 0 {
            // SAFETY: the caller's contract.
            unsafe {
                self.a.copy(offset, [rows, left]);
                self.b.copy(offset, [left, cols]);
            }
        }
        cp_async::commit_group();
    }
}

/// The kernel, for a geometry. `TM` and `TN` are the geometry's: stable Rust allows only parameters
/// as lengths of arrays.
struct Small<G, const TM: usize, const TN: usize>(PhantomData<G>);

impl<G: Geometry, const TM: usize, const TN: usize> Small<G, TM, TN> {
    /// K is never split.
    const ABI: KernelAbi = KernelAbi::Batched;
    const COMPENSATES: bool = false;

    /// Rows and columns of lanes in a warp, and warps along a row of the block's tile.
    const LANES_M: u32 = G::WM / G::TM;
    const LANES_N: u32 = G::WN / G::TN;
    const WARPS_N: u32 = G::BN / G::WN;
    /// Quads of a thread, and quads in a row of them.
    const QUADS: u32 = G::TM * G::TN / 4;
    const ROW: u32 = G::TN / 4;

    /// Elements of a stage.
    const STAGE: u32 = Copies::<G, true>::STAGE;
    const SHARED_BYTES: u64 = (G::STAGES * Self::STAGE) as u64 * 4;

    /// A short K needs fewer stages, so that more blocks fit.
    const fn shared_bytes(k: u32) -> u64 {
        stages::<G>(k) as u64 * Self::STAGE as u64 * 4
    }

    const CONSISTENT: () = {
        assert!(TM == G::TM as usize && TN == G::TN as usize, "arrays are as long as they are");
        assert!(Self::LANES_M * Self::LANES_N == 32, "the lanes of a warp fill its tile");
        assert!(G::BM.is_multiple_of(G::WM) && G::BN.is_multiple_of(G::WN), "warps fill a block");
        assert!(G::SLICES == 1 && G::BK.is_multiple_of(4), "steps along K are in fours");
        assert!(G::TN.is_multiple_of(4), "a row of a thread's outputs is quads");
        assert!(Self::QUADS.is_multiple_of(STORED), "all outputs are stored");
        assert!(STORED.is_multiple_of(Self::ROW), "whole rows of quads are stored");
    };

    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn gemm<const ALIGNED: bool>(params: Params) {
        const { Self::CONSISTENT };
        // SAFETY: as the launch promises.
        let (params, _) = unsafe { params.of_block() };
        let Params { m, n, k, a, lda, b, ldb, layout, .. } = params;
        let (block_row, block_col) = (thread::block_idx_y() * G::BM, thread::block_idx_x() * G::BN);
        let [row, col] = Self::place();

        let a_smem = shared::dynamic_shared_mem::<f32>(); // (BM, BK), padded, of each stage
        let b_smem = a_smem.add(Copies::<G, ALIGNED>::STAGE_A); // (BK, BN), padded
        let a_frag = a_smem.add(row * padded(G::BK));
        let b_frag = b_smem.add(col);

        let [a_transposed, b_transposed] =
            [TRANSPOSED_A, TRANSPOSED_B].map(|which| layout & which != 0);
        let a = Copy::new(a, lda, a_transposed, [block_row, 0], a_smem);
        let b = Copy::new(b, ldb, b_transposed, [0, block_col], b_smem);
        let edges = [m.saturating_sub(block_row), n.saturating_sub(block_col)];
        let mut copies = Copies::<G, ALIGNED> { a, b, edges };

        let mut acc = [[0.0f32; TN]; TM];
        let mut left = k;
        dependent_launch::begin();
        let mut stage = 0;
        while stage < G::STAGES - 1 {
            // SAFETY: the matrices are as the launch promises, and nobody uses the stage before the
            // copies are waited for.
            unsafe { copies.copy(left.saturating_sub(stage * G::BK), stage) };
            // Behind `black_box`: one piece of code for all stages.
            stage = black_box(stage + 1);
        }
        let mut stage = 0;
        while left > 0 {
            // The next step has arrived, and nobody still uses the stage before it.
            G::wait_for_oldest();
            // SAFETY: the loop is the same for all threads of the block.
            unsafe { thread::sync_threads_aligned() };
            let free = if stage == 0 { G::STAGES - 1 } else { stage - 1 };
            // SAFETY: as above.
            unsafe { copies.copy(left.saturating_sub((G::STAGES - 1) * G::BK), free) };

            let (a_tile, b_tile) =
                (a_frag.add(stage * Self::STAGE), b_frag.add(stage * Self::STAGE));
            // SAFETY: inside the stage, which was waited for before the barrier.
            unsafe { Self::multiply(a_tile, b_tile, &mut acc) };
            stage = if stage + 1 == G::STAGES { 0 } else { stage + 1 };
            left = left.saturating_sub(G::BK);
        }

        // Recomputed, so that it takes no registers before.
        let [row, col] = Self::place();
        let (row, col) = (block_row + row, block_col + col);
        // SAFETY: as the launch promises.
        let c = unsafe { params.output() };
        let is_aligned = c.is_aligned();
        if is_aligned && c.beta == 0.0 && !params.epilogue.is_some() {
            for quad in 0..Self::QUADS {
                let ((row, col), sums) = (Self::quad(row, col, quad), Self::sums(&acc, quad));
                if row < c.rows && col < c.cols {
                    // SAFETY: inside, since columns are a multiple of four, and this thread's own.
                    unsafe { c.store4_unchecked(row, col, sums) };
                }
            }
            return;
        }
        let epilogue = params.epilogue();
        let mut next = 0;
        while next < Self::QUADS {
            // Behind `black_box`: one piece of code for every few quads.
            let first = black_box(next);
            let mut values = [0.0; OUTPUTS_AT_ONCE];
            for quad in 0..Self::QUADS {
                let sums = Self::sums(&acc, quad);
                for j in 0..4 {
                    if quad / STORED == first / STORED {
                        values[(quad % STORED) as usize * 4 + j] = sums[j];
                    }
                }
            }
            let at = |quad: u32| Self::quad(row, col, quad);
            let places =
                QuadPlaces { at, first, in_row: Self::ROW as usize, column_bias: NoColumnBias };
            // SAFETY: each quad of the tile belongs to one thread.
            unsafe { c.store_epilogue(epilogue, is_aligned, OUTPUTS_AT_ONCE, places, values) };
            next = first + STORED;
        }
    }

    /// The row and the column of this thread's first output in the block's tile.
    #[inline(always)]
    fn place() -> [u32; 2] {
        let tid = black_box(thread::thread_idx_x());
        let (warp, lane) = (tid / 32, tid % 32);
        [
            warp / Self::WARPS_N * G::WM + lane / Self::LANES_N,
            warp % Self::WARPS_N * G::WN + lane % Self::LANES_N * 4,
        ]
    }

    /// The row and the column of a quad; `row` and `col` are those of the thread's first output.
    #[inline(always)]
    fn quad(row: u32, col: u32, quad: u32) -> (u32, u32) {
        let (down, right) = (quad / Self::ROW, quad % Self::ROW);
        (row + down * Self::LANES_M, col + right * (Self::LANES_N * 4))
    }

    /// The sums of a quad.
    #[inline(always)]
    fn sums(acc: &[[f32; TN]; TM], quad: u32) -> F32x4 {
        let (row, first) = ((quad / Self::ROW) as usize, (quad % Self::ROW) as usize * 4);
        core::array::from_fn(|j| acc[row][first + j])
    }

    /// Adds the products of a step along K.
    ///
    /// # Safety
    /// `a` and `b` are where this thread reads in a stage that was stored before the last barrier.
    #[inline(always)]
    unsafe fn multiply(a: SharedPtr<f32>, b: SharedPtr<f32>, acc: &mut [[f32; TN]; TM]) {
        let quad_a = |row: usize, k: u32| -> F32x4 {
            // SAFETY: inside the stage, whatever the numbers; rows are multiples of four long.
            unsafe { a.load4(row as u32 * Self::LANES_M * padded(G::BK) + k) }
        };
        let row_b = |k: u32| -> [f32; TN] {
            let mut row = [0.0; TN];
            for quad in 0..Self::ROW {
                // SAFETY: as above.
                let four: F32x4 =
                    unsafe { b.load4(k * padded(G::BN) + quad * (Self::LANES_N * 4)) };
                for j in 0..4 {
                    row[quad as usize * 4 + j] = four[j];
                }
            }
            row
        };
        for k in (0..G::BK).step_by(4) {
            let frag_a: [F32x4; TM] = core::array::from_fn(|row| quad_a(row, k));
            for i in 0..4 {
                let frag_b = row_b(k + i);
                for row in 0..TM {
                    for step in 0..TN {
                        // Along a row and back along the next. A lane's elements of A are in
                        // registers of one bank for even k, and of the other for odd k. So A's
                        // registers should be reused.
                        let col = if row % 2 == 0 { step } else { TN - 1 - step };
                        acc[row][col] = fma(frag_a[row][i as usize], frag_b[col], acc[row][col]);
                    }
                }
            }
        }
    }
}
