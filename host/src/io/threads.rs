//! How many threads of this machine's take part.

use std::env;
use std::num::NonZero;
use std::thread;

use host::format::excerpt;
use rayon::ThreadPoolBuilder;

use super::stdio;
use crate::error::Error;

const VARIABLE: &str = "RAYON_NUM_THREADS";

/// Saves address space if it is limited. Call this before any thread starts.
///
/// The C library reserves 128 MiB for the first allocation of each thread, and keeps 64 MiB. Under
/// a limit, threads share one arena, which leaves the space to matrices.
pub fn share_addresses() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if host::memory::address_space_limit().is_some() {
        // SAFETY: the call only sets a number. It may be made while there is one thread.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// Starts one thread per core, or fewer if `RAYON_NUM_THREADS` says so. Call this once.
///
/// Rayon itself would start any number that the variable names.
///
/// # Errors
///
/// [`Error::Threads`] if the system starts no more threads.
pub fn start() -> Result<(), Error> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let text = env::var_os(VARIABLE).unwrap_or_default();
    let text = text.to_string_lossy();
    let wanted = match text.parse() {
        Ok(threads @ 1..) => threads,
        // Rayon reads 0 as all cores.
        Ok(0) => cores,
        Err(_) => {
            if !text.is_empty() {
                stdio::note(format_args!(
                    "{VARIABLE} is `{}`, which is no number of threads, and {cores} \
                     thread(s) are started",
                    excerpt(&text)
                ));
            }
            cores
        }
    };
    if wanted > cores {
        stdio::note(format_args!(
            "{VARIABLE} is {wanted}, and {cores} thread(s) are started, which is as many as \
             this machine runs at once"
        ));
    }
    let started = ThreadPoolBuilder::new().num_threads(wanted.min(cores)).build_global();
    started.map_err(|error| Error::Threads {
        reason: format!("{error}; raise the limit on threads (ulimit -u) or memory (ulimit -v)"),
    })
}
