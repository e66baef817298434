//! The commands. The program has four layers, and no layer knows the ones above it:
//!
//! 1. `commands`: a module for each, with its `args`. They share `product`, `tables`, `l2`,
//!    `several` and `outcome`. `choices` is `explain auto`.
//! 2. `report`: text and JSON. `reporter` prints single results and ladders, `rows` those of
//!    `bench`, `changes` those of `compare`.
//! 3. `io`: devices, files, progress, signals and standard streams.
//! 4. `error`: all errors, with advice.

pub mod args;
pub mod bench;
mod choices;
pub mod compare;
pub mod completions;
pub mod doctor;
pub mod explain;
mod l2;
pub mod list;
mod outcome;
mod product;
pub mod report;
pub mod run;
mod several;
mod tables;
pub mod tune;

pub use outcome::Outcome;
