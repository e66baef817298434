//! What is shown while one waits: bars on stderr, and only on a terminal.

use std::cell::Cell;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::stdio::is_watched;

/// Runs something that takes a while under a line that says what it is.
pub fn step<T>(what: &'static str, work: impl FnOnce() -> T) -> T {
    if !is_watched() {
        return work();
    }
    let bar = ProgressBar::new_spinner().with_message(what);
    let result = ticking(thread::Builder::new(), || bar.tick(), work);
    bar.finish_and_clear();
    result
}

/// Runs `work` under a bar; `progress` returns the parts that are done, and all.
pub fn portion<T>(what: &'static str, progress: fn() -> (u64, u64), work: impl FnOnce() -> T) -> T {
    if !is_watched() {
        return work();
    }
    let bar = styled("{spinner} {msg} {wide_bar} {percent} %, {eta} left").with_message(what);
    let tick = || {
        let (done, total) = progress();
        bar.set_length(total);
        bar.set_position(done);
    };
    let result = ticking(thread::Builder::new(), tick, work);
    bar.finish_and_clear();
    result
}

/// A bar for work in steps, below lines that are printed meanwhile.
pub struct Steps(Option<ProgressBar>);

impl Steps {
    pub fn new(what: &'static str) -> Self {
        let style = "{msg} {wide_bar} {pos}/{len}, {eta} left";
        Self(is_watched().then(|| styled(style).with_message(what)))
    }

    /// So many steps of all are done.
    pub fn at(&self, done: usize, total: usize) {
        if let Some(bar) = &self.0 {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        }
    }

    /// Does what prints lines.
    pub fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// A bar that looks like that.
fn styled(template: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Runs something that takes samples under a bar that says how many of how many there are.
pub fn samples<T>(what: impl Into<String>, work: impl FnOnce(&mut dyn FnMut(u32, u32)) -> T) -> T {
    if !is_watched() {
        return work(&mut |_, _| ());
    }
    let bar = styled("{spinner} {msg} {wide_bar} {pos}/{len} samples, {eta} left");
    bar.set_message(what.into());
    let mut sampled = |done: u32, total: u32| {
        bar.set_length(total.into());
        bar.set_position(done.into());
    };
    let result = ticking(thread::Builder::new(), || bar.tick(), || work(&mut sampled));
    bar.finish_and_clear();
    result
}

/// Does the work while another thread ticks. Where the system starts none, nothing is shown: the
/// work matters more.
fn ticking<T>(
    thread: thread::Builder,
    mut tick: impl FnMut() + Send,
    work: impl FnOnce() -> T,
) -> T {
    let (done, watch) = mpsc::channel::<()>();
    let ticks = move || {
        // Until the sender is dropped.
        while watch.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
            tick();
        }
    };
    thread::scope(|scope| {
        let _ = thread.spawn_scoped(scope, ticks);
        let result = work();
        drop(done);
        result
    })
}

/// What the software device does, for the bar that shows how far it is.
pub struct Simulation {
    /// Which kernel.
    what: String,
    /// Seconds that one run should take.
    run: f64,
    /// Seconds that all should take that comes after this run; 0 if that is not known.
    later: Cell<f64>,
}

impl Simulation {
    /// Something short.
    pub fn alone(what: &str) -> Self {
        Self { what: what.to_owned(), run: 0.0, later: Cell::new(0.0) }
    }

    /// Kernel `place` (from 0) of `count`, which runs `repeat` times.
    ///
    /// `seconds` are estimates of one run, and of everything after the last one; 0 if unknown.
    pub fn of(name: &str, place: usize, count: usize, repeat: u32, seconds: (f64, f64)) -> Self {
        let what = match count {
            1 => name.to_owned(),
            _ => format!("{name} ({} of {count})", place + 1),
        };
        let (run, later) = seconds;
        Self { what, run, later: Cell::new(f64::from(repeat) * run + later) }
    }

    /// Makes a run, under a bar of the blocks that are done.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        // The time that remains after this run.
        self.later.update(|later| later - self.run);
        if !is_watched() {
            return work();
        }
        let bar = styled("simulating {msg} {wide_bar} {pos}/{len} blocks, {eta} left{prefix}")
            .with_message(self.what.clone());
        let later = self.later.get();
        let tick = || {
            let progress = cuda_driver::soft::progress();
            bar.set_length(progress.blocks_total);
            bar.set_position(progress.blocks_done);
            if later >= 1.0 {
                bar.set_prefix(in_all(bar.eta(), later));
            }
        };
        let result = ticking(thread::Builder::new(), tick, work);
        bar.finish_and_clear();
        result
    }
}

/// What is left with all that comes after this run.
fn in_all(this: Duration, later: f64) -> String {
    format!(", {} in all", about(this.as_secs_f64() + later))
}

/// A time for people, who should not rely on it.
pub fn about(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("about {s:.0} s"),
        s if s < 5400.0 => format!("about {:.0} min", s / 60.0),
        s => format!("about {:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_where_no_thread_starts() {
        let mut ticks = 0;
        let work = || thread::sleep(Duration::from_millis(250));
        ticking(thread::Builder::new(), || ticks += 1, work);
        assert!(ticks > 0);
        // No address space holds such a stack.
        let impossible = thread::Builder::new().stack_size(isize::MAX as usize & !0xffff);
        let tick = || panic!("a thread was started");
        assert_eq!(ticking(impossible, tick, || 7), 7);
    }

    #[test]
    fn times_for_people() {
        for (seconds, words) in [
            (31.4, "about 31 s"),
            (100.0, "about 2 min"),
            (930.0, "about 16 min"),
            (9000.0, "about 2.5 h"),
        ] {
            assert_eq!(about(seconds), words);
        }
    }

    #[test]
    fn what_comes_later_shrinks_with_each_run() {
        let simulation = Simulation { what: String::new(), run: 10.0, later: Cell::new(50.0) };
        for later in [40.0, 30.0] {
            simulation.run(|| ());
            assert_eq!(simulation.later.get(), later);
        }
        assert_eq!(in_all(Duration::from_secs(70), 30.0), ", about 2 min in all");
    }
}
