//! The source: C before the launch, which an epilogue multiplies by beta and adds. Who reads it
//! also reads a residual.

use core::marker::PhantomData;

use cuda_std::half::{Half, bf16, f16};
use cuda_std::prelude::*;
use cuda_std::vec;

use crate::device::output::epilogue::{Epilogue, Residual};
use crate::device::output::matrix::Output;
use crate::device::output::places::Places;

/// An element of C before the launch, the *source*.
pub(crate) trait SourceElement: Copy {
    /// One element, as its bits. If it were widened here, each load would wait for the one before.
    ///
    /// # Safety
    /// It can be read.
    unsafe fn load(pointer: *const Self) -> f32;

    /// The value of bits that [`load`](Self::load) returned.
    fn widen(bits: f32) -> f32;
}

impl SourceElement for f32 {
    #[inline(always)]
    unsafe fn load(pointer: *const Self) -> f32 {
        // SAFETY: the caller's contract.
        unsafe { *pointer }
    }

    #[inline(always)]
    fn widen(bits: f32) -> f32 {
        bits
    }
}

macro_rules! half_source {
    ($($type:ty),*) => {$(
        impl SourceElement for $type {
            #[inline(always)]
            unsafe fn load(pointer: *const Self) -> f32 {
                // SAFETY: the caller's contract.
                let [element] = unsafe { vec::load(pointer) };
                f32::from_bits(element.to_bits().into())
            }

            #[inline(always)]
            fn widen(bits: f32) -> f32 {
                Self::from_bits(bits.to_bits() as u16).widen()
            }
        }
    )*};
}

half_source!(f16, bf16);

/// How C is read before it is overwritten: its element type is known, or is one of several.
pub(crate) trait Source: Copy {
    /// Adds beta times C to `count` values, whose places in it are given.
    ///
    /// # Safety
    /// C can be read. The warp is together, where one stages what it reads.
    unsafe fn add<P: Places, const N: usize>(
        self,
        c: Output,
        beta: f32,
        count: usize,
        places: P,
        values: &mut [f32; N],
    );

    /// Adds a residual to `count` values.
    ///
    /// # Safety
    /// It has C's shape and can be read. The warp is together, as above.
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
        unsafe { c.visit(residual, count, places, values) };
    }
}

/// C has elements of type `T`.
#[derive(Clone, Copy)]
pub(crate) struct SourceOf<T>(PhantomData<T>);

impl<T> SourceOf<T> {
    pub(crate) const NEW: Self = Self(PhantomData);
}

impl<T: SourceElement> Source for SourceOf<T> {
    #[inline(always)]
    unsafe fn add<P: Places, const N: usize>(
        self,
        c: Output,
        beta: f32,
        count: usize,
        places: P,
        values: &mut [f32; N],
    ) {
        let epilogue = Accumulate { c: c.pointer.cast::<T>().cast_const(), ld: c.ld, beta };
        // SAFETY: the caller's contract.
        unsafe { c.visit(epilogue, count, places, values) };
    }
}

/// `value + beta * C`.
#[derive(Clone, Copy)]
struct Accumulate<T> {
    c: *const T,
    ld: u32,
    beta: f32,
}

impl<T: SourceElement> Accumulate<T> {
    #[inline(always)]
    fn at(self, row: u32, col: u32) -> *const T {
        self.c.wrapping_add(row as usize * self.ld as usize + col as usize)
    }
}

impl<T: SourceElement> Epilogue for Accumulate<T> {
    #[inline(always)]
    unsafe fn load(self, row: u32, col: u32, next: usize) -> f32 {
        // SAFETY: inside.
        unsafe { T::load(self.at(row, col).add(next)) }
    }

    #[inline(always)]
    fn apply(self, value: f32, old: f32) -> f32 {
        fma(self.beta, T::widen(old), value)
    }
}
