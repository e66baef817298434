//! From the fragments of tensor cores to C, through shared memory.
//!
//! `wgmma` leaves four lanes with 32 bytes of a row in f32, or 16 bytes in 16 bits. So the sums go
//! through shared memory, 16 rows by 32 or 64 columns at a time, and a warp stores whole lines. It
//! stores vectors of 16 bytes if rows are aligned. Otherwise each lane stores single elements.
//!
//! A bias that was copied, and ReLU, are applied where the sums lie. So are an old C of 16 bits and
//! the short activations [if a thread has many sums](is_large), except in `wgmma_pingpong`. Any other
//! epilogue moves some sums at a time to the same registers, so that its code exists once. There are
//! two ways:
//!
//! - [`store_fragments`](TensorOutput::store_fragments) applies it before the staging, on the sums as
//!   `wgmma` leaves them. An old C and a residual come to the same lanes: in vectors through the same
//!   memory if rows are aligned, and otherwise element by element.
//! - [`store_part`](TensorOutput::store_part) stages the sums in f32, so that each lane takes four
//!   neighbours in four rows of C. The same code also stores a transposed C, and sums of several
//!   blocks. For `wgmma_persistent` it was slower (`NOTES.md`, "Epilogues on the sums as they lie").

use core::array;

use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::vec;

use crate::abi::epilogue::operations::{ACTIVATION, BIAS_COLUMN, GELU_TANH, RELU, SILU};
use crate::device::output::epilogue::{Epilogue, Logistic, Relu};
use crate::device::output::matrix::Output;
use crate::device::output::places::{FragmentBias, NoColumnBias, OUTPUTS_AT_ONCE, QuadPlaces};
use crate::device::output::source::QuadSource;
use crate::device::output::staging::{
    Biased, Fragment, PART, Pairs, PairsAcross, Quads, ROWS, STAGED_COLS, STAGED_SUMS,
    StagedSource, sums_of_part,
};
use crate::device::output::tensor::TensorOutput;

const _: () = assert!(STAGED_SUMS == OUTPUTS_AT_ONCE, "an epilogue takes a part");

/// Whether an old C of 16 bits and short activations are applied where a thread's sums lie. In smaller
/// tiles the code for that makes plain products up to 4 % slower.
pub const fn is_large(sums: usize) -> bool {
    sums > 64
}

impl<const F16: bool> TensorOutput<F16> {
    /// Stores a thread's sums as `wgmma` leaves them: see [`cuda_std::sm_90a::wgmma`].
    ///
    /// An epilogue has [`PART`] sums in registers at once, if there are so many side by side. If
    /// `NARROW` it has half of them: it then takes fewer registers, but waits more often.
    ///
    /// There are `COUNT` matrices, each `BELOW` rows below the one before. Those of the warp begin
    /// at (row, col). Sums of `mma.sync` have the same layout, if its matrices lie side by side.
    ///
    /// # Safety
    /// - A whole warp calls this together, with its own `staging` of
    ///   [`STAGING`](crate::device::output::staging::STAGING) elements.
    /// - No other thread stores these elements.
    /// - If the launch has a bias for each column, and `bias` exists,
    ///   [`copy_bias`](Self::copy_bias) was called for this output. The call had `bias`, `col`,
    ///   and all columns of `acc`.
    #[inline(always)]
    pub unsafe fn store_fragments<
        const BELOW: u32,
        const NARROW: bool,
        const SUMS: usize,
        const COUNT: usize,
        B: FragmentBias,
    >(
        self,
        row: u32,
        col: u32,
        staging: SharedPtr<f32>,
        bias: B,
        acc: &[[f32; SUMS]; COUNT],
    ) {
        // The sums of a part, of 32 or 64 columns.
        let width = if SUMS.is_multiple_of(PART) { PART } else { STAGED_SUMS };
        const { assert!(SUMS.is_multiple_of(STAGED_SUMS), "parts are of 32 or 64 columns") };
        // Behind `black_box`, so that the loop along K keeps none of it in registers.
        let lane = black_box(warp::lane_id());
        let is_aligned = self.has_vectors();
        if B::EXISTS && self.epilogue.has_column_bias() {
            bias.wait();
            // SAFETY: the warp is together. Behind this, each lane's copies are all lanes'.
            unsafe { warp::sync_warp(u32::MAX) };
        }
        // These need few registers, so the sums are not moved.
        if self.is_simple::<B>(false) {
            // SAFETY: the caller's contract.
            unsafe {
                self.store_simple::<BELOW, false, false, _, _, _>(
                    false,
                    [row, col],
                    lane,
                    staging,
                    bias,
                    acc,
                );
            }
            return;
        }
        if const { !NARROW && is_large(COUNT * SUMS) } && self.is_nearly_simple::<B>() {
            // SAFETY: the caller's contract.
            unsafe {
                self.store_simple::<BELOW, false, true, _, _, _>(
                    false,
                    [row, col],
                    lane,
                    staging,
                    bias,
                    acc,
                );
            }
            return;
        }
        let part_sums = if NARROW { STAGED_SUMS } else { width };
        // Behind `black_box`, so that the loop is not unrolled.
        let parts = black_box((COUNT * SUMS / part_sums) as u32);
        for part in 0..parts {
            let across = (SUMS / part_sums) as u32;
            let (down, first) = (part / across * BELOW, col + part % across * 2 * part_sums as u32);
            if row + down >= self.c.rows {
                break;
            }
            if first >= self.c.cols {
                continue;
            }
            // Addresses are recomputed for each part instead of kept in registers.
            let (lane, row) = (black_box(lane), black_box(row + down));
            let mut values = sums_of_part(acc, part_sums, part);
            let source = StagedSource { output: self, is_aligned, at: [row, first], lane, staging };
            let within = Fragment::of_lane(lane);
            let places = within.moved([row, first]);
            let places = Biased { places, bias: bias.from(first - col + within.col) };
            // SAFETY: as the launch promises; C can also be read. The warp is together.
            unsafe {
                self.c.apply_epilogue(self.epilogue, part_sums, places, source, &mut values);
            }
            if is_aligned {
                // SAFETY: vectors; the warp is together.
                unsafe {
                    self.store_vectors::<false>(
                        false,
                        [row, first],
                        lane,
                        staging,
                        part_sums,
                        values,
                    )
                };
                continue;
            }
            let halves = (part_sums / STAGED_SUMS) as u32;
            let half =
                |second: bool| array::from_fn(|i| values[i + usize::from(second) * STAGED_SUMS]);
            // SAFETY: the warp's own memory, which all have read when the loop begins anew. The
            // warp is together.
            unsafe {
                for second in 0..black_box(halves) {
                    let (row, first) = (black_box(row), first + second * STAGED_COLS);
                    let values: [f32; STAGED_SUMS] =
                        if second == 0 { half(false) } else { half(true) };
                    let quads = Quads { lane, transposed: false };
                    quads.stage(staging, values);
                    self.store_column(row, first + lane, |i| staging.load(quads.at(i, lane)));
                    warp::sync_warp(u32::MAX);
                }
            }
        }
    }

    /// Whether vectors store the sums, after alpha, a copied bias and ReLU at most. C may be
    /// `transposed` if it has 16 bits.
    #[inline(always)]
    pub(crate) fn is_simple<B: FragmentBias>(self, transposed: bool) -> bool {
        let operations = self.epilogue.operations & !if B::EXISTS { BIAS_COLUMN } else { 0 };
        self.has_vectors()
            && self.c.beta == 0.0
            && matches!(operations, 0 | RELU)
            && (self.is_half || !transposed)
    }

    /// Whether an output would be [simple](Self::is_simple) without an old C of 16 bits or a short
    /// activation.
    #[inline(always)]
    fn is_nearly_simple<B: FragmentBias>(self) -> bool {
        let operations = self.epilogue.operations & !if B::EXISTS { BIAS_COLUMN } else { 0 };
        self.has_vectors()
            && (self.c.beta == 0.0 || self.is_half)
            && matches!(operations, 0 | RELU | GELU_TANH | SILU)
    }

    /// Stores the sums of [`store_fragments`](Self::store_fragments) of an output that [is
    /// simple](Self::is_simple).
    ///
    /// # Safety
    /// - As for [`store_fragments`](Self::store_fragments), of an output that is simple for the same
    ///   `B`, or [nearly](Self::is_nearly_simple) if `NEARLY`. C can then be read if beta is not 0.
    /// - If `bias` exists, it has been copied, and the warp has waited for it.
    /// - `TRANSPOSES` is true if `transposed` is, or if C may end within the sums' columns.
    #[inline(always)]
    pub(crate) unsafe fn store_simple<
        const BELOW: u32,
        const TRANSPOSES: bool,
        const NEARLY: bool,
        const SUMS: usize,
        const COUNT: usize,
        B: FragmentBias,
    >(
        self,
        transposed: bool,
        [row, col]: [u32; 2],
        lane: u32,
        staging: SharedPtr<f32>,
        bias: B,
        acc: &[[f32; SUMS]; COUNT],
    ) {
        let is_across = TRANSPOSES && transposed;
        let end = if is_across { self.c.rows } else { self.c.cols };
        let (operations, lane_col) = (self.epilogue.operations, Fragment::of_lane(lane).col);
        let has_bias = B::EXISTS && self.epilogue.has_column_bias();
        let activation = operations & ACTIVATION;
        // Each sum has one code for both.
        let logistic = if activation == SILU { Logistic::SILU } else { Logistic::GELU_TANH };
        // The sums of a part, of 16, 32 or 64 columns.
        let width = const {
            assert!(SUMS.is_multiple_of(8), "parts have 16, 32 or 64 columns");
            match SUMS % PART {
                0 => PART,
                STAGED_SUMS => STAGED_SUMS,
                _ => 8,
            }
        };
        for i in (0..COUNT * SUMS).step_by(width) {
            let (count, place) = (i / SUMS, i % SUMS);
            let mut sums: [f32; PART] =
                array::from_fn(
                    |j| {
                        if j < width { self.c.alpha * acc[count][place + j] } else { 0.0 }
                    },
                );
            let (row, col) = (row + count as u32 * BELOW, col + place as u32 * 2);
            if TRANSPOSES && col >= end {
                continue;
            }
            if NEARLY && self.c.beta != 0.0 {
                let at = [row, col];
                let source = StagedSource { output: self, is_aligned: true, at, lane, staging };
                // SAFETY: C can be read; the warp is together.
                unsafe { source.add_old(self.c.beta, width, &mut sums) };
            }
            if has_bias {
                let places = Fragment::of_lane(lane).moved([row, col]);
                let places = Biased { places, bias: bias.from(place as u32 * 2 + lane_col) };
                // SAFETY: there is one for each column; it was copied, and the warp has come
                // together.
                unsafe { Output::add_column_bias(width, places, &mut sums) };
            }
            match activation {
                0 => {}
                RELU => sums = sums.map(|sum| Relu.apply(sum, 0.0)),
                _ if !NEARLY => {}
                _ => sums = sums.map(|sum| logistic.apply(sum, 0.0)),
            }
            let at = [row, col];
            // SAFETY: vectors; the warp is together.
            unsafe { self.store_vectors::<TRANSPOSES>(is_across, at, lane, staging, width, sums) };
        }
    }

    /// Stores a part of a warp's sums with any epilogue: [`ROWS`] rows by [`STAGED_COLS`] columns.
    ///
    /// They begin at (row, col) of the product, whose transpose C is if `transposed`.
    ///
    /// # Safety
    /// - A whole warp calls this together, with its own `staging`, which all have read.
    /// - No other thread stores these elements.
    #[inline(always)]
    pub(crate) unsafe fn store_part(
        self,
        transposed: bool,
        [row, col]: [u32; 2],
        lane: u32,
        staging: SharedPtr<f32>,
        sums: [f32; STAGED_SUMS],
    ) {
        let quads = Quads { lane, transposed };
        let [row, col] = if transposed { [col, row] } else { [row, col] };
        let at = |i: u32| {
            let (down, right) = quads.place(i);
            (row + down, col + right)
        };
        // SAFETY: the warp's own memory; the warp is together.
        let staged = unsafe {
            quads.stage(staging, sums);
            quads.load(staging)
        };
        let mut values: [f32; STAGED_SUMS] = array::from_fn(|i| staged[i / 4][i % 4]);
        if self.epilogue.is_some() || self.c.beta != 0.0 {
            let places = QuadPlaces { at, first: 0, in_row: 1, column_bias: NoColumnBias };
            let source = QuadSource(self);
            // SAFETY: as the launch promises; C can also be read.
            unsafe {
                self.c.apply_epilogue(self.epilogue, STAGED_SUMS, places, source, &mut values);
            }
        } else {
            values = values.map(|value| self.c.alpha * value);
        }
        if self.has_quads() {
            for i in 0..4 {
                let (row, col) = at(i as u32);
                if row < self.c.rows && col < self.c.cols {
                    let quad = array::from_fn(|j| values[4 * i + j]);
                    // SAFETY: inside, since columns are a multiple of four; this thread's own.
                    unsafe { self.store_quad(self.offset(row, col), quad) };
                }
            }
            return;
        }
        // Neighbours store neighbours, so the values change their places once more.
        // SAFETY: the warp's own memory; the warp is together. Each element is one lane's own.
        unsafe {
            for i in 0..4 {
                let (row, col) = quads.place(i as u32);
                let quad: F32x4 = array::from_fn(|j| values[4 * i + j]);
                staging.store_vec(quads.at(row, col), quad);
            }
            warp::sync_warp(u32::MAX);
            for i in 0..STAGED_SUMS as u32 {
                let (down, right) = quads.element(32 * i + lane);
                self.store(row + down, col + right, staging.load(quads.at(down, right)));
            }
            warp::sync_warp(u32::MAX);
        }
    }

    /// Stores those of a thread's first `count` sums that are inside, with vectors of 16 bytes.
    ///
    /// Those of its warp begin at (row, col), or in a C that `is_across` at (col, row). They have
    /// 16, 32 or 64 columns.
    ///
    /// # Safety
    /// - Each row's first is on 16 bytes, and each vector is inside or outside.
    /// - A whole warp calls this together, with its own `staging`, which all have read.
    /// - No other thread stores these elements.
    #[inline(always)]
    unsafe fn store_vectors<const TRANSPOSES: bool>(
        self,
        is_across: bool,
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
                let at = [row, col];
                match (count, TRANSPOSES && is_across) {
                    (PART, false) => self.store_pairs::<8>(at, lane, staging, pairs),
                    (STAGED_SUMS, false) => self.store_pairs::<4>(at, lane, staging, pairs),
                    (_, false) => self.store_pairs::<2>(at, lane, staging, pairs),
                    (PART, true) => self.store_pairs_across::<8>(at, lane, staging, pairs),
                    (STAGED_SUMS, true) => self.store_pairs_across::<4>(at, lane, staging, pairs),
                    (_, true) => self.store_pairs_across::<2>(at, lane, staging, pairs),
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
            let staged = Quads { lane, transposed: false };
            staged.stage(staging, values);
            let quads = staged.load(staging);
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
        let staged = Pairs::<VECTORS> { staging: staging.cast(), lane };
        let (first_row, col) = staged.first([row, col]);
        let to = self.c.pointer.cast::<u16>().wrapping_add(self.offset(first_row, col));
        // SAFETY: the warp's own memory; the warp is together. The vectors are inside of C, on 16
        // bytes, and this thread's own.
        unsafe {
            for i in 0..2 * VECTORS {
                staged.staging.store(staged.of_pair(i), pairs[i as usize]);
            }
            warp::sync_warp(u32::MAX);
            let vectors: [[u32; 4]; 4] = [0, 1, 2, 3].map(|i| match i < Pairs::<VECTORS>::EACH {
                true => staged.staging.load_vec(staged.of_vector(i)),
                false => [0; 4],
            });
            for i in 0..Pairs::<VECTORS>::EACH {
                let down = i * Pairs::<VECTORS>::ROWS_AT_ONCE;
                let at = down as usize * self.c.ld as usize;
                if first_row + down < self.c.rows && col < self.c.cols {
                    vec::store(to.wrapping_add(at).cast(), vectors[i as usize]);
                }
            }
            warp::sync_warp(u32::MAX);
        }
    }

    /// [`store_pairs`](Self::store_pairs) of a transposed C: two lanes store 16 elements of a row.
    ///
    /// # Safety
    /// As for [`store_vectors`](Self::store_vectors).
    #[inline(always)]
    unsafe fn store_pairs_across<const VECTORS: u32>(
        self,
        [row, col]: [u32; 2],
        lane: u32,
        staging: SharedPtr<f32>,
        pairs: [u32; PART / 2],
    ) {
        let staged = PairsAcross { lane };
        let staging = staging.cast::<u32>();
        let (line, half) = (lane / 2, lane % 2);
        let (first_row, col) = (col + line, row + 8 * half);
        let to = self.c.pointer.cast::<u16>().wrapping_add(self.offset(first_row, col));
        // SAFETY: the warp's own memory; the warp is together. The vectors are inside of C, on 16
        // bytes, and this thread's own.
        unsafe {
            for i in 0..2 * VECTORS {
                staging.store(staged.of_pair(i), staged.exchange(pairs[i as usize]));
            }
            warp::sync_warp(u32::MAX);
            let vectors: [[u32; 4]; 4] = [0, 1, 2, 3].map(|i| match i < VECTORS / 2 {
                true => staging.load_vec(PairsAcross::at(line + 16 * i, half)),
                false => [0; 4],
            });
            for i in 0..VECTORS / 2 {
                let at = (16 * i) as usize * self.c.ld as usize;
                if first_row + 16 * i < self.c.rows && col < self.c.cols {
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
