//! The sources of `core`, which stock toolchains do not carry built for the GPU.
//!
//! They come from the first of these that has them:
//! 1. the active toolchain's `rust-src` component;
//! 2. the target folder, where an earlier fetch left them;
//! 3. on request, Debian's package `rust-src` of the same version, from backports, for a
//!    machine whose rustup cannot download. It is unpacked below the target folder, without
//!    root, with a configuration of its own for apt: the mirror's address and the keys are
//!    those that the machine already uses, and nothing on the system changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::CudaBuilderError;

/// Where the sources of `core` are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RustSrc {
    /// In the toolchain, where cargo finds them by itself.
    Toolchain,
    /// In this folder, the `library` of a Rust source tree.
    Elsewhere(PathBuf),
}

/// The key ring that a Debian machine trusts.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Finds the sources; with `fetch`, fetches them if need be.
///
/// # Errors
/// [`CudaBuilderError::NoRustSrc`] says what to type; [`CudaBuilderError::Fetch`] says what
/// failed.
pub fn locate(target_dir: &Path, fetch: bool) -> Result<RustSrc, CudaBuilderError> {
    let sysroot = PathBuf::from(rustc(&["--print", "sysroot"])?);
    if sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs").is_file() {
        return Ok(RustSrc::Toolchain);
    }
    let version = version()?;
    let folder = target_dir.join("rust-src").join(&version);
    let library = folder.join("library");
    if library.join("core/src/lib.rs").is_file() {
        return Ok(RustSrc::Elsewhere(library));
    }
    if !fetch {
        let fetch = debian_mirror().is_some();
        return Err(CudaBuilderError::NoRustSrc { version, fetch });
    }
    eprintln!("fetching Debian's rust-src {version} into the target folder");
    self::fetch(&version, &folder).map_err(|reason| CudaBuilderError::Fetch { version, reason })?;
    Ok(RustSrc::Elsewhere(library))
}

/// The version of the active rustc, such as `1.95.0`.
fn version() -> Result<String, CudaBuilderError> {
    let verbose = rustc(&["-vV"])?;
    let release = verbose.lines().find_map(|line| line.strip_prefix("release: "));
    Ok(release.unwrap_or("unknown").to_owned())
}

fn rustc(args: &[&str]) -> Result<String, CudaBuilderError> {
    let run_error = |source| CudaBuilderError::Run { program: "rustc".into(), source };
    let output = Command::new("rustc").args(args).output().map_err(run_error)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The address of the Debian archive that this machine's apt uses, if it is a Debian with
/// the archive's keys.
fn debian_mirror() -> Option<String> {
    if !Path::new(KEYRING).is_file() {
        return None;
    }
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    files.extend(parts.map(|entry| entry.path()));
    files.sort();
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).find_map(|text| mirror_in(&text))
}

/// The first address of a Debian archive in the text of an apt source file, of either
/// format. The security archive is another one, and has no backports.
fn mirror_in(sources: &str) -> Option<String> {
    sources
        .lines()
        .filter(|line| line.starts_with("URIs:") || line.starts_with("deb "))
        .flat_map(str::split_whitespace)
        .find(|word| word.contains("://") && word.trim_end_matches('/').ends_with("/debian"))
        .map(str::to_owned)
}

/// Fetches the package and unpacks its `library` into `folder`.
fn fetch(version: &str, folder: &Path) -> Result<(), String> {
    let mirror = debian_mirror().ok_or("this machine's apt knows no Debian archive")?;
    let work = folder.with_extension("partial");
    let create = |dir: &Path| {
        fs::create_dir_all(dir).map_err(|error| format!("`{}`: {error}", dir.display()))
    };
    create(&work.join("lists/partial"))?;
    create(&work.join("cache/archives/partial"))?;
    let list = work.join("backports.list");
    fs::write(&list, format!("deb [signed-by={KEYRING}] {mirror} trixie-backports main\n"))
        .map_err(|error| format!("`{}`: {error}", list.display()))?;

    let apt = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        for (key, value) in [
            ("Dir::Etc::sourcelist", list.as_path()),
            ("Dir::Etc::sourceparts", Path::new("-")),
            ("Dir::State::Lists", &work.join("lists")),
            ("Dir::Cache", &work.join("cache")),
        ] {
            command.arg("-o").arg(format!("{key}={}", value.display()));
        }
        command.args(["-o", "APT::Sandbox::User="]).args(args).current_dir(&work);
        output_of(command)
    };
    apt("apt-get", &["-qq", "update"])?;
    let versions = apt("apt-cache", &["madison", "rust-src"])?;
    let package = versions
        .lines()
        .filter_map(|line| line.split('|').nth(1).map(str::trim))
        .find(|package| package.split(['+', '-']).next() == Some(version))
        .ok_or("the archive has no such version")?;
    apt("apt-get", &["-qq", "download", &format!("rust-src={package}")])?;
    let archive = fs::read_dir(&work)
        .map_err(|error| error.to_string())?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or("apt-get download left no package")?;
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("-x").arg(&archive).arg(work.join("package"));
    output_of(unpack)?;

    create(folder)?;
    let library = work.join(format!("package/usr/src/rustc-{version}/library"));
    fs::rename(&library, folder.join("library"))
        .map_err(|error| format!("`{}`: {error}", library.display()))?;
    // What is left over is scratch; failing to remove it harms nothing.
    let _ = fs::remove_dir_all(&work);
    Ok(())
}

fn output_of(mut command: Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("`{name}` could not be run: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(format!("`{name}` failed: {}", stderr.trim().lines().last().unwrap_or("no message")))
    }
}

#[cfg(test)]
mod tests {
    use super::mirror_in;

    #[test]
    fn mirror_is_read_from_both_formats() {
        let deb822 = "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\n";
        assert_eq!(mirror_in(deb822).as_deref(), Some("http://mirror.example/debian"));
        let one_line = "# deb http://old.example/debian x main\n\
                        deb [arch=amd64] http://mirror.example/debian/ bookworm main\n";
        assert_eq!(mirror_in(one_line).as_deref(), Some("http://mirror.example/debian/"));
    }

    #[test]
    fn other_archives_are_not_taken_for_debians() {
        let sources = "URIs: http://mirror.example/debian-security\n\
                       deb http://mirror.example/ubuntu noble main\n";
        assert_eq!(mirror_in(sources), None);
    }
}
