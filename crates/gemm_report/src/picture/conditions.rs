//! Clocks, power and temperature while a run was measured.

use super::axes::{device_words, named, vertical};
use super::scale::{Scale, round_up, tick};
use super::svg::{Anchor, Key, MARGIN, Mark, Picture, Sheet, WIDTH};
use crate::row::{Origin, Row};
use crate::run::Run;

const PANEL: f64 = 96.0;
const LEFT: f64 = MARGIN + 40.0;
const RIGHT: f64 = WIDTH - MARGIN - 14.0;

/// What one panel shows: its name, the class of its line, and the values, the lowest and the highest.
type Panel = (&'static str, &'static str, fn(&Row) -> Option<[f64; 2]>);

const PANELS: [Panel; 3] = [
    ("clock of the multiprocessors, MHz", "l0", |row| Some([row.sm_mhz_min?, row.sm_mhz_max?])),
    ("power, W", "l5", |row| Some([row.watts?; 2])),
    ("temperature, degrees Celsius", "l2", |row| Some([row.celsius?; 2])),
];

/// The state of the GPU at each row of a run of `host bench`, in the order measured.
///
/// None if less than two rows have it.
pub fn conditions(run: &Run) -> Option<Picture> {
    let rows: Vec<&Row> = run.rows_of(Origin::Bench).collect();
    let is_known = |row: &&&Row| PANELS.iter().any(|(.., value)| value(row).is_some());
    if rows.iter().filter(is_known).count() < 2 {
        return None;
    }
    let title = format!("Clocks, power and temperature on {}", device_words(run));
    let throttled = |row: &Row| row.throttled.as_deref().is_some_and(|reason| !reason.is_empty());
    let count = rows.iter().filter(|row| throttled(row)).count();
    let note = match count {
        0 => {
            "The state of the GPU at each row, in the order measured; nothing held the clocks down"
                .to_owned()
        }
        _ => format!(
            "The state of the GPU at each row, in the order measured; {count} of {} rows had their \
             clocks held down",
            rows.len()
        ),
    };
    let mut sheet = Sheet::new("conditions", &title, &[&note], &run.label);
    if count > 0 {
        sheet.legend(&[Key::new("", Some(("f2", Mark::Diamond)), "clocks held down")]);
    }
    let x = Scale::linear([1.0, rows.len() as f64], [LEFT + 6.0, RIGHT - 6.0]);
    for (place, panel) in PANELS.iter().enumerate() {
        panel_of(&mut sheet, panel, &rows, &x, place == 0);
    }
    let bottom = sheet.bottom;
    for (value, text) in named(x.ticks(8), "") {
        sheet.canvas.text([x.at(value), bottom + 18.0], "a", Anchor::Middle, &text);
    }
    let middle = f64::midpoint(LEFT, RIGHT);
    sheet.canvas.text([middle, bottom + 38.0], "n", Anchor::Middle, "row of the run");
    sheet.bottom += 42.0;
    Some(sheet.finish())
}

fn panel_of(
    sheet: &mut Sheet,
    (name, class, value): &Panel,
    rows: &[&Row],
    x: &Scale,
    has_marks: bool,
) {
    let points = rows
        .iter()
        .enumerate()
        .filter_map(|(place, row)| Some((x.at(place as f64 + 1.0), *row, value(row)?)));
    let points: Vec<_> = points.collect();
    let ends = points.iter().flat_map(|(.., ends)| *ends);
    let Some(high) = ends.clone().reduce(f64::max) else { return };
    let low = ends.fold(high, f64::min);
    // Not from zero, where a change of a few percent would not be seen; never less than a tenth of
    // the value from end to end, where nothing changes.
    let step = round_up((high - low).max(0.1 * high).max(1e-3) / 2.0);
    let values = [(low / step - 0.3).floor() * step, (high / step + 0.3).ceil() * step];
    let top = sheet.bottom + 38.0;
    let bottom = top + PANEL;
    sheet.canvas.text([MARGIN, top - 13.0], "t", Anchor::Start, name);
    let y = Scale::linear(values, [bottom, top]);
    vertical(sheet, &y, [LEFT, RIGHT], &y.ticks(4));
    for end in [0, 1] {
        sheet.canvas.polyline(class, points.iter().map(|(x, _, ends)| [*x, y.at(ends[end])]));
    }
    for (x, row, ends) in &points {
        let reason = row.throttled.as_deref().unwrap_or_default();
        if has_marks && !reason.is_empty() {
            let words = format!("{}, {}: {reason}, {} MHz", row.kernel, row.shape, tick(ends[0]));
            sheet.canvas.explained(&words, |canvas| {
                canvas.mark("f2", Mark::Diamond, [*x, y.at(ends[0])]);
            });
        }
    }
    sheet.bottom = bottom;
}
