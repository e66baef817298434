//! What threads have of tiles of TF32: elements of B, which `wgmma` reads in registers, and sums.

use core::array;

use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use super::BK;

/// Columns of B in a line of 128 bytes.
pub(super) const PANEL: u32 = 32;

/// The column of C, of a warpgroup's 64, that a thread's sums are in: `half` 0 or 1, for the first and the last
/// eight rows of what `wgmma` calls A.
///
/// If B lies as its transpose, they are the lines of its tile. If not, eight lanes that differ in `lane / 4` load
/// elements of one line, at one step along K, and `lane % 4` is the step. Chunk c of 16 bytes of line k lies at
/// chunk `c ^ (k % 8)`. Four lanes take the four words of a chunk and the other four those of the chunk that is 4
/// further: at four steps they are in eight different chunks, so that all lanes are in different banks.
#[inline(always)]
pub(super) fn column<const TRANS_B: bool>(warp: u32, lane: u32, half: u32) -> u32 {
    if TRANS_B {
        return warp * 16 + half * 8 + lane / 4;
    }
    let (panel, chunk) = (warp / 2, warp % 2 * 2 + half + lane / 16 * 4);
    panel * PANEL + chunk * 4 + lane / 4 % 4
}

/// Of the sums of blocks of eight rows, two rows in two columns of each, those of two neighbours in two rows:
/// four lanes exchange them, so that those which store together have whole sectors.
///
/// # Safety
/// The warp is together.
#[inline(always)]
pub(super) unsafe fn exchange<const PART: usize>(lane: u32, sums: [f32; PART]) -> [f32; PART] {
    // What this lane has of `[near, far]` and what the other one sends, in the order of the lanes.
    let trade = |[near, far]: [f32; 2], mask: u32| {
        let is_far = lane & mask != 0;
        let (keep, send) = if is_far { (far, near) } else { (near, far) };
        // SAFETY: the caller's contract.
        let (bits, _) = unsafe { warp::warp_shuffle_xor(u32::MAX, send.to_bits(), mask, 32) };
        let got = f32::from_bits(bits);
        if is_far { [got, keep] } else { [keep, got] }
    };
    let mut values = [0.0; PART];
    for block in (0..PART).step_by(4) {
        // Of each column two rows become one row of two neighbours.
        let first = trade([sums[block], sums[block + 1]], 4);
        let last = trade([sums[block + 2], sums[block + 3]], 4);
        // Of two such pairs, eight or four columns apart, one, and the other lane's of two rows further.
        for i in 0..2 {
            [values[block + i], values[block + 2 + i]] = trade([first[i], last[i]], 1);
        }
    }
    values
}

/// Where a thread's elements of a warpgroup's tile of B are that has N along its lines.
#[derive(Clone, Copy)]
pub(super) struct FragmentB {
    /// The line of the thread's first step, in elements.
    line: u32,
    /// Where its two columns are, of the steps of the first four of each eight, and of the others.
    near: [u32; 2],
    far: [u32; 2],
}

impl FragmentB {
    #[inline(always)]
    pub(super) fn new(warp: u32, lane: u32) -> Self {
        let step = lane % 4;
        let line = column::<false>(warp, lane, 0) / PANEL * (BK * PANEL) + step * PANEL;
        let at = |half: u32, step: u32| {
            let col = column::<false>(warp, lane, half) % PANEL;
            ((col / 4) ^ step) * 4 + col % 4
        };
        let near = [0, 1].map(|half| at(half, step));
        let far = [0, 1].map(|half| 4 * PANEL + at(half, step + 4));
        Self { line, near, far }
    }

    /// The elements, as `wgmma` takes them: see [`Accumulator::multiply_tf32_registers`].
    ///
    /// # Safety
    /// The tile is there.
    #[inline(always)]
    pub(super) unsafe fn load(self, tile: SharedPtr<f32>) -> [u32; 16] {
        let [near, far] = [self.near, self.far].map(|of| of.map(|at| tile.add(self.line + at)));
        array::from_fn(|i| {
            let from = if i / 2 % 2 == 0 { near[i % 2] } else { far[i % 2] };
            // SAFETY: inside the tile, by the caller's contract.
            let element = unsafe { from.load(i as u32 / 4 * (8 * PANEL)) };
            element.to_bits()
        })
    }
}
