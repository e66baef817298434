//! What only the command line needs, in layers, of which none knows one above it:
//!
//! 1. commands: `run`, `explain` with `choices`, `bench`, `tune`;
//! 2. reporters: `reporter` with `ladder`, `report`, `json` and `save`; `args`: all options;
//! 3. what they share: `record`, `candidate`, `baseline`, `buffers`, `forecast`, `workload`,
//!    `input`, `shape`, `device`, `peaks`, `outcome`, `format`;
//! 4. the process: `stdio`, `progress`, `threads`, `signals`.

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
