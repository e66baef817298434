//! The software device itself: its configuration, the progress of a launch, and the
//! answer to what it does not have.

use std::num::NonZeroU64;
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
/// default, with half of this machine's memory if that is less, and with what the environment
/// says ([the crate's documentation](crate#checks) lists the variables). The other half of the
/// memory is for the host's own copies of what is on the device.
pub fn default_config() -> Config {
    let config = Config::default();
    let half = memory::total().map_or(u64::MAX, |bytes| bytes / 2);
    let config = Config { total_memory: config.total_memory.min(half), ..config };
    environment(config.clone()).unwrap_or(config)
}

/// `config` with what the environment says: `SOFT_CUDA_CHECK`, `SOFT_CUDA_SCHEDULE` and
/// `SOFT_CUDA_INSTRUCTION_BUDGET`. Fails with a sentence about a variable that makes no sense.
fn environment(mut config: Config) -> Result<Config, String> {
    fn set<T>(name: &str, field: &mut T, what: &str) -> Result<(), String>
    where
        T: std::str::FromStr<Err: std::fmt::Display>,
    {
        let Some(text) = std::env::var_os(name) else { return Ok(()) };
        *field = text.to_string_lossy().parse().map_err(|error| {
            format!("the environment variable {name} should be {what}: {error}")
        })?;
        Ok(())
    }
    set("SOFT_CUDA_CHECK", &mut config.checks, "a list of checks")?;
    set("SOFT_CUDA_SCHEDULE", &mut config.schedule, "a schedule")?;
    let mut budget = NonZeroU64::new(config.instruction_budget.unwrap_or(u64::MAX));
    if let Some(budget) = &mut budget {
        set("SOFT_CUDA_INSTRUCTION_BUDGET", budget, "a number of warp instructions")?;
    }
    config.instruction_budget = budget.map(NonZeroU64::get).filter(|&budget| budget != u64::MAX);
    Ok(config)
}

/// Fails if the environment says something about the software device that makes no sense; the
/// text is kept for `last_error`.
pub(crate) fn check_environment() -> Answer {
    environment(Config::default()).map(drop).map_err(|text| {
        explain(text);
        CUresult::CUDA_ERROR_INVALID_VALUE
    })
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
