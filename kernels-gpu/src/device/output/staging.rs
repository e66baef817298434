//! Staging in shared memory, between a warp's fragments and whole lines of matrices: of sums, and
//! of what is added to them.

use core::array;

use cuda_std::hint::black_box;
use cuda_std::mem::prefetch_l2;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::vec;

use crate::device::output::epilogue::Residual;
use crate::device::output::matrix::Output;
use crate::device::output::places::{FragmentBias, Places};
use crate::device::output::source::Source;
use crate::device::output::tensor::TensorOutput;

/// Columns of f32 that a warp stages at once, one for each lane.
pub(super) const STAGED_COLS: u32 = 32;
/// Rows of a warp's sums.
pub(super) const ROWS: u32 = 16;
/// A lane's sums of [`STAGED_COLS`] columns.
pub(crate) const STAGED_SUMS: usize = (ROWS * STAGED_COLS / 32) as usize;
/// The most sums of a lane that an epilogue takes at once, of 64 columns. More wait less, but need
/// more code and registers.
pub(super) const PART: usize = 2 * STAGED_SUMS;
/// Elements of shared memory that a warp stages its sums in.
pub const STAGING: u32 = ROWS * STAGED_COLS;

/// The places of a lane's sums; (`row`, `col`) is the first.
#[derive(Clone, Copy)]
pub(super) struct Fragment {
    pub(super) row: u32,
    pub(super) col: u32,
}

impl Fragment {
    /// Those of a lane, if its warp's begin at (0, 0).
    #[inline(always)]
    pub(super) fn of_lane(lane: u32) -> Self {
        Self { row: lane / 4, col: lane % 4 * 2 }
    }

    /// These places, `below` rows down and `beside` columns right.
    #[inline(always)]
    pub(super) fn moved(self, [below, beside]: [u32; 2]) -> Self {
        Self { row: self.row + below, col: self.col + beside }
    }
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

/// The places of a lane's sums, and the bias from the first one's column on.
#[derive(Clone, Copy)]
pub(super) struct Biased<B> {
    pub(super) places: Fragment,
    pub(super) bias: B,
}

impl<B: FragmentBias> Places for Biased<B> {
    const SHARED: bool = true;
    const HAS_COLUMN_BIAS: bool = B::EXISTS;

    #[inline(always)]
    fn at(self, i: usize) -> (u32, u32) {
        self.places.at(i)
    }

    #[inline(always)]
    fn again(self) -> Self {
        Self { places: self.places.again(), ..self }
    }

    #[inline(always)]
    fn first(self, i: usize) -> (usize, usize) {
        self.places.first(i)
    }

    #[inline(always)]
    unsafe fn column_bias(self, i: usize) -> F32x4 {
        // SAFETY: the caller's contract. Of four sums, two lie below the others.
        let [one, other] = unsafe { self.bias.of_pair(i as u32 / 4 * 8) };
        [one, other, one, other]
    }
}

/// A warp's pairs of 16 bits, staged in shared memory: 16 rows of `VECTORS` vectors of 16 bytes.
///
/// They are swizzled, so that lanes which store pairs at once, or load vectors, are in different
/// banks.
#[derive(Clone, Copy)]
pub(super) struct Pairs<const VECTORS: u32> {
    pub(super) staging: SharedPtr<u32>,
    pub(super) lane: u32,
}

impl<const VECTORS: u32> Pairs<VECTORS> {
    /// Rows that a warp loads or stores at once.
    pub(super) const ROWS_AT_ONCE: u32 = 32 / VECTORS;
    /// Vectors of a lane.
    pub(super) const EACH: u32 = ROWS / Self::ROWS_AT_ONCE;

    #[inline(always)]
    fn at(row: u32, vector: u32) -> u32 {
        let line = row * VECTORS / 8;
        row * VECTORS * 4 + (vector ^ (line % VECTORS)) * 4
    }

    /// Where the lane's `i`-th pair lies, as `wgmma` leaves its sums.
    #[inline(always)]
    pub(super) fn of_pair(self, i: u32) -> u32 {
        Self::at(self.lane / 4 + i % 2 * 8, i / 2) + self.lane % 4
    }

    /// Where the lane's `i`-th vector lies, `i` times [`Self::ROWS_AT_ONCE`] below its first.
    #[inline(always)]
    pub(super) fn of_vector(self, i: u32) -> u32 {
        Self::at(i * Self::ROWS_AT_ONCE + self.lane / VECTORS, self.lane % VECTORS)
    }

    /// The row and the column of the lane's first vector, if those of the warp begin here.
    #[inline(always)]
    pub(super) fn first(self, [row, col]: [u32; 2]) -> (u32, u32) {
        (row + self.lane / VECTORS, col + self.lane % VECTORS * 8)
    }
}

/// A warp's pairs of 16 bits as lines of a transposed C: of 16 elements, which are two vectors.
#[derive(Clone, Copy)]
pub(super) struct PairsAcross {
    pub(super) lane: u32,
}

impl PairsAcross {
    /// Where a vector of a line lies. Lines are swizzled, as those of [`Pairs`].
    #[inline(always)]
    pub(super) fn at(line: u32, vector: u32) -> u32 {
        line * 8 + (vector ^ (line / 4 % 2)) * 4
    }

    /// The lane's `i`-th pair, of two columns, becomes a pair of two rows of one of these columns.
    ///
    /// # Safety
    /// A whole warp calls this together.
    #[inline(always)]
    pub(super) unsafe fn exchange(self, pair: u32) -> u32 {
        // SAFETY: the caller's contract.
        let other = unsafe { warp::warp_shuffle_xor(u32::MAX, pair, 4, 32) }.0;
        match self.lane / 4 % 2 {
            0 => pair & 0xffff | other << 16,
            _ => other >> 16 | pair & 0xffff_0000,
        }
    }

    /// Where the lane's `i`-th pair lies, once it is [exchanged](Self::exchange).
    #[inline(always)]
    pub(super) fn of_pair(self, i: u32) -> u32 {
        let line = i / 2 * 8 + self.lane % 4 * 2 + self.lane / 4 % 2;
        Self::at(line, i % 2) + self.lane / 8
    }
}

/// A part of a warp's sums in C: four quads of each lane, each four neighbours in a row of C.
///
/// The part is [`ROWS`] rows of a tile by [`STAGED_COLS`] columns, or the transpose of them.
#[derive(Clone, Copy)]
pub(super) struct Quads {
    pub(super) lane: u32,
    pub(super) transposed: bool,
}

impl Quads {
    /// The row and the column of the lane's quad number `i` in the part.
    #[inline(always)]
    pub(super) fn place(self, i: u32) -> (u32, u32) {
        match self.transposed {
            true => (self.lane / 4 + i * 8, self.lane % 4 * 4),
            false => (self.lane / 8 + i * 4, self.lane % 8 * 4),
        }
    }

    /// The row and the column of element `i` of the part, in the order of C.
    #[inline(always)]
    pub(super) fn element(self, i: u32) -> (u32, u32) {
        let cols = if self.transposed { ROWS } else { STAGED_COLS };
        (i / cols, i % cols)
    }

    /// Where an element of the part is staged. Columns are swizzled, so that lanes that store or
    /// load at once are in different banks.
    #[inline(always)]
    pub(super) fn at(self, row: u32, col: u32) -> u32 {
        match self.transposed {
            true => row * ROWS + (col ^ (row / 2 % 4 * 4)),
            false => row * STAGED_COLS + (col ^ (row % 4 * 8)),
        }
    }

    /// Where the lane's `i`-th sum, as `wgmma` leaves it, and the next one are staged, if C is not
    /// transposed.
    #[inline(always)]
    fn of_sum(self, i: usize) -> u32 {
        let (row, col) = Fragment::of_lane(self.lane).at(i);
        self.at(row, col)
    }

    /// Stages a lane's sums as `wgmma` leaves them, together with its warp.
    ///
    /// # Safety
    /// A whole warp calls this together, with its own `staging`, which all have read.
    #[inline(always)]
    pub(super) unsafe fn stage(self, staging: SharedPtr<f32>, sums: [f32; STAGED_SUMS]) {
        let first = Fragment::of_lane(self.lane);
        // SAFETY: the warp's own memory, on 8 bytes; the warp is together.
        unsafe {
            for i in (0..STAGED_SUMS).step_by(2) {
                let (row, col) = first.at(i);
                if self.transposed {
                    staging.store(self.at(col, row), sums[i]);
                    staging.store(self.at(col + 1, row), sums[i + 1]);
                } else {
                    staging.store_vec(self.of_sum(i), [sums[i], sums[i + 1]]);
                }
            }
            warp::sync_warp(u32::MAX);
        }
    }

    /// This lane's quads of what was staged.
    ///
    /// # Safety
    /// A whole warp calls this together, behind [`stage`](Self::stage).
    #[inline(always)]
    pub(super) unsafe fn load(self, staging: SharedPtr<f32>) -> [F32x4; 4] {
        // SAFETY: the warp's own memory, on 16 bytes; the warp is together.
        unsafe {
            let quads = [0, 1, 2, 3].map(|i| {
                let (row, col) = self.place(i);
                staging.load_vec(self.at(row, col))
            });
            warp::sync_warp(u32::MAX);
            quads
        }
    }
}

/// C before the launch, and a residual, for the sums of a part as `wgmma` leaves them.
#[derive(Clone, Copy)]
pub(super) struct StagedSource<const F16: bool> {
    pub(super) output: TensorOutput<F16>,
    /// Whether C is vectors of 16 bytes, each inside or outside.
    pub(super) is_aligned: bool,
    /// The row and the column of the warp's first sum.
    pub(super) at: [u32; 2],
    pub(super) lane: u32,
    /// The warp's own memory, which all have read.
    pub(super) staging: SharedPtr<f32>,
}

impl<const F16: bool> StagedSource<F16> {
    /// The sums' elements of a matrix of 16 bits, in pairs.
    ///
    /// # Safety
    /// C is aligned and can be read. The warp is together.
    #[inline(always)]
    unsafe fn pairs<const VECTORS: u32>(self) -> [u32; PART / 2] {
        let Output { pointer, ld, rows, cols, .. } = self.output.c;
        let staged = Pairs::<VECTORS> { staging: self.staging.cast(), lane: self.lane };
        let (row, col) = staged.first(self.at);
        let from = pointer.cast::<u16>().wrapping_add(self.output.offset(row, col));
        // SAFETY: the caller's contract. What is outside is not read.
        unsafe {
            let mut vectors = [[0; 4]; 4];
            for i in 0..Pairs::<VECTORS>::EACH {
                let down = i * Pairs::<VECTORS>::ROWS_AT_ONCE;
                if row + down < rows && col < cols {
                    let from = from.wrapping_add(down as usize * ld as usize);
                    vectors[i as usize] = vec::load::<u32, 4>(from.cast());
                }
            }
            for i in 0..Pairs::<VECTORS>::EACH {
                staged.staging.store_vec(staged.of_vector(i), vectors[i as usize]);
            }
            warp::sync_warp(u32::MAX);
            array::from_fn(|i| match (i as u32) < 2 * VECTORS {
                true => staged.staging.load(staged.of_pair(i as u32)),
                false => 0,
            })
        }
    }

    /// Adds beta times a C of 16 bits to `count` sums, of 32 or 64 columns.
    ///
    /// Each lane has then read the staging only where [`Pairs::of_pair`] has its own pairs.
    ///
    /// # Safety
    /// As for [`pairs`](Self::pairs).
    #[inline(always)]
    pub(super) unsafe fn add_old<const N: usize>(
        self,
        beta: f32,
        count: usize,
        values: &mut [f32; N],
    ) {
        // SAFETY: the caller's contract.
        let pairs = unsafe {
            match count {
                PART => self.pairs::<8>(),
                _ => self.pairs::<4>(),
            }
        };
        for i in 0..count {
            let bits = (pairs[i / 2] >> (i % 2 * 16)) as u16;
            values[i] = fma(beta, TensorOutput::<F16>::widen(bits), values[i]);
        }
    }

    /// Adds a matrix of f32, times a factor, to `count` sums.
    ///
    /// # Safety
    /// It has C's shape, is aligned as C is, and can be read. The warp is together.
    #[inline(always)]
    unsafe fn add_floats<const N: usize>(
        self,
        (matrix, ld): (*const f32, u32),
        factor: f32,
        count: usize,
        values: &mut [f32; N],
    ) {
        let (down, right) = (self.lane / 8, self.lane % 8 * 4);
        let (row, col) = (self.at[0] + down, self.at[1] + right);
        let from = matrix.wrapping_add(row as usize * ld as usize + col as usize);
        let Output { rows, cols, .. } = self.output.c;
        // All loads are in flight before the first is used.
        let mut quads = [[0.0; 4]; PART / 4];
        for i in 0..count / 4 {
            let (below, beside) = (i as u32 % 4 * 4, i as u32 / 4 * STAGED_COLS);
            if row + below < rows && col + beside < cols {
                let at = below as usize * ld as usize + beside as usize;
                // SAFETY: inside, on 16 bytes.
                quads[i] = unsafe { vec::load4(from.wrapping_add(at)) };
            }
        }
        for first in (0..count).step_by(STAGED_SUMS) {
            // SAFETY: the warp's own memory, on 16 bytes; the warp is together.
            unsafe {
                let staged = Quads { lane: self.lane, transposed: false };
                for i in 0..STAGED_SUMS / 4 {
                    let at = staged.at(down + 4 * i as u32, right);
                    self.staging.store_vec(at, quads[first / 4 + i]);
                }
                warp::sync_warp(u32::MAX);
                for i in (0..STAGED_SUMS).step_by(2) {
                    let pair: [f32; 2] = self.staging.load_vec(staged.of_sum(i));
                    for next in 0..2 {
                        let value = &mut values[first + i + next];
                        *value = fma(factor, pair[next], *value);
                    }
                }
                warp::sync_warp(u32::MAX);
            }
        }
    }
}

impl<const F16: bool> Source for StagedSource<F16> {
    #[inline(always)]
    unsafe fn add<P: Places, const N: usize>(
        self,
        c: Output,
        beta: f32,
        count: usize,
        places: P,
        values: &mut [f32; N],
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            match (self.is_aligned, self.output.is_half) {
                (false, _) => self.output.add(c, beta, count, places, values),
                (true, false) => self.add_floats((c.pointer, c.ld), beta, count, values),
                (true, true) => {
                    self.add_old(beta, count, values);
                    // A residual is staged in another order.
                    warp::sync_warp(u32::MAX);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn add_residual<P: Places, const N: usize>(
        self,
        c: Output,
        residual: Residual,
        count: usize,
        places: P,
        values: &mut [f32; N],
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            if self.is_aligned && self.output.epilogue.has_aligned_residual() {
                self.add_floats((residual.elements, residual.ld), 1.0, count, values);
            } else {
                c.visit(residual, count, places, values);
            }
        }
    }
}

impl<const F16: bool> TensorOutput<F16> {
    /// Whether the old C is read.
    #[inline(always)]
    pub fn has_old(self) -> bool {
        self.c.beta != 0.0
    }

    /// Prefetches to L2 what is read of the old C for a warp's sums: [`ROWS`] rows by `cols` columns,
    /// from (row, col) on. Rows that do not begin on 128 bytes may lack their last line.
    ///
    /// # Safety
    /// C can be read, as the launch promises. A whole warp calls this together.
    #[inline(always)]
    pub unsafe fn prefetch_old(self, [row, col]: [u32; 2], cols: u32) {
        let bytes = if self.is_half { 2 } else { 4 };
        // Elements of a line.
        let line = 128 / bytes;
        let lines = cols.div_ceil(line);
        for i in (black_box(warp::lane_id())..ROWS * lines).step_by(32) {
            let (row, col) = (row + i / lines, col + i % lines * line);
            if row < self.c.rows && col < self.c.cols {
                let offset = self.offset(row, col) * bytes as usize;
                // SAFETY: inside.
                unsafe { prefetch_l2(self.c.pointer.cast::<u8>().wrapping_add(offset)) };
            }
        }
    }
}

/// Accumulators of a part of `width`, selected by a run-time index.
///
/// Registers have no addresses, so each part has its own moves behind a jump.
#[inline(always)]
pub(crate) fn sums_of_part<const SUMS: usize, const COUNT: usize>(
    acc: &[[f32; SUMS]; COUNT],
    width: usize,
    part: u32,
) -> [f32; PART] {
    const { assert!(COUNT * SUMS <= 8 * STAGED_SUMS, "there are no more arms below") };
    let sums = |i: usize| {
        // There may be fewer parts than arms.
        let i = i * width % (COUNT * SUMS);
        let mut sums: [f32; PART] =
            array::from_fn(|j| if j < width { acc[i / SUMS][i % SUMS + j] } else { 0.0 });
        // A value behind a jump must not be computed ahead.
        sums[0] = f32::from_bits(black_box(sums[0].to_bits()));
        sums
    };
    let is_arm = |part: usize| COUNT * SUMS > part * width;
    match part {
        0 => sums(0),
        1 => sums(1),
        2 => sums(2),
        // Only some have more.
        4 if is_arm(4) => sums(4),
        5 if is_arm(5) => sums(5),
        6 if is_arm(6) => sums(6),
        7 if is_arm(7) => sums(7),
        _ => sums(3),
    }
}
