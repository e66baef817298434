//! From a rung and a [`Gemm`](crate::Gemm) to work on a device: [`Device::kernel`], then
//! [`Kernel::prepare`], then [`Plan::enqueue`].
//!
//! [`Device::kernel`]: crate::Device::kernel

mod alignment;
mod builder;
mod enqueue;
mod enqueue_maps;
mod expected;
mod extras;
mod kernel;
mod map_cache;
mod names;
pub(crate) mod parameters;
mod plan;
mod product;
mod staging;
mod tensor;
mod tensor_builder;
mod tensor_copies;
mod tensor_core;
mod tensor_cost;
mod tensor_division;
mod tensor_launch;
mod tensor_plan;
mod workspace;

pub(crate) use alignment::{copy_ld, is_aligned, wide_rows};
pub use builder::PlanBuilder;
pub use expected::expect_planned;
pub use extras::{Extras, RawExtra, RawExtras};
pub use kernel::Kernel;
pub use names::{find_kernel, nearest_name};
pub use plan::Plan;
pub use product::{Product, ProductBuilder};
pub(crate) use tensor::has_hopper;
pub use tensor_builder::TensorCoreBuilder;
pub use tensor_core::TensorCoreKernel;
pub(crate) use tensor_core::{basis as tensor_core_basis, times as tensor_core_times};
pub(crate) use tensor_cost::TensorCoreTime;
pub use tensor_plan::TensorCorePlan;
