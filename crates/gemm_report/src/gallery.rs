//! All pictures of runs.

use std::collections::BTreeSet;

use crate::picture::{self, Picture, Roofs};
use crate::row::Origin;
use crate::run::{Run, kernels};

/// All pictures of each run, in the order of the runs.
pub fn gallery(runs: &[Run]) -> Vec<Vec<Picture>> {
    let known: Vec<(&Run, Roofs)> =
        runs.iter().filter_map(|run| Some((run, Roofs::of(run)?))).collect();
    runs.iter().map(|run| pictures(run, roofs_for(run, &known))).collect()
}

fn pictures(run: &Run, roofs: Option<&Roofs>) -> Vec<Picture> {
    let mut pictures = Vec::new();
    for shape in run.ladder_shapes() {
        pictures.extend(picture::ladder(run, shape));
        pictures.extend(roofs.and_then(|roofs| picture::rung_roofline(run, shape, roofs)));
    }
    let kernels = kernels(run.rows_of(Origin::Bench));
    pictures.extend(picture::sizes(run));
    for kernel in &kernels {
        pictures.extend(picture::shapes(run, kernel));
    }
    for kernel in kernels {
        pictures.extend(picture::errors(run, kernel));
    }
    pictures
}

/// The roofs that were measured on the same device, as near in time as there are.
fn roofs_for<'a>(run: &Run, known: &'a [(&Run, Roofs)]) -> Option<&'a Roofs> {
    let device = run.device()?;
    let distance = |other: &Run| {
        run.unix_time().zip(other.unix_time()).map_or(u64::MAX, |(one, other)| one.abs_diff(other))
    };
    let same = known.iter().filter(|(other, _)| other.device() == Some(device));
    same.min_by_key(|(other, _)| distance(other)).map(|(_, roofs)| roofs)
}

/// The pictures of runs as files: distinct names, and texts.
pub fn svg_files(runs: &[Run]) -> Vec<(String, String)> {
    let mut names = BTreeSet::new();
    let mut files = Vec::new();
    for (run, pictures) in runs.iter().zip(gallery(runs)) {
        for picture in pictures {
            let stem = file_name(&format!("{}-{}", run.label, picture.name));
            let numbered = (2..).map(|number| format!("{stem}-{number}.svg"));
            let mut wanted = std::iter::once(format!("{stem}.svg")).chain(numbered);
            let name = wanted.find(|name| names.insert(name.clone()));
            files.push((name.expect("numbers do not end"), picture.to_svg()));
        }
    }
    files
}

/// What every file system takes.
fn file_name(text: &str) -> String {
    let text = text.strip_prefix("runs/").unwrap_or(text).replace(".jsonl", "");
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name: String = text.chars().map(|c| if plain(c) { c } else { '-' }).collect();
    name.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        assert_eq!(
            file_name("runs/h200/f32/shapes.jsonl-shapes-auto"),
            "h200-f32-shapes-shapes-auto"
        );
        assert_eq!(file_name("../a b/\u{e9}.jsonl (2)-x"), "---a-b----2--x");
    }
}
