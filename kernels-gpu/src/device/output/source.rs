//! The source: C before the launch, which an epilogue multiplies by beta and adds. Who reads it
//! also reads a residual.

use core::marker::PhantomData;

use cuda_std::half::{Half, bf16, f16};
use cuda_std::prelude::*;
use cuda_std::vec;

use crate::device::output::epilogue::{Epilogue, Residual};
use crate::device::output::matrix::Output;
use crate::device::output::places::{OUTPUTS_AT_ONCE, Places};
use crate::device::output::tensor::TensorOutput;

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

/// C, and a residual, for values that are four neighbours in a row each: in vectors, if four
/// neighbours are one.
#[derive(Clone, Copy)]
pub(super) struct QuadSource<const F16: bool>(pub(super) TensorOutput<F16>);

impl<const F16: bool> QuadSource<F16> {
    /// Adds elements of a matrix with C's shape, times a factor.
    ///
    /// `load` gives the bits of four elements, and `widen` their values. If loads widened, each
    /// would wait for the one before.
    #[inline(always)]
    fn add_quads<P: Places, const WORDS: usize, const N: usize>(
        c: Output,
        (ld, factor): (u32, f32),
        places: P,
        values: &mut [f32; N],
        load: impl Fn(usize) -> [u32; WORDS],
        widen: impl Fn([u32; WORDS], usize) -> f32,
    ) {
        let mut quads = [[0; WORDS]; OUTPUTS_AT_ONCE / 4];
        for i in 0..N / 4 {
            let (row, col) = places.at(4 * i);
            if row < c.rows && col < c.cols {
                quads[i] = load(row as usize * ld as usize + col as usize);
            }
        }
        for i in 0..N {
            values[i] = fma(factor, widen(quads[i / 4], i % 4), values[i]);
        }
    }
}

impl<const F16: bool> Source for QuadSource<F16> {
    #[inline(always)]
    unsafe fn add<P: Places, const N: usize>(
        self,
        c: Output,
        beta: f32,
        count: usize,
        places: P,
        values: &mut [f32; N],
    ) {
        let Self(output) = self;
        if !output.has_quads() {
            // SAFETY: the caller's contract.
            unsafe { output.add(c, beta, count, places, values) };
            return;
        }
        let from = c.pointer.cast::<u32>().cast_const();
        let scale = (c.ld, beta);
        if output.is_half {
            // SAFETY: inside, on 8 bytes.
            let load = |offset| unsafe { vec::load::<_, 2>(from.cast::<u16>().add(offset).cast()) };
            Self::add_quads(c, scale, places, values, load, |pairs, i| {
                TensorOutput::<F16>::widen((pairs[i / 2] >> (i % 2 * 16)) as u16)
            });
        } else {
            // SAFETY: inside, on 16 bytes.
            let load = |offset| unsafe { vec::load::<_, 4>(from.add(offset)) };
            Self::add_quads(c, scale, places, values, load, |quad, i| f32::from_bits(quad[i]));
        }
    }

    #[inline(always)]
    unsafe fn add_residual<P: Places, const N: usize>(
        self,
        c: Output,
        residual: Residual,
        count: usize,
        places: P,
        values: &mut [f32; N],
    ) {
        let Self(output) = self;
        if !output.has_quads() || !output.epilogue.has_aligned_residual() {
            // SAFETY: the caller's contract.
            unsafe { c.visit(residual, count, places, values) };
            return;
        }
        let from = residual.elements.cast::<u32>();
        // SAFETY: inside, on 16 bytes.
        let load = |offset| unsafe { vec::load::<_, 4>(from.add(offset)) };
        Self::add_quads(c, (residual.ld, 1.0), places, values, load, |quad, i| {
            f32::from_bits(quad[i])
        });
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
