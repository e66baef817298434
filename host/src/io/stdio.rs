//! What the program prints, and how it ends.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anstyle::AnsiColor;
use clap::error::{ContextKind, ContextValue};
use host::format::excerpt;
use host_system::stdio;

use crate::error::Error;

pub use host_system::stdio::{Accent, is_read, say};

/// Whether only results, warnings and errors are wanted.
static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on there are no notes, and no progress.
pub fn be_quiet() {
    QUIET.store(true, Relaxed);
}

/// Whether progress is shown: somebody sees it, and wants to.
pub fn is_watched() -> bool {
    io::stderr().is_terminal() && !QUIET.load(Relaxed)
}

/// Something worth knowing, on stderr.
pub fn note(line: impl Display) {
    if !QUIET.load(Relaxed) {
        say(format_args!("note: {line}"));
    }
}

/// Writes a result to stdout. A reader that has gone away has seen what it wanted: see
/// [`is_read`].
///
/// # Errors
///
/// [`Error::Output`] if stdout cannot be written for any other reason.
pub fn print(text: &str) -> Result<(), Error> {
    stdio::print(text).map_err(|error| not_written(&error))
}

/// As [`print()`], with words that have a colour on a terminal.
///
/// # Errors
///
/// As for [`print()`].
pub fn print_styled(text: &str, accents: &[Accent<'_>]) -> Result<(), Error> {
    stdio::print_styled(text, accents).map_err(|error| not_written(&error))
}

/// The colour of a verdict: what is wrong is red, what is right or faster green, all else yellow.
pub fn accent(word: &str) -> Accent<'_> {
    let colour = match word {
        "PASS" | "faster" => AnsiColor::Green,
        "FAIL" | "FINDINGS" | "UNSTABLE" | "slower" => AnsiColor::Red,
        _ => AnsiColor::Yellow,
    };
    Accent { word, style: colour.on_default() }
}

/// Ends the program with what clap has to say: the help, the version, or a usage error.
pub fn exit(mut error: clap::Error) -> ! {
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidValue, ContextKind::InvalidSubcommand]
    {
        let Some(ContextValue::String(text)) = error.get(kind) else { continue };
        let quoted = excerpt(text);
        if quoted != *text {
            error.insert(kind, ContextValue::String(quoted));
            // It quotes the same.
            error.remove(ContextKind::Suggested);
        }
    }
    let mut code = error.exit_code();
    let printed = error.print().and_then(|()| io::stdout().flush());
    if !error.use_stderr()
        && let Err(error) = stdio::written(printed)
    {
        say(format_args!("error: {}", not_written(&error)));
        code = 2;
    }
    std::process::exit(code)
}

fn not_written(error: &io::Error) -> Error {
    Error::not_written(Path::new("stdout"), error)
}
