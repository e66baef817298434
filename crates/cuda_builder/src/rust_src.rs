//! The sources of `core`, which stock toolchains do not carry built for the GPU.
//!
//! They are the toolchain's component `rust-src`. Where rustup does not install it by itself,
//! because automatic installs are off or no `rust-toolchain.toml` names it, it is asked to.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::CudaBuilderError;

/// The variable that forbids every build to install `rust-src` if it is `0`.
///
/// It is for users of somebody else's build script. `CARGO_NET_OFFLINE=true` has the same effect.
pub const INSTALL: &str = "CUDA_BUILDER_INSTALL_RUST_SRC";

/// The folder of the library's sources, in the toolchain that builds the crate in `crate_dir`.
///
/// Missing sources are installed if `install` and the environment allow it.
///
/// # Errors
/// [`CudaBuilderError::NoRustSrc`] says what to type.
pub(crate) fn ensure(crate_dir: &Path, install: bool) -> Result<PathBuf, CudaBuilderError> {
    let allowed = install
        && env::var_os(INSTALL).is_none_or(|value| value != "0")
        && env::var_os("CARGO_NET_OFFLINE").is_none_or(|value| value != "true");
    Toolchain { crate_dir, rustc: Path::new("rustc"), rustup: Path::new("rustup") }.ensure(allowed)
}

/// The programs of a toolchain, and the folder to run them in: that decides which toolchain it is.
struct Toolchain<'a> {
    crate_dir: &'a Path,
    rustc: &'a Path,
    rustup: &'a Path,
}

impl Toolchain<'_> {
    fn ensure(&self, install: bool) -> Result<PathBuf, CudaBuilderError> {
        let sysroot = PathBuf::from(self.rustc(&["--print", "sysroot"])?);
        let library = sysroot.join("lib/rustlib/src/rust/library");
        if has_sources(&sysroot) {
            return Ok(library);
        }
        let version = self.version()?;
        // rustup keeps its toolchains in a folder of that name, each under its own name.
        let in_rustup = sysroot.parent().is_some_and(|parent| parent.ends_with("toolchains"));
        let toolchain = sysroot.file_name().filter(|_| in_rustup);
        let toolchain = toolchain.map(|name| name.to_string_lossy().into_owned());
        let missing = |reason| CudaBuilderError::NoRustSrc {
            version: version.clone(),
            toolchain: toolchain.clone(),
            reason,
        };
        if !install {
            return Err(missing(None));
        }
        // Two builds may come here at once, and rustup does not wait for another one.
        let folder = File::open(&sysroot).ok();
        if let Some(folder) = &folder {
            // Where a folder cannot be locked, the second install fails, and is there all the same.
            let _ = folder.lock();
        }
        if has_sources(&sysroot) {
            return Ok(library);
        }
        say(&format!("installing the component rust-src of Rust {version}, to build kernels with"));
        let reason = self.install(toolchain.as_deref()).err();
        if has_sources(&sysroot) { Ok(library) } else { Err(missing(reason)) }
    }

    fn install(&self, toolchain: Option<&str>) -> Result<(), String> {
        let mut rustup = Command::new(self.rustup);
        rustup.args(["component", "add", "rust-src"]);
        rustup.args(toolchain.map(|name| ["--toolchain", name]).into_iter().flatten());
        let output = rustup.current_dir(self.crate_dir).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("rustup could not be run: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("rustup failed: {}", error_line(&output.stderr)))
    }

    /// The version of rustc, such as `1.95.0`.
    fn version(&self) -> Result<String, CudaBuilderError> {
        let verbose = self.rustc(&["-vV"])?;
        let release = verbose.lines().find_map(|line| line.strip_prefix("release: "));
        Ok(release.unwrap_or("unknown").to_owned())
    }

    fn rustc(&self, args: &[&str]) -> Result<String, CudaBuilderError> {
        let run_error = |source| CudaBuilderError::Run { program: "rustc".into(), source };
        let mut rustc = Command::new(self.rustc);
        let output = rustc.args(args).current_dir(self.crate_dir).output().map_err(run_error)?;
        if !output.status.success() {
            return Err(run_error(io::Error::other(error_line(&output.stderr))));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// Whether a toolchain has the sources, all of them: rustup lists a component when it is complete.
fn has_sources(sysroot: &Path) -> bool {
    let rustlib = sysroot.join("lib/rustlib");
    let is_listed = |list: String| list.lines().any(|component| component == "rust-src");
    rustlib.join("src/rust/library/core/src/lib.rs").is_file()
        && fs::read_to_string(rustlib.join("components")).map_or(true, is_listed)
}

/// What a program of rustup's or rustc's says is wrong.
fn error_line(stderr: &[u8]) -> String {
    let stderr = String::from_utf8_lossy(stderr);
    let error = stderr.lines().find_map(|line| line.trim().strip_prefix("error: "));
    error.unwrap_or_else(|| stderr.trim()).to_owned()
}

/// One line for whoever waits. cargo shows what a build script says to it, and hides its stderr.
fn say(line: &str) {
    if in_build_script() {
        println!("cargo::warning={line}");
    } else {
        // Nobody need listen.
        let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
    }
}

/// Whether this is a build script, whose stdout cargo reads.
pub(crate) fn in_build_script() -> bool {
    ["OUT_DIR", "HOST", "TARGET"].iter().all(|name| env::var_os(name).is_some())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Writes a program, in another process.
    ///
    /// Here, a child of another thread could inherit the open file, which Linux then refuses to
    /// run.
    fn write_program(path: &Path, script: &str) {
        let write = "printf '%s' \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let status = Command::new("sh").args(["-c", write]).arg(path).arg(script).status();
        assert!(status.unwrap().success());
    }

    /// A toolchain without sources, and a rustup that runs `install` in its folder.
    struct Fake(tempfile::TempDir);

    impl Fake {
        fn new(install: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let sysroot = folder.path().join(TOOLCHAIN);
            fs::create_dir_all(sysroot.join("lib/rustlib")).unwrap();
            fs::write(sysroot.join("lib/rustlib/components"), "rustc\n").unwrap();
            // Right in the crate's folder alone: elsewhere it might be another toolchain.
            let rustc =
                format!("[ \"$1\" = -vV ] && echo 'release: 1.95.0' || echo \"$PWD/{TOOLCHAIN}\"");
            let rustup = format!("echo \"$@\" >> rustup.log\ncd {}\n{install}", sysroot.display());
            for (name, script) in [("rustc", rustc), ("rustup", rustup)] {
                write_program(&folder.path().join(name), &format!("#!/bin/sh\n{script}\n"));
            }
            Self(folder)
        }

        fn ensure(&self, install: bool) -> Result<(), CudaBuilderError> {
            let folder = self.0.path();
            let (rustc, rustup) = (&folder.join("rustc"), &folder.join("rustup"));
            Toolchain { crate_dir: folder, rustc, rustup }.ensure(install).map(drop)
        }

        /// What rustup was asked for.
        fn log(&self) -> String {
            fs::read_to_string(self.0.path().join("rustup.log")).unwrap_or_default()
        }
    }

    const TOOLCHAIN: &str = "toolchains/1.95.0-x86_64-unknown-linux-gnu";
    const FILES: &str = "mkdir -p lib/rustlib/src/rust/library/core/src
        touch lib/rustlib/src/rust/library/core/src/lib.rs";
    const WORKS: &str = "mkdir -p lib/rustlib/src/rust/library/core/src
        touch lib/rustlib/src/rust/library/core/src/lib.rs
        echo rust-src >> lib/rustlib/components";

    #[test]
    fn missing_sources_are_installed_once_for_the_toolchain_that_builds() {
        let fake = Fake::new(WORKS);
        fake.ensure(true).unwrap();
        fake.ensure(true).unwrap();
        fake.ensure(false).unwrap();
        let expected = "component add rust-src --toolchain 1.95.0-x86_64-unknown-linux-gnu\n";
        assert_eq!(fake.log(), expected);
    }

    #[test]
    fn nothing_is_installed_where_that_is_forbidden() {
        let fake = Fake::new(WORKS);
        let error = fake.ensure(false).unwrap_err().to_string();
        assert_eq!(fake.log(), "");
        assert!(error.contains("rustup component add rust-src --toolchain 1.95.0"), "{error}");
    }

    #[test]
    fn a_failure_says_why_and_what_to_type() {
        let fake = Fake::new("echo 'info: trying' >&2\necho 'error: no network' >&2\nexit 1");
        let error = fake.ensure(true).unwrap_err().to_string();
        assert!(error.contains("rustup failed: no network"), "{error}");
        assert!(error.contains("rustup component add rust-src --toolchain 1.95.0"), "{error}");
        // It says that it worked, and it did not, or not to the end.
        assert!(Fake::new("exit 0").ensure(true).is_err());
        assert!(Fake::new(FILES).ensure(true).is_err());
    }

    #[test]
    fn a_toolchain_that_is_not_rustups_has_no_name() {
        let fake = Fake::new("exit 1");
        let rustc = "#!/bin/sh\n[ \"$1\" = -vV ] && echo 'release: 1.95.0' || echo /nowhere/usr\n";
        write_program(&fake.0.path().join("rustc"), rustc);
        let error = fake.ensure(true).unwrap_err().to_string();
        assert!(error.contains("`rustup component add rust-src`"), "{error}");
        assert_eq!(fake.log(), "component add rust-src\n");
    }

    #[test]
    fn a_rustc_that_fails_is_an_error_of_its_own() {
        let fake = Fake::new(WORKS);
        let rustc = "#!/bin/sh\necho 'error: no such toolchain' >&2\nexit 1\n";
        write_program(&fake.0.path().join("rustc"), rustc);
        let error = fake.ensure(true).unwrap_err().to_string();
        assert!(error.contains("no such toolchain"), "{error}");
        assert_eq!(fake.log(), "");
    }
}
