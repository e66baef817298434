//! C of the kernels for tensor cores: in f32, or in 16 bits like A and B, with an epilogue.
//!
//! `wgmma` leaves a warp's sums such that four lanes have 32 bytes of a row in f32, and 16 in 16 bits. They go through shared memory, 16 rows by
//! 32 or 64 columns at a time, so that a warp stores whole lines: by vectors of 16 bytes where rows begin on these, and otherwise, and at edges,
//! one element per lane. Where there is an epilogue, or C is read, [`PART`] sums at a time are moved to the same registers, so that the epilogue
//! is in the code once for each of two ways. Where all that it reads are vectors of four elements, it comes behind the staging: a lane has four neighbours of
//! every fourth row, which it reads and stores as such vectors (of 8 bytes, if C is of 16 bits). Otherwise it comes before, on the sums as `wgmma` leaves them, and one element per lane is stored.

mod tile;

use core::array;

use cuda_std::half::{Half, bf16, bf16x2, f16, f16x2};
use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::{cp_async, vec};

use crate::epilogue::{ColumnBias, OUTPUTS_AT_ONCE, Parameters, Places, Source, SourceOf};
use crate::matrix::Output;

pub use self::tile::tile_bytes;

/// Columns of f32 that a warp stages at once, one for each lane.
const STAGED_COLS: u32 = 32;
/// Rows of a warp's sums.
const ROWS: u32 = 16;
/// A lane's sums of as many columns.
const STAGED_SUMS: usize = (ROWS * STAGED_COLS / 32) as usize;
/// Columns that an epilogue takes at once, and a lane's sums of them: the more, the less of the time is spent on waiting, and the
/// more code and registers it takes.
const PART_COLS: u32 = 64;
const PART: usize = (ROWS * PART_COLS / 32) as usize;
/// Outputs that a thread stores at a time where K is 0.
pub const AT_ONCE: usize = 8;
/// Elements of shared memory that a warp stages its sums in.
pub const STAGING: u32 = ROWS * STAGED_COLS;

const _: () = assert!(AT_ONCE <= OUTPUTS_AT_ONCE, "an epilogue takes no more");
const _: () = assert!(PART == 2 * STAGED_SUMS, "in f32 a part is staged in two halves");

/// Where an output is staged, in elements: eight lanes of a row's columns store at once, of four rows,
/// whose parts are exchanged so that they are in different banks.
#[inline(always)]
fn staged(row: u32, col: u32) -> u32 {
    row * STAGED_COLS + (col ^ (row % 4 * 8))
}

/// The places of a lane's sums, of which this is the first.
#[derive(Clone, Copy)]
struct Fragment {
    row: u32,
    col: u32,
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

/// The bias of the columns of a tile, in shared memory: see [`TensorOutput::copy_bias`].
#[derive(Clone, Copy)]
pub struct StagedBias(SharedPtr<f32>);

impl StagedBias {
    /// Where it is to be.
    ///
    /// # Safety
    /// The memory, on 16 bytes, is a warp's own, and of as many elements as the tile has columns.
    #[inline(always)]
    pub unsafe fn at(memory: SharedPtr<f32>) -> Self {
        Self(memory)
    }
}

impl ColumnBias for StagedBias {
    const EXISTS: bool = true;

    #[inline(always)]
    fn wait(self) {
        cp_async::wait_group::<0>();
    }

    #[inline(always)]
    unsafe fn of_quad(self, in_row: usize) -> F32x4 {
        // SAFETY: it has been copied, as whoever stores with it promises.
        unsafe { self.0.load4(4 * in_row as u32) }
    }
}

/// The places of a lane's outputs of a part, as eight lanes store 32 columns of a row: four neighbours in every fourth row.
#[derive(Clone, Copy)]
struct StagedQuads<B> {
    /// Of the first one.
    row: u32,
    col: u32,
    /// The number of the first four neighbours among those of the tile's row.
    quad: u32,
    bias: B,
}

impl<B: ColumnBias> Places for StagedQuads<B> {
    const RUN: usize = 4;
    const SHARED: bool = true;
    const HAS_COLUMN_BIAS: bool = B::EXISTS;
    const ALIGNED: bool = true;

    #[inline(always)]
    fn at(self, i: usize) -> (u32, u32) {
        let (quad, next) = (i as u32 / 4, i as u32 % 4);
        (self.row + quad % 4 * 4, self.col + quad / 4 * STAGED_COLS + next)
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

/// Stages a lane's sums of 32 columns, with those of its warp.
///
/// # Safety
/// A whole warp calls this together, with its own `staging`, which all have read.
#[inline(always)]
unsafe fn stage(staging: SharedPtr<f32>, lane: u32, sums: impl Fn(usize) -> f32) {
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

/// Four neighbours in every fourth row of what was staged, from the row and column on that a lane stores.
///
/// # Safety
/// A whole warp calls this together, behind [`stage`].
#[inline(always)]
unsafe fn staged_quads(staging: SharedPtr<f32>, lane: u32) -> [F32x4; 4] {
    let (down, right) = (lane / 8, lane % 8 * 4);
    // SAFETY: the warp's own memory, on 16 bytes; the warp is together.
    unsafe {
        let quads = [0, 4, 8, 12].map(|i| staging.load_vec(staged(i + down, right)));
        warp::sync_warp(u32::MAX);
        quads
    }
}

/// Sums of a part, for matrices of `sums` side by side.
const fn width(sums: usize) -> usize {
    if sums < PART { sums } else { PART }
}

/// Sums of a part of which the compiler does not know the number: registers have no addresses, so that each part has moves of
/// its own, behind a jump.
#[inline(always)]
fn sums_of_part<const SUMS: usize, const COUNT: usize>(
    acc: &[[f32; SUMS]; COUNT],
    part: u32,
) -> [f32; PART] {
    const { assert!(COUNT * SUMS <= 4 * width(SUMS), "there are no more arms below") };
    let sums = |i: usize| {
        // There may be fewer.
        let i = i * width(SUMS) % (COUNT * SUMS);
        let mut sums: [f32; PART] =
            array::from_fn(|j| if j < width(SUMS) { acc[i / SUMS][i % SUMS + j] } else { 0.0 });
        // What is behind a jump cannot be computed ahead.
        sums[0] = f32::from_bits(black_box(sums[0].to_bits()));
        sums
    };
    match part {
        0 => sums(0),
        1 => sums(1),
        2 => sums(2),
        _ => sums(3),
    }
}

/// C, whose elements are f32, or 16 bits: `f16` if `F16`, or else `bf16`.
#[derive(Clone, Copy)]
pub struct TensorOutput<const F16: bool> {
    /// The matrix; if `is_half`, its pointer is to 16-bit elements.
    pub(crate) c: Output,
    pub(crate) is_half: bool,
    pub(crate) epilogue: Parameters,
}

impl<const F16: bool> Source for TensorOutput<F16> {
    #[inline(always)]
    unsafe fn add<P: Places, const N: usize>(
        self,
        c: Output,
        beta: f32,
        count: usize,
        places: P,
        values: &mut [f32; N],
    ) {
        // SAFETY: the caller's contract; elements of this type.
        unsafe {
            match (self.is_half, F16) {
                (false, _) => SourceOf::<f32>::NEW.add(c, beta, count, places, values),
                (true, true) => SourceOf::<f16>::NEW.add(c, beta, count, places, values),
                (true, false) => SourceOf::<bf16>::NEW.add(c, beta, count, places, values),
            }
        }
    }
}

impl<const F16: bool> TensorOutput<F16> {
    /// A matrix, with what is done to its elements before they are stored.
    ///
    /// # Safety
    /// As for [`Output::new`], with elements of 16 bits if `is_half`; and the parameters are as the
    /// launch promises.
    #[inline(always)]
    pub unsafe fn new(c: Output, is_half: bool, epilogue: Parameters) -> Self {
        Self { c, is_half, epilogue }
    }

    /// That of a product of the batch, `stride` elements from one to the next.
    #[inline(always)]
    pub fn of_product(self, product: u32, stride: u64) -> Self {
        let offset = product as usize * stride as usize;
        let pointer = match self.is_half {
            true => self.c.pointer.cast::<u16>().wrapping_add(offset).cast(),
            false => self.c.pointer.wrapping_add(offset),
        };
        let c = Output { pointer, ..self.c };
        Self { c, epilogue: self.epilogue.of_product(product), ..self }
    }

    /// The bits of a number in the type of 16 bits that C may have, to nearest.
    #[inline(always)]
    pub(crate) fn narrow(value: f32) -> u16 {
        match F16 {
            true => f16::narrow(value).to_bits(),
            false => bf16::narrow(value).to_bits(),
        }
    }

    /// The same of two, the first in the lower half.
    #[inline(always)]
    pub(crate) fn narrow_pair(pair: [f32; 2]) -> u32 {
        match F16 {
            true => f16x2::narrow(pair).to_bits(),
            false => bf16x2::narrow(pair).to_bits(),
        }
    }

    /// How far an element is from the first.
    #[inline(always)]
    pub(crate) fn offset(self, row: u32, col: u32) -> usize {
        row as usize * self.c.ld as usize + col as usize
    }

    /// Whether four neighbours in a row are vectors, in C and in all that an epilogue reads.
    #[inline(always)]
    fn takes_vectors(self) -> bool {
        let bytes = if self.is_half { 8 } else { 16 };
        (self.c.pointer as usize).is_multiple_of(bytes)
            && self.c.ld.is_multiple_of(4)
            && self.epilogue.is_aligned()
    }

    /// Begins to copy the bias of `cols` columns from `col` on, if it is read as vectors: for [`store_fragments`](Self::store_fragments), so that
    /// nothing waits for it there. Each warp has a copy of its own, since warps of a tile need not wait for each other.
    ///
    /// # Safety
    /// There is a bias for each column. A whole warp calls this together, with its own memory of as many elements.
    #[inline(always)]
    pub unsafe fn copy_bias(self, col: u32, cols: u32, to: StagedBias) {
        if !self.takes_vectors() {
            return;
        }
        // SAFETY: the warp is together: all have read what it was before.
        unsafe { warp::sync_warp(u32::MAX) };
        for first in (0..cols).step_by(128) {
            let i = first + black_box(warp::lane_id()) * 4;
            if i < cols {
                let inside = self.c.cols.saturating_sub(col + i).min(4);
                let from = self.epilogue.bias.wrapping_add((col + i) as usize);
                // SAFETY: as much as is inside, on 16 bytes; the warp's own memory.
                unsafe { cp_async::copy16_zfill(to.0.add(i), from, 4 * inside) };
            }
        }
        cp_async::commit_group();
    }

    /// Stores a thread's sums of as many matrices as `acc` has, each `BELOW` rows below the one before, those of its warp
    /// from (row, col) on, as `wgmma` leaves them: see [`cuda_std::wgmma`]. Those of `mma.sync` side by side lie likewise.
    ///
    /// # Safety
    /// A whole warp calls this together, with its own `staging` of [`STAGING`] elements, and no other
    /// thread stores these elements. Where the launch has a bias for each column, and
    /// `bias` exists, [`copy_bias`](Self::copy_bias) has been called for this output with it, and with `col` and all columns of `acc`.
    #[inline(always)]
    pub unsafe fn store_fragments<const BELOW: u32, const SUMS: usize, const COUNT: usize>(
        self,
        row: u32,
        col: u32,
        staging: SharedPtr<f32>,
        bias: impl ColumnBias,
        acc: &[[f32; SUMS]; COUNT],
    ) {
        const {
            assert!(
                SUMS.is_multiple_of(width(SUMS))
                    && (width(SUMS) == PART || width(SUMS) == STAGED_SUMS),
                "parts are of 32 or 64 columns"
            );
        }
        // What follows is not kept in registers during the loop along K.
        let lane = black_box(warp::lane_id());
        let vector = if self.is_half { 8 } else { 4 };
        let begins_aligned =
            (self.c.pointer as usize).is_multiple_of(16) && self.c.ld.is_multiple_of(vector);
        let is_whole = row + (COUNT as u32 - 1) * BELOW + ROWS <= self.c.rows
            && col + SUMS as u32 * 2 <= self.c.cols;
        if begins_aligned && is_whole && !self.epilogue.is_some() && self.c.beta == 0.0 {
            for i in (0..COUNT * SUMS).step_by(width(SUMS)) {
                let (count, place) = (i / SUMS, i % SUMS);
                let sums = array::from_fn(|j| {
                    if j < width(SUMS) { self.c.alpha * acc[count][place + j] } else { 0.0 }
                });
                let (row, col) = (row + count as u32 * BELOW, col + place as u32 * 2);
                // SAFETY: inside, and aligned; the warp is together.
                unsafe { self.store_whole(row, col, lane, staging, width(SUMS), sums) };
            }
            return;
        }
        // The warp comes together when sums have been staged.
        bias.wait();
        // Not known to the compiler, so that the loop is not unrolled.
        let parts = black_box((COUNT * SUMS / width(SUMS)) as u32);
        let cols = 2 * width(SUMS) as u32;
        let takes_vectors = self.takes_vectors();
        for part in 0..parts {
            let across = (SUMS / width(SUMS)) as u32;
            let (down, first) = (part / across * BELOW, col + part % across * PART_COLS);
            if row + down >= self.c.rows {
                break;
            }
            if first >= self.c.cols {
                continue;
            }
            // Nor are addresses kept in registers from one part to the next.
            let (lane, row) = (black_box(lane), black_box(row + down));
            let mut values = sums_of_part(acc, part);
            let is_inside = row + ROWS <= self.c.rows && first + cols <= self.c.cols;
            if takes_vectors && is_inside {
                let (row, quad) = (row + lane / 8, (first - col) / 4 + lane % 8);
                let places = StagedQuads { row, col: first + lane % 8 * 4, quad, bias };
                // SAFETY: inside, and vectors; the warp is together.
                unsafe { self.store_part(places, lane, staging, width(SUMS), values) };
                continue;
            }
            let within = Fragment { row: lane / 4, col: lane % 4 * 2 };
            let places = Fragment { row: row + within.row, col: first + within.col };
            // SAFETY: as the launch promises; C can be read as well.
            unsafe { self.c.apply_epilogue(self.epilogue, width(SUMS), places, self, &mut values) };
            let halves = (width(SUMS) / STAGED_SUMS) as u32;
            let half =
                |second: bool| array::from_fn(|i| values[i + usize::from(second) * STAGED_SUMS]);
            // SAFETY: the warp's own memory, which all have read when the loop begins anew; the warp is together.
            unsafe {
                for second in 0..black_box(halves) {
                    let (row, first) = (black_box(row), first + second * STAGED_COLS);
                    let values: [f32; STAGED_SUMS] =
                        if second == 0 { half(false) } else { half(true) };
                    stage(staging, lane, |i| values[i]);
                    self.store_column(row, first + lane, |i| staging.load(staged(i, lane)));
                    warp::sync_warp(u32::MAX);
                }
            }
        }
    }

    /// Stores what an epilogue makes of a part, of `count` sums per lane, 32 or 64 columns.
    ///
    /// # Safety
    /// It is inside, and [`takes_vectors`](Self::takes_vectors). A whole warp calls this together, with its own `staging`, which all have read, and no
    /// other thread stores these elements.
    #[inline(always)]
    unsafe fn store_part(
        self,
        places: StagedQuads<impl ColumnBias>,
        lane: u32,
        staging: SharedPtr<f32>,
        count: usize,
        sums: [f32; PART],
    ) {
        let mut values = [0.0; PART];
        for first in (0..count).step_by(STAGED_SUMS) {
            // SAFETY: the caller's contract.
            let quads = unsafe {
                stage(staging, lane, |i| sums[first + i]);
                staged_quads(staging, lane)
            };
            values[first..][..STAGED_SUMS].copy_from_slice(quads.as_flattened());
        }
        // SAFETY: as the launch promises; C can be read as well.
        unsafe { self.c.apply_epilogue(self.epilogue, count, places, self, &mut values) };
        for i in (0..count).step_by(4) {
            let (row, col) = places.at(i);
            let quad = [values[i], values[i + 1], values[i + 2], values[i + 3]];
            // SAFETY: the caller's contract.
            unsafe { self.store_quad(self.offset(row, col), quad) };
        }
    }

    /// Stores four neighbours in a row, so far from C's first element.
    ///
    /// # Safety
    /// They are inside, on four times an element's bytes, and no other thread stores them.
    #[inline(always)]
    pub(crate) unsafe fn store_quad(self, offset: usize, [one, two, three, four]: F32x4) {
        // SAFETY: the caller's contract.
        unsafe {
            if self.is_half {
                let pairs = [[one, two], [three, four]].map(Self::narrow_pair);
                vec::store(self.c.pointer.cast::<u16>().add(offset).cast(), pairs);
            } else {
                vec::store4(self.c.pointer.add(offset), [one, two, three, four]);
            }
        }
    }

    /// Stores a thread's first `count` sums, those of its warp from (row, col) on, of 32 or 64 columns, by vectors of 16 bytes.
    ///
    /// # Safety
    /// They are inside, and each row's first is on 16 bytes. A whole warp calls this together, with its own `staging`, which all have read, and no
    /// other thread stores these elements.
    #[inline(always)]
    unsafe fn store_whole(
        self,
        row: u32,
        col: u32,
        lane: u32,
        staging: SharedPtr<f32>,
        count: usize,
        values: [f32; PART],
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            if self.is_half {
                let pairs = array::from_fn(|i| {
                    let [one, other] = [values[2 * i], values[2 * i + 1]];
                    Self::narrow_pair([one, other])
                });
                let to = self.c.pointer.cast::<u16>().wrapping_add(self.offset(row, col));
                match count {
                    PART => Self::store_pairs::<8>(to, self.c.ld, lane, staging, pairs),
                    _ => Self::store_pairs::<4>(to, self.c.ld, lane, staging, pairs),
                }
                return;
            }
            for first in (0..count).step_by(STAGED_SUMS) {
                let values = array::from_fn(|i| values[first + i]);
                self.store_floats(row, col + 2 * first as u32, lane, staging, values);
            }
        }
    }

    /// The same in f32, 32 columns: eight lanes store a line of a row.
    ///
    /// # Safety
    /// As for [`store_whole`](Self::store_whole).
    #[inline(always)]
    unsafe fn store_floats(
        self,
        row: u32,
        col: u32,
        lane: u32,
        staging: SharedPtr<f32>,
        values: [f32; STAGED_SUMS],
    ) {
        let (down, right) = (lane / 8, lane % 8 * 4);
        let first = self.offset(row + down, col + right);
        // SAFETY: the caller's contract; inside of C, on 16 bytes, and this thread's own.
        unsafe {
            stage(staging, lane, |i| values[i]);
            let quads = staged_quads(staging, lane);
            for i in 0..4 {
                let at = first + i * 4 * self.c.ld as usize;
                vec::store(self.c.pointer.wrapping_add(at), quads[i]);
            }
        }
    }

    /// The same in 16 bits, in pairs: as many lanes as a row has `VECTORS` store it.
    ///
    /// # Safety
    /// As for [`store_whole`](Self::store_whole).
    #[inline(always)]
    unsafe fn store_pairs<const VECTORS: u32>(
        to: *mut u16,
        ld: u32,
        lane: u32,
        staging: SharedPtr<f32>,
        pairs: [u32; PART / 2],
    ) {
        // Rows whose vectors are exchanged so that lanes which store pairs at once, or vectors, are in different banks.
        let staging = staging.cast::<u32>();
        let vector_at = |row: u32, vector: u32| {
            let line = row * VECTORS / 8;
            row * VECTORS * 4 + (vector ^ (line % VECTORS)) * 4
        };
        let (down, right) = (lane / VECTORS, lane % VECTORS);
        let first = down as usize * ld as usize + right as usize * 8;
        let rows = 32 / VECTORS;
        // SAFETY: the warp's own memory; the warp is together; inside of C, on 16 bytes, and this thread's own.
        unsafe {
            for i in 0..2 * VECTORS {
                let (row, vector) = (lane / 4 + i % 2 * 8, i / 2);
                staging.store(vector_at(row, vector) + lane % 4, pairs[i as usize]);
            }
            warp::sync_warp(u32::MAX);
            let vectors: [[u32; 4]; 4] = [0, 1, 2, 3].map(|i| match i * rows < ROWS {
                true => staging.load_vec(vector_at(i * rows + down, right)),
                false => [0; 4],
            });
            for i in 0..ROWS / rows {
                let at = first + (i * rows) as usize * ld as usize;
                vec::store(to.wrapping_add(at).cast(), vectors[i as usize]);
            }
            warp::sync_warp(u32::MAX);
        }
    }

    /// Stores [`ROWS`] elements of a column from (row, col) on, those of them that are inside, where the first row is.
    ///
    /// # Safety
    /// No other thread stores them.
    #[inline(always)]
    unsafe fn store_column(self, row: u32, col: u32, value: impl Fn(u32) -> f32) {
        if col >= self.c.cols {
            return;
        }
        let rows = self.c.rows - row;
        if rows < ROWS {
            for i in 0..rows {
                // SAFETY: inside, and this thread's own.
                unsafe { self.store_inside(row + i, col, value(i)) };
            }
            return;
        }
        let values: [f32; ROWS as usize] = array::from_fn(|i| value(i as u32));
        for i in 0..ROWS {
            // SAFETY: as above.
            unsafe { self.store_inside(row + i, col, values[i as usize]) };
        }
    }

    /// Stores an element.
    ///
    /// # Safety
    /// It is inside, and no other thread stores it.
    #[inline(always)]
    unsafe fn store_inside(self, row: u32, col: u32, value: f32) {
        let at = self.offset(row, col);
        // SAFETY: the caller's contract.
        unsafe {
            if self.is_half {
                vec::store(self.c.pointer.cast::<u16>().add(at), [Self::narrow(value)]);
            } else {
                vec::store(self.c.pointer.add(at), [value]);
            }
        }
    }
}

/// For kernels by `wgmma`.
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
impl<const F16: bool> TensorOutput<F16> {
    /// Stores what becomes of a sum of nothing in a few elements, whose places are `at`, if they are
    /// inside.
    ///
    /// # Safety
    /// No other thread stores these elements.
    #[inline(always)]
    pub unsafe fn store_empty(self, at: impl Fn(usize) -> (u32, u32) + Copy) {
        let mut values = [0.0; OUTPUTS_AT_ONCE];
        // SAFETY: as the launch promises; C can be read as well.
        unsafe { self.c.apply_epilogue(self.epilogue, AT_ONCE, at, self, &mut values) };
        for i in 0..AT_ONCE {
            let (row, col) = at(i);
            // SAFETY: the caller's contract.
            unsafe { self.store(row, col, values[i]) };
        }
    }

    /// Stores an element, if it is inside.
    ///
    /// # Safety
    /// No other thread stores it.
    #[inline(always)]
    pub(crate) unsafe fn store(self, row: u32, col: u32, value: f32) {
        if row < self.c.rows && col < self.c.cols {
            // SAFETY: inside, and this thread's own.
            unsafe { self.store_inside(row, col, value) };
        }
    }
}
