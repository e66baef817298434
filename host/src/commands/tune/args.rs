//! The options of `tune`.

use std::path::PathBuf;

use crate::io::device::DeviceArg;

#[derive(Debug, clap::Args)]
pub struct TuneArgs {
    /// The table, or a folder for it [default: this folder, under the device's name]. Nothing but a
    /// table is replaced.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Where to run: auto takes a GPU. A table of a software device's times is for a trial alone.
    #[arg(long, value_enum, default_value_t)]
    pub device: DeviceArg,

    /// Add the times of all products to this file as they are made, as lines of JSON. It must be
    /// new, or have such lines.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// Measure nothing: have this table say that the PTX of kernels has changed since.
    #[arg(long, value_name = "TABLE", conflicts_with_all = ["out", "device", "save", "quick"])]
    pub accept: Option<PathBuf>,

    /// A few kernels and tiny shapes, to see that it works.
    #[arg(long, hide = true)]
    pub quick: bool,
}
