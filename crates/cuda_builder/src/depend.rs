//! What a build depends on, and what it adds to the crate's attributes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::rust_src::in_build_script;

/// The unstable features that kernels need.
const FEATURES: [&str; 2] = ["abi_ptx", "asm_experimental_arch"];

/// Flags that give the crate in `crate_dir` the attributes it needs and does not have itself: rustc
/// takes no feature twice.
pub(crate) fn crate_attributes(crate_dir: &Path) -> Vec<String> {
    let root = fs::read_to_string(root_of(crate_dir)).unwrap_or_default();
    let code = root.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: Vec<&str> = code.collect();
    let is_missing = |name: &&str| !code.iter().any(|line| line.contains(name));
    let missing: Vec<&str> = FEATURES.into_iter().filter(is_missing).collect();
    let features =
        (!missing.is_empty()).then(|| format!("-Zcrate-attr=feature({})", missing.join(",")));
    // Rust-CUDA's kernels have `std` on the host.
    let no_std = is_missing(&"no_std").then(|| "-Zcrate-attr=no_std".to_owned());
    features.into_iter().chain(no_std).collect()
}

/// The first source of the library in `crate_dir`.
fn root_of(crate_dir: &Path) -> PathBuf {
    let path = manifest_entry(crate_dir, "[lib]", "path");
    crate_dir.join(path.as_deref().unwrap_or("src/lib.rs"))
}

/// The name of the package in `crate_dir`.
pub(crate) fn package_name(crate_dir: &Path) -> String {
    manifest_entry(crate_dir, "[package]", "name").unwrap_or_else(|| "kernels".into())
}

/// A string in the manifest of `crate_dir`.
fn manifest_entry(crate_dir: &Path, table: &str, key: &str) -> Option<String> {
    let manifest = fs::read_to_string(crate_dir.join("Cargo.toml")).unwrap_or_default();
    let header = |line: &str| line.split('#').next().unwrap_or_default().trim() == table;
    let lines = manifest.lines().map(str::trim).skip_while(|line| !header(line)).skip(1);
    lines.take_while(|line| !line.starts_with('[')).find_map(|line| {
        let (found, value) = line.split_once('=')?;
        let value = value.trim();
        let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''))?;
        let text = value[1..].split(quote).next()?;
        (found.trim() == key).then(|| text.to_owned())
    })
}

/// Tells the cargo that runs the build script when to run it again: when a source that cargo has
/// listed in `output` changes, or the manifest beside it.
pub(crate) fn rerun_if_changed(crate_dir: &Path, output: &Path) {
    if !in_build_script() {
        return;
    }
    for path in sources(crate_dir, output) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

fn sources(crate_dir: &Path, output: &Path) -> BTreeSet<PathBuf> {
    let crate_dir = crate_dir.canonicalize().unwrap_or_else(|_| crate_dir.to_owned());
    let files = fs::read_dir(output).into_iter().flatten().flatten().map(|entry| entry.path());
    let lists = files.filter(|path| path.extension().is_some_and(|extension| extension == "d"));
    let mut sources = BTreeSet::new();
    for list in lists.filter_map(|path| fs::read_to_string(path).ok()) {
        let listed: Vec<PathBuf> = list.lines().flat_map(listed).collect();
        let is_own =
            |path: &PathBuf| path.canonicalize().is_ok_and(|path| path.starts_with(&crate_dir));
        if listed.iter().any(is_own) {
            sources.extend(listed);
        }
    }
    let manifests: Vec<PathBuf> = sources.iter().filter_map(|path| manifest_of(path)).collect();
    sources.extend(manifests);
    sources.insert(crate_dir.join("Cargo.toml"));
    sources
}

/// The files that a line of Makefile syntax says something depends on.
fn listed(line: &str) -> Vec<PathBuf> {
    let Some((_, files)) = line.split_once(": ") else { return Vec::new() };
    // A space in a name has a backslash in front.
    let files = files.replace("\\ ", "\0");
    files.split_whitespace().map(|file| PathBuf::from(file.replace('\0', " "))).collect()
}

/// The manifest of the crate that a source belongs to.
fn manifest_of(source: &Path) -> Option<PathBuf> {
    source.ancestors().skip(1).map(|folder| folder.join("Cargo.toml")).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_given_once() {
        let folder = tempfile::tempdir().unwrap();
        let with = |root: &str, manifest: &str, name: &str| {
            fs::create_dir_all(folder.path().join("src")).unwrap();
            fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
            fs::write(folder.path().join(name), root).unwrap();
            crate_attributes(folder.path())
        };
        let both = "-Zcrate-attr=feature(abi_ptx,asm_experimental_arch)";
        assert_eq!(with("#![no_std]", "[package]", "src/lib.rs"), [both]);
        let none = ["-Zcrate-attr=feature(asm_experimental_arch)", "-Zcrate-attr=no_std"];
        assert_eq!(with("//! A no_std.\n#![feature(abi_ptx)]", "[package]", "src/lib.rs"), none);
        let other = "[lib]\nname = \"k\"\npath = \"main.rs\"\n[dependencies]";
        let none: [&str; 0] = [];
        let root = "#![cfg_attr(target_os = \"cuda\", no_std)]\n#![feature(abi_ptx, asm_experimental_arch)]";
        assert_eq!(with(root, other, "main.rs"), none);
    }

    #[test]
    fn the_sources_are_those_that_cargo_lists() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for file in ["my kernels/src/lib.rs", "other/src/lib.rs", "my kernels/Cargo.toml"] {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "").unwrap();
        }
        let list = |name: &str, files: &[&str]| {
            let files = files.iter().map(|file| root.join(file).display().to_string());
            let files: Vec<String> = files.map(|file| file.replace(' ', "\\ ")).collect();
            fs::write(root.join(name), format!("/out.ptx: {}\n", files.join(" "))).unwrap();
        };
        list("a.d", &["my kernels/src/lib.rs", "other/src/lib.rs"]);
        list("b.d", &["unrelated.rs"]);
        let expected = ["my kernels/Cargo.toml", "my kernels/src/lib.rs", "other/src/lib.rs"];
        let expected: BTreeSet<PathBuf> = expected.iter().map(|file| root.join(file)).collect();
        assert_eq!(sources(&root.join("my kernels"), &root), expected);
    }
}
