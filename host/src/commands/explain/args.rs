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

    /// For auto: products, separated by commas: N for a square, or MxNxK
    /// [default: 512,4096,16x4096x4096].
    ///
    /// COUNT* in front makes a strided batch; :NT, :TN or :TT behind transposes A or B.
    #[arg(
        long,
        visible_alias = "size",
        value_name = "SIZES",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub sizes: Vec<Shape>,

    /// For auto: the device to choose for [default: auto].
    #[arg(long, value_enum)]
    pub device: Option<DeviceArg>,

    /// For auto: a GPU with a built-in table, h100 or h200, which need not be in this machine.
    #[arg(long, value_name = "GPU", conflicts_with_all = ["device", "table"])]
    pub gpu: Option<String>,

    /// For auto: the table to choose by [default: the built-in one].
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,

    #[command(flatten)]
    pub product: ProductArgs,

    /// Text, or JSON.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

impl ExplainArgs {
    /// Refuses options for auto where something else is asked for.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`].
    pub fn expect_none_for_auto(&self) -> Result<(), Error> {
        let options = [
            ("--sizes", !self.sizes.is_empty()),
            ("--device", self.device.is_some()),
            ("--gpu", self.gpu.is_some()),
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
