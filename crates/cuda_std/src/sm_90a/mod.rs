//! Features of Hopper alone: compute capability 9.0, and none before or after it.
//!
//! [`mbarrier`](crate::mbarrier), [`tma`](crate::tma) and [`cluster`](crate::cluster) are not here,
//! since later architectures have them too.

#[cfg(target_arch = "nvptx64")]
mod intrinsics;
pub mod wgmma;
