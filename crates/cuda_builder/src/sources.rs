//! Knowing whether committed PTX still matches the sources it came from.
//!
//! The record is a text file in the format of `sha256sum`: one line per crate or file, its digest
//! and its path from the workspace's root. The PTX is listed beside its sources, so that PTX that
//! was edited by hand is as stale as PTX whose sources changed.
//!
//! # What the digest of a crate sees
//!
//! The digest covers what the compiler sees of a crate: the tokens of its items, and the settings
//! in its `Cargo.toml`. These change no digest:
//! - comments, documentation and white space;
//! - items under `#[cfg(test)]`, and in a `no_std` crate those under
//!   `#[cfg(not(target_arch = "nvptx64"))]`, which the build for the GPU leaves out;
//! - the file and the module in which an item stands, and the order of items.
//!
//! A path counts by the item to which it leads, and a `use` by the names that its module uses. If a
//! crate has several items of one name, the digest of the right one counts. So a function that
//! moves next to another constant of that name is noticed.
//!
//! These change a digest, although they may change no code:
//! - the order of tokens, a trailing comma, a visibility, an attribute such as `#[allow]`;
//! - an item that moves to a module with other traits or another crate's `*` in scope, or whose
//!   macros may declare names that the item uses;
//! - in a crate on which others depend: a public item that moves, if another one has its name;
//! - an item with `line!()` and its like, by any change of its file;
//! - an item that uses a macro with `line!()`, or a function with `#[track_caller]`, by any change
//!   of its file.
//!
//! Included files count. Their names are strings of any kind, and `concat!` of strings and of
//! `env!("CARGO_MANIFEST_DIR")`. If a macro includes what its user names, all strings of both count
//! that name a file, except a module.
//!
//! No digest sees these:
//! - the order in which the optimiser gets functions;
//! - a derive that reads documentation;
//! - a kernel that reads its own file (`include_str!`), or the file of a module through a macro;
//! - an included file whose name the build makes, as with `env!("OUT_DIR")`;
//! - the line of a panic, which no kernel has that [`strict`](crate::CudaBuilder::strict) accepts;
//! - `line!()` that a procedural macro makes;
//! - the value of `env!` or `option_env!`;
//! - an included file whose name `concat!` makes of other tokens than strings, or a macro of a name
//!   that it was given;
//! - `line!()`, `include_str!` and their like under another name (`use .. as ..`), and a function
//!   with `#[track_caller]` that an operator calls or that has another name.
//!
//! Parts of the workspace's `Cargo.toml` and `Cargo.lock` count: the versions of the packages that
//! the crates reach, their lines in `[workspace.dependencies]`, and the settings for all packages.
//! So a new dependency of the host makes no PTX stale.
//!
//! # Families
//!
//! A crate of kernels may have families, a feature of its `Cargo.toml` each, which are built by
//! themselves. Its line in the record names the feature, as `kernels-gpu --features half`, and its
//! digest leaves out what stands under another feature. So an edit rebuilds its family only. The
//! PTX of a family is committed as an [archive](ptx_archive) for each architecture, such as
//! `half.sm_80.ptx.xz`.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

pub use ptx_archive::Archive;

pub use self::family::{ARCHITECTURES, Family, Stale};
use self::items::{Crate, Files};
use self::scope::Names;
use self::workspace::{Packages, locked};
use crate::CudaBuilderError;

mod digest;
mod family;
mod items;
mod macros;
mod scope;
mod tokens;
mod workspace;

/// The folder of a crate of kernels that its committed PTX lies in.
pub const FOLDER: &str = "ptx";

/// The record's name in that folder.
pub const RECORD: &str = "SOURCES.sha256";

/// The digests of crates and files, by their paths from a common root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceDigests(Vec<(String, String)>);

impl SourceDigests {
    /// Digests `paths` below `root`. A folder stands for the crate in it, with one of its features
    /// if [`with_feature`] made the path.
    ///
    /// # Errors
    /// If a crate or file cannot be read.
    pub fn of(root: &Path, paths: &[&str]) -> Result<Self, CudaBuilderError> {
        let digests = digests(root, paths).into_iter();
        let mut digests: Vec<_> = digests
            .map(|(path, digest)| Ok((path.to_owned(), digest?)))
            .collect::<Result<_, CudaBuilderError>>()?;
        digests.sort();
        Ok(SourceDigests(digests))
    }

    /// These and others, as one record.
    pub fn joined(&self, others: Self) -> Self {
        let mut digests: Vec<_> = self.0.iter().cloned().chain(others.0).collect();
        digests.sort();
        SourceDigests(digests)
    }

    /// Reads a record that [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// If the file cannot be read, or is no such record.
    pub fn read(file: &Path) -> Result<Self, CudaBuilderError> {
        let text = fs::read_to_string(file).map_err(CudaBuilderError::io(file))?;
        let lines = text.lines().map(|line| line.split_once("  "));
        let digests: Option<Vec<_>> =
            lines.map(|line| line.map(|(digest, path)| (path.into(), digest.into()))).collect();
        let damaged = || io::Error::other("it is damaged; type `cargo xtask build-ptx`");
        let digests = digests.filter(|all| !all.is_empty()).ok_or_else(damaged);
        digests.map(SourceDigests).map_err(CudaBuilderError::io(file))
    }

    /// Writes the record to `file`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), CudaBuilderError> {
        let mut text = String::new();
        for (path, digest) in &self.0 {
            let _ = writeln!(text, "{digest}  {path}");
        }
        fs::write(file, text).map_err(CudaBuilderError::io(file))
    }

    /// The files and folders below `root` that the digests are of.
    pub fn files(&self, root: &Path) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = Vec::new();
        for (path, _) in &self.0 {
            let path = root.join(split(path).0);
            match path.is_dir() {
                // cargo takes a file that is not there for one that changed.
                true => {
                    let parts = [MANIFEST, "src", SCRIPT].into_iter().map(|name| path.join(name));
                    files.extend(parts.filter(|part| part.exists()));
                }
                false => files.push(path),
            }
        }
        // A crate with several features stands in several lines.
        files.sort();
        files.dedup();
        files
    }

    /// The crates and files below `root` that are gone or no longer have their digest.
    pub fn changed(&self, root: &Path) -> Vec<&str> {
        let paths: Vec<&str> = self.0.iter().map(|(path, _)| path.as_str()).collect();
        let now = digests(root, &paths);
        let mut changed = Vec::new();
        for ((path, recorded), (_, now)) in self.0.iter().zip(now) {
            if now.ok().as_ref() != Some(recorded) {
                changed.push(path.as_str());
            }
        }
        changed
    }
}

/// The path in a record of a crate with one of its features.
pub fn with_feature(path: &str, feature: &str) -> String {
    format!("{path}{FEATURES}{feature}")
}

const FEATURES: &str = " --features ";

/// The crate and the feature of a path in a record.
fn split(path: &str) -> (&str, Option<&str>) {
    path.split_once(FEATURES).map_or((path, None), |(path, feature)| (path, Some(feature)))
}

const MANIFEST: &str = "Cargo.toml";
const SCRIPT: &str = "build.rs";
const LOCK: &str = "Cargo.lock";

/// The digest of each path.
fn digests<'p>(root: &Path, paths: &[&'p str]) -> Vec<(&'p str, Result<String, CudaBuilderError>)> {
    let mut files = Files::new();
    let packages = paths.iter().filter_map(|path| {
        let (folder, feature) = split(path);
        let folder = root.join(folder);
        folder.is_dir().then(|| (*path, Package::read(&folder, feature, &mut files)))
    });
    let mut crates: HashMap<&str, Result<Package, CudaBuilderError>> = packages.collect();
    let mut names = Names::default();
    crates.values().flatten().for_each(|one| names.add(&one.source));
    let manifests: Vec<String> =
        crates.values().flatten().map(|one| one.manifest.clone()).collect();
    let on_device = crates.values().flatten().filter(|one| one.source.is_for_device);
    let used = locked(root, on_device.map(Package::name));
    let mut digest = |path: &str| match crates.remove(path) {
        Some(package) => package.map(|package| package.digest(&names, &manifests)),
        None => file_digest(&root.join(path), &used),
    };
    paths.iter().map(|path| (*path, digest(path))).collect()
}

/// A crate, with its manifest and the digest of its build script.
struct Package {
    source: Crate,
    manifest: String,
}

impl Package {
    fn read(
        folder: &Path,
        feature: Option<&str>,
        files: &mut Files,
    ) -> Result<Self, CudaBuilderError> {
        let manifest = folder.join(MANIFEST);
        let text = fs::read_to_string(&manifest).map_err(CudaBuilderError::io(&manifest))?;
        let script = fs::read(folder.join(SCRIPT)).ok().map(|bytes| hex(&Sha256::digest(bytes)));
        let manifest = settings(&text) + &script.unwrap_or_default();
        Ok(Package { source: Crate::read(folder, feature, files)?, manifest })
    }

    fn name(&self) -> &str {
        let name = self.manifest.lines().find_map(|line| line.strip_prefix("name = "));
        name.unwrap_or_default().trim_matches('"')
    }

    /// `manifests` are those of all crates that are digested together.
    fn digest(&self, names: &Names, manifests: &[String]) -> String {
        // Wherever its name stands: a dependency can be written in many ways.
        let others = manifests.iter().filter(|manifest| **manifest != self.manifest);
        let is_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let is_dependency = others
            .flat_map(|manifest| manifest.split(|c| !is_of_word(c)))
            .any(|word| word == self.name());
        let items = digest::digest(&self.source, names, is_dependency);
        hex(&Sha256::new_with_prefix(items).chain_update(&self.manifest).finalize())
    }
}

/// A file in TOML without comments and empty lines.
fn settings(text: &str) -> String {
    let mut settings = String::new();
    for line in text.lines() {
        let (mut quote, mut is_escaped) = (None, false);
        let comment = line.find(|c| {
            match quote {
                _ if is_escaped => {}
                Some(open) if c == open => quote = None,
                None if c == '"' || c == '\'' => quote = Some(c),
                _ => {}
            }
            is_escaped = !is_escaped && c == '\\' && quote == Some('"');
            c == '#' && quote.is_none()
        });
        let line = line[..comment.unwrap_or(line.len())].trim();
        if !line.is_empty() {
            settings.extend([line, "\n"]);
        }
    }
    settings
}

/// The digest of a file that is no crate. `used` are the locked packages that the crates need: of
/// the workspace's manifest and lock file the rest does not count.
fn file_digest(file: &Path, used: &Packages) -> Result<String, CudaBuilderError> {
    let bytes = fs::read(file).map_err(CudaBuilderError::io(file))?;
    let name = file.file_name().unwrap_or_default();
    let is_toml = file.extension().is_some_and(|extension| extension == "toml");
    Ok(hex(&match std::str::from_utf8(&bytes) {
        Ok(_) if name == LOCK => Sha256::digest(workspace::entries(used)),
        Ok(text) if name == MANIFEST => Sha256::digest(workspace::manifest(&settings(text), used)),
        Ok(text) if is_toml => Sha256::digest(settings(text)),
        _ => Sha256::digest(&bytes),
    }))
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
