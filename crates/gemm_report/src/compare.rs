//! Two files of saved runs next to each other: what became faster, what slower, and how sure that
//! is.

use std::collections::BTreeSet;

use sample_stats::Comparison;
use serde::Serialize;

use crate::error::Error;
use crate::row::{Origin, Row, Shape, Status};
use crate::run::{File, Run};

/// The probability of a chance result at which a change is believed.
pub const SIGNIFICANT: f64 = 0.05;

/// The most values that an error lists.
const MOST_SHOWN: usize = 3;

/// The measure that is compared. Larger is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// cuBLAS's time over the kernel's, by samples that took turns. Clocks cancel out.
    RatioToCublas,
    /// The reciprocal of the time, if a run has no cuBLAS.
    Time,
}

/// The verdict on a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Significantly faster, by more than the threshold.
    Faster,
    /// Significantly slower, by more than the threshold.
    Slower,
    /// Neither.
    Unchanged,
    /// There was a right result before, and there is none now.
    Lost,
    /// Too few samples for any difference to be significant.
    TooFew,
}

/// One kernel and one shape, before and after.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// The kernel's name, `auto` or `cublas`.
    pub kernel: String,
    /// The shape of the product.
    #[serde(flatten)]
    pub shape: Shape,
    /// The rows of each group, as in `128,0,37`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<String>,
    /// What is done to each element, as in `bias column, gelu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epilogue: Option<String>,
    /// How the product is computed, if not in f32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute: Option<String>,
    /// The type of C, if it is not f32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// What was compared.
    pub measure: Measure,
    /// Its median before: a ratio, or milliseconds.
    pub before: Option<f64>,
    /// Its median after.
    pub after: Option<f64>,
    /// Samples of both.
    pub samples: [usize; 2],
    /// How many times as fast it is now.
    pub speedup: Option<f64>,
    /// The lower end of the 95 % interval of that; none where samples are few.
    pub speedup_low: Option<f64>,
    /// The upper end.
    pub speedup_high: Option<f64>,
    /// The probability of such a difference by chance; Mann and Whitney's test of the samples.
    pub p: Option<f64>,
    /// What it says.
    pub verdict: Verdict,
    /// Why there is no result now, if so.
    pub reason: Option<String>,
}

/// A difference between the environments of both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What differs, in words.
    pub what: &'static str,
    /// What it was; more than one are separated by commas.
    pub before: String,
    /// What it is.
    pub after: String,
}

/// What [`compare`] found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Kernels and shapes that are in both, in the order of the first file.
    pub changes: Vec<Change>,
    /// How many are in the first alone.
    pub only_before: usize,
    /// How many are in the second alone.
    pub only_after: usize,
    /// What is not the same, and may be why times differ.
    pub differences: Vec<Difference>,
    /// Whether times are those of the software device, which say nothing about a GPU.
    pub is_simulated: bool,
}

impl Report {
    /// The geometric mean of how many times as fast everything is now.
    pub fn geometric_mean(&self) -> Option<f64> {
        let speedups: Vec<f64> = self.changes.iter().filter_map(|change| change.speedup).collect();
        sample_stats::geometric_mean(&speedups)
    }

    /// How many changes say this.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.changes.iter().filter(|change| change.verdict == verdict).count()
    }

    /// Whether nothing is slower, or lost, or has too few samples to tell.
    pub fn is_no_worse(&self) -> bool {
        let bad = [Verdict::Slower, Verdict::Lost, Verdict::TooFew];
        bad.into_iter().all(|verdict| self.count(verdict) == 0)
    }
}

/// Compares two files, kernel by kernel and shape by shape.
///
/// Results of one kernel and shape in a file are pooled. A change counts if its p value is below
/// [`SIGNIFICANT`] and it exceeds `threshold`, a share. Processes differ by up to that, which the
/// samples of one run do not show.
///
/// # Errors
///
/// [`Error::Tune`] for a search of `rungs tune`; [`Error::NothingInCommon`].
pub fn compare(before: File, after: File, threshold: f64) -> Result<Report, Error> {
    let paths = [before.path.clone(), after.path.clone()];
    let [before, after] = [before.into_runs()?, after.into_runs()?];
    let [old, new] = [groups(&before), groups(&after)];
    let find =
        |groups: &[Group<'_>], key: &Key| groups.iter().position(|group| group.key.matches(key));
    let changes: Vec<Change> = old
        .iter()
        .filter_map(|group| Some((group, &new[find(&new, &group.key)?])))
        .filter_map(|(old, new)| change(old, new, threshold))
        .collect();
    if changes.is_empty() {
        let [before, after] = paths;
        let reason = why_apart(&old, &new).unwrap_or_else(|| "there is nothing to compare".into());
        return Err(Error::NothingInCommon { before, after, reason });
    }
    let only = |these: &[Group<'_>], others: &[Group<'_>]| {
        these.iter().filter(|group| find(others, &group.key).is_none()).count()
    };
    Ok(Report {
        changes,
        only_before: only(&old, &new),
        only_after: only(&new, &old),
        differences: differences(&before, &after),
        is_simulated: before.iter().chain(&after).any(Run::is_simulated),
    })
}

/// What makes results comparable.
#[derive(Clone, Debug, PartialEq)]
struct Key {
    origin: Origin,
    kernel: String,
    shape: Shape,
    groups: Option<String>,
    gpus: Option<usize>,
    l2: Option<String>,
    factors: [f32; 2],
    epilogue: Option<String>,
    compute: Option<String>,
    output: Option<String>,
    margins: Option<String>,
    /// Splits, clusters, columns, blocks per multiprocessor and staging, unless `auto` chose them.
    options: Option<([Option<u32>; 4], Option<bool>, bool)>,
}

impl Key {
    fn of(row: &Row) -> Self {
        let is_chosen = row.chosen.is_some() || row.kernel == "auto";
        Self {
            origin: row.origin,
            kernel: row.kernel.clone(),
            shape: row.shape(),
            groups: row.groups.clone(),
            gpus: row.ladder.gpus,
            l2: row.l2.clone(),
            factors: [row.alpha.unwrap_or(1.0), row.beta.unwrap_or(0.0)],
            epilogue: row.epilogue.clone(),
            compute: row.compute.clone(),
            output: row.output.clone(),
            margins: row.bench.margins.clone(),
            options: (!is_chosen).then_some((
                [row.splits, row.clusters, row.columns, row.blocks_per_multiprocessor],
                row.transposes_c,
                row.packed,
            )),
        }
    }

    /// Whether both are about the same. What has no time does not say what the L2 cache held.
    fn matches(&self, other: &Self) -> bool {
        let is_open = self.l2.is_none() || other.l2.is_none();
        let l2 = |key: &Self| if is_open { None } else { key.l2.clone() };
        Self { l2: l2(self), ..self.clone() } == Self { l2: l2(other), ..other.clone() }
    }
}

/// All results of one kernel and shape in a file.
struct Group<'a> {
    key: Key,
    rows: Vec<&'a Row>,
    /// Milliseconds; empty if one of the rows is not right.
    times: Vec<f64>,
    /// cuBLAS's time divided by the kernel's; empty if one of the rows has none, or is not right.
    ratios: Vec<f64>,
}

fn groups(runs: &[Run]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut rows: Vec<&Row> = runs.iter().flat_map(|run| &run.rows).collect();
    // A row without an `l2` joins the group of one that has it.
    rows.sort_by_key(|row| row.l2.is_none());
    for row in rows {
        let key = Key::of(row);
        match groups.iter_mut().find(|group| group.key.matches(&key)) {
            Some(group) => group.rows.push(row),
            None => {
                groups.push(Group { key, rows: vec![row], times: Vec::new(), ratios: Vec::new() })
            }
        }
    }
    for group in &mut groups {
        let timed = || group.rows.iter().filter(|row| row.status == Status::Pass);
        // One result that is not right outweighs the samples of the others.
        if timed().count() < group.rows.len() {
            continue;
        }
        let ratios: Vec<Vec<f64>> = timed().map(|row| ratios(runs, row)).collect();
        if ratios.iter().all(|ratios| !ratios.is_empty()) {
            group.ratios = ratios.concat();
        }
        group.times = timed().flat_map(|row| row.samples_ms()).copied().collect();
    }
    groups
}

/// The one thing that keeps results apart which are else alike.
fn why_apart(old: &[Group<'_>], new: &[Group<'_>]) -> Option<String> {
    // What differs, how a key takes it from another, and what it is.
    type Part = (&'static str, fn(&mut Key, &Key), fn(&Key) -> String);
    let parts: [Part; 7] = [
        (
            "precisions",
            |key, other| {
                key.compute.clone_from(&other.compute);
                key.output.clone_from(&other.output);
            },
            |key| {
                let compute = key.compute.as_deref().unwrap_or("f32");
                let output = key.output.as_deref().map(|output| format!(" with C in {output}"));
                format!("{compute}{}", output.unwrap_or_default())
            },
        ),
        (
            "L2 policies",
            |key, other| key.l2.clone_from(&other.l2),
            |key| key.l2.clone().unwrap_or_else(|| "not recorded".into()),
        ),
        (
            "alpha and beta",
            |key, other| key.factors = other.factors,
            |key| format!("{} and {}", key.factors[0], key.factors[1]),
        ),
        (
            "epilogues",
            |key, other| key.epilogue.clone_from(&other.epilogue),
            |key| key.epilogue.clone().unwrap_or_else(|| "none".into()),
        ),
        (
            "groups",
            |key, other| {
                key.groups.clone_from(&other.groups);
                key.shape.groups = other.shape.groups;
            },
            |key| key.groups.clone().unwrap_or_else(|| "none".into()),
        ),
        (
            "numbers of devices",
            |key, other| key.gpus = other.gpus,
            |key| key.gpus.unwrap_or(1).to_string(),
        ),
        ("shapes", |key, other| key.shape = other.shape, |key| key.shape.to_string()),
    ];
    let timed = |groups: &[Group<'_>]| -> Vec<Key> {
        let timed = groups.iter().filter(|group| !group.times.is_empty());
        timed.map(|group| group.key.clone()).collect()
    };
    let [old, new] = [timed(old), timed(new)];
    parts.into_iter().find_map(|(what, take, show)| {
        let is_apart = |key: &&Key, others: &[Key]| {
            others.iter().any(|other| {
                let mut like = (*key).clone();
                take(&mut like, other);
                like.matches(other)
            })
        };
        let shown = |keys: &[Key], others: &[Key]| {
            let apart = keys.iter().filter(|key| is_apart(key, others)).map(show);
            let mut apart: Vec<_> = apart.collect::<BTreeSet<_>>().into_iter().collect();
            if apart.len() > MOST_SHOWN {
                apart.truncate(MOST_SHOWN);
                apart.push("...".into());
            }
            apart.join(", ")
        };
        let [before, after] = [shown(&old, &new), shown(&new, &old)];
        (!before.is_empty()).then(|| format!("their {what} differ: {before} before, {after} after"))
    })
}

/// cuBLAS's time divided by the kernel's, sample by sample: both were measured in turn.
fn ratios(runs: &[Run], row: &Row) -> Vec<f64> {
    let own = row.samples_ms();
    let cublas = match row.origin {
        Origin::Bench => &row.cublas_samples_ms,
        // In a ladder cuBLAS is one of the rows of the same run.
        Origin::Ladder if row.kernel == "cublas" => return Vec::new(),
        Origin::Ladder => {
            let is_here = |run: &&Run| run.rows.iter().any(|other| std::ptr::eq(other, row));
            let is_baseline = |other: &&Row| {
                other.kernel == "cublas"
                    && other.shape() == row.shape()
                    && other.status == Status::Pass
            };
            let baseline =
                runs.iter().find(is_here).and_then(|run| run.rows.iter().find(is_baseline));
            baseline.map_or(&[][..], |baseline| baseline.samples_ms())
        }
    };
    match own.len() == cublas.len() {
        true => own.iter().zip(cublas).map(|(own, cublas)| cublas / own).collect(),
        false => Vec::new(),
    }
}

/// None if neither has a time, or the first has none: then nothing changed that is known.
fn change(old: &Group<'_>, new: &Group<'_>, threshold: f64) -> Option<Change> {
    if old.times.is_empty() {
        return None;
    }
    let has_ratios = !old.ratios.is_empty() && !new.ratios.is_empty();
    // A sample is the larger, the faster the kernel is.
    let (measure, before, after) = match has_ratios {
        true => (Measure::RatioToCublas, old.ratios.clone(), new.ratios.clone()),
        false => (Measure::Time, reciprocals(&old.times), reciprocals(&new.times)),
    };
    let median = |samples: &[f64]| {
        let median = sample_stats::median(samples);
        let value = if has_ratios { median } else { 1.0 / median };
        Some(value).filter(|value| value.is_finite())
    };
    let found = sample_stats::compare(&before, &after);
    let lost = new.times.is_empty();
    let reason = new.rows.iter().find_map(|row| row.reason.clone()).filter(|_| lost);
    Some(Change {
        kernel: old.key.kernel.clone(),
        shape: old.key.shape,
        groups: old.key.groups.clone(),
        epilogue: old.key.epilogue.clone(),
        compute: old.key.compute.clone(),
        output: old.key.output.clone(),
        measure,
        before: median(&before),
        after: median(&after),
        samples: [before.len(), after.len()],
        speedup: found.map(|found| found.ratio),
        speedup_low: found.and_then(|found| found.interval).map(|(low, _)| low),
        speedup_high: found.and_then(|found| found.interval).map(|(_, high)| high),
        p: found.map(|found| found.p),
        verdict: if lost { Verdict::Lost } else { verdict(found, threshold) },
        reason,
    })
}

fn reciprocals(times: &[f64]) -> Vec<f64> {
    times.iter().map(|ms| 1.0 / ms).collect()
}

fn verdict(found: Option<Comparison>, threshold: f64) -> Verdict {
    match found {
        Some(Comparison { ratio, p, .. }) if p < SIGNIFICANT => match () {
            () if ratio > 1.0 + threshold => Verdict::Faster,
            () if ratio < 1.0 / (1.0 + threshold) => Verdict::Slower,
            () => Verdict::Unchanged,
        },
        Some(Comparison { interval: Some(_), .. }) => Verdict::Unchanged,
        _ => Verdict::TooFew,
    }
}

fn differences(before: &[Run], after: &[Run]) -> Vec<Difference> {
    type Part = (&'static str, fn(&Run) -> Option<&str>);
    let parts: [Part; 8] = [
        ("device", |run| run.device()),
        ("compute capability", |run| run.environment.as_ref()?.compute_capability.as_deref()),
        ("driver", |run| run.environment.as_ref()?.driver_version.as_deref()),
        ("CUDA", |run| run.environment.as_ref()?.cuda_version.as_deref()),
        ("cuBLAS", |run| run.cublas_version()),
        ("program", |run| run.environment.as_ref()?.host_version.as_deref()),
        ("L2 policy", |run| run.rows.iter().find_map(|row| row.l2.as_deref())),
        ("PTX target", |run| run.environment.as_ref()?.ptx_arch.as_deref()),
    ];
    let all = |runs: &[Run], part: fn(&Run) -> Option<&str>| {
        let values: BTreeSet<String> =
            runs.iter().map(|run| part(run).unwrap_or("not recorded").to_owned()).collect();
        values.into_iter().collect::<Vec<_>>().join(", ")
    };
    let compared = parts.into_iter().map(|(what, part)| Difference {
        what,
        before: all(before, part),
        after: all(after, part),
    });
    compared.filter(|difference| difference.before != difference.after).collect()
}
