//! Rotating buffers: sets of a product's matrices on the device.
//!
//! There is one set, or enough sets that no launch finds its own in the L2 cache.

use cuda_gemm::{AnyMatrix, Device, DeviceMatrix, Element, Extras, GroupEnds, Layout, Matrix};

use crate::error::Error;
use crate::job::Job;
use crate::operands::{Operands, elements, shapes};

/// A quiet NaN that no product makes.
///
/// C holds it before a run whose result is checked, so that a kernel that reads C or skips an
/// element is caught. Its lower half is a NaN in `bf16` and `f16`.
pub const POISON: u32 = 0x7fc0_7fad;

/// The multiple of the L2 cache that is used between two launches on one set.
///
/// Twice the cache would be enough with least-recently-used replacement.
const TURNOVER: u64 = 3;

/// A product of this multiple of the L2 cache evicts its own matrices.
const ALONE: u64 = 8;

/// The most sets: small sets consist of many small allocations.
const MAX_SETS: u64 = 4096;

/// The state of the L2 cache at a product's start; [`count`] has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum L2 {
    /// Without the product's matrices: launches rotate through the sets.
    #[default]
    Cold,
    /// With the matrices, as far as they fit: every launch uses the same set.
    Warm,
}

impl L2 {
    /// The name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }
}

/// The number of sets of `bytes` that an L2 cache of `l2_bytes` requires.
///
/// ```
/// use gemm_bench::buffers::{L2, count};
///
/// let mib = 1 << 20;
/// assert_eq!(count(L2::Warm, 3 * mib, 50 * mib), 1);
/// assert_eq!(count(L2::Cold, 3 * mib, 50 * mib), 51);
/// assert_eq!(count(L2::Cold, 800 * mib, 50 * mib), 1, "it turns the cache over by itself");
/// ```
pub fn count(l2: L2, bytes: u64, l2_bytes: u64) -> usize {
    let sets = match l2 {
        L2::Warm => 1,
        L2::Cold if bytes >= ALONE * l2_bytes => 1,
        L2::Cold => 1 + (TURNOVER * l2_bytes).div_ceil(bytes.max(1)),
    };
    sets.min(MAX_SETS) as usize
}

/// The number of sets that fit into memory, at most `wanted` and at least one.
///
/// Some memory is left for cuBLAS and the driver.
///
/// ```
/// let mib = 1 << 20;
/// assert_eq!(gemm_bench::buffers::possible(51, 3 * mib, 80 * mib), 23);
/// ```
pub fn possible(wanted: usize, bytes: u64, available: u64) -> usize {
    let possible = ((available - available / 8) / bytes.max(1)).max(1);
    wanted.min(usize::try_from(possible).unwrap_or(usize::MAX))
}

/// Equal sets of matrices that launches use in turn.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Gemm, Matrix, find_kernel};
/// use gemm_bench::{Job, Operands, RotatingBuffers};
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let gemm = Gemm::new(20, 30, 10);
/// let job = Job::Kernel(device.kernel(find_kernel("tile2d")?)?.prepare(gemm)?);
/// let (a, b) = (Matrix::random(20, 10, 1, 1), Matrix::random(10, 30, 1, 2));
/// let operands = Operands::new(gemm, a, b, None)?;
/// let mut buffers = RotatingBuffers::new(&device, &operands, 3)?;
/// for _ in 0..6 {
///     buffers.enqueue(&job)?;
/// }
/// let c = buffers.result(&job, None)?;
/// assert_eq!((c.rows(), c.cols()), (20, 30));
/// # Ok(())
/// # }
/// ```
pub struct RotatingBuffers {
    sets: Vec<Set>,
    shared: Shared,
    next: usize,
}

/// What all sets share.
struct Shared {
    scale: Option<DeviceMatrix<f32>>,
    bias: Option<DeviceMatrix<f32>>,
    ends: Option<GroupEnds>,
}

struct Set {
    a: AnyMatrix,
    b: AnyMatrix,
    c: AnyMatrix,
    residual: Option<DeviceMatrix<f32>>,
}

/// Makes zeros, with `left` columns before them in rows of `ld` elements.
fn zeros(
    device: &Device,
    element: Element,
    [rows, cols]: [usize; 2],
    ld: usize,
    left: usize,
) -> Result<AnyMatrix, Error> {
    let tail = ld.saturating_sub(left + cols);
    let layout = Layout { offset: left, ld, tail };
    Ok(AnyMatrix::zeros_of(device, element, [rows, cols], layout)?)
}

/// Enqueues a product on a set.
fn enqueue(job: &Job, set: &mut Set, shared: &Shared) -> Result<(), Error> {
    let Set { a, b, c, residual } = set;
    let mut extras = Extras::new();
    if let Some(scale) = &shared.scale {
        extras = extras.scale(scale);
    }
    if let Some(bias) = &shared.bias {
        extras = extras.bias(bias);
    }
    if let Some(residual) = residual {
        extras = extras.residual(residual.batch(job.gemm().matrices()[2])?);
    }
    if let Some(ends) = &shared.ends {
        extras = extras.groups(ends);
    }
    job.enqueue_with(&*a, &*b, c, extras)
}

impl RotatingBuffers {
    /// Copies operands to the device `count` times, at least once, each with a C of zeros.
    ///
    /// # Errors
    ///
    /// [`cuda_gemm::Error::Driver`] if memory is short.
    pub fn new(device: &Device, operands: &Operands, count: usize) -> Result<Self, Error> {
        Self::within(device, operands, count, 0)
    }

    /// Copies operands into wider matrices, with `left` columns before A, B and C.
    ///
    /// Leading dimensions are the product's. Addresses are `left` elements after those of the
    /// driver.
    ///
    /// # Errors
    ///
    /// See [`RotatingBuffers::new`].
    pub fn within(
        device: &Device,
        operands: &Operands,
        count: usize,
        left: usize,
    ) -> Result<Self, Error> {
        let gemm = operands.gemm();
        let [shape_a, shape_b, shape_c] = shapes(gemm);
        let [element_a, element_b, element_c] = elements(gemm);
        let [scale, bias, residual] = operands.extras();
        let copy = |matrix: Option<&Matrix>| {
            matrix.map(|matrix| DeviceMatrix::from_host(device, matrix)).transpose()
        };
        let set = || {
            let mut set = Set {
                a: zeros(device, element_a, shape_a, gemm.lda, left)?,
                b: zeros(device, element_b, shape_b, gemm.ldb, left)?,
                c: zeros(device, element_c, shape_c, gemm.ldc, left)?,
                residual: copy(residual)?,
            };
            set.a.upload(operands.a())?;
            set.b.upload(operands.b())?;
            Ok(set)
        };
        let sets = (0..count).map(|_| set()).collect::<Result<_, Error>>()?;
        let ends = match operands.groups().ends() {
            [] => None,
            ends => Some(GroupEnds::new(&device.stream(), ends)?),
        };
        let shared = Shared { scale: copy(scale)?, bias: copy(bias)?, ends };
        Ok(Self { sets, shared, next: 0 })
    }

    /// The number of sets.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Enqueues a product on the next set.
    ///
    /// The first call for a product of cuBLAS chooses its function, and so takes longer.
    ///
    /// # Errors
    ///
    /// See [`Job::enqueue_with`] and [`CublasProduct::choose`](crate::CublasProduct::choose).
    pub fn enqueue(&mut self, job: &Job) -> Result<(), Error> {
        self.choose(job)?;
        self.enqueue_next(job)
    }

    /// Chooses cuBLAS's fastest function on these sets, if that has not happened.
    fn choose(&mut self, job: &Job) -> Result<(), Error> {
        let Job::Cublas(product) = job else { return Ok(()) };
        if product.is_chosen() {
            return Ok(());
        }
        if let Some(bias) = &self.shared.bias {
            product.set_bias(&bias.download()?)?;
        }
        product.choose(|| self.enqueue_next(job))
    }

    fn enqueue_next(&mut self, job: &Job) -> Result<(), Error> {
        let count = self.sets.len();
        let set = &mut self.sets[self.next];
        self.next = (self.next + 1) % count;
        enqueue(job, set, &self.shared)
    }

    /// Fills the first set's C with the old C, or with NaN ([`POISON`]) if C is not read.
    ///
    /// # Errors
    ///
    /// [`cuda_gemm::Error::Driver`].
    pub fn reset(&mut self, old: Option<&Matrix>) -> Result<(), Error> {
        let c = &mut self.sets[0].c;
        match old {
            Some(old) => c.upload(old),
            None => c.fill_buffer(POISON),
        }?;
        Ok(())
    }

    /// Downloads the first set's C, after the work that computes it.
    ///
    /// # Errors
    ///
    /// A fault of a kernel, or [`cuda_gemm::Error::Driver`].
    pub fn first(&self) -> Result<Matrix, Error> {
        Ok(self.sets[0].c.download()?)
    }

    /// Runs a job and downloads its result.
    ///
    /// C begins as the old C, or as NaN ([`POISON`]) if it is not read.
    ///
    /// # Errors
    ///
    /// The errors of [`Job::enqueue_with`], or a fault of the kernel.
    pub fn result(&mut self, job: &Job, old: Option<&Matrix>) -> Result<Matrix, Error> {
        self.choose(job)?;
        self.reset(old)?;
        enqueue(job, &mut self.sets[0], &self.shared)?;
        self.first()
    }
}

/// The first element, along rows, whose bits differ between two results, with both values.
///
/// ```
/// use cuda_gemm::Matrix;
/// use gemm_bench::buffers::first_difference;
///
/// let one = Matrix::from_vec(1, 3, vec![1.0, 2.0, 3.0]);
/// let other = Matrix::from_vec(1, 3, vec![1.0, 2.5, 3.0]);
/// assert_eq!(first_difference(&one, &other), Some((1, [2.0, 2.5])));
/// ```
pub fn first_difference(one: &Matrix, other: &Matrix) -> Option<(usize, [f32; 2])> {
    let pairs = one.as_slice().iter().zip(other.as_slice());
    pairs
        .enumerate()
        .find(|(_, (one, other))| one.to_bits() != other.to_bits())
        .map(|(at, (one, other))| (at, [*one, *other]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::Selection;
    use crate::job::KernelOptions;
    use cuda_gemm::{Compute, DeviceChoice, DeviceMatrixRef, Gemm};

    #[test]
    fn cold_sets_turn_the_cache_over() {
        let l2 = 50 << 20;
        for size in [64u64, 256, 512, 1024, 2048, 4096, 8192, 16384] {
            let bytes = 12 * size * size;
            assert_eq!(count(L2::Warm, bytes, l2), 1);
            let sets = count(L2::Cold, bytes, l2) as u64;
            // The bytes used between two launches on one set.
            let others = (sets - 1) * bytes;
            assert!(others >= TURNOVER * l2 || bytes >= ALONE * l2, "{size}: {sets}");
            assert!(others < TURNOVER * l2 + bytes, "{size}: no more than needed");
        }
        assert_eq!(count(L2::Cold, 12, l2), MAX_SETS as usize);
    }

    #[test]
    fn sets_take_turns_and_give_the_same() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let gemm = Gemm::new(20, 30, 10);
        let loaded = Selection::parse("tile2d").unwrap().load(&device, None).unwrap();
        let candidate = loaded[0]
            .prepare(gemm, KernelOptions::default(), Selection::All(gemm.compute))
            .unwrap();
        let Ok(job) = &candidate.job else { panic!() };
        let (a, b) = (Matrix::random(20, 10, 1, 1), Matrix::random(10, 30, 1, 2));
        let operands = Operands::new(gemm, a, b, None).unwrap();
        let mut buffers = RotatingBuffers::new(&device, &operands, 3).unwrap();
        let result = buffers.result(job, None).unwrap();
        for set in 0..3 {
            assert_eq!(buffers.next, set);
            buffers.enqueue(job).unwrap();
        }
        assert_eq!((buffers.len(), buffers.next), (3, 0));
        assert!(buffers.sets.iter().all(|set| set.c.download().unwrap() == result));
    }

    /// Elements around C stay unchanged.
    #[test]
    fn matrices_may_be_parts_of_wider_ones() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let (a, b) = (Matrix::random(40, 10, 1, 1), Matrix::random(20, 30, 1, 2));
        let result = |kernel, gemm: Gemm, left| {
            let loaded = Selection::parse(kernel).unwrap().load(&device, None).unwrap();
            let loaded = loaded.into_iter().next().unwrap().any_alignment();
            let all = Selection::All(gemm.compute);
            let candidate = loaded.prepare(gemm, KernelOptions::default(), all).unwrap();
            let Ok(job) = &candidate.job else { panic!() };
            let operands = Operands::new(gemm, a.clone(), b.clone(), None).unwrap();
            let mut buffers = RotatingBuffers::within(&device, &operands, 1, left).unwrap();
            let result = buffers.result(job, None).unwrap();
            let c = &buffers.sets[0].c;
            let (first, ld) = (c.address() - 4 * left as u64, c.layout().ld);
            // SAFETY: the buffer begins `left` elements before C and ends with C's last row. Only
            // this stream uses it.
            let around = unsafe {
                DeviceMatrixRef::<f32>::from_address(c.stream(), first, [c.rows(), ld], ld)
            };
            (result, around.unwrap().download().unwrap())
        };
        for (kernel, compute) in [("tile_64x64", Compute::F32), ("mma", Compute::Bf16)] {
            let dense = Gemm::new(20, 30, 10).computed_in(compute);
            let wide = dense.leading_dimensions(10 + 4, 30 + 4, 30 + 4).stacked(2);
            let (expected, _) = result(kernel, dense.stacked(2), 0);
            let (in_part, around) = result(kernel, wide, 1);
            assert_eq!(in_part, expected);
            assert_eq!((around.rows(), around.cols()), (40, 34));
            let is_poison = |col: usize| around.row(0)[col].to_bits() == POISON;
            assert!([0, 31, 32, 33].into_iter().all(is_poison) && !is_poison(1) && !is_poison(30));
        }
    }

    #[test]
    fn bits_are_compared() {
        let one = Matrix::from_vec(2, 2, vec![0.0, f32::NAN, 1.0, 2.0]);
        assert_eq!(first_difference(&one, &one), None);
        let other = Matrix::from_vec(2, 2, vec![0.0, f32::NAN, 1.0, 3.0]);
        assert_eq!(first_difference(&one, &other), Some((3, [2.0, 3.0])));
        let minus = Matrix::from_vec(2, 2, vec![-0.0, f32::NAN, 1.0, 2.0]);
        assert_eq!(first_difference(&one, &minus), Some((0, [0.0, -0.0])));
    }
}
