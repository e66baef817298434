//! What to compute ([`Gemm`]), and how it is launched ([`LaunchPlan`]).
//!
//! A [`LaunchPlan`] is made once, from a rung's [`KernelDescriptor`] and a device's [`Limits`], and
//! checks everything that can be wrong about sizes. What comes out is a list of
//! launches that needs no further check.
//!
//! [`KernelDescriptor`]: kernels_gpu::abi::KernelDescriptor
//! [`Limits`]: crate::Limits

mod compute;
mod epilogue;
mod form;
mod launch_plan;
mod operation;
mod panel;
mod persistent;
mod stream_k;

pub use compute::Compute;
pub use epilogue::Epilogue;
pub(crate) use form::KernelForm;
pub use launch_plan::LaunchPlan;
pub(crate) use launch_plan::MAX_SPLITS;
pub use operation::{Gemm, MAX_DIMENSION};
pub use panel::{Launch, Workspace};
pub(crate) use stream_k::Decomposition;
