//! Rung 12, `frag_prefetch`: fragments one step ahead.
//!
//! # The idea
//!
//! A load from shared memory takes some 30 cycles, and an FMA that needs its result waits. So load
//! the fragments of step k + 1 before computing step k: they are there when they are needed.
//!
//! ```text
//!   transposed       load 0 | wait | fma 0 | load 1 | wait | fma 1 | ...
//!
//!   frag_prefetch    load 0 | wait | load 1 | load 2 | load 3 | ...
//!                                  | fma 0  | fma 1  | fma 2  | ...
//! ```
//!
//! # What changed
//!
//! Two sets of fragments in registers: one computes, the other loads, and they swap.
//!
//! # What should get better, and what comes next
//!
//! A warp waits fewer cycles for shared memory ("short scoreboard"). The gain is small: the loop
//! over kk is unrolled, so an optimising assembler does much of this by itself.
//!
//! No assembler moves loads across a barrier: at the start of each tile the whole block still waits
//! for global memory. `prefetch` hides that as well.

use cuda_std::prelude::*;

use crate::abi::{
    Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile, Unaligned,
};
use crate::device::operand::fragment::fragment;
use crate::device::operand::input::Input;
use crate::device::output::matrix::Output;

/// Rows of C per block.
const BM: u32 = 128;
/// Columns of C per block.
const BN: u32 = 128;
/// Step along K.
const BK: u32 = 16;
/// Rows of C per thread, in two groups of four, half a block apart.
const TM: u32 = 8;
/// Columns of C per thread, grouped like the rows.
const TN: u32 = 8;

/// Threads across the block's tile, and all of them.
const THREADS_N: u32 = BN / TN;
const THREADS: u32 = BM / TM * THREADS_N;

/// Rows of A, and of B, that the block loads in one go, four elements per thread.
const STRIDE_A: u32 = THREADS * 4 / BK;
const STRIDE_B: u32 = THREADS * 4 / BN;

const _: () = assert!(BM.is_multiple_of(STRIDE_A), "every thread loads the same share of A");
const _: () = assert!(BK.is_multiple_of(STRIDE_B), "every thread loads the same share of B");

/// What the host needs to launch [`frag_prefetch()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "frag_prefetch",
    summary: "the fragments of the next step load while this one computes",
    origin: Some("a textbook's section on GEMM, 8.4.6: gemm_hide_smem_latency"),
    tile: Tile { bm: BM, bn: BN, bk: BK, tm: TM, tn: TN },
    block: [THREADS, 1],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Static((BK * BM + BK * BN) * 4),
    unaligned: Some(Unaligned::of_all("frag_prefetch_unaligned")),
    abi: KernelAbi::Gemm,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm80,
    source: include_str!("frag_prefetch.rs"),
    variants: &[],
    reads_anywhere: [false; 2],
    compensates: false,
};

/// `C = alpha * A * B + beta * C`.
///
/// # Safety
/// - The grid covers C with blocks as [`DESCRIPTOR`] says.
/// - `a`, `b` and `c` are device pointers to matrices of m x k, k x n and m x n elements. The
///   leading dimensions are `lda >= k`, `ldb >= n` and `ldc >= n`.
/// - Nothing else writes A or B, or touches C, during the launch.
/// - If `ALIGNED`, the pointers are multiples of 16 bytes, and `n`, `k`, `lda`, `ldb` and `ldc`
///   multiples of 4.
#[kernel(block = THREADS, min_blocks = 2, variants(ALIGNED = true as _ | false as unaligned))]
pub unsafe fn frag_prefetch<const ALIGNED: bool>(
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
    let tid = thread::thread_idx_x();
    let block_row = thread::block_idx_y() * BM;
    let block_col = thread::block_idx_x() * BN;
    // SAFETY: as the launch promises.
    let (a, b, c) = unsafe {
        (Input::new(a, lda, m, k), Input::new(b, ldb, k, n), Output::new(c, ldc, m, n, alpha, beta))
    };
    // What this thread computes, and what it copies.
    let (thread_row, thread_col) = (tid / THREADS_N * 4, tid % THREADS_N * 4);
    let (a_row, a_col) = (tid * 4 / BK, tid * 4 % BK);
    let (b_row, b_col) = (tid * 4 / BN, tid * 4 % BN);

    let a_smem = shared_array![f32; (BK * BM) as usize]; // (BK, BM)
    let b_smem = shared_array![f32; (BK * BN) as usize]; // (BK, BN)

    let mut acc = [[0.0f32; TN as usize]; TM as usize];

    let mut k0 = 0;
    while k0 < k {
        // Load.
        // SAFETY: inside the tiles, and each thread stores its own words.
        unsafe {
            for y in (a_row..BM).step_by(STRIDE_A as usize) {
                let value = a.get4::<ALIGNED>(block_row + y, k0 + a_col);
                for j in 0..4 {
                    a_smem.store((a_col + j) * BM + y, value[j as usize]);
                }
            }
            for y in (b_row..BK).step_by(STRIDE_B as usize) {
                let value = b.get4::<ALIGNED>(k0 + y, block_col + b_col);
                b_smem.store4(y * BN + b_col, value);
            }
        }
        thread::sync_threads();

        // Compute: for each k of the tile, an outer product of 8 values of A and 8 of B.
        let mut frag_a = [[0.0f32; TM as usize]; 2];
        let mut frag_b = [[0.0f32; TN as usize]; 2];
        // SAFETY: inside the tiles, and stored before the barrier.
        unsafe {
            frag_a[0] = fragment::<BM>(*a_smem, thread_row);
            frag_b[0] = fragment::<BN>(*b_smem, thread_col);
        }
        for kk in 0..BK {
            let (this, next) = (kk as usize % 2, (kk as usize + 1) % 2);
            if kk + 1 < BK {
                // SAFETY: as above.
                unsafe {
                    frag_a[next] = fragment::<BM>(a_smem.add((kk + 1) * BM), thread_row);
                    frag_b[next] = fragment::<BN>(b_smem.add((kk + 1) * BN), thread_col);
                }
            }
            for i in 0..TM as usize {
                for j in 0..TN as usize {
                    acc[i][j] = fma(frag_a[this][i], frag_b[this][j], acc[i][j]);
                }
            }
        }
        thread::sync_threads();
        k0 += BK;
    }

    for i in 0..TM {
        let row = block_row + thread_row + i / 4 * (BM / 2) + i % 4;
        let col = block_col + thread_col;
        let [c0, c1, c2, c3, c4, c5, c6, c7] = acc[i as usize];
        // SAFETY: each thread has its own outputs.
        unsafe {
            c.store4::<ALIGNED>(row, col, [c0, c1, c2, c3]);
            c.store4::<ALIGNED>(row, col + BN / 2, [c4, c5, c6, c7]);
        }
    }
}
