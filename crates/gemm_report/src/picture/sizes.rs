//! Throughput against the size of square products, below the roofs.

use super::axes::{brief, cublas_words, device_words, horizontal, vertical};
use super::roofs::Roofs;
use super::scale::{Scale, round_up};
use super::svg::{Anchor, Canvas, Key, MARGIN, Mark, Picture, Sheet, WIDTH};
use super::theme::HUES;
use crate::row::{Origin, Row, Shape};
use crate::run::{Run, kernels};

const HEIGHT: f64 = 300.0;
const LEFT: f64 = MARGIN + 34.0;
const RIGHT: f64 = WIDTH - MARGIN - 14.0;

/// The classes of each kernel's line and mark, in turn. cuBLAS has the grey one.
const LINES: [&str; HUES] = ["l0", "l1", "l2", "l4", "l5", "l3"];
const MARKS: [(&str, Mark); HUES] = [
    ("f0", Mark::Dot),
    ("f1", Mark::Diamond),
    ("f2", Mark::Dot),
    ("f4", Mark::Diamond),
    ("f5", Mark::Dot),
    ("f3", Mark::Square),
];
const CUBLAS: usize = HUES - 1;

/// The square products of a run of `host bench`: TFLOP/s of its kernels and of cuBLAS, and what the
/// measured rates of multiply-adds and of copies allow.
///
/// None if there are less than two sizes.
pub fn sizes(run: &Run) -> Option<Picture> {
    let rows =
        || run.rows_of(Origin::Bench).filter(|row| row.shape.is_square() && row.gflops.is_some());
    let sizes: Vec<u64> = rows().map(|row| row.shape.n).collect();
    let (least, most) = (*sizes.iter().min()?, *sizes.iter().max()?);
    if least == most || least == 0 {
        return None;
    }
    let roofs = Roofs::of(run)?;

    let title = format!("Square products on {}, f32", device_words(run));
    let note = "TFLOP/s against M = N = K. The roofs are rates that the same run measured: of \
                multiply-adds (FFMA), and of copies, with A, B and C moved once. Off the lines: \
                sizes that are no multiple of 4";
    let mut sheet = Sheet::new("sizes", &title, &[note], &run.label);
    let kernels = kernels(rows().filter(|row| row.kernel != "cublas"));
    sheet.legend(&legend(run, &kernels));

    let (top, bottom) = (sheet.bottom + 16.0, sheet.bottom + 16.0 + HEIGHT);
    let highest = rows().filter_map(|row| row.gflops).fold(roofs.ffma_gflops, f64::max) / 1e3;
    let step = round_up(highest / 6.0);
    let y = Scale::linear([0.0, (1.08 * highest / step).ceil() * step], [bottom, top]);
    // So far to the left that the roof of copies is seen.
    let crossing = roofs.ffma_gflops / 1e3 / copies(&roofs, 1.0);
    let from = (least as f64).min(0.7 * crossing).max(1.0);
    let x = Scale::log([from / 1.08, most as f64 * 1.08], [LEFT, RIGHT]);
    vertical(&mut sheet, &y, [LEFT, RIGHT], &y.ticks(8));
    let ticks: Vec<(f64, String)> = (0..40)
        .map(|power| f64::from(power).exp2())
        .filter(|size| (x.values()[0]..=x.values()[1]).contains(size))
        .map(|size| (size, format!("{size}")))
        .collect();
    horizontal(&mut sheet, &x, [top, bottom], &ticks, "M = N = K (logarithmic)");
    draw(&roofs, &mut sheet.canvas, &x, &y);

    let of = |kernel: &str| {
        let mut rows: Vec<&Row> = rows().filter(|row| row.kernel == kernel).collect();
        rows.sort_by_key(|row| row.shape.n);
        rows
    };
    // cuBLAS ran next to each kernel, so the first one's rows have it.
    let next_to = kernels.first().map_or("cublas", |kernel| kernel);
    curve(&mut sheet.canvas, CUBLAS, "cuBLAS", &of(next_to), |row| row.cublas_gflops, [&x, &y]);
    for (place, kernel) in kernels.iter().enumerate() {
        curve(&mut sheet.canvas, place % CUBLAS, kernel, &of(kernel), |row| row.gflops, [&x, &y]);
    }
    Some(sheet.finish())
}

fn legend(run: &Run, kernels: &[&str]) -> Vec<Key> {
    let key =
        |place: usize, text: String| Key { line: LINES[place], mark: Some(MARKS[place]), text };
    let own = kernels.iter().enumerate();
    let own = own.map(|(place, kernel)| key(place % CUBLAS, (*kernel).to_owned()));
    own.chain([key(CUBLAS, cublas_words(run))]).collect()
}

fn curve(
    canvas: &mut Canvas,
    look: usize,
    name: &str,
    rows: &[&Row],
    value: fn(&Row) -> Option<f64>,
    [x, y]: [&Scale; 2],
) {
    let points = rows.iter().filter_map(|row| Some((row.shape.n as f64, value(row)? / 1e3)));
    let points: Vec<(f64, f64)> = points.collect();
    // Where rows do not begin on 16 bytes, a product is another case than its neighbours.
    let aligned = points.iter().filter(|(size, _)| size % 4.0 == 0.0);
    canvas.polyline(LINES[look], aligned.map(|(size, speed)| [x.at(*size), y.at(*speed)]));
    let (class, mark) = MARKS[look];
    for (size, speed) in points {
        canvas.explained(&format!("{name}, {size}: {speed:.2} TFLOP/s"), |canvas| {
            canvas.mark(class, mark, [x.at(size), y.at(speed)]);
        });
    }
}

/// TFLOP/s of a square product that copies alone hold up.
fn copies(roofs: &Roofs, size: f64) -> f64 {
    let one = Shape { m: 1, n: 1, k: 1 };
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
