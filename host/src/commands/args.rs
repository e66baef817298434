//! What the program can be asked for: the commands, and for each what its help ends with.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use host::{Compute, Selection};

use super::bench::args::BenchArgs;
use super::compare::CompareArgs;
use super::doctor::args::DoctorArgs;
use super::explain::args::ExplainArgs;
use super::report::ReportArgs;
use super::run::args::RunArgs;
use super::tune::args::TuneArgs;
use crate::report::format::Format;

/// What to begin with, below the help. That is all there is if nothing is asked for; then it goes
/// to stderr, and the exit status is 2, as a script wants that lost its options.
const FIRST: &str = "Examples:
  host --kernel tile2d --size 512       one kernel, checked and timed
  host run --kernel all --size 128      the ladder (host run is the same as the plain flags)
  host --kernel auto --m 16 --n 4096 --k 4096 --device gpu

Try first: cargo run -p host -- --kernel tile2d --size 512";

const RUN: &str = "Examples:
  host run --kernel tile2d --size 512
  host run --kernel naive --m 300 --n 200 --k 100 --alpha 2 --beta 0.5
  host run --kernel tile2d --a A.npy --b B.npy --out C.npy";

const LIST: &str = "Examples:
  host list
  host list --format json";

const EXPLAIN: &str = "Examples:
  host explain tile2d
  host explain skinny_m_8x128
  host explain auto --compute bf16 --sizes 16x256x4096,10*64x64x256:TN --device soft-sm90
  host explain auto --sizes 512,16x4096x4096 --device soft";

const BENCH: &str = "Examples:
  host bench --sizes 512,4096
  host bench --kernels warptile,async_copy --sizes 16x4096x4096 --save runs.jsonl
  host bench --compute bf16 --shapes runs/shapes/tensor-cores.txt
  host bench --kernels cublas --sizes 512      against itself: what is noise";

const TUNE: &str = "Examples:
  host tune
  host tune --out table.json --save times.jsonl
  host tune --compute bf16 --sizes 16x4096x4096:NT --out table.json    for this product alone";

const REPORT: &str = "Examples:
  host report                                  report.html, of the runs of the repository
  host report --out report.html --svg pictures runs.jsonl other/";

const COMPARE: &str = "Examples:
  host compare before.jsonl after.jsonl
  host compare --threshold 2 --format json before.jsonl after.jsonl";

const DOCTOR: &str = "Examples:
  host doctor
  host doctor --format json
  host doctor --require rustc,rust-src";

const COMPLETIONS: &str = "Examples:
  host completions bash > ~/.local/share/bash-completion/completions/host
  host completions zsh > ~/.zfunc/_host
  host completions fish > ~/.config/fish/completions/host.fish";

const MAN: &str = "Examples:
  host man | man -l -
  host man bench > host-bench.1";

/// Multiplies matrices with a GEMM kernel written in Rust, checks the result and times it.
///
/// C = alpha * A * B + beta * C in f32, or as --compute says, row-major: A is M x K, B is K x N, C is M x N.
/// Exit status: 0 if the result is right, 1 if it is wrong, 2 for an error; with --check 1 if something is found, too.
#[derive(Debug, Parser)]
#[command(version, subcommand_negates_reqs = true,
          arg_required_else_help = true, after_help = FIRST)]
pub struct Args {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub run: RunArgs,

    /// Show no progress and no notes, only results, warnings and errors.
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Multiplies, checks and times: the same as the plain flags.
    #[command(arg_required_else_help = true, after_help = RUN)]
    Run(RunArgs),

    /// Lists the kernels: the same as --list.
    #[command(after_help = LIST)]
    List {
        /// A table for people, or JSON: one object per kernel and line.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },

    /// Explains a kernel: the idea, the geometry, and for a rung the arithmetic that follows from it.
    ///
    /// Without a name it lists the rungs of the ladder, and where there is a GPU, a rung's page says what its peak
    /// is. auto is explained by what it chooses: the kernel, its splits and copies, and what else was thought of.
    #[command(after_help = EXPLAIN)]
    Explain(ExplainArgs),

    /// Measures kernels side by side with cuBLAS, shape by shape, on a GPU.
    ///
    /// Each row: kernel and cuBLAS on the same matrices in one process, in turn; times from
    /// device events around batches of launches; their ratio with its uncertainty; shares of
    /// the rate of multiply-adds and of copies, measured in the same run; errors against the
    /// product in f64; clocks, power and temperature meanwhile. What is wrong, or differs
    /// between runs, gets no time, and makes the exit status 1.
    #[command(after_help = BENCH)]
    Bench(BenchArgs),

    /// Measures the kernels, those for tensor cores too, on this device, for auto to choose by.
    ///
    /// Every kernel for f32 is checked, and timed with a few grids; then, for a list of products, on
    /// Hopper on tensor cores too, what costs say is fastest is timed in turn with what comes close.
    /// Where there is cuBLAS, what has an rms error of more than 1.10 times cuBLAS's in f32 is passed
    /// over. The table is kept as it is made. With --sizes or --shapes these products alone are
    /// measured, and added to a table of this device.
    #[command(after_help = TUNE)]
    Tune(TuneArgs),

    /// Makes a page of saved runs: pictures, and all results in a table.
    ///
    /// One HTML file that needs no network: the ladder next to cuBLAS, throughput below the roofs,
    /// the ratio to cuBLAS of every shape, errors, and clocks, power and temperature; --svg stores
    /// the pictures alone. The same runs give the same bytes.
    #[command(after_help = REPORT)]
    Report(ReportArgs),

    /// Compares two saved runs, kernel by kernel and shape by shape.
    ///
    /// Where cuBLAS ran in turn with the kernel in both, ratios to it are compared, since clocks
    /// float; else times. Several results of one kernel and shape in a file are taken together:
    /// samples of one process do not show what differs from one to the next, so record two or three
    /// runs of each with --save. Exit status: 0 if nothing is slower, 1 if something is, has no right
    /// result any more, or too few samples to tell, 2 for an error.
    #[command(arg_required_else_help = true, after_help = COMPARE)]
    Compare(CompareArgs),

    /// Says what this machine has, what works because of it, and what to type for the rest.
    ///
    /// The driver is asked in a process of its own, so that one that crashes is only a finding.
    /// Exit status: 0 if what is needed without a GPU works (the software device, `soft`), and all
    /// that --require names; 1 if not.
    #[command(after_help = DOCTOR)]
    Doctor(DoctorArgs),

    /// Prints what a shell needs to complete the options, to be put where it looks.
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
    },

    /// Prints the man page, or that of a command.
    #[command(after_help = MAN)]
    Man {
        /// A command, as in `bench`.
        command: Option<String>,
    },
}

/// What the program was called with. Before a command there is nothing but what is for all of them.
///
/// # Errors
///
/// What clap says.
pub fn parse() -> Result<Args, clap::Error> {
    let command = Args::command();
    let mut matches = command.clone().try_get_matches().map_err(with_tip)?;
    if let Some(name) = matches.subcommand_name() {
        let is_given = |arg: &&clap::Arg| {
            let source = matches.value_source(arg.get_id().as_str());
            source == Some(ValueSource::CommandLine) && !arg.is_global_set()
        };
        let given = command.get_arguments().find(is_given).and_then(clap::Arg::get_long);
        if let Some(long) = given {
            let message = format!("the subcommand '{name}' cannot be used with '--{long}'");
            return Err(mistake(name, &message));
        }
    }
    Args::from_arg_matches_mut(&mut matches)
}

/// With what to type, where the name of a kernel stands alone.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let word = match error.kind() {
        ErrorKind::InvalidSubcommand => error.get(ContextKind::InvalidSubcommand),
        ErrorKind::UnknownArgument if std::env::args().nth(1).is_some_and(|it| it == "run") => {
            error.get(ContextKind::InvalidArg)
        }
        _ => None,
    };
    if let Some(ContextValue::String(word)) = word
        && let Ok(selection) = Selection::parse(word)
    {
        let is_for = |compute: &Compute| selection.computing(*compute).is_ok();
        let compute = match Compute::ALL.into_iter().find(is_for) {
            None | Some(Compute::F32) => String::new(),
            Some(compute) => format!(" --compute {}", compute.name()),
        };
        let tip = format!(
            "`--kernel {word} --size 512{compute}` runs it, and `explain {word}` explains it"
        );
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// All options, with the names by which help and errors call them.
pub fn command() -> clap::Command {
    let mut command = Args::command();
    command.build();
    command
}

/// What clap says of a mistake that it does not find itself. `place` is the command; empty for the
/// plain flags.
pub fn mistake(place: &str, message: &str) -> clap::Error {
    let mut command = command();
    let of =
        command.find_subcommand_mut(place).map(|of| of.error(ErrorKind::ArgumentConflict, message));
    of.unwrap_or_else(|| command.error(ErrorKind::ArgumentConflict, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_consistent() {
        Args::command().debug_assert();
    }

    /// The words of each example in a help, without what a shell does with it.
    fn examples(help: &str) -> impl Iterator<Item = Vec<&str>> {
        let lines = help.lines().filter_map(|line| line.strip_prefix("  host "));
        lines.map(|line| {
            let words = line.split("  ").next().unwrap_or_default().split(' ');
            std::iter::once("host")
                .chain(words.take_while(|word| !matches!(*word, ">" | "|")))
                .collect()
        })
    }

    /// What needs a GPU, or files, is at least written as the program understands it.
    #[test]
    fn every_help_has_examples_that_are_understood() {
        let mut root = command();
        let mut helps = vec![("host".to_owned(), root.render_help().to_string())];
        for command in root.get_subcommands_mut().filter(|command| command.get_name() != "help") {
            helps.push((command.get_name().to_owned(), command.render_help().to_string()));
        }
        for (name, help) in &helps {
            assert!(examples(help).next().is_some(), "{name}");
            for words in examples(help) {
                Args::try_parse_from(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
            }
        }
    }
}
