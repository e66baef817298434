//! What a build reads of the crate, and adds to its attributes.

use std::fs;
use std::path::{Path, PathBuf};

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
}
