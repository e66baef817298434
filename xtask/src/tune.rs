//! `cargo xtask tune`: the table of `auto` for this machine's GPU.

use std::env;
use std::process::{Command, ExitCode};

/// Measure the kernels on this machine's GPU, for `auto`
///
/// Runs `rungs tune` and writes the table to crates/cuda_gemm/tuned, for the next build.
#[derive(clap::Args)]
pub struct Args {
    /// More options for `rungs tune`
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Tunes.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let root = crate::root();
    // cargo says which one it is.
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "-p", "host", "--", "tune", "--device", "gpu", "--out"])
        .arg(root.join("crates/cuda_gemm/tuned"))
        .args(&args.options)
        .current_dir(&root)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
