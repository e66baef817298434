//! The order of work in streams, for [`Checks::races`](crate::Checks::races).
//!
//! Here work runs when it is enqueued. On a GPU the work of two streams runs in any order that
//! events and waits leave. So each stream has a vector clock ([`Moment`]), and work is compared with
//! what its stream does not wait for.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::exec::prior::Prior;

/// The most bytes of allocations whose accesses are kept for later work. Accesses take about six
/// times as much.
const KEPT_BYTES: u64 = 64 << 20;

/// A moment in the work of streams: what of it has ended. An event records one.
#[derive(Debug, Clone, Default)]
pub struct Moment(HashMap<u64, u64>);

impl Moment {
    /// Joins what has ended at another moment.
    fn join(&mut self, other: &Moment) {
        for (stream, ended) in &other.0 {
            let own = self.0.entry(*stream).or_default();
            *own = (*own).max(*ended);
        }
    }

    fn has(&self, stream: u64, number: u64) -> bool {
        self.0.get(&stream).is_some_and(|ended| *ended >= number)
    }
}

/// The streams of a device.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// What the host has waited for.
    host: Moment,
    /// By stream: the moment at which its next work begins, if it alone runs.
    streams: HashMap<u64, Moment>,
    /// Work that some stream does not come after.
    past: VecDeque<Past>,
}

#[derive(Debug)]
struct Past {
    stream: u64,
    number: u64,
    work: Arc<Prior>,
}

/// What a piece of work may run beside.
#[derive(Default)]
pub(crate) struct Begun {
    number: u64,
    /// What its stream does not wait for.
    pub(crate) beside: Vec<Arc<Prior>>,
    /// What is directly in front of it in its stream.
    pub(crate) front: Option<Arc<Prior>>,
}

impl Streams {
    /// The stream's moment, with another step of the stream.
    fn step(&mut self, stream: u64) -> &mut Moment {
        let moment = self.streams.entry(stream).or_default();
        moment.join(&self.host);
        *moment.0.entry(stream).or_default() += 1;
        moment
    }

    /// Begins work in a stream.
    pub(crate) fn begin(&mut self, stream: u64) -> Begun {
        let moment = self.step(stream).clone();
        let number = moment.0[&stream];
        let is_beside = |past: &&Past| !moment.has(past.stream, past.number);
        let beside = self.past.iter().filter(is_beside).map(|past| Arc::clone(&past.work));
        let is_front = |past: &&Past| past.stream == stream && past.number + 1 == number;
        let front = self.past.iter().find(is_front).map(|past| Arc::clone(&past.work));
        Begun { number, beside: beside.collect(), front }
    }

    /// Keeps what work has accessed that has [begun](Streams::begin), for later work.
    pub(crate) fn keep(&mut self, stream: u64, begun: &Begun, work: Prior) {
        let work = Arc::new(work);
        self.past.push_back(Past { stream, number: begun.number, work });
        let Self { streams, past, .. } = self;
        let is_known = |past: &Past| {
            let mut others = streams.iter().filter(|(stream, _)| **stream != past.stream);
            others.all(|(_, moment)| moment.has(past.stream, past.number))
        };
        // The last work of a stream may be in front of an early launch.
        let is_last = |past: &Past| {
            streams.get(&past.stream).is_some_and(|it| !it.has(past.stream, past.number + 1))
        };
        past.retain(|past| is_last(past) || !is_known(past));
        while past.len() > 1 && past.iter().map(|past| past.work.bytes()).sum::<u64>() > KEPT_BYTES
        {
            past.pop_front();
        }
    }

    /// What has ended when all work so far in a stream has.
    pub(crate) fn record(&mut self, stream: u64) -> Moment {
        self.step(stream).clone()
    }

    /// Later work in a stream comes after a moment.
    pub(crate) fn wait(&mut self, stream: u64, moment: &Moment) {
        self.step(stream).join(moment);
    }

    /// Later work in a stream comes after all work so far in another one, as it does with the legacy
    /// stream. A launch may still be early.
    pub(crate) fn follow(&mut self, stream: u64, other: u64) {
        if let Some(other) = self.streams.get(&other).cloned() {
            self.streams.entry(stream).or_default().join(&other);
        }
    }

    /// The host, and so all later work, comes after a moment.
    pub(crate) fn synchronize(&mut self, moment: &Moment) {
        self.host.join(moment);
        let Self { host, past, .. } = self;
        past.retain(|past| !host.has(past.stream, past.number));
    }

    /// The host has waited for all streams.
    pub(crate) fn synchronize_all(&mut self) {
        for moment in self.streams.values() {
            self.host.join(moment);
        }
        self.past.clear();
    }

    /// Forgets a stream, which has no more work.
    pub(crate) fn forget(&mut self, stream: u64) {
        self.streams.remove(&stream);
        self.past.retain(|past| past.stream != stream);
    }
}
