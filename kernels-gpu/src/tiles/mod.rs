//! Kernels for products that the ladder's last rungs are too large for: small ones and batches of
//! them, those of a few rows or columns, or of a short K, and those whose rows bulk copies do not reach.
//!
//! [`tiled`] teaches slice-K and split-K. [`skinny_m`] and [`skinny_n`] are for GEMV-like products,
//! which wait for memory alone, and [`outer`] for those that wait for C to be written.

mod accumulator;
mod copy;
mod geometry;
pub(crate) mod kernel;
mod main_loop;
pub mod outer;
pub(crate) mod reduction;
pub mod skinny_m;
pub mod skinny_n;
pub mod small;
pub mod tile_shapes;
pub mod tiled;

use crate::descriptor::KernelDescriptor;

/// All of them, from the largest tile to the smallest, what is for a short K, and what is for few rows
/// or columns.
pub const TILES: &[&KernelDescriptor] = &[
    &tile_shapes::tile_128x128x16::DESCRIPTOR,
    &tile_shapes::tile_64x128x16::DESCRIPTOR,
    &tile_shapes::tile_64x128::DESCRIPTOR,
    &tile_shapes::tile_64x64x16::DESCRIPTOR,
    &tile_shapes::tile_64x48x16::DESCRIPTOR,
    &tile_shapes::tile_64x64::DESCRIPTOR,
    &tile_shapes::tile_64x48::DESCRIPTOR,
    &tile_shapes::tile_64x32::DESCRIPTOR,
    &tile_shapes::tile_32x128::DESCRIPTOR,
    &tile_shapes::tile_32x64::DESCRIPTOR,
    &tile_shapes::tile_32x32::DESCRIPTOR,
    &tile_shapes::tile_16x16x16::DESCRIPTOR,
    &tile_shapes::tile_16x128::DESCRIPTOR,
    &tile_shapes::tile_4x128::DESCRIPTOR,
    &small::small_32x32::DESCRIPTOR,
    &outer::outer_32x128::DESCRIPTOR,
    &outer::outer_16x128::DESCRIPTOR,
    &outer::outer_32x64::DESCRIPTOR,
    &outer::outer_64x32::DESCRIPTOR,
    &skinny_m::skinny_m_8x128::DESCRIPTOR,
    &skinny_m::skinny_m_4x128::DESCRIPTOR,
    &skinny_m::skinny_m_2x64::DESCRIPTOR,
    &skinny_m::skinny_m_2x32::DESCRIPTOR,
    &skinny_n::skinny_n_32x16::DESCRIPTOR,
    &skinny_n::skinny_n_32x8::DESCRIPTOR,
    &skinny_n::skinny_n_32x4::DESCRIPTOR,
    &skinny_n::skinny_n_32x2::DESCRIPTOR,
    &skinny_n::skinny_n_32x1::DESCRIPTOR,
];
