//! The software device itself: its configuration, the progress of a launch, and the
//! answer to what it does not have.

use std::sync::OnceLock;

use host_system::memory;
use soft_cuda::{Config, Device, Progress};

use crate::codes::Answer;
use crate::last_error::explain;
use crate::types::CUresult;

/// The software device is in use, so its configuration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the software device is in use already; configure it before any other call")]
pub struct AlreadyInUse;

static DEVICE: OnceLock<Device> = OnceLock::new();

/// The software device itself, created on first use.
pub fn device() -> &'static Device {
    DEVICE.get_or_init(|| Device::new(default_config()))
}

/// What the device is like unless [`configure`] says otherwise: `soft_cuda`'s
/// default, with half of this machine's memory if that is less. The other half is
/// for the host's own copies of what is on the device.
pub fn default_config() -> Config {
    let config = Config::default();
    let half = memory::total().map_or(u64::MAX, |bytes| bytes / 2);
    Config { total_memory: config.total_memory.min(half), ..config }
}

/// Creates the software device with `config` instead of [`default_config`].
///
/// # Errors
///
/// [`AlreadyInUse`] once the device exists.
pub fn configure(config: Config) -> Result<(), AlreadyInUse> {
    let mut config = Some(config);
    DEVICE.get_or_init(|| Device::new(config.take().unwrap_or_else(default_config)));
    if config.is_none() { Ok(()) } else { Err(AlreadyInUse) }
}

/// How far the running launch is; safe to call from any thread at any time.
pub fn progress() -> Progress {
    device().progress()
}

/// What the software device answers to `function`, which it does not have.
pub(crate) fn unsupported(function: &str) -> Answer {
    explain(format!("the software device has no {function}; use a GPU for it"));
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}
