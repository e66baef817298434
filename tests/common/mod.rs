//! What the tests on devices share: the devices.

use std::io::Write;
use std::sync::Once;

use host::{Device, DeviceChoice};

/// Both models of the software device and, where there is one, the GPU. A missing GPU is said aloud,
/// and is a failure if `REQUIRE_GPU` is set to 1.
pub fn devices() -> Vec<Device> {
    static SAY_ONCE: Once = Once::new();
    let soft = [DeviceChoice::Soft, DeviceChoice::SoftSm90];
    let mut devices =
        Vec::from(soft.map(|choice| Device::open(choice).expect("the software device")));
    match cuda_driver::gpu_count() {
        Ok(_) => devices.push(Device::open(DeviceChoice::Gpu).expect("the GPU")),
        Err(reason) => skip(&SAY_ONCE, "on the GPU", &reason.to_string()),
    }
    devices
}

/// Says once that something is skipped, and why; fails if `REQUIRE_GPU` is set to 1.
pub fn skip(once: &Once, what: &str, reason: &str) {
    let required = std::env::var_os("REQUIRE_GPU").is_some_and(|value| value == "1");
    assert!(!required, "REQUIRE_GPU is set and {reason}");
    once.call_once(|| {
        // Past the test harness, which would swallow it.
        let _ = writeln!(std::io::stderr(), "skipped {what}: {reason}");
    });
}
