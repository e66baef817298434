//! Reports results as they are made: on stdout, and in the file of `--save`.

use std::path::Path;

use cuda_driver::soft_cuda::Findings;
use host::{Selection, Title};

use super::format::Format;
use super::ladder::Ladder;
use super::record::{Record, Setting};
use super::save::Save;
use super::{json, page};
use crate::error::Error;
use crate::io::output::Output;
use crate::io::stdio;

pub struct Reporter {
    format: Format,
    /// The table that grows row by row, if that is what is printed.
    ladder: Option<Ladder>,
    save: Option<Save>,
}

impl Reporter {
    /// # Errors
    ///
    /// [`Error::Output`] if `save` cannot be written, or is the file of `out`.
    pub fn new(
        format: Format,
        choice: Selection,
        save: Option<&Path>,
        out: Option<&Output>,
    ) -> Result<Self, Error> {
        let ladder = choice.is_several() && format == Format::Table;
        let ladder = ladder.then(Ladder::default);
        Ok(Self { format, ladder, save: save.map(|save| Save::new(save, out)).transpose()? })
    }

    /// Before the first result.
    pub fn begin(&mut self, setting: &Setting<'_>) -> Result<(), Error> {
        if let Some(save) = &mut self.save {
            save.line(&json::environment(setting)?)?;
        }
        self.ladder.as_mut().map_or(Ok(()), |ladder| ladder.begin(setting))
    }

    pub fn result(&mut self, record: &Record<'_>) -> Result<(), Error> {
        // First what lasts, in case that stdout cannot be written.
        if let Some(save) = &mut self.save {
            save.line(&json::result(record))?;
        }
        match &mut self.ladder {
            Some(ladder) => ladder.result(record),
            None => page::result(record, self.format),
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
        if let Some(save) = &mut self.save {
            save.line(&line)?;
        }
        match &mut self.ladder {
            Some(ladder) => ladder.refusal(title.name, reason),
            None => stdio::print(&line),
        }
    }

    /// A kernel that stopped with a fault, in JSON; the error says so otherwise.
    pub fn fault(
        &mut self,
        setting: &Setting<'_>,
        title: &Title,
        reason: &str,
        findings: &Findings,
    ) -> Result<(), Error> {
        let line = json::fault(setting, title, reason, findings);
        if let Some(save) = &mut self.save {
            save.line(&line)?;
        }
        if self.format == Format::Json { stdio::print(&line) } else { Ok(()) }
    }

    /// After the last result.
    pub fn end(&self, setting: &Setting<'_>) -> Result<(), Error> {
        self.ladder.as_ref().map_or(Ok(()), |ladder| ladder.end(setting))
    }

    /// Whether anyone wants to know more results.
    pub fn is_wanted(&self) -> bool {
        self.save.is_some() || stdio::is_read()
    }
}
