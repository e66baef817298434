//! Who wrote each word of device memory last.

use super::entries::Entries;
use super::packed::{GROUP, Packed};

/// The last writes of words. Those of a group are one entry as long as all of it was written at
/// once by as many lanes as it takes, one after another: most stores of whole warps are noted so.
pub(super) struct WordWrites {
    /// By group: 0 if nobody has written there, [`SPLIT`] if `words` has the writes, or the write
    /// of all of it.
    groups: Entries,
    words: Entries,
}

const SPLIT: u64 = u64::MAX;

impl WordWrites {
    pub(super) fn new(words: usize) -> WordWrites {
        WordWrites { groups: Entries::new(words / GROUP), words: Entries::new(words) }
    }

    /// The last write of the word at a place.
    #[inline(always)]
    pub(super) fn last(&self, at: usize) -> Option<Packed> {
        match self.groups.load(at / GROUP) {
            SPLIT => self.words.access(at),
            0 => None,
            whole => Some(Packed(whole).in_group(at as u64)),
        }
    }

    /// The PTX line of that.
    pub(super) fn line(&self, at: usize) -> u32 {
        match self.groups.load(at / GROUP) {
            SPLIT => self.words.line(at),
            _ => self.groups.line(at / GROUP),
        }
    }

    /// Notes a write of the word at a place.
    pub(super) fn note(&self, at: usize, new: Packed, line: u32) {
        if self.groups.load(at / GROUP) != SPLIT {
            self.split(at / GROUP);
        }
        // A plain store races with what an atomic behind it does not race with.
        if self.words.load(at) != new.plain().0 {
            self.words.store(at, new.0, line);
        }
    }

    /// From now on the writes of a group are in `words`.
    #[inline(never)]
    fn split(&self, group: usize) {
        let (whole, line) = (self.groups.load(group), self.groups.line(group));
        // No word of a group that nobody has written has an entry.
        for at in (group * GROUP..(group + 1) * GROUP).filter(|_| whole != 0) {
            self.words.store(at, Packed(whole).in_group(at as u64).0, line);
        }
        self.groups.store(group, SPLIT, line);
    }

    /// Whether there is no write of a group, or one of all of it of which `passes` is true.
    #[inline(always)]
    pub(super) fn of_group(&self, group: usize, passes: impl FnOnce(Packed) -> bool) -> bool {
        match self.groups.load(group) {
            0 => true,
            SPLIT => false,
            whole => passes(Packed(whole)),
        }
    }

    /// Notes a write of all of a group.
    #[inline(always)]
    pub(super) fn note_group(&self, group: usize, new: Packed, line: u32) {
        self.groups.store(group, new.0, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_group_are_told_apart_behind_a_write_of_all_of_it() {
        let writes = WordWrites::new(2 * GROUP);
        assert_eq!(writes.last(GROUP), None);
        // Two lanes of four words each.
        let whole = Packed(Packed::new(3, 64, 0, 7).0 | 2 << Packed::EACH);
        writes.note_group(1, whole, 40);
        let word = |at: usize| (writes.last(at).unwrap().thread(), writes.line(at));
        assert_eq!((word(GROUP), word(GROUP + 3), word(GROUP + 4)), ((64, 40), (64, 40), (65, 40)));
        writes.note(GROUP + 3, Packed::new(3, 70, 0, 9), 50);
        assert_eq!((word(GROUP), word(GROUP + 3), word(GROUP + 4)), ((64, 40), (70, 50), (65, 40)));
        assert!(!writes.of_group(1, |_| true) && writes.of_group(0, |_| false));
        writes.note_group(1, whole, 60);
        assert_eq!((word(GROUP + 3), writes.of_group(1, |old| old == whole)), ((64, 60), true));
    }
}
