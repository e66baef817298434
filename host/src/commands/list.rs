//! `list`: the kernels.

use host::kernels::{LADDER, TILES};

use super::outcome::Outcome;
use crate::error::Error;
use crate::report::format::Format;
use crate::report::page;

/// Prints the ladder, the tiles, the kernels for tensor cores, and `auto`.
pub fn run(format: Format) -> Result<Outcome, Error> {
    page::list(format, "The ladder, in f32:", LADDER)?;
    page::list(format, "Tiles, in f32:", TILES)?;
    page::list_tensor_core(format)?;
    page::list_auto(format)?;
    Ok(Outcome::Right)
}
