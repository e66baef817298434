//! The software device behind the driver API, and what `cust` has no call for:
//! its configuration, the progress of a launch, and the full text of a fault.
//!
//! Launches, copies and fills are complete when their call returns, so streams
//! and events only keep what the API asks of them.
//!
//! The layers, from below: `instance`; `leaks`; `device` and `work`; `state`, with every object by
//! its handle; `capture`, through which all work of a stream goes; the answers.

mod attributes;
mod capture;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod function;
pub(crate) mod graph;
mod instance;
pub(crate) mod launch;
mod leaks;
mod limits;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod peer;
mod state;
pub(crate) mod stream;
pub(crate) mod tensor;
mod work;

pub use context::last_fault;
pub use instance::{
    AlreadyInUse, Settings, configure, configure_with, default_config, device, progress,
};
pub(crate) use instance::{check_environment, unsupported};
pub use leaks::{Leak, findings, leaks, take_findings};
