//! stdout for results and stderr for remarks, either of which may be closed or full.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Writes a result to stdout. A pager that was left early is no failure.
pub fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Writes a line to stderr. Where that is impossible, nobody can be told.
pub fn say(line: impl Display) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Ends the program with what clap has to say: the help, or a usage error.
pub fn exit(error: &clap::Error) -> ! {
    let mut code = error.exit_code();
    let printed = error.print().and_then(|()| io::stdout().flush());
    if !error.use_stderr()
        && let Err(message) = written(printed)
    {
        say(format_args!("error: {message}"));
        code = 2;
    }
    std::process::exit(code)
}

fn written(result: io::Result<()>) -> Result<(), String> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write stdout: {error}"))
        }
        _ => Ok(()),
    }
}
