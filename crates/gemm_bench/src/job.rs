//! Products that are ready to run, by a kernel or by cuBLAS, and what a report calls them.

use std::sync::Arc;

use cuda_gemm::auto::Configuration;
use cuda_gemm::{Extras, Gemm, OperandMut, OperandRef, Plan, Product};

use crate::cublas_fastest::CublasFastest;
use crate::cublas_product::CublasProduct;
use crate::error::Error;

/// The name of the baseline.
pub const CUBLAS: &str = "cublas";

/// How a kernel is to divide a product, where it can be told.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelOptions {
    /// So many splits of K, or fewer where K has fewer steps. If it is not said, a kernel for f32 has one, and one for tensor cores
    /// as many as seem best.
    pub splits: Option<u32>,
    /// So many clusters share the steps along K of all tiles, or as many as there can be; for a kernel for tensor cores that splits
    /// K. If it is not said, there are as many as seem best.
    pub clusters: Option<u32>,
    /// So many blocks share a multiprocessor's memory, as stages: one, or as many as can; for a kernel for tensor cores that splits
    /// K. If it is not said, as seems best.
    pub blocks_per_multiprocessor: Option<u32>,
    /// A and B are copied first, against what 128-bit accesses do not reach; for a tile in f32 or TF32.
    pub staged: bool,
}

/// What a row of a report is about.
///
/// ```
/// use gemm_bench::Title;
///
/// let chosen = Some("tile_64x64");
/// let title = Title { name: "auto", chosen, splits: Some(4), ..Title::default() };
/// assert_eq!(title.choice().as_deref(), Some("tile_64x64 in 4 splits"));
/// assert!(!title.is_cublas());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Title {
    /// The kernel's name, `auto` or `cublas`.
    pub name: &'static str,
    /// The place in the ladder, from 1; none for what is not in it.
    pub rung: Option<usize>,
    /// The kernel that `auto` chose.
    pub chosen: Option<&'static str>,
    /// Blocks that share each tile of C; none for a kernel that cannot split K.
    pub splits: Option<u32>,
    /// How many were asked for, if any were, which are more where K has fewer steps.
    pub asked_splits: Option<u32>,
    /// Clusters that share the steps along K of all tiles (stream-K); none where there is one for each tile.
    pub clusters: Option<u32>,
    /// How many were asked for, if any were: more than there can be, or as many as tiles.
    pub asked_clusters: Option<u32>,
    /// Whether A and B are copied first, as `auto` chose or was asked for.
    pub staged: bool,
}

impl Title {
    /// Whether it is the baseline.
    pub fn is_cublas(&self) -> bool {
        self.name == CUBLAS
    }

    /// What `auto` chose, in words; `None` for all else.
    pub fn choice(&self) -> Option<String> {
        let Self { chosen, splits, clusters, staged, .. } = *self;
        let configuration = Configuration {
            kernel: chosen?,
            splits: splits.unwrap_or(1),
            clusters,
            blocks_per_multiprocessor: None,
            staged,
        };
        Some(configuration.to_string())
    }
}

/// One row of a report, before it has run: a kernel for a product, from [`Loaded::prepare`](crate::Loaded::prepare).
pub struct Candidate {
    /// What it is.
    pub title: Title,
    /// What runs; why not, if it cannot.
    pub job: Result<Job, Arc<Error>>,
}

/// A product that has been checked, and needs only the matrices; [`RotatingBuffers`] has an
/// example.
///
/// [`RotatingBuffers`]: crate::RotatingBuffers
pub enum Job {
    /// By a kernel of this library.
    Kernel(Box<Product>),
    /// By cuBLAS.
    Cublas(CublasProduct),
    /// By the fastest that cuBLAS has.
    CublasFastest(Box<CublasFastest>),
}

impl Job {
    /// A product that a kernel for f32 of this library computes.
    pub fn rung(prepared: Plan) -> Self {
        Self::product(Product::F32(prepared))
    }

    /// A product that a kernel of this library computes, in any precision.
    pub fn product(prepared: Product) -> Self {
        Self::Kernel(Box::new(prepared))
    }

    /// The product.
    pub fn gemm(&self) -> &Gemm {
        match self {
            Self::Kernel(product) => product.gemm(),
            Self::Cublas(product) => product.gemm(),
            Self::CublasFastest(product) => product.gemm(),
        }
    }

    /// The plan of a kernel for f32.
    pub fn plan(&self) -> Option<&Plan> {
        match self {
            Self::Kernel(product) => match &**product {
                Product::F32(plan) => Some(plan),
                Product::TensorCore(_) => None,
            },
            Self::Cublas(_) | Self::CublasFastest(_) => None,
        }
    }

    /// Which of several was the fastest that cuBLAS has, in words, once it has run.
    pub fn chosen_by_cublas(&self) -> Option<String> {
        match self {
            Self::CublasFastest(product) => product.chosen(),
            Self::Kernel(_) | Self::Cublas(_) => None,
        }
    }

    /// Enqueues the product on the device's stream, and returns at once. The matrices have its
    /// [`shapes`](crate::operands::shapes) and [types](crate::operands::elements).
    ///
    /// # Errors
    ///
    /// Those of [`Product::enqueue`] or [`CublasProduct::enqueue`].
    pub fn enqueue<'m>(
        &self,
        a: impl Into<OperandRef<'m>>,
        b: impl Into<OperandRef<'m>>,
        c: impl Into<OperandMut<'m>>,
    ) -> Result<(), Error> {
        self.enqueue_with(a, b, c, Extras::new())
    }

    /// As [`Job::enqueue`], with what the product's epilogue reads.
    ///
    /// # Errors
    ///
    /// As there, and those of [`Product::enqueue_with`].
    pub fn enqueue_with<'m>(
        &self,
        a: impl Into<OperandRef<'m>>,
        b: impl Into<OperandRef<'m>>,
        c: impl Into<OperandMut<'m>>,
        extras: Extras<'m>,
    ) -> Result<(), Error> {
        let (a, b, c) = (a.into(), b.into(), c.into());
        let (batch, [[rows_a, _], [rows_b, _], _]) = (self.gemm().batch, self.gemm().shapes());
        // Matrices of a batch lie one below the other, or one is for all.
        let operand = |matrix: OperandRef<'m>, rows| match batch {
            1 => Ok(matrix),
            _ if matrix.rows() == rows => Ok(matrix.broadcast(batch)),
            _ => matrix.split_rows(batch),
        };
        let (a, b) = (operand(a, rows_a)?, operand(b, rows_b)?);
        let c = if batch == 1 { c } else { c.split_rows(batch)? };
        match self {
            Self::Kernel(product) => Ok(product.enqueue_with(a, b, c, extras)?),
            Self::CublasFastest(product) => product.enqueue_with(a, b, c, extras),
            Self::Cublas(product) => {
                product.enqueue_with(a.f32("A")?, b.f32("B")?, c.f32("C")?, extras)
            }
        }
    }
}
