//! Devices, their streams and graphs, and loaded kernels.

mod current;
mod environment;
mod event;
mod graph;
mod handle;
mod info;
mod limits;
mod module;
#[cfg(test)]
mod planted;
mod queue;
mod stream;
mod timer;

pub use current::Entered;
pub use environment::Environment;
pub use event::Event;
pub use graph::Graph;
pub use handle::{Device, DeviceChoice};
pub use info::{DeviceInfo, DeviceKind, Peak};
pub use limits::Limits;
pub(crate) use limits::RESERVED_SHARED;
pub use module::EntryPoint;
pub use queue::Exclusive;
pub use stream::Stream;
pub use timer::Timer;
