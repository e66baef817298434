//! Tensor cores on f32 matrices: `tf32` rounds A and B to TF32, `tf32x3` has the accuracy of f32.
//!
//! # The idea
//!
//! A *TF32* number is an f32 of which 10 bits of the mantissa are left. Tensor cores multiply tiles of
//! them, half as many in a cycle as of `bf16`, and read them as f32, of which they ignore the last 13 bits:
//! who wants them rounded to nearest does that before. `wgmma` takes TF32 from shared memory with K along
//! the lines alone, and a row-major B has N there. So producer warps bring the tiles, as in
//! [`transposed`](crate::transposed): they load quads to registers, transpose those of B, round, and store
//! both as `wgmma` reads them. Matrices may begin anywhere, and nothing is copied first.
//!
//! `tf32x3` splits each number in two, `big = round(x)` and `small = round(x - big)`, which together are
//! x but for its last bit, and adds three products:
//!
//! ```text
//!   A * B = A_small * B_big + A_big * B_small + A_big * B_big     (+ A_small * B_small: 2^-22 of it)
//! ```
//!
//! Tensor cores truncate their sums, so that errors of a long sum are all of one sign. So each step
//! along K has sums of its own, the small products first, which FADDs then add to those in f32.
//!
//! # What changed
//!
//! Against [`wgmma_persistent`](crate::wgmma_persistent):
//!
//! ```text
//!   producers     ld.global (next step)   empty[stage] --> round, st.shared, fence --> full[stage]
//!   warpgroup 0   full[stage] --> wgmma (rows 0 to 63)   --> empty[stage]   += (tf32x3)
//!   warpgroup 1   full[stage] --> wgmma (rows 64 to 127) --> empty[stage]   += (tf32x3)
//! ```
//!
//! - Producers are whole warpgroups. What they load for a step is in flight while they wait for its stage.
//!   Their stores are ordered before `wgmma`'s reads by `fence.proxy.async` and the barrier.
//! - A block has one tile of C, or with split-K a part of its sum, and there are batches and
//!   [epilogues](crate::epilogue), as in [`tiles`](crate::tiles).
//!
//! # Arithmetic
//!
//! `tf32`: every element is rounded to the nearest TF32 number, ties away from zero (`cvt.rna`). An f32
//! within 2^-12 of the largest becomes infinite.
//!
//! `tf32x3`: NaN goes where f32 has it. Where A or B is infinite, so is the result or it is NaN, where f32 would
//! say which: infinity times a `small` of zero is NaN. What overflows as TF32 is truncated instead, so that all
//! finite f32 are right. The `small` of a number below 2^-103 loses bits to TF32's smallest, 2^-136: its error
//! is at most that.

use cuda_std::hint::black_box;
use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::prelude::*;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::tma::fence_proxy_async;
use cuda_std::vec;
use cuda_std::wgmma::{Accumulator, Tile, round_to_tf32, wait_group};

use crate::epilogue;
use crate::matrix::{Input, Output};
use crate::swizzle::swizzle;
use crate::tensor_core::ALIGNMENT;
use crate::tiles::kernel::{Params, Split};
use crate::tiles::reduction::is_last_to_arrive;

/// Step along K: 128 bytes.
const BK: u32 = 32;
/// Elements that a thread moves at once.
const QUAD: u32 = 4;
/// Rows of a warpgroup's sums, which `wgmma` sets.
const WM: u32 = 64;
/// Threads of a warpgroup.
const WARPGROUP: u32 = 128;
/// Columns of B in what a warp loads at once, and steps along K.
const WARP_N: u32 = 32;
const WARP_K: u32 = 16;
/// The most quads of A, and blocks of four quads of B, that a producer thread has.
const MOST_QUADS_A: usize = 8;
const MOST_BLOCKS_B: usize = 4;

/// Declares a module for each kernel, with its [`KernelDescriptor`] and its two entry points.
///
/// [`KernelDescriptor`]: crate::KernelDescriptor
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $name:ident, $unaligned:ident: $summary:literal,
        [f32; $sums:literal] x $consumers:literal, producers $producers:literal, $stages:literal stages,
        split $split:literal;
    )*) => {$(
        $(#[$doc])*
        pub mod $name {
            use cuda_std::prelude::*;

            use super::Geometry;
            use crate::descriptor::{
                GridOrder, KernelAbi, KernelDescriptor, Reads, Shared, Unaligned,
            };
            use crate::epilogue;
            use crate::tiles::kernel::{Params, entry_point};

            type Kernel = Geometry<$sums, $consumers, $producers, $stages, $split>;

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
                    name: stringify!($unaligned),
                    vectorized: [true, true, false],
                    transposed: [Reads::Copied; 2],
                    transposes_c: false,
                }),
                abi: KernelAbi::SplitK,
                source: include_str!("tf32.rs"),
            };

            entry_point!($name, true, 1);
            entry_point!($unaligned, false, 1);
        }
    )*};
}

kernels! {
    /// For large products.
    tf32_128x256, tf32_128x256_unaligned: "TF32 tensor cores, rounded to nearest: 128 x 256 per block",
        [f32; 128] x 2, producers 1, 4 stages, split false;
    /// For smaller ones.
    tf32_128x128, tf32_128x128_unaligned: "the same with 128 x 128 outputs per block",
        [f32; 64] x 2, producers 1, 6 stages, split false;
    /// For the smallest.
    tf32_64x64, tf32_64x64_unaligned: "the same with 64 x 64 outputs per block",
        [f32; 32] x 1, producers 1, 6 stages, split false;
    /// For large products.
    tf32x3_128x128, tf32x3_128x128_unaligned:
        "three TF32 products for the accuracy of f32: 128 x 128 per block",
        [f32; 64] x 2, producers 1, 3 stages, split true;
    /// For the smallest.
    tf32x3_64x64, tf32x3_64x64_unaligned: "the same with 64 x 64 outputs per block",
        [f32; 32] x 1, producers 1, 6 stages, split true;
}

/// A kernel: `CONSUMERS` warpgroups with `SUMS` sums per thread each, and `PRODUCERS` more. `SPLIT`: `tf32x3`.
struct Geometry<
    const SUMS: usize,
    const CONSUMERS: u32,
    const PRODUCERS: u32,
    const STAGES: u32,
    const SPLIT: bool,
>;

impl<
    const SUMS: usize,
    const CONSUMERS: u32,
    const PRODUCERS: u32,
    const STAGES: u32,
    const SPLIT: bool,
> Geometry<SUMS, CONSUMERS, PRODUCERS, STAGES, SPLIT>
{
    const BM: u32 = CONSUMERS * WM;
    const BN: u32 = SUMS as u32 * WARPGROUP / WM;
    const TILE: crate::Tile =
        crate::Tile { bm: Self::BM, bn: Self::BN, bk: BK, tm: 2, tn: SUMS as u32 / 2 };
    /// Threads that produce, and all.
    const PRODUCER_THREADS: u32 = PRODUCERS * WARPGROUP;
    const THREADS: u32 = (CONSUMERS + PRODUCERS) * WARPGROUP;

    /// Elements of a part of a stage, and of a stage: `big` of A, `small` of A, `big` of B, `small` of B.
    const PART_A: u32 = Self::BM * BK;
    const PART_B: u32 = Self::BN * BK;
    const PARTS: u32 = if SPLIT { 2 } else { 1 };
    const STAGE: u32 = Self::PARTS * (Self::PART_A + Self::PART_B);
    /// Offset of the barriers, in elements.
    const BARRIERS_AT: u32 = STAGES * Self::STAGE;
    /// PTX promises that shared memory begins on a multiple of 128 bytes.
    const SHARED_BYTES: u32 = Self::BARRIERS_AT * 4 + 2 * STAGES * 8 + (ALIGNMENT - 128);

    /// Quads of A that a producer thread has of a step, and rows from one to the next.
    const QUADS_A: usize = (Self::PART_A / QUAD / Self::PRODUCER_THREADS) as usize;
    const ROWS_A: u32 = Self::PRODUCER_THREADS / (BK / QUAD);
    /// Blocks of 4 x 4 elements of B that it has, and columns from one to the next.
    const BLOCKS_B: usize = (Self::PART_B / (QUAD * QUAD) / Self::PRODUCER_THREADS) as usize;
    const COLS_B: u32 = Self::PRODUCER_THREADS / 32 / (BK / WARP_K) * WARP_N;

    /// Registers of a thread, where 128 sums leave too few of those that a launch gives to all.
    const MOVES_REGISTERS: bool = SUMS == 128;
    const PRODUCER_REGISTERS: u32 = 136;
    const CONSUMER_REGISTERS: u32 = 184;

    const CONSISTENT: () = {
        assert!(
            Self::QUADS_A <= MOST_QUADS_A && Self::BLOCKS_B <= MOST_BLOCKS_B,
            "arrays have room"
        );
        assert!(Self::QUADS_A as u32 * Self::ROWS_A == Self::BM, "the producers load all of A");
        assert!(Self::BLOCKS_B as u32 * Self::COLS_B == Self::BN, "the producers load all of B");
        assert!(
            !Self::MOVES_REGISTERS
                || PRODUCERS * Self::PRODUCER_REGISTERS + CONSUMERS * Self::CONSUMER_REGISTERS
                    <= 65536 / WARPGROUP,
            "the consumers wait without end for more registers than the producers give back"
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
        // An empty sum is a step of zeros: a second way to the sums would have the assembler serialise all
        // `wgmma`.
        let steps = end.saturating_sub(begin).div_ceil(BK).max(1);
        let tid = thread::thread_idx_x();
        let warpgroup = tid / WARPGROUP;

        let memory = shared::dynamic_shared_mem::<f32>();
        let smem = memory.add(memory.address().wrapping_neg() % ALIGNMENT / 4);
        let full = Mbarrier::at(smem.add(Self::BARRIERS_AT).cast());
        let empty = full.add(STAGES);
        if tid == 0 {
            // SAFETY: one thread, once, before the block's barrier.
            unsafe {
                for stage in 0..STAGES {
                    full.add(stage).init(Self::PRODUCER_THREADS);
                    empty.add(stage).init(4 * CONSUMERS); // a thread of each warp
                }
            }
            mbarrier::fence_init();
        }
        thread::sync_threads();

        if warpgroup >= CONSUMERS {
            if Self::MOVES_REGISTERS {
                // SAFETY: whole warpgroups, with more than that; the others take what they give.
                unsafe { thread::warpgroup_reg_dealloc::<136>() };
            }
            // SAFETY: as the launch promises.
            let (a, b) = unsafe {
                let Params { m, n, k, a, lda, b, ldb, .. } = params;
                (Input::new(a, lda, m, k), Input::new(b, ldb, k, n))
            };
            let (block_row, block_col) = Self::block();
            let producer = Producer::<ALIGNED, SPLIT>::new(tid - CONSUMERS * WARPGROUP);
            let at = |step: u32| {
                // Once more for each step: so no offset takes registers.
                let k = black_box(begin + step * BK);
                (k, black_box(block_row), black_box(block_col))
            };
            let load_a = |step: u32| {
                let (k, row, _) = at(step);
                let mut quads = [[0.0; 4]; MOST_QUADS_A];
                for i in 0..Self::QUADS_A {
                    // SAFETY: the matrix is as the launch promises.
                    quads[i] = unsafe { producer.load_a(a, row + i as u32 * Self::ROWS_A, k) };
                }
                quads
            };
            let load_b = |step: u32, first: usize, count: usize| {
                let (k, _, col) = at(step);
                let mut blocks = [[[0.0; 4]; QUAD as usize]; MOST_BLOCKS_B];
                for i in first..first + count {
                    // SAFETY: as above.
                    blocks[i] = unsafe { producer.load_b(b, k, col + i as u32 * Self::COLS_B) };
                }
                blocks
            };
            // Single elements with their conditions take more registers than there are for 128 sums.
            let is_ahead = ALIGNED || !Self::MOVES_REGISTERS;
            let mut state = State::FIRST;
            let mut loaded = Default::default();
            if is_ahead {
                loaded = (load_a(0), load_b(0, 0, Self::BLOCKS_B));
            }
            for step in 0..steps {
                let stage = smem.add(state.stage * Self::STAGE);
                let (to_a, to_b) = (stage, stage.add(Self::PARTS * Self::PART_A));
                // SAFETY: the consumers have said that the `wgmma` that read the stage are done; each
                // producer thread has its own places there, and orders its stores before theirs.
                unsafe {
                    empty.add(state.stage).wait_parity(state.parity ^ 1);
                    if !is_ahead {
                        loaded.0 = load_a(step);
                    }
                    for i in 0..Self::QUADS_A {
                        let at = to_a.add(i as u32 * Self::ROWS_A * BK);
                        producer.store_a(at, loaded.0[i], Self::PART_A);
                    }
                    for i in 0..Self::BLOCKS_B {
                        if !is_ahead {
                            loaded.1[i] = load_b(step, i, 1)[i];
                        }
                        let at = to_b.add(i as u32 * Self::COLS_B * BK);
                        producer.store_b(at, loaded.1[i], Self::PART_B);
                    }
                    fence_proxy_async();
                    full.add(state.stage).arrive();
                }
                if is_ahead && step + 1 < steps {
                    loaded = (load_a(step + 1), load_b(step + 1, 0, Self::BLOCKS_B));
                }
                state = state.next::<STAGES>();
            }
            if split.count > 1 {
                let (_, counters) = params.workspace(Self::BM * Self::BN);
                // SAFETY: as the launch promises; the consumers come to theirs.
                unsafe { is_last_to_arrive(split.count, counters, tile_number()) };
            }
            return;
        }

        if Self::MOVES_REGISTERS {
            // SAFETY: each of the other warpgroups, with less than that; together they want no more than
            // the block was launched with.
            unsafe { thread::warpgroup_reg_alloc::<184>() };
        }
        let lane = warp::lane_id();
        // SAFETY: the barriers are initialised; one thread of each warp arrives, since a warp that waits for a
        // group knows of its own part in it.
        let release = |stage: u32| unsafe {
            if lane == 0 {
                empty.add(stage).arrive();
            }
        };
        let mut state = State::FIRST;
        let mut before = 0;
        let mut step = 0;
        let mut acc = [0.0f32; SUMS];
        let mut sums = [0.0f32; SUMS];
        loop {
            let stage = smem.add(state.stage * Self::STAGE);
            let a = stage.add(warpgroup * (WM * BK));
            let b = stage.add(Self::PARTS * Self::PART_A);
            let tile = |part: SharedPtr<f32>| Tile::k_major(part.cast());
            // SAFETY: whole warpgroups come here: the loop's condition is the same for their threads, and those
            // that leave a wait or a release earlier are waited for by `wgmma` itself (`.sync`). The stage is
            // full, lies as `Producer` stores it, and stays until it is released, when its groups are done.
            // Nothing touches the sums of `wgmma` before the wait.
            unsafe {
                full.add(state.stage).wait_parity(state.parity);
                if SPLIT {
                    let (a_small, b_small) = (tile(a.add(Self::PART_A)), tile(b.add(Self::PART_B)));
                    acc.multiply_tf32(a_small, tile(b), false);
                    acc.multiply_tf32(tile(a), b_small, true);
                    acc.multiply_tf32(tile(a), tile(b), true);
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
            if split.count > 1 && !Self::reduce(params, split, &mut sums) {
                return;
            }
            // Once more, so that it takes no registers in the loop.
            let tid = black_box(thread::thread_idx_x());
            let (block_row, block_col) = Self::block();
            let row = block_row + tid / 32 * 16 + tid % 32 / 4;
            let col = block_col + tid % 4 * 2;
            Self::store(params.output(), params, row, col, &sums);
        }
    }

    /// Where the block's tile begins, worked out where it is needed: so it takes no registers before.
    #[inline(always)]
    fn block() -> (u32, u32) {
        let (width, height) = (thread::grid_dim_x(), thread::grid_dim_y());
        let (y, x) = swizzle(black_box(tile_number()), width, height);
        (y * Self::BM, x * Self::BN)
    }

    /// The split-K reduction, for the consumers: see [`reduction`](crate::tiles::reduction).
    ///
    /// # Safety
    /// As for the entry points; all consumer threads come here, and all producer threads to
    /// [`is_last_to_arrive`].
    #[inline(always)]
    unsafe fn reduce(params: Params, split: Split, sums: &mut [f32; SUMS]) -> bool {
        let elements = Self::BM * Self::BN;
        let (partials, counters) = params.workspace(elements);
        let first = tile_number() as usize * split.count as usize * elements as usize
            + (thread::thread_idx_x() * QUAD) as usize;
        let place = |of: u32, quad: usize| {
            let offset = of * elements + quad as u32 * (CONSUMERS * WARPGROUP * QUAD);
            partials.wrapping_add(first + offset as usize)
        };
        // SAFETY: room for a tile per block, of which each thread has its own quads; the others' were stored
        // before the last block came.
        unsafe {
            for quad in 0..SUMS / 4 {
                let four = core::array::from_fn(|i| sums[quad * 4 + i]);
                vec::store4_cg(place(split.index, quad), four);
            }
            if !is_last_to_arrive(split.count, counters, tile_number()) {
                return false;
            }
            *sums = [0.0; SUMS];
            let mut of = 0;
            while of < split.count {
                for quad in 0..SUMS / 4 {
                    let four = vec::load4_cg(place(of, quad));
                    for i in 0..4 {
                        sums[quad * 4 + i] += four[i];
                    }
                }
                of += 1;
            }
        }
        true
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
        /// Sums that registers are left for.
        const PART: usize = 8;
        let epilogue = params.epilogue();
        let mut next = 0;
        while next < SUMS / PART {
            // The compiler knows nothing of it: one piece of code for all parts.
            let part = black_box(next as u32) as usize;
            let mut values = [0.0; epilogue::MOST];
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

/// The number of the block's tile of C, for what the blocks of a tile share.
#[inline(always)]
fn tile_number() -> u32 {
    thread::block_idx_y() * thread::grid_dim_x() + thread::block_idx_x()
}

/// A step along K: its stage, and the parity of the phase in which that is full.
#[derive(Clone, Copy)]
struct State {
    stage: u32,
    parity: u32,
}

impl State {
    const FIRST: Self = State { stage: 0, parity: 0 };

    #[inline(always)]
    fn next<const STAGES: u32>(self) -> Self {
        match self.stage + 1 < STAGES {
            true => State { stage: self.stage + 1, ..self },
            false => State { stage: 0, parity: self.parity ^ 1 },
        }
    }
}

/// What a producer thread loads, and where it stores it. A quad is four elements along a row, and becomes 16
/// bytes along K of a line: line l has its chunk c of 16 bytes at chunk `c ^ (l % 8)`.
///
/// Of A eight neighbouring threads have a line. Of B a warp has 16 x 32 elements, and a thread 4 x 4 of them,
/// which it stores transposed: eight threads that store at once have the four chunks of two lines each, which
/// lie in eight different places modulo 128 bytes.
#[derive(Clone, Copy)]
struct Producer<const ALIGNED: bool, const SPLIT: bool> {
    row_a: u32,
    k_a: u32,
    k_b: u32,
    col_b: u32,
}

type BlockB = [F32x4; QUAD as usize];

impl<const ALIGNED: bool, const SPLIT: bool> Producer<ALIGNED, SPLIT> {
    #[inline(always)]
    fn new(thread: u32) -> Self {
        let (warp, lane) = (thread / 32, thread % 32);
        Self {
            row_a: thread / (BK / QUAD),
            k_a: thread % (BK / QUAD) * QUAD,
            k_b: warp % 2 * WARP_K + lane / 2 % 4 * QUAD,
            col_b: warp / 2 * WARP_N + (lane % 2 + lane / 8 * 2) * QUAD,
        }
    }

    /// A quad of A, whose part begins at (row, k).
    ///
    /// # Safety
    /// As for [`Input::get4`].
    #[inline(always)]
    unsafe fn load_a(self, a: Input, row: u32, k: u32) -> F32x4 {
        // SAFETY: the caller's contract.
        unsafe { a.get4::<ALIGNED>(row + self.row_a, k + self.k_a) }
    }

    /// Four quads of B, one below the other.
    ///
    /// # Safety
    /// As for [`Input::get4`].
    #[inline(always)]
    unsafe fn load_b(self, b: Input, k: u32, col: u32) -> BlockB {
        // SAFETY: the caller's contract.
        [0, 1, 2, 3].map(|j| unsafe { b.get4::<ALIGNED>(k + self.k_b + j, col + self.col_b) })
    }

    /// Stores a quad of A, and its `small` so many elements further.
    ///
    /// # Safety
    /// `smem` is where its part of a stage begins, which nobody else reads or writes.
    #[inline(always)]
    unsafe fn store_a(self, smem: SharedPtr<f32>, quad: F32x4, part: u32) {
        let at = self.row_a * BK + (self.k_a ^ self.row_a % 8 * QUAD);
        // SAFETY: the caller's contract; 16 bytes of this thread's.
        unsafe { Self::store(smem.add(at), quad, part) };
    }

    /// The same of four quads of B.
    ///
    /// # Safety
    /// As for [`store_a`](Self::store_a).
    #[inline(always)]
    unsafe fn store_b(self, smem: SharedPtr<f32>, block: BlockB, part: u32) {
        for j in 0..QUAD {
            let col = self.col_b + j;
            let at = col * BK + (self.k_b ^ col % 8 * QUAD);
            // SAFETY: the caller's contract; 16 bytes of this thread's.
            unsafe { Self::store(smem.add(at), block.map(|row| row[j as usize]), part) };
        }
    }

    /// # Safety
    /// Both places are this thread's.
    #[inline(always)]
    unsafe fn store(to: SharedPtr<f32>, quad: F32x4, part: u32) {
        let mut big = quad.map(round_to_tf32);
        if !SPLIT {
            // SAFETY: the caller's contract.
            unsafe { to.store4(0, big) };
            return;
        }
        let mut small: F32x4 = core::array::from_fn(|i| quad[i] - big[i]);
        // Neither finite, nor is their sum, where x is not or `big` overflows.
        if !((small[0] + small[1] + (small[2] + small[3])).abs() < f32::INFINITY) {
            for i in 0..4 {
                let is_finite = quad[i].abs() < f32::INFINITY;
                if is_finite && !(big[i].abs() < f32::INFINITY) {
                    big[i] = f32::from_bits(quad[i].to_bits() & !0x1fff);
                }
                small[i] = if is_finite { quad[i] - big[i] } else { 0.0 };
            }
        }
        // SAFETY: the caller's contract.
        unsafe {
            to.store4(0, big);
            to.add(part).store4(0, small.map(round_to_tf32));
        }
    }
}
