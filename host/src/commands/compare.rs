//! `compare`: two files of saved runs, kernel by kernel and shape by shape.

use std::path::PathBuf;

use gemm_report::File;
use gemm_report::compare::compare;

use super::outcome::Outcome;
use crate::error::Error;
use crate::io::stdio::{print, say};
use crate::report::changes;
use crate::report::format::Format;

#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    /// The earlier file that --save wrote.
    #[arg(value_name = "BEFORE")]
    before: PathBuf,

    /// The later file.
    #[arg(value_name = "AFTER")]
    after: PathBuf,

    /// Ignore changes up to this many percent: one build varies by about 1 % between processes.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent,
          allow_negative_numbers = true)]
    threshold: f64,

    /// A table, or JSON with one change per line and a summary.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Does what the options say.
pub fn run(args: &CompareArgs) -> Result<Outcome, Error> {
    let [before, after] = [&args.before, &args.after].map(|path| File::read(path));
    let report = compare(before?, after?, args.threshold / 100.0)?;
    for difference in &report.differences {
        let gemm_report::compare::Difference { what, before, after } = difference;
        say(format_args!("warning: not the same {what}: {before} before, {after} after"));
    }
    if report.is_simulated {
        say("warning: these times are those of a simulation: they say nothing about a GPU");
    }
    print(&match args.format {
        Format::Json => changes::json(&report),
        Format::Table => changes::table(&report, args.threshold),
    })?;
    Ok(if report.is_no_worse() { Outcome::Right } else { Outcome::Wrong })
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=1000.0).contains(percent));
    percent.ok_or_else(|| "a threshold is a number of percent, from 0 to 1000".to_owned())
}
