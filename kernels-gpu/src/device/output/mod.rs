//! From sums to C: staging, edges, old C, and the epilogue.
//!
//! An epilogue reads its bias in [`bias`], and C as it was in [`source`], which [`staging`] brings
//! to the lanes of tensor cores. [`apply`] says in which order, and [`epilogue`] holds activations.

pub mod apply;
pub mod bias;
pub mod epilogue;
pub mod fragments;
pub mod matrix;
pub mod places;
pub mod source;
pub mod staging;
pub mod tensor;
pub mod thread_tile;
pub mod tile;
