//! How one time is taken: batches of launches in turn, matrices with a cold cache, clocks and
//! power.

pub mod batch;
pub mod buffers;
pub mod telemetry;
pub mod time;
