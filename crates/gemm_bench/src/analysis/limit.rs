//! The limit of a product: the use of each GPU unit, from its time.
//!
//! Shares are of peaks measured in the same run: the rate of FMAs, and that of a copy. Shares of
//! issue slots and shared memory follow from a kernel's work per FMA ([`profile`]). A unit that is
//! busy for at least 60 % of the time is the limit. If there is none, the limit is latency: waiting
//! for memory or for each other. Nsight Compute has the same rule.

pub mod profile;
#[cfg(test)]
mod recorded;

use std::fmt;

use cuda_gemm::{DeviceInfo, Gemm, LaunchPlan, Plan};

use crate::buffers::L2;
use crate::job::{Candidate, Job};
use crate::roofline::Rates;
use profile::Profile;

/// The least use of a unit that makes it the limit, in percent.
const BUSY: f64 = 60.0;

/// The share of empty launches, in percent, from which launches are the limit.
const LAUNCH: f64 = 50.0;

/// The largest ratio of issue share to FMA share for which FMAs are the limit, not issue slots.
const MOSTLY_FMAS: f64 = 1.25;

/// The use of a GPU's units by a product, in percent; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// The measured rate of FMAs, in GFLOP/s.
    pub ffma_gflops: Option<f64>,
    /// The measured rate of copies, bytes read plus bytes written, in GB/s.
    pub copy_gbytes: Option<f64>,
    /// The product's FMAs, in percent of that rate.
    pub percent_of_ffma: Option<f64>,
    /// Reading A and B once and writing C once, in percent of that copy rate.
    ///
    /// The old C also counts if it is read. `None` if the L2 cache was warm.
    pub percent_of_copy: Option<f64>,
    /// Issue slots of the multiprocessors, in percent.
    pub percent_of_issue: Option<f64>,
    /// Cycles of shared memory, part of the L1 cache, for a kernel that uses it.
    pub percent_of_shared: Option<f64>,
    /// Cycles of the L1 cache, for a kernel without shared memory.
    pub percent_of_l1: Option<f64>,
    /// The share of the time that empty launches would need.
    pub percent_of_launch: Option<f64>,
    /// Blocks of all launches; `None` for cuBLAS.
    pub blocks: Option<u64>,
    /// Multiprocessors of the GPU.
    pub multiprocessors: Option<u32>,
}

impl Load {
    /// The load of a product that ran for `ms` milliseconds on a GPU.
    ///
    /// `rates` and the milliseconds of an empty launch were measured in the same run.
    pub fn new(
        candidate: &Candidate,
        gemm: &Gemm,
        info: &DeviceInfo,
        ms: f64,
        (rates, launch_ms): (&Rates, f64),
        l2: L2,
    ) -> Self {
        let known = |value: f64| value.is_finite().then_some(value);
        let c = 4.0 * gemm.m as f64 * gemm.n as f64 * gemm.batch as f64;
        let old = if gemm.beta == 0.0 { 0.0 } else { c };
        let bytes = gemm.bytes() as f64 + old;
        let ffma = known(100.0 * gemm.flops() / ms * 1e-6 / rates.ffma);
        // The profile was counted in the machine code for this capability.
        let is_counted = info.capability == (9, 0);
        let plan = candidate.job.as_ref().ok().and_then(Job::plan);
        let profile = plan.and_then(profile_of).filter(|_| is_counted).zip(ffma).zip(info.peak);
        let served = profile.map(|((profile, ffma), peak)| profile.percent_of_l1(ffma, peak.lanes));
        let uses_shared = profile.is_some_and(|((profile, _), _)| profile.uses_shared);
        let plan = plan.map(Plan::launch_plan);
        Self {
            ffma_gflops: known(rates.ffma),
            copy_gbytes: known(rates.copy),
            percent_of_ffma: ffma,
            // Data in a warm L2 cache does not come from memory.
            percent_of_copy: known(100.0 * bytes / ms * 1e-6 / rates.copy)
                .filter(|_| l2 == L2::Cold),
            percent_of_issue: profile
                .map(|((profile, ffma), peak)| profile.percent_of_issue(ffma, peak.lanes)),
            percent_of_shared: if uses_shared { served } else { None },
            percent_of_l1: if uses_shared { None } else { served },
            percent_of_launch: plan
                .and_then(|plan| known(100.0 * launch_ms * plan.launch_count() as f64 / ms)),
            blocks: plan.map(LaunchPlan::block_count),
            multiprocessors: info.peak.map(|peak| peak.multiprocessors),
        }
    }

    /// The limit of the product; `None` if unknown.
    ///
    /// ```
    /// use gemm_bench::limit::Load;
    ///
    /// // `rows2` of the ladder on an H200, M = N = K = 4096.
    /// let load = Load {
    ///     percent_of_ffma: Some(20.9),
    ///     percent_of_issue: Some(51.5),
    ///     percent_of_shared: Some(94.7),
    ///     blocks: Some(16_384),
    ///     multiprocessors: Some(132),
    ///     ..Load::default()
    /// };
    /// let limit = load.limit().expect("known");
    /// assert_eq!((limit.name(), limit.percent()), ("shared", Some(94.7)));
    /// assert_eq!(limit.to_string(), "shared-memory bandwidth: 95 % of its peak");
    /// ```
    pub fn limit(&self) -> Option<Limit> {
        if let Some(percent) = self.percent_of_launch.filter(|percent| *percent >= LAUNCH) {
            return Some(Limit::Launch { percent });
        }
        let issue = match (self.percent_of_issue, self.percent_of_ffma) {
            (Some(issue), Some(ffma)) if ffma >= BUSY && issue <= MOSTLY_FMAS * ffma => None,
            (issue, _) => issue,
        };
        let units = [
            (Unit::Ffma, self.percent_of_ffma),
            (Unit::Issue, issue),
            (Unit::Shared, self.percent_of_shared),
            (Unit::L1, self.percent_of_l1),
            (Unit::Memory, self.percent_of_copy),
        ];
        let known = units.into_iter().filter_map(|(unit, percent)| Some((unit, percent?)));
        let (unit, percent) = known.max_by(|one, other| one.1.total_cmp(&other.1))?;
        match self.blocks.zip(self.multiprocessors) {
            _ if percent >= BUSY => Some(Limit::Unit { unit, percent }),
            Some((blocks, multiprocessors))
                if 100.0 * (blocks as f64) < BUSY * f64::from(multiprocessors) =>
            {
                Some(Limit::Blocks { blocks, multiprocessors })
            }
            // Without a profile, the busy unit may be one that is unknown.
            _ if self.percent_of_issue.is_none() => None,
            _ => Some(Limit::Latency { unit, percent }),
        }
    }
}

/// A kernel's work per FMA.
///
/// `None` for kernels without counts, and for misaligned rows, which have another entry point.
fn profile_of(plan: &Plan<'static>) -> Option<Profile> {
    let kernel = plan.configuration().kernel;
    // Their own matrices begin on 256 bytes.
    let is_aligned = plan.entry_point([0; 3]) == kernel.name();
    Profile::of(kernel).filter(|_| is_aligned)
}

/// A unit of a GPU that can be the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The FP32 lanes.
    Ffma,
    /// The schedulers, if they issue mostly other instructions than FMAs.
    Issue,
    /// Shared memory.
    Shared,
    /// The L1 cache.
    L1,
    /// The device's memory.
    Memory,
}

impl Unit {
    /// The name in JSON, the label of a column, and words.
    const fn texts(self) -> [&'static str; 3] {
        match self {
            Self::Ffma => ["ffma", "FMA", "FMA throughput"],
            Self::Issue => ["issue", "issue", "instruction issue"],
            Self::Shared => ["shared", "shared memory", "shared-memory bandwidth"],
            Self::L1 => ["l1", "L1", "L1 bandwidth"],
            Self::Memory => ["memory", "memory", "memory bandwidth"],
        }
    }

    /// The name, as in JSON.
    pub const fn name(self) -> &'static str {
        self.texts()[0]
    }

    const fn label(self) -> &'static str {
        self.texts()[1]
    }

    const fn words(self) -> &'static str {
        self.texts()[2]
    }
}

/// The limit of a product, from [`Load::limit`]; shares are in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A busy unit.
    Unit {
        /// The unit.
        unit: Unit,
        /// The share of its peak.
        percent: f64,
    },
    /// Too few blocks for the multiprocessors.
    Blocks {
        /// The number of blocks.
        blocks: u64,
        /// The number of multiprocessors.
        multiprocessors: u32,
    },
    /// The overhead of launches.
    Launch {
        /// Its share of the time.
        percent: f64,
    },
    /// Latency: no unit is busy.
    Latency {
        /// The most used unit.
        unit: Unit,
        /// The share of its peak.
        percent: f64,
    },
}

/// Formats a share, at most 100 %.
///
/// Clocks change between a time and its peak, so that a share may be 102 %.
fn share(percent: f64) -> String {
    format!("{:.0} %", percent.min(100.0))
}

impl Limit {
    /// The name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unit { unit, .. } => unit.name(),
            Self::Blocks { .. } => "blocks",
            Self::Launch { .. } => "launch",
            Self::Latency { .. } => "latency",
        }
    }

    /// The use of the limit, or for [`Limit::Latency`] of the most used unit.
    pub fn percent(self) -> Option<f64> {
        match self {
            Self::Unit { percent, .. }
            | Self::Launch { percent }
            | Self::Latency { percent, .. } => Some(percent),
            Self::Blocks { .. } => None,
        }
    }

    /// A short label for tables.
    pub fn short(self) -> String {
        match self {
            Self::Unit { unit, percent } => format!("{} {}", unit.label(), share(percent)),
            Self::Blocks { blocks, multiprocessors } => {
                format!("{blocks} of {multiprocessors} SMs")
            }
            Self::Launch { percent } => format!("launch {}", share(percent)),
            Self::Latency { unit, percent } => {
                format!("latency ({} {})", unit.label(), share(percent))
            }
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit { unit: Unit::Memory, percent } => {
                write!(f, "memory bandwidth: {} of a copy's", share(*percent))
            }
            Self::Unit { unit, percent } => {
                write!(f, "{}: {} of its peak", unit.words(), share(*percent))
            }
            Self::Blocks { blocks, multiprocessors } => {
                write!(f, "too few blocks: {blocks} for {multiprocessors} multiprocessors")
            }
            Self::Launch { percent } => {
                write!(f, "launch overhead: {} of the time", share(*percent))
            }
            Self::Latency { unit, percent } => {
                write!(f, "latency: no unit is above {percent:.0} % of its peak ({})", unit.words())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(ffma: f64, issue: f64, shared: f64, copy: f64, blocks: u64) -> Load {
        Load {
            percent_of_ffma: Some(ffma),
            percent_of_issue: Some(issue),
            percent_of_shared: Some(shared),
            percent_of_copy: Some(copy),
            percent_of_launch: Some(1.0),
            blocks: Some(blocks),
            multiprocessors: Some(132),
            ..Load::default()
        }
    }

    fn words(load: Load) -> String {
        load.limit().map(|limit| limit.to_string()).unwrap_or_default()
    }

    #[test]
    fn the_busiest_unit_is_the_limit() {
        for (load, says) in [
            // Issue slots for FMAs are not a limit of their own.
            (load(87.5, 94.2, 58.0, 2.1, 132), "FMA throughput: 88 % of its peak"),
            (load(40.0, 80.0, 58.0, 2.1, 132), "instruction issue: 80 % of its peak"),
            (load(2.8, 3.5, 2.0, 91.6, 132), "memory bandwidth: 92 % of a copy's"),
            (
                load(41.8, 58.4, 40.3, 1.0, 1024),
                "latency: no unit is above 58 % of its peak (instruction issue)",
            ),
            (load(3.1, 4.4, 2.5, 1.0, 16), "too few blocks: 16 for 132 multiprocessors"),
            (
                Load { percent_of_launch: Some(55.0), ..load(1.0, 1.0, 1.0, 1.0, 16) },
                "launch overhead: 55 % of the time",
            ),
        ] {
            assert_eq!(words(load), says);
        }
        let l1 = Load {
            percent_of_l1: Some(99.8),
            percent_of_shared: None,
            ..load(2.8, 7.9, 0.0, 2.5, 9)
        };
        assert_eq!(words(l1), "L1 bandwidth: 100 % of its peak");
    }

    #[test]
    fn nothing_is_claimed_that_is_not_known() {
        let cublas =
            Load { percent_of_ffma: Some(55.0), percent_of_copy: Some(9.0), ..Load::default() };
        assert_eq!(cublas.limit(), None);
        let fast = Load { percent_of_ffma: Some(76.0), ..cublas };
        assert_eq!(words(fast), "FMA throughput: 76 % of its peak");
        assert_eq!(Load::default().limit(), None);
    }
}
