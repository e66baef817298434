//! The program `rungs`: its commands are in [`commands::args`].
//!
//! Results go to stdout, progress and warnings to stderr. The exit status is 0 if every result is
//! right and 1 if one is wrong. It is 2 if there is no result, or none could be written.

mod commands;
mod error;
mod io;
mod report;

use std::process::ExitCode;

use commands::args::{self, Command};
use commands::{Outcome, bench, compare, completions, doctor, explain, list, run, tune};
use error::Error;
use io::{signals, stdio, threads};

fn main() -> ExitCode {
    threads::share_addresses();
    signals::watch();
    let args = args::parse().unwrap_or_else(|error| stdio::exit(error));
    if args.quiet {
        stdio::be_quiet();
    }
    let outcome = match args.command {
        None => run::run(&args.run),
        Some(Command::Run(command)) => run::run(&command.into_args()),
        Some(Command::List { format }) => list::run(format),
        Some(Command::Explain(args)) => explain::run(&args),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::Tune(args)) => tune::run(&args),
        Some(Command::Report(args)) => commands::report::run(&args),
        Some(Command::Compare(args)) => compare::run(&args),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Completions { shell }) => completions::run(shell),
        Some(Command::Man { command }) => completions::man(command.as_deref()),
    };
    match outcome {
        Ok(Outcome::Right) => ExitCode::SUCCESS,
        Ok(Outcome::Wrong) => ExitCode::from(1),
        Err(Error::Usage { command, message }) => stdio::exit(args::mistake(command, &message)),
        Err(error) => {
            stdio::say(format_args!("error: {error}"));
            ExitCode::from(2)
        }
    }
}
