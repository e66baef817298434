//! TF32 by `wgmma`, for Hopper: threads load tiles of A and B, and round them.
//!
//! # The idea
//!
//! `wgmma` reads TF32 in shared memory only with K along the lines, and a row-major B has N there.
//! So producer warps bring the tiles, as in [`transposed`](crate::ladder::f32::transposed). They
//! load quads to registers, transpose those of B, round, and store both as `wgmma` reads them.
//! Transposed operands are copied first, and so are misaligned ones. Entry points for misaligned
//! operands exist and are right, but they load single elements, and are slow.
//!
//! # What changed
//!
//! Against [`wgmma_persistent`](crate::ladder::tensor::sm_90a::wgmma_persistent):
//!
//! ```text
//!   producers 0   ld.global (step 2)   empty[0] --> round, st.shared, fence --> full[0]
//!   producers 1   ld.global (step 3)   empty[1] --> round, st.shared, fence --> full[1]
//!   warpgroup 0   full[s] --> wgmma (rows 0 to 63)   --> empty[s]   += (tf32x3)
//!   warpgroup 1   full[s] --> wgmma (rows 64 to 127) --> empty[s]   += (tf32x3)
//! ```
//!
//! - Producers are two whole warpgroups, which take steps in turn. While one rounds and stores, the
//!   loads of the other are in flight. `fence.proxy.async` and the barrier order their stores
//!   before `wgmma`'s reads.
//! - With `tf32x3` the consumers also issue their `wgmma` in turn: one adds while the other
//!   multiplies.
//! - A block has one tile of C, or with split-K a part of its sum. There are batches and
//!   [epilogues](crate::abi::epilogue), as in [`tiles`](crate::families::f32).
//!
//! # What should get better, and what comes next
//!
//! `tf32x3` is as accurate as f32 and twice as fast. `tf32` waits for its loads, which go through
//! registers. Bulk copies keep more bytes in flight (`runs/h200/tf32`), and also round: large
//! products are left to [`tma`](super::tma).

use cuda_std::hint::black_box;
use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::prelude::*;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::sm_90a::wgmma::{Accumulator, Tile, wait_group};

use super::producer::{Lane, PRODUCERS, Producer};
use super::{BK, producer};
use crate::abi::tensor_core::ALIGNMENT;
use crate::device::operand::input::Input;
use crate::device::output::matrix::Output;
use crate::device::pipeline::dependent_launch;
use crate::device::pipeline::state::PipelineState;
use crate::device::reduce::split_k::{is_last_of_part, reduce_sums, tile_number};
use crate::device::schedule::raster::rasterize;
use crate::device::schedule::split_k::Params;

/// Rows of a warpgroup's sums, which `wgmma` fixes.
const WM: u32 = 64;
/// Threads of a warpgroup.
const WARPGROUP: u32 = producer::THREADS;

/// Declares a module for each kernel, with its [`KernelDescriptor`] and its two entry points.
///
/// [`KernelDescriptor`]: crate::abi::KernelDescriptor
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $name:ident: $summary:literal,
        [f32; $sums:literal] x $consumers:literal, $stages:literal stages,
        split $split:literal, registers [$producer:literal, $consumer:literal];
    )*) => {$(
        $(#[$doc])*
        pub mod $name {
            use cuda_std::prelude::*;

            use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Reads, Shared, Target, Unaligned, epilogue};
            use crate::device::schedule::split_k::{Params, entry_points};
            use super::Geometry;

            type Kernel =
                Geometry<$sums, $consumers, { 4 * $consumers }, { $sums / 32 }, $stages, $split, $producer, $consumer>;

            const THREADS: u32 = Kernel::THREADS;

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
                target: Target::Sm90a,
                source: include_str!("wgmma.rs"),
                variants: &[],
                reads_anywhere: [false; 2],
                compensates: false,
            };

            entry_points!($name, min_blocks 1, ALIGNED = true as _ | false as unaligned);
        }
    )*};
}

kernels! {
    /// For small products.
    tf32_64x64: "TF32 tensor cores, rounded by threads: 64 x 64 per block",
        [f32; 32] x 1, 6 stages, split false, registers [168, 168];
    /// For large products.
    tf32x3_128x128:
        "three TF32 products for the accuracy of f32: 128 x 128 per block",
        [f32; 64] x 2, 3 stages, split true, registers [104, 152];
    /// For the smallest products.
    tf32x3_64x64: "tf32x3_128x128 with 64 x 64 outputs per block",
        [f32; 32] x 1, 6 stages, split true, registers [168, 168];
}

/// A kernel: `CONSUMERS` warpgroups with `SUMS` sums per thread, and the [`PRODUCERS`].
///
/// `SPLIT` means `tf32x3`.
struct Geometry<
    const SUMS: usize,
    const CONSUMERS: u32,
    const QUADS_A: usize,
    const BLOCKS_B: usize,
    const STAGES: u32,
    const SPLIT: bool,
    const PRODUCER_REGISTERS: u32,
    const CONSUMER_REGISTERS: u32,
>;

impl<
    const SUMS: usize,
    const CONSUMERS: u32,
    const QUADS_A: usize,
    const BLOCKS_B: usize,
    const STAGES: u32,
    const SPLIT: bool,
    const PRODUCER_REGISTERS: u32,
    const CONSUMER_REGISTERS: u32,
>
    Geometry<
        SUMS,
        CONSUMERS,
        QUADS_A,
        BLOCKS_B,
        STAGES,
        SPLIT,
        PRODUCER_REGISTERS,
        CONSUMER_REGISTERS,
    >
{
    const BM: u32 = CONSUMERS * WM;
    const BN: u32 = SUMS as u32 * WARPGROUP / WM;
    const TILE: crate::abi::Tile =
        crate::abi::Tile { bm: Self::BM, bn: Self::BN, bk: BK, tm: 2, tn: SUMS as u32 / 2 };
    const THREADS: u32 = (CONSUMERS + PRODUCERS) * WARPGROUP;

    /// Elements of a part of a stage, and of a stage: `big` of A, `small` of A, `big` of B, `small`
    /// of B.
    const PART_A: u32 = Self::BM * BK;
    const PART_B: u32 = Self::BN * BK;
    const PARTS: u32 = if SPLIT { 2 } else { 1 };
    const STAGE: u32 = Self::PARTS * (Self::PART_A + Self::PART_B);
    /// Barriers with which consumers take turns.
    const TURNS: u32 = if SPLIT && CONSUMERS > 1 { CONSUMERS } else { 0 };
    /// Offset of the barriers, in elements.
    const BARRIERS_AT: u32 = STAGES * Self::STAGE;
    /// PTX promises that shared memory begins on a multiple of 128 bytes, and stages need one of
    /// [`ALIGNMENT`].
    const SHARED_BYTES: u32 =
        Self::BARRIERS_AT * 4 + (2 * STAGES + Self::TURNS) * 8 + (ALIGNMENT - 128);

    /// Registers per thread at launch, with one block per multiprocessor.
    const LAUNCHED_REGISTERS: u32 = {
        let all = 65536 / Self::THREADS / 8 * 8;
        if all < 248 { all } else { 248 }
    };

    const CONSISTENT: () = {
        assert!(
            QUADS_A as u32 * 16 == Self::BM && BLOCKS_B as u32 * 64 == Self::BN,
            "the producers load all of A and B"
        );
        assert!(CONSUMERS <= 2, "two take turns");
        assert!(
            PRODUCERS * PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS
                <= (CONSUMERS + PRODUCERS) * Self::LAUNCHED_REGISTERS,
            "some wait without end for more registers than the others give back"
        );
    };

    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn gemm<const ALIGNED: bool>(params: Params)
    where
        [f32; SUMS]: Accumulator,
    {
        const { Self::CONSISTENT };
        // SAFETY: as the launch promises.
        let (params, split) = unsafe { params.of_block() };
        let (begin, end) = params.range(split);
        // An empty sum is a step of zeros: a second path to the accumulators would make `ptxas`
        // serialise all `wgmma`.
        let steps = end.saturating_sub(begin).div_ceil(BK).max(1);
        let tid = thread::thread_idx_x();
        let warpgroup = tid / WARPGROUP;

        let memory = shared::dynamic_shared_mem::<f32>();
        let smem = memory.add(memory.address().wrapping_neg() % ALIGNMENT / 4);
        let full = Mbarrier::at(smem.add(Self::BARRIERS_AT).cast());
        let empty = full.add(STAGES);
        let turn = empty.add(STAGES);
        if tid == 0 {
            // SAFETY: one thread, once, before the block's barrier.
            unsafe {
                for stage in 0..STAGES {
                    full.add(stage).init(WARPGROUP);
                    empty.add(stage).init(4 * CONSUMERS); // a thread of each warp
                }
                for warpgroup in 0..Self::TURNS {
                    turn.add(warpgroup).init(4);
                }
            }
            mbarrier::fence_init();
        }
        thread::sync_threads();
        dependent_launch::begin();

        if warpgroup >= CONSUMERS {
            // SAFETY: a whole warpgroup, which takes registers that the others give, or gives its
            // own.
            unsafe {
                if PRODUCER_REGISTERS > Self::LAUNCHED_REGISTERS {
                    thread::warpgroup_reg_alloc::<PRODUCER_REGISTERS>();
                } else if PRODUCER_REGISTERS < Self::LAUNCHED_REGISTERS {
                    thread::warpgroup_reg_dealloc::<PRODUCER_REGISTERS>();
                }
            }
            let (row, col) = Self::block();
            let Params { m, n, k: end, a, lda, b, ldb, .. } = params;
            // SAFETY: as the launch promises; a whole warpgroup.
            unsafe {
                let (a, b) = (Input::new(a, lda, m, end), Input::new(b, ldb, end, n));
                let is_interior = row + Self::BM <= m && col + Self::BN <= n;
                let (lane, k) = (Lane::new(tid % WARPGROUP), begin);
                Producer::<QUADS_A, BLOCKS_B, STAGES, SPLIT, ALIGNED> {
                    a,
                    b,
                    lane,
                    row,
                    k,
                    col,
                    is_interior,
                    end,
                    steps,
                    smem,
                    full,
                    empty,
                }
                .produce(warpgroup - CONSUMERS);
            }
            return;
        }

        // SAFETY: each of the other warpgroups, whole. Together all have no more registers than at
        // the launch.
        unsafe {
            if CONSUMER_REGISTERS > Self::LAUNCHED_REGISTERS {
                thread::warpgroup_reg_alloc::<CONSUMER_REGISTERS>();
            } else if CONSUMER_REGISTERS < Self::LAUNCHED_REGISTERS {
                thread::warpgroup_reg_dealloc::<CONSUMER_REGISTERS>();
            }
        }
        let lane = warp::lane_id();
        // SAFETY: the barriers are initialised. One thread of each warp arrives, since a warp that
        // waits for a group knows only of its own part.
        let release = |stage: u32| unsafe {
            if lane == 0 {
                empty.add(stage).arrive();
            }
        };
        let mut state = PipelineState::FIRST;
        let mut before = 0;
        let mut step = 0;
        let mut acc = [0.0f32; SUMS];
        let mut sums = [0.0f32; SUMS];
        loop {
            let stage = smem.add(state.stage * Self::STAGE);
            let a = stage.add(warpgroup * (WM * BK));
            let b = stage.add(Self::PARTS * Self::PART_A);
            let tile = |part: SharedPtr<f32>| Tile::k_major(part.cast());
            // SAFETY:
            // - Whole warpgroups come here: the loop's condition is the same for their threads.
            //   `wgmma` itself (`.sync`) waits for threads that a wait or a release delays.
            // - The stage is full and lies as `Producer` stores it. It stays until it is released,
            //   when its groups are done.
            // - Nothing touches the sums of `wgmma` before the wait.
            unsafe {
                full.add(state.stage).wait_parity(state.parity);
                if SPLIT {
                    // The warpgroups issue their `wgmma` in turn, so that one adds while the other
                    // multiplies. All four warps pass the turn on: a late warp would otherwise wait
                    // for the turn after the next.
                    if Self::TURNS > 0 {
                        turn.add(warpgroup).wait_parity((step + 1 + warpgroup) % 2);
                    }
                    let (a_small, b_small) = (tile(a.add(Self::PART_A)), tile(b.add(Self::PART_B)));
                    acc.multiply_tf32(a_small, tile(b), false);
                    acc.multiply_tf32(tile(a), b_small, true);
                    acc.multiply_tf32(tile(a), tile(b), true);
                    if Self::TURNS > 0 && lane == 0 {
                        turn.add(1 - warpgroup).arrive();
                    }
                    acc.wait();
                    release(state.stage);
                    for i in 0..SUMS {
                        sums[i] += acc[i];
                    }
                } else {
                    acc.multiply_tf32(tile(a), tile(b), step > 0);
                    if step > 0 {
                        wait_group::<1>();
                        release(before);
                    }
                }
            }
            before = state.stage;
            state = state.next::<STAGES>();
            step += 1;
            if step == steps {
                break;
            }
        }
        if !SPLIT {
            // SAFETY: as above. Nobody waits for the last stage.
            unsafe { acc.wait() };
            sums = acc;
        }

        // SAFETY: as the launch promises; all consumers come here.
        unsafe {
            if split.count > 1 {
                let elements = Self::BM * Self::BN;
                let meet = || match CONSUMERS {
                    1 => thread::named_barrier_sync::<1, { WARPGROUP }>(),
                    _ => thread::named_barrier_sync::<1, { 2 * WARPGROUP }>(),
                };
                // The stages are no longer in use.
                let flag = smem.cast();
                let is_last =
                    |counters: *mut u32| is_last_of_part(split.count, counters, flag, meet);
                if !reduce_sums(params, split, elements, &mut sums, is_last) {
                    return;
                }
            }
            // Read again behind `black_box`, so that it takes no registers in the loop.
            let tid = black_box(thread::thread_idx_x());
            let (block_row, block_col) = Self::block();
            let row = block_row + tid / 32 * 16 + tid % 32 / 4;
            let col = block_col + tid % 4 * 2;
            Self::store(params.output(), params, row, col, &sums);
        }
    }

    /// Where the block's tile begins. Recomputed at each use, so that it occupies no registers
    /// before.
    #[inline(always)]
    fn block() -> (u32, u32) {
        let (width, height) = (thread::grid_dim_x(), thread::grid_dim_y());
        let (y, x) = rasterize(black_box(tile_number()), width, height);
        (y * Self::BM, x * Self::BN)
    }

    /// Stores a thread's sums, the first at (row, col): see [`Output::store_fragments`].
    ///
    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn store(c: Output, params: Params, row: u32, col: u32, sums: &[f32; SUMS]) {
        if !params.epilogue.is_some() {
            // SAFETY: each element belongs to one thread.
            unsafe { c.store_fragments(row, col, sums) };
            return;
        }
        /// Sums per turn, limited by the registers that are left.
        const PART: usize = 8;
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
            let at = |i: usize| {
                let i = (part * PART + i) as u32;
                (row + i / 2 % 2 * 8, col + i / 4 * 8 + i % 2)
            };
            // SAFETY: as above.
            unsafe { c.store_epilogue(epilogue, false, PART, at, values) };
            next = part + 1;
        }
    }
}
