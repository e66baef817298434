//! The name that a crate has for `cuda_std`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{env, fs};

use proc_macro2::{Group, Ident, TokenStream, TokenTree};

/// Replaces `::cuda_std` in a macro's output by the crate's name for it.
pub fn renamed(tokens: TokenStream) -> TokenStream {
    // One rustc compiles one crate, but rust-analyzer expands the macros of many in one process.
    static NAMES: Mutex<BTreeMap<PathBuf, Option<String>>> = Mutex::new(BTreeMap::new());
    let Some(folder) = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) else { return tokens };
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.entry(folder).or_insert_with_key(|folder| name(folder)) {
        Some(name) => replace(tokens, name),
        None => tokens,
    }
}

fn replace(tokens: TokenStream, name: &str) -> TokenStream {
    let mut colons = 0;
    let place = |token: TokenTree| {
        let is_path = colons >= 2;
        colons = match &token {
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons + 1,
            _ => 0,
        };
        match token {
            TokenTree::Ident(ident) if is_path && ident == "cuda_std" => {
                TokenTree::Ident(Ident::new(name, ident.span()))
            }
            TokenTree::Group(group) => {
                let mut replaced = Group::new(group.delimiter(), replace(group.stream(), name));
                replaced.set_span(group.span());
                TokenTree::Group(replaced)
            }
            other => other,
        }
    };
    tokens.into_iter().map(place).collect()
}

/// The name, if the package in `folder` depends on `cuda_std` under another one.
fn name(folder: &Path) -> Option<String> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    let (keys, mut names) = dependencies(&manifest);
    if names.is_empty() {
        // The workspace may rename `cuda_std`.
        let above = folder.ancestors().map(|folder| folder.join("Cargo.toml"));
        let workspaces = above.filter_map(|path| fs::read_to_string(path).ok());
        let is_used = |name: &String| keys.contains(name);
        names = workspaces.flat_map(|text| dependencies(&text).1).filter(is_used).collect();
    }
    let is_plain = keys.iter().any(|key| key == "cuda_std");
    names.into_iter().next().filter(|_| !is_plain).map(|name| name.replace('-', "_"))
}

/// The names of dependencies in a manifest's tables, and those that are other names of `cuda_std`.
fn dependencies(manifest: &str) -> (Vec<String>, Vec<String>) {
    const PACKAGE: &str = "package=\"cuda_std\"";
    let (mut keys, mut renamed) = (Vec::new(), Vec::new());
    let mut table = String::new();
    for line in manifest.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let line = line.replace([' ', '\t'], "").replace('\'', "\"");
        if let Some(header) = line.strip_prefix('[') {
            table = header.trim_end_matches(']').to_owned();
            if let Some((_, key)) = table.rsplit_once("dependencies.") {
                keys.push(key.to_owned());
            }
            continue;
        }
        let Some((key, _)) = line.split_once(['=', '.']) else { continue };
        let key = match table.rsplit_once("dependencies.") {
            Some((_, key)) => key,
            None if table.ends_with("dependencies") => key,
            None => continue,
        };
        keys.push(key.to_owned());
        if line.contains(PACKAGE) {
            renamed.push(key.to_owned());
        }
    }
    (keys, renamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_that_of_the_manifest() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("kernels");
        fs::create_dir(&inner).unwrap();
        let with = |root: &str, own: &str| {
            fs::write(folder.path().join("Cargo.toml"), root).unwrap();
            fs::write(inner.join("Cargo.toml"), own).unwrap();
            name(&inner)
        };
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(with("", "[dependencies]\ncuda_std = \"1\""), None);
        let inline = "[dependencies]\nmy-gpu = { version = \"1\", package = 'cuda_std' } # it\n";
        assert_eq!(with("", inline), named("my_gpu"));
        let table = "[target.\"cfg(a)\".dependencies.gpu]\nversion = \"1\"\npackage = \"cuda_std\"";
        assert_eq!(with("", table), named("gpu"));
        let root = "[workspace.dependencies]\ngpu = { path = \"a\", package = \"cuda_std\" }";
        assert_eq!(with(root, "[dependencies]\ngpu.workspace = true"), named("gpu"));
        assert_eq!(with(root, "[dependencies]\ncuda_std = \"1\""), None);
        assert_eq!(with("", "[dependencies]\nx = \"1\"\n[package]\npackage = \"cuda_std\""), None);
    }

    #[test]
    fn paths_alone_are_replaced() {
        let text = "a ( :: cuda_std :: shared , cuda_std , x :: cuda_std )";
        let tokens = replace(text.parse().unwrap(), "gpu").to_string();
        let expected: TokenStream = "a ( :: gpu :: shared , cuda_std , x :: gpu )".parse().unwrap();
        assert_eq!(tokens, expected.to_string());
    }
}
