//! Compares kernels with cuBLAS, shape by shape.

mod comparison;
pub mod row;
pub mod side_by_side;
mod summary;

pub use comparison::{Comparison, Note, Observer, Options, Step};
pub use gemm_report::{Row, Status, Verdict};
pub use row::Compared;
pub use summary::{Summary, summarise};
