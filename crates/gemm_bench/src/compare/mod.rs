//! Compares kernels with cuBLAS, shape by shape.

mod comparison;
mod row;
pub mod side_by_side;
mod summary;

pub use comparison::{Comparison, Note, Observer, Options, Step};
pub use row::{Row, Status, Verdict};
pub use summary::{Summary, summarise};
