//! What only the command line needs.

pub mod args;
pub mod bench;
mod choices;
mod contender;
pub mod explain;
mod forecast;
mod input;
mod json;
mod ladder;
pub mod outcome;
mod progress;
mod report;
pub mod run;
mod save;
pub mod signals;
mod sink;
pub mod stdio;
pub mod threads;
pub mod tune;
mod workload;
