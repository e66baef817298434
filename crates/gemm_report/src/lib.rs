//! Saved runs as pictures, as a page, and next to each other.
//!
//! What `rungs bench --save` and `rungs --kernel all --save` keep is read by [`run`]; [`picture`]
//! draws it, [`page`] makes one HTML file of many runs, and [`compare()`] says whether a second run
//! is faster than a first. Nothing here needs a device, or knows the time or the machine: the same
//! files give the same bytes.

pub mod compare;
mod data;
pub mod error;
mod gallery;
mod page;
pub mod picture;
pub mod row;
pub mod run;
mod summary;

pub use compare::compare;
pub use error::Error;
pub use gallery::{gallery, svg_files};
pub use page::{PAGE_START, page};
pub use picture::{Picture, SVG_START};
pub use row::{Origin, Row, Shape};
pub use run::{Environment, File, Run, read_all};
