//! The options of `tune`.

use std::path::PathBuf;

use host::Shape;

use crate::commands::product::ProductArgs;
use crate::io::device::DeviceArg;

#[derive(Debug, clap::Args)]
pub struct TuneArgs {
    /// The table, or a folder for it [default: this folder, under the device's name]. Nothing but a
    /// table is replaced, and that stays, with .before behind its name; until all kernels are measured, their
    /// table has .part behind its name.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Measure these products alone, and add to a table what is fastest for each, where its costs mislead: shapes, separated by
    /// commas, as `host bench --sizes` takes them.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', allow_hyphen_values = true)]
    pub sizes: Vec<Shape>,

    /// The same for shapes from a file, as `host bench --shapes` takes it.
    #[arg(long, value_name = "FILE")]
    pub shapes: Option<PathBuf>,

    #[command(flatten)]
    pub product: ProductArgs,

    /// The table to add products to, and to write if there is no --out [default: the one that --out names, or that is in this
    /// folder, if there is one; otherwise the one built in].
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,

    /// Where to run: auto takes a GPU. A table of a software device's times is for a trial alone.
    #[arg(long, value_enum, default_value_t)]
    pub device: DeviceArg,

    /// Add the times of all products to this file as they are made, as lines of JSON. It must be
    /// new, or have such lines.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// Measure nothing: have this table say that the PTX of kernels has changed since.
    #[arg(long, value_name = "TABLE", conflicts_with_all = ["out", "device", "save", "quick", "sizes", "shapes", "table"])]
    pub accept: Option<PathBuf>,

    /// A few kernels and tiny shapes: a trial, for a software device.
    #[arg(long, conflicts_with_all = ["sizes", "shapes", "table"])]
    pub quick: bool,
}
