//! Tensor cores, `mma`: a warp multiplies matrices that its registers hold together.
//!
//! # The idea
//!
//! An FMA reads three registers for two operations. A tensor core takes matrices: one `mma.sync`
//! multiplies 16 x 16 elements of A by 16 x 8 of B and adds them to 16 x 8 sums. That is 4096
//! operations. The 32 threads of a warp hold all three matrices in registers. A thread's elements
//! are its *fragments*. Inputs are `bf16` or `f16`, whose products are exact; sums are f32.
//!
//! The instruction defines which thread holds which element. `ldmatrix` loads that layout from
//! shared memory: four matrices of 8 x 8 at once, from 16 bytes of a row for each lane. It
//! transposes those of B.
//!
//! The eight rows of such a matrix should come from different banks. So a tile lies *swizzled*: the
//! 16-byte chunks of a row are permuted by the number of the row. A row has at least 8 chunks,
//! which cover all banks.
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
//! Against `async_copy`, whose pipeline of `cp.async` it keeps:
//!
//! - For 16 steps along K, a warp's tile of 64 x 64 is 4 x 8 `mma.sync`, instead of 2048 FMAs per
//!   thread.
//! - No copy transposes A: all are 16 bytes wide, and `ldmatrix` brings the layout of `mma.sync`.
//! - A and B may each be transposed: `ldmatrix` can load either operand both ways.
//! - A step along K is 64, in four parts. During a part a warp asks for a quarter of a later tile.
//! - The fragments of B of the next part are loaded before the products of this part, also across
//!   the barrier. Those of A follow as soon as the last product with the old ones is issued.
//!
//! # What should get better, and what comes next
//!
//! One instruction of a warp has 64 times the operations of an FMA. But products wait for
//! fragments: a warp reads 4 KB from shared memory for 32 of them. Its sums alone occupy 128 of a
//! thread's 255 registers. On Hopper `mma.sync` reaches half of cuBLAS's speed. `wgmma` reads
//! shared memory itself.

use cuda_std::cp_async;
use cuda_std::hint::black_box;
use cuda_std::mma::{Bf16, F16, FragmentA, FragmentB, Multiply, ldmatrix_x4, ldmatrix_x4_trans};
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use crate::abi::epilogue::Parameters;
use crate::abi::groups::GroupTile;
use crate::abi::tensor_core::options::POINTERS_C;
use crate::abi::tensor_core::{BK, variants};
use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target};
use crate::device::output::matrix::Output;
use crate::device::output::places::NoColumnBias;
use crate::device::output::staging::STAGING;
use crate::device::output::tensor::TensorOutput;
use crate::device::schedule::groups::{Groups, Place};
use crate::device::schedule::raster::rasterize;

/// Elements along K that one instruction multiplies, and the parts of a step.
const MMA_K: u32 = 16;
const PARTS: u32 = BK / MMA_K;
/// Rows of C of an instruction.
const MMA_M: u32 = 16;
/// Stages of the pipeline: one tile is multiplied, the others are in flight.
const STAGES: u32 = 3;
/// Elements of a chunk of 16 bytes.
const CHUNK: u32 = 8;

const _: () =
    assert!(PARTS.is_multiple_of(2), "the fragments of its parts are in two sets, in turn");

/// Declares a kernel for each element type and layout, and its [`KernelDescriptor`].
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $descriptor:ident = $name:ident: $summary:literal,
        $warps_m:literal x $warps_n:literal warps of $mt:literal x $nt:literal, $sums:literal sums;
    )*) => {$(
        $(#[$doc])*
        pub const $descriptor: KernelDescriptor = KernelDescriptor {
            name: stringify!($name),
            summary: $summary,
            origin: None,
            tile: crate::abi::Tile::of_fragments([$warps_m * $mt * 16, $warps_n * $nt * 8], $warps_m * $warps_n * 32),
            block: [$warps_m * $warps_n * 32, 1],
            grid: GridOrder::Linear,
            shared: Shared::Stages { blocks: 1, bytes: [STAGES * BK * ($warps_m * $mt * 16 + $warps_n * $nt * 8) * 2; 2], front: None },
            unaligned: None,
            abi: KernelAbi::MmaPointers,
            arithmetic: Arithmetic::Bits16,
            target: Target::Sm80,
            source: include_str!("mma.rs"),
            variants: variants!($name, layouts),
            reads_anywhere: [false; 2],
            compensates: false,
        };

        /// Computes `C = epilogue(alpha * op(A) * op(B) + beta * C)` for each product of a batch.
        ///
        /// # Safety
        /// - The parameters and the grid are as [`KernelDescriptor`] says.
        /// - Nothing else writes A or B, or touches C, during the launch.
        #[kernel(
            block = $warps_m * $warps_n * 32,
            min_blocks = 1,
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
            let [rows_a, cols_a] = if TRANS_A { [k, m] } else { [m, k] };
            let [rows_b, cols_b] = if TRANS_B { [n, k] } else { [k, n] };
            let a = Input { pointer: a, ld: lda, rows: rows_a, cols: cols_a };
            let b = Input { pointer: b, ld: ldb, rows: rows_b, cols: cols_b };
            // SAFETY: the caller keeps the contract, and there is no other output.
            unsafe {
                let c = Output::new(c, ldc, m, n, alpha, beta);
                let c = TensorOutput::<IS_F16>::new(c, options, epilogue);
                gemm::<T, IS_F16, $warps_m, $warps_n, $mt, $nt, $sums, TRANS_A, TRANS_B>(
                    [m, n, k],
                    Groups::new(groups),
                    |product| [a.of_product(product, stride_a), b.of_product(product, stride_b)],
                    |product| match options & POINTERS_C {
                        0 => c.of_product(product, stride_c),
                        _ => c.addressed(product),
                    },
                );
            }
        }
    )*};
}

kernels! {
    /// Two blocks fit on a multiprocessor that has 192 KB of shared memory.
    DESCRIPTOR = mma: "mma.sync of fragments that ldmatrix loads from swizzled tiles",
        2 x 2 warps of 4 x 8, 32 sums;
    /// For large products, if a block may have 144 KB of shared memory.
    TILE_128X256 = mma_128x256: "mma with 128 x 256 outputs per block",
        2 x 4 warps of 4 x 8, 32 sums;
    /// For products with too few tiles of these sizes for all multiprocessors.
    TILE_64X64 = mma_64x64: "mma with 64 x 64 outputs per block",
        2 x 2 warps of 2 x 4, 16 sums;
}

/// A or B as it lies in memory.
#[derive(Clone, Copy)]
struct Input {
    pointer: *const u16,
    ld: u32,
    rows: u32,
    cols: u32,
}

impl Input {
    /// The operand of a product of the batch; the next product is `stride` elements further.
    #[inline(always)]
    fn of_product(self, product: u32, stride: u64) -> Self {
        Self { pointer: self.pointer.wrapping_add(product as usize * stride as usize), ..self }
    }
}

/// The kernel: blocks of `WARPS_M` x `WARPS_N` warps, each with `MT` x `NT` matrices of sums.
///
/// A thread has `SUMS` sums in a row of matrices. `operands` gives a product's A and B, and
/// `c` its C.
///
/// # Safety
/// As for [`mma()`]; the block has `WARPS_M` x `WARPS_N` warps.
#[inline(always)]
unsafe fn gemm<
    T: Multiply<4, 2, [f32; 4]>,
    const IS_F16: bool,
    const WARPS_M: u32,
    const WARPS_N: u32,
    const MT: usize,
    const NT: usize,
    const SUMS: usize,
    const TRANS_A: bool,
    const TRANS_B: bool,
>(
    [m, n, k]: [u32; 3],
    groups: Groups,
    operands: impl Fn(u32) -> [Input; 2],
    c: impl Fn(u32) -> TensorOutput<IS_F16>,
) {
    const {
        assert!(NT.is_multiple_of(2) && SUMS == NT * 4, "ldmatrix loads two matrices of B");
        let (bm, bn) = (WARPS_M * MT as u32 * MMA_M, WARPS_N * NT as u32 * 8);
        let [a, b] =
            [if TRANS_A { [BK, bm] } else { [bm, BK] }, if TRANS_B { [bn, BK] } else { [BK, bn] }];
        assert!(
            copies_evenly(a, WARPS_M * WARPS_N * 32) && copies_evenly(b, WARPS_M * WARPS_N * 32),
            "the swizzle is the same for all lines that a thread copies, of which each has as many in a part"
        );
        let stages = STAGES * BK * (WARPS_M * MT as u32 * MMA_M + WARPS_N * NT as u32 * 8);
        assert!(
            WARPS_M * WARPS_N * STAGING * 2 <= stages,
            "sums are staged in place of the stages"
        );
    }
    let (wm, wn) = (MT as u32 * MMA_M, NT as u32 * 8);
    let (bm, bn) = (WARPS_M * wm, WARPS_N * wn);
    let threads = WARPS_M * WARPS_N * 32;
    let tid = thread::thread_idx_x();
    let [width, height] = [n.div_ceil(bn), m.div_ceil(bm)];
    if !groups.has_tile(width) {
        return;
    }
    let place = || groups.of_block([width, height], [bm, bn], rasterize);
    let Place { product, row: block_row, col: block_col, .. } = place();
    let [a, b] = operands(product);
    // What this thread computes.
    let (warp, lane) = (tid / 32, tid % 32);
    let (warp_row, warp_col) = (warp / WARPS_N * wm, warp % WARPS_N * wn);

    let a_smem = shared::dynamic_shared_mem::<u16>(); // (STAGES, bm, BK), or (STAGES, BK, bm)
    let b_smem = a_smem.add(STAGES * bm * BK); // (STAGES, BK, bn), or (STAGES, bn, BK)
    // Lines of a tile as it lies in memory, and elements of each.
    let [lines_a, width_a] = if TRANS_A { [BK, bm] } else { [bm, BK] };
    let [lines_b, width_b] = if TRANS_B { [bn, BK] } else { [BK, bn] };

    let whole = block_row + bm <= m && block_col + bn <= n;
    // Copies a part of a tile, some lines of both operands. So the copies are spread over the
    // products of a step.
    let copy_part = |k0: u32, stage: u32, part: u32| {
        let whole = whole && k0 + BK <= k;
        let (lines, line) = (lines_a / PARTS, part * (lines_a / PARTS));
        let from = if TRANS_A { [k0 + line, block_row] } else { [block_row + line, k0] };
        let to = a_smem.add(stage * bm * BK + line * width_a);
        // SAFETY: nobody uses the stage; the rows of both begin on 16 bytes.
        unsafe { copy_lines(a, from, to, [lines, width_a], [tid, threads], whole) };
        let (lines, line) = (lines_b / PARTS, part * (lines_b / PARTS));
        let from = if TRANS_B { [block_col + line, k0] } else { [k0 + line, block_col] };
        let to = b_smem.add(stage * bn * BK + line * width_b);
        // SAFETY: as above.
        unsafe { copy_lines(b, from, to, [lines, width_b], [tid, threads], whole) };
    };

    let mut acc = [[0.0f32; SUMS]; MT];
    let mut frag_a = [FragmentA::<T, 4>::from_bits([0; 4]); MT];
    let mut frag_b = [[FragmentB::<T, 2>::from_bits([0; 2]); NT]; 2];
    // Of four matrices of 8 x 8, lanes 0 to 7 have the lines of the first, 8 to 15 those of the
    // second, and so on. In a plain A, and in a plain B, which `ldmatrix` transposes, the second is
    // below the first. In a transposed A or B it is beside the first.
    let (below, beside) = ([lane % 16, lane / 16], [lane / 16 * 8 + lane % 8, lane / 8 % 2]);
    let [line_a, side_a] = if TRANS_A { beside } else { below };
    let [line_b, side_b] = if TRANS_B { beside } else { below };
    // SAFETY: inside the tile, which was waited for before the barrier; so below.
    let load_a = |stage: u32, part: u32, i: usize| unsafe {
        let from = a_smem.add(stage * bm * BK);
        let row = warp_row + i as u32 * MMA_M;
        FragmentA::from_bits(if TRANS_A {
            let chunk = swizzled(line_a, row / CHUNK + side_a);
            ldmatrix_x4_trans(from.add((part * MMA_K + line_a) * width_a + chunk * CHUNK))
        } else {
            let chunk = swizzled(line_a, part * (MMA_K / CHUNK) + side_a);
            ldmatrix_x4(from.add((row + line_a) * width_a + chunk * CHUNK))
        })
    };
    let load_b = |stage: u32, part: u32, b: &mut [FragmentB<T, 2>; NT]| {
        let from = b_smem.add(stage * bn * BK);
        for j in 0..NT / 2 {
            let col = warp_col + j as u32 * 2 * CHUNK;
            // SAFETY: as above.
            let [b0, b1, b2, b3] = unsafe {
                if TRANS_B {
                    let chunk = swizzled(line_b, part * (MMA_K / CHUNK) + side_b);
                    ldmatrix_x4(from.add((col + line_b) * width_b + chunk * CHUNK))
                } else {
                    let chunk = swizzled(line_b, col / CHUNK + side_b);
                    ldmatrix_x4_trans(from.add((part * MMA_K + line_b) * width_b + chunk * CHUNK))
                }
            };
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
    load_b(0, 0, &mut frag_b[0]);
    for i in 0..MT {
        frag_a[i] = load_a(0, 0, i);
    }

    let mut stage = 0;
    let mut k0 = 0;
    while k0 < k {
        let next = if stage + 1 == STAGES { 0 } else { stage + 1 };
        let free = if stage == 0 { STAGES - 1 } else { stage - 1 };
        for part in 0..PARTS {
            let (this, other) = (part as usize % 2, (part as usize + 1) % 2);
            copy_part(k0 + (STAGES - 1) * BK, free, part);
            let (next_stage, next_part) =
                if part + 1 < PARTS { (stage, part + 1) } else { (next, 0) };
            if next_part == 0 {
                cp_async::commit_group();
                // The next tile has arrived, and all have loaded what they need of this one.
                cp_async::wait_group::<{ STAGES - 2 }>();
                thread::sync_threads();
            }
            load_b(next_stage, next_part, &mut frag_b[other]);
            for i in 0..MT {
                for j in 0..NT {
                    let at = j * 4;
                    let sums = [acc[i][at], acc[i][at + 1], acc[i][at + 2], acc[i][at + 3]];
                    // SAFETY: the block is whole warps, and no thread leaves the loop before the
                    // others.
                    let sums = unsafe { T::multiply(frag_a[i], frag_b[this][j], sums) };
                    [acc[i][at], acc[i][at + 1], acc[i][at + 2], acc[i][at + 3]] = sums;
                }
                frag_a[i] = load_a(next_stage, next_part, i);
            }
        }
        stage = next;
        k0 += BK;
    }

    // Copies of tiles past the end are still in flight, and sums are staged in the stages' memory.
    cp_async::wait_group::<0>();
    thread::sync_threads();
    // Read again behind `black_box`, so that it takes no registers in the loop.
    let warp = black_box(thread::thread_idx_x()) / 32;
    let Place { product, ends, .. } = place();
    let c = c(product).cut(ends);
    let staging = a_smem.add(warp * STAGING * 2).cast();
    let (row, col) = (block_row + warp / WARPS_N * wm, block_col + warp % WARPS_N * wn);
    // SAFETY: whole warps, each with memory of its own. Nobody else touches the elements of their
    // sums.
    unsafe { c.store_fragments::<MMA_M, false, _, _, _>(row, col, staging, NoColumnBias, &acc) };
}

/// Whether `threads` copy the same number of lines of every part of a tile each.
///
/// The tile has `lines` of `width` elements. A thread's lines must be a multiple of eight apart.
const fn copies_evenly([lines, width]: [u32; 2], threads: u32) -> bool {
    let step = threads / (width / CHUNK);
    step.is_multiple_of(8) && (lines / PARTS).is_multiple_of(step)
}

/// Where a chunk of a line lies in that line.
#[inline(always)]
fn swizzled(line: u32, chunk: u32) -> u32 {
    chunk ^ (line % 8)
}

/// Asks for this thread's share of some lines of a tile, with zeros out of bounds.
///
/// The first element of the lines is at `from`.
///
/// # Safety
/// Nothing else uses the tile's shared memory. If `whole`, all of it is in bounds.
#[inline(always)]
unsafe fn copy_lines(
    matrix: Input,
    from: [u32; 2],
    to: SharedPtr<u16>,
    [lines, width]: [u32; 2],
    block: [u32; 2],
    whole: bool,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match width {
            256 => copy::<32>(matrix, from, to, lines, block, whole),
            128 => copy::<16>(matrix, from, to, lines, block, whole),
            _ => copy::<8>(matrix, from, to, lines, block, whole),
        }
    }
}

/// [`copy_lines()`] for `lines` lines of `CHUNKS` chunks.
///
/// # Safety
/// As for [`copy_lines()`].
#[inline(always)]
unsafe fn copy<const CHUNKS: u32>(
    from: Input,
    [row, col]: [u32; 2],
    to: SharedPtr<u16>,
    lines: u32,
    [tid, threads]: [u32; 2],
    whole: bool,
) {
    let (within, chunk) = (tid / CHUNKS, tid % CHUNKS);
    let step = threads / CHUNKS;
    let to = to.add((within * CHUNKS + swizzled(within, chunk)) * CHUNK);
    let (row, col) = (row + within, col + chunk * CHUNK);
    // Behind `black_box`: addresses that are kept for each part would take registers in the loop
    // along K.
    let ld = black_box(from.ld) as usize;
    let mut address = from.pointer.wrapping_add(row as usize * ld + col as usize);
    let (apart, address_step) = (step * CHUNKS * CHUNK, step as usize * ld);
    // SAFETY: the caller's contract; nothing out of bounds is read.
    unsafe {
        if whole {
            for i in 0..lines / step {
                cp_async::copy16_zfill(to.add(i * apart), address, 16);
                address = address.wrapping_add(address_step);
            }
        } else {
            let left = from.cols.saturating_sub(col).min(CHUNK);
            for i in 0..lines / step {
                let bytes = if row + i * step < from.rows { 2 * left } else { 0 };
                cp_async::copy16_zfill(to.add(i * apart), address, bytes);
                address = address.wrapping_add(address_step);
            }
        }
    }
}
