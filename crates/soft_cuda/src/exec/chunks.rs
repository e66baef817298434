//! Which parts of shared memory a warp may load from without a look at each word.
//!
//! Shared memory is divided into at most [`CHUNKS`] chunks. A chunk has a version, which every
//! write changes. Once a warp has found that all of its lanes come after all writes of a chunk,
//! that holds until the next one: what a warp knows only grows.

use std::ops::Range;

/// The most chunks.
pub(crate) const CHUNKS: usize = 64;
/// The fewest words of a chunk, as a logarithm.
const LEAST: u32 = 6;

/// What a warp has found out about a chunk.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    version: u32,
    /// The time of the warp.
    now: u32,
    state: State,
}

/// What is known of the words of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// Nothing, or some were written by whom not all lanes come after.
    #[default]
    Unknown,
    /// The lanes come after all writes, but not all words have been written.
    Partial,
    /// The lanes come after all writes, and all words have been written.
    Whole,
}

#[derive(Debug)]
pub(crate) struct Chunks {
    /// Logarithm of the words of a chunk.
    shift: u32,
    words: usize,
    versions: [u32; CHUNKS],
    /// By warp.
    found: Vec<[Found; CHUNKS]>,
}

impl Chunks {
    pub(crate) fn new(words: usize, warps: usize) -> Chunks {
        let shift = words.div_ceil(CHUNKS).next_power_of_two().trailing_zeros().max(LEAST);
        let found = vec![[Found::default(); CHUNKS]; warps];
        Chunks { shift, words, versions: [1; CHUNKS], found }
    }

    /// Nothing is known any more.
    pub(crate) fn clear(&mut self) {
        self.versions.iter_mut().for_each(|version| *version += 1);
    }

    /// The chunks of words, of which there is one at least.
    #[inline(always)]
    pub(crate) fn of(&self, words: Range<usize>) -> Range<usize> {
        words.start >> self.shift..((words.end - 1) >> self.shift) + 1
    }

    /// The chunks of words, of which there may be none, as bits.
    #[inline(always)]
    pub(crate) fn set(&self, words: Range<usize>) -> u64 {
        if words.is_empty() { 0 } else { set_of(self.of(words)) }
    }

    /// The words of a chunk.
    #[inline(always)]
    fn words(&self, chunk: usize) -> Range<usize> {
        chunk << self.shift..((chunk + 1) << self.shift).min(self.words)
    }

    /// A word is written.
    #[inline(always)]
    pub(crate) fn write(&mut self, word: usize) {
        self.versions[word >> self.shift] += 1;
    }

    /// Words are written, of which there is one at least.
    #[inline(always)]
    pub(crate) fn write_all(&mut self, words: Range<usize>) {
        for chunk in self.of(words) {
            self.versions[chunk] += 1;
        }
    }

    /// What holds of all `chunks` for the lanes of `warp` at its time `now`; `look` finds it out
    /// for the words of one.
    #[inline(always)]
    pub(crate) fn state(
        &mut self,
        warp: usize,
        chunks: Range<usize>,
        now: u32,
        look: impl Fn(Range<usize>) -> State,
    ) -> State {
        let mut state = State::Whole;
        for chunk in chunks {
            let (version, found) = (self.versions[chunk], self.found[warp][chunk]);
            let known =
                found.version == version && (found.state != State::Unknown || found.now == now);
            let here = match known {
                true => found.state,
                false => {
                    let state = look(self.words(chunk));
                    self.found[warp][chunk] = Found { version, now, state };
                    state
                }
            };
            if here == State::Unknown {
                return State::Unknown;
            }
            if here == State::Partial {
                state = State::Partial;
            }
        }
        state
    }
}

/// The set of chunks that are in a range, as bits.
#[inline(always)]
pub(crate) fn set_of(chunks: Range<usize>) -> u64 {
    (u64::MAX >> (CHUNKS - chunks.len())) << chunks.start
}
