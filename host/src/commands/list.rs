//! `list`: the kernels.

use host::Compute;
use host::kernels::{LADDER, TILES};

use super::outcome::Outcome;
use crate::error::Error;
use crate::report::format::Format;
use crate::report::page;

/// Prints the ladder, the tiles, the kernels for tensor cores, and `auto`.
pub fn run(format: Format) -> Result<Outcome, Error> {
    page::list(format, "The ladder, in f32:", LADDER.iter().copied())?;
    page::list(format, "Tiles, in f32:", TILES.iter().copied())?;
    for (title, compute) in [
        ("Tensor cores, with --compute bf16 or f16:", Compute::Bf16),
        ("TF32 on tensor cores, with --compute tf32:", Compute::Tf32),
        ("The same to f32's accuracy, with --compute tf32x3:", Compute::Tf32x3),
    ] {
        page::list(format, title, compute.kernels())?;
    }
    page::list_auto(format)?;
    Ok(Outcome::Right)
}
