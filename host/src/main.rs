//! The command line: `host --kernel NAME --size N` and its relatives.
//!
//! Results go to stdout, progress and warnings to stderr. The exit status is 0 if
//! every result is right, 1 if one is wrong, and 2 if there is none because of what was
//! asked for, or because of the device.

mod cli;

use std::process::ExitCode;

use clap::Parser;

use cli::args::Args;
use cli::run::{self, Outcome};

fn main() -> ExitCode {
    let args = Args::parse();
    match run::run(&args) {
        Ok(Outcome::Right) => ExitCode::SUCCESS,
        Ok(Outcome::Wrong) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
