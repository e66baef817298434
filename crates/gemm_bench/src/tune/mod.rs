//! The tuner: measures costs for [`auto`](cuda_gemm::select), and judges it.

mod context;
mod fit;
mod measure;
mod pool;
mod products;
mod samples;
mod search;
mod search_result;
mod tuner;
mod validated;
mod validation;

pub use measure::{Calibration, Effort, Fit, refit};
pub use products::{TunedProducts, check};
pub use samples::Sample;
pub use search_result::{Run, SearchResult};
pub use tuner::{Progress, Tuner};
pub use validated::{FIRST, MeasuredSummary, ShortSummary, Summary, Validated, Validation};
pub use validation::{Class, ValidationProgress, draw, validate};
