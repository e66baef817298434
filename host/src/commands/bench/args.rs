//! The options of `bench`.

use std::path::PathBuf;

use host::compare::Options;
use host::{Compute, Gemm, Shape, select, shape};

use crate::commands::l2::L2Arg;
use crate::commands::product::{ProductArgs, seed};
use crate::commands::several;
use crate::error::Error;
use crate::report::RowFormat;

/// The widest margin: more would say nothing new, and take memory.
const MAX_MARGIN: usize = 1024;

/// Columns left and right of matrices.
fn margins(text: &str) -> Result<[usize; 2], String> {
    let margin = |word: &str| word.trim().parse().ok().filter(|columns| *columns <= MAX_MARGIN);
    let margins =
        text.split_once(',').and_then(|(left, right)| Some([margin(left)?, margin(right)?]));
    margins.ok_or_else(|| {
        format!("it is two numbers of columns, LEFT,RIGHT, each from 0 to {MAX_MARGIN}")
    })
}

#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// Kernels by their names, separated by commas; all is the ladder and auto [default: auto].
    ///
    /// cublas, measured against itself, shows the noise.
    #[arg(long, visible_alias = "kernel", value_name = "NAMES", value_delimiter = ',')]
    kernels: Vec<String>,

    /// Sizes, separated by commas: N for a square, or MxNxK
    /// [default: 256,512,1024,2048,4096,8192, unless there is --shapes or a --random option].
    ///
    /// COUNT* in front makes a strided batch; :NT, :TN or :TT behind transposes A or B.
    #[arg(
        long,
        visible_alias = "size",
        value_name = "SIZES",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub sizes: Vec<Shape>,

    /// A file of more sizes: one on each line, as for --sizes or as M N K; # begins a comment.
    #[arg(long, value_name = "FILE")]
    pub shapes: Option<PathBuf>,

    /// COUNT more sizes: M, N and K log-uniform from 1 to 10,000, from --seed.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    random: Option<u32>,

    /// COUNT more sizes, of language-model layers, from --seed.
    ///
    /// M is log-uniform from 1 to 8192. N and K are multiples of 64, log-uniform from 512 to
    /// 32,768. B lies transposed.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    random_layers: Option<u32>,

    #[command(flatten)]
    product: ProductArgs,

    /// Cut A, B and C out of wider matrices, with LEFT and RIGHT more columns on their sides.
    #[arg(long, value_name = "LEFT,RIGHT", default_value = "0,0", hide_default_value = true,
          allow_hyphen_values = true, value_parser = margins)]
    margins: [usize; 2],

    /// What the L2 cache holds when a product starts [default: cold].
    #[arg(long, value_enum)]
    l2: Option<L2Arg>,

    /// Compare COUNT GPUs with one, instead of one with cuBLAS: A and C by rows, B by columns.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub gpus: Option<u32>,

    /// Timed samples of each, kernel and cuBLAS.
    #[arg(long, visible_alias = "repeat", value_name = "COUNT", default_value_t = 20, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(6..=1000))]
    samples: u32,

    /// Least milliseconds of a sample, which has at most 400 launches [default: 3].
    #[arg(long, value_name = "MS", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sample_ms: Option<u32>,

    /// The seed of the random matrices and sizes.
    #[arg(long, default_value_t = 42, allow_negative_numbers = true, value_parser = seed)]
    seed: u64,

    /// The table that auto chooses by, from `rungs tune` [default: the built-in one].
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,

    /// Time the first COUNT choices of auto for each new product, and keep the fastest.
    ///
    /// Later calls take what was kept, also without this option: see `rungs explain auto`.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(2..=100))]
    pub measure: Option<u32>,

    /// A table, JSON with one row per line, or CSV.
    #[arg(long, value_enum, default_value_t)]
    pub format: RowFormat,

    /// Append the rows to this file of JSON lines, after a line that says where and how.
    ///
    /// The file must be new, or come from --save.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
}

impl BenchArgs {
    /// How products are computed.
    pub fn compute(&self) -> Compute {
        self.product.compute()
    }

    /// The names of the kernels, `auto` if none is named.
    pub fn kernels(&self) -> Vec<&str> {
        match &self.kernels[..] {
            [] => vec![select::NAME],
            names => names.iter().map(|name| name.trim()).collect(),
        }
    }

    /// The shapes of `--random` and `--random-layers`.
    pub fn random(&self) -> Vec<Shape> {
        let count = |option: Option<u32>| option.unwrap_or(0) as usize;
        let mut shapes = shape::random(count(self.random), self.seed);
        shapes.extend(shape::random_layers(count(self.random_layers), self.seed));
        shapes
    }

    /// The product of a shape.
    ///
    /// # Errors
    ///
    /// Those of [`ProductArgs::grouped`].
    pub fn gemm(&self, shape: Shape) -> Result<Gemm, Error> {
        let shape = self.product.shape(shape);
        let one = Shape { batch: 1, ..shape }.gemm();
        let more: usize = self.margins.iter().sum();
        let wide = one.leading_dimensions(one.lda + more, one.ldb + more, one.ldc + more);
        let all = if shape.batch == 1 { wide } else { wide.stacked(shape.batch) };
        Ok(self.product.grouped(all)?)
    }

    /// Refuses options that do not go with `--gpus`.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`].
    pub fn for_several(&self, is_named: bool) -> Result<(), Error> {
        several::refuse(
            "bench",
            &[
                ("a kernel other than auto", is_named),
                ("--batch", self.product.batch != 1),
                ("--groups", !self.product.groups().is_empty()),
                ("--margins", self.margins != [0, 0]),
                ("--l2", self.l2.is_some()),
                ("--sample-ms", self.sample_ms.is_some()),
                ("--table", self.table.is_some()),
                ("--measure", self.measure.is_some()),
                ("--format csv", matches!(self.format, RowFormat::Csv)),
            ],
        )
    }

    /// How kernels are measured.
    pub fn options(&self) -> Options {
        let sample_ms = f64::from(self.sample_ms.unwrap_or(3));
        Options {
            l2: self.l2.unwrap_or_default().policy(),
            samples: self.samples,
            sample_ms,
            seed: self.seed,
            left: self.margins[0],
            groups: self.product.groups(),
        }
    }
}
