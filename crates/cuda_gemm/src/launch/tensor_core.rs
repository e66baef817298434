//! Products by tensor cores of matrices in 16 bits: [`Device::tensor_core`](crate::Device::tensor_core), then
//! [`TensorCoreKernel::prepare`], then [`TensorCorePlan::enqueue`].

mod builder;
mod copies;
mod cost;
mod division;
mod enqueue;
mod kernel;
mod plan;

pub use builder::TensorCoreBuilder;
pub(crate) use division::{Asked, most_splits};
pub use kernel::TensorCoreKernel;
pub(crate) use kernel::{basis, choose, times};
pub use plan::TensorCorePlan;
