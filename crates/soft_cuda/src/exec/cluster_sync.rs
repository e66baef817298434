//! The barrier of a cluster, and what is checked when one of its blocks exits.

use super::block::{BlockError, Worker};
use super::cluster::ClusterBarrier;
use super::code::{Barrier, BarrierKind};
use super::machine::LANES;
use super::recorder::WarpFault;
use super::split::{Split, State};
use crate::fault::FaultKind;

impl Worker<'_> {
    /// The splits at the cluster's barrier: warp, place there, and where they are.
    fn at_cluster_barrier(&self) -> Vec<(usize, usize, Split, Barrier)> {
        let mut all = Vec::new();
        for (w, warp) in self.warps.iter().enumerate() {
            for (s, split) in warp.splits.iter().enumerate() {
                let State::Barrier(index) = split.state else { continue };
                let barrier = &self.launch.code.barriers[index as usize];
                if !barrier.kind.is_of_cluster() {
                    continue;
                }
                all.push((w, s, *split, *barrier));
            }
        }
        all
    }

    /// Lets threads at the cluster's barrier go on that arrive there, and those that wait, once all
    /// threads of the cluster that have not exited have arrived. Returns whether there were any.
    pub(super) fn complete_cluster_barrier(&mut self) -> Result<bool, BlockError> {
        let here = self.at_cluster_barrier();
        if here.is_empty() {
            return Ok(false);
        }
        let mut any = false;
        // From the back, so that removing one split moves none that is still to come.
        for &(w, s, split, Barrier { kind, aligned, next, .. }) in here.iter().rev() {
            let together = here.iter().filter(|other| other.0 == w && other.2.pc == split.pc);
            let together = together.fold(0, |all, other| all | other.2.mask);
            let apart = aligned && together != self.warps[w].live;
            if apart && self.warps[w].ready() {
                // The other lanes may still come.
                continue;
            }
            let barrier = &mut self.cluster;
            let (arrived, passed) = (barrier.arrived[w], barrier.passed[w]);
            let bad = |reason: &str| FaultKind::BadBarrier { reason: reason.to_owned() };
            match kind {
                BarrierKind::ClusterWait if split.mask & !(arrived | passed) != 0 => {
                    let kind =
                        bad("a thread waits at the barrier of the cluster, and has not arrived");
                    return Err(self.fault(w, split, kind));
                }
                BarrierKind::ClusterWait if split.mask & !passed == 0 => {
                    barrier.passed[w] &= !split.mask;
                    self.cx.order.acquire(w, &barrier.complete.0);
                    if let Some(checker) = &mut self.cx.checker {
                        checker.known.acquire(w, split.mask, &barrier.complete.1);
                    }
                }
                BarrierKind::ClusterWait => continue,
                _ if split.mask & (arrived | passed) != 0 => {
                    let kind = bad(
                        "a thread arrives a second time at the barrier of the cluster, and has not waited",
                    );
                    return Err(self.fault(w, split, kind));
                }
                arrive => {
                    barrier.arrived[w] |= split.mask;
                    if arrive == BarrierKind::ClusterArrive {
                        self.cx.order.release(w, &mut barrier.arriving.0);
                        if let Some(checker) = &mut self.cx.checker {
                            checker.known.release(w, split.mask, &mut barrier.arriving.1);
                        }
                    }
                }
            }
            if apart {
                let waiting = self.waiting(w);
                return Err(self.fault(w, split, FaultKind::BarrierDivergence { waiting }));
            }
            self.warps[w].resume(s, next);
            any = true;
        }
        let all = |barrier: &ClusterBarrier| {
            self.warps.iter().zip(&barrier.arrived).all(|(warp, arrived)| warp.live & !arrived == 0)
        };
        if !any && all(&self.cluster) {
            let barrier = &mut self.cluster;
            for (passed, arrived) in barrier.passed.iter_mut().zip(&mut barrier.arrived) {
                *passed |= std::mem::take(arrived);
            }
            barrier.complete = std::mem::take(&mut barrier.arriving);
            self.expiries = 0;
            return Ok(true);
        }
        Ok(any)
    }

    /// All threads of `warp` have exited. If its block has none left: fails unless what other
    /// blocks did with its shared memory came before.
    pub(super) fn note_exit(&mut self, warp: usize) -> Result<(), BlockError> {
        let rank = warp / self.launch.warps();
        let warps = self.warps_of(rank);
        if self.cx.exited >> rank & 1 != 0 || self.warps[warps.clone()].iter().any(|w| w.live != 0)
        {
            return Ok(());
        }
        self.cx.exited |= 1 << rank;
        let Some(checker) = self.cx.checker.as_ref().filter(|_| self.cx.checks.races) else {
            return Ok(());
        };
        for (thread, line, kind) in checker.remote.not_before(rank as u32, |agent, time| {
            let lanes = |w: usize| (0..LANES).map(move |lane| (w, lane));
            warps.clone().flat_map(lanes).any(|(w, lane)| checker.known.knows(w, lane, agent, time))
        }) {
            let (warp, lane) = (thread.0 as u32, thread.1 as u32);
            let taken = self.cx.recorder.take(self.cx.place, warp, WarpFault { lane, line, kind });
            taken.map_err(|fault| BlockError::Fault { warp, fault })?;
        }
        Ok(())
    }
}
