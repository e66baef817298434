//! What `compare` found, for people or for programs.

use gemm_report::compare::{Change, Measure, Report, SIGNIFICANT, Verdict};
use serde::Serialize;

use super::format::{milliseconds, number};
use super::{json, page};

/// Words for all of it, in JSON.
#[derive(Serialize)]
struct SummaryLine<'a> {
    summary: Summary<'a>,
}

#[derive(Serialize)]
struct Summary<'a> {
    changes: usize,
    geometric_mean: Option<f64>,
    faster: usize,
    slower: usize,
    unchanged: usize,
    lost: usize,
    too_few: usize,
    only_before: usize,
    only_after: usize,
    differences: &'a [gemm_report::compare::Difference],
    simulated: bool,
}

/// A line for each change, and one for all of them.
pub fn json(report: &Report) -> String {
    let summary = Summary {
        changes: report.changes.len(),
        geometric_mean: report.geometric_mean(),
        faster: report.count(Verdict::Faster),
        slower: report.count(Verdict::Slower),
        unchanged: report.count(Verdict::Unchanged),
        lost: report.count(Verdict::Lost),
        too_few: report.count(Verdict::TooFew),
        only_before: report.only_before,
        only_after: report.only_after,
        differences: &report.differences,
        simulated: report.is_simulated,
    };
    let lines: String = report.changes.iter().map(json::line).collect();
    lines + &json::line(&SummaryLine { summary })
}

/// A row for each change, and what they say.
pub fn table(report: &Report, threshold: f64) -> String {
    let header =
        ["kernel", "product", "before", "after", "speed", "95 %", "p", "samples", "verdict"];
    let mut table = page::table(header, 1..8);
    for change in &report.changes {
        table.add_row(cells(change));
    }
    let [faster, slower, unchanged, lost, too_few] =
        [Verdict::Faster, Verdict::Slower, Verdict::Unchanged, Verdict::Lost, Verdict::TooFew]
            .map(|verdict| report.count(verdict));
    let measures = |measure| report.changes.iter().any(|change| change.measure == measure);
    let what = match (measures(Measure::RatioToCublas), measures(Measure::Time)) {
        (true, false) => "the ratio to cuBLAS, which ran in turn with the kernel",
        (false, true) => "times, since cuBLAS did not run in both: clocks are in them",
        _ => "the ratio to cuBLAS where it ran in turn in both, and else times",
    };
    let mut text = format!(
        "{table}\n\
         compared: {what}\n\
         verdict:  faster or slower if p < {SIGNIFICANT} (Mann and Whitney) and by more than \
         {threshold} %\n"
    );
    if report.only_before + report.only_after > 0 {
        text += &format!(
            "left out: {} only before, {} only after\n",
            report.only_before, report.only_after
        );
    }
    if too_few > 0 {
        text += "samples:  too few of some to tell; record more with --repeat or --samples, 4 or more \
                 of each\n";
    }
    let lost = if lost > 0 { format!(", {lost} lost") } else { String::new() };
    text + &format!(
        "speed:    {} x in the geometric mean; {faster} faster, {unchanged} unchanged, {slower} \
         slower{lost}\n",
        number(report.geometric_mean(), 3),
    )
}

fn cells(change: &Change) -> [String; 9] {
    let value = |value: Option<f64>| match (value, change.measure) {
        (None, _) => "-".to_owned(),
        (Some(ratio), Measure::RatioToCublas) => format!("{ratio:.3} x"),
        (Some(ms), Measure::Time) => milliseconds(ms),
    };
    let interval = change.speedup_low.zip(change.speedup_high);
    let interval = interval.map(|(low, high)| format!("{low:.3} to {high:.3}"));
    let verdict = match change.verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "SLOWER",
        Verdict::Unchanged => "",
        Verdict::Lost => "LOST",
        Verdict::TooFew => "too few samples",
    };
    let reason = change.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    [
        change.kernel.clone(),
        product(change),
        value(change.before),
        value(change.after),
        change.speedup.map_or("-".to_owned(), |speedup| format!("{speedup:.3} x")),
        interval.unwrap_or_else(|| "-".to_owned()),
        change.p.map_or("-".to_owned(), p_value),
        format!("{} + {}", change.samples[0], change.samples[1]),
        format!("{verdict}{reason}"),
    ]
}

/// The shape, and what else makes the product.
fn product(change: &Change) -> String {
    let output = change.output.as_ref().map(|output| format!("C in {output}"));
    let groups = change.groups.as_ref().map(|rows| format!("rows {rows}"));
    let parts = [Some(change.shape.to_string()), change.compute.clone(), output];
    let parts = parts.into_iter().chain([change.epilogue.clone(), groups]).flatten();
    parts.collect::<Vec<_>>().join(", ")
}

/// Of what four digits do not show, only that it is small.
fn p_value(p: f64) -> String {
    if p < 1e-4 { "< 0.0001".to_owned() } else { format!("{p:.4}") }
}
