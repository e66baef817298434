//! Running cargo for a build, so that what went wrong is said before all that follows from it.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::diagnose::LLVM_ERROR;

/// How cargo ended.
pub(crate) struct Ended {
    pub success: bool,
    /// What it said from its first error on, which nobody has seen yet.
    pub errors: String,
}

/// Runs cargo. What it says in front of the first error goes to stderr as it comes, and all of it
/// if it succeeds.
pub(crate) fn run(cargo: &mut Command) -> io::Result<Ended> {
    // Colours would stand in front of `error`.
    cargo.env("CARGO_TERM_COLOR", "never");
    let mut child = cargo.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut errors = String::new();
    let said = child.stderr.take().map(BufReader::new);
    // Where it cannot be read any more, cargo has ended, or does.
    for line in said.into_iter().flat_map(|said| said.split(b'\n')).map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned() + "\n";
        let is_error = line.starts_with("error") || line.contains(LLVM_ERROR);
        if errors.is_empty() && !is_error {
            // Nobody need listen.
            let _ = io::stderr().write_all(line.as_bytes());
        } else {
            errors += &line;
        }
    }
    let success = child.wait()?.success();
    if success {
        let _ = io::stderr().write_all(errors.as_bytes());
    }
    Ok(Ended { success, errors })
}

/// What went wrong, in front of what cargo and rustc say of it.
pub(crate) fn say(cause: &str, errors: &str) {
    // Nobody need listen.
    let _ = io::stderr().write_all(format!("error: {cause}\n\n{errors}").as_bytes());
}
