//! The options.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use host::gemm::MAX_DIMENSION;
use host::kernels::KernelAbi;
use host::{DeviceChoice, Selection, Shape};

use super::bench::args::BenchArgs;
use super::compare::CompareArgs;
use super::report::ReportArgs;
use super::tune::args::TuneArgs;
use crate::io::device::DeviceArg;
use crate::io::input::Source;
use crate::io::stdio;
use crate::report::format::Format;

/// What to begin with, below the help. That is all there is if nothing is asked for; then it goes
/// to stderr, and the exit status is 2, as a script wants that lost its options.
const FIRST: &str = "Try first: cargo run -p host -- --kernel tile2d --size 512";

/// Multiplies matrices with a GEMM kernel written in Rust, checks the result and times it.
///
/// C = alpha * A * B + beta * C in f32, row-major: A is M x K, B is K x N, C is M x N.
/// Exit status: 0 if the result is right, 1 if it is wrong, 2 for an error.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true,
          arg_required_else_help = true, after_help = FIRST)]
pub struct Args {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// The kernel to run: a rung of the ladder or a tile (--list shows them), auto, cublas, or all.
    ///
    /// auto takes the one that is fastest for this product on this device. cublas is NVIDIA's
    /// library, loaded if it is there; it runs on GPUs. all runs the ladder, auto and cublas on
    /// the same matrices, and compares them; what cannot run says why,
    /// and one wrong result makes the exit status 1.
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

    /// The factor of the product.
    #[arg(long, default_value_t = 1.0, allow_hyphen_values = true)]
    pub alpha: f32,

    /// The factor of the old C; 0 does not read it.
    #[arg(long, default_value_t = 0.0, allow_hyphen_values = true)]
    pub beta: f32,

    /// Where to run.
    #[arg(long, value_enum, default_value_t)]
    device: DeviceArg,

    /// The seed of the random matrices [default: 42].
    #[arg(long, conflicts_with = "a", allow_negative_numbers = true)]
    seed: Option<u64>,

    /// Blocks that share each tile of C, each with its part of K (fewer where K has fewer steps);
    /// for the tiles (--list).
    #[arg(long, value_name = "COUNT", default_value_t = 1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub splits: u32,

    /// Copy A and B first, where 128-bit accesses do not reach them; for the tiles.
    #[arg(long)]
    pub packed: bool,

    /// Timed runs [default: 10 on a GPU, 1 on the software device].
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: Option<u32>,

    /// A, a .npy file of float32, in C or Fortran order.
    #[arg(long, value_name = "A.npy", requires = "b")]
    a: Option<PathBuf>,

    /// B, likewise; the sizes come from the files.
    #[arg(long, value_name = "B.npy", requires = "a")]
    b: Option<PathBuf>,

    /// The old C, likewise; needed unless --beta is 0.
    #[arg(long, value_name = "C.npy", requires = "a")]
    c: Option<PathBuf>,

    /// Where to store C if it is right, a .npy file. Nothing but such a file is replaced.
    #[arg(long, value_name = "OUT.npy")]
    pub out: Option<PathBuf>,

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

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Explains a rung: the idea, the geometry, and the arithmetic that follows from it.
    ///
    /// Without a name it lists the rungs. Where there is a GPU, it says what its peak is.
    Explain(ExplainArgs),

    /// Measures kernels side by side with cuBLAS, shape by shape, on a GPU.
    ///
    /// Each row: kernel and cuBLAS on the same matrices in one process, in turn; times from
    /// device events around batches of launches; their ratio with its uncertainty; shares of
    /// the rate of multiply-adds and of copies, measured in the same run; errors against the
    /// product in f64; clocks, power and temperature meanwhile. What is wrong, or differs
    /// between runs, gets no time, and makes the exit status 1.
    Bench(BenchArgs),

    /// Measures the kernels on this device, for auto to choose by.
    ///
    /// Every kernel is checked, and timed with a few grids; then, for a list of shapes, what
    /// these times say is fastest is timed in turn with what comes close. Where there is cuBLAS,
    /// what has an rms error of more than 1.10 times cuBLAS's is passed over. The table is kept as
    /// it is made.
    Tune(TuneArgs),

    /// Makes a page of saved runs: pictures, and all results in a table.
    ///
    /// One HTML file that needs no network: the ladder next to cuBLAS, throughput below the roofs,
    /// the ratio to cuBLAS of every shape, errors, and clocks, power and temperature; --svg stores
    /// the pictures alone. The same runs give the same bytes.
    #[command(after_help = "Try: cargo run -p host -- report --out report.html runs")]
    Report(ReportArgs),

    /// Compares two saved runs, kernel by kernel and shape by shape.
    ///
    /// Where cuBLAS ran in turn with the kernel in both, ratios to it are compared, since clocks
    /// float; else times. Several results of one kernel and shape in a file are taken together:
    /// samples of one process do not show what differs from one to the next, so record two or three
    /// runs of each with --save. Exit status: 0 if nothing is slower, 1 if something is, or has no
    /// right result any more, 2 for an error.
    #[command(after_help = "Try: cargo run -p host -- compare before.jsonl after.jsonl")]
    Compare(CompareArgs),
}

#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// The rung to explain, or auto.
    #[arg(value_name = "RUNG")]
    pub rung: Option<String>,

    /// For auto: products to choose for, separated by commas: N for a square, or MxNxK
    /// [default: 512,4096,16x4096x4096].
    #[arg(long, value_name = "SIZES", value_delimiter = ',', allow_hyphen_values = true)]
    pub sizes: Vec<Shape>,

    /// For auto: where to run [default: auto].
    #[arg(long, value_enum)]
    pub device: Option<DeviceArg>,

    /// For auto: the table to choose by [default: the one built in].
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,

    /// Text for people, or JSON.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

impl Args {
    pub fn device(&self) -> DeviceChoice {
        self.device.choice()
    }

    /// Ends the program with a usage error if the options do not go with the choice.
    pub fn check(&self, choice: Selection) {
        if self.splits > 1 && !matches!(choice, Selection::Rung(_)) {
            let message = "--splits is for one kernel: name a tile with --kernel (--list)";
            usage(ErrorKind::ArgumentConflict, message);
        }
        let is_split =
            matches!(choice, Selection::Rung(descriptor) if descriptor.abi() == KernelAbi::SplitK);
        if self.packed && !is_split {
            let message = "--packed is for one that splits K: name a tile with --kernel (--list)";
            usage(ErrorKind::ArgumentConflict, message);
        }
        if self.table.is_some() && !matches!(choice, Selection::Auto | Selection::All) {
            usage(ErrorKind::ArgumentConflict, "--table is for --kernel auto");
        }
        if choice.is_all() && self.out.is_some() {
            let message = "--out stores one result: name one kernel with --kernel";
            usage(ErrorKind::ArgumentConflict, message);
        }
    }

    /// Where the matrices come from. Ends the program with a usage error if the options
    /// do not say.
    pub fn source(&self) -> Source {
        match self {
            Self { a: Some(a), b: Some(b), c, .. } => {
                if c.is_none() && self.beta != 0.0 {
                    usage(MISSING, "with --beta other than 0, the old C is needed: add --c C.npy");
                }
                Source::Files { a: a.clone(), b: b.clone(), c: c.clone() }
            }
            Self { size: Some(size), .. } => self.random(*size, *size, *size),
            Self { m: Some(m), n: Some(n), k: Some(k), .. } => self.random(*m, *n, *k),
            _ => usage(
                MISSING,
                "the sizes are missing: add --size N, or --m, --n and --k, or --a and --b",
            ),
        }
    }

    fn random(&self, m: usize, n: usize, k: usize) -> Source {
        Source::Random { m, n, k, seed: self.seed.unwrap_or(42) }
    }
}

impl ExplainArgs {
    /// Ends the program with a usage error if there are options for auto, and something else is
    /// asked for.
    pub fn expect_none_for_auto(&self) {
        let options = [
            ("--sizes", !self.sizes.is_empty()),
            ("--device", self.device.is_some()),
            ("--table", self.table.is_some()),
        ];
        if let Some((option, _)) = options.iter().find(|(_, is_given)| *is_given) {
            let mut command = Args::command();
            // So that it says how this one is called, and by what name.
            command.build();
            let explain = command.find_subcommand_mut("explain").expect("a command");
            let message = format!("{option} is for `explain auto`");
            stdio::exit(explain.error(ErrorKind::ArgumentConflict, message))
        }
    }
}

/// A number of rows or columns.
fn size(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size| *size <= MAX_DIMENSION);
    size.ok_or_else(|| format!("a size is a whole number of 0 or more, at most {MAX_DIMENSION}"))
}

const MISSING: ErrorKind = ErrorKind::MissingRequiredArgument;

fn usage(kind: ErrorKind, message: &str) -> ! {
    stdio::exit(Args::command().error(kind, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_consistent() {
        Args::command().debug_assert();
    }
}
