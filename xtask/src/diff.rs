//! `cargo xtask diff A B`: what one rung changes against another.

use std::process::ExitCode;

use similar::{ChangeTag, TextDiff};

use crate::ladders::ladders;
use crate::stdio;

/// Show what changes from one rung of the ladder to another
///
/// Header comments are left out: the diff is the lesson. The last line counts the lines
/// that changed outside comments.
#[derive(clap::Args)]
pub struct Args {
    /// A rung of a ladder, such as tile2d
    from: String,

    /// The rung to compare it with, such as vec4
    to: String,
}

/// Prints the diff.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let (from, to) = (source(&args.from)?, source(&args.to)?);
    let diff = TextDiff::from_lines(&from, &to);
    let text = diff.unified_diff().context_radius(3).header(&args.from, &args.to).to_string();
    let changed = changed_lines(&diff);
    let summary =
        format!("{changed} lines change outside comments, from {} to {}", args.from, args.to);
    stdio::print(&format!("{text}\n{summary}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// A rung's source without its header.
fn source(rung: &str) -> Result<String, String> {
    let rungs = ladders().concat();
    let Some(known) = rungs.iter().find(|known| known.name == rung) else {
        let names: Vec<_> = rungs.iter().map(|known| known.name).collect();
        // As much of it as a line holds, and nothing that a terminal obeys.
        let rung: String = rung.escape_debug().take(60).collect();
        return Err(format!("unknown rung `{rung}`; the ladders have {}", names.join(", ")));
    };
    let mut body = String::new();
    let is_header = |line: &&str| line.starts_with("//!") || line.is_empty();
    for line in known.source.lines().skip_while(is_header) {
        body.push_str(line);
        body.push('\n');
    }
    Ok(body)
}

/// The larger of the numbers of lines that went and that came, outside comments.
fn changed_lines(diff: &TextDiff<'_, '_, str>) -> usize {
    let count = |tag| {
        diff.iter_all_changes()
            .filter(|change| change.tag() == tag)
            .filter(|change| {
                let line = change.value().trim();
                !line.is_empty() && !line.starts_with("//")
            })
            .count()
    };
    count(ChangeTag::Insert).max(count(ChangeTag::Delete))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blank_lines_do_not_count() {
        let diff = TextDiff::from_lines("a\nb\n// x\n", "a\nc\nd\n\n// y\n");
        assert_eq!(changed_lines(&diff), 2);
    }

    #[test]
    fn the_source_of_a_rung_is_shown_without_its_header() {
        for rung in ladders().concat() {
            let source = source(rung.name).unwrap();
            assert!(source.starts_with("use "), "{}", rung.name);
        }
    }

    #[test]
    fn an_unknown_rung_is_named() {
        assert!(source("tile3d").unwrap_err().contains("`tile3d`"));
        let long = source(&"\n".repeat(10_000)).unwrap_err();
        assert!(long.contains(&format!("`{}`", "\\n".repeat(30))), "{long}");
    }
}
