//! What to compute ([`Gemm`]), and how it is launched ([`Plan`]).
//!
//! A [`Plan`] is made once, from a rung's [`KernelDescriptor`] and a device's [`Limits`], and
//! checks everything that can be wrong about sizes. What comes out is a list of
//! launches that needs no further check.
//!
//! [`KernelDescriptor`]: kernels_gpu::KernelDescriptor
//! [`Limits`]: crate::Limits

mod operation;
mod panel;
mod plan;
mod stream_k;

pub use operation::{Gemm, MAX_DIMENSION};
pub use panel::{Launch, Workspace};
pub(crate) use plan::MAX_SPLITS;
pub use plan::Plan;
pub(crate) use stream_k::Decomposition;
