//! The options of `bench`.

use std::path::PathBuf;

use cuda_gemm::Error as GemmError;
use host::compare::Options;
use host::{Gemm, Shape, auto};

use crate::commands::l2::L2Arg;
use crate::commands::product::ProductArgs;
use crate::report::RowFormat;

#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// What to measure: kernels, separated by commas, or all: the ladder and auto
    /// [default: auto].
    ///
    /// cublas, measured against itself, shows what is noise.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    kernels: Vec<String>,

    /// Shapes, separated by commas: N for a square, or MxNxK; with COUNT* in front for a strided
    /// batch, and :NT, :TN or :TT behind if A or B lies transposed
    /// [default: 256,512,1024,2048,4096,8192, unless there is --shapes].
    #[arg(long, value_name = "SIZES", value_delimiter = ',', allow_hyphen_values = true)]
    pub sizes: Vec<Shape>,

    /// More shapes, from a file: M N K or MxNxK on each line, likewise, with # for comments.
    #[arg(long, value_name = "FILE")]
    pub shapes: Option<PathBuf>,

    #[command(flatten)]
    product: ProductArgs,

    /// What the L2 cache holds when a product starts.
    #[arg(long, value_enum, default_value_t)]
    l2: L2Arg,

    /// Samples of each, kernel and cuBLAS.
    #[arg(long, value_name = "COUNT", default_value_t = 20, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(6..=1000))]
    samples: u32,

    /// Milliseconds that a sample lasts at least, unless that takes more than 400 launches.
    #[arg(long, value_name = "MS", default_value_t = 3, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sample_ms: u32,

    /// The seed of the random matrices.
    #[arg(long, default_value_t = 42, allow_negative_numbers = true)]
    seed: u64,

    /// What auto goes by: a table that `host tune` made [default: the one built in].
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,

    /// A table for people, JSON with one object per row and line, or CSV.
    #[arg(long, value_enum, default_value_t)]
    pub format: RowFormat,

    /// Add the rows to this file as they are made, as lines of JSON, after a line that says
    /// where and how. It must be new, or have such lines.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
}

impl BenchArgs {
    /// The names of the kernels, `auto` if none is named.
    pub fn kernels(&self) -> Vec<&str> {
        match &self.kernels[..] {
            [] => vec![auto::NAME],
            names => names.iter().map(|name| name.trim()).collect(),
        }
    }

    /// The product of a shape.
    ///
    /// # Errors
    ///
    /// Those of [`Gemm::validate`].
    pub fn gemm(&self, shape: Shape) -> Result<Gemm, GemmError> {
        let gemm = self.product.apply(self.product.shape(shape).gemm());
        gemm.validate()?;
        Ok(gemm)
    }

    /// How kernels are measured.
    pub fn options(&self) -> Options {
        let sample_ms = f64::from(self.sample_ms);
        Options { l2: self.l2.policy(), samples: self.samples, sample_ms, seed: self.seed }
    }
}
