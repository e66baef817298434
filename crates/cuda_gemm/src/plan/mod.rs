//! From a kernel and a [`Gemm`](crate::Gemm) to a [`Plan`].
//!
//! The steps are [`Device::kernel`], [`Kernel::prepare`] and [`Plan::run`].
//!
//! A [`LaunchPlan`] is made once, from a kernel's descriptor and a device's [`Limits`]. It checks
//! everything that can be wrong about sizes, so that its launches need no further check.
//!
//! [`Device::kernel`]: crate::Device::kernel
//! [`Limits`]: crate::Limits

mod alignment;
mod builder;
mod cache;
mod clusters;
mod configuration;
mod expected;
mod extras;
mod form;
mod kernel;
mod launches;
mod names;
mod panel;
mod persistent;
mod planned;
mod possible;
mod stream_k;

pub(crate) use alignment::{copy_ld, is_aligned, wide_rows};
pub use builder::PlanBuilder;
pub(crate) use cache::{MAX_PLANS, PlanCache, Variant, of_any_factors};
pub(crate) use clusters::{most_splits, multiplied_columns, possible_columns, steps, stream_k};
pub use configuration::Configuration;
pub use expected::expect_planned;
pub use extras::{Extras, RawExtra, RawExtras};
pub(crate) use form::{KernelForm, tiles};
pub use kernel::Kernel;
pub(crate) use kernel::has_hopper;
pub use launches::LaunchPlan;
pub(crate) use launches::MAX_SPLITS;
pub(crate) use names::by_name;
pub use names::{find_kernel, nearest_names};
pub use panel::{Launch, Workspace};
pub(crate) use planned::Core;
pub use planned::Plan;
pub(crate) use possible::is_fma_for_tf32;
pub(crate) use stream_k::Decomposition;
