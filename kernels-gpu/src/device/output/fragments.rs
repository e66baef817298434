//! From the fragments of tensor cores to C, through shared memory.
//!
//! `wgmma` leaves four lanes with 32 bytes of a row in f32, or 16 bytes in 16 bits. So the sums go
//! through shared memory, 16 rows by 32 or 64 columns at a time, and a warp stores whole lines. It
//! stores vectors of 16 bytes if rows are aligned, and their ends. Otherwise each lane stores single
//! elements.
//!
//! With an epilogue, or if C is read, [`PART`] sums at a time are moved to the same registers. So
//! the epilogue is in the code once for each of two ways:
//!
//! - If everything that it reads is vectors of four elements, it comes behind the staging. A lane
//!   has four neighbours of every fourth row. It reads and stores these as vectors, of 8 bytes if C
//!   is of 16 bits.
//! - Otherwise it comes before the staging, on the sums as `wgmma` leaves them. Then each lane
//!   stores single elements.

use core::array;

use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::vec;

use crate::device::output::places::{ColumnBias, Places};
use crate::device::output::staging::{
    Fragment, PART, ROWS, STAGED_COLS, STAGED_SUMS, StagedQuads, stage, staged, staged_quads,
    sums_of_part, width,
};
use crate::device::output::tensor::TensorOutput;

impl<const F16: bool> TensorOutput<F16> {
    /// Stores a thread's sums as `wgmma` leaves them: see [`cuda_std::sm_90a::wgmma`].
    ///
    /// There are `COUNT` matrices, each `BELOW` rows below the one before. Those of the warp begin
    /// at (row, col). Sums of `mma.sync` have the same layout, if its matrices lie side by side.
    ///
    /// # Safety
    /// - A whole warp calls this together, with its own `staging` of
    ///   [`STAGING`](crate::device::output::staging::STAGING) elements.
    /// - No other thread stores these elements.
    /// - If the launch has a bias for each column, and `bias` exists,
    ///   [`copy_bias`](Self::copy_bias) was called for this output. The call had `bias`, `col`, and
    ///   all columns of `acc`.
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
        // Behind `black_box`, so that the loop along K keeps none of it in registers.
        let lane = black_box(warp::lane_id());
        let vector = if self.is_half { 8 } else { 4 };
        let is_aligned = (self.c.pointer as usize).is_multiple_of(16)
            && self.c.ld.is_multiple_of(vector)
            && self.c.cols.is_multiple_of(vector);
        if is_aligned && !self.epilogue.is_some() && self.c.beta == 0.0 {
            for i in (0..COUNT * SUMS).step_by(width(SUMS)) {
                let (count, place) = (i / SUMS, i % SUMS);
                let sums = array::from_fn(|j| {
                    if j < width(SUMS) { self.c.alpha * acc[count][place + j] } else { 0.0 }
                });
                let (row, col) = (row + count as u32 * BELOW, col + place as u32 * 2);
                // SAFETY: vectors; the warp is together.
                unsafe { self.store_vectors([row, col], lane, staging, width(SUMS), sums) };
            }
            return;
        }
        // The warp comes together when sums have been staged.
        bias.wait();
        // Behind `black_box`, so that the loop is not unrolled.
        let parts = black_box((COUNT * SUMS / width(SUMS)) as u32);
        let takes_vectors = self.takes_vectors() && self.c.cols.is_multiple_of(4);
        for part in 0..parts {
            let across = (SUMS / width(SUMS)) as u32;
            let (down, first) =
                (part / across * BELOW, col + part % across * 2 * width(SUMS) as u32);
            if row + down >= self.c.rows {
                break;
            }
            if first >= self.c.cols {
                continue;
            }
            // Addresses are recomputed for each part instead of kept in registers.
            let (lane, row) = (black_box(lane), black_box(row + down));
            let mut values = sums_of_part(acc, part);
            if takes_vectors {
                let (row, quad) = (row + lane / 8, (first - col) / 4 + lane % 8);
                let end = [self.c.rows, self.c.cols];
                let places = StagedQuads { row, col: first + lane % 8 * 4, end, quad, bias };
                // SAFETY: vectors; the warp is together.
                unsafe { self.store_part(places, lane, staging, width(SUMS), values) };
                continue;
            }
            let within = Fragment { row: lane / 4, col: lane % 4 * 2 };
            let places = Fragment { row: row + within.row, col: first + within.col };
            // SAFETY: as the launch promises; C can also be read.
            unsafe { self.c.apply_epilogue(self.epilogue, width(SUMS), places, self, &mut values) };
            let halves = (width(SUMS) / STAGED_SUMS) as u32;
            let half =
                |second: bool| array::from_fn(|i| values[i + usize::from(second) * STAGED_SUMS]);
            // SAFETY: the warp's own memory, which all have read when the loop begins anew. The
            // warp is together.
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

    /// Stores an epilogue's results for one part, of `count` sums per lane, 32 or 64 columns.
    ///
    /// # Safety
    /// - C [takes vectors](Self::takes_vectors), and each is inside or outside.
    /// - A whole warp calls this together, with its own `staging`, which all have read.
    /// - No other thread stores these elements.
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
        if !places.is_inside(0) {
            return;
        }
        // SAFETY: as the launch promises; C can also be read.
        unsafe { self.c.apply_epilogue(self.epilogue, count, places, self, &mut values) };
        for i in (0..count).step_by(4) {
            let (row, col) = places.at(i);
            let quad = [values[i], values[i + 1], values[i + 2], values[i + 3]];
            if places.is_inside(i) {
                // SAFETY: the caller's contract.
                unsafe { self.store_quad(self.offset(row, col), quad) };
            }
        }
    }

    /// Stores those of a thread's first `count` sums that are inside, with vectors of 16 bytes.
    ///
    /// Those of its warp begin at (row, col), and have 32 or 64 columns.
    ///
    /// # Safety
    /// - Each row's first is on 16 bytes, and each vector is inside or outside.
    /// - A whole warp calls this together, with its own `staging`, which all have read.
    /// - No other thread stores these elements.
    #[inline(always)]
    unsafe fn store_vectors(
        self,
        [row, col]: [u32; 2],
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
                match count {
                    PART => self.store_pairs::<8>([row, col], lane, staging, pairs),
                    _ => self.store_pairs::<4>([row, col], lane, staging, pairs),
                }
                return;
            }
            for first in (0..count).step_by(STAGED_SUMS) {
                let values = array::from_fn(|i| values[first + i]);
                self.store_floats([row, col + 2 * first as u32], lane, staging, values);
            }
        }
    }

    /// [`store_vectors`](Self::store_vectors) in f32, for 32 columns: eight lanes store a line of a
    /// row.
    ///
    /// # Safety
    /// As for [`store_vectors`](Self::store_vectors).
    #[inline(always)]
    unsafe fn store_floats(
        self,
        [row, col]: [u32; 2],
        lane: u32,
        staging: SharedPtr<f32>,
        values: [f32; STAGED_SUMS],
    ) {
        let (row, col) = (row + lane / 8, col + lane % 8 * 4);
        let first = self.offset(row, col);
        // SAFETY: the caller's contract; inside of C, on 16 bytes, and this thread's own.
        unsafe {
            stage(staging, lane, |i| values[i]);
            let quads = staged_quads(staging, lane);
            for i in 0..4 {
                let at = first + i * 4 * self.c.ld as usize;
                if row + 4 * (i as u32) < self.c.rows && col < self.c.cols {
                    vec::store(self.c.pointer.wrapping_add(at), quads[i]);
                }
            }
        }
    }

    /// [`store_vectors`](Self::store_vectors) in 16 bits, in pairs: `VECTORS` lanes store a row.
    ///
    /// # Safety
    /// As for [`store_vectors`](Self::store_vectors).
    #[inline(always)]
    unsafe fn store_pairs<const VECTORS: u32>(
        self,
        [row, col]: [u32; 2],
        lane: u32,
        staging: SharedPtr<f32>,
        pairs: [u32; PART / 2],
    ) {
        // Swizzled, so that lanes which store pairs at once, or load vectors, are in different
        // banks.
        let staging = staging.cast::<u32>();
        let vector_at = |row: u32, vector: u32| {
            let line = row * VECTORS / 8;
            row * VECTORS * 4 + (vector ^ (line % VECTORS)) * 4
        };
        let (down, right) = (lane / VECTORS, lane % VECTORS);
        let (first_row, col) = (row + down, col + right * 8);
        let to = self.c.pointer.cast::<u16>().wrapping_add(self.offset(first_row, col));
        let rows = 32 / VECTORS;
        // SAFETY: the warp's own memory; the warp is together. The vectors are inside of C, on 16
        // bytes, and this thread's own.
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
                let at = (i * rows) as usize * self.c.ld as usize;
                if first_row + i * rows < self.c.rows && col < self.c.cols {
                    vec::store(to.wrapping_add(at).cast(), vectors[i as usize]);
                }
            }
            warp::sync_warp(u32::MAX);
        }
    }

    /// Stores those of [`ROWS`] elements of a column, from (row, col) on, that are inside. The
    /// first row is.
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
}
