//! The commands, and the examples at the end of their help.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use host::format::{alternatives, excerpt};
use host::{Compute, Selection, nearest_names};

use super::bench::args::BenchArgs;
use super::compare::CompareArgs;
use super::doctor::args::DoctorArgs;
use super::explain::args::ExplainArgs;
use super::report::ReportArgs;
use super::run::args::{RunArgs, RunCommand};
use super::tune::args::TuneArgs;
use crate::report::format::Format;

/// What `rungs` and `rungs --help` say. Without any argument it goes to stderr, and the exit status
/// is 2, for scripts that lost their options.
const HELP: &str = "{about}

Usage: rungs run [KERNELS] [SIZES] [OPTIONS]
       rungs COMMAND --help

Commands:
{subcommands}{after-help}";

const FIRST: &str = "Examples:
  rungs run tile2d 512                  one kernel, checked and timed
  rungs --kernel all --size 128         the ladder; flags work without `run`

Try first: cargo run -p host -- --kernel tile2d --size 512";

const RUN: &str = "Examples:
  rungs run tile2d 512
  rungs run auto 16x4096x4096 --compute bf16 --device gpu
  rungs run naive 300x200x100 --alpha 2 --beta 0.5
  rungs run tile2d --a A.npy --b B.npy --out C.npy";

const LIST: &str = "Examples:
  rungs list
  rungs list --format json";

const EXPLAIN: &str = "Examples:
  rungs explain tile2d
  rungs explain skinny_m_8x128
  rungs explain auto --compute bf16 --sizes 16x256x4096,10*64x64x256:TN --device soft-sm90
  rungs explain auto --sizes 512,16x4096x4096 --gpu h200";

const BENCH: &str = "Examples:
  rungs bench --sizes 512,4096
  rungs bench --kernels warptile,async_copy --sizes 16x4096x4096 --save runs.jsonl
  rungs bench --compute bf16 --shapes runs/shapes/tensor-cores.txt
  rungs bench --compute bf16 --random-layers 24 --seed 7
  rungs bench --kernels cublas --sizes 512      against itself: what is noise";

const TUNE: &str = "Examples:
  rungs tune
  rungs tune --out table.json --save times.jsonl
  rungs tune --compute bf16 --sizes 16x4096x4096:NT    for this product alone
  rungs tune --validate 100 --seed 7    how good auto is on products it was not tuned for";

const REPORT: &str = "Examples:
  rungs report                                  report.html, of the runs of the repository
  rungs report --out report.html --svg pictures runs.jsonl other/";

const COMPARE: &str = "Examples:
  rungs compare before.jsonl after.jsonl
  rungs compare --threshold 2 --format json before.jsonl after.jsonl";

const DOCTOR: &str = "Examples:
  rungs doctor
  rungs doctor --format json
  rungs doctor --require rustc,rust-src";

const COMPLETIONS: &str = "Examples:
  rungs completions bash > ~/.local/share/bash-completion/completions/rungs
  rungs completions zsh > ~/.zfunc/_rungs
  rungs completions fish > ~/.config/fish/completions/rungs.fish";

const MAN: &str = "Examples:
  rungs man | man -l -
  rungs man bench > rungs-bench.1";

/// Multiplies matrices with GEMM kernels written in Rust, checks the result and times it.
#[derive(Debug, Parser)]
#[command(name = "rungs", version, subcommand_negates_reqs = true,
          arg_required_else_help = true, help_template = HELP, after_help = FIRST)]
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
    /// Multiplies, checks and times.
    ///
    /// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N. The exit status
    /// is 0 if every result is right, 1 if one is wrong or --check finds something, 2 for an error.
    #[command(after_help = RUN)]
    Run(Box<RunCommand>),

    /// Lists the kernels.
    #[command(after_help = LIST)]
    List {
        /// A table, or JSON with one kernel per line.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },

    /// Explains a kernel, or what auto chooses.
    ///
    /// Of a kernel: its idea, its geometry, and for a rung the arithmetic that follows. Of auto:
    /// the kernel for each product, splits, copies and runners-up. Without a name: the rungs.
    #[command(after_help = EXPLAIN)]
    Explain(ExplainArgs),

    /// Measures kernels next to cuBLAS on a GPU.
    ///
    /// Kernel and cuBLAS take turns on the same matrices in one process. Device events around
    /// batches of launches give the times. A row has the ratio with its interval, shares of the
    /// measured peaks, errors against the product in f64, clocks, power and temperature. A wrong or
    /// unstable result gets no time, and the exit status is 1.
    #[command(after_help = BENCH)]
    Bench(BenchArgs),

    /// Measures this device, for auto to choose by.
    ///
    /// Each kernel is checked, and timed with random products. A table of costs follows from the
    /// times. With --sizes or --shapes only these products are measured: the predicted fastest
    /// takes turns with the runners-up, and auto's file of products keeps the fastest. --validate
    /// judges auto on random products. The exit status is 1 if a kernel is wrong.
    #[command(after_help = TUNE)]
    Tune(TuneArgs),

    /// Draws saved runs on one HTML page.
    ///
    /// A summary of the newest ratios comes first, then runs with pictures, then a table of all
    /// results. The page needs no network. --svg stores the pictures alone.
    #[command(after_help = REPORT)]
    Report(ReportArgs),

    /// Compares two saved runs.
    ///
    /// Ratios to cuBLAS are compared if both runs have them, because clocks float; otherwise times.
    /// Results of one kernel and shape are pooled. Processes differ more than samples of one
    /// process, so save two or three runs of each. The exit status is 0 if nothing is slower,
    /// 2 for an error, and 1 if something is slower, lost its right result, or has too few samples.
    #[command(arg_required_else_help = true, after_help = COMPARE)]
    Compare(CompareArgs),

    /// Says what this machine has, and what works.
    ///
    /// The driver is asked in a process of its own: if it crashes, that is a finding. The exit
    /// status is 0 if the software device works and everything that --require names, else 1.
    #[command(after_help = DOCTOR)]
    Doctor(DoctorArgs),

    /// Prints completions for a shell.
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
    },

    /// Prints the man page of the program or of a command.
    #[command(after_help = MAN)]
    Man {
        /// A command, as in `bench`.
        command: Option<String>,
    },
}

/// Parses the command line. Only global options may stand before a command.
///
/// # Errors
///
/// What clap says.
pub fn parse() -> Result<Args, clap::Error> {
    let command = Args::command();
    let mut matches =
        command.clone().try_get_matches().map_err(|error| in_one_line(error, &command))?;
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

/// The most names that a message lists all.
const FEW: usize = 6;

/// A misspelt name as one line with the nearest three, or all if there are few; every other error as
/// clap has it.
fn in_one_line(error: clap::Error, command: &clap::Command) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) if !text.is_empty() => Some(text.as_str()),
        _ => None,
    };
    let message = match error.kind() {
        ErrorKind::InvalidSubcommand => text(ContextKind::InvalidSubcommand).map(|word| {
            let known: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
            // The name of a kernel where a command should be.
            match Selection::parse(word) {
                Ok(selection) => {
                    let how = format!("`rungs run {word}{}` runs it", compute_of(selection));
                    format!("`{word}` is a kernel: {how}, and `rungs explain {word}` explains it")
                }
                Err(_) => misspelt("no command", word, &known),
            }
        }),
        ErrorKind::InvalidValue => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(known)) => text(ContextKind::InvalidValue).map(|value| {
                let option = text(ContextKind::InvalidArg).unwrap_or_default();
                let option = option.split(' ').next().unwrap_or_default();
                let known: Vec<_> = known.iter().map(String::as_str).collect();
                misspelt(&format!("{option} cannot be"), value, &known)
            }),
            _ => None,
        },
        ErrorKind::UnknownArgument => {
            let option = text(ContextKind::InvalidArg).filter(|option| option.starts_with("--"));
            option.map(|option| {
                // The command is the first argument, if there is one.
                let first = std::env::args_os().nth(1);
                let is_given =
                    |of: &&clap::Command| first.as_deref() == Some(of.get_name().as_ref());
                let command = command.get_subcommands().find(is_given).unwrap_or(command);
                let known =
                    command.get_arguments().filter_map(clap::Arg::get_long_and_visible_aliases);
                let known: Vec<_> = known.flatten().map(|long| format!("--{long}")).collect();
                let known: Vec<_> = known.iter().map(String::as_str).collect();
                misspelt("no option", option, &known)
            })
        }
        _ => None,
    };
    match message {
        Some(message) => clap::Error::raw(error.kind(), message + "\n"),
        None => error,
    }
}

fn misspelt(what: &str, name: &str, known: &[&str]) -> String {
    let (which, names) = match known.len() {
        0..=FEW => ("there are", known.to_vec()),
        _ => ("the nearest are", nearest_names(name, known)),
    };
    format!("{what} `{}`; {which} {}", excerpt(name), alternatives(&names))
}

/// The option that a kernel needs to run at all.
fn compute_of(selection: Selection) -> String {
    let is_for = |compute: &Compute| selection.computing(*compute).is_ok();
    match Compute::ALL.into_iter().find(is_for) {
        None | Some(Compute::F32) => String::new(),
        Some(compute) => format!(" --compute {}", compute.name()),
    }
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
        let lines = help.lines().filter_map(|line| line.strip_prefix("  rungs "));
        lines.map(|line| {
            let words = line.split("  ").next().unwrap_or_default().split(' ');
            std::iter::once("rungs")
                .chain(words.take_while(|word| !matches!(*word, ">" | "|")))
                .collect()
        })
    }

    /// Examples that need a GPU or files are parsed only.
    #[test]
    fn every_help_has_examples_that_are_understood() {
        let mut root = command();
        let mut helps = vec![("rungs".to_owned(), root.render_help().to_string())];
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
