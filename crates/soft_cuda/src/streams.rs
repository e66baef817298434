//! The order of work in streams, for [`Checks::races`](crate::Checks::races).
//!
//! Here work runs when it is enqueued. On a GPU the work of two streams runs in any order that
//! events and waits leave. So each stream has a vector clock ([`Moment`]), and work is compared with
//! what its stream does not wait for.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::exec::prior::Prior;

/// The most bytes of allocations whose accesses are kept for later work. Accesses take about six
/// times as much.
const KEPT_BYTES: u64 = 64 << 20;
/// The most pieces of work that are kept.
const KEPT: usize = 64;
/// How much of each is kept before all is looked through.
const FEW: (u64, usize) = (KEPT_BYTES / 4, 32);

/// A stream, for the order of its next work.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamOrder<'b> {
    /// Its number.
    pub number: u64,
    /// Streams whose work so far comes before: a legacy stream's, or the legacy stream.
    pub behind: &'b [u64],
}

/// A moment in the work of streams, as a vector clock: what of it has ended. An event records one.
#[derive(Debug, Clone, Default)]
pub struct Moment(HashMap<u64, u64>);

impl Moment {
    fn join(&mut self, other: &Moment) {
        for (stream, ended) in &other.0 {
            let own = self.0.entry(*stream).or_default();
            *own = (*own).max(*ended);
        }
    }

    /// The steps of a stream that have ended.
    fn of(&self, stream: u64) -> u64 {
        self.0.get(&stream).copied().unwrap_or(0)
    }
}

/// The streams of a device.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// What the host has waited for.
    host: Moment,
    /// By stream: what has ended when its work so far has.
    streams: HashMap<u64, Moment>,
    /// Work that some stream may run beside, or that is the last of its stream.
    past: VecDeque<Past>,
    /// The sum of their bytes.
    bytes: u64,
    /// How many there may be before all are looked through.
    enough: usize,
}

#[derive(Debug)]
struct Past {
    stream: u64,
    step: u64,
    work: Arc<Prior>,
    bytes: u64,
}

/// What a piece of work may run beside.
#[derive(Default)]
pub(crate) struct Begun {
    pub(crate) step: u64,
    /// What its stream does not wait for.
    pub(crate) beside: Vec<Arc<Prior>>,
    /// The launch directly in front of it in its stream, which it may begin before the end of.
    pub(crate) front: Option<Arc<Prior>>,
}

impl Streams {
    /// Another step of a stream.
    fn step(&mut self, order: StreamOrder<'_>) -> &mut Moment {
        let behind = order.behind.iter().filter_map(|other| self.streams.get(other).cloned());
        let behind: Vec<_> = behind.collect();
        let moment = self.streams.entry(order.number).or_default();
        moment.join(&self.host);
        let own = moment.of(order.number);
        // Nothing is directly in front if another stream's work waits for that and comes between.
        let is_between = own > 0 && behind.iter().any(|other| other.of(order.number) == own);
        behind.iter().for_each(|other| moment.join(other));
        moment.0.insert(order.number, own + if is_between { 2 } else { 1 });
        moment
    }

    /// Begins work in a stream.
    pub(crate) fn begin(&mut self, order: StreamOrder<'_>) -> Begun {
        let moment = self.step(order).clone();
        let step = moment.of(order.number);
        let is_beside = |past: &&Past| moment.of(past.stream) < past.step;
        let beside = self.past.iter().filter(is_beside).map(|past| Arc::clone(&past.work));
        let is_front = |past: &&Past| {
            // Copies and fills end before anything begins behind them.
            past.stream == order.number && past.step + 1 == step && past.work.is_launch()
        };
        let front = self.past.iter().find(is_front).map(|past| Arc::clone(&past.work));
        Begun { step, beside: beside.collect(), front }
    }

    /// Keeps what a [step](Streams::begin) of a stream has accessed, for later work.
    pub(crate) fn keep(&mut self, stream: u64, step: u64, work: Prior) {
        let bytes = work.bytes();
        self.past.push_back(Past { stream, step, work: Arc::new(work), bytes });
        self.bytes += bytes;
        if self.bytes > FEW.0 || self.past.len() > self.enough.max(FEW.1) {
            self.prune();
        }
    }

    /// Drops what no later work can run beside, and the oldest if too much is left.
    fn prune(&mut self) {
        let Self { host, streams, past, .. } = self;
        past.retain(|past| {
            let is_last =
                streams.get(&past.stream).is_some_and(|it| it.of(past.stream) == past.step);
            let is_known = |(stream, moment): (&u64, &Moment)| {
                *stream == past.stream
                    || moment.of(past.stream).max(host.of(past.stream)) >= past.step
            };
            is_last || !streams.iter().all(is_known)
        });
        self.count();
        while self.past.len() > 1 && (self.past.len() > KEPT || self.bytes > KEPT_BYTES) {
            self.bytes -= self.past.pop_front().map_or(0, |past| past.bytes);
        }
        self.enough = 2 * self.past.len();
    }

    /// Counts again what is kept.
    fn count(&mut self) {
        self.bytes = self.past.iter().map(|past| past.bytes).sum();
    }

    /// What has ended when all work so far in a stream has.
    pub(crate) fn record(&mut self, order: StreamOrder<'_>) -> Moment {
        self.step(order).clone()
    }

    /// Later work in a stream comes after a moment.
    pub(crate) fn wait(&mut self, order: StreamOrder<'_>, moment: &Moment) {
        self.step(order).join(moment);
    }

    /// The host, and so all later work, comes after a moment.
    pub(crate) fn synchronize(&mut self, moment: &Moment) {
        self.host.join(moment);
        let Self { host, past, .. } = self;
        past.retain(|past| host.of(past.stream) < past.step);
        self.count();
    }

    /// The host has waited for all streams.
    pub(crate) fn synchronize_all(&mut self) {
        for moment in self.streams.values() {
            self.host.join(moment);
        }
        self.past.clear();
        self.bytes = 0;
    }

    /// Ends a stream, whose work goes on. The stream `heir` waits for it.
    pub(crate) fn end(&mut self, stream: u64, heir: Option<u64>) {
        let Some(moment) = self.streams.remove(&stream) else { return };
        if let Some(heir) = heir {
            self.streams.entry(heir).or_default().join(&moment);
        }
        // Numbers of streams without work are in no moment for ever.
        let Self { host, streams, past, .. } = self;
        let of_past = past.iter().map(|past| past.stream);
        let needed: HashSet<u64> = streams.keys().copied().chain(of_past).collect();
        for moment in streams.values_mut().chain([host]) {
            moment.0.retain(|stream, _| needed.contains(stream));
        }
    }
}
