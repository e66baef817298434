//! A or B as a rung reads it, in bounds.
//!
//! Beyond the edge of its matrix a tile is filled with zeros, which add nothing to a product.
//! Outputs beyond the edge of C are not stored. So a rung can work on whole tiles, whatever the
//! shape.
//!
//! # Vectorised accesses
//!
//! With `ALIGNED`, the launch promises that every row starts at a multiple of 16 bytes and holds a
//! multiple of four elements. Four neighbours are then all inside or all outside, and one 128-bit
//! access moves them. Without it they move one by one. The host chooses, once per launch; see
//! [`KernelDescriptor::unaligned`](crate::abi::KernelDescriptor::unaligned).

use cuda_std::prelude::*;
use cuda_std::vec;

/// Address number `number` of an array, computed as a step from the array.
///
/// So the compiler knows that the address is global, as the array is.
///
/// # Safety
/// The array lies in global memory, has more than `number` addresses, and nothing writes it during
/// the launch.
#[inline(always)]
pub unsafe fn addressed<T>(array: *mut T, number: u32) -> *mut T {
    // SAFETY: the caller's contract.
    let [address] = unsafe { vec::load_nc::<usize, 1>(array.cast::<usize>().add(number as usize)) };
    array.wrapping_byte_add(address.wrapping_sub(array as usize))
}

/// A or B: `rows` x `cols` elements, with the leading dimension `ld`.
#[derive(Clone, Copy)]
pub struct Input {
    pointer: *const f32,
    ld: u32,
    rows: u32,
    cols: u32,
}

impl Input {
    /// A matrix of `rows` x `cols` elements at `pointer`, with the leading dimension `ld`.
    ///
    /// # Safety
    /// That is what lies there, in global memory, and nothing writes it during the launch.
    #[inline(always)]
    pub unsafe fn new(pointer: *const f32, ld: u32, rows: u32, cols: u32) -> Self {
        Input { pointer, ld, rows, cols }
    }

    /// The address of element (row, col).
    ///
    /// # Safety
    /// The element is inside.
    #[inline(always)]
    pub unsafe fn address(self, row: u32, col: u32) -> *const f32 {
        // SAFETY: the caller's contract.
        unsafe { self.pointer.add(row as usize * self.ld as usize + col as usize) }
    }

    /// Elements from one row to the one `rows` below.
    #[inline(always)]
    pub fn step(self, rows: u32) -> usize {
        rows as usize * self.ld as usize
    }

    /// The address of element (row, col), and true; or, outside, some aligned address, and false.
    #[inline(always)]
    pub fn address_if_inside(self, row: u32, col: u32) -> (*const f32, bool) {
        if row < self.rows && col < self.cols {
            // SAFETY: inside.
            (unsafe { self.address(row, col) }, true)
        } else {
            (self.pointer, false)
        }
    }

    /// Element (row, col), or 0 outside.
    #[inline(always)]
    pub fn get(self, row: u32, col: u32) -> f32 {
        if row < self.rows && col < self.cols {
            // SAFETY: in bounds.
            unsafe { *self.address(row, col) }
        } else {
            0.0
        }
    }

    /// The four elements from (row, col) on along the row, with 0 for those outside. `col`
    /// is a multiple of four.
    ///
    /// # Safety
    /// If `ALIGNED`, the matrix is as the module says.
    #[inline(always)]
    pub unsafe fn get4<const ALIGNED: bool>(self, row: u32, col: u32) -> F32x4 {
        if !ALIGNED {
            return [
                self.get(row, col),
                self.get(row, col + 1),
                self.get(row, col + 2),
                self.get(row, col + 3),
            ];
        }
        if row < self.rows && col < self.cols {
            // SAFETY: `cols` is a multiple of four, so that all four are in bounds, and the
            // row and `col` keep the address a multiple of 16.
            unsafe { vec::load4(self.address(row, col)) }
        } else {
            [0.0; 4]
        }
    }
}
