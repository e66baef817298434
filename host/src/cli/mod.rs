//! What only the command line needs.

pub mod args;
pub mod progress;
pub mod report;
pub mod run;
