//! Loads from device memory that have not been noted word by word.
//!
//! Most of what kernels load nobody writes in the same launch. So loads are put on a log, in which
//! those that an instruction repeats in two loops, at constant distances, are one record. They are
//! noted in their words only when something writes to the allocation.

use std::sync::Arc;

use super::access::Site;
use super::machine::LANES;

/// Instructions that have runs of their own at the same time.
const SLOTS: usize = 128;
/// How many patterns are remembered, for other records to share.
const PATTERNS: usize = 16;

/// Which lanes of a warp load, and where, relative to the first of them.
/// On lines of the cache, as its arrays are compared with vectors.
#[derive(Debug)]
#[repr(align(64))]
struct Pattern {
    mask: u32,
    /// All bits for those lanes.
    active: [u64; LANES],
    relative: [u64; LANES],
}

/// What repeats: how often, and from one time to the next the bytes and the warp's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loop {
    count: u32,
    bytes: u64,
    later: u32,
}

impl Loop {
    const ONCE: Loop = Loop { count: 1, bytes: 0, later: 0 };

    /// Goes on with an offset and a time, if that fits behind those at `from`.
    #[inline(always)]
    fn extend(&mut self, from: (u64, u32), to: (u64, u32)) -> bool {
        let next =
            Loop { count: 2, bytes: to.0.wrapping_sub(from.0), later: to.1.wrapping_sub(from.1) };
        let Loop { count, bytes, later } = *self;
        if count == 1 {
            // What is loaded again at the same time is there already.
            if next.bytes != 0 || next.later != 0 {
                *self = next;
            }
            return true;
        }
        let fits = next.bytes == bytes.wrapping_mul(count.into())
            && next.later == later.wrapping_mul(count);
        self.count += u32::from(fits);
        fits
    }
}

/// Loads of one instruction by one warp.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pattern: Arc<Pattern>,
    pub site: Site,
    /// The index of the block, and the warp's first thread there.
    pub block: u64,
    pub thread: usize,
    /// Number of the warp in its cluster.
    pub warp: usize,
    /// The first offset of the first lane, and the time.
    from: (u64, u32),
    inner: Loop,
    outer: Loop,
}

impl Record {
    /// Calls `f` with the time, the lanes, and the offset of each, of every load.
    pub(super) fn each(&self, mut f: impl FnMut(u32, u32, &[u64; LANES])) {
        let Pattern { mask, relative, .. } = &*self.pattern;
        for outer in 0..self.outer.count {
            for inner in 0..self.inner.count {
                let at =
                    |of: Loop, n: u32| (of.bytes.wrapping_mul(n.into()), of.later.wrapping_mul(n));
                let (a, b) = (at(self.outer, outer), at(self.inner, inner));
                let offset = self.from.0.wrapping_add(a.0).wrapping_add(b.0);
                let time = self.from.1.wrapping_add(a.1).wrapping_add(b.1);
                f(time, *mask, &relative.map(|lane| lane.wrapping_add(offset)));
            }
        }
    }

    /// Goes on with the loads of `next`, if they are the same at some distance.
    fn extend(&mut self, next: &Record) -> bool {
        Arc::ptr_eq(&self.pattern, &next.pattern)
            && self.site == next.site
            && self.inner == next.inner
            && self.outer.extend(self.from, next.from)
    }
}

/// What an instruction does in one warp.
#[derive(Debug)]
struct Open {
    /// Number of the allocation.
    index: usize,
    /// Loops that are complete.
    whole: Option<Record>,
    /// The one that goes on.
    run: Record,
}

impl Open {
    /// Ends the run. Returns what it does not go on.
    fn end_run(&mut self) -> Option<Record> {
        if let Some(whole) = &mut self.whole
            && whole.extend(&self.run)
        {
            return None;
        }
        self.whole.replace(self.run.clone())
    }
}

/// The log of a cluster, as long as it runs.
pub(super) struct ReadLog {
    /// By warp and instruction.
    open: Vec<Option<Open>>,
    /// The places of those that there are.
    used: Vec<usize>,
    /// By allocation: whether there are loads from it.
    loaded: Vec<bool>,
    /// Records that are complete, with the numbers of their allocations.
    done: Vec<(usize, Record)>,
    /// Those of records that began last.
    patterns: Vec<Arc<Pattern>>,
}

impl ReadLog {
    pub(super) fn new(warps: usize, allocations: usize) -> ReadLog {
        let open = (0..warps * SLOTS).map(|_| None).collect();
        let loaded = vec![false; allocations];
        ReadLog { open, used: Vec::new(), loaded, done: Vec::new(), patterns: Vec::new() }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        for at in std::mem::take(&mut self.used) {
            self.open[at] = None;
        }
        self.loaded.fill(false);
        self.done.clear();
    }

    /// Whether there are so many records that they belong where those of all clusters are, whose
    /// number is bounded: those of a gather repeat nothing.
    #[inline(always)]
    pub(super) fn is_long(&self) -> bool {
        const LONG: usize = 1 << 12;
        self.done.len() >= LONG
    }

    /// Whether there are loads from an allocation.
    #[inline(always)]
    pub(super) fn has(&self, index: usize) -> bool {
        self.loaded[index]
    }

    /// Notes loads from allocation number `index`, at `offsets`, by the lanes `mask` of a warp of
    /// the block `place`, by instruction number `number`.
    #[inline(always)]
    pub(super) fn note(
        &mut self,
        index: usize,
        (number, site): (u32, Site),
        ((warp, mask), place): ((usize, u32), (u64, usize)),
        (now, offsets): (u32, &[u64; LANES]),
    ) {
        let at = warp * SLOTS + number as usize % SLOTS;
        let first = offsets[mask.trailing_zeros() as usize];
        if let Some(open) = &mut self.open[at]
            && open.index == index
            && open.run.site == site
            && open.run.pattern.fits((mask, first), offsets)
        {
            if open.run.inner.extend(open.run.from, (first, now)) {
                return;
            }
            self.done.extend(open.end_run().map(|record| (index, record)));
            (open.run.from, open.run.inner) = ((first, now), Loop::ONCE);
            return;
        }
        self.begin(at, index, site, ((warp, mask), place), (now, offsets));
    }

    #[inline(never)]
    fn begin(
        &mut self,
        at: usize,
        index: usize,
        site: Site,
        ((warp, mask), (block, thread)): ((usize, u32), (u64, usize)),
        (now, offsets): (u32, &[u64; LANES]),
    ) {
        match self.open[at] {
            Some(_) => self.close(at),
            None => self.used.push(at),
        }
        let first = offsets[mask.trailing_zeros() as usize];
        let run = Record {
            pattern: self.pattern((mask, first), offsets),
            site,
            block,
            thread,
            warp,
            from: (first, now),
            inner: Loop::ONCE,
            outer: Loop::ONCE,
        };
        self.loaded[index] = true;
        self.open[at] = Some(Open { index, whole: None, run });
    }

    fn pattern(&mut self, lanes: (u32, u64), offsets: &[u64; LANES]) -> Arc<Pattern> {
        if let Some(found) = self.patterns.iter().find(|pattern| pattern.fits(lanes, offsets)) {
            return found.clone();
        }
        if self.patterns.len() == PATTERNS {
            self.patterns.clear();
        }
        let new = Arc::new(Pattern::of(lanes, offsets));
        self.patterns.push(new.clone());
        new
    }

    /// Completes the records at a place.
    fn close(&mut self, at: usize) {
        let Some(mut open) = self.open[at].take() else { return };
        let records = [open.end_run(), open.whole];
        self.done.extend(records.into_iter().flatten().map(|record| (open.index, record)));
    }

    /// Takes all records, with the numbers of their allocations.
    pub(super) fn take(&mut self) -> Vec<(usize, Record)> {
        for at in std::mem::take(&mut self.used) {
            self.close(at);
        }
        self.loaded.fill(false);
        std::mem::take(&mut self.done)
    }
}

impl Pattern {
    fn of((mask, first): (u32, u64), offsets: &[u64; LANES]) -> Pattern {
        let active = std::array::from_fn(|lane| match mask >> lane & 1 {
            0 => 0,
            _ => u64::MAX,
        });
        let relative = offsets.map(|offset| offset.wrapping_sub(first));
        Pattern { mask, active, relative }
    }

    #[inline(always)]
    fn fits(&self, (mask, first): (u32, u64), offsets: &[u64; LANES]) -> bool {
        let mut differ = 0;
        for ((offset, relative), active) in offsets.iter().zip(&self.relative).zip(&self.active) {
            differ |= (offset.wrapping_sub(first) ^ relative) & active;
        }
        differ == 0 && mask == self.mask
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::exec::access::AccessKind;

    /// Loops in loops, some of them broken off, and gathers, by two warps: what comes out is what
    /// went in.
    #[test]
    fn records_are_the_loads_that_were_noted() {
        let mut state = 88172645463325252_u64;
        let mut below = |end: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % end
        };
        let site = |line| Site { line, bytes: 4, kind: AccessKind::Load };
        for _ in 0..200 {
            let mut log = ReadLog::new(2, 3);
            let mut noted = BTreeSet::new();
            for _ in 0..1 + below(6) {
                let (warp, index, number) = (below(2) as usize, below(3) as usize, below(3) as u32);
                let mask = if below(3) == 0 { 0xf0f0 } else { u32::MAX };
                let (outer, inner) = (1 + below(4), 1 + below(4));
                let steps = [below(3), below(3)].map(|step| 1024 * step);
                let later = [below(2) as u32, below(2) as u32];
                let (from, width, start) = (4096 * below(8), 4 * below(3), below(5) as u32);
                let breaks = below(outer * inner + 4);
                for at in 0..outer * inner {
                    let (i, j) = (at / inner, at % inner);
                    let odd = if at == breaks { 512 } else { 0 };
                    let first = from + i * steps[0] + j * steps[1] + odd;
                    let time = start + i as u32 * later[0] + j as u32 * later[1];
                    let offsets = std::array::from_fn(|lane| first + width * lane as u64);
                    let by = ((warp, mask), (7, 32 * warp));
                    log.note(index, (number, site(number)), by, (time, &offsets));
                    noted.insert((index, number, warp, time, mask, active(mask, &offsets)));
                }
            }
            let mut taken = BTreeSet::new();
            for (index, record) in log.take() {
                record.each(|time, mask, offsets| {
                    let of = (index, record.site.line, record.warp);
                    taken.insert((of.0, of.1, of.2, time, mask, active(mask, offsets)));
                });
            }
            assert_eq!(taken, noted);
        }
    }

    fn active(mask: u32, offsets: &[u64; LANES]) -> Vec<u64> {
        (0..LANES).filter(|lane| mask >> lane & 1 != 0).map(|lane| offsets[lane]).collect()
    }
}
