//! What threads have of tiles of TF32: elements of B, which `wgmma` reads in registers, and sums.

use core::array;

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

    /// The elements, as `wgmma` takes them: see [`Accumulator::multiply_tf32_registers`](cuda_std::sm_90a::wgmma::Accumulator::multiply_tf32_registers).
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
