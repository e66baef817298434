//! Where a thread's outputs lie in C.

use cuda_std::hint::black_box;
use cuda_std::prelude::*;

/// How many outputs [`Output::store_epilogue`](crate::device::output::matrix::Output::store_epilogue) takes at once in most kernels.
pub const OUTPUTS_AT_ONCE: usize = 16;

/// The places of a thread's outputs: closures, or where several are in a row or a column.
pub trait Places: Copy {
    /// So many outputs, from each multiple of that on, are neighbours in a row.
    const RUN: usize = 1;
    /// Whether several runs are in a row, or in the same columns.
    const SHARED: bool = false;
    /// Whether a kernel has loaded the bias of the columns ahead.
    const HAS_COLUMN_BIAS: bool = false;
    /// Whether all outputs are inside, in runs of four, which are vectors in whatever is read for them: of each matrix, and of each vector of columns,
    /// they lie on four times an element's bytes. See [`Parameters::is_aligned`](crate::abi::epilogue::Parameters::is_aligned).
    const ALIGNED: bool = false;

    /// The row and the column of an output.
    fn at(self, i: usize) -> (u32, u32);

    /// The same, of which the compiler does not know that they are: it keeps nothing in registers from one use to the next.
    #[inline(always)]
    fn again(self) -> Self {
        self
    }

    /// The first output in the row of this one, and the first in its column.
    #[inline(always)]
    fn first(self, i: usize) -> (usize, usize) {
        (i, i)
    }

    /// The bias of the columns of four outputs from this one on, where a kernel has loaded it ahead.
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

/// The bias of the columns of quads in a row, by their number in it, where a kernel has loaded it ahead.
pub trait ColumnBias: Copy {
    /// Whether it has.
    const EXISTS: bool;

    /// Waits for what this thread has copied; the warp is to come together before it is read.
    #[inline(always)]
    fn wait(self) {}

    /// That of a quad's columns.
    ///
    /// # Safety
    /// The launch has a bias for each column.
    unsafe fn of_quad(self, in_row: usize) -> F32x4;
}

/// It is in registers, of quads that are in the same columns.
impl ColumnBias for F32x4 {
    const EXISTS: bool = true;

    #[inline(always)]
    unsafe fn of_quad(self, _: usize) -> F32x4 {
        self
    }
}

/// A kernel loads no bias ahead.
#[derive(Clone, Copy)]
pub struct NoColumnBias;

impl ColumnBias for NoColumnBias {
    const EXISTS: bool = false;

    #[inline(always)]
    unsafe fn of_quad(self, _: usize) -> F32x4 {
        [0.0; 4]
    }
}

/// The places of quads, each of which is four neighbours in a row of C.
#[derive(Clone, Copy)]
pub struct QuadPlaces<F, B> {
    /// From a quad's number to the row and the column of its first output.
    pub at: F,
    /// The number of the first one.
    pub first: u32,
    /// How many quads are in a row; then as many are in the same columns of another one further down.
    pub in_row: usize,
    /// The bias of their columns.
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
