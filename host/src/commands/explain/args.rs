//! The options of `explain`.

use std::path::PathBuf;

use host::Shape;

use crate::commands::product::ProductArgs;
use crate::error::Error;
use crate::io::device::DeviceArg;
use crate::report::format::Format;

#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// The kernel to explain, or auto.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// For auto: products to choose for, separated by commas: N for a square, or MxNxK; with COUNT* in front
    /// for a strided batch, and :NT, :TN or :TT behind if A or B lies transposed
    /// [default: 512,4096,16x4096x4096].
    #[arg(long, value_name = "SIZES", value_delimiter = ',', allow_hyphen_values = true)]
    pub sizes: Vec<Shape>,

    /// For auto: where to run [default: auto].
    #[arg(long, value_enum)]
    pub device: Option<DeviceArg>,

    /// For auto: the table to choose by [default: the one built in].
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,

    #[command(flatten)]
    pub product: ProductArgs,

    /// Text for people, or JSON.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

impl ExplainArgs {
    /// Makes sure that there are no options for auto where something else is asked for.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`].
    pub fn expect_none_for_auto(&self) -> Result<(), Error> {
        let options = [
            ("--sizes", !self.sizes.is_empty()),
            ("--device", self.device.is_some()),
            ("--table", self.table.is_some()),
            ("each option of the product", !self.product.is_default()),
        ];
        match options.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => {
                Err(Error::usage_of("explain", format!("{option} is for `explain auto`")))
            }
            None => Ok(()),
        }
    }
}
