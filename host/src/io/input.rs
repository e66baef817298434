//! The matrices that the options name: random ones, or files.

use std::path::PathBuf;

use cuda_gemm::Error as GemmError;
use host::npy::NpyFile;
use host::verify::Bound;
use host::{Gemm, Matrix};

use crate::error::Error;

/// Where the matrices come from.
#[derive(Clone, Debug)]
pub enum Source {
    Random { m: usize, n: usize, k: usize, seed: u64 },
    Files { a: PathBuf, b: PathBuf, c: Option<PathBuf> },
}

/// The matrices, as far as they must be known to check sizes.
pub enum Input {
    Random { m: usize, n: usize, k: usize, seed: u64 },
    Files(Box<Files>),
}

pub struct Files {
    a: NpyFile,
    b: NpyFile,
    c: Option<NpyFile>,
}

/// The matrices on the host.
pub struct Matrices {
    pub a: Matrix,
    pub b: Matrix,
    /// The old C; only if beta is not 0.
    pub c: Option<Matrix>,
}

impl Input {
    pub fn open(source: Source) -> Result<Self, Error> {
        Ok(match source {
            Source::Random { m, n, k, seed } => Self::Random { m, n, k, seed },
            Source::Files { a, b, c } => Self::Files(Box::new(Files {
                a: NpyFile::open(&a)?,
                b: NpyFile::open(&b)?,
                c: c.as_deref().map(NpyFile::open).transpose()?,
            })),
        })
    }

    /// Whether an old C was given.
    pub fn has_c(&self) -> bool {
        matches!(self, Self::Files(files) if files.c.is_some())
    }

    pub fn gemm(&self) -> Result<Gemm, Error> {
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
            false => Err(Error::from(GemmError::Shape { what, rows, cols, need_rows, need_cols })),
        };
        expect("B", b.shape(), (k, n))?;
        if let Some(c) = c {
            expect("C", c.shape(), (m, n))?;
        }
        Ok(Gemm::new(m, n, k))
    }

    pub fn seed(&self) -> Option<u64> {
        match self {
            Self::Random { seed, .. } => Some(*seed),
            Self::Files(_) => None,
        }
    }

    pub fn bound(&self) -> Bound {
        match self {
            Self::Random { .. } => Bound::Probabilistic,
            Self::Files(_) => Bound::WorstCase,
        }
    }

    /// Reads or makes the matrices; C only if beta is not 0.
    pub fn read(self, gemm: &Gemm) -> Result<Matrices, Error> {
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
