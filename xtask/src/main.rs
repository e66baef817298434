//! The project's chores; see `cargo xtask --help`.

mod archives;
mod book;
mod build_ptx;
mod diff;
mod files;
mod ladders;
mod markdown;
mod pictures;
mod ptxas;
mod readme;
mod sass;
mod stdio;
mod tune;

use std::env;
use std::path::PathBuf;
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
    Book(book::BookArgs),
    BuildPtx(build_ptx::Args),
    Diff(diff::Args),
    Links(book::LinksArgs),
    /// Make a project with a kernel of its own, at PATH
    ///
    /// It has a crate of kernels, a host that launches them, a test and a README. It lies outside
    /// of this workspace and finds the crates by their path. `cargo test` there needs no GPU.
    New {
        /// The folder to make; its name is the project's
        path: PathBuf,
    },
    Readme(readme::Args),
    Sass(sass::Args),
    Tune(tune::Args),
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| stdio::exit(&error));
    let result = match cli.chore {
        Chore::Book(args) => book::preprocess(&args),
        Chore::BuildPtx(args) => build_ptx::run(&args),
        Chore::Diff(args) => diff::run(&args),
        Chore::Links(args) => book::check_links(&args),
        Chore::New { path } => xtask_new::run(&path).map(|()| ExitCode::SUCCESS),
        Chore::Readme(args) => readme::run(&args),
        Chore::Sass(args) => sass::run(&args),
        Chore::Tune(args) => tune::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(message) => {
            stdio::say(format_args!("error: {message}"));
            ExitCode::from(2)
        }
    }
}

/// The root of the workspace, read at run time: checkouts may share a target folder.
fn root() -> PathBuf {
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR");
    manifest_dir.map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from).join("..")
}
