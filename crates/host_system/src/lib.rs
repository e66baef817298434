//! What the other crates ask of the host: how much memory it has, where CUDA toolkits are, streams
//! that may be closed or full, programs that may hang, and texts for its terminal. It depends on no
//! other crate of this workspace.

pub mod format;
pub mod memory;
pub mod program;
pub mod stdio;
pub mod text;
pub mod toolkit;
