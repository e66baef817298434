//! Results, on stdout and in files, for people or for programs.

pub mod changes;
pub mod format;
pub mod json;
mod ladder;
pub mod page;
pub mod record;
mod reporter;
mod row_table;
mod rows;
pub mod save;

pub use reporter::Reporter;
pub use rows::{RowFormat, RowReporter};
