//! The problem: a [`Gemm`], its precision and its epilogue.

mod compute;
mod epilogue;
mod gemm;

pub use compute::Compute;
pub use epilogue::Epilogue;
pub(crate) use gemm::expect_finite;
pub use gemm::{Batching, Gemm, MAX_DIMENSION};
