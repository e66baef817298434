//! Who read each word of shared memory last.

use std::ops::Range;

use super::knowledge::Knowledge;
use super::machine::bits;

/// The last read of each word by the lanes of one warp.
#[derive(Debug)]
pub(super) struct Reads {
    words: usize,
    /// Empty as long as the warp has read nothing, as are the others: most have no reads of most
    /// kinds.
    pub(super) times: Vec<u32>,
    pub(super) lanes: Vec<u32>,
    /// PTX lines.
    pub(super) lines: Vec<u32>,
    /// The latest of `times`.
    pub(super) latest: u32,
}

impl Reads {
    pub(super) fn new(words: usize) -> Reads {
        Reads { words, times: Vec::new(), lanes: Vec::new(), lines: Vec::new(), latest: 0 }
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.times.fill(0);
        self.latest = 0;
    }

    /// Whether one of `words` has been read after `time`.
    #[inline(always)]
    pub(super) fn after(&self, time: u32, words: Range<usize>) -> bool {
        // Without a way out of the loop, which takes several words at a time then.
        self.latest > time && self.times[words].iter().fold(false, |any, &read| any | (read > time))
    }

    /// Notes a read of words by lanes at `now`, if that is the last one.
    #[inline(always)]
    pub(super) fn note(&mut self, now: u32, words: Range<usize>, group: u32, line: u32) {
        self.latest = self.latest.max(now);
        if self.times.is_empty() {
            self.allocate();
        }
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

    #[cold]
    fn allocate(&mut self) {
        for list in [&mut self.times, &mut self.lanes, &mut self.lines] {
            *list = vec![0; self.words];
        }
    }

    /// A lane that read a word since `base` and that a lane of `warp` does not come after. `agent`
    /// is what stands for its reads.
    pub(super) fn unknown(
        &self,
        known: &Knowledge,
        (warp, lane): (usize, usize),
        (word, base): (usize, u32),
        agent: impl Fn(usize) -> usize,
    ) -> Option<usize> {
        if self.latest <= base {
            return None;
        }
        let time = self.times[word].checked_sub(base).filter(|&time| time != 0)?;
        bits(self.lanes[word]).find(|&reader| !known.knows(warp, lane, agent(reader), time))
    }
}
