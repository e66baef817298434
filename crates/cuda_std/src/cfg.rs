//! The compute capability that a crate of kernels is built for.
//!
//! It is known at compile time: branches of a comparison that are not taken are not in the PTX. For
//! whole items there is `#[cfg(target_feature = "sm_90")]`, which holds for that architecture and
//! all later ones.
//!
//! Rust-CUDA's spelling, `compute_90`, is the same. rustc does not know it, and warns
//! (`unexpected_cfgs`) when it compiles kernels for the host. A line among `[lints.rust]` of
//! `Cargo.toml` tells it:
//!
//! ```toml
//! unexpected_cfgs = { level = "warn", check-cfg = ['cfg(target_feature, values("compute_90"))'] }
//! ```

use cuda_std_macros::gpu_only;

macro_rules! capabilities {
    ($($name:ident = $feature:literal,)*) => {
        /// A compute capability; a later one is greater.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ComputeCapability {$(
            #[doc = concat!("`", $feature, "`.")]
            $name,
        )*}

        impl ComputeCapability {
            /// The capability that this crate is built for.
            #[gpu_only]
            #[inline(always)]
            #[must_use]
            pub fn from_cuda_arch_env() -> Self {
                let mut built_for = ComputeCapability::Compute70;
                $(if cfg!(target_feature = $feature) {
                    built_for = ComputeCapability::$name;
                })*
                built_for
            }
        }
    };
}

capabilities! {
    Compute70 = "sm_70",
    Compute72 = "sm_72",
    Compute75 = "sm_75",
    Compute80 = "sm_80",
    Compute86 = "sm_86",
    Compute87 = "sm_87",
    Compute89 = "sm_89",
    Compute90 = "sm_90",
    Compute100 = "sm_100",
    Compute101 = "sm_101",
    Compute120 = "sm_120",
}
