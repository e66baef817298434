//! The tuner: what [`auto`](cuda_gemm::select) goes by, measured; and how good its choices are.

mod calibrate;
mod context;
mod costs;
mod products;
mod search;
mod search_result;
mod shapes;
mod tuner;
mod validation;

pub use products::{TunedProducts, check};
pub use search_result::{Run, SearchResult};
pub use tuner::{Effort, Progress, Tuner, Tuning};
pub use validation::{
    Class, ShortSummary, Summary, Validated, Validation, ValidationProgress, draw, validate,
};
