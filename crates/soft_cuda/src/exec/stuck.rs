//! What happens where no warp of a cluster can run.

use super::block::{BlockError, Worker};
use super::recorder::WarpFault;
use super::split::{Release, State};
use super::warp::Warp;
use crate::fault::{FaultKind, Waiting};

/// How often in a row a cluster that cannot go on ends its waits for mbarriers
/// without success before it counts as stuck.
const MAX_EXPIRIES: u32 = 64;

/// Warp instructions that a cluster executes without an end of any wait before those who wait are
/// looked at.
const PATIENCE: u64 = 1 << 20;

impl Worker<'_> {
    /// Lets splits that wait for an mbarrier look again if one has completed a
    /// phase.
    pub(super) fn retry_waits(&mut self) {
        if self.completions != self.cx.barriers.completions {
            self.completions = self.cx.barriers.completions;
            for warp in &mut self.warps {
                warp.end_waits(State::Ready);
            }
        }
    }

    /// Nobody can run: ends waits for mbarriers without success, as a GPU does
    /// after some time, in case their threads have something else to do.
    /// Returns whether that is worth trying.
    pub(super) fn expire_waits(&mut self) -> bool {
        if self.changes != self.cx.barriers.changes {
            self.changes = self.cx.barriers.changes;
            self.expiries = 0;
        }
        self.expiries += 1;
        let mut any = false;
        if self.expiries <= MAX_EXPIRIES {
            for warp in &mut self.warps {
                any |= warp.end_waits(State::Expired);
            }
        }
        any
    }

    /// Whether it is time to look for threads that may go on although they wait: nobody else can
    /// run, or those who run have for long, and may spin on what these would do.
    pub(super) fn stands_still(&mut self, progress: bool) -> bool {
        let now = (self.executed.warp, self.cx.barriers.changes);
        let unchanged = now.1 == self.rested.1;
        let still = !progress || unchanged && now.0 - self.rested.0 > PATIENCE;
        if still || !unchanged {
            self.rested = now;
        }
        still
    }

    /// Lets lanes go on that wait for others of their warp: while others run, those at collectives
    /// and those that have waited for long. Returns whether there were any.
    pub(super) fn give_way(&mut self, others_run: bool) -> Result<bool, BlockError> {
        if others_run {
            let any = self.release(Release::Long)?;
            self.warps.iter_mut().for_each(Warp::note_convergence);
            return Ok(any);
        }
        Ok(self.release(Release::Wanted)? || self.release(Release::Any)?)
    }

    fn release(&mut self, release: Release) -> Result<bool, BlockError> {
        let mut any = false;
        for warp in 0..self.warps.len() {
            self.enter(warp);
            let gave = self.warps[warp].give_way(self.launch.code, &mut self.cx, release);
            any |= gave.map_err(|fault| BlockError::Fault { warp: warp as u32, fault })?;
        }
        Ok(any)
    }

    /// Where the lanes of a warp stand, for messages.
    pub(super) fn waiting(&self, warp: usize) -> Vec<Waiting> {
        let own = self.launch.warps();
        let inner = (warp % own) as u32;
        let mut all = self.warps[warp].waiting(self.launch.code, &self.cx.barriers, inner);
        if self.blocks() > 1 {
            let rank = warp / own;
            all.iter_mut()
                .for_each(|one| one.reason += &format!(" in block {rank} of the cluster"));
        }
        all
    }

    /// Nobody can go on: says why.
    pub(super) fn stuck(&self) -> BlockError {
        let code = self.launch.code;
        let waiting = |w: usize| self.waiting(w);
        // Whoever waits for an mbarrier is not waited for by its warp's other lanes.
        let at_mbarrier = self.warps.iter().enumerate().find_map(|(w, warp)| {
            let split = warp.splits.iter().find(|s| matches!(s.state, State::Mbarrier(_)))?;
            Some((w, *split))
        });
        if let Some((warp, split)) = at_mbarrier {
            let all = (0..self.warps.len()).flat_map(waiting).collect();
            return self.fault(warp, split, FaultKind::Deadlock { waiting: all });
        }
        // A warp that waits at several places explains the others.
        let diverged = (0..self.warps.len()).find(|&w| waiting(w).len() > 1);
        let warp = diverged.or_else(|| (0..self.warps.len()).find(|&w| self.warps[w].live != 0));
        let warp = warp.unwrap_or(0);
        let aligned = self.warps[warp].splits.iter().find(|split| match split.state {
            State::Barrier(index) => code.barriers[index as usize].aligned,
            _ => split.state == State::Collective,
        });
        let kind = match (diverged, aligned) {
            (Some(_), Some(_)) => FaultKind::BarrierDivergence { waiting: waiting(warp) },
            _ => {
                let all: Vec<Waiting> = (0..self.warps.len()).flat_map(waiting).collect();
                FaultKind::Deadlock { waiting: all }
            }
        };
        let split = aligned.or(self.warps[warp].splits.first());
        match split {
            Some(&split) => self.fault(warp, split, kind),
            None => {
                BlockError::Fault { warp: warp as u32, fault: WarpFault { lane: 0, line: 0, kind } }
            }
        }
    }
}
