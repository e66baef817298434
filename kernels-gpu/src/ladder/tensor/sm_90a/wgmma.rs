//! Tensor cores, `wgmma`: a warpgroup multiplies a tile with four instructions.
//!
//! # The idea
//!
//! Tensor cores wait less for fragments if nobody loads any. On Hopper four warps, a *warpgroup*,
//! issue one `wgmma` together. It multiplies 64 x 16 elements of A by 16 x 128 of B, both in shared
//! memory. It adds them to 64 x 128 sums in the warpgroup's registers: 262144 operations.
//!
//! A *matrix descriptor* tells the instruction where a tile begins and how it is swizzled. The copy
//! engine of `tma` writes tiles in this layout, in lines of 128 bytes. A line is 64 elements along
//! K of a row of A, or 64 columns of a row of B. So 128 columns of B are two *panels*.
//!
//! ```text
//!              B: 2 panels of 64 x 64            K
//!             [ panel 0 | panel 1 ]         0    64   128
//!   A: 64 x 64 [ sums of a block:  ]    A  [ t0 | t1 | .. ]   copy, wait, multiply, wait, copy ...
//!              [ 64 x 128          ]
//! ```
//!
//! # What changed
//!
//! Against `mma`: one instruction replaces 64, `ldmatrix` is gone, and one thread asks for all
//! copies, as in `tma`. A single stage shows the parts one by one:
//!
//! 1. One thread asks for a step's tiles.
//! 2. All wait for their bytes.
//! 3. The warpgroup multiplies, and waits until that is done. Then the next tiles may come.
//!
//! # What should get better, and what comes next
//!
//! The tensor cores are idle while tiles are copied, and the copy engine is idle while they are
//! multiplied. So the faster instruction is slower than `mma` with its pipeline. `wgmma_pipelined`
//! has both at work.

use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::prelude::*;
use cuda_std::shared;
use cuda_std::sm_90a::wgmma::{Accumulator, Tile};
use cuda_std::tma::{self, TensorMap};

use crate::abi::tensor_core::{ALIGNMENT, BK, PANEL, variants};
use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target};
use crate::device::output::matrix::Output;
use crate::device::schedule::raster::rasterize;

/// Rows and columns of C per block.
const BM: u32 = 64;
const BN: u32 = 128;
/// Threads of a warpgroup, which is the block.
const THREADS: u32 = 128;
/// A thread's sums.
const SUMS: usize = (BM * BN / THREADS) as usize;

/// Offsets in shared memory, in elements.
const B_AT: u32 = BM * BK;
const FULL_AT: u32 = B_AT + BK * BN;

const _: () = assert!(<[f32; SUMS] as Accumulator>::COLS == BN, "one instruction for a part of K");

/// What the host needs to launch [`wgmma()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "wgmma",
    summary: "tensor cores: a warpgroup multiplies what one thread asked for",
    origin: None,
    tile: crate::abi::Tile::of_fragments([BM, BN], THREADS),
    block: [THREADS, 1],
    grid: GridOrder::Persistent,
    shared: Shared::Stages {
        blocks: 1,
        bytes: [FULL_AT * 2 + 8 + ALIGNMENT - 128; 2],
        front: None,
    },
    unaligned: None,
    abi: KernelAbi::Wgmma,
    arithmetic: Arithmetic::Bits16,
    target: Target::Sm90a,
    source: include_str!("wgmma.rs"),
    variants: variants!(wgmma, types),
    reads_anywhere: [false; 2],
    compensates: false,
};

/// `C = alpha * A * B + beta * C`.
///
/// # Safety
/// - The parameters and the grid are as [`KernelDescriptor`] says.
/// - Nothing else writes A or B, or touches C, during the launch.
#[kernel(block = THREADS, min_blocks = 1, variants(F16 = false as _ | true as f16))]
pub unsafe fn wgmma<const F16: bool>(
    m: u32,
    n: u32,
    k: u32,
    alpha: f32,
    #[grid_constant] map_a: &TensorMap,
    #[grid_constant] map_b: &TensorMap,
    beta: f32,
    c: *mut f32,
    ldc: u32,
) {
    let tid = thread::thread_idx_x();
    let (width, height) = (n.div_ceil(BN), m.div_ceil(BM));
    // SAFETY: the caller keeps the contract, and there is no other output.
    let c = unsafe { Output::new(c, ldc, m, n, alpha, beta) };

    let memory = shared::dynamic_shared_mem::<u16>();
    let a_smem = memory.add(memory.address().wrapping_neg() % ALIGNMENT / 2);
    let b_smem = a_smem.add(B_AT);
    let full = Mbarrier::at(a_smem.add(FULL_AT).cast());
    if tid == 0 {
        // SAFETY: one thread, once, before the block's barrier.
        unsafe { full.init(1) };
        mbarrier::fence_init();
    }
    thread::sync_threads();

    let mut parity = 0;
    let mut tile = thread::block_idx_x();
    while tile < width * height {
        let (y, x) = rasterize(tile, width, height);
        let mut acc = [0.0f32; SUMS];
        let mut at = 0;
        while at < k {
            if tid == 0 {
                // SAFETY: all have multiplied what was in the tiles, and met this thread at a
                // barrier; nobody else reads or writes them.
                unsafe {
                    full.arrive_expect_tx(2 * (BM * BK + BK * BN));
                    let col = at.cast_signed();
                    tma::load(a_smem, map_a, [col, (y * BM).cast_signed()], full);
                    for panel in 0..BN / PANEL {
                        let to = b_smem.add(panel * (BK * PANEL));
                        let first = (x * BN + panel * PANEL).cast_signed();
                        tma::load(to, map_b, [first, col], full);
                    }
                }
            }
            // SAFETY:
            // - The block is one warpgroup, and all of it comes here: the conditions of both loops
            //   are the same for its threads. `wgmma` itself (`.sync`) waits for threads that `if
            //   tid == 0` or the wait delays.
            // - The tiles have arrived and lie as the maps copy them. They stay until all threads
            //   have met at the barrier.
            unsafe {
                full.wait_parity(parity);
                match F16 {
                    false => acc.multiply_bf16(Tile::k_major(a_smem), Tile::mn_major(b_smem), true),
                    true => acc.multiply_f16(Tile::k_major(a_smem), Tile::mn_major(b_smem), true),
                }
                acc.wait();
            }
            thread::sync_threads();
            parity ^= 1;
            at += BK;
        }

        let lane = warp::lane_id();
        let (row, col) = (y * BM + tid / 32 * 16 + lane / 4, x * BN + lane % 4 * 2);
        // SAFETY: each thread has its own sums, and nobody else touches their elements.
        unsafe { c.store_fragments(row, col, &acc) };
        tile += thread::grid_dim_x();
    }
}
