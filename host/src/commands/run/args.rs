//! The options of `run`, which also work without its name.

use std::path::PathBuf;

use clap::ArgAction;
use host::kernels::abi::KernelAbi;
use host::{DeviceChoice, KernelOptions, L2, Selection, Shape, select};

use super::checks::CheckArgs;
use crate::commands::l2::L2Arg;
use crate::commands::product::{ProductArgs, seed, size};
use crate::commands::several;
use crate::error::Error;
use crate::io::device::DeviceArg;
use crate::io::input::{Arrangement, Source};
use crate::io::output::Output;
use crate::report::format::Format;

/// The product of a call that names none.
const DEFAULT: Shape = Shape::square(512);

/// `run`: a kernel and a size in front of the options.
#[derive(Debug, clap::Args)]
pub struct RunCommand {
    /// Kernels, as --kernels takes them.
    #[arg(value_name = "KERNELS", value_delimiter = ',', num_args = 1, action = ArgAction::Set)]
    named: Vec<String>,

    /// Sizes, as --sizes takes them.
    #[arg(value_name = "SIZES", value_delimiter = ',', num_args = 1, action = ArgAction::Set,
          conflicts_with_all = ["m", "n", "k", "a"], value_parser = size_or_shape)]
    sized: Vec<Shape>,

    #[command(flatten)]
    run: RunArgs,
}

impl RunCommand {
    /// The options, with what stands in front of them.
    pub fn into_args(self) -> RunArgs {
        let Self { named, sized, mut run } = self;
        // Sizes may stand alone.
        let sizes: Result<Vec<_>, _> = named.iter().map(|name| size_or_shape(name)).collect();
        match sizes {
            Ok(sizes) if sized.is_empty() => run.sizes.extend(sizes),
            _ => run.kernels.extend(named),
        }
        run.sizes.extend(sized);
        run
    }
}

/// A size of a square, which may be 0, or a [`Shape`].
fn size_or_shape(text: &str) -> Result<Shape, String> {
    match text.contains(['x', 'X', '*', ':']) {
        true => text.parse(),
        false => size(text).map(Shape::square),
    }
}

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Kernels by their names, separated by commas [default: auto].
    ///
    /// auto chooses the fastest kernel for the product on this device. cublas is NVIDIA's library,
    /// if it can be loaded. all compares the ladder, or with --compute the kernels of that
    /// precision, auto, and on a GPU cublas on the same matrices. `rungs list` shows every name.
    #[arg(long, visible_alias = "kernel", value_name = "NAMES", value_delimiter = ',')]
    kernels: Vec<String>,

    /// Sizes of random matrices, separated by commas: N for a square, or MxNxK [default: 512].
    ///
    /// COUNT* in front makes a strided batch; :NT, :TN or :TT behind transposes A or B.
    #[arg(long, visible_alias = "size", value_name = "SIZES", value_delimiter = ',',
          conflicts_with_all = ["m", "n", "k", "a"], value_parser = size_or_shape,
          allow_hyphen_values = true)]
    sizes: Vec<Shape>,

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

    /// Use COUNT devices, which share the product: A and C by rows, B by columns.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub gpus: Option<u32>,

    #[command(flatten)]
    pub checks: CheckArgs,

    /// The seed of the random matrices [default: 42].
    #[arg(long, conflicts_with = "a", allow_negative_numbers = true, value_parser = seed)]
    seed: Option<u64>,

    /// Blocks that share each tile of C, each with its part of K.
    ///
    /// For the tiles, tf32_split and the tf32 kernels without bulk copies the default is 1; for
    /// wgmma_split it is chosen.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub splits: Option<u32>,

    /// Clusters that share the steps along K of all tiles equally (stream-K).
    ///
    /// For wgmma_split; without it the number is chosen.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    clusters: Option<u32>,

    /// Columns of a tile, rounded up to a multiple of 16, or of 64 if B does not lie along K.
    ///
    /// For the kernels of wgmma_split except 64x16 and align1; without it the number is chosen.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    columns: Option<u32>,

    /// Whether to compute C^T = B^T A^T, and store C as its transpose.
    ///
    /// For wgmma_split; without it the faster way is chosen.
    #[arg(long, value_name = "BOOL")]
    transposes_c: Option<bool>,

    /// Blocks that share a multiprocessor.
    ///
    /// For wgmma_split, whose stages fill the rest of shared memory; without it the number is
    /// chosen.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    blocks_per_multiprocessor: Option<u32>,

    /// Copy misaligned A and B first, for the tiles and the tf32 kernels without bulk copies.
    #[arg(long)]
    pub staged: bool,

    /// Timed samples [default: 10 on a GPU, 1 on the software device].
    ///
    /// On a GPU each is a batch of launches without gaps.
    #[arg(long, visible_alias = "repeat", value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub samples: Option<u32>,

    /// The L2 cache of a GPU when a product starts [default: cold].
    #[arg(long, value_enum)]
    l2: Option<L2Arg>,

    /// A, a .npy file of float32 or float16, in C or Fortran order.
    #[arg(long, value_name = "A.npy", requires = "b")]
    a: Option<PathBuf>,

    /// B, such a file; the sizes come from the files.
    #[arg(long, value_name = "B.npy", requires = "a")]
    b: Option<PathBuf>,

    /// The old C, such a file; needed unless --beta is 0.
    #[arg(long, value_name = "C.npy", requires = "a")]
    c: Option<PathBuf>,

    /// Where to store a right C, as a .npy file of float32.
    ///
    /// Only .npy files are replaced: that of --c may be, those of --a and --b are not.
    #[arg(long, value_name = "OUT.npy")]
    out: Option<PathBuf>,

    /// A table, or JSON with one result per line.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,

    /// Append the results to this file of JSON lines, after a line that says where and how.
    ///
    /// The file must be new, or come from --save.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// The table that auto chooses by, from `rungs tune` [default: the built-in one].
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,

    /// Time the first COUNT choices of auto for each new product, and keep the fastest.
    ///
    /// Later calls take what was kept, also without this option: see `rungs explain auto`.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(2..=100))]
    pub measure: Option<u32>,

    /// List the kernels and stop.
    #[arg(long)]
    pub list: bool,
}

impl RunArgs {
    pub fn device(&self) -> DeviceChoice {
        self.device.choice()
    }

    /// Refuses options that do not go with `--gpus`.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`].
    pub fn for_several(&self, choices: &[Selection]) -> Result<(), Error> {
        let named = choices.iter().any(|choice| !matches!(choice, Selection::Auto));
        several::refuse(
            "",
            &[
                ("a kernel other than auto", named),
                ("--batch", self.product.batch != 1),
                ("--groups", !self.product.groups().is_empty()),
                ("--l2", self.l2.is_some()),
                ("--splits", self.splits.is_some()),
                ("--clusters", self.clusters.is_some()),
                ("--columns", self.columns.is_some()),
                ("--transposes-c", self.transposes_c.is_some()),
                ("--staged", self.staged),
                ("--blocks-per-multiprocessor", self.blocks_per_multiprocessor.is_some()),
                ("--table", self.table.is_some()),
                ("--measure", self.measure.is_some()),
            ],
        )
    }

    pub fn l2(&self) -> L2 {
        self.l2.unwrap_or_default().policy()
    }

    pub fn kernel_options(&self) -> KernelOptions {
        KernelOptions {
            splits: self.splits,
            clusters: self.clusters,
            columns: self.columns,
            transposes_c: self.transposes_c,
            blocks_per_multiprocessor: self.blocks_per_multiprocessor,
            staged: self.staged,
            groups: self.product.groups(),
        }
    }

    /// The kernels, `auto` if none is named.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for options that do not go with one, those of [`Selection::parse`] and of
    /// [`Selection::computing`].
    pub fn choices(&self) -> Result<Vec<Selection>, Error> {
        let one = |name: &str| {
            let choice = Selection::parse(name.trim())?.computing(self.product.compute())?;
            self.check(choice)?;
            Ok(choice)
        };
        match &self.kernels[..] {
            [] => Ok(vec![one(select::NAME)?]),
            names => names.iter().map(|name| one(name)).collect(),
        }
    }

    fn check(&self, choice: Selection) -> Result<(), Error> {
        let abi = match choice {
            Selection::Kernel(kernel) => Some(kernel.abi()),
            Selection::All(_) | Selection::Auto | Selection::Cublas => None,
        };
        let is_for_auto = choice.is_all() || matches!(choice, Selection::Auto);
        let narrows = matches!(choice, Selection::Kernel(kernel) if kernel.narrows());
        let shares_steps = abi == Some(KernelAbi::WgmmaClusters);
        let mistakes = [
            (
                self.splits.is_some() && abi.is_none(),
                "--splits is for one kernel: name a tile, one of tf32_split or of tf32 without bulk copies, or one \
                 of wgmma_split, with --kernel (--list)",
            ),
            (
                self.blocks_per_multiprocessor.is_some() && !shares_steps,
                "--blocks-per-multiprocessor is for the kernels that share steps along K: name one of wgmma_split \
                 with --kernel (--list)",
            ),
            (
                self.columns.is_some() && !narrows,
                "--columns is for kernels whose tiles can be narrower: name one, such as wgmma_split_128x256, with \
                 --kernel",
            ),
            (
                self.transposes_c.is_some() && !shares_steps,
                "--transposes-c is for the kernels that share steps along K: name one of wgmma_split with \
                 --kernel (--list)",
            ),
            (
                self.clusters.is_some() && !shares_steps,
                "--clusters is for the kernels that share steps along K: name one of wgmma_split with --kernel \
                 (--list)",
            ),
            (
                self.staged && abi != Some(KernelAbi::SplitK),
                "--staged is for the tiles, and for the tf32 kernels without bulk copies: name one with \
                 --kernel (--list)",
            ),
            (
                self.table.is_some() && !is_for_auto,
                "--table is for --kernel auto: leave it out, or take auto",
            ),
            (
                self.measure.is_some() && !is_for_auto,
                "--measure is for --kernel auto: leave it out, or take auto",
            ),
            (
                self.out.is_some() && self.has_several(choice),
                "--out stores one result: name one kernel and one size",
            ),
        ];
        match mistakes.into_iter().find(|(is_made, _)| *is_made) {
            Some((_, message)) => Err(Error::usage(message)),
            None => Ok(()),
        }
    }

    fn has_several(&self, choice: Selection) -> bool {
        choice.is_several() || self.kernels.len() > 1 || self.sizes.len() > 1
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

    /// Where the matrices of each product come from.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for options that contradict each other.
    pub fn sources(&self) -> Result<Vec<Source>, Error> {
        let source = match self {
            Self { a: Some(_), sizes, .. } if !sizes.is_empty() => {
                let message = "the sizes come from the files of --a and --b: leave out the others";
                return Err(Error::usage(message));
            }
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
                let groups = self.product.groups().ends().len().max(1);
                let arrangement = Arrangement { trans_a, trans_b, batch, groups };
                Source::Files { a: a.clone(), b: b.clone(), c: c.clone(), arrangement }
            }
            Self { m: Some(_), sizes, .. } if !sizes.is_empty() => {
                return Err(Error::usage("--m, --n and --k are a size: leave out the others"));
            }
            Self { m: Some(m), n: Some(n), k: Some(k), .. } => self.random(Shape::new(*m, *n, *k)),
            Self { sizes, .. } if sizes.is_empty() => self.random(DEFAULT),
            Self { sizes, .. } => return Ok(sizes.iter().map(|it| self.random(*it)).collect()),
        };
        Ok(vec![source])
    }

    fn random(&self, shape: Shape) -> Source {
        let shape = self.product.shape(shape);
        Source::Random { shape, seed: self.seed.unwrap_or(42) }
    }
}
