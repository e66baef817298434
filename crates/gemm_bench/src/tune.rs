//! The tuner: what [`auto`](cuda_gemm::select) goes by, measured.

mod calibrate;
mod context;
mod costs;
mod search;
mod search_result;
mod shapes;
mod tuner;

pub use search_result::{Run, SearchResult};
pub use tuner::{Effort, Progress, Tuner, Tuning, check};
