//! Tensor cores, `wgmma_pipelined`: copies and products at the same time, by warps of their own.
//!
//! # The idea
//!
//! The copies of `tma` and `wgmma` are both asynchronous, so the next tiles can come while these
//! are multiplied. One thread, the *producer*, asks for tiles, as far ahead as there are stages.
//! Two *consumer* warpgroups multiply them. They meet at two barriers for each stage:
//!
//! ```text
//!   producer      empty[stage] --> copy A and B --> full[stage]
//!   warpgroup 0   full[stage] --> wgmma x 4 (rows 0 to 63)   --> empty[stage before]
//!   warpgroup 1   full[stage] --> wgmma x 4 (rows 64 to 127) --> empty[stage before]
//!
//!   stage 0   | copy | multiply ... | copy | multiply ...
//!   stage 1          | copy | multiply ... | copy | multiply ...
//!   stage 2                 | copy | multiply ... | copy | ...
//! ```
//!
//! # What changed
//!
//! Against `wgmma`:
//!
//! - A pipeline of four stages, with the producer and the consumers of `warp_specialized`. The loop
//!   has no barrier of the block.
//! - Two warpgroups share a tile of 128 x 256, which doubles the products per byte of B. Each
//!   thread has 128 sums. So registers move (`setmaxnreg`): the producer's warpgroup gives back
//!   most of its own, and the consumers take them.
//! - One group of `wgmma` is in flight while the next is issued, so that the tensor cores have work
//!   during the wait for a barrier. A stage is released when the group that reads it is done.
//!
//! # What should get better, and what comes next
//!
//! Within a tile the tensor cores always have work. Between tiles they idle: a block stores C, and
//! then fills its pipeline anew. A tile of 128 x 256 leaves room for one block on a multiprocessor,
//! so no other block has work meanwhile. `wgmma_persistent` goes on to the next tile while it
//! stores.

use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::prelude::*;
use cuda_std::shared;
use cuda_std::sm_90a::wgmma::{Accumulator, Tile, wait_group};
use cuda_std::tma::{self, TensorMap};

use crate::abi::tensor_core::{ALIGNMENT, BK, PANEL, variants};
use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target};
use crate::device::output::matrix::Output;
use crate::device::schedule::raster::rasterize;

/// Rows and columns of C per block, and rows of a consumer warpgroup.
const BM: u32 = 128;
const BN: u32 = 256;
const WM: u32 = 64;
/// Stages of the pipeline.
const STAGES: u32 = 4;
/// Threads of a warpgroup, consumer warpgroups, and threads of a block. The last warpgroup has the
/// producer.
const WARPGROUP: u32 = 128;
const CONSUMERS: u32 = BM / WM;
const THREADS: u32 = (CONSUMERS + 1) * WARPGROUP;
/// A thread's sums.
const SUMS: usize = (WM * BN / WARPGROUP) as usize;
/// Registers per thread of the producer's warpgroup, of the consumers, and at launch.
const PRODUCER_REGISTERS: u32 = 40;
const CONSUMER_REGISTERS: u32 = 232;
const LAUNCHED_REGISTERS: u32 = 65536 / THREADS / 8 * 8;

/// Elements of a stage.
const STAGE_A: u32 = BM * BK;
const STAGE_B: u32 = BK * BN;
/// Offsets in shared memory, in elements.
const B_AT: u32 = STAGES * STAGE_A;
const BARRIERS_AT: u32 = B_AT + STAGES * STAGE_B;

const _: () = assert!(<[f32; SUMS] as Accumulator>::COLS == BN, "one instruction for a part of K");
const _: () = assert!(
    PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= (CONSUMERS + 1) * LAUNCHED_REGISTERS,
    "the consumers wait without end for more registers than the producer gives back"
);

/// What the host needs to launch [`wgmma_pipelined()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "wgmma_pipelined",
    summary: "four stages, a producer and two consumer warpgroups, registers that move",
    origin: None,
    tile: crate::abi::Tile::of_fragments([BM, BN], THREADS),
    block: [THREADS, 1],
    grid: GridOrder::Linear,
    shared: Shared::Stages {
        blocks: 1,
        bytes: [BARRIERS_AT * 2 + 2 * STAGES * 8 + ALIGNMENT - 128; 2],
        front: None,
    },
    unaligned: None,
    abi: KernelAbi::Wgmma,
    arithmetic: Arithmetic::Bits16,
    target: Target::Sm90a,
    source: include_str!("wgmma_pipelined.rs"),
    variants: variants!(wgmma_pipelined, types),
    reads_anywhere: [false; 2],
    compensates: false,
};

/// `C = alpha * A * B + beta * C`.
///
/// # Safety
/// - The parameters and the grid are as [`KernelDescriptor`] says.
/// - Nothing else writes A or B, or touches C, during the launch.
#[kernel(block = THREADS, min_blocks = 1, variants(F16 = false as _ | true as f16))]
pub unsafe fn wgmma_pipelined<const F16: bool>(
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
    let warpgroup = tid / WARPGROUP;
    let steps = k.div_ceil(BK);
    let (y, x) = rasterize(thread::block_idx_x(), n.div_ceil(BN), m.div_ceil(BM));
    // SAFETY: the caller keeps the contract, and there is no other output.
    let c = unsafe { Output::new(c, ldc, m, n, alpha, beta) };
    if steps == 0 {
        // A path of its own: a second path to the accumulators would make `ptxas` serialise all
        // `wgmma`.
        for at in (tid..BM * BN).step_by(THREADS as usize) {
            // SAFETY: one element of the block's tile, this thread's alone.
            unsafe { c.store(y * BM + at / BN, x * BN + at % BN, 0.0) };
        }
        return;
    }

    let memory = shared::dynamic_shared_mem::<u16>();
    let a_smem = memory.add(memory.address().wrapping_neg() % ALIGNMENT / 2); // (STAGES, BM, BK)
    let b_smem = a_smem.add(B_AT); // (STAGES, BN / PANEL, BK, PANEL)
    let full = Mbarrier::at(a_smem.add(BARRIERS_AT).cast());
    let empty = full.add(STAGES);
    if tid == 0 {
        for stage in 0..STAGES {
            // SAFETY: one thread, once, before the block's barrier.
            unsafe {
                full.add(stage).init(1); // the producer, and the bytes that it asks for
                empty.add(stage).init(4 * CONSUMERS); // a thread of each warp
            }
        }
        mbarrier::fence_init();
    }
    thread::sync_threads();

    if warpgroup == CONSUMERS {
        // SAFETY: a whole warpgroup, which was launched with more registers.
        unsafe { thread::warpgroup_reg_dealloc::<PRODUCER_REGISTERS>() };
        if !tid.is_multiple_of(WARPGROUP) {
            return;
        }
        for step in 0..steps {
            let (stage, phase) = (step % STAGES, step / STAGES % 2);
            let full = full.add(stage);
            // SAFETY: both warpgroups have said that the `wgmma` that read the stage are done,
            // and nobody else reads or writes it.
            unsafe {
                empty.add(stage).wait_parity(phase ^ 1);
                full.arrive_expect_tx(2 * (STAGE_A + STAGE_B));
                let at = (step * BK).cast_signed();
                let to = a_smem.add(stage * STAGE_A);
                tma::load(to, map_a, [at, (y * BM).cast_signed()], full);
                for panel in 0..BN / PANEL {
                    let to = b_smem.add(stage * STAGE_B + panel * (BK * PANEL));
                    let first = (x * BN + panel * PANEL).cast_signed();
                    tma::load(to, map_b, [first, at], full);
                }
            }
        }
        return;
    }

    // SAFETY: each of the other warpgroups, which has fewer registers than that. Together they want
    // no more than the block was launched with.
    unsafe { thread::warpgroup_reg_alloc::<CONSUMER_REGISTERS>() };
    let lane = warp::lane_id();
    let mut acc = [0.0f32; SUMS];
    let mut step = 0;
    loop {
        let (stage, phase) = (step % STAGES, step / STAGES % 2);
        let a = Tile::k_major(a_smem.add(stage * STAGE_A + warpgroup * (WM * BK)));
        let b = Tile::mn_major(b_smem.add(stage * STAGE_B));
        // SAFETY:
        // - Whole warpgroups come here: the loop's condition is the same for their threads. `wgmma`
        //   itself (`.sync`) waits for threads that a wait delays.
        // - The stage is full and lies as the maps copy it. It stays until it is released: one
        //   thread of each warp arrives when the warp's part of the group is done.
        // - Nothing touches the sums before the wait.
        unsafe {
            full.add(stage).wait_parity(phase);
            match F16 {
                false => acc.multiply_bf16(a, b, step > 0),
                true => acc.multiply_f16(a, b, step > 0),
            }
            if step > 0 {
                wait_group::<1>();
                if lane == 0 {
                    empty.add((step - 1) % STAGES).arrive();
                }
            }
        }
        step += 1;
        if step == steps {
            break;
        }
    }
    // SAFETY: as above.
    unsafe { acc.wait() };

    let row = y * BM + warpgroup * WM + tid % WARPGROUP / 32 * 16 + lane / 4;
    let col = x * BN + lane % 4 * 2;
    // SAFETY: each thread has its own sums, and nobody else touches their elements.
    unsafe { c.store_fragments(row, col, &acc) };
}
