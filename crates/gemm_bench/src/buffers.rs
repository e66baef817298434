//! Rotating buffers: the matrices of a product on the device, one set of them, or so many that no
//! launch finds its own in the L2 cache.

use std::ops::Range;

use cuda_gemm::{
    Device, DeviceHalfMatrix, DeviceMatrix, Element, Extras, InputType, Matrix, OperandMut,
    OperandRef,
};
use serde::Serialize;

use crate::error::Error;
use crate::job::Job;
use crate::operands::{Operands, elements, shapes};

/// A quiet NaN that no product makes: C holds it before a run whose result is looked at, so that a
/// kernel that reads C, or leaves out an element, is found out.
pub const POISON: u32 = 0x7fc0_dead;
/// The same of a C in 16 bits: NaN in `bf16` and in `f16`.
const HALF_POISON: u16 = 0x7fad;

/// How often the L2 cache would have to be as large to hold what is used between two launches
/// on one set. Twice would do, if it kept what was used last.
const TURNOVER: u64 = 3;

/// A product of so many times the L2 cache turns it over by itself.
const ALONE: u64 = 8;

/// The most sets: small ones are made of many small allocations.
const MAX_SETS: u64 = 4096;

/// What the L2 cache holds when a product starts; [`count`] has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum L2 {
    /// Nothing of its matrices: each launch takes other ones, in turn.
    #[default]
    Cold,
    /// What fits of them: every launch takes the same ones.
    Warm,
}

/// How many sets of `bytes` there must be for an L2 cache of `l2_bytes`.
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

/// How many sets there are memory for, of those that there should be: one at least. Something is
/// left to cuBLAS and the driver.
///
/// ```
/// let mib = 1 << 20;
/// assert_eq!(gemm_bench::buffers::possible(51, 3 * mib, 80 * mib), 23);
/// ```
pub fn possible(wanted: usize, bytes: u64, available: u64) -> usize {
    let possible = ((available - available / 8) / bytes.max(1)).max(1);
    wanted.min(usize::try_from(possible).unwrap_or(usize::MAX))
}

/// Sets of the same matrices, which launches take in turn.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Gemm, Matrix, find_kernel};
/// use gemm_bench::{Job, Operands, RotatingBuffers};
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let gemm = Gemm::new(20, 30, 10);
/// let job = Job::rung(device.kernel(find_kernel("tile2d")?)?.prepare(gemm)?);
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
    /// Scale and bias, which all sets share.
    vectors: [Option<DeviceMatrix>; 2],
    next: usize,
}

/// A matrix on the device: some columns of a wider one, or all.
struct Part {
    whole: Whole,
    /// Of the wider one.
    rows: usize,
    ld: usize,
    cols: Range<usize>,
}

enum Whole {
    F32(DeviceMatrix),
    /// In one row, so that there is nothing between its rows.
    Half(DeviceHalfMatrix),
}

impl Part {
    /// Zeros, of `rows` x `cols`, with so many more columns left of them and the leading dimension
    /// `ld`.
    fn zeros(
        device: &Device,
        element: Element,
        [rows, cols]: [usize; 2],
        ld: usize,
        left: usize,
    ) -> Result<Self, Error> {
        let ld = ld.max(left + cols);
        let half = |input| DeviceHalfMatrix::zeros(device, input, 1, rows * ld).map(Whole::Half);
        let whole = match element {
            Element::F32 => DeviceMatrix::zeros(device, rows, ld).map(Whole::F32),
            Element::Bf16 => half(InputType::Bf16),
            Element::F16 => half(InputType::F16),
        }?;
        Ok(Self { whole, rows, ld, cols: left..left + cols })
    }

    fn upload(&mut self, matrix: &Matrix) -> Result<(), Error> {
        let (cols, ld) = (self.cols.clone(), self.ld);
        match &mut self.whole {
            Whole::F32(whole) => {
                whole.submatrix_mut(0..matrix.rows(), cols)?.upload(matrix)?;
            }
            Whole::Half(whole) => {
                let at = |_, at| {
                    let (row, col) = (at / ld, at % ld);
                    if cols.contains(&col) { matrix.at(row, col - cols.start) } else { 0.0 }
                };
                whole.upload(&Matrix::from_fn(1, whole.cols(), at))?;
            }
        }
        Ok(())
    }

    fn download(&self) -> Result<Matrix, Error> {
        match &self.whole {
            Whole::F32(whole) => {
                Ok(whole.submatrix(0..whole.rows(), self.cols.clone())?.download()?)
            }
            Whole::Half(whole) => {
                let (all, ld, first) = (whole.download()?, self.ld, self.cols.start);
                Ok(Matrix::from_fn(self.rows, self.cols.len(), |row, col| {
                    all.at(0, row * ld + first + col)
                }))
            }
        }
    }

    fn poison(&mut self) -> Result<(), Error> {
        match &mut self.whole {
            Whole::F32(whole) => whole.fill_buffer(POISON)?,
            Whole::Half(whole) => whole.fill_buffer(HALF_POISON)?,
        }
        Ok(())
    }

    fn view(&self) -> Result<OperandRef<'_>, Error> {
        let (rows, cols) = (0..self.rows, self.cols.clone());
        Ok(match &self.whole {
            Whole::F32(whole) => whole.submatrix(rows, cols)?.into(),
            Whole::Half(whole) => {
                let all = whole.view().rows_as_matrices(self.rows, self.ld, self.ld)?;
                all.submatrix(rows, cols)?.into()
            }
        })
    }

    fn view_mut(&mut self) -> Result<OperandMut<'_>, Error> {
        let (rows, cols) = (0..self.rows, self.cols.clone());
        Ok(match &mut self.whole {
            Whole::F32(whole) => whole.submatrix_mut(rows, cols)?.into(),
            Whole::Half(whole) => {
                let all = whole.view_mut().rows_as_matrices(self.rows, self.ld, self.ld)?;
                all.submatrix(rows, cols)?.into()
            }
        })
    }
}

struct Set {
    inputs: [Part; 2],
    c: Part,
    residual: Option<DeviceMatrix>,
}

/// Enqueues a product on a set.
fn enqueue(job: &Job, set: &mut Set, vectors: &[Option<DeviceMatrix>; 2]) -> Result<(), Error> {
    let Set { inputs: [a, b], c, residual } = set;
    let mut extras = Extras::new();
    if let Some(scale) = &vectors[0] {
        extras = extras.scale(scale);
    }
    if let Some(bias) = &vectors[1] {
        extras = extras.bias(bias);
    }
    if let Some(residual) = residual {
        extras = extras.residual(residual.view().split_rows(job.gemm().batch)?);
    }
    job.enqueue_with(a.view()?, b.view()?, c.view_mut()?, extras)
}

impl RotatingBuffers {
    /// Copies operands to the device, `count` times, which is at least 1, each with a C of zeros.
    ///
    /// # Errors
    ///
    /// [`cuda_gemm::Error::Driver`] if the memory is not to be had.
    pub fn new(device: &Device, operands: &Operands, count: usize) -> Result<Self, Error> {
        Self::within(device, operands, count, 0)
    }

    /// The same, of wider matrices, with so many columns left of A, B and C: leading dimensions are
    /// the product's, and addresses are so many elements from what the driver allocates.
    ///
    /// # Errors
    ///
    /// As for [`RotatingBuffers::new`].
    pub fn within(
        device: &Device,
        operands: &Operands,
        count: usize,
        left: usize,
    ) -> Result<Self, Error> {
        let gemm = operands.gemm();
        let [shape_a, shape_b, shape_c] = shapes(gemm);
        let [element_a, element_b, element_c] = elements(gemm);
        let inputs = || {
            let mut parts = [
                Part::zeros(device, element_a, shape_a, gemm.lda, left)?,
                Part::zeros(device, element_b, shape_b, gemm.ldb, left)?,
            ];
            parts[0].upload(operands.a())?;
            parts[1].upload(operands.b())?;
            Ok::<_, Error>(parts)
        };
        let [scale, bias, residual] = operands.extras();
        let copy = |matrix: Option<&Matrix>| {
            matrix.map(|matrix| DeviceMatrix::from_host(device, matrix)).transpose()
        };
        let set = || {
            Ok(Set {
                inputs: inputs()?,
                c: Part::zeros(device, element_c, shape_c, gemm.ldc, left)?,
                residual: copy(residual)?,
            })
        };
        let sets = (0..count).map(|_| set()).collect::<Result<_, Error>>()?;
        Ok(Self { sets, vectors: [copy(scale)?, copy(bias)?], next: 0 })
    }

    /// How many sets there are.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Enqueues a product on the next set.
    ///
    /// # Errors
    ///
    /// Those of [`Job::enqueue`].
    pub fn enqueue(&mut self, job: &Job) -> Result<(), Error> {
        let count = self.sets.len();
        let set = &mut self.sets[self.next];
        self.next = (self.next + 1) % count;
        enqueue(job, set, &self.vectors)
    }

    /// Has the C of the first set hold the old C, or NaN ([`POISON`]) where it is not read.
    ///
    /// # Errors
    ///
    /// [`cuda_gemm::Error::Driver`].
    pub fn reset(&mut self, old: Option<&Matrix>) -> Result<(), Error> {
        let c = &mut self.sets[0].c;
        match old {
            Some(old) => c.upload(old),
            None => c.poison(),
        }
    }

    /// What the C of the first set holds; waits for what computes it.
    ///
    /// # Errors
    ///
    /// A fault of a kernel, or [`cuda_gemm::Error::Driver`].
    pub fn first(&self) -> Result<Matrix, Error> {
        self.sets[0].c.download()
    }

    /// What a job computes from the old C, or from one of NaN ([`POISON`]) where it is not read;
    /// waits for it.
    ///
    /// # Errors
    ///
    /// Those of [`Job::enqueue`], or a fault of the kernel.
    pub fn result(&mut self, job: &Job, old: Option<&Matrix>) -> Result<Matrix, Error> {
        self.reset(old)?;
        enqueue(job, &mut self.sets[0], &self.vectors)?;
        self.first()
    }
}

/// The first element of two results, counted along rows, whose bits differ, and both its values.
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
    use cuda_gemm::{DeviceChoice, Gemm};

    #[test]
    fn cold_sets_turn_the_cache_over() {
        let l2 = 50 << 20;
        for size in [64u64, 256, 512, 1024, 2048, 4096, 8192, 16384] {
            let bytes = 12 * size * size;
            assert_eq!(count(L2::Warm, bytes, l2), 1);
            let sets = count(L2::Cold, bytes, l2) as u64;
            // What is used between two launches on one set.
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
        let candidate = loaded[0].prepare(gemm, KernelOptions::default(), Selection::All).unwrap();
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

    /// What is around C stays as it was.
    #[test]
    fn matrices_may_be_parts_of_wider_ones() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let (a, b) = (Matrix::random(40, 10, 1, 1), Matrix::random(20, 30, 1, 2));
        let dense = Gemm::new(20, 30, 10);
        let wide = dense.leading_dimensions(10 + 4, 30 + 4, 30 + 4).stacked(2);
        let loaded = Selection::parse("tile_64x64").unwrap().load(&device, None).unwrap();
        let result = |gemm: Gemm, left| {
            let candidate =
                loaded[0].prepare(gemm, KernelOptions::default(), Selection::All).unwrap();
            let Ok(job) = &candidate.job else { panic!() };
            let operands = Operands::new(gemm, a.clone(), b.clone(), None).unwrap();
            let mut buffers = RotatingBuffers::within(&device, &operands, 1, left).unwrap();
            let result = buffers.result(job, None).unwrap();
            let Whole::F32(around) = &buffers.sets[0].c.whole else { panic!() };
            (result, around.download().unwrap())
        };
        let (expected, _) = result(dense.stacked(2), 0);
        let (in_part, around) = result(wide, 1);
        assert_eq!(in_part, expected);
        assert_eq!((around.rows(), around.cols()), (40, 34));
        let is_poison = |col: usize| around.row(0)[col].to_bits() == POISON;
        assert!([0, 31, 32, 33].into_iter().all(is_poison) && !is_poison(1) && !is_poison(30));
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
