//! Places of a thread's outputs in C.

use cuda_std::hint::black_box;
use cuda_std::prelude::*;

/// Outputs that [`Output::store_epilogue`](crate::device::output::matrix::Output::store_epilogue)
/// takes at once in most kernels.
pub const OUTPUTS_AT_ONCE: usize = 16;

/// The places of a thread's outputs: a closure, or a type that knows which share a row or column.
pub trait Places: Copy {
    /// `RUN` outputs are neighbours in a row, from each multiple of `RUN` on.
    const RUN: usize = 1;
    /// Whether several runs are in a row, or in the same columns.
    const SHARED: bool = false;
    /// Whether the kernel has loaded the columns' bias ahead.
    const HAS_COLUMN_BIAS: bool = false;

    /// The row and the column of an output.
    fn at(self, i: usize) -> (u32, u32);

    /// These places behind `black_box`, so that they are recomputed instead of kept in registers.
    #[inline(always)]
    fn again(self) -> Self {
        self
    }

    /// The first output in the row of this one, and the first in its column.
    #[inline(always)]
    fn first(self, i: usize) -> (usize, usize) {
        (i, i)
    }

    /// The bias of the columns of four outputs, from this one on, if the kernel has loaded it
    /// ahead.
    ///
    /// # Safety
    /// The launch has a bias for each column.
    #[inline(always)]
    unsafe fn column_bias(self, _i: usize) -> F32x4 {
        [0.0; 4]
    }
}

impl<F: Fn(usize) -> (u32, u32) + Copy> Places for F {
    #[inline(always)]
    fn at(self, i: usize) -> (u32, u32) {
        self(i)
    }
}

/// The bias of columns, by the number of a quad in its row, if a kernel has loaded it ahead.
pub trait ColumnBias: Copy {
    /// Whether a kernel has loaded it ahead.
    const EXISTS: bool;

    /// The bias of a quad's columns.
    ///
    /// # Safety
    /// The launch has a bias for each column.
    unsafe fn of_quad(self, in_row: usize) -> F32x4;
}

/// The bias of columns for the sums of tensor cores, whose neighbours come in pairs.
pub trait FragmentBias: Copy {
    /// Whether a kernel has loaded it ahead.
    const EXISTS: bool;

    /// Waits for this thread's copies. The warp must come together before the bias is read.
    #[inline(always)]
    fn wait(self) {}

    /// The bias, counted from this even column.
    fn from(self, col: u32) -> Self;

    /// The bias of an even column, and of the next one.
    ///
    /// # Safety
    /// The launch has a bias for each column.
    unsafe fn of_pair(self, col: u32) -> [f32; 2];
}

/// In registers, for quads that are in the same columns.
impl ColumnBias for F32x4 {
    const EXISTS: bool = true;

    #[inline(always)]
    unsafe fn of_quad(self, _: usize) -> F32x4 {
        self
    }
}

/// No bias is loaded ahead.
#[derive(Clone, Copy)]
pub struct NoColumnBias;

impl ColumnBias for NoColumnBias {
    const EXISTS: bool = false;

    #[inline(always)]
    unsafe fn of_quad(self, _: usize) -> F32x4 {
        [0.0; 4]
    }
}

impl FragmentBias for NoColumnBias {
    const EXISTS: bool = false;

    #[inline(always)]
    fn from(self, _: u32) -> Self {
        self
    }

    #[inline(always)]
    unsafe fn of_pair(self, _: u32) -> [f32; 2] {
        [0.0; 2]
    }
}

/// The places of quads: each is four neighbours in a row of C.
#[derive(Clone, Copy)]
pub struct QuadPlaces<F, B> {
    /// Maps a quad's number to the row and the column of its first output.
    pub at: F,
    /// The number of the first quad.
    pub first: u32,
    /// Quads in a row. Each further group of `in_row` quads is in the same columns, in another row
    /// below.
    pub in_row: usize,
    /// The bias of the quads' columns.
    pub column_bias: B,
}

impl<F: Fn(u32) -> (u32, u32) + Copy, B: ColumnBias> Places for QuadPlaces<F, B> {
    const RUN: usize = 4;
    const SHARED: bool = true;
    const HAS_COLUMN_BIAS: bool = B::EXISTS;

    #[inline(always)]
    fn at(self, i: usize) -> (u32, u32) {
        let i = i as u32;
        let (row, col) = (self.at)(self.first + i / 4);
        (row, col + i % 4)
    }

    #[inline(always)]
    fn again(self) -> Self {
        Self { first: black_box(self.first), ..self }
    }

    #[inline(always)]
    fn first(self, i: usize) -> (usize, usize) {
        let in_row = i % (4 * self.in_row);
        (i - in_row, in_row)
    }

    #[inline(always)]
    unsafe fn column_bias(self, i: usize) -> F32x4 {
        // SAFETY: the caller's contract.
        unsafe { self.column_bias.of_quad(i / 4) }
    }
}
