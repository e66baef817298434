//! The parts of kernels: each mechanism once, for rungs and families alike.
//!
//! | room | what it holds |
//! |---|---|
//! | [`geometry`] | the shape of a block, as CUTLASS's `GemmShape` |
//! | [`operand`] | reading A and B: bounds, alignment, vectors |
//! | [`pipeline`] | stages, barriers, bulk copies, roles, dependent launch |
//! | [`schedule`] | which work tiles a block computes |
//! | [`multiply`] | products of fragments and of tiles |
//! | [`reduce`] | partial sums of the blocks or slices of a tile |
//! | [`output`] | from sums to C: the epilogue, old C, edges |

pub mod geometry;
pub mod multiply;
pub mod operand;
pub mod output;
pub mod pipeline;
pub mod reduce;
pub mod schedule;
