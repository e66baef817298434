//! stdout for results and stderr for remarks, either of which may be closed or full.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anstyle::{AnsiColor, Style};

use crate::format::printable;

/// Whether the reader of stdout has gone away.
static ABANDONED: AtomicBool = AtomicBool::new(false);

/// Control characters that lines and tables need. What else a terminal obeys, as names of files may
/// have it, is never printed.
const KEPT: [char; 2] = ['\n', '\t'];

/// What remarks begin with, and its colour on a terminal.
const KINDS: [(&str, AnsiColor); 3] =
    [("error:", AnsiColor::Red), ("warning:", AnsiColor::Yellow), ("note:", AnsiColor::Cyan)];

/// Writes a result to stdout, without what a terminal obeys. A reader that has gone away has seen
/// what it wanted: see [`is_read`].
///
/// # Errors
///
/// If stdout cannot be written for any other reason.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// host_system::stdio::print("1 right, 0 wrong\n")
/// # }
/// ```
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let text = printable(text, &KEPT);
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// A word that has a colour where a terminal shows it.
#[derive(Clone, Copy, Debug)]
pub struct Accent<'a> {
    /// The word, as it stands in the text.
    pub word: &'a str,
    /// How it looks.
    pub style: Style,
}

/// As [`print()`], with the last occurrence of each word in its style if stdout is a terminal, or
/// if the environment says so (`NO_COLOR`, `CLICOLOR_FORCE`).
///
/// # Errors
///
/// As for [`print()`].
///
/// ```
/// use anstyle::AnsiColor;
/// use host_system::stdio::{Accent, print_styled};
///
/// # fn main() -> std::io::Result<()> {
/// print_styled("tile2d: PASS\n", &[Accent { word: "PASS", style: AnsiColor::Green.on_default() }])
/// # }
/// ```
pub fn print_styled(text: &str, accents: &[Accent<'_>]) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    let text = styled(printable(text, &KEPT), accents);
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// A text that a terminal obeys in nothing, with words that have a style.
fn styled(mut text: String, accents: &[Accent<'_>]) -> String {
    for Accent { word, style } in accents {
        if let Some(at) = text.rfind(word).filter(|_| !word.is_empty()) {
            let end = at + word.len();
            text.replace_range(at..end, &format!("{style}{word}{style:#}"));
        }
    }
    text
}

/// What became of a result that was written to stdout by other means, as [`print()`] sees it.
///
/// # Errors
///
/// As for [`print()`].
///
/// ```
/// use std::io;
/// use host_system::stdio;
///
/// assert!(stdio::written(Err(io::ErrorKind::StorageFull.into())).is_err());
/// assert!(stdio::is_read());
/// assert!(stdio::written(Err(io::ErrorKind::BrokenPipe.into())).is_ok());
/// assert!(!stdio::is_read());
/// ```
pub fn written(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            ABANDONED.store(true, Relaxed);
            Ok(())
        }
        other => other,
    }
}

/// Whether anyone may still read what is printed.
///
/// ```
/// assert!(host_system::stdio::is_read());
/// ```
pub fn is_read() -> bool {
    !ABANDONED.load(Relaxed)
}

/// Writes a line to stderr, without what a terminal obeys. Where that is impossible, nobody can be
/// told.
///
/// ```
/// host_system::stdio::say("note: nothing is wrong");
/// ```
pub fn say(line: impl Display) {
    let mut line = printable(&format!("{line}\n"), &KEPT);
    for (kind, colour) in KINDS {
        if line.starts_with(kind) {
            let style = colour.on_default().bold();
            line.replace_range(..kind.len(), &format!("{style}{kind}{style:#}"));
        }
    }
    let _ = anstream::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_word_is_styled() {
        let accent = Accent { word: "PASS", style: AnsiColor::Green.on_default() };
        let text = styled("PASS PASS\n".to_owned(), &[accent]);
        assert_eq!(text, "PASS \u{1b}[32mPASS\u{1b}[0m\n");
        assert_eq!(styled("FAIL\n".to_owned(), &[accent]), "FAIL\n");
    }
}
