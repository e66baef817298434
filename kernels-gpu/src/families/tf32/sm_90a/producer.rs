//! Producer warpgroups: global memory to registers, where f32 becomes TF32, to shared memory.

use cuda_std::hint::black_box;
use cuda_std::mbarrier::Mbarrier;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::tma::fence_proxy_async;
use cuda_std::vec;

use super::BK;
use crate::device::operand::input::Input;
use crate::families::tf32::rounding::{nearest, rounded, split};

/// Threads that produce a step: a warpgroup.
pub const THREADS: u32 = 128;
/// Producer warpgroups.
pub const PRODUCERS: u32 = 2;
/// Rows of A from one of a thread's quads to the next.
const ROWS_A: u32 = THREADS / (BK / QUAD);
/// Columns of B from one of a thread's blocks to the next.
const COLS_B: u32 = THREADS / 32 / (BK / WARP_K) * WARP_N;
/// Elements that a thread loads or stores at once.
const QUAD: u32 = 4;
/// Columns of B, and steps along K, that a warp loads at once.
const WARP_N: u32 = 32;
const WARP_K: u32 = 16;

/// Four quads of B, one below the other.
type BlockB = [F32x4; QUAD as usize];

/// Places of the quads that a producer thread loads and stores.
///
/// A quad is four elements along a row. It becomes 16 bytes along K of a line: chunk c of 16 bytes
/// of line l lies at chunk `c ^ (l % 8)`.
///
/// Eight neighbouring threads load 128 bytes of a row, of A and of B. A warp has 16 x 32 elements
/// of B, and a thread 4 x 4, which it stores transposed, a column at a time. The first column is
/// `first`, so that eight threads that store at once have chunks in eight different places modulo
/// 128 bytes.
#[derive(Clone, Copy)]
pub struct Lane {
    row_a: u32,
    k_a: u32,
    k_b: u32,
    col_b: u32,
    first: u32,
}

impl Lane {
    /// The places of thread `thread` of the warpgroup.
    #[inline(always)]
    pub fn new(thread: u32) -> Self {
        let (warp, lane) = (thread / 32, thread % 32);
        Self {
            row_a: thread / (BK / QUAD),
            k_a: thread % (BK / QUAD) * QUAD,
            k_b: warp % 2 * WARP_K + lane / 8 * QUAD,
            col_b: warp / 2 * WARP_N + lane % 8 * QUAD,
            first: lane / 2 % 4,
        }
    }
}

/// A producer thread, with `QUADS_A` quads of A and `BLOCKS_B` blocks of B per step.
///
/// `SPLIT` means that numbers are stored in two parts.
pub struct Producer<
    const QUADS_A: usize,
    const BLOCKS_B: usize,
    const STAGES: u32,
    const SPLIT: bool,
    const ALIGNED: bool,
> {
    pub a: Input,
    pub b: Input,
    pub lane: Lane,
    /// The first row, the first k and the first column.
    pub row: u32,
    pub k: u32,
    pub col: u32,
    /// Whether all of the block's rows and columns are in bounds.
    pub is_interior: bool,
    /// K.
    pub end: u32,
    /// Steps along K.
    pub steps: u32,
    pub smem: SharedPtr<f32>,
    pub full: Mbarrier,
    pub empty: Mbarrier,
}

impl<
    const QUADS_A: usize,
    const BLOCKS_B: usize,
    const STAGES: u32,
    const SPLIT: bool,
    const ALIGNED: bool,
> Producer<QUADS_A, BLOCKS_B, STAGES, SPLIT, ALIGNED>
{
    const PARTS: u32 = if SPLIT { 2 } else { 1 };
    /// Elements of a part of a stage.
    const PART_A: u32 = QUADS_A as u32 * ROWS_A * BK;
    const PART_B: u32 = BLOCKS_B as u32 * COLS_B * BK;

    /// Fills the stages of steps `index`, `index + 2` and so on; the other producer warpgroup fills
    /// the rest.
    ///
    /// Its next step is in flight while the other warpgroup stores.
    ///
    /// # Safety
    /// All threads of a warpgroup call this, with matrices as the launch promises, and one step or
    /// more.
    #[inline(always)]
    pub unsafe fn produce(&self, index: u32) {
        // SAFETY: the caller's contract.
        unsafe {
            let last = self.steps - 1;
            let mut step = index;
            if !ALIGNED {
                while step <= last {
                    self.store(step, None);
                    step += PRODUCERS;
                }
                return;
            }
            // Past the end the last step is loaded again, so that no branch goes around the loads.
            let mut next = self.load(step.min(last));
            while step <= last {
                self.store(step, Some(next));
                step += PRODUCERS;
                next = self.load(step.min(last));
            }
        }
    }

    /// The first k, row and column of a step. Recomputed at each use, so that no offset takes
    /// registers.
    #[inline(always)]
    fn at(&self, step: u32) -> (u32, u32, u32) {
        (black_box(self.k + step * BK), black_box(self.row), black_box(self.col))
    }

    /// Loads this thread's elements of a step, with zeros out of bounds.
    ///
    /// # Safety
    /// The matrices are as the launch promises.
    #[inline(always)]
    unsafe fn load(&self, step: u32) -> ([F32x4; QUADS_A], [BlockB; BLOCKS_B]) {
        let mut quads = [[0.0; 4]; QUADS_A];
        let mut blocks = [[[0.0; 4]; QUAD as usize]; BLOCKS_B];
        let (k, row, col) = self.at(step);
        // SAFETY: inside, and aligned; or the caller's contract.
        unsafe {
            if ALIGNED && self.is_interior && k + BK <= self.end {
                let mut from = self.a.address(row + self.lane.row_a, k + self.lane.k_a);
                for quad in &mut quads {
                    *quad = vec::load4(from);
                    from = from.wrapping_add(self.a.step(ROWS_A));
                }
                let mut from = self.b.address(k + self.lane.k_b, col + self.lane.col_b);
                for j in 0..QUAD as usize {
                    for i in 0..BLOCKS_B {
                        blocks[i][j] = vec::load4(from.wrapping_add(i * COLS_B as usize));
                    }
                    from = from.wrapping_add(self.b.step(1));
                }
            } else {
                for i in 0..QUADS_A {
                    quads[i] = self.load_a(k, row + i as u32 * ROWS_A);
                }
                for i in 0..BLOCKS_B {
                    blocks[i] = self.load_b(k, col + i as u32 * COLS_B);
                }
            }
        }
        (quads, blocks)
    }

    /// # Safety
    /// As for [`Input::get4`].
    #[inline(always)]
    unsafe fn load_a(&self, k: u32, row: u32) -> F32x4 {
        // SAFETY: the caller's contract.
        unsafe { self.a.get4::<ALIGNED>(row + self.lane.row_a, k + self.lane.k_a) }
    }

    /// # Safety
    /// As for [`Input::get4`].
    #[inline(always)]
    unsafe fn load_b(&self, k: u32, col: u32) -> BlockB {
        let Lane { k_b, col_b, .. } = self.lane;
        // SAFETY: the caller's contract.
        [0, 1, 2, 3].map(|j| unsafe { self.b.get4::<ALIGNED>(k + k_b + j, col + col_b) })
    }

    /// Stores a step to its stage; loads it now unless `loaded`.
    ///
    /// # Safety
    /// As for [`produce`](Self::produce).
    #[inline(always)]
    unsafe fn store(&self, step: u32, loaded: Option<([F32x4; QUADS_A], [BlockB; BLOCKS_B])>) {
        let (stage, parity) = (step % STAGES, step / STAGES % 2);
        let to_a = self.smem.add(stage * (Self::PARTS * (Self::PART_A + Self::PART_B)));
        let to_b = to_a.add(Self::PARTS * Self::PART_A);
        let mut check = [0.0; 4];
        // SAFETY: the consumers have said that the `wgmma` that read the stage are done. Each
        // producer thread has its own places there, and orders its stores before the next `wgmma`.
        unsafe {
            self.empty.add(stage).wait_parity(parity ^ 1);
            if let Some((quads, blocks)) = loaded {
                for i in 0..QUADS_A {
                    self.store_a::<false>(to_a.add(i as u32 * ROWS_A * BK), quads[i], &mut check);
                }
                for i in 0..BLOCKS_B {
                    self.store_b::<false>(to_b.add(i as u32 * COLS_B * BK), blocks[i], &mut check);
                }
            }
            // Numbers that are not finite are rare. So everything is loaded again, and takes no
            // registers meanwhile.
            let check = check[0] + check[1] + (check[2] + check[3]);
            if loaded.is_none() || !check.is_finite() {
                let (k, row, col) = self.at(step);
                let mut i = 0;
                while i < QUADS_A as u32 {
                    i = black_box(i);
                    let quad = self.load_a(k, row + i * ROWS_A);
                    self.store_a::<true>(to_a.add(i * ROWS_A * BK), quad, &mut [0.0; 4]);
                    i += 1;
                }
                i = 0;
                while i < BLOCKS_B as u32 {
                    i = black_box(i);
                    let block = self.load_b(k, col + i * COLS_B);
                    self.store_b::<true>(to_b.add(i * COLS_B * BK), block, &mut [0.0; 4]);
                    i += 1;
                }
            }
            fence_proxy_async();
            self.full.add(stage).arrive();
        }
    }

    /// Stores a quad of A, and its `small`.
    ///
    /// # Safety
    /// `smem` is where its part of a stage begins, which nobody else reads or writes.
    #[inline(always)]
    unsafe fn store_a<const CAREFUL: bool>(
        &self,
        smem: SharedPtr<f32>,
        quad: F32x4,
        check: &mut F32x4,
    ) {
        let Lane { row_a, k_a, .. } = self.lane;
        let at = row_a * BK + (k_a ^ (row_a % 8 * QUAD));
        // SAFETY: the caller's contract; 16 bytes of this thread's.
        unsafe { store_quad::<SPLIT, CAREFUL>(smem.add(at), Self::PART_A, quad, check) };
    }

    /// Stores four quads of B, transposed, and their `small`.
    ///
    /// # Safety
    /// As for [`store_a`](Self::store_a).
    #[inline(always)]
    unsafe fn store_b<const CAREFUL: bool>(
        &self,
        smem: SharedPtr<f32>,
        block: BlockB,
        check: &mut F32x4,
    ) {
        let Lane { k_b, col_b, first, .. } = self.lane;
        // Sorted so that column `j ^ first` becomes column j.
        let block = block.map(|row| {
            let [a, b, c, d] = row;
            let [a, b, c, d] = if first & 1 == 0 { row } else { [b, a, d, c] };
            if first & 2 == 0 { [a, b, c, d] } else { [c, d, a, b] }
        });
        for j in 0..QUAD {
            let col = col_b + (j ^ first);
            let at = col * BK + (k_b ^ (col % 8 * QUAD));
            let quad = block.map(|row| row[j as usize]);
            // SAFETY: the caller's contract; 16 bytes of this thread's.
            unsafe { store_quad::<SPLIT, CAREFUL>(smem.add(at), Self::PART_B, quad, check) };
        }
    }
}

/// Stores four numbers as TF32, whose last 13 bits `wgmma` ignores.
///
/// With `SPLIT`, their `small` goes `part` elements further. Unless `CAREFUL`, what is added to
/// `check` is infinite or NaN if a number may not be finite or may overflow. Then the numbers may
/// be stored wrong.
///
/// # Safety
/// Both places are this thread's.
#[inline(always)]
unsafe fn store_quad<const SPLIT: bool, const CAREFUL: bool>(
    to: SharedPtr<f32>,
    part: u32,
    quad: F32x4,
    check: &mut F32x4,
) {
    if !SPLIT {
        for i in 0..4 {
            check[i] += quad[i];
        }
        // SAFETY: the caller's contract.
        unsafe { to.store4(0, quad.map(nearest::<CAREFUL>)) };
        return;
    }
    let mut big = quad.map(rounded::<CAREFUL>);
    let mut small = [0.0; 4];
    for i in 0..4 {
        [big[i], small[i]] = split::<CAREFUL>(quad[i], big[i], &mut check[i]);
    }
    // SAFETY: the caller's contract.
    unsafe {
        to.store4(0, big);
        to.add(part).store4(0, small);
    }
}
