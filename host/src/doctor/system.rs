//! The machine itself.

use std::num::NonZero;
use std::thread;

use host_system::format::bytes;
use host_system::memory;

use super::finding::Finding;

/// Memory and cores.
pub fn findings() -> Vec<Finding> {
    vec![
        match (memory::total(), memory::available(1)) {
            (Some(total), Some(available)) => Finding::ok(
                "memory",
                format!("{}, {} available", bytes(total.into()), bytes(available.into())),
            ),
            _ => Finding::ok("memory", "the system does not say how much"),
        },
        Finding::ok("cores", {
            let cores = thread::available_parallelism().map_or(1, NonZero::get);
            format!("{cores}{}", vectors())
        }),
    ]
}

/// What the software device computes with.
#[cfg(target_arch = "x86_64")]
fn vectors() -> &'static str {
    match std::arch::is_x86_feature_detected!("avx512f") {
        true => ", AVX-512",
        false => ", no AVX-512, with which the software device is faster",
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn vectors() -> &'static str {
    ""
}
