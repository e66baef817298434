//! The tables that `--table` and `--gpu` name, and the file of measured products.

use std::fs;
use std::path::Path;

use host::format::{alternatives, excerpt};
use host::select::{CACHE_VARIABLE, ProductFile};
use host::{Device, Table};
use host_system::text;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::Error;
use crate::io::stdio;

/// Reads it, if there is one.
///
/// # Errors
///
/// The errors of [`Table::read`], and one that says so of a file of measured products.
pub fn read(path: Option<&Path>) -> Result<Option<Table>, Error> {
    let Some(path) = path else { return Ok(None) };
    Table::read(path).map(Some).map_err(|error| match gpu_of_products(path) {
        Some(gpu) => Error::usage(format!(
            "{} is no table: it has products of {} that `rungs tune --sizes` measured. auto reads \
             such a file under the device's name in the folder {CACHE_VARIABLE}; for a table, run \
             `rungs tune` without --sizes and --shapes",
            path.display(),
            excerpt(&gpu),
        )),
        None => error.into(),
    })
}

/// The GPU of a file of measured products. `None` for any other file.
fn gpu_of_products(path: &Path) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Products {
        gpu: String,
        #[serde(rename = "products")]
        _products: Vec<IgnoredAny>,
    }
    // A pipe was read to its end, or has none.
    fs::metadata(path).ok().filter(|metadata| metadata.is_file())?;
    let text = text::read(path).ok()?;
    serde_json::from_str::<Products>(&text).ok().map(|products| products.gpu)
}

/// The built-in table of a GPU, by the last part of its name: `h200` for NVIDIA H200.
pub fn of_gpu(gpu: &str) -> Result<Table, Error> {
    let short = |table: &Table| {
        let name = table.device().name.to_lowercase();
        name.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    let tables = Table::built_in()?;
    let known: Vec<_> = tables.iter().map(short).collect();
    match known.iter().position(|name| *name == gpu.to_lowercase()) {
        Some(at) => Ok(tables.into_iter().nth(at).expect("a position")),
        None => {
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            let message = format!(
                "--gpu cannot be `{}`; there are tables of {}",
                excerpt(gpu),
                alternatives(&known)
            );
            Err(Error::usage_of("explain", message))
        }
    }
}

/// Says what of it does not hold on this device.
pub fn note_of_other(table: Option<&Table>, device: &Device) {
    let Some(table) = table.filter(|table| !table.is_of(device.info())) else { return };
    let count = table.products().len();
    if count > 0 {
        let of = &table.device().name;
        stdio::note(format_args!(
            "the table is of {of}: what was measured there of {count} product(s) does not hold here"
        ));
    }
}

/// Warns of a file of measured products that cannot be used.
pub fn note_of_products(device: &Device) {
    let Some(file) = ProductFile::of(device) else { return };
    if let Err(error) = file.products(device) {
        stdio::say(format_args!("warning: nothing is taken from {error}"));
    }
}
