//! Axes, and words that several pictures have.

use super::scale::{Scale, tick};
use super::svg::{Anchor, Sheet};
use crate::row::{Row, Shape};
use crate::run::Run;

/// A horizontal axis: its name, ticks, and lines over the height of a plot.
pub fn horizontal(
    sheet: &mut Sheet,
    scale: &Scale,
    [top, bottom]: [f64; 2],
    ticks: &[(f64, String)],
    name: &str,
) {
    for (value, text) in ticks {
        let x = scale.at(*value);
        sheet.canvas.line("g", [x, top], [x, bottom]);
        sheet.canvas.text([x, bottom + 18.0], "a", Anchor::Middle, text);
    }
    let [first, last] = scale.places();
    let middle = f64::midpoint(first, last);
    sheet.canvas.text([middle, bottom + 38.0], "n", Anchor::Middle, name);
    sheet.bottom = bottom + 42.0;
}

/// A vertical axis: ticks, and lines over the width of a plot. The caller writes its name above.
pub fn vertical(sheet: &mut Sheet, scale: &Scale, [left, right]: [f64; 2], ticks: &[f64]) {
    for value in ticks {
        let y = scale.at(*value);
        sheet.canvas.line("g", [left, y], [right, y]);
        sheet.canvas.text([left - 7.0, y + 5.0], "a", Anchor::End, &tick(*value));
    }
}

/// Values with the texts for them.
pub fn named(ticks: Vec<f64>, unit: &str) -> Vec<(f64, String)> {
    ticks.into_iter().map(|value| (value, tick(value) + unit)).collect()
}

/// A shape as a title names it.
pub fn shape_words(shape: Shape) -> String {
    match shape.is_square() {
        true => format!("M = N = K = {}", shape.m).replace(' ', "\u{a0}"),
        false => format!("M x N x K = {shape}").replace(' ', "\u{a0}"),
    }
}

/// A shape as a part of a file's name.
pub fn file_words(shape: Shape) -> String {
    shape.to_string().replace(" of ", "-").replace(' ', "")
}

/// The device of a run, as a title names it.
pub fn device_words(run: &Run) -> &str {
    run.device().unwrap_or("a device that was not recorded")
}

/// The precisions of rows, as a title names them.
pub fn precision_words<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let mut found = Vec::new();
    for row in rows {
        let precision = row.precision();
        if !found.contains(&precision) {
            found.push(precision);
        }
    }
    found.join(" and ")
}

/// cuBLAS, with its version where it is known.
pub fn cublas_words(run: &Run) -> String {
    match run.cublas_version() {
        Some(version) => format!("cuBLAS {version}"),
        None => "cuBLAS".to_owned(),
    }
}

/// A kernel, and the one that `auto` chose.
pub fn kernel_words(row: &Row) -> String {
    match &row.chosen {
        Some(chosen) => format!("{}: {chosen}", row.kernel),
        None => row.kernel.clone(),
    }
}

/// A number with three digits or so, for people.
pub fn brief(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
