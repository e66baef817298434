//! Where results go as they are made: stdout, and the file of `--save`.

use std::path::Path;

use host::Error;

use super::args::Format;
use super::contender::{Choice, Title};
use super::ladder::Ladder;
use super::run::{Record, Setting};
use super::save::Save;
use super::{json, report};

pub struct Sink {
    format: Format,
    /// The table that grows row by row, if that is what is printed.
    ladder: Option<Ladder>,
    save: Option<Save>,
}

impl Sink {
    /// # Errors
    ///
    /// [`Error::Output`] if `save` cannot be written.
    pub fn new(format: Format, choice: Choice, save: Option<&Path>) -> Result<Self, Error> {
        let ladder = choice.is_all() && format == Format::Table;
        let ladder = ladder.then(Ladder::default);
        Ok(Self { format, ladder, save: save.map(Save::new).transpose()? })
    }

    /// Before the first result.
    pub fn begin(&mut self, setting: &Setting<'_>) -> Result<(), Error> {
        if let Some(save) = &mut self.save {
            save.line(&json::environment(setting)?)?;
        }
        if self.ladder.is_some() {
            Ladder::begin(setting);
        }
        Ok(())
    }

    pub fn result(&mut self, record: &Record<'_>) -> Result<(), Error> {
        match &mut self.ladder {
            Some(ladder) => ladder.result(record),
            None => report::result(record, self.format),
        }
        match &mut self.save {
            Some(save) => save.line(&json::result(record)),
            None => Ok(()),
        }
    }

    /// Something that was asked for and cannot run.
    pub fn refusal(
        &mut self,
        setting: &Setting<'_>,
        title: &Title,
        reason: &str,
    ) -> Result<(), Error> {
        let line = json::refusal(setting, title, reason);
        match &mut self.ladder {
            Some(ladder) => ladder.refusal(title.name, reason),
            None => report::print(&line),
        }
        match &mut self.save {
            Some(save) => save.line(&line),
            None => Ok(()),
        }
    }

    /// After the last result.
    pub fn end(&self, setting: &Setting<'_>) {
        if let Some(ladder) = &self.ladder {
            ladder.end(setting);
        }
    }
}
