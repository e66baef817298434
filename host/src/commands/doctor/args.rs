//! The options of `doctor`.

use clap::builder::PossibleValuesParser;
use host::doctor::NAMES;

use crate::report::format::Format;

#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// What must be there, separated by commas; the exit status is 1 if any of it is not.
    #[arg(long, value_name = "NAMES", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(NAMES))]
    pub require: Vec<String>,

    /// A page for people, or JSON: one object.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,

    /// Only try the devices, in this process.
    #[arg(long, hide = true)]
    pub devices: bool,
}
