//! What a device checks beyond what it always does, and in which order it runs warps and blocks.

use std::fmt;
use std::str::FromStr;

/// Checks that cost time, and are off unless asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checks {
    /// Accesses of the same memory by different threads or streams that nothing orders, if one of
    /// them writes: in shared and in global memory.
    pub races: bool,
    /// Reads of memory and registers that nobody wrote, accesses between the variables of shared
    /// memory, and `ld.global.nc` of what the launch wrote.
    pub memory: bool,
    /// Barriers, member masks and waits that happen to work, but are undefined or may fail, and
    /// waits that are missing when a block ends.
    pub sync: bool,
    /// With `races`: bulk copies over what threads have read, without a `fence.proxy.async` between
    /// the two. PTX asks for it; a GPU does not need it where a load's value was used before.
    /// Not among [`Checks::ALL`].
    pub proxies: bool,
}

impl Checks {
    /// None of them.
    pub const NONE: Checks = Checks { races: false, memory: false, sync: false, proxies: false };
    /// All of them but `proxies`.
    pub const ALL: Checks = Checks { races: true, memory: true, sync: true, proxies: false };

    /// Whether accesses are looked at one by one.
    pub(crate) fn accesses(self) -> bool {
        self.races || self.memory
    }
}

/// The order in which a device runs the warps of a block and the blocks of a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Schedule {
    /// Warps and blocks by their index, each as far as it can go.
    #[default]
    InOrder,
    /// Random orders and random lengths of turns; the same ones for the same seed.
    Random(u64),
    /// The last warp and the last block first, and each as far as it can go.
    Adversarial,
}

/// A setting that is none of those known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is none of {known}")]
pub struct UnknownSetting {
    given: String,
    known: &'static str,
}

impl FromStr for Checks {
    type Err = UnknownSetting;

    /// `none`, `all`, or any of `races`, `memory`, `sync` and `proxies` with commas between them.
    fn from_str(text: &str) -> Result<Checks, UnknownSetting> {
        let mut checks = Checks::NONE;
        if text.contains(',') && text.split(',').any(|word| word.trim() == "none") {
            let known = "`none` alone, or any of all, races, memory, sync, proxies";
            return Err(UnknownSetting { given: text.to_owned(), known });
        }
        for word in text.split(',').map(str::trim) {
            match word {
                "all" => checks = Checks { proxies: checks.proxies, ..Checks::ALL },
                "none" => checks = Checks::NONE,
                "races" => checks.races = true,
                "memory" => checks.memory = true,
                "sync" => checks.sync = true,
                "proxies" => checks.proxies = true,
                _ => {
                    let known = "none, all, races, memory, sync, proxies";
                    return Err(UnknownSetting { given: word.to_owned(), known });
                }
            }
        }
        Ok(checks)
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (self.races, "races"),
            (self.memory, "memory"),
            (self.sync, "sync"),
            (self.proxies, "proxies"),
        ];
        let on: Vec<&str> = names.iter().filter(|(on, _)| *on).map(|&(_, name)| name).collect();
        match on.as_slice() {
            [] => f.write_str("none"),
            ["races", "memory", "sync", rest @ ..] => {
                f.write_str("all")?;
                rest.iter().try_for_each(|name| write!(f, ",{name}"))
            }
            _ => f.write_str(&on.join(",")),
        }
    }
}

impl FromStr for Schedule {
    type Err = UnknownSetting;

    /// `in-order`, `random:SEED` or `adversarial`.
    fn from_str(text: &str) -> Result<Schedule, UnknownSetting> {
        match text.trim() {
            "in-order" => return Ok(Schedule::InOrder),
            "adversarial" => return Ok(Schedule::Adversarial),
            _ => {}
        }
        let seed = text.trim().strip_prefix("random:").and_then(|seed| seed.parse().ok());
        let unknown = || UnknownSetting {
            given: text.to_owned(),
            known: "in-order, random:SEED, adversarial",
        };
        seed.map(Schedule::Random).ok_or_else(unknown)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::InOrder => f.write_str("in-order"),
            Schedule::Random(seed) => write!(f, "random:{seed}"),
            Schedule::Adversarial => f.write_str("adversarial"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_written() {
        let one = Checks { races: true, ..Checks::NONE };
        let two = Checks { sync: true, ..one };
        let three = Checks { proxies: true, ..Checks::ALL };
        for checks in [Checks::NONE, Checks::ALL, one, two, three] {
            assert_eq!(checks.to_string().parse(), Ok(checks));
        }
        for schedule in [Schedule::InOrder, Schedule::Random(7), Schedule::Adversarial] {
            assert_eq!(schedule.to_string().parse(), Ok(schedule));
        }
        assert!("race".parse::<Checks>().is_err());
        for both in ["none,all", "all, none", "none,none"] {
            assert!(both.parse::<Checks>().is_err());
        }
        assert!("random:x".parse::<Schedule>().is_err());
    }
}
