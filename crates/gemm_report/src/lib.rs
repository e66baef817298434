//! Saved runs as pictures, as one page, and compared.
//!
//! [`run`] reads the files of `rungs bench --save` and `rungs run all --save`. [`picture`] draws
//! runs, [`page`] makes one HTML file of them, and [`compare()`] says whether a second run is
//! faster.
//!
//! Nothing here needs a device or reads the clock: equal files give equal bytes.

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
pub use row::{Origin, Row, Shape, Status, Verdict};
pub use run::{Environment, File, Run, read_all};
