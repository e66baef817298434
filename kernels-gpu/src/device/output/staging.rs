//! Staging a warp's sums in shared memory, so that the warp stores whole lines of C.

use core::array;

use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use crate::device::output::places::{ColumnBias, Places};

/// Columns of f32 that a warp stages at once, one for each lane.
pub(super) const STAGED_COLS: u32 = 32;
/// Rows of a warp's sums.
pub(super) const ROWS: u32 = 16;
/// A lane's sums of [`STAGED_COLS`] columns.
pub(super) const STAGED_SUMS: usize = (ROWS * STAGED_COLS / 32) as usize;
/// Columns that an epilogue takes at once; below, a lane's sums of them. A larger part waits less,
/// but needs more code and registers.
pub(super) const PART_COLS: u32 = 64;
pub(super) const PART: usize = (ROWS * PART_COLS / 32) as usize;
/// Elements of shared memory that a warp stages its sums in.
pub const STAGING: u32 = ROWS * STAGED_COLS;

const _: () = assert!(PART == 2 * STAGED_SUMS, "in f32 a part is staged in two halves");

/// Where an output is staged, in elements.
///
/// Eight lanes per row store at once, in four rows. The columns are swizzled, so that they are in
/// different banks.
#[inline(always)]
pub(super) fn staged(row: u32, col: u32) -> u32 {
    row * STAGED_COLS + (col ^ (row % 4 * 8))
}

/// The places of a lane's sums; (`row`, `col`) is the first.
#[derive(Clone, Copy)]
pub(super) struct Fragment {
    pub(super) row: u32,
    pub(super) col: u32,
}

impl Places for Fragment {
    const SHARED: bool = true;

    #[inline(always)]
    fn at(self, i: usize) -> (u32, u32) {
        let i = i as u32;
        (self.row + i / 2 % 2 * 8, self.col + i / 4 * 8 + i % 2)
    }

    #[inline(always)]
    fn again(self) -> Self {
        Self { row: black_box(self.row), col: black_box(self.col) }
    }

    #[inline(always)]
    fn first(self, i: usize) -> (usize, usize) {
        (i & 2, i & !2)
    }
}

/// The places of a lane's outputs of a part: four neighbours in every fourth row.
///
/// Eight lanes store 32 columns of a row.
#[derive(Clone, Copy)]
pub(super) struct StagedQuads<B> {
    /// Of the first output.
    pub(super) row: u32,
    pub(super) col: u32,
    /// The first row and column that are outside.
    pub(super) end: [u32; 2],
    /// The number of the first four neighbours in the tile's row, counted in fours.
    pub(super) quad: u32,
    pub(super) bias: B,
}

impl<B: Copy> StagedQuads<B> {
    fn quad(self, i: usize) -> (u32, u32) {
        let quad = i as u32 / 4;
        (self.row + quad % 4 * 4, self.col + quad / 4 * STAGED_COLS)
    }

    /// Whether an output is inside.
    #[inline(always)]
    pub(super) fn is_inside(self, i: usize) -> bool {
        let ((row, col), [rows, cols]) = (self.quad(i), self.end);
        row < rows && col < cols
    }
}

impl<B: ColumnBias> Places for StagedQuads<B> {
    const RUN: usize = 4;
    const SHARED: bool = true;
    const HAS_COLUMN_BIAS: bool = B::EXISTS;
    const ALIGNED: bool = true;

    #[inline(always)]
    fn at(self, i: usize) -> (u32, u32) {
        let ((row, col), [rows, cols]) = (self.quad(i), self.end);
        // What is outside reads for the first, which is this lane's own, and is not stored.
        let row = if row < rows { row } else { self.row };
        let col = if col < cols { col } else { self.col };
        (row, col + i as u32 % 4)
    }

    #[inline(always)]
    fn again(self) -> Self {
        Self { row: black_box(self.row), col: black_box(self.col), ..self }
    }

    #[inline(always)]
    fn first(self, i: usize) -> (usize, usize) {
        (i % STAGED_SUMS / 4 * 4, i / STAGED_SUMS * STAGED_SUMS + i % 4)
    }

    #[inline(always)]
    unsafe fn column_bias(self, i: usize) -> F32x4 {
        let quad = self.quad as usize + i / STAGED_SUMS * (STAGED_COLS / 4) as usize;
        // SAFETY: the caller's contract.
        unsafe { self.bias.of_quad(quad) }
    }
}

/// Stages a lane's sums of 32 columns, together with its warp.
///
/// # Safety
/// A whole warp calls this together, with its own `staging`, which all have read.
#[inline(always)]
pub(super) unsafe fn stage(staging: SharedPtr<f32>, lane: u32, sums: impl Fn(usize) -> f32) {
    let within = Fragment { row: lane / 4, col: lane % 4 * 2 };
    // SAFETY: the warp's own memory, on 8 bytes; the warp is together.
    unsafe {
        for i in (0..STAGED_SUMS).step_by(2) {
            let (down, right) = within.at(i);
            staging.store_vec(staged(down, right), [sums(i), sums(i + 1)]);
        }
        warp::sync_warp(u32::MAX);
    }
}

/// This lane's quads of what was staged: four neighbours in every fourth row.
///
/// # Safety
/// A whole warp calls this together, behind [`stage`].
#[inline(always)]
pub(super) unsafe fn staged_quads(staging: SharedPtr<f32>, lane: u32) -> [F32x4; 4] {
    let (down, right) = (lane / 8, lane % 8 * 4);
    // SAFETY: the warp's own memory, on 16 bytes; the warp is together.
    unsafe {
        let quads = [0, 4, 8, 12].map(|i| staging.load_vec(staged(i + down, right)));
        warp::sync_warp(u32::MAX);
        quads
    }
}

/// A lane's sums of a part, if `sums` of them lie side by side.
pub(super) const fn width(sums: usize) -> usize {
    if sums.is_multiple_of(PART) { PART } else { STAGED_SUMS }
}

/// Accumulators of a part, selected by a run-time index.
///
/// Registers have no addresses, so each part has its own moves behind a jump.
#[inline(always)]
pub(super) fn sums_of_part<const SUMS: usize, const COUNT: usize>(
    acc: &[[f32; SUMS]; COUNT],
    part: u32,
) -> [f32; PART] {
    const { assert!(COUNT * SUMS <= 7 * width(SUMS), "there are no more arms below") };
    let sums = |i: usize| {
        // There may be fewer parts than arms.
        let i = i * width(SUMS) % (COUNT * SUMS);
        let mut sums: [f32; PART] =
            array::from_fn(|j| if j < width(SUMS) { acc[i / SUMS][i % SUMS + j] } else { 0.0 });
        // A value behind a jump must not be computed ahead.
        sums[0] = f32::from_bits(black_box(sums[0].to_bits()));
        sums
    };
    match part {
        0 => sums(0),
        1 => sums(1),
        2 => sums(2),
        // Only some have more.
        4 if COUNT * SUMS > 4 * width(SUMS) => sums(4),
        5 if COUNT * SUMS > 5 * width(SUMS) => sums(5),
        6 if COUNT * SUMS > 6 * width(SUMS) => sums(6),
        _ => sums(3),
    }
}
