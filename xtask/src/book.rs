//! `cargo xtask book` and `cargo xtask links`: the book under `docs`, and what links point to.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

use crate::markdown::{anchors, html_targets, links, replace_links};
use crate::{files, stdio};

/// mdBook's preprocessor: `mdbook build docs` runs it
///
/// On GitHub the pages link to sources and to notes of runs, which are no part of the book. There
/// the text of such a link stays, and the link goes.
#[derive(clap::Args)]
pub struct BookArgs {
    /// What mdBook asks first: `supports RENDERER`
    supports: Vec<String>,
}

/// Rewrites the book that mdBook hands over.
pub fn preprocess(args: &BookArgs) -> Result<ExitCode, String> {
    if !args.supports.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| error.to_string())?;
    let mut input: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    rewrite(&mut input[1]);
    stdio::print(&input[1].to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Rewrites every chapter below a value of mdBook's.
fn rewrite(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(rewrite),
        Value::Object(fields) => {
            let path = fields.get("source_path").and_then(Value::as_str).map(PathBuf::from);
            if let (Some(path), Some(Value::String(content))) = (path, fields.get_mut("content")) {
                *content = rewrite_links(content, &path);
            }
            fields.values_mut().for_each(rewrite);
        }
        _ => {}
    }
}

/// The page at `path`, without links that leave the book, and with mdBook's name for the first page
/// of a folder.
fn rewrite_links(page: &str, path: &Path) -> String {
    replace_links(page, |text, link| {
        let (file, anchor) = split(&link.target);
        if is_external(&link.target) || file.is_empty() {
            return None;
        }
        if resolve(path, file).is_none() {
            return Some(text.into());
        }
        let folder = file.strip_suffix("README.md")?;
        let anchor = anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
        Some(format!("[{text}]({folder}index.md{anchor})"))
    })
}

/// Check that links between files of the checkout point to something, or those of a built book
///
/// Links to the network are not followed.
#[derive(clap::Args)]
pub struct LinksArgs {
    /// The folder of a built book; the checkout's Markdown if it is left out
    html: Option<PathBuf>,
}

/// Checks the links.
pub fn check_links(args: &LinksArgs) -> Result<ExitCode, String> {
    let (root, extension) = match &args.html {
        Some(folder) => (folder.clone(), "html"),
        None => (crate::root(), "md"),
    };
    let root = root.canonicalize().map_err(|error| format!("`{}`: {error}", root.display()))?;
    let mut pages = HashMap::new();
    for path in files::with_extension(&root, extension)? {
        let text = files::read(&path)?;
        let path = path.strip_prefix(&root).map_or_else(|_| path.clone(), Path::to_path_buf);
        pages.insert(path, Page::of(&text, extension == "html"));
    }
    let mut broken: Vec<String> = Vec::new();
    for (path, page) in &pages {
        for target in page.targets.iter().filter(|target| !is_external(target)) {
            if let Some(reason) = wrong(&root, &pages, path, target) {
                broken.push(format!("{}: `{target}` {reason}", path.display()));
            }
        }
    }
    broken.extend(left_out(&pages));
    broken.sort();
    broken.iter().for_each(stdio::say);
    let count: usize = pages.values().map(|page| page.targets.len()).sum();
    stdio::say(format_args!("{count} links in {} files, {} broken", pages.len(), broken.len()));
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a page has, and what it points to.
struct Page {
    anchors: HashSet<String>,
    targets: Vec<String>,
}

impl Page {
    fn of(text: &str, is_html: bool) -> Self {
        if is_html {
            let ids = text.split("id=\"").skip(1).filter_map(|rest| rest.split('"').next());
            return Self {
                anchors: ids.map(String::from).collect(),
                targets: html_targets(text).map(String::from).collect(),
            };
        }
        Self {
            anchors: anchors(text).into_iter().collect(),
            targets: links(text).into_iter().map(|link| link.target).collect(),
        }
    }
}

/// Why a link on the page at `from` is broken, if it is.
fn wrong(
    root: &Path,
    pages: &HashMap<PathBuf, Page>,
    from: &Path,
    target: &str,
) -> Option<&'static str> {
    let (file, anchor) = split(target);
    let path = if file.is_empty() { Some(from.to_path_buf()) } else { resolve(from, file) };
    let Some(path) = path else { return Some("leaves the folder") };
    if !root.join(&path).exists() {
        return Some("is missing");
    }
    let anchor = anchor.filter(|anchor| !anchor.is_empty())?;
    let page = pages.get(&path)?;
    (!page.anchors.contains(anchor)).then_some("has no such heading")
}

/// The pages of the book's sources that its summary does not name.
fn left_out(pages: &HashMap<PathBuf, Page>) -> Vec<String> {
    let Some(summary) = pages.get(Path::new("docs/SUMMARY.md")) else { return Vec::new() };
    let named: HashSet<PathBuf> =
        summary.targets.iter().map(|target| Path::new("docs").join(target)).collect();
    let missing = pages.keys().filter(|path| {
        path.starts_with("docs") && !path.ends_with("SUMMARY.md") && !named.contains(*path)
    });
    missing.map(|path| format!("docs/SUMMARY.md does not name {}", path.display())).collect()
}

fn split(target: &str) -> (&str, Option<&str>) {
    match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    }
}

fn is_external(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:") || target.starts_with("data:")
}

/// Where a relative link on the page at `from` leads, or `None` if it leaves the folder that paths
/// are relative to.
fn resolve(from: &Path, target: &str) -> Option<PathBuf> {
    let mut path = from.parent()?.to_path_buf();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => path.pop().then_some(())?,
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn links_out_of_the_book_become_text() {
        let page = "[a](../README.md) [b](README.md#c) [d](e.md) [f](https://g.h) [i](../../j.rs)";
        assert_eq!(
            rewrite_links(page, Path::new("ladder/x.md")),
            "[a](../index.md) [b](index.md#c) [d](e.md) [f](https://g.h) i"
        );
    }

    #[test]
    fn every_chapter_is_rewritten() {
        let chapter = |path: &str, text: &str, below: Value| serde_json::json!({"Chapter": {"source_path": path, "content": text, "sub_items": below}});
        let below = chapter("a/b.md", "[b](../../x)", Value::Array(Vec::new()));
        let mut book =
            serde_json::json!({"items": [chapter("a.md", "[a](../x)", vec![below].into())]});
        rewrite(&mut book);
        let first = &book["items"][0]["Chapter"];
        assert_eq!(first["content"], "a");
        assert_eq!(first["sub_items"][0]["Chapter"]["content"], "b");
    }

    #[test]
    fn broken_links_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let page = "# A b\n\n[1](#a-b) [2](#c) [3](x.md) [4](y.md) [5](https://z)\n";
        for (name, text) in [("p.md", page), ("x.md", "")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let pages = HashMap::from([
            (PathBuf::from("p.md"), Page::of(page, false)),
            (PathBuf::from("x.md"), Page::of("", false)),
        ]);
        let broken = |target| wrong(folder.path(), &pages, Path::new("p.md"), target);
        assert_eq!(pages[Path::new("p.md")].targets.len(), 5);
        assert_eq!(broken("#a-b"), None);
        assert_eq!(broken("#c"), Some("has no such heading"));
        assert_eq!(broken("x.md"), None);
        assert_eq!(broken("x.md#a"), Some("has no such heading"));
        assert_eq!(broken("y.md"), Some("is missing"));
        assert_eq!(broken("../x.md"), Some("leaves the folder"));
    }

    #[test]
    fn a_page_that_the_summary_forgets_is_found() {
        let page = |text| Page::of(text, false);
        let pages = HashMap::from([
            (PathBuf::from("docs/SUMMARY.md"), page("[a](a.md)")),
            (PathBuf::from("docs/a.md"), page("")),
            (PathBuf::from("docs/b.md"), page("")),
        ]);
        assert_eq!(left_out(&pages), ["docs/SUMMARY.md does not name docs/b.md"]);
    }
}
