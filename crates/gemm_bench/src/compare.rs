//! Compares kernels with cuBLAS, shape by shape.

mod comparison;
mod row;
mod summary;

pub use comparison::{Comparison, Note, Observer, Options, Step};
pub use row::{Row, Status, Verdict};
pub use summary::{Summary, summarise};
