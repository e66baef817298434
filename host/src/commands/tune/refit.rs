//! `tune --refit`: costs from samples that were saved, without a GPU.

use std::fs;
use std::path::Path;

use host::{Table, tune};

use super::args::TuneArgs;
use super::lines;
use crate::commands::outcome::Outcome;
use crate::error::Error;
use crate::io::output::Output;
use crate::io::stdio;

/// Fits the costs of `--table` to the samples of a file, and writes the table to `--out`, or back.
pub fn run(args: &TuneArgs, samples: &Path) -> Result<Outcome, Error> {
    let Some(table) = &args.table else {
        let message = "--refit needs the table whose launches and copies stay: add --table FILE";
        return Err(Error::usage_of("tune", message));
    };
    let output = Output::new(args.out.as_deref().unwrap_or(table))?;
    let table = Table::read(table)?;
    let place = samples.display();
    let text = fs::read_to_string(samples)
        .map_err(|error| Error::usage_of("tune", format!("{place}: {error}")))?;
    let mut all = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let sample = lines::parse_sample(line).map_err(|reason| {
            let message = format!("{place}:{number}: it is no time of `tune --save`: {reason}");
            Error::usage_of("tune", message)
        })?;
        all.push(sample);
    }
    let table = tune::refit(&table, &all)?;
    output.write_text(&table.to_json())?;
    stdio::print(&format!(
        "model:   {} kernels, whose costs are fitted to {} times\n",
        table.kernels().len(),
        all.len()
    ))?;
    Ok(Outcome::Right)
}
