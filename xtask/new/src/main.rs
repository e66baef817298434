//! `cargo xtask`: makes projects itself, and leaves other chores to the package `xtask`.
//!
//! So a new user need not wait until the other chores are compiled.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use host_system::stdio::say;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let result = match arguments.as_slice() {
        [chore, path] if chore == "new" && !path.to_string_lossy().starts_with('-') => {
            xtask_new::run(Path::new(path)).map(|()| ExitCode::SUCCESS)
        }
        others => other_chore(others),
    };
    result.unwrap_or_else(|message| {
        say(format_args!("error: {message}"));
        ExitCode::from(2)
    })
}

/// Whether the program of the other chores is beside this one.
fn are_compiled(this: &Path) -> bool {
    this.with_file_name(format!("xtask{}", env::consts::EXE_SUFFIX)).is_file()
}

fn other_chore(arguments: &[OsString]) -> Result<ExitCode, String> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.arg("run");
    // Nobody waits a minute for nothing to happen.
    match env::current_exe().is_ok_and(|this| are_compiled(&this)) {
        true => _ = cargo.arg("--quiet"),
        false => say("compiling the chores, which takes about a minute once"),
    }
    cargo.args(["--package", "xtask", "--"]).args(arguments);
    let status = cargo.status().map_err(|error| format!("cargo could not be run: {error}"))?;
    // A signal ends both.
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_chores_are_looked_for_beside_this_program() {
        let folder = tempfile::tempdir().unwrap();
        let this = folder.path().join("xtask-new");
        assert!(!are_compiled(&this));
        std::fs::write(folder.path().join(format!("xtask{}", env::consts::EXE_SUFFIX)), "")
            .unwrap();
        assert!(are_compiled(&this));
    }
}
