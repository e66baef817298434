//! What the other crates ask of the host: how much memory it has, where CUDA toolkits are, streams
//! that may be closed or full, and texts for its terminal. It depends on nothing.

pub mod format;
pub mod memory;
pub mod stdio;
pub mod text;
pub mod toolkit;
