//! The right to enqueue on a stream, held by one thread at a time.

use std::marker::PhantomData;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// Lets one thread at a time enqueue on a stream.
///
/// So launches that belong together are not interleaved with another thread's, and nothing enters a
/// graph that another thread captures.
///
/// The owner may acquire the right again: work that it enqueues while it captures is captured.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Default)]
struct State {
    owner: Option<ThreadId>,
    /// How often the owner has acquired it.
    depth: usize,
    /// Waiting threads. Without any, a release spares the system call that wakes one.
    waiting: usize,
}

/// The calling thread's right to enqueue on a stream, until this is dropped.
///
/// See [`Stream::exclusive`](crate::Stream::exclusive).
#[must_use]
pub struct Exclusive<'q> {
    queue: &'q Queue,
    /// Keeps this in its thread.
    thread: PhantomData<*const ()>,
}

impl Queue {
    /// Waits until no other thread enqueues.
    pub(crate) fn exclusive(&self) -> Exclusive<'_> {
        let this = thread::current().id();
        let mut state = self.lock();
        while state.owner.is_some_and(|owner| owner != this) {
            state.waiting += 1;
            state = self.released.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.owner = Some(this);
        state.depth += 1;
        Exclusive { queue: self, thread: PhantomData }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.depth -= 1;
        if state.depth > 0 {
            return;
        }
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
                        let outer = queue.exclusive();
                        assert!(!is_taken.swap(true, Ordering::Relaxed));
                        let inner = queue.exclusive();
                        drop(outer);
                        thread::yield_now();
                        assert!(is_taken.swap(false, Ordering::Relaxed));
                        drop(inner);
                    }
                });
            }
        });
        assert!(queue.lock().owner.is_none());
    }
}
