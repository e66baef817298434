//! The process and what is around it: streams, files, signals, threads, devices.

pub mod device;
pub mod input;
pub mod output;
pub mod progress;
pub mod signals;
pub mod stdio;
pub mod threads;
