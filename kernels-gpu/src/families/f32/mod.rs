//! Kernels for products that the ladder's last rungs are too large for, or cannot read:
//!
//! - small products, and batches of them;
//! - products with few rows or columns, or a short K;
//! - products with misaligned rows, which bulk copies cannot read.
//!
//! [`tiled`] teaches slice-K and split-K. [`skinny_m`] and [`skinny_n`] are for GEMV-like products,
//! which wait for memory alone, and [`outer`] for those that wait for C to be written.

mod accumulator;
mod copy;
mod kernel;
mod main_loop;
pub mod outer;
pub mod skinny_m;
pub mod skinny_n;
pub mod small;
pub mod tile_shapes;
pub mod tiled;
