//! Products of typed matrices: [`gemm`].

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gemm_matrix::{Activation, Axis, Scalar};

use crate::device::Stream;
use crate::error::Error;
use crate::matrix::{DeviceMatrixMut, DeviceMatrixRef, GroupEnds};
use crate::plan::{
    Configuration, Core, Extras, KernelForm, Plan, PlanBuilder, PlanCache, Variant, of_any_factors,
};
use crate::problem::{Compute, Gemm};
use crate::select::Auto;

/// A type that C may have if A and B have type `T`: `f32` or `T`.
pub trait OutputOf<T>: Scalar {}

impl<T: Scalar> OutputOf<T> for T {}
impl OutputOf<crate::bf16> for f32 {}
impl OutputOf<crate::f16> for f32 {}

/// The arithmetic for f32 matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Precision {
    /// FMAs on f32.
    #[default]
    F32,
    /// Tensor cores on elements rounded to TF32, which has 11 significant bits.
    Tf32,
    /// Tensor cores on elements split in two TF32 parts, with f32's accuracy.
    Tf32x3,
}

/// The product of two device matrices, or of batches of them.
///
/// The types, shapes, transpositions and batches are those of the views, so that each is said once.
/// The lifetimes are those of A and B, and of the epilogue's inputs. [`Product::run`] enqueues the
/// product with a plan from the device's cache, or makes one. [`Product::plan`] makes a [`Plan`]
/// for a hot path.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, bf16, gemm};
///
/// let device = Device::open(DeviceChoice::SoftSm90)?;
/// let a = DeviceMatrix::from_slice(&device, [2, 2], &[1f32, 2.0, 3.0, 4.0])?;
/// let mut c = DeviceMatrix::<f32>::zeros(&device, [2, 2])?;
/// gemm(&a, a.t()).run(&mut c)?;
/// assert_eq!(c.to_vec()?, [5.0, 11.0, 11.0, 25.0]);
///
/// // A layer in bf16, whose bias is f32.
/// let [one, two] = [1.0, 2.0].map(bf16::from_f32);
/// let x = DeviceMatrix::from_slice(&device, [1, 2], &[one, two])?;
/// let w = DeviceMatrix::from_slice(&device, [3, 2], &[one, one, two, one, one, two])?;
/// let bias = DeviceMatrix::from_slice(&device, [1, 3], &[0f32, -9.0, 1.0])?;
/// let mut y = DeviceMatrix::<bf16>::zeros(&device, [1, 3])?;
/// gemm(&x, w.t()).bias(&bias).relu().run(&mut y)?;
/// assert_eq!(y.to_vec()?, [3.0, 0.0, 6.0].map(bf16::from_f32));
///
/// // Two products, of matrices one below the other.
/// let mut both = DeviceMatrix::<f32>::zeros(&device, [2, 1])?;
/// let vector = DeviceMatrix::from_slice(&device, [2, 1], &[1f32, 1.0])?;
/// gemm(a.batch(2)?, &vector).alpha(0.5).run(&mut both.batch_mut(2)?)?;
/// assert_eq!(both.to_vec()?, [1.5, 3.5]);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
///
/// Mixed operand types do not compile. Neither does a C that is neither f32 nor of the operands'
/// type:
///
/// ```compile_fail
/// # use cuda_gemm::{DeviceMatrix, bf16, gemm};
/// fn mixed(a: &DeviceMatrix<f32>, b: &DeviceMatrix<bf16>) {
///     gemm(a, b);
/// }
/// ```
#[must_use]
pub struct Product<'m, 'e, T> {
    a: DeviceMatrixRef<'m, T>,
    b: DeviceMatrixRef<'m, T>,
    gemm: Gemm,
    extras: Extras<'e>,
    stream: Option<&'m Stream>,
    /// Candidates to time, if the caller says.
    candidates: Option<usize>,
    /// Rows and columns of the C that a kernel is chosen for, if the caller says.
    whole: Option<[usize; 2]>,
}

impl<T> fmt::Debug for Product<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { a, b, .. } = self;
        f.debug_struct("Product").field("a", a).field("b", b).finish_non_exhaustive()
    }
}

/// The product `A * B` of two matrices, or of batches of them.
///
/// A single matrix is shared by all products of the other's batch. See [`Product`].
pub fn gemm<'m, 'e, T: Scalar>(
    a: impl Into<DeviceMatrixRef<'m, T>>,
    b: impl Into<DeviceMatrixRef<'m, T>>,
) -> Product<'m, 'e, T> {
    let (a, b) = (a.into(), b.into());
    let [lda, ldb] = [a.ld(), b.ld()];
    let compute = match T::ELEMENT {
        gemm_matrix::Element::F32 => Compute::F32,
        gemm_matrix::Element::Bf16 => Compute::Bf16,
        gemm_matrix::Element::F16 => Compute::F16,
    };
    let gemm = Gemm {
        trans_a: a.is_transposed(),
        trans_b: b.is_transposed(),
        lda,
        ldb,
        ..Gemm::new(a.rows(), b.cols(), a.cols())
    };
    let batch = if a.count() == 1 { b.count() } else { a.count() };
    let gemm = gemm.computed_in(compute).batched(batch, [a.stride(), b.stride(), 0]);
    Product { a, b, gemm, extras: Extras::new(), stream: None, candidates: None, whole: None }
}

impl Product<'_, '_, f32> {
    /// Sets the arithmetic for f32 matrices, by default f32 FMAs.
    pub fn precision(mut self, precision: Precision) -> Self {
        self.gemm.compute = match precision {
            Precision::F32 => Compute::F32,
            Precision::Tf32 => Compute::Tf32,
            Precision::Tf32x3 => Compute::Tf32x3,
        };
        self
    }
}

impl<'m, 'e, T: Scalar> Product<'m, 'e, T> {
    /// Sets the factor of the product.
    pub fn alpha(mut self, alpha: f32) -> Self {
        self.gemm = self.gemm.scaled(alpha, self.gemm.beta);
        self
    }

    /// Sets the factor of the old C; with the default, 0, C is not read.
    pub fn beta(mut self, beta: f32) -> Self {
        self.gemm = self.gemm.scaled(self.gemm.alpha, beta);
        self
    }

    /// Sets alpha and beta in device memory, one element each.
    ///
    /// Work on the same stream may compute them.
    pub fn device_factors(
        mut self,
        alpha: DeviceMatrixRef<'e, f32>,
        beta: DeviceMatrixRef<'e, f32>,
    ) -> Self {
        self.gemm = self.gemm.device_factors();
        self.extras = self.extras.factors(alpha, beta);
        self
    }

    /// Sets a factor for each row or each column of C.
    pub fn scale(mut self, axis: Axis, scale: impl Into<DeviceMatrixRef<'e, f32>>) -> Self {
        self.gemm.epilogue.scale = Some(axis);
        self.extras = self.extras.scale(scale);
        self
    }

    /// Sets a bias for each column of C, as in layers: a row, or a column without gaps.
    ///
    /// A batch has one bias for all products, or one per product.
    pub fn bias(self, bias: impl Into<DeviceMatrixRef<'e, f32>>) -> Self {
        self.bias_along(Axis::Column, bias)
    }

    /// Sets a bias for each row or each column of C.
    pub fn bias_along(mut self, axis: Axis, bias: impl Into<DeviceMatrixRef<'e, f32>>) -> Self {
        self.gemm.epilogue.bias = Some(axis);
        self.extras = self.extras.bias(bias);
        self
    }

    /// Sets a function applied to each element, after scale and bias.
    pub fn activation(mut self, activation: Activation) -> Self {
        self.gemm.epilogue.activation = Some(activation);
        self
    }

    /// Applies `max(x, 0)` to each element.
    pub fn relu(self) -> Self {
        self.activation(Activation::Relu)
    }

    /// Applies GELU to each element, with the error function.
    pub fn gelu(self) -> Self {
        self.activation(Activation::Gelu)
    }

    /// Sets a matrix of C's shape that is added last.
    pub fn residual(mut self, residual: impl Into<DeviceMatrixRef<'e, f32>>) -> Self {
        self.gemm.epilogue.residual = true;
        self.extras = self.extras.residual(residual);
        self
    }

    /// Makes a [grouped product](Gemm::grouped): each group of A's and C's rows has a B of its own.
    ///
    /// B is a batch, with a matrix for each group. A and B are in 16 bits.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, GroupEnds, bf16, gemm};
    ///
    /// let device = Device::open(DeviceChoice::SoftSm90)?;
    /// let numbers = |shape, of: &[f32]| {
    ///     let of: Vec<_> = of.iter().map(|x| bf16::from_f32(*x)).collect();
    ///     DeviceMatrix::from_slice(&device, shape, &of)
    /// };
    /// // Three tokens: one of the first expert, none of the second, two of the third.
    /// let x = numbers([3, 1], &[1.0, 2.0, 3.0])?;
    /// let experts = numbers([3, 2], &[1.0, 2.0, 0.0, 0.0, 10.0, 20.0])?;
    /// let ends = GroupEnds::new(&device.stream(), &[1, 1, 3])?;
    /// let mut y = DeviceMatrix::<f32>::zeros(&device, [3, 2])?;
    /// gemm(&x, experts.batch(3)?).groups(&ends).run(&mut y)?;
    /// assert_eq!(y.to_vec()?, [1.0, 2.0, 20.0, 40.0, 30.0, 60.0]);
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn groups(mut self, ends: &'e GroupEnds) -> Self {
        self.gemm = self.gemm.grouped(ends.count(), self.gemm.stride_b);
        self.extras = self.extras.groups(ends);
        self
    }

    /// Sets the stream of the product, by default A's. All matrices belong to it.
    pub fn on(self, stream: &'m Stream) -> Self {
        Self { stream: Some(stream), ..self }
    }

    /// Measures a new product before its first plan: times the first `candidates` choices of the
    /// model, and keeps the fastest. 0 or 1 turns this off.
    ///
    /// The default is [`Device::measure`](crate::Device::measure), which is off. With it, a choice
    /// follows from a measurement, and another choice may round differently.
    ///
    /// [`Auto::measure`] has the details. Nothing is measured of a grouped product, in a stream
    /// capture, or if device memory is too short: then the model's choice counts. C is untouched by the measurement.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, bf16, gemm};
    ///
    /// let device = Device::open(DeviceChoice::SoftSm90)?;
    /// let x = DeviceMatrix::<bf16>::zeros(&device, [16, 64])?;
    /// let mut y = DeviceMatrix::<f32>::zeros(&device, [16, 16])?;
    /// // The first call measures and runs, the second one runs.
    /// for _ in 0..2 {
    ///     gemm(&x, x.t()).measured(3).run(&mut y)?;
    /// }
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn measured(self, candidates: usize) -> Self {
        Self { candidates: Some(candidates), ..self }
    }

    /// Says that this C is a part of one with the rows and columns of `whole`. The kernel is the one
    /// that is best for that.
    ///
    /// Parts that run beside each other on several streams fill the device together. So a kernel
    /// for the whole is the better one, also where it would leave multiprocessors idle with this
    /// part alone. A batch has its own choice, and so has a part that cannot be launched as the whole.
    ///
    /// The whole must be within the limits of [`Gemm::validate`].
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, bf16, gemm};
    ///
    /// let device = Device::open(DeviceChoice::SoftSm90)?;
    /// let a = DeviceMatrix::<bf16>::zeros(&device, [2048, 64])?;
    /// let b = DeviceMatrix::<bf16>::zeros(&device, [64, 8])?;
    /// let c = DeviceMatrix::<bf16>::zeros(&device, [2048, 8])?;
    /// let whole = gemm(&a, &b).builder(&c)?;
    /// let half = gemm(a.submatrix(0..1024, 0..64)?, &b).part_of([2048, 8]);
    /// let half = half.builder(c.submatrix(0..1024, 0..8)?)?;
    /// assert_eq!(half.configuration(), whole.configuration());
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn part_of(self, whole: [usize; 2]) -> Self {
        Self { whole: Some(whole), ..self }
    }

    /// The number of candidates to time.
    fn candidates(&self, stream: &Stream) -> usize {
        self.candidates.unwrap_or_else(|| stream.device().measured_candidates())
    }

    /// Rows and columns of the C that a kernel is chosen for, if they are not the product's own.
    fn whole(&self, gemm: &Gemm) -> Option<[usize; 2]> {
        self.whole.filter(|shape| gemm.batch == 1 && *shape != [gemm.m, gemm.n])
    }

    /// The product as numbers, for this C, or an error if the views do not go together.
    fn problem<U: OutputOf<T>>(&self, c: &DeviceMatrixRef<'_, U>) -> Result<Gemm, Error> {
        let Self { a, b, gemm, .. } = self;
        let Gemm { m, n, k, .. } = *gemm;
        Error::expect_shape("B", [b.rows(), b.cols()], [k, n])?;
        Error::expect_shape("C", [c.rows(), c.cols()], [m, n])?;
        let counts = [("A", a.count()), ("B", b.count()), ("C", c.count())];
        for ((what, count), batch) in counts.into_iter().zip(gemm.matrices()) {
            let is_shared = count == 1 && what != "C";
            if count != batch && !is_shared {
                return Err(Error::BatchCount { what, count, batch });
            }
        }
        // A batch of one may have a stride, which would lead others out of it.
        let stride = |count: usize, stride: usize| if count == 1 { 0 } else { stride };
        Ok(Gemm {
            ldc: c.ld(),
            output: U::ELEMENT,
            stride_a: stride(a.count(), a.stride()),
            stride_b: stride(b.count(), b.stride()),
            stride_c: stride(c.count(), c.stride()),
            ..*gemm
        })
    }

    /// The stream, if all matrices are on it.
    fn stream<U: OutputOf<T>>(&self, c: &DeviceMatrixRef<'_, U>) -> Result<&'m Stream, Error> {
        let stream = self.stream.unwrap_or(self.a.stream());
        for (what, on) in [("A", self.a.stream()), ("B", self.b.stream()), ("C", c.stream())] {
            stream.expect(what, on)?;
        }
        Ok(stream)
    }

    /// Enqueues the product, and returns at once.
    ///
    /// The first product of a kind chooses a kernel, loads it, and allocates its memory. Later ones
    /// use the plan in the device's cache, allocate nothing, and can be captured into a CUDA graph.
    ///
    /// - Products of one kind differ only in addresses and in nonzero factors.
    /// - The cache holds 1024 kinds. It drops all of them for one more, or for one that lacks
    ///   memory.
    /// - A graph uses memory of the cache: launch it only while the device has had no other kinds.
    /// - Each stream has its own kinds, with their own workspace.
    ///
    /// # Errors
    ///
    /// - [`Error::Shape`], [`Error::BatchCount`], [`Error::WrongDevice`] or [`Error::WrongStream`]
    ///   if the views do not go together.
    /// - The errors of [`Gemm::validate`].
    /// - For the first product of a kind, the errors of [`PlanBuilder::prepare`]. If it is
    ///   measured, also those of [`Auto::measure`], and [`Error::Disagreement`].
    pub fn run<'c, U: OutputOf<T>>(
        &self,
        c: impl Into<DeviceMatrixMut<'c, U>>,
    ) -> Result<(), Error> {
        let mut c = c.into();
        let view = c.view_mut();
        let view = view.view();
        let (gemm, stream) = (self.problem(&view)?, self.stream(&view)?);
        let addresses = [self.a.address(), self.b.address(), view.address()];
        let factors = [gemm.alpha, gemm.beta];
        gemm.validate()?;
        let alike = of_any_factors(gemm);
        let extras = self.extras.checked(stream, &alike)?;
        let candidates = self.candidates(stream);
        let core = planned(&alike, stream, is_aligned(addresses), candidates, self.whole(&alike))?;
        // SAFETY:
        // - The matrices are on this device and stream, and the plan was made for them.
        // - C is borrowed mutably, so it is none of the others.
        // - All stay allocated while the kernel runs: freeing device memory waits for earlier work,
        //   and other work with them is enqueued on the same stream.
        // - Factors are 0 where the plan's are.
        unsafe { core.enqueue(addresses, extras, factors) }
    }

    /// Makes a checked plan with its memory, for matrices like these and this C.
    ///
    /// A and B may change between runs. The plan keeps the epilogue's inputs;
    /// [`Plan::run_with`] passes others.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, gemm};
    ///
    /// let device = Device::open(DeviceChoice::Soft)?;
    /// let w = DeviceMatrix::from_slice(&device, [2, 2], &[1f32, 2.0, 3.0, 4.0])?;
    /// let bias = DeviceMatrix::from_slice(&device, [1, 2], &[10f32, 20.0])?;
    /// let mut x = DeviceMatrix::from_slice(&device, [1, 2], &[1f32, 1.0])?;
    /// let mut y = DeviceMatrix::<f32>::zeros(&device, [1, 2])?;
    /// let layer = gemm(&x, w.t()).bias(&bias).plan(&y)?;
    /// for expected in [[13.0, 27.0], [77.0, 167.0]] {
    ///     layer.run(&x, w.t(), &mut y)?;
    ///     assert_eq!(y.to_vec()?, expected);
    ///     x = DeviceMatrix::from_slice(&device, [1, 2], &y.to_vec()?)?;
    /// }
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of the first [`Product::run`] of a kind, and [`Error::Extras`].
    pub fn plan<'c, U: OutputOf<T>>(
        &self,
        c: impl Into<DeviceMatrixRef<'c, U>>,
    ) -> Result<Plan<'e>, Error> {
        let c = c.into();
        let builder = self.builder(c)?;
        let addresses = [self.a.address(), self.b.address(), c.address()];
        let builder = if is_aligned(addresses) { builder } else { builder.any_alignment() };
        builder.prepare()?.keeping(self.extras)
    }

    /// The chosen kernel and its launch settings, for a C like this one.
    ///
    /// These are the advanced choices. Pass the epilogue's inputs to [`Plan::run_with`].
    ///
    /// # Errors
    ///
    /// The errors of the first [`Product::run`] of a kind that are not about memory.
    pub fn builder<'c, U: OutputOf<T>>(
        &self,
        c: impl Into<DeviceMatrixRef<'c, U>>,
    ) -> Result<PlanBuilder, Error> {
        let c = c.into();
        let (gemm, stream) = (self.problem(&c)?, self.stream(&c)?);
        chosen(gemm, stream, self.candidates(stream), self.whole(&gemm))
    }
}

/// Whether A and B begin on 16 bytes.
fn is_aligned([a, b, _]: [u64; 3]) -> bool {
    (a | b).is_multiple_of(16)
}

/// The state that a device keeps for its products.
#[derive(Default)]
struct Planner {
    auto: OnceLock<Auto>,
    plans: Mutex<PlanCache>,
}

impl Planner {
    fn auto(&self, stream: &Stream) -> Result<&Auto, Error> {
        if let Some(auto) = self.auto.get() {
            return Ok(auto);
        }
        let auto = stream.device().detached().auto()?;
        Ok(self.auto.get_or_init(|| auto))
    }
}

/// Chooses a kernel for a product, and measures first if there are candidates.
fn chosen(
    gemm: Gemm,
    stream: &Stream,
    candidates: usize,
    whole: Option<[usize; 2]>,
) -> Result<PlanBuilder, Error> {
    let by = |auto: &Auto| {
        if let Some(shape) = whole {
            let whole = gemm.in_shape(shape);
            let chosen = *auto.plan_on(whole, stream, candidates)?.configuration();
            // The same orientation may be the usual one for one of the two alone.
            let form = KernelForm::of(&whole, &chosen);
            let transposes_c = form.orientation(&gemm, chosen.kernel);
            if let Ok(builder) = auto.plan_by(gemm, &Configuration { transposes_c, ..chosen }) {
                return Ok(builder.on(stream));
            }
            // The part cannot be launched as the whole can.
        }
        auto.plan_on(gemm, stream, candidates)
    };
    match stream.device().kept::<Planner>() {
        Some(planner) => by(planner.auto(stream)?),
        None => by(&stream.device().auto()?),
    }
}

/// The plan of a product, from the device's cache or new.
fn planned(
    gemm: &Gemm,
    stream: &Stream,
    is_aligned: bool,
    candidates: usize,
    whole: Option<[usize; 2]>,
) -> Result<Arc<Core>, Error> {
    let id = stream.as_raw().0 as usize;
    let mut variant = Variant { stream: id, is_aligned, is_measured: candidates > 1, whole };
    let Some(planner) = stream.device().kept::<Planner>() else {
        let builder = chosen(*gemm, stream, candidates, whole)?;
        return PlanCache::default().prepare(gemm, variant, builder);
    };
    // Consistent even after a panic.
    let plans = || planner.plans.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(core) = plans().find(gemm, variant) {
        return Ok(core);
    }
    // Before the lock of the plans: another thread that holds the stream may wait for that lock.
    let _exclusive = stream.exclusive();
    if variant.is_measured && stream.is_capturing()? {
        // The plan without a measurement stands in, and the next call outside measures.
        variant.is_measured = false;
        if let Some(core) = plans().find(gemm, variant) {
            return Ok(core);
        }
    }
    let candidates = if variant.is_measured { candidates } else { 0 };
    let builder = chosen(*gemm, stream, candidates, whole)?.on(&stream.detached());
    let mut plans = plans();
    match plans.find(gemm, variant) {
        Some(core) => Ok(core),
        None => plans.prepare(gemm, variant, builder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, DeviceChoice, Table};

    /// Parts of any shape have a plan, with the whole's kernel and orientation if it can be.
    #[test]
    fn parts_are_launched_as_the_whole_is_or_on_their_own() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let stream = device.stream();
        let auto = device.auto_by(&Table::built_in().unwrap()[0]).unwrap();
        let (mut alike, mut all) = (0, 0);
        for [m, n, k] in [[128, 14_336, 4096], [64, 4096, 4096], [2048, 14_336, 4096], [96, 96, 64]]
        {
            for (trans_a, trans_b) in [(false, false), (false, true), (true, false)] {
                let whole = Gemm::new(m, n, k).transposed(trans_a, trans_b);
                let whole = whole.computed_in(Compute::Bf16);
                let chosen_whole = auto.choose(&whole).unwrap();
                let form = KernelForm::of(&whole, &chosen_whole);
                for [rows, cols] in [[m / 2, n], [m, n / 2], [1, n], [m, 1], [m / 4, n / 8]] {
                    let part = Gemm { m: rows, n: cols, ..whole };
                    let part = Gemm { lda: part.lda.max(whole.lda), ..part };
                    let plan = chosen(part, &stream, 0, Some([m, n])).unwrap();
                    let configuration = *plan.configuration();
                    plan.load().unwrap();
                    all += 1;
                    if configuration.kernel.name() == chosen_whole.kernel.name() {
                        let own = KernelForm::of(&part, &configuration);
                        assert_eq!(own.transposes_c, form.transposes_c, "{part:?}");
                        alike += 1;
                    }
                }
            }
        }
        assert!(2 * alike > all, "{alike} of {all}");
    }
}
