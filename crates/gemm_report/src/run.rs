//! Saved runs, and the files that hold them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::row::{Origin, Row, Shape};

/// Where and how results were made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// The arguments of the command.
    pub command: Vec<String>,
    /// Seconds since 1970.
    pub unix_time: Option<u64>,
    /// The device's name.
    pub device: Option<String>,
    /// `gpu` or `soft`.
    pub device_kind: Option<String>,
    /// As in `9.0`.
    pub compute_capability: Option<String>,
    /// The device's memory.
    pub device_memory_bytes: Option<u64>,
    /// The f32 peak and where it comes from.
    pub peak: Option<String>,
    /// The NVIDIA driver's version.
    pub driver_version: Option<String>,
    /// The version of CUDA that the driver has.
    pub cuda_version: Option<String>,
    /// The version of cuBLAS.
    pub cublas_version: Option<String>,
    /// The program's version.
    pub host_version: Option<String>,
    /// The target that the kernels' PTX was built for.
    pub ptx_arch: Option<String>,
}

impl Environment {
    /// When, in UTC, as in `2026-11-22 05:31`.
    pub fn when(&self) -> Option<String> {
        let time = UNIX_EPOCH.checked_add(Duration::from_secs(self.unix_time?))?;
        // What is after the year 9999 has no such form, and is an error.
        let mut text = String::new();
        let stamp = humantime::format_rfc3339_seconds(time);
        std::fmt::write(&mut text, format_args!("{stamp}")).ok()?;
        Some(text.get(..16)?.replace('T', " "))
    }
}

/// The results of one call: an environment, and what was measured there.
#[derive(Clone, Debug)]
pub struct Run {
    /// The file's name, without local folders. From the second run of a file on, with its number.
    pub label: String,
    /// `None` if only a command's output was kept.
    pub environment: Option<Environment>,
    /// The results, at least one.
    pub rows: Vec<Row>,
}

impl Run {
    /// The device's name.
    pub fn device(&self) -> Option<&str> {
        let of_row = || self.rows.iter().find_map(|row| row.ladder.device.as_deref());
        self.environment.as_ref().and_then(|it| it.device.as_deref()).or_else(of_row)
    }

    /// The version of cuBLAS.
    pub fn cublas_version(&self) -> Option<&str> {
        let of_row = || self.rows.iter().find_map(|row| row.ladder.cublas_version.as_deref());
        self.environment.as_ref().and_then(|it| it.cublas_version.as_deref()).or_else(of_row)
    }

    /// Whether times are those of the software device, which say nothing about a GPU.
    pub fn is_simulated(&self) -> bool {
        let of_environment = self.environment.as_ref().and_then(|it| it.device_kind.as_deref());
        of_environment == Some("soft") || self.rows.iter().any(Row::is_simulated)
    }

    /// When it was made, in seconds since 1970.
    pub fn unix_time(&self) -> Option<u64> {
        self.environment.as_ref()?.unix_time
    }

    /// The shapes of the results that `rungs --kernel` made, in the order of their first ones.
    pub fn ladder_shapes(&self) -> Vec<Shape> {
        let mut shapes = Vec::new();
        for row in self.rows_of(Origin::Ladder) {
            if !shapes.contains(&row.shape()) {
                shapes.push(row.shape());
            }
        }
        shapes
    }

    /// The results that this command made.
    pub fn rows_of(&self, origin: Origin) -> impl Iterator<Item = &Row> + Clone {
        self.rows.iter().filter(move |row| row.origin == origin)
    }
}

/// The kernels of these rows, in the order of their first ones.
pub fn kernels<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<&'a str> {
    let mut kernels: Vec<&str> = Vec::new();
    for row in rows {
        if !kernels.contains(&row.kernel.as_str()) {
            kernels.push(&row.kernel);
        }
    }
    kernels
}

/// What a file holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// Results, of one call or of several that added to the file.
    Runs(Vec<Run>),
    /// A search of `rungs tune`, which is about other things than results.
    Tune,
}

/// A file of saved runs.
#[derive(Clone, Debug)]
pub struct File {
    /// As it was given, or found.
    pub path: PathBuf,
    /// Its name without what only this machine knows.
    pub label: String,
    /// What it holds.
    pub content: Content,
}

/// The most that is read of a file.
const MAX_BYTES: u64 = 256 << 20;

impl File {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// [`Error::Read`], [`Error::Line`] or [`Error::Empty`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let mut text = Vec::new();
        let file = fs::File::open(path).map_err(|error| unreadable(path, &error))?;
        let read = file.take(MAX_BYTES + 1).read_to_end(&mut text);
        read.map_err(|error| unreadable(path, &error))?;
        if text.len() as u64 > MAX_BYTES {
            let reason =
                format!("it is longer than {} MiB, which no saved run is", MAX_BYTES >> 20);
            return Err(Error::Read { path: path.to_owned(), reason });
        }
        Self::parse(path, &text)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// [`Error::Line`] or [`Error::Empty`].
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, Error> {
        let label = label(path);
        let mut runs: Vec<Run> = Vec::new();
        let mut has_searches = false;
        for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            // A program that saves ends each line.
            let (line, is_cut) = match line.strip_suffix(b"\n") {
                Some(line) => (line, false),
                None => (line, true),
            };
            if line.trim_ascii().is_empty() {
                continue;
            }
            let wrong = |reason: String| {
                let path = path.to_owned();
                Error::Line { path, line: number + 1, reason }
            };
            let parsed = Line::parse(line).map_err(|reason| match is_cut {
                true => format!("the line is cut off ({reason}): delete it"),
                false => reason,
            });
            match parsed.map_err(wrong)? {
                Line::Environment(environment) => {
                    let (label, environment) = (String::new(), Some(*environment));
                    runs.push(Run { label, environment, rows: Vec::new() });
                }
                Line::Row(row) => {
                    if runs.is_empty() {
                        let label = String::new();
                        runs.push(Run { label, environment: None, rows: Vec::new() });
                    }
                    runs.last_mut().expect("one is there").rows.push(*row);
                }
                Line::Summary => {}
                Line::Search => has_searches = true,
            }
        }
        runs.retain(|run| !run.rows.is_empty());
        for (place, run) in runs.iter_mut().enumerate() {
            run.label = match place {
                0 => label.clone(),
                _ => format!("{label} ({})", place + 1),
            };
        }
        let content = match (runs.is_empty(), has_searches) {
            (false, _) => Content::Runs(runs),
            (true, true) => Content::Tune,
            (true, false) => return Err(Error::Empty { path: path.to_owned() }),
        };
        Ok(Self { path: path.to_owned(), label, content })
    }

    /// Its runs.
    ///
    /// # Errors
    ///
    /// [`Error::Tune`].
    pub fn into_runs(self) -> Result<Vec<Run>, Error> {
        match self.content {
            Content::Runs(runs) => Ok(runs),
            Content::Tune => Err(Error::Tune { path: self.path }),
        }
    }
}

/// Reads files, and all `.jsonl` files in folders and below them, in the order of their names.
///
/// # Errors
///
/// As for [`File::read`], and [`Error::NoFiles`].
pub fn read_all(paths: &[PathBuf]) -> Result<Vec<File>, Error> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = found.len();
            search(path, &mut found)?;
            if found.len() == before {
                return Err(Error::NoFiles { path: path.clone() });
            }
            found[before..].sort();
        } else {
            found.push(path.clone());
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|path| seen.insert(path.clone()));
    found.iter().map(|path| File::read(path)).collect()
}

fn search(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    let entries = fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(folder, &error))?;
        let path = entry.path();
        // A link to a folder could lead back here.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        // A pipe, say, may never end.
        let is_file = || fs::metadata(&path).is_ok_and(|found| found.is_file());
        if is_folder {
            search(&path, found)?;
        } else if is_file() && path.extension().is_some_and(|extension| extension == "jsonl") {
            found.push(path);
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::Read { path: path.to_owned(), reason: error.to_string() }
}

/// A file's name without what only this machine knows: the last two parts of it, or `runs` and what
/// follows.
fn label(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    let runs = parts.iter().rposition(|part| part == "runs");
    let start = runs.unwrap_or(parts.len().saturating_sub(2));
    let known = parts[start..].iter().filter(|part| !matches!(part.as_ref(), "." | ".." | "/"));
    known.map(AsRef::as_ref).collect::<Vec<&str>>().join("/")
}

/// What a line says.
enum Line {
    Environment(Box<Environment>),
    Row(Box<Row>),
    Summary,
    /// Of `rungs tune`.
    Search,
}

impl Line {
    fn parse(line: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let Value::Object(object) = value else { return Err("it is no saved result".to_owned()) };
        Self::of(&object).map_err(|error| error.to_string())
    }

    fn of(object: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        let has = |key: &str| object.contains_key(key);
        if let Some(environment) = object.get("environment") {
            return Ok(Self::Environment(Box::new(Environment::deserialize(environment)?)));
        }
        match () {
            () if has("summary") => Ok(Self::Summary),
            () if has("runs") && !has("kernel") => Ok(Self::Search),
            () => Ok(Self::Row(Box::new(Row::read(object)?))),
        }
    }
}
