//! Running cargo for the device build.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{CudaArch, CudaBuilderError, convergence};

/// `--emit=kind=path`.
pub(crate) fn emit(kind: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(format!("--emit={kind}="));
    argument.push(path);
    argument
}

/// The cargo that runs us, or the one on the PATH, free of what an outer cargo set for its
/// own build.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let of_outer_build = ["CARGO_PROFILE_", "CARGO_BUILD_", "CARGO_FEATURE_", "CARGO_CFG_"]
            .iter()
            .any(|prefix| text.starts_with(prefix));
        let wrapper_or_flags = [
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTFLAGS",
            "CARGO_INCREMENTAL",
            "CARGO_MAKEFLAGS",
            "TARGET",
        ]
        .contains(&&*text);
        if of_outer_build || wrapper_or_flags {
            cargo.env_remove(&name);
        }
    }
    cargo
}

/// A linker that links nothing.
///
/// rustc writes the PTX before it links. The target's own linker, `llvm-bitcode-linker`, is not
/// part of the stable toolchain. This one writes an empty file: without an output cargo would run
/// rustc each time.
pub(crate) fn noop_linker(device_dir: &Path) -> Result<PathBuf, CudaBuilderError> {
    let (name, script) = if cfg!(windows) {
        (
            "no-linker.bat",
            "@echo off\r\n:next\r\nif \"%~1\"==\"\" exit /b 0\r\n\
             if \"%~1\"==\"-o\" type nul >\"%~2\"\r\nshift\r\ngoto next\r\n",
        )
    } else {
        (
            "no-linker.sh",
            "#!/bin/sh\nwhile [ $# != 0 ]; do\n    if [ \"$1\" = -o ]; then : >\"$2\"; fi\n    shift\ndone\n",
        )
    };
    let path = device_dir.join(name);
    write_once(&path, script)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .map_err(CudaBuilderError::io(&path))?;
    }
    Ok(path)
}

/// A file of arguments for rustc, which are too many for a command line that people may see. cargo
/// knows the file by its name alone, so that other arguments need another name.
pub(crate) fn argument_file(
    device_dir: &Path,
    arch: CudaArch,
) -> Result<PathBuf, CudaBuilderError> {
    let flags: Vec<String> = convergence::rustflags().chain(arch.cfg_flags()).collect();
    let text = flags.join("\n");
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let path = device_dir.join(format!("rustc-{:016x}.args", hasher.finish()));
    write_once(&path, &text)?;
    Ok(path)
}

/// Writes a file unless it is there: everything that was built with it is stale when it changes.
fn write_once(path: &Path, text: &str) -> Result<(), CudaBuilderError> {
    if fs::read_to_string(path).ok().as_deref() != Some(text) {
        fs::write(path, text).map_err(CudaBuilderError::io(path))?;
    }
    Ok(())
}

/// The target folder of the workspace that the crate in `crate_dir` belongs to.
///
/// # Errors
/// If cargo cannot be run, or finds no workspace.
pub fn target_dir(crate_dir: &Path) -> Result<PathBuf, CudaBuilderError> {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => std::path::absolute(&dir).map_err(CudaBuilderError::io(Path::new(&dir))),
        None => Ok(workspace_dir(crate_dir)?.join("target")),
    }
}

/// The folder of the workspace that the crate in `crate_dir` belongs to.
pub(crate) fn workspace_dir(crate_dir: &Path) -> Result<PathBuf, CudaBuilderError> {
    let mut locate = cargo();
    locate.current_dir(crate_dir);
    locate.args(["locate-project", "--workspace", "--message-format=plain"]);
    let output = locate
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| CudaBuilderError::Run { program: "cargo".into(), source })?;
    let manifest = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end());
    match manifest.parent() {
        Some(root) if output.status.success() => Ok(root.to_owned()),
        _ => Err(CudaBuilderError::NoCrate(crate_dir.to_owned())),
    }
}
