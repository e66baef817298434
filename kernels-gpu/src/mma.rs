//! Tensor cores, `mma`: a warp multiplies matrices that its registers hold together.
//!
//! # The idea
//!
//! An FMA takes three registers for two operations. A tensor core takes matrices: one `mma.sync`
//! multiplies 16 x 16 elements of A by 16 x 8 of B and adds them to 16 x 8 sums, 4096 operations. The 32
//! threads of a warp hold all three in their registers, each a few elements of them: its *fragments*.
//! Inputs are `bf16` or `f16`, whose products are exact; sums are f32.
//!
//! Which thread holds which element is the instruction's to say, and `ldmatrix` loads it so from shared
//! memory: four matrices of 8 x 8 at once, 16 bytes of a row for each lane, and B's transposed.
//!
//! The eight rows of such a matrix should come from different banks. So a tile lies *swizzled*: the
//! chunks of 16 bytes of a row change places, by the number of the row. A row of A has 8 chunks, which are
//! all banks, and a row of B several times as many.
//!
//! ```text
//!   row 0   0 1 2 3 4 5 6 7 | 8 9 ...         of chunk 2, rows 0 to 7
//!   row 1   1 0 3 2 5 4 7 6 | 9 8 ...         lie at 2, 3, 0, 1, 6, 7, 4, 5
//!   row 2   2 3 0 1 6 7 4 5 | 10 11 ...
//!     ...
//! ```
//!
//! # What changed
//!
//! Against [`async_copy`](crate::async_copy), whose pipeline of `cp.async` it has: a warp's tile of 64 x
//! 64 is 4 x 8 products of matrices for 16 steps along K, in place of 2048 FMAs of each thread. No copy
//! transposes A: all are of 16 bytes, and `ldmatrix` brings what `mma.sync` wants. A step along K is of 64,
//! in four parts. The fragments of the next part are loaded before the products of this one, across the
//! barrier too, and a quarter of a later tile is asked for meanwhile.
//!
//! # What should get better, and what comes next
//!
//! One instruction of a warp has 64 times the operations of an FMA's. But each product waits for
//! fragments: a warp reads 4 KB from shared memory for 32 of them, and their registers are more than half
//! of those that a thread can have. On Hopper `mma.sync` comes to half of what cuBLAS reaches. `wgmma` reads
//! shared memory itself.

use cuda_std::cp_async;
use cuda_std::mma::{Bf16, F16, FragmentA, FragmentB, Multiply, ldmatrix_x4, ldmatrix_x4_trans};
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use crate::matrix::Output;
use crate::swizzle::swizzle;
use crate::tensor_core::{BK, TensorCoreAbi, TensorCoreDescriptor};

/// What one instruction multiplies along K, and the parts of a step.
const MMA_K: u32 = 16;
const PARTS: u32 = BK / MMA_K;
/// Stages of the pipeline: one tile is multiplied, the others are in flight.
const STAGES: u32 = 3;
/// Elements of a chunk of 16 bytes.
const CHUNK: u32 = 8;

const _: () =
    assert!(PARTS.is_multiple_of(2), "the fragments of its parts are in two sets, in turn");

/// Declares a kernel for each type of the operands, and its [`TensorCoreDescriptor`].
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $descriptor:ident = $bf16:ident, $f16:ident: $summary:literal,
        $warps_m:literal x $warps_n:literal warps of $mt:literal x $nt:literal, $sums:literal sums;
    )*) => {$(
        $(#[$doc])*
        pub const $descriptor: TensorCoreDescriptor = TensorCoreDescriptor {
            name: stringify!($bf16),
            f16: stringify!($f16),
            layouts: None,
            summary: $summary,
            tile: [$warps_m * $mt * 16, $warps_n * $nt * 8],
            threads: $warps_m * $warps_n * 32,
            shared_bytes: [STAGES * BK * ($warps_m * $mt * 16 + $warps_n * $nt * 8) * 2; 2],
            abi: TensorCoreAbi::Pointer,
            persistent: false,
            splits: false,
            blocks: 1,
            source: include_str!("mma.rs"),
        };
        kernels!(@one $bf16, Bf16, $warps_m, $warps_n, $mt, $nt, $sums);
        kernels!(@one $f16, F16, $warps_m, $warps_n, $mt, $nt, $sums);
    )*};
    (@one $name:ident, $type:ident, $warps_m:literal, $warps_n:literal, $mt:literal, $nt:literal,
        $sums:literal) => {
        /// `C = alpha * A * B + beta * C`.
        ///
        /// # Safety
        /// - The parameters and the grid are as [`TensorCoreDescriptor`] says.
        /// - Nothing else writes A or B, or touches C, during the launch.
        #[kernel(block = $warps_m * $warps_n * 32, min_blocks = 1)]
        pub unsafe fn $name(
            m: u32,
            n: u32,
            k: u32,
            alpha: f32,
            a: *const u16,
            lda: u32,
            b: *const u16,
            ldb: u32,
            beta: f32,
            c: *mut f32,
            ldc: u32,
        ) {
            // SAFETY: the caller keeps the contract, and there is no other output.
            unsafe {
                let a = Input { pointer: a, ld: lda, rows: m, cols: k };
                let b = Input { pointer: b, ld: ldb, rows: k, cols: n };
                let c = Output::new(c, ldc, m, n, alpha, beta);
                gemm::<$type, $warps_m, $warps_n, $mt, $nt, $sums>([m, n, k], a, b, c);
            }
        }
    };
}

kernels! {
    /// Two blocks fit on a multiprocessor that has 192 KB of shared memory.
    DESCRIPTOR = mma, mma_f16: "mma.sync of fragments that ldmatrix loads from swizzled tiles",
        2 x 2 warps of 4 x 8, 32 sums;
    /// For large products, where a block may have 144 KB of shared memory.
    TILE_128X256 = mma_128x256, mma_128x256_f16: "the same with 128 x 256 outputs per block",
        2 x 4 warps of 4 x 8, 32 sums;
    /// For products of too few tiles of these sizes for all multiprocessors.
    TILE_64X64 = mma_64x64, mma_64x64_f16: "the same with 64 x 64 outputs per block",
        2 x 2 warps of 2 x 4, 16 sums;
}

/// A or B.
#[derive(Clone, Copy)]
struct Input {
    pointer: *const u16,
    ld: u32,
    rows: u32,
    cols: u32,
}

/// The kernel: blocks of `WARPS_M` x `WARPS_N` warps, each with `MT` x `NT` matrices of sums, of which a
/// row has `SUMS` for each thread.
///
/// # Safety
/// As for [`mma()`]; the block has so many warps.
#[inline(always)]
unsafe fn gemm<
    T: Multiply<4, 2, [f32; 4]>,
    const WARPS_M: u32,
    const WARPS_N: u32,
    const MT: usize,
    const NT: usize,
    const SUMS: usize,
>(
    [m, n, k]: [u32; 3],
    a: Input,
    b: Input,
    c: Output,
) {
    const {
        assert!(NT.is_multiple_of(2) && SUMS == NT * 4, "ldmatrix loads two matrices of B");
        let rows = WARPS_M * WARPS_N * 32 / (WARPS_N * NT as u32 * 8 / CHUNK);
        assert!(
            rows.is_multiple_of(8),
            "the swizzle is the same for all rows that a thread copies"
        );
    }
    let (wm, wn) = (MT as u32 * 16, NT as u32 * 8);
    let (bm, bn) = (WARPS_M * wm, WARPS_N * wn);
    let threads = WARPS_M * WARPS_N * 32;
    let tid = thread::thread_idx_x();
    let (block_y, block_x) = swizzle(thread::block_idx_x(), n.div_ceil(bn), m.div_ceil(bm));
    let (block_row, block_col) = (block_y * bm, block_x * bn);
    // What this thread computes.
    let (warp, lane) = (tid / 32, tid % 32);
    let (warp_row, warp_col) = (warp / WARPS_N * wm, warp % WARPS_N * wn);

    let a_smem = shared::dynamic_shared_mem::<u16>(); // (STAGES, bm, BK)
    let b_smem = a_smem.add(STAGES * bm * BK); // (STAGES, BK, bn)

    let whole = block_row + bm <= m && block_col + bn <= n;
    // A part of a tile: some rows of both, so that the copies are spread over the products of a step.
    let copy_part = |k0: u32, stage: u32, part: u32| {
        let whole = whole && k0 + BK <= k;
        let (row_a, row_b) = (part * (bm / PARTS), part * MMA_K);
        // SAFETY: nobody uses the stage; the rows of both begin on 16 bytes.
        unsafe {
            let to = a_smem.add((stage * bm + row_a) * BK);
            copy::<{ BK / CHUNK }>(a, block_row + row_a, k0, to, bm / PARTS, [tid, threads], whole);
            let (from, to) = (k0 + row_b, b_smem.add((stage * BK + row_b) * bn));
            match bn {
                256 => copy::<32>(b, from, block_col, to, MMA_K, [tid, threads], whole),
                128 => copy::<16>(b, from, block_col, to, MMA_K, [tid, threads], whole),
                _ => copy::<8>(b, from, block_col, to, MMA_K, [tid, threads], whole),
            }
        }
    };

    let mut acc = [[0.0f32; SUMS]; MT];
    let mut frag_a = [[FragmentA::<T, 4>::from_bits([0; 4]); MT]; 2];
    let mut frag_b = [[FragmentB::<T, 2>::from_bits([0; 2]); NT]; 2];
    // Of four matrices of 8 x 8, two below each other and two side by side, lanes 0 to 7 have the rows of
    // the first, 8 to 15 those of the one below, and so on.
    let (row, side) = (lane % 16, lane / 16);
    let load =
        |stage: u32, part: u32, a: &mut [FragmentA<T, 4>; MT], b: &mut [FragmentB<T, 2>; NT]| {
            let chunk = swizzled(row, part * (MMA_K / CHUNK) + side);
            let a_from = a_smem.add(stage * bm * BK + (warp_row + row) * BK + chunk * CHUNK);
            let b_from = b_smem.add(stage * BK * bn + (part * MMA_K + row) * bn);
            for i in 0..MT {
                // SAFETY: inside the tile, which was waited for before the barrier.
                a[i] = FragmentA::from_bits(unsafe { ldmatrix_x4(a_from.add(i as u32 * 16 * BK)) });
            }
            for j in 0..NT / 2 {
                let chunk = swizzled(row, warp_col / CHUNK + j as u32 * 2 + side);
                // SAFETY: as above.
                let [b0, b1, b2, b3] = unsafe { ldmatrix_x4_trans(b_from.add(chunk * CHUNK)) };
                b[2 * j] = FragmentB::from_bits([b0, b1]);
                b[2 * j + 1] = FragmentB::from_bits([b2, b3]);
            }
        };

    for stage in 0..STAGES - 1 {
        for part in 0..PARTS {
            copy_part(stage * BK, stage, part);
        }
        cp_async::commit_group();
    }
    cp_async::wait_group::<{ STAGES - 2 }>();
    thread::sync_threads();
    load(0, 0, &mut frag_a[0], &mut frag_b[0]);

    let mut stage = 0;
    let mut k0 = 0;
    while k0 < k {
        let next = if stage + 1 == STAGES { 0 } else { stage + 1 };
        let free = if stage == 0 { STAGES - 1 } else { stage - 1 };
        for part in 0..PARTS {
            let (this, other) = (part as usize % 2, (part as usize + 1) % 2);
            if part + 1 < PARTS {
                load(stage, part + 1, &mut frag_a[other], &mut frag_b[other]);
                copy_part(k0 + (STAGES - 1) * BK, free, part);
            } else {
                copy_part(k0 + (STAGES - 1) * BK, free, part);
                cp_async::commit_group();
                // The next tile has arrived, and all have loaded what they need of this one.
                cp_async::wait_group::<{ STAGES - 2 }>();
                thread::sync_threads();
                load(next, 0, &mut frag_a[other], &mut frag_b[other]);
            }
            for i in 0..MT {
                for j in 0..NT {
                    let at = j * 4;
                    let sums = [acc[i][at], acc[i][at + 1], acc[i][at + 2], acc[i][at + 3]];
                    // SAFETY: the block is whole warps, and no thread leaves the loop before the others.
                    let sums = unsafe { T::multiply(frag_a[this][i], frag_b[this][j], sums) };
                    [acc[i][at], acc[i][at + 1], acc[i][at + 2], acc[i][at + 3]] = sums;
                }
            }
        }
        stage = next;
        k0 += BK;
    }

    let row = block_row + warp_row + lane / 4;
    let col = block_col + warp_col + lane % 4 * 2;
    for i in 0..MT {
        // SAFETY: each thread has its own sums, of elements that are nobody else's.
        unsafe { c.store_fragments(row + i as u32 * 16, col, &acc[i]) };
    }
}

/// Where a chunk of a row of a tile lies in it.
#[inline(always)]
fn swizzled(row: u32, chunk: u32) -> u32 {
    chunk ^ (row % 8)
}

/// Asks for this thread's share of a tile of `rows` rows of `CHUNKS` chunks, whose first element is
/// (row, col); with zeros outside.
///
/// # Safety
/// Nothing else uses the tile's shared memory. `whole`: all of it is inside.
#[inline(always)]
unsafe fn copy<const CHUNKS: u32>(
    from: Input,
    row: u32,
    col: u32,
    to: SharedPtr<u16>,
    rows: u32,
    [tid, threads]: [u32; 2],
    whole: bool,
) {
    let (within, chunk) = (tid / CHUNKS, tid % CHUNKS);
    let step = threads / CHUNKS;
    let to = to.add((within * CHUNKS + swizzled(within, chunk)) * CHUNK);
    let (row, col) = (row + within, col + chunk * CHUNK);
    let mut address = from.pointer.wrapping_add(row as usize * from.ld as usize + col as usize);
    let (apart, address_step) = (step * CHUNKS * CHUNK, step as usize * from.ld as usize);
    // SAFETY: the caller's contract; no more than what is inside is read.
    unsafe {
        if whole {
            for i in 0..rows / step {
                cp_async::copy16_zfill(to.add(i * apart), address, 16);
                address = address.wrapping_add(address_step);
            }
        } else {
            let left = from.cols.saturating_sub(col).min(CHUNK);
            for i in 0..rows / step {
                let bytes = if row + i * step < from.rows { 2 * left } else { 0 };
                cp_async::copy16_zfill(to.add(i * apart), address, bytes);
                address = address.wrapping_add(address_step);
            }
        }
    }
}
