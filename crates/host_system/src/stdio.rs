//! stdout for results and stderr for remarks, either of which may be closed or full.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::format::printable;

/// Whether the reader of stdout has gone away.
static ABANDONED: AtomicBool = AtomicBool::new(false);

/// Control characters that lines and tables need. What else a terminal obeys, as names of files may
/// have it, is never printed.
const KEPT: [char; 2] = ['\n', '\t'];

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
    let line = printable(&format!("{line}\n"), &KEPT);
    let _ = io::stderr().write_all(line.as_bytes());
}
