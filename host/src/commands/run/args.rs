//! The options of `run`, which are the plain flags, too.

use std::path::PathBuf;

use host::kernels::abi::KernelAbi;
use host::{DeviceChoice, KernelOptions, L2, Selection, Shape};

use super::checks::CheckArgs;
use crate::commands::l2::L2Arg;
use crate::commands::product::{ProductArgs, seed, size};
use crate::error::Error;
use crate::io::device::DeviceArg;
use crate::io::input::{Arrangement, Source};
use crate::io::output::Output;
use crate::report::format::Format;

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// The kernel to run: a rung of the ladder or a tile, or with --compute a kernel for tensor cores
    /// (--list shows them); auto, cublas, or all.
    ///
    /// auto takes the one that is fastest for this product on this device. cublas is NVIDIA's
    /// library, loaded if it is there; it runs on GPUs. all runs the ladder, or the kernels for
    /// tensor cores, auto and cublas on the same matrices, and compares them; what cannot run says
    /// why, and one wrong result makes the exit status 1.
    #[arg(long, value_name = "NAME", required_unless_present = "list")]
    pub kernel: Option<String>,

    /// M, N and K at once, for random square matrices.
    #[arg(long, value_name = "N", conflicts_with_all = ["m", "n", "k", "a"],
          value_parser = size, allow_negative_numbers = true)]
    size: Option<usize>,

    /// Rows of A and C.
    #[arg(long, requires = "n", requires = "k", conflicts_with = "a",
          value_parser = size, allow_negative_numbers = true)]
    m: Option<usize>,

    /// Columns of B and C.
    #[arg(long, requires = "m", requires = "k", conflicts_with = "a",
          value_parser = size, allow_negative_numbers = true)]
    n: Option<usize>,

    /// Columns of A, rows of B.
    #[arg(long, requires = "m", requires = "n", conflicts_with = "a",
          value_parser = size, allow_negative_numbers = true)]
    k: Option<usize>,

    #[command(flatten)]
    pub product: ProductArgs,

    /// Where to run.
    #[arg(long, value_enum, default_value_t)]
    device: DeviceArg,

    #[command(flatten)]
    pub checks: CheckArgs,

    /// The seed of the random matrices [default: 42].
    #[arg(long, conflicts_with = "a", allow_negative_numbers = true, value_parser = seed)]
    seed: Option<u64>,

    /// Blocks that share each tile of C, each with its part of K (fewer where K has fewer steps);
    /// for the tiles, tf32_split and the tf32 kernels without bulk copies [default: 1], and for wgmma_split
    /// [default: what seems best] (--list).
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub splits: Option<u32>,

    /// Clusters that share the steps along K of all tiles of C equally (stream-K), or as many as there can be; for
    /// wgmma_split [default: what seems best].
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    clusters: Option<u32>,

    /// Blocks that share a multiprocessor's memory, most of which is stages: 1, or as many as can; for wgmma_split
    /// [default: what seems best].
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    blocks_per_multiprocessor: Option<u32>,

    /// Copy A and B first, where 128-bit accesses do not reach them; for the tiles and the tf32 kernels
    /// without bulk copies, which copy what they must anyway.
    #[arg(long)]
    pub staged: bool,

    /// Timed samples [default: 10 on a GPU, 1 on the software device]; on a GPU each is a batch of
    /// launches without gaps.
    #[arg(long, visible_alias = "samples", value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: Option<u32>,

    /// What the L2 cache of a GPU holds when a product starts.
    #[arg(long, value_enum, default_value_t)]
    l2: L2Arg,

    /// A, a .npy file of float32 or float16, in C or Fortran order.
    #[arg(long, value_name = "A.npy", requires = "b")]
    a: Option<PathBuf>,

    /// B, likewise; the sizes come from the files.
    #[arg(long, value_name = "B.npy", requires = "a")]
    b: Option<PathBuf>,

    /// The old C, likewise; needed unless --beta is 0.
    #[arg(long, value_name = "C.npy", requires = "a")]
    c: Option<PathBuf>,

    /// Where to store C if it is right, a .npy file of float32, which has numbers of 16 bits exactly.
    /// Nothing but such a file is replaced: that of --c may be, those of --a and --b are not.
    #[arg(long, value_name = "OUT.npy")]
    out: Option<PathBuf>,

    /// A table for people, or JSON: one object per result and line.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,

    /// Add the results to this file as they are made, as lines of JSON, after a line that
    /// says where and how. It must be new, or have such lines.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// What auto goes by: a table that `host tune` made [default: the one built in].
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,

    /// List the kernels and stop.
    #[arg(long)]
    pub list: bool,
}

impl RunArgs {
    pub fn device(&self) -> DeviceChoice {
        self.device.choice()
    }

    pub fn l2(&self) -> L2 {
        self.l2.policy()
    }

    pub fn kernel_options(&self) -> KernelOptions {
        KernelOptions {
            splits: self.splits,
            clusters: self.clusters,
            blocks_per_multiprocessor: self.blocks_per_multiprocessor,
            staged: self.staged,
        }
    }

    /// Makes sure that the options go with the choice.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`].
    pub fn check(&self, choice: Selection) -> Result<(), Error> {
        let (is_one, is_staged) = match choice {
            Selection::Rung(descriptor) => (true, descriptor.abi() == KernelAbi::SplitK),
            Selection::TensorCore(_) => (true, false),
            _ => (false, false),
        };
        let is_for_auto = matches!(choice, Selection::Auto | Selection::All);
        let shares_steps = matches!(choice, Selection::TensorCore(one) if one.splits());
        let mistakes = [
            (
                self.splits.is_some() && !is_one,
                "--splits is for one kernel: name a tile, one of tf32_split or of tf32 without bulk copies, or one \
                 of wgmma_split, with --kernel (--list)",
            ),
            (
                self.blocks_per_multiprocessor.is_some() && !shares_steps,
                "--blocks-per-multiprocessor is for the kernels that share steps along K: name one of wgmma_split \
                 with --kernel (--list)",
            ),
            (
                self.clusters.is_some() && !shares_steps,
                "--clusters is for the kernels that share steps along K: name one of wgmma_split with --kernel \
                 (--list)",
            ),
            (
                self.staged && !is_staged,
                "--staged is for the tiles, and for the tf32 kernels without bulk copies: name one with \
                 --kernel (--list)",
            ),
            (
                self.table.is_some() && !is_for_auto,
                "--table is for --kernel auto: leave it out, or take auto",
            ),
            (
                self.out.is_some() && choice.is_several(),
                "--out stores one result: name one kernel with --kernel",
            ),
        ];
        match mistakes.into_iter().find(|(is_made, _)| *is_made) {
            Some((_, message)) => Err(Error::usage(message)),
            None => Ok(()),
        }
    }

    /// Where C is stored, if anywhere. The old C may be there, but neither A nor B.
    ///
    /// # Errors
    ///
    /// [`Error::Output`].
    pub fn output(&self) -> Result<Option<Output>, Error> {
        let Some(path) = &self.out else { return Ok(None) };
        let output = Output::for_matrix(path)?;
        for (option, input) in [("--a", &self.a), ("--b", &self.b)] {
            if input.as_deref().is_some_and(|input| output.replaces(input)) {
                let reason = format!("{option} reads the same file, which would be lost");
                return Err(output.refused(reason));
            }
        }
        Ok(Some(output))
    }

    /// Where the matrices come from.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the options do not say.
    pub fn source(&self) -> Result<Source, Error> {
        Ok(match self {
            Self { a: Some(_), product, .. } if product.epilogue().reads() => {
                let message = "--scale, --bias and --residual are random: leave out --a and --b";
                return Err(Error::usage(message));
            }
            Self { a: Some(_), c: None, product, .. } if product.beta != 0.0 => {
                let message = "with --beta other than 0, the old C is needed: add --c C.npy";
                return Err(Error::usage(message));
            }
            Self { a: Some(a), b: Some(b), c, .. } => {
                let ProductArgs { trans_a, trans_b, batch, .. } = self.product;
                let arrangement = Arrangement { trans_a, trans_b, batch };
                Source::Files { a: a.clone(), b: b.clone(), c: c.clone(), arrangement }
            }
            Self { size: Some(size), .. } => self.random(*size, *size, *size),
            Self { m: Some(m), n: Some(n), k: Some(k), .. } => self.random(*m, *n, *k),
            _ => {
                let message =
                    "the sizes are missing: add --size N, or --m, --n and --k, or --a and --b";
                return Err(Error::usage(message));
            }
        })
    }

    fn random(&self, m: usize, n: usize, k: usize) -> Source {
        let shape = Shape { m, n, k, trans_a: false, trans_b: false, batch: 1 };
        let shape = self.product.shape(shape);
        Source::Random { shape, seed: self.seed.unwrap_or(42) }
    }
}
