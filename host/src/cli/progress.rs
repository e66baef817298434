//! What is shown while one waits: bars on stderr, and only on a terminal.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Runs something that takes a while under a line that says what it is.
pub fn step<T>(what: &'static str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let bar = ProgressBar::new_spinner().with_message(what);
    bar.enable_steady_tick(Duration::from_millis(100));
    let result = work();
    bar.finish_and_clear();
    result
}

/// Runs a kernel on the software device under a bar of the blocks that are done.
pub fn simulation<T>(work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let bar = ProgressBar::new(0);
    let style =
        ProgressStyle::with_template("simulating {wide_bar} {pos}/{len} blocks, {eta} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    let (done, watch) = mpsc::channel::<()>();
    let result = thread::scope(|scope| {
        let bar = &bar;
        scope.spawn(move || {
            // Until the sender is dropped.
            while watch.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                let progress = cuda_driver::soft::progress();
                bar.set_length(progress.blocks_total);
                bar.set_position(progress.blocks_done);
            }
        });
        let result = work();
        drop(done);
        result
    });
    bar.finish_and_clear();
    result
}
