//! Products of distributed matrices: [`gemm`].

mod gather;
mod local;
mod reduce;

use std::ops::Range;

use cuda_gemm::{
    Activation, Axis, DeviceMatrix, Epilogue, OutputOf, Precision, Scalar, Stream, bf16, f16,
};

use crate::communicator::Piece;
use crate::distribution::Distribution;
use crate::error::Error;
use crate::matrix::DistributedMatrix;

use gather::Needed;

/// The name of the call in errors.
const OPERATION: &str = "a product";

/// Rows and columns of a work tile, as most kernels for tensor cores have them.
const TILE: [usize; 2] = [128, 256];

/// What travels in a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// The blocks of A and B that a rank's part of C needs.
    Gather,
    /// Partial sums of C in f32, if A is spread along K by columns and B by rows.
    ///
    /// Others' sums are added in rank order. The own sum comes first with one panel, else last.
    /// Equal schedules, panels and kernels give equal bits.
    Reduce,
}

/// A distributed matrix or its transpose, as A or B of a product.
#[derive(Debug)]
pub struct DistributedRef<'m, T> {
    matrix: &'m DistributedMatrix<T>,
    transposed: bool,
}

impl<T> Clone for DistributedRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DistributedRef<'_, T> {}

impl<'m, T> From<&'m DistributedMatrix<T>> for DistributedRef<'m, T> {
    fn from(matrix: &'m DistributedMatrix<T>) -> Self {
        Self { matrix, transposed: false }
    }
}

impl<T> DistributedMatrix<T> {
    /// The transpose, in the same memory: what was spread by rows is spread by columns.
    pub fn t(&self) -> DistributedRef<'_, T> {
        DistributedRef { matrix: self, transposed: true }
    }
}

/// Both numbers, swapped for a transpose.
fn swapped<R>([first, second]: [R; 2], transposed: bool) -> [R; 2] {
    if transposed { [second, first] } else { [first, second] }
}

impl<T: Scalar> DistributedRef<'_, T> {
    fn shape(&self) -> [usize; 2] {
        swapped(self.matrix.shape(), self.transposed)
    }

    fn part_of(&self, rank: usize) -> [Range<usize>; 2] {
        swapped(self.matrix.part_of(rank), self.transposed)
    }

    fn grid(&self) -> [usize; 2] {
        let size = self.matrix.world().size();
        swapped(self.matrix.distribution().grid(size), self.transposed)
    }

    fn describe(&self) -> String {
        let ([rows, cols], t) =
            (self.matrix.shape(), if self.transposed { " transposed" } else { "" });
        format!("{rows} x {cols} {} {}{t}", T::ELEMENT, self.matrix.distribution())
    }
}

/// An element type of distributed products.
pub trait Multiply: Scalar {
    /// Sets the arithmetic, which f32 alone has a choice of.
    #[doc(hidden)]
    fn with_precision<'m, 'e>(
        product: cuda_gemm::Product<'m, 'e, Self>,
        precision: Precision,
    ) -> cuda_gemm::Product<'m, 'e, Self>;
}

impl Multiply for f32 {
    fn with_precision<'m, 'e>(
        product: cuda_gemm::Product<'m, 'e, Self>,
        precision: Precision,
    ) -> cuda_gemm::Product<'m, 'e, Self> {
        product.precision(precision)
    }
}

macro_rules! sixteen_bits {
    ($($type:ty)*) => {$(
        impl Multiply for $type {
            fn with_precision<'m, 'e>(
                product: cuda_gemm::Product<'m, 'e, Self>,
                _precision: Precision,
            ) -> cuda_gemm::Product<'m, 'e, Self> {
                product
            }
        }
    )*};
}

sixteen_bits! { bf16 f16 }

/// A product of distributed matrices, to be run on every rank.
///
/// `C = activation((alpha * op(A) * op(B) + beta * C) * scale + bias) + residual`, where each part
/// is optional. Vectors have the whole length on every rank. The epilogue runs once, on the final
/// sum.
///
/// ```
/// use cuda_distributed::{Distribution, DistributedMatrix, Error, Schedule, Settings, World, gemm};
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Matrix, bf16};
///
/// let devices = [0, 1].map(|i| Device::open(DeviceChoice::SoftOrdinal(i)).unwrap());
/// let x = Matrix::from_fn(2, 4, |_, _| 1.0);
/// let w = Matrix::from_fn(4, 3, |row, col| (row * col) as f32);
/// let results = World::run(&devices, &Settings::default(), |world| {
///     // A layer whose inner dimension is spread: each rank has half of a sum.
///     let x = DistributedMatrix::<bf16>::from_host(world.clone(), &x, Distribution::Columns)?;
///     let w = DistributedMatrix::<bf16>::from_host(world.clone(), &w, Distribution::Rows)?;
///     let bias = DeviceMatrix::from_slice(world.device(), [1, 3], &[1f32, -7.0, 0.0])?;
///     let mut y = DistributedMatrix::<bf16>::zeros(world, [2, 3], Distribution::Rows)?;
///     let layer = gemm(&x, &w).bias(&bias).relu().schedule(Schedule::Reduce);
///     layer.run(&mut y)?;
///     y.to_host()
/// });
/// for y in results {
///     assert_eq!(y?.as_slice(), [1.0, 0.0, 12.0, 1.0, 0.0, 12.0]);
/// }
/// # Ok::<(), Error>(())
/// ```
#[must_use = "a product is made by `run`"]
#[derive(Debug)]
pub struct Product<'m, T> {
    a: DistributedRef<'m, T>,
    b: DistributedRef<'m, T>,
    alpha: f32,
    beta: f32,
    precision: Precision,
    epilogue: Epilogue,
    scale: Option<&'m DeviceMatrix<f32>>,
    bias: Option<&'m DeviceMatrix<f32>>,
    residual: Option<&'m DistributedMatrix<f32>>,
    schedule: Option<Schedule>,
    panels: Option<usize>,
}

/// The product `A * B` of two distributed matrices. See [`Product`].
pub fn gemm<'m, T: Multiply>(
    a: impl Into<DistributedRef<'m, T>>,
    b: impl Into<DistributedRef<'m, T>>,
) -> Product<'m, T> {
    Product {
        a: a.into(),
        b: b.into(),
        alpha: 1.0,
        beta: 0.0,
        precision: Precision::F32,
        epilogue: Epilogue::new(),
        scale: None,
        bias: None,
        residual: None,
        schedule: None,
        panels: None,
    }
}

impl Product<'_, f32> {
    /// Sets the arithmetic for f32 matrices, by default f32 FMAs.
    pub fn precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }
}

impl<'m, T: Multiply> Product<'m, T> {
    /// Sets the factor of the product.
    pub fn alpha(self, alpha: f32) -> Self {
        Self { alpha, ..self }
    }

    /// Sets the factor of the old C; with the default, 0, C is not read.
    pub fn beta(self, beta: f32) -> Self {
        Self { beta, ..self }
    }

    /// Sets a factor for each row or each column of C.
    pub fn scale(mut self, axis: Axis, scale: &'m DeviceMatrix<f32>) -> Self {
        self.epilogue = self.epilogue.scale(axis);
        Self { scale: Some(scale), ..self }
    }

    /// Sets a bias for each column of C.
    pub fn bias(self, bias: &'m DeviceMatrix<f32>) -> Self {
        self.bias_along(Axis::Column, bias)
    }

    /// Sets a bias for each row or each column of C.
    pub fn bias_along(mut self, axis: Axis, bias: &'m DeviceMatrix<f32>) -> Self {
        self.epilogue = self.epilogue.bias(axis);
        Self { bias: Some(bias), ..self }
    }

    /// Sets a function applied to each element, after scale and bias.
    pub fn activation(mut self, activation: Activation) -> Self {
        self.epilogue = self.epilogue.activation(activation);
        self
    }

    /// Applies `max(x, 0)` to each element.
    pub fn relu(self) -> Self {
        self.activation(Activation::Relu)
    }

    /// Sets a matrix with C's shape and distribution that is added last.
    pub fn residual(mut self, residual: &'m DistributedMatrix<f32>) -> Self {
        self.epilogue = self.epilogue.residual();
        Self { residual: Some(residual), ..self }
    }

    /// Sets what travels. By default it is what takes less time on the measured link, or has fewer
    /// bytes if none was measured.
    pub fn schedule(self, schedule: Schedule) -> Self {
        Self { schedule: Some(schedule), ..self }
    }

    /// Sets the panels in which partial sums travel: parts of the longer side of C. By default 2, or
    /// 1 if halves are too small for all multiprocessors.
    pub fn panels(self, panels: usize) -> Self {
        Self { panels: Some(panels.max(1)), ..self }
    }

    /// Enqueues the product. All ranks make this call.
    ///
    /// The first call of a kind waits until all ranks agree on it, and allocates memory. Later ones
    /// enqueue; with copies between devices they also wait for the other ranks to do so.
    ///
    /// # Errors
    ///
    /// - [`Error::Unfit`] or [`Error::Gemm`] if the matrices do not go together, or memory is
    ///   short; the other ranks get [`Error::Refused`].
    /// - [`Error::Mismatch`] if ranks call it with different shapes, types or distributions, and
    ///   each for the first time.
    /// - [`Error::Lost`], also if only some of these calls are new.
    pub fn run<U>(&self, c: &mut DistributedMatrix<U>) -> Result<(), Error>
    where
        U: Multiply + OutputOf<T>,
        f32: OutputOf<T> + OutputOf<U>,
    {
        let world = c.world().clone();
        world.check()?;
        let workspace = &mut *world.workspace();
        let mut prepared = None;
        let ready = self.expect_fit(c).and_then(|()| {
            let call = Call::new(self, c)?;
            let buffers = call.buffers::<U>(workspace)?;
            prepared = Some((call, buffers));
            Ok(())
        });
        let schedule = prepared.as_ref().map(|(call, _)| match call.schedule {
            Schedule::Gather => (Schedule::Gather, None),
            Schedule::Reduce => (Schedule::Reduce, Some(call.panels)),
        });
        let text = self.describe(c, schedule);
        if ready.is_err() || !workspace.agreed.contains(&text) {
            world.agree(OPERATION, &text, ready)?;
            workspace.agreed.insert(text);
        }
        let Some((call, buffers)) = prepared else { return Ok(()) };
        let ran = call.run(c, &buffers);
        ran.inspect_err(|error| world.give_up(OPERATION, error))
    }

    fn describe<U: Multiply>(
        &self,
        c: &DistributedMatrix<U>,
        schedule: Option<(Schedule, Option<usize>)>,
    ) -> String {
        let [m, n] = c.shape();
        format!(
            "A {}, B {}, C {m} x {n} {} {}, {:?}, alpha {}, beta {}, epilogue {}, {schedule:?}",
            self.a.describe(),
            self.b.describe(),
            U::ELEMENT,
            c.distribution(),
            self.precision,
            if self.alpha == 0.0 { "0" } else { "set" },
            if self.beta == 0.0 { "0" } else { "set" },
            self.epilogue,
        )
    }

    /// Refuses matrices that do not go together.
    fn expect_fit<U: Multiply>(&self, c: &DistributedMatrix<U>) -> Result<(), Error> {
        let unfit = |what, reason: &str| Err(Error::Unfit { what, reason: reason.to_owned() });
        let ([m, k], [inner, n]) = (self.a.shape(), self.b.shape());
        let shape =
            |what, [rows, cols]: [usize; 2], [need_rows, need_cols]: [usize; 2]| match [rows, cols]
                == [need_rows, need_cols]
            {
                true => Ok(()),
                false => Err(cuda_gemm::Error::Shape { what, rows, cols, need_rows, need_cols }),
            };
        shape("B", [inner, n], [k, n])?;
        shape("C", c.shape(), [m, n])?;
        for (what, world) in [("A", self.a.matrix.world()), ("B", self.b.matrix.world())] {
            if !world.is_same(c.world()) {
                return unfit(what, "it is in another world than C; create it in C's");
            }
        }
        if let Some(residual) = self.residual {
            shape("the residual", residual.shape(), [m, n])?;
            if residual.distribution() != c.distribution() || !residual.world().is_same(c.world()) {
                return unfit("the residual", "it is spread otherwise than C; spread it as C is");
            }
        }
        let vectors = [
            ("the scale", self.scale, self.epilogue.scale),
            ("the bias", self.bias, self.epilogue.bias),
        ];
        for (what, vector, axis) in vectors {
            if let (Some(vector), Some(axis)) = (vector, axis) {
                shape(what, [vector.rows(), vector.cols()], [1, axis.len(m, n)])?;
                let device = c.world().device();
                if !vector.stream().device().is_same(device) {
                    return Err(cuda_gemm::Error::WrongDevice { what }.into());
                }
                if !vector.stream().is_same(&device.stream()) {
                    return Err(cuda_gemm::Error::WrongStream { what }.into());
                }
            }
        }
        let is_shared = self.a.matrix.world().size() > 1;
        if self.schedule == Some(Schedule::Reduce) && is_shared && !self.can_reduce() {
            let reason = "A is not spread by columns and B by rows; use another schedule";
            return unfit("partial sums", reason);
        }
        for (what, value) in [("alpha", self.alpha), ("beta", self.beta)] {
            if !value.is_finite() {
                return Err(cuda_gemm::Error::NotFinite { what, value }.into());
            }
        }
        Ok(())
    }

    /// Whether each rank has the same part of K of both A and B.
    fn can_reduce(&self) -> bool {
        let size = self.a.matrix.world().size();
        size > 1 && self.a.grid() == [1, size] && self.b.grid() == [size, 1]
    }
}

/// A checked product, with what each rank needs.
struct Call<'p, 'm, T> {
    product: &'p Product<'m, T>,
    /// The part of C that each rank computes.
    regions: Vec<[Range<usize>; 2]>,
    /// The blocks of A and of B that each rank needs.
    needed: Vec<[Vec<Needed>; 2]>,
    schedule: Schedule,
    panels: usize,
    /// The products of this rank, if blocks travel.
    tasks: Vec<gather::Task>,
    /// The second stream, if products of parts of C run beside each other.
    side: Option<&'p Stream>,
}

/// The addresses of a call's buffers.
struct Buffers {
    /// Gathered blocks of A and B, or partial sums for and from other ranks.
    parts: [u64; 2],
    /// The sum of this rank's part of C in f32, if it is not made in C.
    sum: u64,
    /// A 1 of C's type, if there is a beta and the epilogue does more than add.
    one: u64,
}

impl<'p, 'm, T: Multiply> Call<'p, 'm, T> {
    fn new<U: Multiply>(
        product: &'p Product<'m, T>,
        c: &DistributedMatrix<U>,
    ) -> Result<Self, Error> {
        let world = c.world();
        // Ranks compute different rows of a replicated C, so that all have the same bits.
        let distribution = match c.distribution() {
            Distribution::Replicated => Distribution::Rows,
            distribution => distribution,
        };
        let regions =
            (0..world.size()).map(|rank| distribution.part(c.shape(), world.size(), rank));
        let regions: Vec<_> = regions.collect();
        let k = product.a.shape()[1];
        let needed = regions.iter().enumerate().map(|(rank, [rows, cols])| {
            [
                gather::needed(product.a, [rows.clone(), 0..k], rank),
                gather::needed(product.b, [0..k, cols.clone()], rank),
            ]
        });
        let mut call = Self {
            product,
            needed: needed.collect(),
            regions,
            schedule: Schedule::Gather,
            panels: 1,
            tasks: Vec::new(),
            side: None,
        };
        // With one rank nothing travels, whatever the schedule.
        let asked = product.schedule.filter(|_| world.size() > 1);
        call.schedule = asked.unwrap_or_else(|| call.cheaper());
        let part = distribution.largest(c.shape(), world.size());
        let (longer, mut tiles) = (reduce::longer(part), [0, 1].map(|i| part[i].div_ceil(TILE[i])));
        tiles[longer] = part[longer] / 2 / TILE[longer];
        // A wave may lack a tenth.
        let tiles = tiles[0] * tiles[1];
        let is_full = 10 * tiles >= 9 * world.multiprocessors();
        call.panels = product.panels.unwrap_or(if is_full { 2 } else { 1 });
        if call.schedule == Schedule::Gather {
            call.tasks = call.find_tasks(world.rank());
        }
        // Sums of one part follow each other.
        let is_alone = |task: &gather::Task| task.is_first && task.is_last;
        if call.tasks.iter().all(is_alone) {
            call.side = product.a.matrix.world().side();
        }
        Ok(call)
    }

    /// The schedule that takes less time on the link, for the rank that has most to do.
    fn cheaper(&self) -> Schedule {
        if !self.product.can_reduce() {
            return Schedule::Gather;
        }
        let ranks = self.regions.len();
        let gathered = self.needed.iter().map(|[a, b]| gather::bytes(a) + gather::bytes(b));
        let area = |[rows, cols]: &[Range<usize>; 2]| 4 * rows.len() * cols.len();
        let summed = self.regions.iter().map(|region| (ranks - 1) * area(region));
        let time = |bytes: usize| match self.product.a.matrix.world().link() {
            Some(link) => link.microseconds(bytes),
            None => bytes as f64,
        };
        let [gather, reduce] = [gathered.max(), summed.max()].map(|most| time(most.unwrap_or(0)));
        if reduce < gather { Schedule::Reduce } else { Schedule::Gather }
    }

    fn run<U>(&self, c: &mut DistributedMatrix<U>, buffers: &Buffers) -> Result<(), Error>
    where
        U: Multiply + OutputOf<T>,
        f32: OutputOf<T> + OutputOf<U>,
    {
        let world = c.world().clone();
        let (compute, transfers) = (world.device().stream(), world.transfers());
        // What the matrices hold is complete, and the buffers are free.
        transfers.wait_for(&compute)?;
        let enqueued = match self.schedule {
            Schedule::Gather => self.gather(c, buffers),
            Schedule::Reduce => self.reduce(c, buffers),
        };
        // Later work may write or free what travels or is multiplied, also after an error.
        let waits = self.side.map_or(Ok(()), |side| compute.wait_for(side));
        let enqueued = enqueued.and(waits.map_err(Error::from));
        let enqueued = enqueued.and_then(|()| {
            if c.distribution() == Distribution::Replicated && world.size() > 1 {
                transfers.wait_for(&compute)?;
                self.replicate(c)?;
            }
            Ok(())
        });
        let waits = compute.wait_for(transfers);
        enqueued.and(waits.map_err(Error::from))
    }

    /// Sends each rank's rows of a replicated C to all others.
    fn replicate<U: Multiply>(&self, c: &mut DistributedMatrix<U>) -> Result<(), Error> {
        let (world, [_, n]) = (c.world().clone(), c.shape());
        let element = U::ELEMENT.bytes();
        let piece = |peer: usize, rows: &Range<usize>| Piece {
            peer,
            address: c.local().address() + (rows.start * n * element) as u64,
            bytes: rows.len() * n * element,
        };
        let others = || (0..world.size()).filter(|rank| *rank != world.rank());
        let own = &self.regions[world.rank()][0];
        let mut sends: Vec<_> = others().map(|peer| piece(peer, own)).collect();
        let mut receives: Vec<_> =
            others().map(|peer| piece(peer, &self.regions[peer][0])).collect();
        sends.retain(|piece| piece.bytes > 0);
        receives.retain(|piece| piece.bytes > 0);
        // SAFETY: C has these rows on each rank, and is borrowed mutably. Earlier work with it is
        // waited for, and later work waits.
        unsafe { world.transfer(&sends, &receives) }?;
        Ok(())
    }
}
