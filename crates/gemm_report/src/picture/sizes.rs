//! Throughput against the size of square products, below the roofs.

use super::axes::{brief, cublas_words, device_words, horizontal, precision_words, vertical};
use super::roofs::Roofs;
use super::scale::{Scale, round_up};
use super::svg::{Anchor, Canvas, Key, MARGIN, Mark, Picture, Sheet, WIDTH};
use crate::row::{Origin, Row, Shape};
use crate::run::{Run, kernels};

const HEIGHT: f64 = 300.0;
const LEFT: f64 = MARGIN + 34.0;
const RIGHT: f64 = WIDTH - MARGIN - 14.0;

/// How a curve is drawn: the classes of its line and of its mark, and the mark.
type Look = (String, String, Mark);

/// Hues that are not cuBLAS's grey.
const HUES: [u32; 5] = [0, 1, 2, 4, 5];

/// The look of a kernel by its place: no two of the first twenty have hue and mark in common.
fn look(place: usize) -> Look {
    let hue = HUES[place % HUES.len()];
    let is_even = (place % HUES.len()).is_multiple_of(2);
    let (dash, mark) = match (place / HUES.len() % 4, is_even) {
        (0, true) => ("", Mark::Dot),
        (0, false) => ("", Mark::Diamond),
        (1, true) => (" d1", Mark::Diamond),
        (1, false) => (" d1", Mark::Dot),
        (2, _) => (" d2", Mark::Square),
        _ => (" d3", Mark::Ring),
    };
    let class = if mark == Mark::Ring { format!("o l{hue}") } else { format!("f{hue}") };
    (format!("l{hue}{dash}"), class, mark)
}

fn cublas_look() -> Look {
    ("l3".to_owned(), "f3".to_owned(), Mark::Square)
}

/// The square products of a run of `rungs bench`: TFLOP/s of its kernels and of cuBLAS.
///
/// In f32 the measured rates of multiply-adds and copies are roofs. None if there are fewer than
/// two sizes.
pub fn sizes(run: &Run) -> Option<Picture> {
    let rows =
        || run.rows_of(Origin::Bench).filter(|row| row.shape().is_square() && row.gflops.is_some());
    let sizes: Vec<usize> = rows().map(|row| row.shape().n).collect();
    let (least, most) = (*sizes.iter().min()?, *sizes.iter().max()?);
    if least == most || least == 0 {
        return None;
    }
    let precision = precision_words(rows());
    // They are roofs of f32.
    let roofs = Roofs::of(run).filter(|_| precision == "f32");

    let title = format!("Square products on {}, {precision}", device_words(run));
    let note = match &roofs {
        Some(_) => {
            "TFLOP/s against M = N = K. The run measured the roofs: multiply-adds (FFMA), and \
             copies of A, B and C. Sizes that are no multiple of 4 lie off the lines"
        }
        None => "TFLOP/s against M = N = K. Sizes that are no multiple of 4 lie off the lines",
    };
    let mut sheet = Sheet::new("sizes", &title, note, &run.label);
    let kernels = kernels(rows().filter(|row| row.kernel != "cublas"));
    sheet.legend(&legend(run, &kernels));

    let (top, bottom) = (sheet.bottom + 16.0, sheet.bottom + 16.0 + HEIGHT);
    let ffma = roofs.as_ref().map_or(0.0, |roofs| roofs.ffma_gflops);
    let speeds = rows().flat_map(|row| [row.gflops, row.bench.cublas_gflops]).flatten();
    let highest = speeds.fold(ffma, f64::max) / 1e3;
    let step = round_up(highest / 6.0);
    let y = Scale::linear([0.0, (1.08 * highest / step).ceil() * step], [bottom, top]);
    // So far to the left that the roof of copies is seen.
    let crossing = |roofs: &Roofs| 0.7 * roofs.ffma_gflops / 1e3 / copies(roofs, 1.0);
    let from = (least as f64).min(roofs.as_ref().map_or(f64::INFINITY, crossing)).max(1.0);
    let x = Scale::log([from / 1.08, most as f64 * 1.08], [LEFT, RIGHT]);
    vertical(&mut sheet, &y, [LEFT, RIGHT], &y.ticks(8));
    let ticks: Vec<(f64, String)> = (0..40)
        .map(|power| f64::from(power).exp2())
        .filter(|size| (x.values()[0]..=x.values()[1]).contains(size))
        .map(|size| (size, format!("{size}")))
        .collect();
    horizontal(&mut sheet, &x, [top, bottom], &ticks, "M = N = K (logarithmic)");
    if let Some(roofs) = &roofs {
        draw(roofs, &mut sheet.canvas, &x, &y);
    }

    let of = |kernel: &str| {
        let mut rows: Vec<&Row> = rows().filter(|row| row.kernel == kernel).collect();
        rows.sort_by_key(|row| row.shape().n);
        rows
    };
    // cuBLAS ran next to each kernel, so the first one's rows have it.
    let next_to = kernels.first().map_or("cublas", |kernel| kernel);
    curve(
        &mut sheet.canvas,
        cublas_look(),
        "cuBLAS",
        &of(next_to),
        |row| row.bench.cublas_gflops,
        [&x, &y],
    );
    for (place, kernel) in kernels.iter().enumerate() {
        curve(&mut sheet.canvas, look(place), kernel, &of(kernel), |row| row.gflops, [&x, &y]);
    }
    Some(sheet.finish())
}

fn legend(run: &Run, kernels: &[&str]) -> Vec<Key> {
    let key = |(line, class, mark): Look, text: &str| Key::new(&line, Some((&class, mark)), text);
    let own = kernels.iter().enumerate().map(|(place, kernel)| key(look(place), kernel));
    own.chain([key(cublas_look(), &cublas_words(run))]).collect()
}

fn curve(
    canvas: &mut Canvas,
    (line, class, mark): Look,
    name: &str,
    rows: &[&Row],
    value: fn(&Row) -> Option<f64>,
    [x, y]: [&Scale; 2],
) {
    let points = rows.iter().filter_map(|row| Some((row.shape().n as f64, value(row)? / 1e3)));
    let points: Vec<(f64, f64)> = points.collect();
    // Where rows do not begin on 16 bytes, a product is another case than its neighbours.
    let aligned = points.iter().filter(|(size, _)| size % 4.0 == 0.0);
    canvas.polyline(&line, aligned.map(|(size, speed)| [x.at(*size), y.at(*speed)]));
    for (size, speed) in points {
        canvas.explained(&format!("{name}, {size}: {speed:.2} TFLOP/s"), |canvas| {
            canvas.mark(&class, mark, [x.at(size), y.at(speed)]);
        });
    }
}

/// TFLOP/s of a square product that copies alone hold up.
fn copies(roofs: &Roofs, size: f64) -> f64 {
    let one = Shape { m: 1, n: 1, k: 1, trans_a: false, trans_b: false, batch: 1, groups: 0 };
    roofs.copy_gbytes * size * one.flops() / one.bytes() / 1e3
}

/// Both roofs, each with its rate.
fn draw(roofs: &Roofs, canvas: &mut Canvas, x: &Scale, y: &Scale) {
    let ([first, last], highest) = (x.values(), y.values()[1]);
    let ffma = roofs.ffma_gflops / 1e3;
    canvas.line("roof", [x.at(first), y.at(ffma)], [x.at(last), y.at(ffma)]);
    let text = format!("FFMA roof {} TFLOP/s", brief(ffma));
    canvas.text([x.at(last), y.at(ffma) - 7.0], "a halo", Anchor::End, &text);
    let end = (highest / copies(roofs, 1.0)).min(last);
    if end <= first {
        return;
    }
    let steps = (0..=24).map(|step| first * (end / first).powf(f64::from(step) / 24.0));
    let points = steps.map(|size| [x.at(size), y.at(copies(roofs, size))]);
    canvas.polyline("roof", points);
    let text = format!("copy roof {} TB/s", brief(roofs.copy_gbytes / 1e3));
    let at = (0.45 * highest / copies(roofs, 1.0)).clamp(first, end);
    let place = [x.at(at) + 9.0, y.at(copies(roofs, at)) + 5.0];
    canvas.text(place, "a halo", Anchor::Start, &text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_look_different() {
        let of = |(_, class, mark): Look| format!("{class} {mark:?}");
        let mut looks: Vec<String> = (0..20).map(|place| of(look(place))).collect();
        looks.push(of(cublas_look()));
        looks.sort();
        looks.dedup();
        assert_eq!(looks.len(), 21);
    }
}
