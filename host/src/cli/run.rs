//! From the options to a checked result.

use host::kernels::Spec;
use host::npy::{NpyFile, Output};
use host::time::{self, Samples};
use host::verify::{Bound, Check, Method, Problem, Reference};
use host::{
    Device, DeviceChoice, DeviceMatrix, Error, Gemm, Matrix, Prepared, find_kernel, memory,
};

use super::args::{Args, Source};
use super::{progress, report};

/// Timed runs on a GPU, and untimed ones before them, while clocks rise.
const GPU_REPEAT: u32 = 10;
const GPU_WARMUP: u32 = 2;

/// A quiet NaN that no product makes: C holds it before each run if beta is 0, so that
/// a kernel that reads C, or leaves out an element, is found out.
const POISON: u32 = 0x7fc0_dead;

/// Whether the results are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Right,
    Wrong,
}

/// Everything there is to say about one result.
pub struct Record<'a> {
    pub spec: &'a Spec,
    pub device: &'a Device,
    pub gemm: Gemm,
    /// Of the random matrices; none if they came from files.
    pub seed: Option<u64>,
    pub samples: Samples,
    pub check: Check,
}

/// Does what the options say.
pub fn run(args: &Args) -> Result<Outcome, Error> {
    if args.list {
        report::list(args.format);
        return Ok(Outcome::Right);
    }
    // Mistakes are found in the order of what it costs to find them.
    let spec = find_kernel(args.kernel.as_deref().unwrap_or_default())?;
    let input = Input::open(args.source())?;
    let gemm = input.gemm()?.scaled(args.alpha, args.beta);
    gemm.validate()?;
    if args.beta == 0.0 && matches!(&input, Input::Files(files) if files.c.is_some()) {
        eprintln!("warning: --c is not read, because beta is 0; add --beta to use it");
    }
    let output = args.out.as_deref().map(Output::new).transpose()?;

    let device = open(args.device())?;
    let kernel = device.kernel(spec)?;
    let prepared = kernel.prepare(gemm)?;
    let method = Method::choose(gemm.m, gemm.n, gemm.depth());
    require_memory(&device, &gemm, method)?;

    let seed = input.seed();
    let bound = input.bound();
    let matrices = progress::step("preparing the matrices", || input.read(&gemm))?;
    let (result, samples) = compute(&device, &prepared, &matrices, args.repeat)?;
    let Matrices { a, b, c } = &matrices;
    let problem = Problem { a, b, c: c.as_ref(), alpha: gemm.alpha, beta: gemm.beta, bound };
    let check = progress::step("checking against the product in f64", || {
        Reference::compute(problem, method, seed.unwrap_or(0))?.check(&result)
    })?;

    let outcome = conclude(&check, &result, output.as_ref())?;
    report::result(&Record { spec, device: &device, gemm, seed, samples, check }, args.format);
    Ok(outcome)
}

/// Stores a right result, and says what is odd about it.
fn conclude(check: &Check, result: &Matrix, output: Option<&Output>) -> Result<Outcome, Error> {
    if check.overflowed > 0 {
        eprintln!(
            "warning: {} element(s) overflow f32 and are not finite; scale the matrices down",
            check.overflowed
        );
    }
    match (check.passed(), output) {
        (true, Some(output)) => output.write(result)?,
        (false, Some(_)) => eprintln!("warning: the result is wrong, so it is not stored"),
        (_, None) => {}
    }
    Ok(if check.passed() { Outcome::Right } else { Outcome::Wrong })
}

fn open(choice: DeviceChoice) -> Result<Device, Error> {
    if choice == DeviceChoice::Auto
        && let Err(reason) = cuda_driver::gpu_count()
    {
        eprintln!("note: running on the software device, because {reason}");
    }
    Device::open(choice)
}

/// Refuses what does not fit, on the device and on the host.
fn require_memory(device: &Device, gemm: &Gemm, method: Method) -> Result<(), Error> {
    let needed = gemm.bytes();
    let available = device.free_memory()?;
    if needed > u128::from(available) {
        return Err(Error::DeviceMemory { device: device.info().name.clone(), needed, available });
    }
    // A, B, the result and perhaps the old C; the reference; and, on the software
    // device, the device's own matrices.
    let old = if gemm.beta == 0.0 { 0 } else { 4 * gemm.m as u128 * gemm.n as u128 };
    let reference = method.bytes(gemm.m, gemm.n, gemm.depth());
    let soft = if device.is_soft() { needed } else { 0 };
    memory::require(needed + old + reference + soft, device.is_soft())
}

/// Runs the product, with a clock, and returns the last run's C.
fn compute(
    device: &Device,
    prepared: &Prepared<'_, '_>,
    Matrices { a, b, c }: &Matrices,
    repeat: Option<u32>,
) -> Result<(Matrix, Samples), Error> {
    let gemm = prepared.plan().gemm();
    let a = DeviceMatrix::from_host(device, a)?;
    let b = DeviceMatrix::from_host(device, b)?;
    let target = std::cell::RefCell::new(DeviceMatrix::zeros(device, gemm.m, gemm.n)?);
    let reset = || match c {
        Some(c) if gemm.beta != 0.0 => target.borrow_mut().upload(c),
        _ => target.borrow_mut().fill_buffer(POISON),
    };
    let run = || prepared.enqueue(&a, &b, &mut target.borrow_mut());
    let samples = if device.is_soft() {
        let repeat = repeat.unwrap_or(1);
        time::measure(device, 0, repeat, reset, || {
            progress::simulation(|| {
                run()?;
                device.synchronize()
            })
        })?
    } else {
        time::measure(device, GPU_WARMUP, repeat.unwrap_or(GPU_REPEAT), reset, run)?
    };
    let result = target.borrow().download()?;
    Ok((result, samples))
}

/// The matrices, as far as they must be known to check sizes.
enum Input {
    Random { m: usize, n: usize, k: usize, seed: u64 },
    Files(Box<Files>),
}

struct Files {
    a: NpyFile,
    b: NpyFile,
    c: Option<NpyFile>,
}

struct Matrices {
    a: Matrix,
    b: Matrix,
    c: Option<Matrix>,
}

impl Input {
    fn open(source: Source) -> Result<Self, Error> {
        Ok(match source {
            Source::Random { m, n, k, seed } => Self::Random { m, n, k, seed },
            Source::Files { a, b, c } => Self::Files(Box::new(Files {
                a: NpyFile::open(&a)?,
                b: NpyFile::open(&b)?,
                c: c.as_deref().map(NpyFile::open).transpose()?,
            })),
        })
    }

    fn gemm(&self) -> Result<Gemm, Error> {
        let Files { a, b, c } = match self {
            Self::Random { m, n, k, .. } => return Ok(Gemm::new(*m, *n, *k)),
            Self::Files(files) => files.as_ref(),
        };
        let (m, k) = a.shape();
        let n = b.shape().1;
        let expect = |what, (rows, cols), (need_rows, need_cols)| match (rows, cols)
            == (need_rows, need_cols)
        {
            true => Ok(()),
            false => Err(Error::Shape { what, rows, cols, need_rows, need_cols }),
        };
        expect("B", b.shape(), (k, n))?;
        if let Some(c) = c {
            expect("C", c.shape(), (m, n))?;
        }
        Ok(Gemm::new(m, n, k))
    }

    fn seed(&self) -> Option<u64> {
        match self {
            Self::Random { seed, .. } => Some(*seed),
            Self::Files(_) => None,
        }
    }

    fn bound(&self) -> Bound {
        match self {
            Self::Random { .. } => Bound::Probabilistic,
            Self::Files(_) => Bound::WorstCase,
        }
    }

    /// Reads or makes the matrices; C only if beta is not 0.
    fn read(self, gemm: &Gemm) -> Result<Matrices, Error> {
        let with_c = gemm.beta != 0.0;
        Ok(match self {
            Self::Random { m, n, k, seed } => Matrices {
                a: Matrix::random(m, k, seed, 1),
                b: Matrix::random(k, n, seed, 2),
                c: with_c.then(|| Matrix::random(m, n, seed, 3)),
            },
            Self::Files(files) => Matrices {
                a: files.a.read()?,
                b: files.b.read()?,
                c: files.c.filter(|_| with_c).map(NpyFile::read).transpose()?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_right_result_is_stored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.npy");
        let output = Output::new(&path).unwrap();
        let one = Matrix::from_vec(1, 1, vec![1.0]);
        let problem =
            Problem { a: &one, b: &one, c: None, alpha: 1.0, beta: 0.0, bound: Bound::WorstCase };
        let reference = Reference::compute(problem, Method::Full, 0).unwrap();

        let wrong = Matrix::from_vec(1, 1, vec![2.0]);
        let check = reference.check(&wrong).unwrap();
        assert_eq!(conclude(&check, &wrong, Some(&output)).unwrap(), Outcome::Wrong);
        assert!(!path.exists());

        let check = reference.check(&one).unwrap();
        assert_eq!(conclude(&check, &one, Some(&output)).unwrap(), Outcome::Right);
        assert_eq!(NpyFile::open(&path).unwrap().read().unwrap(), one);
    }
}
