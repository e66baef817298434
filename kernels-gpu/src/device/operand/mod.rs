//! Reading A and B: bounds, alignment, vectors, and rows that begin anywhere.

pub mod fragment;
pub mod half_rows;
pub mod half_tile;
pub mod input;
pub mod share;
pub mod unaligned;
