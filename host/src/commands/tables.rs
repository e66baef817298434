//! The table that `--table` names.

use std::path::Path;

use host::{Device, Table};

use crate::error::Error;
use crate::io::stdio;

/// Reads it, if there is one.
pub fn read(path: Option<&Path>) -> Result<Option<Table>, Error> {
    Ok(path.map(Table::read).transpose()?)
}

/// Says what of it does not hold on this device.
pub fn note_of_other(table: Option<&Table>, device: &Device) {
    let Some(table) = table.filter(|table| !table.is_of(device.info())) else { return };
    let count = table.exceptions().len();
    if count > 0 {
        let of = &table.device().name;
        stdio::note(format_args!(
            "the table is of {of}: what was measured there of {count} product(s) does not hold here"
        ));
    }
}
