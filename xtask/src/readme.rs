//! `cargo xtask readme`: the generated parts of the README and the book, and their pictures.

mod rung;
mod tables;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::ladders::ladders;
use crate::{files, pictures, stdio};

/// Fill in the generated parts of README.md and docs
///
/// They stand between `<!-- generated: WHAT -->` and `<!-- end -->`. WHAT is one of
///
///   FILE                  the table of what `rungs --save` or `rungs bench --save` wrote
///   ladders FILES         saved ladders side by side
///   ratios, then lines    `FILE LABEL`: means of the ratios to cuBLAS of `rungs bench`, by file
///   summary, then lines   `FILE LABEL`: mean and lowest ratio of each file; # is their number
///   ladder FOLDER         the rungs, with links to their pages in FOLDER
///   tensor-cores FOLDER   the rungs of the ladder of tensor cores
///   kernels               all kernels, with what each does
///   function NAME FILE    a function of a program, with its documentation
///   examples LINK         the examples with kernels; LINK leads from the page to their folder
///   nav LANGUAGE RUNG     links to the pages before and after, to the source and the translation
///   idea RUNG             the documentation at the head of the rung's source
///   picture RUNG          the pictures in it
///   code RUNG             its loops along K
///   times LANGUAGE RUNG FILE   the rung between its neighbours, in a saved ladder
///   profile LANGUAGE RUNG FILE what `ncu --csv` said of it
///
/// The pictures are in docs/pictures.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Write nothing; fail if a part is not current
    #[arg(long)]
    check: bool,
}

const BEGIN: &str = "<!-- generated: ";
const END: &str = "<!-- end -->";

/// Where the pages of the rungs are, and those of the ladder of tensor cores.
const PAGES: [&str; 2] = ["docs/ladder", "docs/zh/ladder"];
const TENSOR_CORE_PAGES: &str = "docs/tensor-cores";

/// Fills in, or checks.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let root = crate::root();
    for rung in ladders().concat() {
        let pages: &[&str] = if rung.is_translated { &PAGES } else { &[TENSOR_CORE_PAGES] };
        for pages in pages {
            let page = format!("{pages}/{}.md", rung.name);
            if !root.join(&page).exists() {
                return Err(format!("`{page}` is missing: each rung has a page"));
            }
        }
    }
    let mut files = Vec::new();
    let mut pages = files::with_extension(&root.join("docs"), "md")?;
    pages.push(root.join("README.md"));
    for path in pages {
        let filled = fill(&files::read(&path)?, |what| generate(&root, what));
        files.push((
            path.clone(),
            filled.map_err(|error| format!("`{}`: {error}", path.display()))?,
        ));
    }
    let pictures = pictures::all(&root)?.into_iter();
    files.extend(pictures.map(|(path, picture)| (root.join(path), picture)));
    let mut stale = false;
    for (path, text) in files {
        if fs::read_to_string(&path).is_ok_and(|before| before == text) {
            continue;
        }
        if args.check {
            let file = path.strip_prefix(&root).unwrap_or(&path).display();
            stdio::say(format_args!(
                "{file} is not current: run `cargo xtask readme` and commit the result"
            ));
            stale = true;
        } else {
            write(&path, &text)?;
        }
    }
    Ok(if stale { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, text));
    written.map_err(|error| format!("`{}`: {error}", path.display()))
}

/// Replaces what stands between each pair of markers by what the first one names.
fn fill(text: &str, generate: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((head, tail)) = rest.split_once(BEGIN) {
        let (what, tail) = tail.split_once("-->").ok_or("a marker `<!-- generated:` has no end")?;
        let (_, tail) =
            tail.split_once(END).ok_or("a marker `<!-- generated:` has no `<!-- end -->`")?;
        filled += &format!("{head}{BEGIN}{what}-->\n{}{END}", generate(what)?);
        rest = tail;
    }
    Ok(filled + rest)
}

/// A function of a source, from its documentation to the brace that ends it.
fn function(name: &str, source: &str) -> Result<String, String> {
    let lines: Vec<&str> = source.lines().collect();
    let begin = format!("fn {name}(");
    let missing = || format!("there is no `{begin}`");
    let at = lines.iter().position(|line| line.starts_with(&begin)).ok_or_else(missing)?;
    let above = lines[..at].iter().rev().take_while(|line| line.starts_with("///")).count();
    let len = lines[at..].iter().position(|&line| line == "}").ok_or_else(missing)?;
    Ok(format!("\n```rust,ignore\n{}\n```\n\n", lines[at - above..=at + len].join("\n")))
}

/// What a marker names.
fn generate(root: &Path, what: &str) -> Result<String, String> {
    let file = |path: &str| files::read(&root.join(path));
    let words: Vec<&str> = what.split_whitespace().collect();
    match words[..] {
        ["ladder", folder] => Ok(tables::ladder(folder, &ladders()[0])),
        ["tensor-cores", folder] => Ok(tables::ladder(folder, &ladders()[1])),
        ["kernels"] => Ok(tables::kernels()),
        ["ratios", ..] => {
            let mut table = tables::ratios_head();
            for line in what.lines().skip(1).filter(|line| !line.trim().is_empty()) {
                let (path, label) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
                let name = path.trim_start_matches("runs/").trim_end_matches(".jsonl");
                table += &tables::ratios(&file(path)?, name, label)?;
            }
            Ok(table)
        }
        ["ladders", ref runs @ ..] => {
            let runs = runs.iter().map(|path| file(path)).collect::<Result<Vec<_>, _>>()?;
            tables::ladders(&runs)
        }
        ["summary", ..] => {
            let mut table = tables::SUMMARY_HEAD.to_owned();
            for line in what.lines().skip(1).filter(|line| !line.trim().is_empty()) {
                let (path, label) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
                table += &tables::summary(&file(path)?, path, label)?;
            }
            Ok(table)
        }
        ["function", name, path] => function(name, &file(path)?),
        ["examples", link] => examples(root, link),
        ["nav", language, name] => rung::nav(language, name),
        ["idea", name] => Ok(rung::idea(rung::rung(name)?.header.into_iter())),
        ["picture", name] => Ok(rung::picture(rung::rung(name)?.header.into_iter())),
        ["code", name] => rung::code(rung::rung(name)?.source),
        ["times", language, name, run] => rung::times(language, name, &file(run)?),
        ["profile", language, name, csv] => rung::profile(language, name, &file(csv)?),
        [path] => tables::run(&file(path)?),
        _ => Err(format!("`{}` names nothing; see `cargo xtask readme --help`", what.trim())),
    }
}

/// The examples with kernels of their own, each with its crate's description.
fn examples(root: &Path, link: &str) -> Result<String, String> {
    let mut lines = String::from("| example | what it does |\n|---|---|\n");
    for manifest in files::with_extension(&root.join("examples"), "toml")? {
        let folder = manifest.parent().unwrap_or(root);
        if !folder.join("kernels/src/lib.rs").exists() {
            continue;
        }
        let text = files::read(&manifest)?;
        let description = text.lines().find_map(|line| line.strip_prefix("description = "));
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        lines += &format!(
            "| [`{name}`]({link}/{name}/kernels/src/lib.rs) | {} |\n",
            description.unwrap_or_default().trim_matches('"')
        );
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_markers_changes() {
        let text = "a\n<!-- generated: x.jsonl -->\nold\n<!-- end -->\nb\n";
        let filled = fill(text, |what| Ok(format!("new {what}\n"))).unwrap();
        assert_eq!(filled, "a\n<!-- generated: x.jsonl -->\nnew x.jsonl \n<!-- end -->\nb\n");
        let again = fill(&filled, |what| Ok(format!("new {what}\n"))).unwrap();
        assert_eq!(again, filled);
        assert!(fill("<!-- generated: x -->", |_| Ok(String::new())).is_err());
    }
}
