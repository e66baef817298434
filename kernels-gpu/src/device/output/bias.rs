//! Vectors of an epilogue, such as a bias, with one element per row or column of C.

use cuda_std::cp_async;
use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use crate::abi::epilogue::{Parameters, operations};
use crate::device::output::epilogue::{Epilogue, element};
use crate::device::output::places::FragmentBias;
use crate::device::output::tensor::TensorOutput;

/// One element per row, or one per column.
#[derive(Clone, Copy)]
pub(super) struct Vector {
    pub(super) elements: *const f32,
    pub(super) per_row: bool,
}

impl Vector {
    /// # Safety
    /// There is one for each row, or for each column.
    #[inline(always)]
    unsafe fn at(self, row: u32, col: u32, next: usize) -> f32 {
        let (at, next) = if self.per_row { (row, 0) } else { (col, next) };
        // SAFETY: the caller's contract.
        unsafe { element(self.elements.add(at as usize).add(next)) }
    }
}

/// `value * scale`.
#[derive(Clone, Copy)]
pub(super) struct Scale(pub(super) Vector);

impl Epilogue for Scale {
    #[inline(always)]
    unsafe fn load(self, row: u32, col: u32, next: usize) -> f32 {
        // SAFETY: the launch promises it.
        unsafe { self.0.at(row, col, next) }
    }

    #[inline(always)]
    fn apply(self, value: f32, scale: f32) -> f32 {
        value * scale
    }
}

/// `value + bias`.
#[derive(Clone, Copy)]
pub(super) struct Bias(pub(super) Vector);

impl Epilogue for Bias {
    #[inline(always)]
    unsafe fn load(self, row: u32, col: u32, next: usize) -> f32 {
        // SAFETY: the launch promises it.
        unsafe { self.0.at(row, col, next) }
    }

    #[inline(always)]
    fn apply(self, value: f32, bias: f32) -> f32 {
        value + bias
    }
}

impl Parameters {
    /// Whether there is a bias for each column.
    #[inline(always)]
    pub fn has_column_bias(&self) -> bool {
        self.has(operations::BIAS_COLUMN)
    }

    /// The bias of four of `cols` columns, from `col` on.
    ///
    /// It is 0 past the last column, and if there is no bias for each column.
    ///
    /// # Safety
    /// The parameters are as the launch promises.
    #[inline(always)]
    pub unsafe fn column_bias(&self, col: u32, cols: u32) -> F32x4 {
        let mut four = [0.0; 4];
        for i in 0..4 {
            if self.has_column_bias() && col + (i as u32) < cols {
                // SAFETY: one for each column.
                four[i] = unsafe { element(self.bias.add(col as usize).add(i)) };
            }
        }
        four
    }
}

/// A warp's copy of the bias of a tile's columns, in shared memory: see
/// [`TensorOutput::copy_bias`].
#[derive(Clone, Copy)]
pub struct StagedBias(SharedPtr<f32>);

impl StagedBias {
    /// The bias that will be copied to `memory`.
    ///
    /// # Safety
    /// The memory, on 8 bytes, is a warp's own, with one element for each of the tile's columns.
    #[inline(always)]
    pub unsafe fn at(memory: SharedPtr<f32>) -> Self {
        Self(memory)
    }
}

impl FragmentBias for StagedBias {
    const EXISTS: bool = true;

    #[inline(always)]
    fn wait(self) {
        cp_async::wait_group::<0>();
    }

    #[inline(always)]
    fn from(self, col: u32) -> Self {
        Self(self.0.add(col))
    }

    #[inline(always)]
    unsafe fn of_pair(self, col: u32) -> [f32; 2] {
        // SAFETY: it has been copied, as whoever stores with it promises; an even column lies on 8
        // bytes.
        unsafe { self.0.load_vec(col) }
    }
}

impl<const F16: bool> TensorOutput<F16> {
    /// Begins to copy the bias of `cols` columns, from `col` on. Columns outside of C get 0.
    ///
    /// It is for [`store_fragments`](Self::store_fragments), which then waits for nothing. Each
    /// warp has its own copy, since the warps of a tile need not wait for each other.
    ///
    /// # Safety
    /// There is a bias for each column. A whole warp calls this together, with its own memory of
    /// `cols` elements, a multiple of 32. It has stored what needed an earlier bias there.
    #[inline(always)]
    pub unsafe fn copy_bias(self, col: u32, cols: u32, to: StagedBias) {
        for first in (0..cols).step_by(32) {
            let i = first + black_box(warp::lane_id());
            let from = self.epilogue.bias.wrapping_add((col + i) as usize);
            // SAFETY: only what is inside is read; the warp's own memory.
            unsafe { cp_async::copy_zfill(to.0.add(i), from, col + i < self.c.cols) };
        }
        cp_async::commit_group();
    }
}
