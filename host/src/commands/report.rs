//! `report`: saved runs as one HTML page, and as pictures.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use gemm_report::{PAGE_START, Run, SVG_START, page, read_all, svg_files};

use super::outcome::Outcome;
use crate::error::Error;
use crate::io::output::Output;
use crate::io::stdio::print;

/// The repository's folder of runs.
const RUNS: &str = "runs";

/// The default output.
const PAGE: &str = "report.html";

#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Files that --save wrote, and folders of them [default: runs].
    #[arg(value_name = "RUNS")]
    runs: Vec<PathBuf>,

    /// The page [default: report.html, unless there is --svg]. Only such a page is replaced.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// A folder for all pictures, as SVG files. Only SVG files are replaced.
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
}

/// Does what the options say.
pub fn run(args: &ReportArgs) -> Result<Outcome, Error> {
    let runs = match args.runs.is_empty() {
        true if !Path::new(RUNS).is_dir() => return Err(Error::NoRuns),
        true => vec![PathBuf::from(RUNS)],
        false => args.runs.clone(),
    };
    let alone = args.svg.is_none().then_some(Path::new(PAGE));
    let path = args.out.as_deref().or(alone);
    let output = path.map(|path| own(path, PAGE_START)).transpose()?;
    let files = read_all(&runs)?;
    let (count, text) = (files.len(), output.is_some().then(|| page(&files)));
    let mut pictures = Vec::new();
    let mut outputs = Vec::new();
    if let Some(folder) = &args.svg {
        let runs: Vec<Run> =
            files.into_iter().filter_map(|file| file.into_runs().ok()).flatten().collect();
        pictures = svg_files(&runs);
        fs::create_dir_all(folder).map_err(|error| Error::not_written(folder, &error))?;
        // All of them first, so that a file that is in the way leaves everything as it was.
        let found = pictures.iter().map(|(name, _)| own(&folder.join(name), SVG_START));
        outputs = found.collect::<Result<Vec<_>, _>>()?;
    }
    if let (Some(path), Some(output), Some(text)) = (path, output, text) {
        output.write_text(&text)?;
        print(&format!("{}: {}\n", path.display(), words(count, "file")))?;
    }
    if let Some(folder) = &args.svg {
        for (output, (_, picture)) in outputs.iter().zip(&pictures) {
            output.write_text(picture)?;
        }
        print(&format!("{}: {}\n", folder.display(), words(pictures.len(), "picture")))?;
    }
    Ok(Outcome::Right)
}

/// A file that is new or empty, or one that an earlier call wrote.
fn own(path: &Path, start: &str) -> Result<Output, Error> {
    let output = Output::new(path)?;
    let mut found = Vec::new();
    match File::open(path) {
        Ok(file) => {
            let read = file.take(start.len() as u64).read_to_end(&mut found);
            read.map_err(|error| Error::not_written(path, &error))?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(Error::not_written(path, &error)),
    }
    match found.is_empty() || found == start.as_bytes() {
        true => Ok(output),
        false => {
            let reason = "it holds something that `report` did not write".to_owned();
            Err(Error::Output { path: path.to_owned(), reason })
        }
    }
}

fn words(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
