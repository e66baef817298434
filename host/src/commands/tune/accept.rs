//! `tune --accept`: for a device that cannot be measured now.

use std::path::Path;

use host::Table;

use crate::commands::outcome::Outcome;
use crate::error::Error;
use crate::io::output::Output;
use crate::io::stdio;

/// Has a table say what has changed since it was measured.
pub fn run(path: &Path) -> Result<Outcome, Error> {
    // First: what cannot be written need not be read.
    let output = Output::new(path)?;
    let table = Table::read(path)?.accepting_changes()?;
    output.write_text(&table.to_json())?;
    let changed: Vec<_> = table.changes().iter().map(|change| change.entry_point).collect();
    stdio::print(&format!(
        "changed: {}\ntable:   {}\n",
        if changed.is_empty() { "nothing".to_owned() } else { changed.join(", ") },
        path.display()
    ))?;
    Ok(Outcome::Right)
}
