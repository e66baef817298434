//! The ladder: GEMM kernels from naive to fast, one rung per file.
#![no_std]

mod spec;

pub use spec::{GridOrder, Shared, Spec, Tile};

/// Every rung, in the order of the ladder.
pub const LADDER: &[&Spec] = &[];
