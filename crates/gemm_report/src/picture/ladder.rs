//! The rungs of a ladder as bars, next to cuBLAS.

use super::axes::{
    brief, cublas_words, device_words, file_words, horizontal, kernel_words, named,
    precision_words, shape_words,
};
use super::scale::Scale;
use super::svg::{Anchor, MARGIN, NARROW, Picture, Sheet, text_width};
use crate::row::{Origin, Row, Shape, Status};
use crate::run::Run;

const ROW: f64 = 25.0;
const BAR: f64 = 15.0;
/// The average width of a character of a kernel's name.
const MONO: f64 = 8.6;
/// The space for the number at the end of the longest bar.
const NUMBER: f64 = 52.0;

/// What speeds are counted in.
struct Unit {
    name: &'static str,
    gflops: f64,
}

const GFLOPS: Unit = Unit { name: "GFLOP/s", gflops: 1.0 };
const TFLOPS: Unit = Unit { name: "TFLOP/s", gflops: 1e3 };

impl Unit {
    /// A speed with three digits or so.
    fn brief(&self, row: &Row) -> Option<String> {
        Some(brief(row.gflops? / self.gflops))
    }
}

/// The kernels of one shape of a run of `rungs --kernel all`: each one's speed as a share of
/// cuBLAS's, or in TFLOP/s where cuBLAS did not run.
///
/// None if none of them has a time.
pub fn ladder(run: &Run, shape: Shape) -> Option<Picture> {
    let rows = run.rows_of(Origin::Ladder).filter(|row| row.shape() == shape);
    let (cublas, rows): (Vec<_>, Vec<_>) = rows.partition(|row| row.kernel == "cublas");
    let cublas = cublas.into_iter().find(|row| row.gflops.is_some());
    let in_shares = cublas.is_some() || rows.iter().any(|row| row.ladder.share_of_cublas.is_some());
    let fastest = rows.iter().filter_map(|row| row.gflops).fold(0.0, f64::max);
    let unit = if fastest < 100.0 { GFLOPS } else { TFLOPS };
    let value = |row: &Row| match in_shares {
        true => row.ladder.share_of_cublas,
        false => row.gflops.map(|gflops| gflops / unit.gflops),
    };
    let largest = rows.iter().filter_map(|row| value(row)).reduce(f64::max)?;

    let precision = precision_words(rows.iter().copied());
    let title =
        format!("GEMM kernels in {precision} on {}, {}", device_words(run), shape_words(shape));
    let what = match (run.is_simulated(), in_shares) {
        (true, _) => {
            format!("Simulated on a CPU: these times say nothing about a GPU. {}", unit.name)
        }
        (false, true) => {
            let no_tf32 = if precision == "f32" { " (no TF32)" } else { "" };
            let cublas = cublas_words(run);
            format!("Speed as a share of {cublas}'s{no_tf32}; {} at bar ends", unit.name)
        }
        (false, false) => format!("Throughput in {}", unit.name),
    };
    let mut sheet = Sheet::with_width(
        NARROW,
        &format!("ladder-{}", file_words(shape)),
        &title,
        &what,
        &run.label,
    );

    let names = rows.iter().map(|row| text_width(&row.kernel, MONO));
    let left = MARGIN + names.fold(0.0, f64::max) + 8.0;
    let right = NARROW - MARGIN - NUMBER;
    let to = if in_shares { largest.max(1.0) } else { largest };
    let scale = Scale::linear([0.0, to], [left, right]);
    let top = sheet.bottom + if in_shares { 26.0 } else { 6.0 };
    let gap = |row: &Row| if row.rung.is_none() { 8.0 } else { 0.0 };
    let height: f64 = rows.iter().map(|row| ROW + gap(row)).sum::<f64>() + 4.0;

    let (ticks, name) = match in_shares {
        true => {
            let ticks = Scale::linear([0.0, 100.0 * to], [0.0, 1.0]).ticks(4);
            let ticks = ticks.into_iter().map(|percent| (percent / 100.0, format!("{percent} %")));
            (ticks.collect(), "share of cuBLAS's speed")
        }
        false => (named(scale.ticks(4), ""), unit.name),
    };
    horizontal(&mut sheet, &scale, [top, top + height], &ticks, name);

    let mut y = top + 2.0;
    let mut places = Vec::new();
    for row in &rows {
        y += gap(row);
        places.push((*row, value(row), y + ROW / 2.0));
        y += ROW;
    }
    for (row, value, middle) in &places {
        bar(&mut sheet, row, *value, &scale, *middle);
    }
    // Between bars, which it crosses, and numbers, which it does not.
    if in_shares {
        let x = scale.at(1.0);
        sheet.canvas.line("ref", [x, top - 4.0], [x, top + height]);
        let speed = cublas.and_then(|row| unit.brief(row));
        let words = |speed| format!("cuBLAS {speed} {}", unit.name);
        let text = speed.map_or("cuBLAS".to_owned(), words);
        // Within the picture, wherever the line is.
        let half = text_width(&text, 8.2) / 2.0;
        let middle = x.min(NARROW - MARGIN - half);
        sheet.canvas.text([middle, top - 10.0], "t b", Anchor::Middle, &text);
    }
    for (row, value, middle) in &places {
        let end = value.map(|value| scale.at(value));
        at_end(&mut sheet, row, end, &unit, [left, *middle]);
    }
    Some(sheet.finish())
}

fn bar(sheet: &mut Sheet, row: &Row, value: Option<f64>, scale: &Scale, middle: f64) {
    let start = scale.places()[0];
    sheet.canvas.explained(&words(row), |canvas| {
        canvas.text([start - 8.0, middle + 5.0], "k", Anchor::End, &row.kernel);
        let Some(value) = value else { return };
        // What is ahead of cuBLAS is to the right of its line, whatever the colour.
        let class = if value > 1.0 && row.ladder.share_of_cublas.is_some() { "f1" } else { "f0" };
        let length = (scale.at(value) - start).max(1.0);
        canvas.rect(class, [start, middle - BAR / 2.0], [length, BAR], 2.0);
    });
}

/// The speed at the end of a bar, or, where a bar would start, why there is none.
fn at_end(sheet: &mut Sheet, row: &Row, end: Option<f64>, unit: &Unit, [start, middle]: [f64; 2]) {
    let base = middle + 5.0;
    let Some(end) = end else {
        let text = match row.status {
            Status::Refused => "cannot run here",
            Status::Fail | Status::Unstable => "wrong result, not timed",
            Status::Fault => "stopped with a fault",
            Status::Pass | Status::Findings => "not timed",
        };
        return sheet.canvas.text([start + 6.0, base], "a halo", Anchor::Start, text);
    };
    let speed = unit.brief(row).unwrap_or_default();
    sheet.canvas.text([end + 6.0, base], "t halo", Anchor::Start, &speed);
}

/// Everything about a bar.
fn words(row: &Row) -> String {
    let mut words = kernel_words(row);
    if let Some(ms) = row.median_ms() {
        words += &format!(": {ms:.4} ms");
    }
    if let Some(gflops) = row.gflops {
        words += &format!(", {:.2} TFLOP/s", gflops / 1e3);
    }
    if let Some(share) = row.ladder.share_of_cublas {
        words += &format!(", {:.1} % of cuBLAS's speed", 100.0 * share);
    }
    if let (Some(limit), Some(percent)) = (&row.limit, row.limit_percent) {
        words += &format!(", limit: {limit} ({percent:.0} %)");
    }
    if let Some(reason) = &row.reason {
        words += &format!(": {reason}");
    }
    words
}
