//! The file of `--save`: lines of JSON, added as they are made.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use host::Error;
use host::output::Output;

pub struct Save {
    path: PathBuf,
    /// Opened with the first line, so that a call that is refused leaves no empty file.
    file: Option<File>,
}

impl Save {
    /// Makes sure that the file can be written, without touching it.
    ///
    /// # Errors
    ///
    /// [`Error::Output`].
    pub fn new(path: &Path) -> Result<Self, Error> {
        // A result's file has the same needs.
        Output::new(path)?;
        Ok(Self { path: path.to_owned(), file: None })
    }

    /// Adds a line, which ends in a line break.
    ///
    /// # Errors
    ///
    /// [`Error::Output`].
    pub fn line(&mut self, line: &str) -> Result<(), Error> {
        let written = (|| {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(OpenOptions::new().append(true).create(true).open(&self.path)?),
            };
            // In one call, so that lines of several programs do not mix.
            file.write_all(line.as_bytes())
        })();
        written
            .map_err(|error| Error::Output { path: self.path.clone(), reason: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_added_and_nothing_before_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        for round in 1..=2 {
            let mut save = Save::new(&path).unwrap();
            assert_eq!(path.exists(), round > 1);
            save.line("a\n").unwrap();
            save.line("b\n").unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\nb\n".repeat(round));
        }
        assert!(Save::new(folder.path()).is_err());
    }
}
