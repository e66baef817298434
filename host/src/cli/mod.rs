//! What only the command line needs.

pub mod args;
mod baseline;
pub mod bench;
mod buffers;
mod candidate;
mod choices;
mod device;
pub mod explain;
mod forecast;
mod format;
mod input;
mod json;
mod ladder;
pub mod outcome;
mod peaks;
mod progress;
mod record;
mod report;
mod reporter;
pub mod run;
mod save;
mod shape;
pub mod signals;
pub mod stdio;
pub mod threads;
pub mod tune;
mod workload;
