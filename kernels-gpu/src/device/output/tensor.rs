//! C of the kernels for tensor cores: in f32, or in 16 bits like A and B, with an epilogue.

use cuda_std::half::{Half, bf16, bf16x2, f16, f16x2};
use cuda_std::prelude::*;
use cuda_std::vec;

use crate::abi::epilogue::Parameters;
use crate::abi::tensor_core::options::HALF_OUTPUT;
use crate::device::operand::input::addressed;
use crate::device::output::matrix::Output;
use crate::device::output::places::{OUTPUTS_AT_ONCE, Places};
use crate::device::output::source::{Source, SourceOf};

/// Outputs that a thread stores at a time if K is 0.
pub const AT_ONCE: usize = 8;

const _: () = assert!(AT_ONCE <= OUTPUTS_AT_ONCE, "an epilogue takes no more");

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
    /// A matrix, and the epilogue of its elements.
    ///
    /// # Safety
    /// As for [`Output::new`], with elements of 16 bits or an array of addresses if the
    /// [`options`](crate::abi::tensor_core::options) say so; and the parameters are as the launch
    /// promises.
    #[inline(always)]
    pub unsafe fn new(c: Output, options: u32, epilogue: Parameters) -> Self {
        Self { c, is_half: options & HALF_OUTPUT != 0, epilogue }
    }

    /// The output of a product of the batch; the next product is `stride` elements further.
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

    /// The output of a product whose address is in the array that lies in C's place.
    ///
    /// # Safety
    /// It is, on 8 bytes, and nothing writes the array during the launch.
    #[inline(always)]
    pub unsafe fn addressed(self, product: u32) -> Self {
        // SAFETY: the caller's contract.
        let pointer = unsafe { addressed(self.c.pointer, product) };
        let c = Output { pointer, ..self.c };
        Self { c, epilogue: self.epilogue.of_product(product), ..self }
    }

    /// The output without rows from `rows` on, nor columns from `cols` on.
    #[inline(always)]
    pub fn cut(self, [rows, cols]: [u32; 2]) -> Self {
        let c = Output { rows: self.c.rows.min(rows), cols: self.c.cols.min(cols), ..self.c };
        Self { c, ..self }
    }

    /// A number rounded to nearest, as bits of the 16-bit type that C may have.
    #[inline(always)]
    pub(crate) fn narrow(value: f32) -> u16 {
        match F16 {
            true => f16::narrow(value).to_bits(),
            false => bf16::narrow(value).to_bits(),
        }
    }

    /// The number of these bits, which [`narrow`](Self::narrow) returns.
    #[inline(always)]
    pub(crate) fn widen(bits: u16) -> f32 {
        match F16 {
            true => f16::from_bits(bits).widen(),
            false => bf16::from_bits(bits).widen(),
        }
    }

    /// [`narrow`](Self::narrow) of two numbers, the first in the lower half.
    #[inline(always)]
    pub(crate) fn narrow_pair(pair: [f32; 2]) -> u32 {
        match F16 {
            true => f16x2::narrow(pair).to_bits(),
            false => bf16x2::narrow(pair).to_bits(),
        }
    }

    /// Elements from the first one to (row, col).
    #[inline(always)]
    pub(crate) fn offset(self, row: u32, col: u32) -> usize {
        row as usize * self.c.ld as usize + col as usize
    }

    /// Whether C is vectors of 16 bytes, each inside or outside.
    #[inline(always)]
    pub(super) fn has_vectors(self) -> bool {
        let vector = if self.is_half { 8 } else { 4 };
        (self.c.pointer as usize).is_multiple_of(16)
            && self.c.ld.is_multiple_of(vector)
            && self.c.cols.is_multiple_of(vector)
    }

    /// Whether four neighbours in a row are a vector, if the first one's column is a multiple of
    /// four: all are inside, or none.
    #[inline(always)]
    pub(super) fn has_quads(self) -> bool {
        let bytes = if self.is_half { 8 } else { 16 };
        (self.c.pointer as usize).is_multiple_of(bytes)
            && self.c.ld.is_multiple_of(4)
            && self.c.cols.is_multiple_of(4)
    }

    /// Stores four neighbours in a row, `offset` elements behind C's first.
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

    /// Stores an element.
    ///
    /// # Safety
    /// It is inside, and no other thread stores it.
    #[inline(always)]
    pub(super) unsafe fn store_inside(self, row: u32, col: u32, value: f32) {
        // One address for both types.
        let bytes = if self.is_half { 2 } else { 4 };
        let to = self.c.pointer.cast::<u8>().wrapping_add(self.offset(row, col) * bytes);
        // SAFETY: the caller's contract.
        unsafe {
            if self.is_half {
                vec::store(to.cast(), [Self::narrow(value)]);
            } else {
                vec::store(to.cast(), [value]);
            }
        }
    }

    /// Stores the results of empty sums in a few elements, at the places `at`, if they are inside.
    ///
    /// # Safety
    /// No other thread stores these elements.
    #[inline(always)]
    pub unsafe fn store_empty(self, at: impl Fn(usize) -> (u32, u32) + Copy) {
        let mut values = [0.0; OUTPUTS_AT_ONCE];
        // SAFETY: as the launch promises; C can also be read.
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
