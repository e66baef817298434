//! What the tests on devices share: the devices.
//!
//! What is skipped for want of a GPU is said on stderr, past the test harness, which swallows what
//! a test prints if it passes. `REQUIRE_GPU=1` makes it a failure.
//!
//! The f32 kernels run all of the contract on one model of the software device, and its edges on
//! the other: both models have PTX of the same sources. `CONTRACT=whole` runs all of it on both.

#![allow(dead_code, reason = "not every test program uses all of it")]

use std::io::Write;
use std::sync::Once;
use std::thread;

use host::{Device, DeviceChoice};

/// Both models of the software device and, where there is one, the GPU.
pub fn devices() -> Vec<Device> {
    static SAY_ONCE: Once = Once::new();
    let soft = [DeviceChoice::Soft, DeviceChoice::SoftSm90];
    let mut devices =
        Vec::from(soft.map(|choice| Device::open(choice).expect("the software device")));
    match cuda_driver::gpu_count() {
        Ok(_) => devices.push(Device::open(DeviceChoice::Gpu).expect("the GPU")),
        Err(reason) => {
            let reason = reason.to_string();
            require(&reason);
            SAY_ONCE.call_once(|| say(&format!("skipped on the GPU: all tests: {reason}")));
        }
    }
    // What this machine's user measured is no part of a test.
    devices.iter().for_each(|device| device.keep_measurements_in(None));
    devices
}

/// Whether `CONTRACT=whole` asks for every case on every device.
pub fn is_whole() -> bool {
    std::env::var_os("CONTRACT").is_some_and(|value| value == "whole")
}

/// Whether f32 kernels run all of the contract on this device, or its edges alone.
pub fn runs_all(device: &Device) -> bool {
    is_whole() || !device.is_soft() || device.info().capability == (9, 0)
}

/// The GPU, for a test that is about nothing else. Where there is none, the test is skipped.
pub fn gpu() -> Option<Device> {
    match cuda_driver::gpu_count() {
        Ok(_) => Some(Device::open(DeviceChoice::Gpu).expect("the GPU")),
        Err(reason) => {
            skip(&reason.to_string());
            None
        }
    }
}

/// Says that the calling test is skipped, and why.
pub fn skip(reason: &str) {
    require(reason);
    // The harness gives each test a thread of its name, unless there is one thread for all.
    let thread = thread::current();
    let name = thread.name().filter(|name| *name != "main").unwrap_or("this test");
    say(&format!("skipped: {name}: {reason}"));
}

fn require(reason: &str) {
    let required = std::env::var_os("REQUIRE_GPU").is_some_and(|value| value == "1");
    assert!(!required, "REQUIRE_GPU is set and {reason}");
}

fn say(what: &str) {
    // In one call, so that lines of several tests do not mix. Tests pass where nobody listens.
    let _ = std::io::stderr()
        .write_all(format!("{what} (REQUIRE_GPU=1 makes this a failure)\n").as_bytes());
}
