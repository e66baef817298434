//! `tune --refit`: costs from samples that were saved, without a GPU.

use std::fs;
use std::path::Path;

use host::{Table, tune};

use super::args::TuneArgs;
use super::{TableOutput, lines};
use crate::commands::outcome::Outcome;
use crate::error::Error;
use crate::io::stdio;

/// Fits the costs of `--table` to the samples of a file, and writes the table to `--out`, or back.
pub fn run(args: &TuneArgs, samples: &Path) -> Result<Outcome, Error> {
    let table = args.table.as_deref().expect("--refit requires --table");
    let of = Table::read(table)?;
    let output = TableOutput::new(args.out.as_deref().or(Some(table)), &of.device().name)?;
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
    if all.is_empty() {
        return Err(Error::usage_of("tune", format!("{place}: there is no time in it")));
    }
    let table = tune::refit(&of, &all)?;
    output.write(&table)?;
    stdio::print(&format!(
        "model:   {} kernels, whose costs are fitted to {} times\n",
        table.kernels().len(),
        all.len()
    ))?;
    Ok(Outcome::Right)
}
