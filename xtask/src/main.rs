//! The project's chores; see `cargo xtask --help`.

mod build_ptx;
mod diff;
mod ptxas;
mod readme;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's chores.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    BuildPtx(build_ptx::Args),
    Diff(diff::Args),
    Readme(readme::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().chore {
        Chore::BuildPtx(args) => build_ptx::run(&args),
        Chore::Diff(args) => diff::run(&args),
        Chore::Readme(args) => readme::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}
