//! Who read each word of shared memory last.

use std::ops::Range;

use super::knowledge::Knowledge;
use super::machine::bits;

/// The last read of each word by the lanes of one warp.
#[derive(Debug)]
pub(super) struct Reads {
    pub(super) times: Vec<u32>,
    pub(super) lanes: Vec<u32>,
    /// PTX lines.
    pub(super) lines: Vec<u32>,
    /// The latest of `times`.
    pub(super) latest: u32,
}

impl Reads {
    pub(super) fn new(words: usize) -> Reads {
        Reads { times: vec![0; words], lanes: vec![0; words], lines: vec![0; words], latest: 0 }
    }

    /// Notes a read of words by lanes at `now`, if that is the last one.
    #[inline(always)]
    pub(super) fn note(&mut self, now: u32, words: Range<usize>, group: u32, line: u32) {
        self.latest = self.latest.max(now);
        let Reads { times, lanes, lines, .. } = self;
        for ((time, lanes), old) in
            times[words.clone()].iter_mut().zip(&mut lanes[words.clone()]).zip(&mut lines[words])
        {
            if *time <= now {
                *lanes = group | if *time == now { *lanes } else { 0 };
                *time = now;
                *old = line;
            }
        }
    }

    /// A lane that read a word since `base` and that a lane of `warp` does not come after. `agent` is
    /// what stands for its reads.
    pub(super) fn unknown(
        &self,
        known: &Knowledge,
        (warp, lane): (usize, usize),
        (word, base): (usize, u32),
        agent: impl Fn(usize) -> usize,
    ) -> Option<usize> {
        let time = self.times[word].checked_sub(base).filter(|&time| time != 0)?;
        bits(self.lanes[word]).find(|&reader| !known.knows(warp, lane, agent(reader), time))
    }
}
