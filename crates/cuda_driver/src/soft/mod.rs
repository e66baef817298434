//! The software device behind the driver API, and what `cust` has no call for:
//! its configuration, the progress of a launch, and the full text of a fault.
//!
//! Launches, copies and fills are complete when their call returns, so streams
//! and events only keep what the API asks of them.

pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod function;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod module;
mod state;
pub(crate) mod stream;

use std::sync::OnceLock;

use soft_cuda::{Config, Device, Progress};

use crate::codes::{self, Answer};
use crate::sys::CUresult;

/// The software device is in use, so its configuration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the software device is in use already; configure it before any other call")]
pub struct AlreadyInUse;

static DEVICE: OnceLock<Device> = OnceLock::new();

/// The software device itself, created on first use.
pub fn device() -> &'static Device {
    DEVICE.get_or_init(|| Device::new(Config::default()))
}

/// Creates the software device with `config` instead of the default.
///
/// # Errors
///
/// [`AlreadyInUse`] once the device exists.
pub fn configure(config: Config) -> Result<(), AlreadyInUse> {
    let mut config = Some(config);
    DEVICE.get_or_init(|| Device::new(config.take().unwrap_or_default()));
    if config.is_none() { Ok(()) } else { Err(AlreadyInUse) }
}

/// How far the running launch is; safe to call from any thread at any time.
pub fn progress() -> Progress {
    device().progress()
}

/// The text of the fault that the calling thread's current context is stuck in:
/// kernel, PTX line, block, thread and what happened. `None` on a GPU.
pub fn last_fault() -> Option<String> {
    let context = crate::route::current_soft().ok()?;
    state::lock().contexts.get(&context.bits())?.fault.as_ref().map(|fault| fault.text.clone())
}

/// What the software device answers to `function`, which it does not have.
pub(crate) fn unsupported(function: &str) -> Answer {
    codes::explain(format!("the software device has no {function}; use a GPU for it"));
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}
