//! One launch: workers take its blocks until there are no more.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rayon::ThreadPool;

use crate::exec::block::{BlockError, Launch, Worker};
use crate::exec::warp::WarpFault;
use crate::fault::{FaultKind, InvalidLaunch, LaunchError};
use crate::kernel::Kernel;

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

/// Runs all `blocks` of `launch`, on the threads of `pool` if there is one, and counts in `done`
/// those that have finished.
pub(crate) fn run(
    kernel: &Kernel,
    launch: &Launch<'_>,
    blocks: u64,
    done: &AtomicU64,
    pool: Option<&ThreadPool>,
) -> Result<LaunchReport, LaunchError> {
    let run = Run {
        launch,
        blocks,
        next: AtomicU64::new(0),
        done,
        executed: Mutex::new((0, 0, 0)),
        fault: Mutex::new(None),
        workers: AtomicU64::new(0),
    };
    match pool {
        Some(pool) => {
            pool.broadcast(|_| run.work());
        }
        None => run.work(),
    }
    if run.workers.load(Relaxed) == 0 {
        let reason = InvalidLaunch::ThreadState { bytes: launch.state_bytes() };
        return Err(LaunchError::Invalid { kernel: kernel.name().to_owned(), reason });
    }
    let fault = run.fault.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((place, warp, fault)) = fault {
        let block = launch.block_at(place, blocks);
        return Err(LaunchError::Fault(Box::new(kernel.fault(launch, block, warp, fault))));
    }
    let (warp_instructions, thread_instructions, bulk_bytes) =
        run.executed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let elapsed = launch.started.elapsed();
    Ok(LaunchReport { warp_instructions, thread_instructions, bulk_bytes, elapsed })
}

/// One launch, as its threads share it.
struct Run<'k> {
    launch: &'k Launch<'k>,
    blocks: u64,
    /// The first block that nobody has taken.
    next: AtomicU64,
    done: &'k AtomicU64,
    /// Warp and thread instructions, bytes of bulk copies.
    executed: Mutex<(u64, u64, u64)>,
    /// Of the first block that faulted: its place in the order, warp and fault.
    fault: Mutex<Option<(u64, u32, WarpFault)>>,
    /// Threads that found memory to work with; one is enough.
    workers: AtomicU64,
}

impl Run<'_> {
    /// Runs blocks until there are no more.
    fn work(&self) {
        let Some(mut worker) = Worker::new(self.launch) else { return };
        self.workers.fetch_add(1, Relaxed);
        loop {
            // Its place in the order of the schedule.
            let place = self.next.fetch_add(1, Relaxed);
            if place >= self.blocks || place > self.launch.last.load(Relaxed) {
                break;
            }
            match worker.run(self.launch.block_at(place, self.blocks), place) {
                Ok(()) => {
                    self.done.fetch_add(1, Relaxed);
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
