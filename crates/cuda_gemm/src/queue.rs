//! Which thread enqueues on a stream.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// Lets one thread at a time enqueue on a stream: launches that belong together are not
/// interleaved with those of another thread, and nothing gets into a graph that another thread
/// captures.
///
/// The thread that has it may take it again: what it enqueues while it captures is captured.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Default)]
struct State {
    owner: Option<ThreadId>,
    /// Threads that wait; so that nobody is woken, which is a system call, where none does.
    waiting: usize,
}

/// The right of the thread that took it to enqueue, until this is dropped.
#[must_use]
pub(crate) struct Exclusive<'q> {
    queue: &'q Queue,
    /// Whether the thread had it before, and keeps it.
    is_nested: bool,
}

impl Queue {
    /// Waits until no other thread enqueues.
    pub(crate) fn exclusive(&self) -> Exclusive<'_> {
        let this = thread::current().id();
        let mut state = self.lock();
        let is_nested = state.owner == Some(this);
        while !is_nested && state.owner.is_some() {
            state.waiting += 1;
            state = self.released.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.owner = Some(this);
        Exclusive { queue: self, is_nested }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        if self.is_nested {
            return;
        }
        let mut state = self.queue.lock();
        state.owner = None;
        if state.waiting > 0 {
            self.queue.released.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn one_thread_at_a_time_and_that_one_again() {
        let (queue, is_taken) = (Queue::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let _outer = queue.exclusive();
                        assert!(!is_taken.swap(true, Ordering::Relaxed));
                        drop(queue.exclusive());
                        thread::yield_now();
                        assert!(is_taken.swap(false, Ordering::Relaxed));
                    }
                });
            }
        });
        assert!(queue.lock().owner.is_none());
    }
}
