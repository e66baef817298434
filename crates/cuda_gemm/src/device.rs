//! Devices: a GPU or the software device, opened for work.

mod current;
mod handle;
mod info;
mod loaded;
mod module;

pub use current::Entered;
pub use handle::{Device, DeviceChoice};
pub use info::{DeviceInfo, DeviceKind, Peak};
pub use module::EntryPoint;
