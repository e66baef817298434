//! What the other crates ask of the host: how much memory it has, and texts for its terminal.

pub mod format;
pub mod memory;
pub mod text;
