//! Devices: a GPU or the software device, opened for work.

mod handle;
mod info;
mod loaded;
mod module;

pub use handle::{Device, DeviceChoice};
pub use info::{DeviceInfo, DeviceKind, Peak};
pub use module::EntryPoint;
