//! What the command line asks for. The program lies in layers, of which none knows one above it:
//!
//! 1. `commands`: `completions`, from the options; `args`, all of them; `run`; `list`; `explain`
//!    with `choices`; `bench`; `tune` with `accept`; `doctor`; each with its own `args`; `report`;
//!    `compare`; what several share in `product`, `tables`, `l2` and `outcome`;
//! 2. `report`: `reporter` with `ladder`, `page` and `save`; `rows` with `row_table`; `changes`;
//!    all of them with `json`, `record` and `format`;
//! 3. `io`: `device` with `threads`; `input`, `output`, `progress`, `signals`, `stdio`;
//! 4. `error`, with the advice that goes on after a library's words.

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
mod tables;
pub mod tune;

pub use outcome::Outcome;
