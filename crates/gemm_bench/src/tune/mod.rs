//! The tuner: measures costs for [`auto`](cuda_gemm::select), and judges it.

mod class;
mod fit;
mod measure;
mod pool;
mod products;
mod samples;
mod tuner;
mod validated;
mod validation;

pub use class::{Class, draw};
pub use measure::{Calibration, Effort, Fit, refit};
pub use products::{TunedProducts, check};
pub use samples::Sample;
pub use tuner::{Progress, Tuner};
pub use validated::{FIRST, MeasuredSummary, Run, ShortSummary, Summary, Validated, Validation};
pub use validation::validate;
