//! stdout for results and stderr for remarks, either of which may be closed or full.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use clap::error::{ContextKind, ContextValue};
use host::Error;
use host::format::{excerpt, printable};

/// Whether the reader of stdout has gone away.
static ABANDONED: AtomicBool = AtomicBool::new(false);

/// Control characters that lines and tables need. What else a terminal obeys, as names of files may
/// have it, is never printed.
const KEPT: [char; 2] = ['\n', '\t'];

/// Writes a result to stdout. A reader that has gone away has seen what it wanted: see
/// [`is_read`].
///
/// # Errors
///
/// [`Error::Output`] if stdout cannot be written for any other reason.
pub fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    let text = printable(text, &KEPT);
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Whether anyone may still read what is printed.
pub fn is_read() -> bool {
    !ABANDONED.load(Relaxed)
}

/// Writes a line to stderr. Where that is impossible, nobody can be told.
pub fn say(line: impl Display) {
    let line = printable(&format!("{line}\n"), &KEPT);
    if cfg!(test) {
        // The harness keeps this for tests that fail.
        eprint!("{line}");
    } else {
        let _ = io::stderr().write_all(line.as_bytes());
    }
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
        && let Err(error) = written(printed)
    {
        say(format_args!("error: {error}"));
        code = 2;
    }
    std::process::exit(code)
}

fn written(result: io::Result<()>) -> Result<(), Error> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            ABANDONED.store(true, Relaxed);
            Ok(())
        }
        Err(error) => Err(Error::not_written(Path::new("stdout"), &error)),
        Ok(()) => Ok(()),
    }
}
