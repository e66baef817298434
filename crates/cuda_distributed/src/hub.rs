//! The meeting point of all ranks: it gathers small messages, and knows who is lost.
//!
//! Ranks in one process share a [`Hub`]. Ranks in processes of their own reach rank 0's through
//! sockets.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Failure};

/// The time for which a rank looks for the others before it sleeps, if each has its own core.
/// Ranks that enqueue the same work meet within it, and waking a thread costs about as much.
const PATIENCE: Duration = Duration::from_micros(50);

/// One message of each rank, in their order.
pub(crate) type Messages = Arc<Vec<Vec<u8>>>;

/// How a rank exchanges small messages with all others.
pub(crate) trait Control: Send + Sync {
    /// Gives `message`, and waits for those of all ranks.
    ///
    /// All ranks name one `operation`. Fails within the timeout if one of them does not.
    fn exchange(&self, operation: &str, message: Vec<u8>) -> Result<Messages, Error>;

    /// Why the world is over, if it is.
    fn failure(&self) -> Option<Failure>;

    /// Ends the world on every rank. Without a suspect it is the rank that began fewest operations.
    fn fail(&self, operation: &str, suspect: Option<usize>, reason: String);

    /// This rank begins an operation that ends when all others have begun it.
    fn begin(&self);

    /// Tells the others that this rank lives.
    fn beat(&self);
}

/// News for a rank behind a socket.
#[derive(Clone, Debug)]
pub(crate) enum News {
    Gathered(Messages),
    Failed(Failure),
    Beat,
}

/// See the [module](self).
pub(crate) struct Hub {
    state: Mutex<State>,
    changed: Condvar,
    /// Complete exchanges, which the locked state has as well.
    rounds: AtomicU64,
    patience: Duration,
    pub(crate) timeout: Duration,
}

struct State {
    /// Complete exchanges.
    rounds: u64,
    /// The messages of the exchange in progress, with the name of the operation.
    arrived: Vec<Option<(String, Vec<u8>)>>,
    /// The messages of the last complete exchange. Nobody can complete another one before every
    /// rank has fetched them.
    gathered: Messages,
    /// Operations that each rank has begun.
    begun: Vec<u64>,
    has_left: Vec<bool>,
    failure: Option<Failure>,
    /// Where the news of ranks behind sockets go.
    outboxes: Vec<Option<Sender<News>>>,
}

impl State {
    fn fail(&mut self, failure: Failure) {
        if self.failure.is_none() {
            self.outboxes
                .iter()
                .flatten()
                .for_each(|to| _ = to.send(News::Failed(failure.clone())));
            self.failure = Some(failure);
        }
    }

    /// The rank that is furthest behind.
    fn slowest(&self) -> usize {
        (0..self.begun.len()).min_by_key(|rank| self.begun[*rank]).unwrap_or(0)
    }

    /// The first rank whose message is missing.
    fn missing(&self) -> Option<usize> {
        self.arrived.iter().position(Option::is_none)
    }
}

impl Hub {
    pub(crate) fn new(size: usize, timeout: Duration) -> Self {
        let state = State {
            rounds: 0,
            arrived: vec![None; size],
            gathered: Arc::default(),
            begun: vec![0; size],
            has_left: vec![false; size],
            failure: None,
            outboxes: vec![None; size],
        };
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        let patience = if cores > size { PATIENCE } else { Duration::ZERO };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            rounds: AtomicU64::new(0),
            patience,
            timeout,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No change is left half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the news of a rank to its socket from now on.
    pub(crate) fn connect(&self, rank: usize, outbox: Sender<News>) {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            _ = outbox.send(News::Failed(failure.clone()));
        }
        state.outboxes[rank] = Some(outbox);
    }

    /// Takes the message of a rank, and completes the exchange with the last one.
    pub(crate) fn deposit(&self, rank: usize, operation: &str, message: Vec<u8>) {
        let mut state = self.lock();
        let left = (0..state.has_left.len()).find(|rank| state.has_left[*rank]);
        if let Some(left) = left {
            state.fail(Failure::left(operation, left));
        }
        state.arrived[rank] = Some((operation.to_owned(), message));
        if state.failure.is_none() && state.missing().is_none() {
            let all: Vec<_> = state.arrived.iter_mut().filter_map(Option::take).collect();
            if let Some(other) = all.iter().position(|(name, _)| *name != all[0].0) {
                let reason = format!("is in {} instead", all[other].0);
                state.fail(Failure { operation: all[0].0.clone(), suspect: other, reason });
            } else {
                state.gathered = Arc::new(all.into_iter().map(|(_, message)| message).collect());
                state.rounds += 1;
                self.rounds.store(state.rounds, Ordering::Relaxed);
                let gathered = &state.gathered;
                let outboxes = state.outboxes.iter().flatten();
                outboxes.for_each(|to| _ = to.send(News::Gathered(Arc::clone(gathered))));
            }
        }
        self.changed.notify_all();
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        self.lock().failure.clone()
    }

    pub(crate) fn fail(&self, operation: &str, suspect: Option<usize>, reason: String) {
        let mut state = self.lock();
        let suspect = suspect.unwrap_or_else(|| state.slowest());
        state.fail(Failure { operation: operation.to_owned(), suspect, reason });
        self.changed.notify_all();
    }

    /// Notes how many operations a rank has begun.
    pub(crate) fn note_begun(&self, rank: usize, begun: u64) {
        self.lock().begun[rank] = begun;
    }

    /// A rank leaves in good order. An exchange that waits for it fails.
    pub(crate) fn leave(&self, rank: usize) {
        let mut state = self.lock();
        state.has_left[rank] = true;
        state.outboxes[rank] = None;
        let waiting = state.arrived.iter().flatten().next().map(|(operation, _)| operation.clone());
        if let Some(operation) = waiting {
            state.fail(Failure::left(&operation, rank));
        }
        self.changed.notify_all();
    }

    /// Ends the news of all ranks behind sockets.
    pub(crate) fn disconnect(&self) {
        self.lock().outboxes.iter_mut().for_each(|outbox| *outbox = None);
    }

    /// Sends a sign of life to every rank behind a socket.
    pub(crate) fn beat(&self) {
        self.lock().outboxes.iter().flatten().for_each(|to| _ = to.send(News::Beat));
    }

    /// The exchange of a rank in this process.
    fn exchange(&self, rank: usize, operation: &str, message: Vec<u8>) -> Result<Messages, Error> {
        let round = self.lock().rounds;
        self.deposit(rank, operation, message);
        let start = Instant::now();
        while self.rounds.load(Ordering::Relaxed) == round && start.elapsed() < self.patience {
            hint::spin_loop();
        }
        let deadline = start + self.timeout;
        let mut state = self.lock();
        while state.rounds == round {
            if let Some(failure) = &state.failure {
                return Err(failure.clone().into());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let suspect = state.missing().unwrap_or(rank);
                state.fail(Failure::late(operation, suspect, self.timeout));
                self.changed.notify_all();
                continue;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(Arc::clone(&state.gathered))
    }
}

/// A rank in the process of the hub. Its drop leaves the world.
pub(crate) struct Member {
    pub(crate) hub: Arc<Hub>,
    pub(crate) rank: usize,
    /// Held for an exchange, so that two threads of the rank do not mix their messages.
    turn: Mutex<()>,
}

impl Member {
    pub(crate) fn new(hub: Arc<Hub>, rank: usize) -> Self {
        Self { hub, rank, turn: Mutex::default() }
    }
}

impl Control for Member {
    fn exchange(&self, operation: &str, message: Vec<u8>) -> Result<Messages, Error> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.begin();
        self.hub.exchange(self.rank, operation, message)
    }

    fn failure(&self) -> Option<Failure> {
        self.hub.failure()
    }

    fn fail(&self, operation: &str, suspect: Option<usize>, reason: String) {
        self.hub.fail(operation, suspect, reason);
    }

    fn begin(&self) {
        self.hub.lock().begun[self.rank] += 1;
    }

    fn beat(&self) {
        if self.rank == 0 {
            self.hub.beat();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if thread::panicking() {
            self.hub.fail("the work of a rank", Some(self.rank), "panicked".to_owned());
        }
        self.hub.leave(self.rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(size: usize, timeout: u64) -> Vec<Member> {
        let hub = Arc::new(Hub::new(size, Duration::from_millis(timeout)));
        (0..size).map(|rank| Member::new(Arc::clone(&hub), rank)).collect()
    }

    fn lost(result: Result<Messages, Error>) -> Failure {
        match result {
            Err(Error::Lost(failure)) => failure,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everybody_gets_all_messages_of_each_round() {
        std::thread::scope(|scope| {
            for member in members(3, 10_000) {
                scope.spawn(move || {
                    for round in 0..100u8 {
                        let gathered = member.exchange("a round", vec![member.rank as u8, round]);
                        let expected: Vec<_> = (0..3).map(|rank| vec![rank, round]).collect();
                        assert_eq!(*gathered.unwrap(), expected);
                    }
                    // All have fetched the last round before anyone leaves.
                    _ = member.exchange("the end", Vec::new());
                });
            }
        });
    }

    #[test]
    fn threads_of_one_rank_take_turns() {
        let members = members(2, 10_000);
        thread::scope(|scope| {
            for member in members.iter().flat_map(|member| [member, member]) {
                scope.spawn(move || {
                    for _ in 0..100 {
                        let gathered = member.exchange("a round", vec![member.rank as u8]);
                        assert_eq!(*gathered.unwrap(), [[0], [1]]);
                    }
                });
            }
        });
    }

    #[test]
    fn a_late_rank_is_named() {
        let members = members(3, 30);
        members[2].hub.deposit(2, "a sum", Vec::new());
        let failure = lost(members[0].exchange("a sum", Vec::new()));
        assert_eq!(failure.to_string(), "a sum: rank 1 did not take part within 0.03 s");
        assert_eq!(members[1].failure(), Some(failure.clone()));
        assert_eq!(lost(members[1].exchange("a sum", Vec::new())), failure);
    }

    #[test]
    fn a_rank_that_left_or_does_something_else_is_named() {
        let mut all = members(2, 10_000);
        drop(all.pop());
        let failure = lost(all[0].exchange("a sum", Vec::new()));
        assert_eq!(failure.to_string(), "a sum: rank 1 has left the world");

        let all = members(2, 10_000);
        all[1].hub.deposit(1, "a product", Vec::new());
        let failure = lost(all[0].exchange("a sum", Vec::new()));
        assert_eq!(failure.to_string(), "a sum: rank 1 is in a product instead");
    }

    #[test]
    fn without_a_suspect_it_is_the_slowest() {
        let all = members(3, 10_000);
        all[0].begin();
        all[2].begin();
        all[0].fail("a sum", None, "hangs".to_owned());
        assert_eq!(all[2].failure().unwrap().suspect, 1);
    }
}
