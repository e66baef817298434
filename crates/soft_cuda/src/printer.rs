//! Where what kernels print goes.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

/// Takes what a launch has printed.
type Take = Box<dyn FnMut(&[u8]) + Send>;

/// Where what kernels print goes: to stdout, unless somebody takes it.
#[derive(Default)]
pub(crate) struct Printer(Mutex<Option<Take>>);

impl fmt::Debug for Printer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Printer").finish_non_exhaustive()
    }
}

impl Printer {
    pub(crate) fn set(&self, take: Take) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(take);
    }

    pub(crate) fn print(&self, text: &[u8]) {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(take) => take(text),
            None => {
                let mut stdout = io::stdout().lock();
                // As on a GPU, a kernel does not learn whether anybody reads what it prints.
                let _ = stdout.write_all(text).and_then(|()| stdout.flush());
            }
        }
    }
}
