//! C of the kernels for tensor cores: in f32, or in 16 bits like A and B, with an epilogue.
//!
//! Where C is not read, nothing is done to the sums but `alpha`, and pairs of outputs begin on whole
//! pairs, a warp stores its sums as `wgmma` leaves them: four lanes store eight neighbours of a row. All
//! else goes through shared memory, 16 rows by 32 columns at a time, so that a warp's accesses are
//! whole rows, wherever they begin, and the epilogue is in the code once.

use core::array;

use cuda_std::half::{Half, bf16, bf16x2, f16, f16x2};
use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::vec;

use crate::epilogue::{Epilogue, MOST, Parameters};
use crate::matrix::Output;

/// Columns that a warp stages at once, one for each lane.
const STAGED_COLS: u32 = 32;
/// Rows of a warp's sums.
const ROWS: u32 = 16;
/// A lane's sums of as many columns.
const STAGED_SUMS: usize = (ROWS * STAGED_COLS / 32) as usize;
/// Outputs of a lane that an epilogue is applied to at once: more would not fit the registers beside
/// the sums.
pub const AT_ONCE: usize = 8;
/// Elements of shared memory that a warp stages its sums in.
pub const STAGING: u32 = ROWS * STAGED_COLS;

const _: () = assert!(AT_ONCE <= MOST, "an epilogue takes no more");

/// Where an output is staged, in elements: eight lanes of a row's columns store at once, of four rows,
/// whose parts are exchanged so that they are in different banks.
#[inline(always)]
fn staged(row: u32, col: u32) -> u32 {
    row * STAGED_COLS + (col ^ row % 4 * 8)
}

/// C, whose elements are f32, or 16 bits: `f16` if `F16`, or else `bf16`.
#[derive(Clone, Copy)]
pub struct TensorOutput<const F16: bool> {
    /// The matrix; if `is_half`, its pointer is to 16-bit elements.
    c: Output,
    is_half: bool,
    epilogue: Parameters,
}

/// `value + beta * C`.
#[derive(Clone, Copy)]
struct Accumulate<const F16: bool> {
    c: TensorOutput<F16>,
    beta: f32,
}

impl<const F16: bool> Epilogue for Accumulate<F16> {
    #[inline(always)]
    unsafe fn load(self, row: u32, col: u32) -> f32 {
        // SAFETY: inside.
        unsafe { self.c.load(row, col) }
    }

    #[inline(always)]
    fn apply(self, value: f32, old: f32) -> f32 {
        fma(self.beta, old, value)
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

    /// How far an element is from the first.
    #[inline(always)]
    fn offset(self, row: u32, col: u32) -> usize {
        row as usize * self.c.ld as usize + col as usize
    }

    /// An element of C.
    ///
    /// # Safety
    /// It is inside.
    #[inline(always)]
    unsafe fn load(self, row: u32, col: u32) -> f32 {
        let at = self.offset(row, col);
        // SAFETY: the caller's contract.
        unsafe {
            if !self.is_half {
                let [value] = vec::load(self.c.pointer.add(at).cast_const());
                return value;
            }
            let [bits] = vec::load(self.c.pointer.cast::<u16>().add(at).cast_const());
            if F16 { f16::from_bits(bits).widen() } else { bf16::from_bits(bits).widen() }
        }
    }

    /// Stores what becomes of a lane's sums, whose places are `at`, if they are inside.
    ///
    /// # Safety
    /// No other thread stores these elements.
    #[inline(always)]
    pub unsafe fn store_each(self, at: impl Fn(usize) -> (u32, u32) + Copy, sums: [f32; AT_ONCE]) {
        let old = |beta| Accumulate { c: self, beta };
        let mut values = array::from_fn(|i| if i < AT_ONCE { sums[i] } else { 0.0 });
        // SAFETY: as the launch promises; C can be read as well.
        unsafe { self.c.apply_epilogue(self.epilogue, AT_ONCE, at, old, &mut values) };
        for i in 0..AT_ONCE {
            let (row, col) = at(i);
            if row < self.c.rows && col < self.c.cols {
                let at = self.offset(row, col);
                // SAFETY: inside, and this thread's own.
                unsafe {
                    if self.is_half {
                        let bits = match F16 {
                            true => f16::narrow(values[i]).to_bits(),
                            false => bf16::narrow(values[i]).to_bits(),
                        };
                        vec::store(self.c.pointer.cast::<u16>().add(at), [bits]);
                    } else {
                        vec::store(self.c.pointer.add(at), [values[i]]);
                    }
                }
            }
        }
    }

    /// Stores a thread's sums of `wgmma`, those of its warp from (row, col) on: see
    /// [`cuda_std::wgmma`].
    ///
    /// # Safety
    /// A whole warp calls this together, with its own `staging` of [`STAGING`] elements, and no other
    /// thread stores these elements.
    #[inline(always)]
    pub unsafe fn store_fragments<const SUMS: usize>(
        self,
        row: u32,
        col: u32,
        staging: SharedPtr<f32>,
        acc: &[f32; SUMS],
    ) {
        // What follows is not kept in registers during the loop along K.
        let lane = black_box(warp::lane_id());
        let pair_bytes = if self.is_half { 4 } else { 8 };
        let is_paired = !self.epilogue.is_some()
            && self.c.beta == 0.0
            && (self.c.pointer as usize).is_multiple_of(pair_bytes)
            && self.c.ld.is_multiple_of(2)
            && row + ROWS <= self.c.rows
            && col + SUMS as u32 * 2 <= self.c.cols;
        if is_paired {
            let first = self.offset(row + lane / 4, col + lane % 4 * 2);
            for (i, pair) in acc.chunks_exact(2).enumerate() {
                let at = first + i % 2 * 8 * self.c.ld as usize + i / 2 * 8;
                let pair = [self.c.alpha * pair[0], self.c.alpha * pair[1]];
                // SAFETY: inside, on as many bytes, and this thread's own.
                unsafe {
                    if self.is_half {
                        let bits = match F16 {
                            true => f16x2::narrow(pair).to_bits(),
                            false => bf16x2::narrow(pair).to_bits(),
                        };
                        vec::store(self.c.pointer.cast::<u16>().wrapping_add(at).cast(), [bits]);
                    } else {
                        vec::store(self.c.pointer.wrapping_add(at), pair);
                    }
                }
            }
            return;
        }
        if row >= self.c.rows {
            return;
        }
        // Not known to the compiler, so that the loops are not unrolled.
        let (parts, rows) = (black_box((SUMS / STAGED_SUMS) as u32), black_box(ROWS));
        for part in 0..parts {
            let first = col + part * STAGED_COLS;
            if first >= self.c.cols {
                break;
            }
            // SAFETY: the warp's own memory, which all have read when the loop begins anew.
            unsafe {
                for i in 0..SUMS / STAGED_SUMS {
                    // Registers have no addresses: each part has its own stores.
                    if i as u32 == part {
                        for pair in 0..STAGED_SUMS / 2 {
                            let sum = i * STAGED_SUMS + pair * 2;
                            let (row, col) = (pair as u32 % 2 * 8, pair as u32 / 2 * 8);
                            let to = staged(row + lane / 4, col + lane % 4 * 2);
                            staging.store_vec(to, [acc[sum], acc[sum + 1]]);
                        }
                    }
                }
                warp::sync_warp(u32::MAX);
                for down in (0..rows).step_by(AT_ONCE) {
                    let values = array::from_fn(|i| staging.load(staged(down + i as u32, lane)));
                    self.store_each(|i| (row + down + i as u32, first + lane), values);
                }
                warp::sync_warp(u32::MAX);
            }
        }
    }
}
