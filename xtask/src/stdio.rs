//! What the chores print, and how they end.

use std::io::{self, Write};

use host_system::stdio;

pub use host_system::stdio::say;

/// Writes a result to stdout. A pager that was left early is no failure.
pub fn print(text: &str) -> Result<(), String> {
    stdio::print(text).map_err(not_written)
}

/// Ends the program with what clap has to say: the help, or a usage error.
pub fn exit(error: &clap::Error) -> ! {
    let mut code = error.exit_code();
    let printed = error.print().and_then(|()| io::stdout().flush());
    if !error.use_stderr()
        && let Err(error) = stdio::written(printed)
    {
        say(format_args!("error: {}", not_written(error)));
        code = 2;
    }
    std::process::exit(code)
}

fn not_written(error: io::Error) -> String {
    format!("cannot write stdout: {error}")
}
