//! The project's chores: `cargo xtask build-ptx`.

mod build_ptx;
mod ptxas;

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
}

fn main() -> ExitCode {
    let result = match Cli::parse().chore {
        Chore::BuildPtx(args) => build_ptx::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}
