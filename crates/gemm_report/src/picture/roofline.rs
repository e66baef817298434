//! Throughput against arithmetic intensity, below the roofs of arithmetic and of memory.

use kernels_gpu::abi::{KernelDescriptor, Shared, Tile};
use kernels_gpu::{LADDER, TILES};

use super::axes::{
    brief, device_words, file_words, horizontal, kernel_words, named, shape_words, vertical,
};
use super::roofs::Roofs;
use super::scale::Scale;
use super::svg::{Anchor, Canvas, MARGIN, Mark, Picture, Sheet, WIDTH, text_width};
use crate::row::{Origin, Row, Shape};
use crate::run::Run;

const HEIGHT: f64 = 330.0;
const LEFT: f64 = MARGIN + 36.0;
/// The space for the names of rungs, and between two of them.
const NAMES: f64 = 158.0;
const LINE: f64 = 17.0;
/// The average width of a character of a rung's name.
const MONO: f64 = 8.6;

/// A point below the roofs: FLOP per byte, and TFLOP/s.
struct Point<'a> {
    row: &'a Row,
    intensity: f64,
    speed: f64,
}

/// The rungs of a run of `rungs --kernel all`, by the bytes that their geometry has them load.
///
/// The roofs may be another run's, on the same device: older ladders measured none. None if no rung
/// of the ladder has a time.
pub fn rung_roofline(run: &Run, shape: Shape, roofs: &Roofs) -> Option<Picture> {
    let rows = run.rows_of(Origin::Ladder).filter(|row| row.shape() == shape && row.rung.is_some());
    let points: Vec<_> = rows
        .filter_map(|row| {
            let intensity = intensity(find(&row.kernel)?);
            Some(Point { row, intensity, speed: row.gflops? / 1e3 })
        })
        .collect();
    if points.is_empty() {
        return None;
    }
    let title =
        format!("Roofline of the rungs in f32 on {}, {}", device_words(run), shape_words(shape));
    let note = "Intensity: FLOP per byte that the threads of a block load from global memory, by \
                the geometry of the rung. Above the slanted roof, caches serve the loads";
    let source = match roofs.source == run.label {
        true => run.label.clone(),
        false => format!("{}; roofs: {}", run.label, roofs.source),
    };
    let mut sheet =
        Sheet::new(&format!("rung-roofline-{}", file_words(shape)), &title, note, &source);
    let [x, y] = frame(&mut sheet, &points, roofs);
    names(&mut sheet.canvas, &points, &x, &y);
    for point in &points {
        mark(&mut sheet.canvas, point, &x, &y);
    }
    Some(sheet.finish())
}

/// A kernel of the ladder or of the tiles, if there still is one of this name.
fn find(name: &str) -> Option<&'static KernelDescriptor> {
    LADDER.iter().chain(TILES).copied().find(|descriptor| descriptor.name() == name)
}

/// FLOP per byte that a block loads: 2 BM BN per 4 (BM + BN) bytes.
///
/// Without shared memory, TM and TN replace BM and BN.
fn intensity(descriptor: &KernelDescriptor) -> f64 {
    let Tile { bm, bn, tm, tn, .. } = descriptor.tile();
    let [rows, columns] = match descriptor.shared() {
        Shared::Static(0) => [tm, tn],
        _ => [bm, bn],
    };
    let [rows, columns] = [rows, columns].map(f64::from);
    2.0 * rows * columns / (4.0 * (rows + columns))
}

/// Axes and roofs, over all points.
fn frame(sheet: &mut Sheet, points: &[Point<'_>], roofs: &Roofs) -> [Scale; 2] {
    let right = WIDTH - MARGIN - NAMES;
    let (top, bottom) = (sheet.bottom + 32.0, sheet.bottom + 32.0 + HEIGHT);
    let ridge = roofs.ffma_gflops / roofs.copy_gbytes;
    let peak = roofs.ffma_gflops / 1e3;
    let speeds = points.iter().map(|point| point.speed);
    let intensities = points.iter().map(|point| point.intensity);
    let x = span(intensities.chain([0.5 * ridge, 2.0 * ridge]), 1.25);
    let y = span(speeds.chain([peak]), 1.25);
    let (x, y) = (Scale::log(x, [LEFT, right]), Scale::log(y, [bottom, top]));
    sheet.canvas.text([MARGIN, top - 11.0], "n", Anchor::Start, "TFLOP/s (logarithmic)");
    vertical(sheet, &y, [LEFT, right], &y.ticks(8));
    let ticks = named(x.ticks(9), "");
    horizontal(sheet, &x, [top, bottom], &ticks, "FLOP per byte (logarithmic)");

    // The slanted roof from where it comes in, to the ridge.
    let copies = |intensity: f64| roofs.copy_gbytes * intensity / 1e3;
    let [first, last] = x.values();
    let from = first.max(y.values()[0] / copies(1.0));
    let line = [[from, copies(from)], [ridge, peak], [last, peak]];
    sheet.canvas.polyline("roof", line.map(|[intensity, speed]| [x.at(intensity), y.at(speed)]));
    let text = format!("FFMA {} TFLOP/s", brief(peak));
    sheet.canvas.text([right, y.at(peak) - 7.0], "a halo", Anchor::End, &text);
    let text = format!("copy {} TB/s", brief(roofs.copy_gbytes / 1e3));
    // Right of the slant: points served by caches lie left of it.
    let at = ridge * (from / ridge).powf(0.65);
    let place = [x.at(at) + 10.0, y.at(copies(at)) + 14.0];
    sheet.canvas.text(place, "a halo", Anchor::Start, &text);
    [x, y]
}

fn mark(canvas: &mut Canvas, point: &Point<'_>, x: &Scale, y: &Scale) {
    let Point { row, intensity, speed } = point;
    let words = format!(
        "{}, {}: {intensity:.2} FLOP per byte, {speed:.2} TFLOP/s",
        kernel_words(row),
        row.shape()
    );
    canvas
        .explained(&words, |canvas| canvas.mark("f0", Mark::Dot, [x.at(*intensity), y.at(*speed)]));
}

/// A rectangle: left, top, right, bottom.
type Area = [f64; 4];

fn overlap(one: &Area, other: &Area) -> bool {
    one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3]
}

/// The name of each point, beside it if there is room.
///
/// Other names stand in a column on the right, in the order of their points, each with a line.
fn names(canvas: &mut Canvas, points: &[Point<'_>], x: &Scale, y: &Scale) {
    let mut points: Vec<&Point<'_>> = points.iter().collect();
    points.sort_by(|one, other| other.speed.total_cmp(&one.speed));
    let places: Vec<[f64; 2]> =
        points.iter().map(|point| [x.at(point.intensity), y.at(point.speed)]).collect();
    let mut taken: Vec<Area> =
        places.iter().map(|[x, y]| [x - 7.0, y - 7.0, x + 7.0, y + 7.0]).collect();
    let ([first, last], [bottom, top]) = (x.places(), y.places());
    let mut crowded = Vec::new();
    for (point, at @ [x, y]) in points.iter().zip(&places) {
        let name = &point.row.kernel;
        let width = text_width(name, MONO);
        let beside = [
            ([x + 9.0, *y], [x + 8.0, x + 9.0 + width], Anchor::Start),
            ([x - 9.0, *y], [x - 9.0 - width, x - 8.0], Anchor::End),
            ([*x, y - 16.0], [x - width / 2.0, x + width / 2.0], Anchor::Middle),
            ([*x, y + 16.0], [x - width / 2.0, x + width / 2.0], Anchor::Middle),
        ];
        let free = beside.into_iter().find_map(|([x, y], [left, right], anchor)| {
            let area = [left, y - 7.0, right, y + 7.0];
            // Above, the upper roof is named.
            let is_inside = left > first && right < last && y > top + 34.0 && y < bottom;
            let is_free = is_inside && !taken.iter().any(|other| overlap(&area, other));
            is_free.then_some(([x, y + 5.0], area, anchor))
        });
        match free {
            Some((place, area, anchor)) => {
                canvas.text(place, "k halo", anchor, name);
                taken.push(area);
            }
            None => crowded.push((*point, *at)),
        }
    }
    let left = last + 22.0;
    let wanted: Vec<f64> = crowded.iter().map(|(_, [_, middle])| *middle).collect();
    for ((point, at), place) in crowded.into_iter().zip(apart(&wanted, [top + 4.0, bottom])) {
        canvas.polyline("x", [at, [left - 12.0, place], [left - 4.0, place]]);
        canvas.text([left, place + 5.0], "k", Anchor::Start, &point.row.kernel);
    }
}

/// Places at least a line apart, in the given order, near to what is wanted, and from `first` on;
/// up to `last` if they fit.
fn apart(wanted: &[f64], [first, last]: [f64; 2]) -> Vec<f64> {
    let mut places = Vec::new();
    let mut next = first;
    for place in wanted {
        let place = place.max(next);
        places.push(place);
        next = place + LINE;
    }
    // Back up from the end, as far as there is room.
    let mut next = last;
    for place in places.iter_mut().rev() {
        *place = place.min(next);
        next = *place - LINE;
    }
    places
}

/// From the least to the largest, with a factor on either side.
fn span(values: impl Iterator<Item = f64>, room: f64) -> [f64; 2] {
    let ends = values.fold([f64::INFINITY, 0.0], |[low, high]: [f64; 2], value| {
        [low.min(value), high.max(value)]
    });
    [ends[0] / room, ends[1] * room]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `explain` counts: K/64 values for each result of `tile2d`, and 2 K for `naive`.
    #[test]
    fn intensities_follow_from_the_geometry() {
        let of = |name: &str| intensity(find(name).unwrap());
        assert_eq!(of("naive"), 0.25);
        assert_eq!(of("tile2d"), 2.0 * 64.0 / 4.0);
        assert_eq!(of("vec4"), 1.0);
    }

    #[test]
    fn names_do_not_overlap() {
        let places = apart(&[10.0, 12.0, 300.0, 301.0], [0.0, 310.0]);
        assert_eq!(places, [10.0, 27.0, 293.0, 310.0]);
    }
}
