//! The checks of asynchronous accesses of shared memory: of bulk copies and of `wgmma`. They go
//! through the async proxy: what threads wrote they see behind a `fence.proxy.async`.

use super::access::{AccessKind, Conflict, EarlierAccess, Site};
use super::checker::Checker;
use super::machine::LANES;
use super::op::{Cx, Handler, Op};
use crate::fault::FaultKind;

/// Bytes of a chunk of a tile that `wgmma` reads.
const CHUNK: u32 = 16;

impl Checker<'_> {
    /// A lane starts a bulk copy from the cluster's shared memory, which reads there what it may
    /// read. `barrier` is the number of the mbarrier, and its phase, that says when it is complete;
    /// `None` if it goes to device memory.
    pub(crate) fn read_bulk(
        &mut self,
        (warp, lane): (usize, usize),
        line: u32,
        (offset, bytes): (u32, u32),
        barrier: Option<(usize, u32)>,
    ) -> Result<(), FaultKind> {
        if self.launch.checks.races {
            let place = (offset, bytes);
            match barrier {
                Some((index, phase)) => self.shared.note_copied(index, place, phase, line),
                None => {
                    let number = self.known.stores_now(warp);
                    self.shared.note_stored((warp, lane), place, number, line);
                }
            }
        }
        let site = Site { line, kind: AccessKind::AsyncLoad, bytes };
        self.proxied((warp, lane), site, offset, false)?;
        let offsets = [offset; LANES];
        self.shared((warp, 1 << lane), site, &offsets, |_, _| false).map_err(|(_, kind)| kind)
    }

    /// A warp starts to read chunks of tiles, or reads them until now.
    pub(crate) fn read_tiles(
        &mut self,
        warp: usize,
        line: u32,
        chunks: &[u32],
    ) -> Result<(), (u32, FaultKind)> {
        let site = Site { line, kind: AccessKind::AsyncLoad, bytes: CHUNK };
        for some in chunks.chunks(LANES) {
            let offsets = std::array::from_fn(|lane| some.get(lane).copied().unwrap_or(some[0]));
            self.shared((warp, u32::MAX), site, &offsets, |_, _| false)?;
        }
        for &chunk in chunks {
            self.proxied((warp, 0), site, chunk, false).map_err(|kind| (0, kind))?;
        }
        Ok(())
    }

    /// Fails if there is something that a lane's asynchronous access may not see, since no
    /// `fence.proxy.async` came behind it: writes, and, where the access overwrites it, reads.
    pub(crate) fn proxied(
        &self,
        (warp, lane): (usize, usize),
        site: Site,
        offset: u32,
        reads: bool,
    ) -> Result<(), FaultKind> {
        let checks = self.checks();
        if !checks.races {
            return Ok(());
        }
        let reads = reads && checks.proxies;
        let place = (offset.checked_div(self.stride).unwrap_or(0) as usize, offset);
        match self.shared.proxied(&self.known, (warp, lane), site, place, reads) {
            None => Ok(()),
            Some(earlier) => Err(self.unfenced(earlier, site, offset)),
        }
    }

    #[cold]
    fn unfenced(&self, earlier: EarlierAccess, site: Site, offset: u32) -> FaultKind {
        match self.shared_fault(Conflict::Race(earlier), site, offset) {
            FaultKind::DataRace { address, place, access, earlier, .. } => {
                FaultKind::MissingProxyFence { address, place, access, earlier }
            }
            other => other,
        }
    }

    /// What stands for the last writes of chunks: it changes where one is written again.
    pub(crate) fn writes_of(&self, chunks: &[u32]) -> Vec<u64> {
        chunks.iter().map(|&chunk| self.shared.writes_of(chunk, CHUNK)).collect()
    }

    /// Fails if one of `chunks` was written since [`writes_of`](Checker::writes_of) said `before`.
    pub(crate) fn overwritten(
        &self,
        line: u32,
        chunks: &[u32],
        before: &[u64],
    ) -> Result<(), FaultKind> {
        let site = Site { line, kind: AccessKind::AsyncLoad, bytes: CHUNK };
        for (&chunk, &before) in chunks.iter().zip(before) {
            if self.checks().races
                && self.shared.writes_of(chunk, CHUNK) != before
                && let Some(earlier) = self.shared.last_write(&self.known, chunk, CHUNK)
            {
                return Err(self.shared_fault(Conflict::Race(earlier), site, chunk));
            }
        }
        Ok(())
    }
}

/// `fence.proxy.async`: what the lanes know is known to asynchronous accesses behind it, of the
/// block's own shared memory alone if `OWN`.
pub(crate) struct ProxyFence<const OWN: bool>;

// SAFETY: touches no slot.
unsafe impl<const OWN: bool> Handler for ProxyFence<OWN> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, _op: &Op) -> bool {
        if let Some(checker) = &mut cx.checker {
            checker.known.fence_proxy(cx.warp, cx.mask, OWN);
        }
        false
    }
}
