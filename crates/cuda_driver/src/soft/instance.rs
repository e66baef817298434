//! The software device itself: its configuration, the progress of a launch, and the
//! answer to what it does not have.

use std::fmt::Display;
use std::sync::OnceLock;

use host_system::memory;
use soft_cuda::{Checks, Config, Device, Progress, Schedule};

use crate::codes::Answer;
use crate::last_error::explain;
use crate::ordinals;
use crate::types::CUresult;

/// The software device is in use, so its configuration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the software device is in use already; configure it before any other call")]
pub struct AlreadyInUse;

/// What is set by other means than the environment, whose variables for it are then not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// In place of `SOFT_CUDA_CHECK`.
    pub checks: Option<Checks>,
    /// In place of `SOFT_CUDA_SCHEDULE`.
    pub schedule: Option<Schedule>,
    /// In place of `SOFT_CUDA_INSTRUCTION_BUDGET`.
    pub instruction_budget: Option<u64>,
    /// [`Config::max_findings`], for which there is no variable.
    pub max_findings: Option<usize>,
}

static DEVICE: OnceLock<Device> = OnceLock::new();

/// What [`configure_with`] was given.
static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The software device itself, created on first use.
pub fn device() -> &'static Device {
    DEVICE.get_or_init(|| Device::new(default_config()))
}

/// The device's configuration, unless [`configure`] changes it.
///
/// It is `soft_cuda`'s default with at most half of this machine's memory: the host needs the other
/// half for its copies. [Environment variables](crate#checks) are applied.
pub fn default_config() -> Config {
    config_with(&Settings::default())
}

/// [`default_config`] with `settings`. An invalid environment is ignored here: `cuInit` reports it.
fn config_with(settings: &Settings) -> Config {
    let config = Config::default();
    let half = memory::total().map_or(u64::MAX, |bytes| bytes / 2);
    let config = Config { total_memory: config.total_memory.min(half), ..config };
    environment(config.clone(), settings).unwrap_or(config)
}

/// `config` with `settings`, and for what these leave open with what the environment says:
/// `SOFT_CUDA_CHECK`, `SOFT_CUDA_SCHEDULE` and `SOFT_CUDA_INSTRUCTION_BUDGET`. Fails with a
/// sentence about a variable that makes no sense.
fn environment(config: Config, settings: &Settings) -> Result<Config, String> {
    fn read<T, E: Display>(
        set: Option<T>,
        name: &str,
        what: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, String> {
        let text = std::env::var_os(name).filter(|text| set.is_none() && !text.is_empty());
        let Some(text) = text else { return Ok(set) };
        parse(&text.to_string_lossy())
            .map(Some)
            .map_err(|error| format!("the environment variable {name} should be {what}: {error}"))
    }
    let Settings { checks, schedule, instruction_budget, max_findings } = *settings;
    let checks = read(checks, "SOFT_CUDA_CHECK", "a list of checks", str::parse)?;
    let schedule = read(schedule, "SOFT_CUDA_SCHEDULE", "a schedule", str::parse)?;
    let what = "a number of warp instructions of 1 or more, or unset for no limit";
    let budget = read(instruction_budget, "SOFT_CUDA_INSTRUCTION_BUDGET", what, |text| {
        let budget = text.parse().ok().filter(|&budget| budget > 0);
        budget.ok_or_else(|| format!("`{text}` is no such number"))
    })?;
    Ok(Config {
        checks: checks.unwrap_or(config.checks),
        schedule: schedule.unwrap_or(config.schedule),
        instruction_budget: budget.or(config.instruction_budget),
        max_findings: max_findings.unwrap_or(config.max_findings),
        ..config
    })
}

/// Fails if a variable is invalid and no setting overrides it; `last_error` keeps the text.
pub(crate) fn check_environment() -> Answer {
    let settings = SETTINGS.get().copied().unwrap_or_default();
    environment(Config::default(), &settings).and_then(|_| ordinals::per_model()).map(drop).map_err(
        |text| {
            explain(text);
            CUresult::CUDA_ERROR_INVALID_VALUE
        },
    )
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

/// Creates the software device with [`default_config`] and `settings`.
///
/// `cuInit` then accepts any value of the variables that the settings override.
///
/// # Errors
///
/// [`AlreadyInUse`] once the device exists.
pub fn configure_with(settings: Settings) -> Result<(), AlreadyInUse> {
    configure(config_with(&settings))?;
    SETTINGS.get_or_init(|| settings);
    Ok(())
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
