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
pub(crate) mod tensor_core;
mod tensor_map;
mod workspace;

pub(crate) use alignment::{copy_ld, is_aligned, wide_rows};
pub use builder::PlanBuilder;
pub use expected::expect_planned;
pub use extras::{Extras, RawExtra, RawExtras};
pub use kernel::Kernel;
pub use names::{find_kernel, find_tensor_core, nearest_names};
pub use plan::Plan;
pub use product::{Product, ProductBuilder};
pub use tensor_core::{TensorCoreBuilder, TensorCoreKernel, TensorCorePlan};
pub(crate) use tensor_map::has_hopper;
