//! What of the last accesses of shared memory asynchronous accesses see, and what they must come
//! after.

use super::access::{EarlierAccess, KINDS, Site};
use super::knowledge::Knowledge;
use super::machine::{LANES, bits};
use super::reads::Reads;
use super::shadow::Shadow;
use crate::fault::Access;

impl Shadow {
    /// A write, or, if `reads`, a read of a word of `site.bytes` bytes at `offset` by a thread or
    /// its `cp.async` that an asynchronous access by a lane does not see, or may come before.
    pub(super) fn proxied(
        &self,
        known: &Knowledge,
        lane: (usize, usize),
        site: Site,
        (block, offset): (usize, u32),
        reads: bool,
    ) -> Option<EarlierAccess> {
        let threads = known.agents.mbarrier(0);
        self.words(offset, site.bytes).find_map(|word| {
            let (time, write) = (self.written[word], self.writes[word]);
            let agent = usize::from(write.agent);
            if time > self.base
                && agent < threads
                && !known.sees(lane, block, agent, time - self.base)
            {
                return Some(self.earlier(known, word));
            }
            let noted = |(_, of): &(usize, &Reads)| reads && of.latest > self.base;
            self.reads.iter().enumerate().filter(noted).find_map(|(other, reads)| {
                let (time, line) = (reads.times[word], reads.lines[word]);
                let mut agents = bits(reads.lanes[word]).map(|reader| other * LANES + reader);
                let unseen = (time > self.base)
                    .then(|| agents.find(|&a| !known.sees(lane, block, a, time - self.base)));
                let (agent, access) = (unseen.flatten()?, Access::Load);
                Some(EarlierAccess { block: known.cluster, agent, line, access })
            })
        })
    }

    /// The last write of a word.
    fn earlier(&self, known: &Knowledge, word: usize) -> EarlierAccess {
        let write = self.writes[word];
        let access = KINDS[usize::from(write.kind)].access();
        EarlierAccess { block: known.cluster, agent: write.agent.into(), line: write.line, access }
    }

    /// What stands for the last writes of some bytes: it changes when they are written again.
    pub(super) fn writes_of(&self, offset: u32, bytes: u32) -> u64 {
        let words = self.words(offset, bytes);
        words.fold(0, |sum: u64, word| {
            let write = u64::from(self.written[word]) << 32 | u64::from(self.writes[word].line);
            sum.wrapping_mul(31).wrapping_add(write)
        })
    }

    /// The last write of some bytes.
    pub(super) fn last_write(
        &self,
        known: &Knowledge,
        offset: u32,
        bytes: u32,
    ) -> Option<EarlierAccess> {
        let last = self.words(offset, bytes).max_by_key(|&word| self.written[word])?;
        Some(self.earlier(known, last))
    }
}
