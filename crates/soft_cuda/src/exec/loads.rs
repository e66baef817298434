//! Loads from shared memory that have not been noted word by word.
//!
//! Most loads are never looked at again: a barrier comes before the next write. So a load is first
//! put on its warp's list, and noted in its words only when a write comes near it that might not
//! come after it.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use super::access::Part;
use super::chunks::set_of;
use super::machine::LANES;

/// The most loads of a segment, and segments of a list.
const LOADS: usize = 2048;
const SEGMENTS: usize = 16;
/// The most patterns that are told apart in a block.
const PATTERNS: usize = 64;
/// How many operations are remembered with the pattern of their last load.
const RECENT: usize = 256;

/// Where the lanes of a warp load from, relative to the first.
#[derive(Debug)]
struct Pattern {
    relative: [u32; LANES],
    /// The bytes from the lowest lane's offset to the first lane's, and from that to the highest
    /// lane's.
    before: u32,
    after: u32,
}

/// Loads by all lanes of a warp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Load {
    /// Of the first lane.
    offset: u32,
    pattern: u32,
    /// Number of what is loaded.
    what: u32,
}

/// What an operation loads: a number that no other operation of the kernel has, and its loads.
pub(crate) struct Loaded<P> {
    number: u64,
    parts: P,
}

impl Loaded<std::iter::Once<Part>> {
    /// The load at a PTX line of so many bytes.
    #[inline(always)]
    pub(crate) fn one(line: u32, bytes: u32) -> Self {
        let parts = std::iter::once(Part { offset: 0, bytes, line });
        Loaded { number: u64::from(line) << 8 | u64::from(bytes), parts }
    }
}

impl<P> Loaded<P> {
    /// Several loads, by the number of their operation.
    #[inline(always)]
    pub(crate) fn many(number: u32, parts: P) -> Self {
        Loaded { number: 1 << 63 | u64::from(number), parts }
    }

    /// Where it is among those that are remembered.
    #[inline(always)]
    fn recent(&self) -> usize {
        // By the golden ratio, since numbers are often multiples of each other.
        (self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % RECENT
    }
}

/// How many loads are remembered as of words that have been written.
const WRITTEN: usize = 1024;

/// The loads of an operation.
#[derive(Debug)]
struct Parts {
    all: Box<[Part]>,
    /// The bytes from a lane's offset to the end of the last load.
    bytes: u32,
}

/// An operation with the pattern of its last load.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    number: u64,
    what: u32,
    pattern: u32,
}

/// Loads of one warp at one time.
#[derive(Debug, Default)]
struct Segment {
    time: u32,
    loads: Vec<Load>,
    /// The chunks that they load from.
    chunks: u64,
}

/// The list of one warp: by time, the oldest first. The last one is added to.
type List = VecDeque<Segment>;

/// The lists of all warps.
#[derive(Debug)]
pub(crate) struct Loads {
    patterns: Vec<Pattern>,
    /// What operations load, and the place of each by its number.
    parts: Vec<Parts>,
    places: HashMap<u64, u32>,
    recent: [Recent; RECENT],
    /// Loads of words all of which have been written, by a hash.
    written: Vec<Option<Load>>,
    lists: Vec<List>,
    /// Empty ones, for their memory.
    spare: Vec<Segment>,
}

/// A load that may be put on a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed {
    load: Load,
    /// The bytes that the lanes load, and those between: the first, and how many.
    pub from: u32,
    pub span: u64,
}

impl Loads {
    pub(crate) fn new(warps: usize) -> Loads {
        let lists = (0..warps).map(|_| List::default()).collect();
        Loads {
            patterns: Vec::new(),
            parts: Vec::new(),
            places: HashMap::new(),
            recent: [Recent::default(); RECENT],
            written: vec![None; WRITTEN],
            lists,
            spare: Vec::new(),
        }
    }

    /// Forgets everything, for a new block.
    pub(crate) fn clear(&mut self) {
        self.written.fill(None);
        for warp in 0..self.lists.len() {
            while self.forget_oldest(warp) {}
        }
        if self.patterns.len() == PATTERNS {
            self.patterns.clear();
            self.recent = [Recent::default(); RECENT];
        }
    }

    /// Loads at each of `offsets`; `None` if there are too many patterns, or they wrap around.
    #[inline(always)]
    pub(crate) fn listed(
        &mut self,
        loaded: Loaded<impl Iterator<Item = Part>>,
        offsets: &[u32; LANES],
    ) -> Option<Listed> {
        let recent = self.recent[loaded.recent()];
        let known = recent.number == loaded.number;
        let Recent { what, pattern, .. } = match self.patterns.get(recent.pattern as usize) {
            Some(pattern) if known && pattern.fits(offsets) => recent,
            _ => self.intern(loaded, offsets)?,
        };
        let Pattern { before, after, .. } = self.patterns[pattern as usize];
        let from = offsets[0].checked_sub(before)?;
        let bytes = self.parts[what as usize].bytes;
        let span = u64::from(before) + u64::from(after) + u64::from(bytes);
        Some(Listed { load: Load { offset: offsets[0], pattern, what }, from, span })
    }

    #[inline(never)]
    fn intern(
        &mut self,
        loaded: Loaded<impl Iterator<Item = Part>>,
        offsets: &[u32; LANES],
    ) -> Option<Recent> {
        let found = self.patterns.iter().position(|pattern| pattern.fits(offsets));
        let pattern = match found {
            Some(found) => found,
            None if self.patterns.len() == PATTERNS => return None,
            None => {
                self.patterns.push(Pattern::of(offsets));
                self.patterns.len() - 1
            }
        } as u32;
        let (at, number, parts) = (loaded.recent(), loaded.number, &mut self.parts);
        let what = *self.places.entry(number).or_insert_with(|| {
            let all: Box<[Part]> = loaded.parts.collect();
            let bytes = all.iter().map(|part| part.offset + part.bytes).max().unwrap_or(0);
            parts.push(Parts { all, bytes });
            (parts.len() - 1) as u32
        });
        self.recent[at] = Recent { number, what, pattern };
        Some(self.recent[at])
    }

    /// Whether `look` finds all words that are loaded to have been written. That stays so.
    #[inline(always)]
    pub(crate) fn are_written(&mut self, listed: &Listed, look: impl Fn(&Part) -> bool) -> bool {
        let load = listed.load;
        let hash = (load.offset / 4) ^ (load.pattern << 5) ^ (load.what << 3);
        let at = hash as usize % WRITTEN;
        if self.written[at] == Some(load) {
            return true;
        }
        let written = self.parts[load.what as usize].all.iter().all(look);
        if written {
            self.written[at] = Some(load);
        }
        written
    }

    /// Whether a load at `time` can be put on the list of `warp`.
    #[inline(always)]
    pub(crate) fn has_room(&self, warp: usize, time: u32) -> bool {
        let last = self.lists[warp].back();
        last.is_some_and(|last| last.time == time && last.loads.len() < LOADS)
    }

    /// The time of the oldest loads on the list of `warp`.
    pub(crate) fn oldest(&self, warp: usize) -> Option<u32> {
        self.lists[warp].front().map(|segment| segment.time)
    }

    /// Whether no more segments can be put on the list of `warp`.
    pub(crate) fn is_full(&self, warp: usize) -> bool {
        self.lists[warp].len() == SEGMENTS
    }

    /// Puts a segment for loads at `time` on the list of `warp`, which is not full.
    pub(crate) fn begin(&mut self, warp: usize, time: u32) {
        let segment = self.spare.pop().unwrap_or_default();
        self.lists[warp].push_back(Segment { time, ..segment });
    }

    /// Puts a load from `chunks` on the list of `warp`, which has room.
    #[inline(always)]
    pub(crate) fn push(&mut self, warp: usize, listed: Listed, chunks: Range<usize>) {
        if let Some(segment) = self.lists[warp].back_mut() {
            segment.chunks |= set_of(chunks);
            segment.loads.push(listed.load);
        }
    }

    /// Whether the list of `warp` has loads after `time` from any of `chunks`.
    #[inline(always)]
    pub(crate) fn has_near(&self, warp: usize, chunks: u64, time: u32) -> bool {
        self.lists[warp].iter().any(|of| of.chunks & chunks != 0 && of.time > time)
    }

    /// Whether the list of `warp` has loads after `time` from any of `bytes`, which are in
    /// `chunks`.
    #[inline(always)]
    pub(crate) fn has(&self, warp: usize, (chunks, bytes): (u64, &Range<u64>), time: u32) -> bool {
        let near = |load: &Load| {
            let Pattern { before, after, .. } = self.patterns[load.pattern as usize];
            let (lane, all) = (u64::from(load.offset), self.parts[load.what as usize].bytes);
            let end = lane + u64::from(after) + u64::from(all);
            lane - u64::from(before) < bytes.end && bytes.start < end
        };
        let mut segments = self.lists[warp].iter();
        segments.any(|of| of.chunks & chunks != 0 && of.time > time && of.loads.iter().any(near))
    }

    /// Takes the oldest segment from the list of `warp`. Calls `note` with the time, the line, the
    /// bytes, and the offset of each lane of every load.
    pub(crate) fn take_oldest(
        &mut self,
        warp: usize,
        mut note: impl FnMut(u32, u32, u32, &[u32; LANES]),
    ) {
        if let Some(Segment { time, loads, .. }) = self.lists[warp].front() {
            for &Load { offset, pattern, what } in loads {
                let relative = &self.patterns[pattern as usize].relative;
                for part in &self.parts[what as usize].all {
                    let from = offset.wrapping_add(part.offset);
                    let offsets = relative.map(|lane| lane.wrapping_add(from));
                    note(*time, part.line, part.bytes, &offsets);
                }
            }
        }
        self.forget_oldest(warp);
    }

    /// Takes the oldest segment from the list of `warp`. Returns `false` if there is none.
    pub(crate) fn forget_oldest(&mut self, warp: usize) -> bool {
        let Some(mut segment) = self.lists[warp].pop_front() else { return false };
        segment.loads.clear();
        segment.chunks = 0;
        self.spare.push(segment);
        true
    }
}

impl Pattern {
    fn of(offsets: &[u32; LANES]) -> Pattern {
        let first = offsets[0];
        let lowest = offsets.iter().copied().min().unwrap_or(first);
        let highest = offsets.iter().copied().max().unwrap_or(first);
        let relative = offsets.map(|offset| offset.wrapping_sub(first));
        Pattern { relative, before: first - lowest, after: highest - first }
    }

    #[inline(always)]
    fn fits(&self, offsets: &[u32; LANES]) -> bool {
        let mut differ = 0;
        for (offset, relative) in offsets.iter().zip(&self.relative) {
            differ |= offset.wrapping_sub(offsets[0]) ^ relative;
        }
        differ == 0
    }
}
