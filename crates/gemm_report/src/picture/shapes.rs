//! The ratio to cuBLAS of every shape, as a dot with its interval.

use super::axes::{cublas_words, device_words, horizontal, kernel_words, named, precision_words};
use super::scale::Scale;
use super::svg::{Anchor, Key, MARGIN, Mark, Picture, Sheet, WIDTH, text_width};
use crate::row::{Origin, Row, Verdict};
use crate::run::Run;

const ROW: f64 = 19.0;
/// The average width of a character of a shape.
const MONO: f64 = 8.6;
/// The space for the ratio in digits.
const NUMBER: f64 = 62.0;

/// The ratios of one kernel in a run of `rungs bench`: cuBLAS's time divided by the kernel's, the
/// largest first, on a logarithmic axis.
///
/// None if there is no ratio.
pub fn shapes(run: &Run, kernel: &str) -> Option<Picture> {
    let mut rows: Vec<(&Row, f64)> = run
        .rows_of(Origin::Bench)
        .filter(|row| row.kernel == kernel)
        .filter_map(|row| Some((row, row.bench.ratio?)))
        .collect();
    rows.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let ratios: Vec<f64> = rows.iter().map(|(_, ratio)| *ratio).collect();
    let mean = sample_stats::geometric_mean(&ratios)?;

    let title = format!(
        "{kernel} next to cuBLAS on {}, {}",
        device_words(run),
        precision_words(rows.iter().map(|(row, _)| *row))
    );
    let count = rows.len();
    let what = format!(
        "Speed relative to {} for {count} shape{}, geometric mean {mean:.2}. Lines are 95 % \
         intervals; where there is none, it is narrower than the mark",
        cublas_words(run),
        if count == 1 { "" } else { "s" },
    );
    let mut sheet = Sheet::new(&format!("shapes-{kernel}"), &title, &what, &run.label);
    sheet.legend(&legend(&rows));

    let names = rows.iter().map(|(row, _)| text_width(&row.shape().to_string(), MONO));
    let left = MARGIN + names.fold(text_width("M x N x K", MONO), f64::max) + 14.0;
    let right = WIDTH - MARGIN - NUMBER;
    let scale = Scale::log(span(&rows), [left, right]);
    let head = sheet.bottom + 20.0;
    let top = head + 10.0;
    let bottom = top + count as f64 * ROW + 4.0;
    sheet.canvas.text([left - 10.0, head], "n", Anchor::End, "M x N x K");
    sheet.canvas.text([WIDTH - MARGIN, head], "n", Anchor::End, "ratio");
    let ticks = named(scale.ticks(8), "");
    let name = "speed relative to cuBLAS (logarithmic): to the right is faster";
    horizontal(&mut sheet, &scale, [top, bottom], &ticks, name);
    let one = scale.at(1.0);
    sheet.canvas.line("ref", [one, top - 4.0], [one, bottom]);
    // Beside the name of the shapes, where nearly all are faster.
    let label = one.max(left + text_width("cuBLAS", MONO) / 2.0);
    sheet.canvas.text([label, head], "t b", Anchor::Middle, "cuBLAS");

    for (place, (row, ratio)) in rows.iter().enumerate() {
        let y = top + 2.0 + (place as f64 + 0.5) * ROW;
        sheet.canvas.explained(&words(row, *ratio), |canvas| {
            let (name, number) = (row.shape().to_string(), format!("{ratio:.3}"));
            canvas.text([left - 10.0, y + 5.0], "k", Anchor::End, &name);
            canvas.text([WIDTH - MARGIN, y + 5.0], "k", Anchor::End, &number);
            let (line, class, mark) = look(row);
            if let Some([low, high]) = interval(row) {
                canvas.line(line, [scale.at(low), y], [scale.at(high), y]);
            }
            canvas.mark(class, mark, [scale.at(*ratio), y]);
        });
    }
    Some(sheet.finish())
}

/// The classes of a verdict's line and mark, and its mark.
type Look = (&'static str, &'static str, Mark);

const LOOKS: [(Verdict, &str, Look); 3] = [
    (Verdict::Faster, "faster", ("l1", "f1", Mark::Dot)),
    (Verdict::WithinNoise, "within noise", ("l3", "o l3", Mark::Ring)),
    (Verdict::Slower, "slower", ("l2", "f2", Mark::Diamond)),
];

/// Where there is no verdict, there were too few samples for one.
fn verdict(row: &Row) -> Verdict {
    row.bench.verdict.unwrap_or(Verdict::WithinNoise)
}

fn look(row: &Row) -> Look {
    let of_row = LOOKS.into_iter().find(|(one, ..)| *one == verdict(row));
    of_row.map_or(LOOKS[1].2, |(.., look)| look)
}

/// The verdicts that there are, and how often.
fn legend(rows: &[(&Row, f64)]) -> Vec<Key> {
    let count = |one| rows.iter().filter(|(row, _)| verdict(row) == one).count();
    let looks = LOOKS.iter().map(|(one, words, look)| (count(*one), words, look));
    let keys = looks.filter(|(count, ..)| *count > 0).map(|(count, words, (line, class, mark))| {
        Key::new(line, Some((class, *mark)), format!("{words} ({count})"))
    });
    keys.collect()
}

fn interval(row: &Row) -> Option<[f64; 2]> {
    Some([row.bench.ratio_low?, row.bench.ratio_high?])
}

/// From the lowest to the highest end, with 1 inside, and a little more.
fn span(rows: &[(&Row, f64)]) -> [f64; 2] {
    let ends = rows.iter().flat_map(|(row, ratio)| {
        let [low, high] = interval(row).unwrap_or([*ratio; 2]);
        [low.min(*ratio), high.max(*ratio)]
    });
    let (mut low, mut high) = (0.9f64, 1.1f64);
    for end in ends {
        (low, high) = (low.min(end), high.max(end));
    }
    [low / 1.06, high * 1.06]
}

fn words(row: &Row, ratio: f64) -> String {
    let mut words =
        format!("{}, {}: {ratio:.3} times cuBLAS's speed", row.shape(), kernel_words(row));
    if let Some([low, high]) = interval(row) {
        words += &format!(" ({low:.3} to {high:.3})");
    }
    if let (Some(own), Some(cublas)) = (row.median_ms(), row.bench.cublas_median) {
        words += &format!(", {own:.4} ms against {cublas:.4} ms");
    }
    words
}
