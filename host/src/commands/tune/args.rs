//! The options of `tune`.

use std::path::PathBuf;

use host::Shape;

use crate::commands::product::{ProductArgs, seed};
use crate::io::device::DeviceArg;
use crate::report::format::Format;

#[derive(Debug, clap::Args)]
pub struct TuneArgs {
    /// The table, or a folder for it [default: this folder, under the device's name].
    ///
    /// Only a table is replaced, and is kept with .before behind its name. With
    /// --sizes or --shapes, it is the file that gets the products [default: the one that auto
    /// reads, in $RUNGS_CACHE or the user's cache].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Measure the costs of these kernels only: names, separated by commas. --table has the others.
    #[arg(long, visible_alias = "kernel", value_name = "NAMES", value_delimiter = ',',
          conflicts_with_all = ["sizes", "shapes", "validate", "accept", "refit"])]
    pub kernels: Vec<String>,

    /// Measure these products only, and keep the fastest choices for auto: sizes as for `bench`.
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

    /// The table that predicts choices for products, or that --validate judges [default: the
    /// built-in one].
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,

    /// Where to run: auto needs a GPU. A table of simulated times is a trial only.
    #[arg(long, value_enum, default_value_t)]
    pub device: DeviceArg,

    /// Append all times to this file of JSON lines.
    ///
    /// The file must be new, or come from --save.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// Judge auto on COUNT random products, and write no table.
    ///
    /// Products are drawn from --seed: as for `bench --random`, as for `bench --random-layers`,
    /// and batches of 2 to 128 products of 16 to 1024. auto chooses by its model alone. The choice
    /// takes turns with all candidates predicted within twice its time, and with ten others.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=100_000),
          conflicts_with_all = ["out", "sizes", "shapes", "trans_a", "trans_b", "batch", "quick"])]
    pub validate: Option<u32>,

    /// The seed of the products of --validate.
    #[arg(long, requires = "validate", default_value_t = 42, allow_negative_numbers = true,
          value_parser = seed)]
    pub seed: u64,

    /// A line a product, or JSON lines, of --validate.
    #[arg(long, requires = "validate", value_enum, default_value_t)]
    pub format: Format,

    /// Measure nothing: note in this table which kernels' PTX has changed since.
    #[arg(long, value_name = "TABLE", conflicts_with_all = ["out", "device", "save", "quick",
          "sizes", "shapes", "table", "validate"])]
    pub accept: Option<PathBuf>,

    /// Measure nothing: fit the costs of --table anew to the times in FILE, from --save.
    ///
    /// Use it after a change of the model. Without --out, the table is replaced.
    #[arg(long, value_name = "FILE", requires = "table", conflicts_with_all = ["accept", "device",
          "save", "quick", "sizes", "shapes", "validate"])]
    pub refit: Option<PathBuf>,

    /// A few kernels and tiny shapes: a trial, for a software device.
    #[arg(long, conflicts_with_all = ["sizes", "shapes"])]
    pub quick: bool,
}
