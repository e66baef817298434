//! A thread's elements of B, which `wgmma` reads from registers, and the columns of its sums.

use core::array;

use cuda_std::shared::SharedPtr;

use super::BK;

/// Columns of B in a line of 128 bytes.
pub(super) const PANEL: u32 = 32;

/// The column of a thread's sums, among the warpgroup's 64 columns of C.
///
/// `half` is 0 for the first eight rows of what `wgmma` calls A, and 1 for the last eight.
///
/// If B lies transposed, the columns are the lines of its tile. If not, eight lanes that differ in
/// `lane / 4` load elements of one line, at one step along K, and `lane % 4` is the step. Chunk c
/// of 16 bytes of line k lies at chunk `c ^ (k % 8)`. Four of the eight lanes load the four words
/// of one chunk; the other four load those of the chunk 4 further. At four steps these are eight
/// different chunks, so all lanes are in different banks.
#[inline(always)]
pub(super) fn column<const TRANS_B: bool>(warp: u32, lane: u32, half: u32) -> u32 {
    if TRANS_B {
        return warp * 16 + half * 8 + lane / 4;
    }
    let (panel, chunk) = (warp / 2, warp % 2 * 2 + half + lane / 16 * 4);
    panel * PANEL + chunk * 4 + lane / 4 % 4
}

/// Places of a thread's elements in a warpgroup's tile of B, which has N along its lines.
#[derive(Clone, Copy)]
pub(super) struct FragmentB {
    /// The line of the thread's first step, in elements.
    line: u32,
    /// Places of its two columns: `near` for the first four of each eight steps, `far` for the
    /// others.
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

    /// The elements in the order of
    /// [`Accumulator::multiply_tf32_registers`](cuda_std::sm_90a::wgmma::Accumulator::multiply_tf32_registers).
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
