//! Epilogues: what becomes of a sum before it is stored, while it is still in registers.
//!
//! ```text
//! value = alpha * sum + beta * C     alpha and beta are parameters, or in device memory
//! value = value * scale              one for each row, or for each column
//! value = value + bias               likewise
//! value = activation(value)          ReLU, GELU or SiLU
//! C     = value + residual           a matrix of C's shape
//! ```
//!
//! Each of these is an [`Epilogue`]: what it loads for an output, and what it makes of it. The launch
//! says which there are ([`Parameters`]), so that no kernel is compiled once more for any of them.
//! Where there is none, a kernel stores as it would without (`persistent` only if it does not read C): one branch,
//! the same for all threads.
//! It comes after the reductions of slice-K, split-K and stream-K, so that it sees final sums alone.
//!
//! To add one: implement [`Epilogue`], give it a number in [`operations`], and call
//! `visit` for it in `Output::apply_epilogue`.

use core::marker::PhantomData;

use cuda_std::half::{Half, bf16, f16};
use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::{fast, vec};

use crate::matrix::Output;

/// What [`Parameters::operations`] is a sum of.
pub mod operations {
    /// A factor for each row of C.
    pub const SCALE_ROW: u32 = 1;
    /// A factor for each column.
    pub const SCALE_COLUMN: u32 = 1 << 1;
    /// A bias for each row of C.
    pub const BIAS_ROW: u32 = 1 << 2;
    /// A bias for each column.
    pub const BIAS_COLUMN: u32 = 1 << 3;
    /// A matrix that is added at the end.
    pub const RESIDUAL: u32 = 1 << 4;
    /// Alpha and beta are read from device memory.
    pub const DEVICE_FACTORS: u32 = 1 << 5;
    /// K is 0, so that the alpha in device memory does not matter.
    pub const NO_SUM: u32 = 1 << 6;
    /// The activations, of which there is one at most.
    pub const ACTIVATION: u32 = 7 << 8;
    /// `max(x, 0)`.
    pub const RELU: u32 = 1 << 8;
    /// `x / 2 * (1 + erf(x / sqrt(2)))`.
    pub const GELU: u32 = 2 << 8;
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
    pub const GELU_TANH: u32 = 3 << 8;
    /// `x / (1 + exp(-x))`.
    pub const SILU: u32 = 4 << 8;
}

/// The epilogue of a launch, one parameter of a kernel. Of what [`operations`] does not name, nothing
/// is read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// What is done, a sum of [`operations`]; 0 if nothing is.
    pub operations: u32,
    /// The leading dimension of the residual.
    pub ld_residual: u32,
    /// Alpha, one element.
    pub alpha: *const f32,
    /// Beta, one element.
    pub beta: *const f32,
    /// As many elements as C has rows, or columns.
    pub scale: *const f32,
    /// As many elements as C has rows, or columns.
    pub bias: *const f32,
    /// A matrix of C's shape.
    pub residual: *const f32,
    /// Elements from one product's scale to the next one's.
    pub stride_scale: u64,
    /// Elements from one product's bias to the next one's.
    pub stride_bias: u64,
    /// Elements from one product's residual to the next one's.
    pub stride_residual: u64,
}

/// How many outputs [`Output::store_epilogue`] takes at once in most kernels.
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
    /// they lie on four times an element's bytes. See [`Parameters::is_aligned`].
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

/// What becomes of an output.
pub trait Epilogue: Copy {
    /// What it reads for the output so many columns right of (row, col), if anything: for neighbours there is one
    /// address to work out.
    ///
    /// # Safety
    /// That output lies inside C.
    #[inline(always)]
    unsafe fn load(self, _row: u32, _col: u32, _next: usize) -> f32 {
        0.0
    }

    /// The same for four neighbours, by one access where there are four elements.
    ///
    /// # Safety
    /// They lie inside C, and are as [`Places::ALIGNED`] says.
    #[inline(always)]
    unsafe fn load4(self, row: u32, col: u32) -> F32x4 {
        // SAFETY: the caller's contract.
        [0, 1, 2, 3].map(|next| unsafe { self.load(row, col, next) })
    }

    /// The output, from its value so far and what was loaded for it.
    fn apply(self, value: f32, loaded: f32) -> f32;
}

/// An element of C before the launch, the *source*.
pub(crate) trait SourceElement: Copy {
    /// One of them, as its bits: widened here, each load would wait for the one before.
    ///
    /// # Safety
    /// It can be read.
    unsafe fn load(pointer: *const Self) -> f32;

    /// Four neighbours.
    ///
    /// # Safety
    /// They can be read, and lie on four times an element's bytes.
    unsafe fn load4(pointer: *const Self) -> F32x4;

    /// The value of such bits.
    fn widen(bits: f32) -> f32;
}

impl SourceElement for f32 {
    #[inline(always)]
    unsafe fn load(pointer: *const Self) -> f32 {
        // SAFETY: the caller's contract.
        unsafe { *pointer }
    }

    #[inline(always)]
    unsafe fn load4(pointer: *const Self) -> F32x4 {
        // SAFETY: the caller's contract.
        unsafe { vec::load4(pointer) }
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
            unsafe fn load4(pointer: *const Self) -> F32x4 {
                // SAFETY: the caller's contract.
                let four: [Self; 4] = unsafe { vec::load(pointer) };
                four.map(|element| f32::from_bits(element.to_bits().into()))
            }

            #[inline(always)]
            fn widen(bits: f32) -> f32 {
                Self::from_bits(bits.to_bits() as u16).widen()
            }
        }
    )*};
}

half_source!(f16, bf16);

/// How the elements of C are read before they are overwritten: of one type, or of one of several.
pub(crate) trait Source: Copy {
    /// Adds beta times C to `count` values, whose places in it are given.
    ///
    /// # Safety
    /// C can be read, and the places are as [`Places::ALIGNED`] says.
    unsafe fn add<P: Places, const N: usize>(
        self,
        c: Output,
        beta: f32,
        count: usize,
        places: P,
        values: &mut [f32; N],
    );
}

/// They are of this type.
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
    unsafe fn load4(self, row: u32, col: u32) -> F32x4 {
        // SAFETY: the caller's contract.
        unsafe { T::load4(self.at(row, col)) }
    }

    #[inline(always)]
    fn apply(self, value: f32, old: f32) -> f32 {
        fma(self.beta, T::widen(old), value)
    }
}

/// An element in global memory: of a pointer in a structure the compiler does not know that.
///
/// # Safety
/// It can be read.
#[inline(always)]
unsafe fn element(pointer: *const f32) -> f32 {
    // SAFETY: the caller's contract.
    let [element] = unsafe { vec::load(pointer) };
    element
}

/// An element for each row, or for each column.
#[derive(Clone, Copy)]
struct Vector {
    elements: *const f32,
    per_row: bool,
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

    /// Those of four neighbours in a row.
    ///
    /// # Safety
    /// As for [`at`](Self::at); those of columns lie on 16 bytes.
    #[inline(always)]
    unsafe fn at4(self, row: u32, col: u32) -> F32x4 {
        // SAFETY: the caller's contract.
        unsafe {
            match self.per_row {
                true => [self.at(row, col, 0); 4],
                false => vec::load4(self.elements.add(col as usize)),
            }
        }
    }
}

/// `value * scale`.
#[derive(Clone, Copy)]
struct Scale(Vector);

impl Epilogue for Scale {
    #[inline(always)]
    unsafe fn load(self, row: u32, col: u32, next: usize) -> f32 {
        // SAFETY: the launch promises it.
        unsafe { self.0.at(row, col, next) }
    }

    #[inline(always)]
    unsafe fn load4(self, row: u32, col: u32) -> F32x4 {
        // SAFETY: the launch promises it; the caller's contract.
        unsafe { self.0.at4(row, col) }
    }

    #[inline(always)]
    fn apply(self, value: f32, scale: f32) -> f32 {
        value * scale
    }
}

/// `value + bias`.
#[derive(Clone, Copy)]
struct Bias(Vector);

impl Epilogue for Bias {
    #[inline(always)]
    unsafe fn load(self, row: u32, col: u32, next: usize) -> f32 {
        // SAFETY: the launch promises it.
        unsafe { self.0.at(row, col, next) }
    }

    #[inline(always)]
    unsafe fn load4(self, row: u32, col: u32) -> F32x4 {
        // SAFETY: the launch promises it; the caller's contract.
        unsafe { self.0.at4(row, col) }
    }

    #[inline(always)]
    fn apply(self, value: f32, bias: f32) -> f32 {
        value + bias
    }
}

/// `max(value, 0)`, and NaN of NaN.
#[derive(Clone, Copy)]
struct Relu;

impl Epilogue for Relu {
    #[inline(always)]
    fn apply(self, value: f32, _: f32) -> f32 {
        max_nan(value, 0.0)
    }
}

/// `x * P(X <= x)` of a normal distribution: `x / 2 * (1 + erf(x / sqrt(2)))`.
#[derive(Clone, Copy)]
struct Gelu;

impl Epilogue for Gelu {
    #[inline(always)]
    fn apply(self, x: f32, _: f32) -> f32 {
        // P(X > a) = numerator / denominator * exp(-a^2 / 2), two polynomials in a, the latter with a^4 besides (a
        // minimax fit): to 7.1e-8 * (1 + a^2 / 2) relatively, before rounding, up to 13.2, where the exponential function
        // is flushed to 0.
        const NUMERATOR: [f32; 4] = [0.398_816_1, 2.993_253_7, 9.454_111, 13.801_935];
        const DENOMINATOR: [f32; 4] = [7.492_367_7, 24.845_28, 40.932_823, 27.603_872];
        let a = x.abs().min(20.0);
        let (mut above, mut below) = (NUMERATOR[0], a + DENOMINATOR[0]);
        for i in 1..4 {
            above = fma(above, a, NUMERATOR[i]);
            below = fma(below, a, DENOMINATOR[i]);
        }
        let exponential = fast::exp2_ftz(a * a * (-0.5 * core::f32::consts::LOG2_E));
        let tail = above * fast::recip_ftz(below) * exponential;
        fma(-a, tail, Relu.apply(x, 0.0))
    }
}

/// `x / (1 + 2^u)`.
#[inline(always)]
fn logistic(x: f32, u: f32) -> f32 {
    x * fast::recip_ftz(1.0 + fast::exp2_ftz(u))
}

/// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
#[derive(Clone, Copy)]
struct GeluTanh;

impl Epilogue for GeluTanh {
    #[inline(always)]
    fn apply(self, x: f32, _: f32) -> f32 {
        // The same as `x / (1 + exp(-2 u))` of the argument u of the tangent.
        const FACTOR: f32 = -2.0 * 0.797_884_6 * core::f32::consts::LOG2_E;
        let u = x * fma(FACTOR * 0.044_715, x * x, FACTOR);
        logistic(x, u)
    }
}

/// `x / (1 + exp(-x))`.
#[derive(Clone, Copy)]
struct Silu;

impl Epilogue for Silu {
    #[inline(always)]
    fn apply(self, x: f32, _: f32) -> f32 {
        logistic(x, x * -core::f32::consts::LOG2_E)
    }
}

/// `value + residual`.
#[derive(Clone, Copy)]
struct Residual {
    elements: *const f32,
    ld: u32,
}

impl Epilogue for Residual {
    #[inline(always)]
    unsafe fn load(self, row: u32, col: u32, next: usize) -> f32 {
        let first = row as usize * self.ld as usize + col as usize;
        // SAFETY: the launch promises a matrix of C's shape.
        unsafe { element(self.elements.add(first).add(next)) }
    }

    #[inline(always)]
    unsafe fn load4(self, row: u32, col: u32) -> F32x4 {
        let first = row as usize * self.ld as usize + col as usize;
        // SAFETY: as above; the caller's contract.
        unsafe { vec::load4(self.elements.add(first)) }
    }

    #[inline(always)]
    fn apply(self, value: f32, residual: f32) -> f32 {
        value + residual
    }
}

impl Parameters {
    /// Whether there is anything to do: the same for all threads.
    #[inline(always)]
    pub fn is_some(&self) -> bool {
        self.operations != 0
    }

    /// Whether four neighbours in a row are vectors of 16 bytes in the residual and in vectors of columns, where the first one's column is a multiple
    /// of four.
    #[inline(always)]
    pub fn is_aligned(&self) -> bool {
        use operations::{BIAS_COLUMN, RESIDUAL, SCALE_COLUMN};
        let is_free = |operation: u32, pointer: *const f32, ld: u32| {
            !self.has(operation) || (pointer as usize).is_multiple_of(16) && ld.is_multiple_of(4)
        };
        is_free(SCALE_COLUMN, self.scale, 0)
            && is_free(BIAS_COLUMN, self.bias, 0)
            && is_free(RESIDUAL, self.residual, self.ld_residual)
    }

    #[inline(always)]
    fn has(&self, operations: u32) -> bool {
        self.operations & operations != 0
    }

    /// Whether there is a bias for each column.
    #[inline(always)]
    pub fn has_column_bias(&self) -> bool {
        self.has(operations::BIAS_COLUMN)
    }

    /// The bias of four columns of the `cols` there are, from `col` on; 0 past the last, and if there is none for each
    /// column.
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

    /// Those of a product of the batch.
    #[inline(always)]
    pub fn of_product(mut self, product: u32) -> Self {
        let offset = |stride: u64| product as usize * stride as usize;
        self.scale = self.scale.wrapping_add(offset(self.stride_scale));
        self.bias = self.bias.wrapping_add(offset(self.stride_bias));
        self.residual = self.residual.wrapping_add(offset(self.stride_residual));
        self
    }
}

impl Output {
    /// Stores what an epilogue makes of `count` sums, whose places are given. Loads of many outputs
    /// are in flight at once. Where `quads`, each four are neighbours in a row, and C is
    /// [`is_aligned`](Self::is_aligned).
    ///
    /// # Safety
    /// The parameters are as the launch promises, and no other thread stores these elements.
    #[inline(always)]
    pub unsafe fn store_epilogue<const N: usize>(
        self,
        epilogue: Parameters,
        quads: bool,
        count: usize,
        places: impl Places,
        mut values: [f32; N],
    ) {
        // SAFETY: the caller's contract. C is a matrix that can be read as well.
        unsafe {
            self.apply_epilogue(epilogue, count, places, SourceOf::<f32>::NEW, &mut values);
        };
        let place = |row: u32, col: u32| {
            self.pointer.wrapping_add(row as usize * self.ld as usize + col as usize)
        };
        if quads {
            for i in (0..count).step_by(4) {
                let (row, col) = places.at(i);
                if row < self.rows && col < self.cols {
                    let four = [values[i], values[i + 1], values[i + 2], values[i + 3]];
                    // SAFETY: all four are inside, since columns are a multiple of four, and
                    // the row and `col` keep the address a multiple of 16.
                    unsafe { vec::store4(place(row, col), four) };
                }
            }
            return;
        }
        for i in 0..count {
            let (row, col) = places.at(i);
            if row < self.rows && col < self.cols {
                // SAFETY: in bounds, and this thread's own.
                unsafe { *place(row, col) = values[i] };
            }
        }
    }

    /// What an epilogue makes of `count` sums, whose places are given, before they are stored. With a
    /// beta that is not 0, what is in C is added.
    ///
    /// # Safety
    /// The parameters are as the launch promises, C can be read as `source` does, and the places are as [`Places::ALIGNED`] says.
    #[inline(always)]
    pub(crate) unsafe fn apply_epilogue<P: Places, const N: usize>(
        self,
        epilogue: Parameters,
        count: usize,
        places: P,
        source: impl Source,
        values: &mut [f32; N],
    ) {
        use operations::{
            ACTIVATION, BIAS_COLUMN, BIAS_ROW, DEVICE_FACTORS, GELU, GELU_TANH, NO_SUM, RELU,
            RESIDUAL, SCALE_COLUMN, SCALE_ROW, SILU,
        };
        // Not known to be the same each time: else a loop around this would become one for each set of
        // operations.
        let operations = black_box(epilogue.operations);
        let epilogue = Parameters { operations, ..epilogue };
        let (mut alpha, mut beta) = (self.alpha, self.beta);
        if epilogue.has(DEVICE_FACTORS) {
            // SAFETY: the launch promises both.
            unsafe { (alpha, beta) = (element(epilogue.alpha), element(epilogue.beta)) };
            // Nothing is left of A and B with alpha = 0, NaN included. -0 leaves every C as it is, -0
            // itself. For factors that are numbers the host does this: see `KernelDescriptor`.
            if alpha == 0.0 || epilogue.has(NO_SUM) {
                (*values, alpha) = ([0.0; N], if beta == 0.0 { 0.0 } else { -0.0 });
            }
        }
        for i in 0..count {
            values[i] *= alpha;
        }
        let vector = |elements, per_row| Vector { elements, per_row: epilogue.has(per_row) };
        // SAFETY: the caller's contract.
        unsafe {
            if beta != 0.0 {
                source.add(self, beta, count, places.again(), values);
            }
            if epilogue.has(SCALE_ROW | SCALE_COLUMN) {
                let scale = vector(epilogue.scale, SCALE_ROW);
                self.visit_vector(Scale(scale), scale.per_row, count, places.again(), values);
            }
            if P::HAS_COLUMN_BIAS && epilogue.has(BIAS_COLUMN) {
                Self::add_column_bias(count, places, values);
            } else if epilogue.has(BIAS_ROW | BIAS_COLUMN) {
                let bias = vector(epilogue.bias, BIAS_ROW);
                self.visit_vector(Bias(bias), bias.per_row, count, places.again(), values);
            }
            match epilogue.operations & ACTIVATION {
                RELU => self.visit(Relu, count, places, values),
                GELU => self.visit(Gelu, count, places, values),
                GELU_TANH => self.visit(GeluTanh, count, places, values),
                SILU => self.visit(Silu, count, places, values),
                _ => {}
            }
            if epilogue.has(RESIDUAL) {
                let residual = Residual { elements: epilogue.residual, ld: epilogue.ld_residual };
                self.visit(residual, count, places.again(), values);
            }
        }
    }

    /// Stores a few sums whose places are `at`, with what an epilogue makes of them if there is one.
    ///
    /// # Safety
    /// As for [`store_epilogue`](Self::store_epilogue).
    #[inline(always)]
    pub unsafe fn store_each<const N: usize>(
        self,
        epilogue: Parameters,
        sums: [f32; N],
        at: impl Fn(usize) -> (u32, u32) + Copy,
    ) {
        if epilogue.is_some() {
            // SAFETY: the caller's contract.
            unsafe { self.store_epilogue(epilogue, false, N, at, sums) };
            return;
        }
        for i in 0..N {
            let (row, col) = at(i);
            // SAFETY: the caller's contract.
            unsafe { self.store(row, col, sums[i]) };
        }
    }

    /// Applies an epilogue that reads an element for each row, or for each column.
    ///
    /// # Safety
    /// What it loads for outputs inside C is there, and nothing writes it.
    #[inline(always)]
    unsafe fn visit_vector<const N: usize, P: Places>(
        self,
        epilogue: impl Epilogue,
        per_row: bool,
        count: usize,
        places: P,
        values: &mut [f32; N],
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            match (P::SHARED, per_row) {
                (false, _) => self.visit(epilogue, count, places, values),
                (true, true) => self.visit_shared(epilogue, true, count, places, |i| i.0, values),
                (true, false) => self.visit_shared(epilogue, false, count, places, |i| i.1, values),
            }
        }
    }

    /// Adds the bias of the columns that a kernel has loaded ahead.
    ///
    /// # Safety
    /// The launch has a bias for each column.
    #[inline(always)]
    unsafe fn add_column_bias<const N: usize>(
        count: usize,
        places: impl Places,
        values: &mut [f32; N],
    ) {
        let mut bias = [0.0; N];
        for run in (0..count).step_by(4) {
            if places.first(run).1 == run {
                // SAFETY: the caller's contract.
                bias[run..][..4].copy_from_slice(&unsafe { places.column_bias(run) });
            }
        }
        for i in 0..count {
            values[i] += bias[places.first(i).1];
        }
    }

    /// Applies an epilogue that reads the same for several outputs: `first` takes one of [`Places::first`].
    /// Without runs, outputs outside of C have the last row or column, so that no load has a condition; C is
    /// not empty.
    ///
    /// # Safety
    /// What it loads for outputs inside C is there, and nothing writes it; it looks only at the row if `per_row`, and only
    /// at the column if not. The places are as [`Places::ALIGNED`] says.
    #[inline(always)]
    unsafe fn visit_shared<const N: usize, P: Places>(
        self,
        epilogue: impl Epilogue,
        per_row: bool,
        count: usize,
        places: P,
        first: impl Fn((usize, usize)) -> usize,
        values: &mut [f32; N],
    ) {
        let mut loaded = [0.0; N];
        if P::ALIGNED {
            for run in (0..count).step_by(P::RUN) {
                let (row, col) = places.at(run);
                if first(places.first(run)) == run {
                    // SAFETY: inside, and on 16 bytes.
                    loaded[run..][..4].copy_from_slice(&unsafe { epilogue.load4(row, col) });
                }
            }
        } else if P::RUN == 1 {
            for i in 0..count {
                let (row, col) = places.at(i);
                if first(places.first(i)) == i {
                    // SAFETY: inside.
                    loaded[i] =
                        unsafe { epilogue.load(row.min(self.rows - 1), col.min(self.cols - 1), 0) };
                }
            }
        } else {
            for i in 0..count {
                let (run, next) = (i - i % P::RUN, i % P::RUN);
                let (row, col) = places.at(run);
                let is_inside =
                    if per_row { row < self.rows } else { col + (next as u32) < self.cols };
                if first(places.first(i)) == i && is_inside {
                    // SAFETY: inside, as far as is looked at.
                    loaded[i] = unsafe { epilogue.load(row, col, next) };
                }
            }
        }
        for i in 0..count {
            values[i] = epilogue.apply(values[i], loaded[first(places.first(i))]);
        }
    }

    /// Applies an epilogue to outputs. All loads are in flight before the first is used.
    ///
    /// # Safety
    /// What it loads for outputs inside C is there, and the places are as [`Places::ALIGNED`] says.
    #[inline(always)]
    pub(crate) unsafe fn visit<const N: usize, P: Places>(
        self,
        epilogue: impl Epilogue,
        count: usize,
        places: P,
        values: &mut [f32; N],
    ) {
        const { assert!(!P::ALIGNED || P::RUN == 4, "runs are vectors of four") };
        let mut loaded = [0.0; N];
        for i in 0..count {
            let (run, next) = (i - i % P::RUN, i % P::RUN);
            let (row, col) = places.at(run);
            if P::ALIGNED {
                if next == 0 {
                    // SAFETY: inside, and on 16 bytes.
                    loaded[i..][..4].copy_from_slice(&unsafe { epilogue.load4(row, col) });
                }
            } else if row < self.rows && col + (next as u32) < self.cols {
                // SAFETY: inside.
                loaded[i] = unsafe { epilogue.load(row, col, next) };
            }
        }
        for i in 0..count {
            values[i] = epilogue.apply(values[i], loaded[i]);
        }
    }
}
