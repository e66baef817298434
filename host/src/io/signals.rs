//! Signals that end the program: they leave no temporary file behind.

/// Makes signals that end the program remove incomplete files first.
///
/// A file that exceeds its limit (`ulimit -f`) becomes an error of its writer instead of a signal.
/// If no thread can be started, signals keep their default effect.
#[cfg(unix)]
pub fn watch() {
    use std::sync::mpsc;
    use std::thread;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    // SAFETY: no handler is installed that could run at a wrong time.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let (ready, watching) = mpsc::channel();
    let watch = move || {
        // What whoever started this has it ignore, as nohup does, stays ignored.
        let ending = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU];
        let ending = ending.into_iter().filter(|signal| !is_ignored(*signal));
        let Ok(mut signals) = Signals::new(ending) else { return };
        drop(ready);
        if let Some(signal) = signals.forever().next() {
            super::output::abandon();
            // To whoever waits for this program, it ended by the signal.
            let _ = emulate_default_handler(signal);
        }
    };
    if thread::Builder::new().name("signals".to_owned()).spawn(watch).is_ok() {
        // Nothing is ever sent: the sender goes when signals are watched, or cannot be.
        let _: Result<(), _> = watching.recv();
    }
}

/// Elsewhere the system ends the program as it always did.
#[cfg(not(unix))]
pub fn watch() {}

#[cfg(unix)]
fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call changes nothing; it fills in `action` if it succeeds,
    // and only then is that read.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
