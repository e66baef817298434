//! The file of `--save`: lines of JSON, added as they are made.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::Error;
use crate::io::output::Output;

/// No line is longer: a thousand samples need a tenth.
const LONGEST_LINE: u64 = 1 << 20;

pub struct Save {
    path: PathBuf,
    /// Opened with the first line, so that a call that is refused leaves no empty file.
    file: Option<File>,
}

impl Save {
    /// Makes sure that lines can be added to the file, without touching it: it is not there yet,
    /// or is empty, or has such lines already. `out` is the file that is written as a whole.
    ///
    /// # Errors
    ///
    /// [`Error::Output`].
    pub fn new(path: &Path, out: Option<&Output>) -> Result<Self, Error> {
        let fail = |reason: String| Error::Output { path: path.to_owned(), reason };
        let own = Output::to_add(path)?;
        if out.is_some_and(|out| out.is_same_file(&own)) {
            return Err(fail("--out writes the same file, and --save would be lost".to_owned()));
        }
        match File::open(path) {
            Ok(file) => inspect(&file).map_err(|error| fail(error.to_string()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail(error.to_string())),
        }
        Ok(Self { path: path.to_owned(), file: None })
    }

    /// Adds a line, which ends in a line break.
    ///
    /// # Errors
    ///
    /// [`Error::Output`]; nothing of the line is left then.
    pub fn line(&mut self, line: &str) -> Result<(), Error> {
        let written = (|| {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(OpenOptions::new().append(true).create(true).open(&self.path)?),
            };
            // Of several programs one at a time, so that nothing but this line is taken back. Where
            // files cannot be locked, one call has to do, so that lines do not mix.
            let _ = file.lock();
            let added = add(file, line);
            let _ = file.unlock();
            added
        })();
        written.map_err(|error| Error::not_written(&self.path, &error))
    }
}

/// Adds a whole line, or nothing.
fn add(file: &mut File, line: &str) -> io::Result<()> {
    let before = file.metadata()?.len();
    let written = file.write_all(line.as_bytes());
    if written.is_err() {
        // A part of a line would be in the way of every later one. The error is the first.
        let _ = file.set_len(before);
    }
    written
}

/// Looks at the first and the last line of a file, which are saved results unless it is empty.
fn inspect(mut file: &File) -> io::Result<()> {
    let length = file.seek(SeekFrom::End(0))?;
    if length == 0 {
        return Ok(());
    }
    file.rewind()?;
    let mut first = Vec::new();
    BufReader::new(file.take(LONGEST_LINE)).read_until(b'\n', &mut first)?;
    file.seek(SeekFrom::Start(length.saturating_sub(LONGEST_LINE)))?;
    let mut end = Vec::new();
    file.take(LONGEST_LINE).read_to_end(&mut end)?;
    if !parse(&first).is_some_and(|line| is_first(&line)) {
        return Err(io::Error::other("it holds something other than saved results"));
    }
    let Some(lines) = end.strip_suffix(b"\n") else {
        return Err(io::Error::other("its last line is cut off: delete that line"));
    };
    match lines.rsplit(|byte| *byte == b'\n').next() {
        Some(last) if parse(last).is_some_and(|line| is_saved(&line)) => Ok(()),
        _ => Err(io::Error::other("its last line is no saved result")),
    }
}

fn parse(line: &[u8]) -> Option<Value> {
    serde_json::from_slice(line).ok()
}

/// Whether a line can be the first: an environment, or a search of `tune`.
fn is_first(line: &Value) -> bool {
    let environment = &line["environment"];
    let is_product = || ["m", "n", "k"].iter().all(|size| line[size].is_u64());
    (environment["command"].is_array() && environment["device"].is_string())
        || (line["runs"].is_array() && is_product())
}

/// Whether a line can stand anywhere: also a result or a summary.
fn is_saved(line: &Value) -> bool {
    is_first(line) || line["kernel"].is_string() || line["summary"].is_object()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const LINES: &str =
        "{\"environment\":{\"command\":[],\"device\":\"GPU\"}}\n{\"kernel\":\"naive\"}\n";

    #[test]
    fn lines_are_added_and_nothing_before_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        for round in 1..=2 {
            let mut save = Save::new(&path, None).unwrap();
            assert_eq!(path.exists(), round > 1);
            for line in LINES.split_inclusive('\n') {
                save.line(line).unwrap();
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), LINES.repeat(round));
        }
        assert!(Save::new(folder.path(), None).is_err());
    }

    #[test]
    fn only_saved_results_are_added_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let with = |text: &[u8]| {
            fs::write(&path, text).unwrap();
            let error = Save::new(&path, None).err().map(|error| error.to_string());
            assert_eq!(fs::read(&path).unwrap(), text);
            error.unwrap_or_default()
        };
        let summary = "{\"summary\":{\"kernel\":\"auto\"}}\n";
        let long = format!("{{\"kernel\":\"{}\"}}\n", "x".repeat(200_000));
        for fine in ["", LINES, "{\"m\":1,\"n\":1,\"k\":1,\"runs\":[]}\n"] {
            assert_eq!(with(fine.as_bytes()), "");
        }
        assert_eq!(with((LINES.to_owned() + &long.repeat(10) + summary).as_bytes()), "");
        for other in ["\n", "text\n", "{\n}\n", "{}\n", "[]\n", "\u{feff}{}\n", "\0", "1,2\n"] {
            assert!(with(other.as_bytes()).contains("it holds something other"), "{other:?}");
        }
        for foreign in [
            r#"{"runs":"none","name":"mypackage"}"#,
            r#"{"runs":["first"],"name":"mypackage"}"#,
            r#"{"environment":{"a":1},"x":2}"#,
            r#"{"environment":"production"}"#,
            r#"{"environment":null}"#,
            r#"[[["build"],"GPU"]]"#,
        ] {
            let says = with((foreign.to_owned() + "\n").as_bytes());
            assert!(says.contains("it holds something other"), "{foreign}: {says}");
        }
        for last in [r#"{"kernel":7}"#, r#"{"summary":"fine"}"#, r#"{"environment":{}}"#] {
            let says = with(format!("{LINES}{last}\n").as_bytes());
            assert!(says.contains("its last line is no saved result"), "{last}: {says}");
        }
        assert!(with(&[0xff; 3 << 20]).contains("it holds something other"));
        assert!(with(LINES.trim_end().as_bytes()).contains("cut off"));
        let tail = LINES.to_owned() + "and some notes\n";
        assert!(with(tail.as_bytes()).contains("its last line is no saved result"));
    }
}
