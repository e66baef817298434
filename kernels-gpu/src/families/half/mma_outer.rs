//! Tensor cores, `mma_outer`: short K, for products that are bound by the stores of C.
//!
//! # The idea
//!
//! With a K of one step or two there is little to multiply. The time goes into reading A and B
//! once, and writing C. So a block has no pipeline: all of a step arrives, is multiplied, and C is
//! stored. Blocks are small, so several share a multiprocessor: some load while others store.
//!
//! # What is different from the tiles of `mma`
//!
//! - A and B may have misaligned rows (`device/operand/half_tile.rs`). Nothing is copied first,
//!   which would take as long as the product.
//! - C goes through shared memory, and is stored in whole vectors wherever its rows begin
//!   (`device/output/tile.rs`).
//! - A step copies and multiplies only as much of K as there is, in parts of 16.
//! - A longer K takes more steps, one after the other.
//! - The next kernel may begin while this one runs.

use core::array;

use cuda_std::cp_async;
use cuda_std::hint::black_box;
use cuda_std::mma::{Bf16, F16, FragmentA, FragmentB, Multiply, ldmatrix_x4, ldmatrix_x4_trans};
use cuda_std::prelude::*;

use crate::abi::epilogue::Parameters;
use crate::abi::groups::GroupTile;
use crate::abi::tensor_core::options::POINTERS_C;
use crate::abi::tensor_core::{BK, variants};
use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target};
use crate::device::operand::half_rows::{HalfRows, VECTOR};
use crate::device::operand::half_tile::HalfTile;
use crate::device::output::matrix::Output;
use crate::device::output::tensor::TensorOutput;
use crate::device::output::tile::tile_bytes;
use crate::device::pipeline::dependent_launch;
use crate::device::schedule::groups::{Groups, Place};

/// Elements along K that one instruction multiplies.
const MMA_K: u32 = 16;
/// Rows of C of an instruction, and columns.
const MMA_M: u32 = 16;
const MMA_N: u32 = 8;

/// Declares a kernel for each element type and layout, and its [`KernelDescriptor`].
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $descriptor:ident = $name:ident: $summary:literal,
        $warps_m:literal x $warps_n:literal warps of $mt:literal x $nt:literal, $sums:literal sums,
        $blocks:literal per multiprocessor;
    )*) => {$(
        $(#[$doc])*
        pub const $descriptor: KernelDescriptor = KernelDescriptor {
            name: stringify!($name),
            summary: $summary,
            origin: None,
            tile: crate::abi::Tile::of_fragments([$warps_m * $mt * MMA_M, $warps_n * $nt * MMA_N], $warps_m * $warps_n * 32),
            block: [$warps_m * $warps_n * 32, 1],
            grid: GridOrder::Linear,
            shared: Shared::Stages { blocks: $blocks, bytes: [shared_bytes([$warps_m * $mt * MMA_M, $warps_n * $nt * MMA_N]); 2], front: None },
            unaligned: None,
            abi: KernelAbi::MmaPointers,
            arithmetic: Arithmetic::Bits16,
            target: Target::Sm80,
            source: include_str!("mma_outer.rs"),
            variants: variants!($name, layouts),
            reads_anywhere: [true; 2],
            compensates: false,
        };

        /// Computes `C = epilogue(alpha * op(A) * op(B) + beta * C)` for each product of a batch.
        ///
        /// # Safety
        /// - The parameters and the grid are as [`KernelDescriptor`] says. The launch may begin
        ///   early.
        /// - Nothing else writes A or B, or touches C, during the launch.
        #[kernel(
            block = $warps_m * $warps_n * 32,
            min_blocks = $blocks,
            variants(
                TRANS_A = false as _ | true as ta,
                TRANS_B = false as _ | true as tb,
                (T, IS_F16) = (Bf16, false) as _ | (F16, true) as f16,
            )
        )]
        pub unsafe fn $name<const TRANS_A: bool, const TRANS_B: bool, T: Multiply<4, 2, [f32; 4]>, const IS_F16: bool>(
            m: u32,
            n: u32,
            k: u32,
            alpha: f32,
            a: *const u16,
            lda: u32,
            stride_a: u64,
            b: *const u16,
            ldb: u32,
            stride_b: u64,
            beta: f32,
            c: *mut f32,
            ldc: u32,
            stride_c: u64,
            options: u32,
            groups: *const GroupTile,
            epilogue: Parameters,
        ) {
            let of_product = |product: u32, pointer: *const u16, stride: u64| {
                pointer.wrapping_add(product as usize * stride as usize)
            };
            let [rows_a, cols_a] = if TRANS_A { [k, m] } else { [m, k] };
            let [rows_b, cols_b] = if TRANS_B { [n, k] } else { [k, n] };
            let operands = |product| {
                let [a, b] = [of_product(product, a, stride_a), of_product(product, b, stride_b)];
                [
                    HalfRows { pointer: a, ld: lda, rows: rows_a, cols: cols_a },
                    HalfRows { pointer: b, ld: ldb, rows: rows_b, cols: cols_b },
                ]
            };
            // SAFETY: the caller keeps the contract, and there is no other output.
            unsafe {
                let c = Output::new(c, ldc, m, n, alpha, beta);
                let c = TensorOutput::<IS_F16>::new(c, options, epilogue);
                gemm::<
                    T, IS_F16, { $warps_m * $mt * MMA_M }, { $warps_n * $nt * MMA_N },
                    $warps_m, $warps_n, { $warps_m * $warps_n * 32 }, $mt, $nt, $sums, TRANS_A, TRANS_B,
                >([m, n, k], Groups::new(groups), operands, |product| match options & POINTERS_C {
                        0 => c.of_product(product, stride_c),
                        _ => c.addressed(product),
                    });
            }
        }
    )*};
}

kernels! {
    /// For a tall C.
    TILE_128X64 = mma_outer_128x64: "mma.sync for a short K: 128 x 64 outputs per block, of rows that begin anywhere",
        4 x 2 warps of 2 x 4, 16 sums, 3 per multiprocessor;
    /// For a wide C.
    TILE_64X128 = mma_outer_64x128: "mma_outer_128x64 with 64 x 128 outputs per block",
        2 x 4 warps of 2 x 4, 16 sums, 3 per multiprocessor;
}

/// Bytes of shared memory of a block, for the larger of two uses.
///
/// The first is a step of A and of B, together with misaligned copies of both. The second is the
/// tile of C.
const fn shared_bytes([bm, bn]: [u32; 2]) -> u32 {
    let tiles = 2 * BK * (bm + bn);
    // A misaligned copy has a vector more per row. Most rows are there with K along them, since
    // tiles are no smaller than a step.
    assert!(bm >= BK && bn >= BK);
    let as_it_lies = tiles + 2 * VECTOR * (bm + bn);
    let of_c = tile_bytes([bm, bn]);
    if tiles + as_it_lies > of_c { tiles + as_it_lies } else { of_c }
}

/// The kernel: blocks of `WARPS_M` x `WARPS_N` warps, each with `MT` x `NT` matrices of sums.
///
/// A thread has `SUMS` sums in a row of matrices. `operands` gives a product's A and B, and `c` its
/// C.
///
/// # Safety
/// As for [`mma_outer_128x64()`]; the block has `WARPS_M` x `WARPS_N` warps.
#[inline(always)]
unsafe fn gemm<
    T: Multiply<4, 2, [f32; 4]>,
    const IS_F16: bool,
    const BM: u32,
    const BN: u32,
    const WARPS_M: u32,
    const WARPS_N: u32,
    const THREADS: u32,
    const MT: usize,
    const NT: usize,
    const SUMS: usize,
    const TRANS_A: bool,
    const TRANS_B: bool,
>(
    [m, n, k]: [u32; 3],
    groups: Groups,
    operands: impl Fn(u32) -> [HalfRows; 2],
    c: impl Fn(u32) -> TensorOutput<IS_F16>,
) {
    const {
        assert!(NT.is_multiple_of(2) && SUMS == NT * 4, "ldmatrix loads two matrices of B");
        assert!(WARPS_M * WARPS_N * 32 == THREADS);
        // Each operand can lie with K along its rows or across.
        let tiles = [[BM, BK / VECTOR], [BK, BM / VECTOR], [BN, BK / VECTOR], [BK, BN / VECTOR]];
        let mut i = 0;
        while i < tiles.len() {
            assert!(HalfTile::is_shared_out(tiles[i], THREADS));
            i += 1;
        }
    }
    let (wm, wn) = (MT as u32 * MMA_M, NT as u32 * MMA_N);
    let tid = thread::thread_idx_x();
    // The kernel in front may have written the table of groups.
    dependent_launch::begin();
    let [width, height] = [n.div_ceil(BN), m.div_ceil(BM)];
    if !groups.has_tile(width) {
        return;
    }
    // Row by row, so that what all blocks read stays in the L2 cache.
    let order = |number: u32, width: u32, _| {
        let y = number / width.max(1);
        (y, number - y * width)
    };
    let place = || groups.of_block([width, height], [BM, BN], order);
    let Place { product, row: block_row, col: block_col, .. } = place();
    let [a, b] = operands(product);
    // What this thread computes.
    let (warp, lane) = (tid / 32, tid % 32);
    let (warp_row, warp_col) = (warp / WARPS_N * wm, warp % WARPS_N * wn);

    // Lines, and vectors of a line, as the operands lie in memory.
    let [lines_a, vectors_a] = if TRANS_A { [BK, BM / VECTOR] } else { [BM, BK / VECTOR] };
    let [lines_b, vectors_b] = if TRANS_B { [BN, BK / VECTOR] } else { [BK, BN / VECTOR] };
    let a_smem = shared::dynamic_shared_mem::<u16>();
    let b_smem = a_smem.add(BM * BK);
    let a_as_it_lies = b_smem.add(BK * BN);
    let b_as_it_lies = a_as_it_lies.add(HalfTile::as_it_lies(lines_a, vectors_a));

    // Of four matrices of 8 x 8, lanes 0 to 7 have the lines of the first, 8 to 15 those of the
    // second, and so on. In a plain A, and in a plain B, which `ldmatrix` transposes, the second is
    // below the first. In a transposed A or B it is beside the first.
    let (below, beside) = ([lane % 16, lane / 16], [lane / 16 * 8 + lane % 8, lane / 8 % 2]);
    let [line_a, side_a] = if TRANS_A { beside } else { below };
    let [line_b, side_b] = if TRANS_B { beside } else { below };
    // SAFETY: inside the tile, which was waited for before the barrier; so below.
    let load_a = |at: u32, row: u32| unsafe {
        let place = |line, vector| a_smem.add(HalfTile::place(vectors_a, line, vector));
        FragmentA::from_bits(match TRANS_A {
            true => ldmatrix_x4_trans(place(at + line_a, row / VECTOR + side_a)),
            false => ldmatrix_x4(place(row + line_a, at / VECTOR + side_a)),
        })
    };
    let load_b = |at: u32, col: u32| {
        let place = |line, vector| b_smem.add(HalfTile::place(vectors_b, line, vector));
        // SAFETY: as above.
        let [b0, b1, b2, b3] = unsafe {
            match TRANS_B {
                true => ldmatrix_x4(place(col + line_b, at / VECTOR + side_b)),
                false => ldmatrix_x4_trans(place(at + line_b, col / VECTOR + side_b)),
            }
        };
        [FragmentB::from_bits([b0, b1]), FragmentB::from_bits([b2, b3])]
    };

    let mut acc = [[0.0f32; SUMS]; MT];
    let mut k0 = 0;
    while k0 < k {
        // Recomputed in each step, so that it takes no registers in between.
        let part = [black_box(thread::thread_idx_x()), THREADS];
        let depth = (k - k0).min(BK).next_multiple_of(MMA_K);
        let [row, col] = if TRANS_A { [k0, block_row] } else { [block_row, k0] };
        let (lines, vectors) = (lines_a, vectors_a);
        let a = HalfTile { lines, vectors, mn: TRANS_A, matrix: a, row, col, depth };
        let [row, col] = if TRANS_B { [block_col, k0] } else { [k0, block_col] };
        let (lines, vectors) = (lines_b, vectors_b);
        let b = HalfTile { lines, vectors, mn: !TRANS_B, matrix: b, row, col, depth };
        // SAFETY: all threads come here. A barrier lies between the copies and `move_into`, and one
        // in front of the products. The barrier at the end of the loop lies between the products
        // and the next step's copies.
        unsafe {
            a.copy(a_smem, a_as_it_lies, part);
            b.copy(b_smem, b_as_it_lies, part);
            cp_async::commit_group();
            cp_async::wait_group::<0>();
            thread::sync_threads();
            if !a.is_aligned() || !b.is_aligned() {
                a.move_into(a_smem, a_as_it_lies, part);
                b.move_into(b_smem, b_as_it_lies, part);
                thread::sync_threads();
            }
        }
        for at in (0..depth).step_by(MMA_K as usize) {
            let frag_a: [FragmentA<T, 4>; MT] =
                array::from_fn(|i| load_a(at, warp_row + i as u32 * MMA_M));
            for j in 0..NT / 2 {
                let frag_b: [FragmentB<T, 2>; 2] = load_b(at, warp_col + j as u32 * 2 * MMA_N);
                for i in 0..MT {
                    for half in 0..2 {
                        let at = (j * 2 + half) * 4;
                        let sums = [acc[i][at], acc[i][at + 1], acc[i][at + 2], acc[i][at + 3]];
                        // SAFETY: the block is whole warps, and the conditions of the loops are the
                        // same for all threads.
                        let sums = unsafe { T::multiply(frag_a[i], frag_b[half], sums) };
                        [acc[i][at], acc[i][at + 1], acc[i][at + 2], acc[i][at + 3]] = sums;
                    }
                }
            }
        }
        // The next step overwrites this one, or C is staged there.
        thread::sync_threads();
        k0 += BK;
    }

    // Read again behind `black_box`, so that it takes no registers in the loop.
    let warp = black_box(thread::thread_idx_x()) / 32;
    let Place { product, row, col, ends } = place();
    let c = c(product).cut(ends);
    let within = [warp / WARPS_N * wm, warp % WARPS_N * wn];
    // SAFETY: all threads, with memory that is no longer in use, and a tile of their own.
    unsafe { c.store_tile::<BM, BN, THREADS, SUMS, MT>([row, col], within, a_smem.cast(), &acc) };
}
