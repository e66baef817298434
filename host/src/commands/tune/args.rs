//! The options of `tune`.

use std::path::PathBuf;

use host::Shape;

use crate::commands::product::ProductArgs;
use crate::io::device::DeviceArg;

#[derive(Debug, clap::Args)]
pub struct TuneArgs {
    /// The table, or a folder for it [default: this folder, under the device's name].
    ///
    /// Only a table is replaced, and is kept with .before behind its name. Until all kernels are
    /// measured, the new table has .part behind its name.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Measure these products only, and add the exceptions to a table: sizes as for `bench`.
    #[arg(
        long,
        visible_alias = "size",
        value_name = "SIZES",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub sizes: Vec<Shape>,

    /// A file of more products, as for `bench`.
    #[arg(long, value_name = "FILE")]
    pub shapes: Option<PathBuf>,

    #[command(flatten)]
    pub product: ProductArgs,

    /// The table to add products to, and to write without --out.
    ///
    /// The default is the one of --out, else the one in this folder, else the built-in one.
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,

    /// Where to run: auto needs a GPU. A table of simulated times is a trial only.
    #[arg(long, value_enum, default_value_t)]
    pub device: DeviceArg,

    /// Append the times of all products to this file of JSON lines.
    ///
    /// The file must be new, or come from --save.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// Measure nothing: note in this table which kernels' PTX has changed since.
    #[arg(long, value_name = "TABLE", conflicts_with_all = ["out", "device", "save", "quick", "sizes", "shapes", "table"])]
    pub accept: Option<PathBuf>,

    /// A few kernels and tiny shapes: a trial, for a software device.
    #[arg(long, conflicts_with_all = ["sizes", "shapes", "table"])]
    pub quick: bool,
}
