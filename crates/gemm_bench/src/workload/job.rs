//! Products that are ready to run with a kernel or cuBLAS, and their names in reports.

use std::sync::Arc;

use cuda_gemm::{
    Configuration, Extras, Gemm, IntoOperand, IntoOperandMut, OperandRef, Plan, find_kernel,
};

use crate::cublas_product::CublasProduct;
use crate::error::Error;
use crate::groups::Groups;

/// The name of the baseline.
pub const CUBLAS: &str = "cublas";

/// The requested division of a product, for kernels that have a choice.
#[derive(Clone, Debug, Default)]
pub struct KernelOptions {
    /// Splits of K, at most its steps.
    ///
    /// By default, a kernel with clusters has the number that seems best, and any other has one.
    pub splits: Option<u32>,
    /// Clusters that share the steps along K of all tiles, limited to the possible number.
    ///
    /// The default is the number that seems best.
    pub clusters: Option<u32>,
    /// Columns of a tile, rounded up to a possible number.
    ///
    /// For a kernel that [narrows](kernels_gpu::abi::KernelDescriptor::narrows). The default is the
    /// number that seems best.
    pub columns: Option<u32>,
    /// Whether C is stored as the transpose of the result.
    ///
    /// For a kernel with clusters. The default is the way that seems best.
    pub transposes_c: Option<bool>,
    /// Blocks that share a multiprocessor's memory: one, or the most possible.
    ///
    /// For a kernel with clusters. The default is the number that seems best.
    pub blocks_per_multiprocessor: Option<u32>,
    /// Whether misaligned A and B are copied first, for tiles in f32 or TF32.
    pub staged: bool,
    /// The groups of a grouped product, for which cuBLAS has a call each.
    pub groups: Groups,
}

/// The subject of a report's row.
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
    /// The place in the ladder, from 1; `None` outside the ladder.
    pub rung: Option<usize>,
    /// The kernel that `auto` chose.
    pub chosen: Option<&'static str>,
    /// Blocks that share each tile of C; `None` for a kernel that cannot split K.
    pub splits: Option<u32>,
    /// The requested splits, if any; they may exceed the steps of K.
    pub asked_splits: Option<u32>,
    /// Clusters that share the steps along K of all tiles (stream-K), if they do.
    pub clusters: Option<u32>,
    /// The requested clusters, if any; they may exceed the possible number, or equal the tiles.
    pub asked_clusters: Option<u32>,
    /// Columns of a tile, if fewer than the kernel's.
    pub columns: Option<u32>,
    /// Whether C is stored as the transpose of the result, if that is not the way with fewer tiles.
    pub transposes_c: Option<bool>,
    /// Resident blocks per multiprocessor, if they are limited.
    pub blocks_per_multiprocessor: Option<u32>,
    /// Whether A and B are copied first, as chosen by `auto` or requested.
    pub staged: bool,
}

impl Title {
    /// Whether this is the baseline.
    pub fn is_cublas(&self) -> bool {
        self.name == CUBLAS
    }

    /// The choice of `auto`, in words; `None` for other rows.
    pub fn choice(&self) -> Option<String> {
        let Self { clusters, blocks_per_multiprocessor, staged, .. } = *self;
        let choice = Configuration {
            splits: self.splits.unwrap_or(1),
            clusters,
            columns: self.columns,
            transposes_c: self.transposes_c,
            blocks_per_multiprocessor,
            staged,
            ..Configuration::new(find_kernel(self.chosen?).ok()?)
        };
        Some(choice.to_string())
    }
}

/// A report's row before it has run: a kernel for a product.
///
/// [`Loaded::prepare`](crate::Loaded::prepare) makes it.
pub struct Candidate {
    /// The subject of the row.
    pub title: Title,
    /// The job, or the reason why it cannot run.
    pub job: Result<Job, Arc<Error>>,
}

/// A checked product that needs only the matrices.
///
/// [`RotatingBuffers`] has an example.
///
/// [`RotatingBuffers`]: crate::RotatingBuffers
pub enum Job {
    /// A kernel of this library.
    Kernel(Plan<'static>),
    /// cuBLAS.
    Cublas(Box<CublasProduct>),
}

impl Job {
    /// The product.
    pub fn gemm(&self) -> &Gemm {
        match self {
            Self::Kernel(plan) => plan.gemm(),
            Self::Cublas(product) => product.gemm(),
        }
    }

    /// The plan, for a kernel of this library.
    pub fn plan(&self) -> Option<&Plan<'static>> {
        match self {
            Self::Kernel(plan) => Some(plan),
            Self::Cublas(_) => None,
        }
    }

    /// The fastest of cuBLAS, in words, after it has run.
    pub fn chosen_by_cublas(&self) -> Option<String> {
        match self {
            Self::Cublas(product) => product.chosen(),
            Self::Kernel(_) => None,
        }
    }

    /// Enqueues the product on the device's stream, and returns at once.
    ///
    /// The matrices have its [`shapes`](crate::operands::shapes) and
    /// [types](crate::operands::elements).
    ///
    /// # Errors
    ///
    /// The errors of [`Plan::run_with`] or [`CublasProduct::enqueue_with`].
    pub fn enqueue_with<'m>(
        &self,
        a: impl IntoOperand<'m>,
        b: impl IntoOperand<'m>,
        c: impl IntoOperandMut<'m>,
        extras: Extras<'m>,
    ) -> Result<(), Error> {
        let (a, b, c) = (a.into_operand(), b.into_operand(), c.into_operand_mut());
        let gemm = self.gemm();
        let ([count_a, count_b, count_c], [[rows_a, _], [rows_b, _], _]) =
            (gemm.matrices(), gemm.shapes());
        // Matrices of a batch lie one below the other, or all products share one.
        let operand = |matrix: OperandRef<'m>, count, rows, lies_transposed| {
            let all = match count {
                1 => matrix,
                _ if matrix.rows() == rows => matrix.broadcast(count)?,
                _ => matrix.batch(count)?,
            };
            Ok::<_, Error>(if lies_transposed { all.t() } else { all })
        };
        let a = operand(a, count_a, rows_a, gemm.trans_a)?;
        let b = operand(b, count_b, rows_b, gemm.trans_b)?;
        let c = if count_c == 1 { c } else { c.batch(count_c)? };
        match self {
            Self::Kernel(plan) => Ok(plan.run_with(a, b, c, extras)?),
            Self::Cublas(product) => product.enqueue_with(a, b, c, extras),
        }
    }
}
