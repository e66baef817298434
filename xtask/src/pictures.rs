//! The pictures of the README, from recorded runs: part of `cargo xtask readme`.

use std::path::Path;

use gemm_report::{File, Picture, Run, picture};

/// Where a picture goes, the run that it shows, and what draws it.
type Source = (&'static str, &'static str, fn(&Run) -> Option<Picture>);

const PICTURES: [Source; 1] =
    [("docs/pictures/ladder.svg", "runs/h200/ladder/ladder-4096.jsonl", |run| {
        picture::ladder(run, run.rows.first()?.shape())
    })];

/// Each picture's path and text.
///
/// # Errors
///
/// What is wrong with a run.
pub fn all(root: &Path) -> Result<Vec<(&'static str, String)>, String> {
    let draw = |(path, source, draw): Source| {
        let text =
            std::fs::read(root.join(source)).map_err(|error| format!("`{source}`: {error}"))?;
        let file = File::parse(Path::new(source), &text).map_err(|error| error.to_string())?;
        let runs = file.into_runs().map_err(|error| error.to_string())?;
        let picture = runs.first().and_then(draw);
        let picture = picture.ok_or_else(|| format!("`{source}` has nothing to draw"))?;
        Ok((path, picture.to_svg()))
    };
    PICTURES.into_iter().map(draw).collect()
}
