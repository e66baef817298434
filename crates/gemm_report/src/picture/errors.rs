//! Errors against cuBLAS's own.

use super::axes::{device_words, horizontal, kernel_words, precision_words, vertical};
use super::scale::Scale;
use super::svg::{Anchor, Key, MARGIN, Mark, Picture, Sheet, WIDTH};
use crate::row::{Origin, Row};
use crate::run::Run;

const HEIGHT: f64 = 340.0;
const LEFT: f64 = MARGIN + 46.0;
const RIGHT: f64 = WIDTH - MARGIN - 14.0;

/// The rms error of each shape in a run of `rungs bench`, against cuBLAS's.
///
/// Below the diagonal a result is more accurate than cuBLAS's. None if no row has both errors. An
/// exact result has no place on a logarithmic axis.
pub fn errors(run: &Run, kernel: &str) -> Option<Picture> {
    let rows = run.rows_of(Origin::Bench).filter(|row| row.kernel == kernel);
    let points: Vec<(&Row, [f64; 2])> =
        rows.filter_map(|row| Some((row, [row.bench.cublas_rms_error?, row.rms_error?]))).collect();
    let all = || points.iter().flat_map(|(_, errors)| *errors);
    let (low, high) = (all().reduce(f64::min)?, all().reduce(f64::max)?);
    let larger = points.iter().filter(|(_, [cublas, own])| own > cublas).count();

    let title = format!(
        "Errors of {kernel} next to cuBLAS on {}, {}",
        device_words(run),
        precision_words(points.iter().map(|(row, _)| *row))
    );
    let note = format!(
        "Root of the mean square error against a product in f64. Below the line, {kernel} is \
         nearer to it than cuBLAS; of {} shapes, {larger} lie above",
        points.len()
    );
    let mut sheet = Sheet::new(&format!("errors-{kernel}"), &title, &note, &run.label);
    sheet.legend(&[
        Key::new("", Some(("f1", Mark::Dot)), "no larger than cuBLAS's"),
        Key::new("", Some(("f2", Mark::Diamond)), "larger"),
        Key::new("ref", None, "the same"),
    ]);
    let (top, bottom) = (sheet.bottom + 32.0, sheet.bottom + 32.0 + HEIGHT);
    let values = [low / 1.3, high * 1.3];
    let (x, y) = (Scale::log(values, [LEFT, RIGHT]), Scale::log(values, [bottom, top]));
    let name = format!("rms error of {kernel} (logarithmic)");
    sheet.canvas.text([MARGIN, top - 11.0], "n", Anchor::Start, &name);
    vertical(&mut sheet, &y, [LEFT, RIGHT], &y.ticks(9));
    let ticks = super::axes::named(x.ticks(9), "");
    horizontal(&mut sheet, &x, [top, bottom], &ticks, "rms error of cuBLAS (logarithmic)");
    sheet.canvas.line("ref", [LEFT, bottom], [RIGHT, top]);
    for (row, [cublas, own]) in points {
        let words = format!(
            "{}, {}: {own:.2e}, cuBLAS {cublas:.2e}, {:.2} times",
            row.shape(),
            kernel_words(row),
            own / cublas
        );
        let (class, mark) = if own > cublas { ("f2", Mark::Diamond) } else { ("f1", Mark::Dot) };
        sheet
            .canvas
            .explained(&words, |canvas| canvas.mark(class, mark, [x.at(cublas), y.at(own)]));
    }
    Some(sheet.finish())
}
