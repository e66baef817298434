//! One launch: workers take its clusters until there are no more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rayon::ThreadPool;

use crate::exec::block::{BlockError, Launch, Worker};
use crate::exec::recorder::WarpFault;
use crate::fault::FaultKind;
use crate::kernel::Kernel;
use crate::launch_error::{InvalidLaunch, LaunchError};

/// What a launch did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchReport {
    /// PTX instructions executed, counted once per warp.
    pub warp_instructions: u64,
    /// PTX instructions executed, counted once per active thread.
    pub thread_instructions: u64,
    /// Bytes that bulk copies moved, what they filled in outside of a tensor
    /// included.
    pub bulk_bytes: u64,
    /// Time on the host. It says nothing about a GPU.
    pub elapsed: Duration,
}

/// Runs all `clusters` of `launch`, on the threads of `pool` if there is one, and counts in `done`
/// the blocks that have finished. Returns what each cluster printed, too.
pub(crate) fn run(
    kernel: &Kernel,
    launch: &Launch<'_>,
    clusters: u64,
    done: &AtomicU64,
    pool: Option<&ThreadPool>,
) -> (Result<LaunchReport, LaunchError>, impl Iterator<Item = Vec<u8>> + use<>) {
    let run = Run {
        launch,
        clusters,
        next: AtomicU64::new(0),
        done,
        executed: Mutex::new((0, 0, 0)),
        fault: Mutex::new(None),
        printed: Mutex::new(BTreeMap::new()),
        workers: AtomicU64::new(0),
    };
    match pool {
        Some(pool) => {
            pool.broadcast(|_| run.work());
        }
        None => run.work(),
    }
    let fault = run.fault.into_inner().unwrap_or_else(PoisonError::into_inner);
    let printed = run.printed.into_inner().unwrap_or_else(PoisonError::into_inner);
    // How far later blocks came depends on timing.
    let last = fault.as_ref().map_or(u64::MAX, |(place, ..)| *place);
    let printed = printed.into_iter().take_while(move |(place, _)| *place <= last);
    let (warp_instructions, thread_instructions, bulk_bytes) =
        run.executed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let elapsed = launch.started.elapsed();
    let ended = if run.workers.into_inner() == 0 {
        let reason = InvalidLaunch::ThreadState { bytes: launch.state_bytes() };
        Err(LaunchError::Invalid { kernel: kernel.name().to_owned(), reason })
    } else if let Some((place, warp, fault)) = fault {
        let cluster = launch.cluster_at(place, clusters);
        Err(LaunchError::Fault(Box::new(kernel.fault(launch, cluster, warp, fault))))
    } else {
        Ok(LaunchReport { warp_instructions, thread_instructions, bulk_bytes, elapsed })
    };
    (ended, printed.map(|(_, text)| text))
}

/// One launch, as its threads share it.
struct Run<'k> {
    launch: &'k Launch<'k>,
    clusters: u64,
    /// The first cluster that nobody has taken.
    next: AtomicU64,
    done: &'k AtomicU64,
    /// Warp and thread instructions, bytes of bulk copies.
    executed: Mutex<(u64, u64, u64)>,
    /// Of the first cluster that faulted: its place in the order, warp and fault.
    fault: Mutex<Option<(u64, u32, WarpFault)>>,
    /// What each cluster has printed, by its place in the order.
    printed: Mutex<BTreeMap<u64, Vec<u8>>>,
    /// Threads that found memory to work with; one is enough.
    workers: AtomicU64,
}

impl Run<'_> {
    /// Runs clusters until there are no more.
    fn work(&self) {
        let Some(mut worker) = Worker::new(self.launch) else { return };
        self.workers.fetch_add(1, Relaxed);
        loop {
            // Its place in the order of the schedule.
            let place = self.next.fetch_add(1, Relaxed);
            if place >= self.clusters || place > self.launch.last.load(Relaxed) {
                break;
            }
            let ended = worker.run(self.launch.cluster_at(place, self.clusters), place);
            let text = worker.take_printed();
            if !text.is_empty() {
                let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
                printed.insert(place, text);
            }
            match ended {
                Ok(()) => {
                    self.done.fetch_add(self.launch.cluster.blocks() as u64, Relaxed);
                }
                Err(BlockError::Abandoned) => break,
                Err(BlockError::Fault { warp, fault }) => {
                    // Blocks before this one still run to their end, so that
                    // the fault reported does not depend on timing.
                    self.launch.last.fetch_min(place, Relaxed);
                    let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
                    // The budget is the launch's: that it ran out while this block was
                    // running says less than what another block did wrong.
                    let rank = |fault: &WarpFault, place| {
                        (matches!(fault.kind, FaultKind::BudgetExceeded { .. }), place)
                    };
                    if first
                        .as_ref()
                        .is_none_or(|(other, _, its)| rank(&fault, place) < rank(its, *other))
                    {
                        *first = Some((place, warp, fault));
                    }
                    break;
                }
            }
        }
        let executed = worker.executed();
        let mut total = self.executed.lock().unwrap_or_else(PoisonError::into_inner);
        total.0 += executed.warp;
        total.1 += executed.thread;
        total.2 += worker.bulk_bytes();
    }
}
