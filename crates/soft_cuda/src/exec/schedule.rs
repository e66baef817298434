//! The order in which warps and blocks run.

use crate::checks::Schedule;

/// A source of numbers that look random: SplitMix64.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random(seed);
        Random(random.next() ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

/// The block that is number `place` of `blocks` to start.
pub(crate) fn block_at(schedule: Schedule, place: u64, blocks: u64) -> u64 {
    match schedule {
        Schedule::InOrder => place,
        Schedule::Adversarial => blocks - 1 - place,
        Schedule::Random(seed) => {
            let mut random = Random::new(seed, blocks);
            let start = random.below(blocks);
            // A step that visits every block before any twice.
            let step = std::iter::repeat_with(|| 1 + random.below(blocks));
            let step = step.take(64).find(|&step| gcd(step, blocks) == 1).unwrap_or(1);
            ((u128::from(start) + u128::from(step) * u128::from(place)) % u128::from(blocks)) as u64
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_runs_once() {
        for blocks in [1, 2, 6, 97, 1024] {
            for schedule in [Schedule::InOrder, Schedule::Adversarial, Schedule::Random(3)] {
                let order = (0..blocks).map(|place| block_at(schedule, place, blocks));
                let mut order: Vec<u64> = order.collect();
                order.sort_unstable();
                assert_eq!(order, (0..blocks).collect::<Vec<_>>(), "{schedule}");
            }
        }
        let order = |seed| [0, 1, 2, 3].map(|place| block_at(Schedule::Random(seed), place, 97));
        assert_ne!(order(1), order(2));
    }
}
