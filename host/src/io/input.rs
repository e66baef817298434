//! The matrices that the options name: random ones, or files.

use std::path::PathBuf;

use cuda_gemm::Error as GemmError;
use host::npy::NpyFile;
use host::verify::Bound;
use host::{Gemm, Groups, Operands, Shape, operands};

use crate::error::Error;

/// Where the matrices come from.
#[derive(Clone, Debug)]
pub enum Source {
    Random { shape: Shape, seed: u64 },
    Files { a: PathBuf, b: PathBuf, c: Option<PathBuf>, arrangement: Arrangement },
}

/// How matrices lie in files.
#[derive(Clone, Copy, Debug)]
pub struct Arrangement {
    /// Whether A and B are transposed.
    pub trans_a: bool,
    pub trans_b: bool,
    /// How many products there are, whose matrices lie one below the other; a B that is not
    /// transposed may be one for all.
    pub batch: usize,
    /// How many groups have a B each, which lie one below the other.
    pub groups: usize,
}

/// The matrices, as far as they must be known to check sizes.
pub enum Input {
    Random { shape: Shape, seed: u64 },
    Files(Box<Files>),
}

pub struct Files {
    a: NpyFile,
    b: NpyFile,
    c: Option<NpyFile>,
    arrangement: Arrangement,
}

impl Input {
    pub fn open(source: Source) -> Result<Self, Error> {
        Ok(match source {
            Source::Random { shape, seed } => Self::Random { shape, seed },
            Source::Files { a, b, c, arrangement } => Self::Files(Box::new(Files {
                a: NpyFile::open(&a)?,
                b: NpyFile::open(&b)?,
                c: c.as_deref().map(NpyFile::open).transpose()?,
                arrangement,
            })),
        })
    }

    /// Whether an old C was given.
    pub fn has_c(&self) -> bool {
        matches!(self, Self::Files(files) if files.c.is_some())
    }

    pub fn gemm(&self) -> Result<Gemm, Error> {
        let Files { a, b, arrangement, .. } = match self {
            Self::Random { shape, .. } => return Ok(shape.gemm()),
            Self::Files(files) => files.as_ref(),
        };
        let Arrangement { trans_a, trans_b, batch, groups } = *arrangement;
        let part = |what, rows: usize, count| match rows.checked_rem(count) {
            Some(0) => Ok(rows / count),
            _ => Err(Error::usage(format!(
                "{what} has {rows} rows, which are no {count} matrices of the same size, one below \
                 the other, as --batch and --groups have them"
            ))),
        };
        let op = |trans, rows, cols| if trans { (cols, rows) } else { (rows, cols) };
        let (m, k) = op(trans_a, part("A", a.shape().0, batch)?, a.shape().1);
        // A B of K rows is one for all products.
        let is_shared = batch > 1 && !trans_b && b.shape().0 == k;
        let rows_b =
            if is_shared { b.shape().0 } else { part("B", b.shape().0, batch.max(groups))? };
        let n = op(trans_b, rows_b, b.shape().1).1;
        let gemm = Gemm::new(m, n, k).transposed(trans_a, trans_b);
        let gemm = if batch == 1 { gemm } else { gemm.stacked(batch) };
        Ok(if is_shared { Gemm { stride_b: 0, ..gemm } } else { gemm })
    }

    /// Checks that files have the shapes of a product, before they are read.
    pub fn expect(&self, gemm: &Gemm) -> Result<(), Error> {
        let Self::Files(files) = self else { return Ok(()) };
        let [_, shape_b, shape_c] = operands::shapes(gemm);
        GemmError::expect_shape("B", files.b.shape().into(), shape_b)?;
        match &files.c {
            Some(c) => Ok(GemmError::expect_shape("C", c.shape().into(), shape_c)?),
            None => Ok(()),
        }
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
    pub fn read(self, gemm: &Gemm, groups: Groups) -> Result<Operands, Error> {
        let operands = match self {
            Self::Random { seed, .. } => Operands::random(gemm, seed),
            Self::Files(files) => {
                let c = files.c.filter(|_| gemm.beta != 0.0).map(NpyFile::read).transpose()?;
                Operands::new(*gemm, files.a.read()?, files.b.read()?, c)?
            }
        };
        Ok(operands.in_groups(groups)?)
    }
}
