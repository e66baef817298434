//! The heap of a device, on the GPU if there is one: what kernels allocate, and what the
//! collections of `alloc` make of it there.

use std::path::Path;

use cuda_builder::{CudaArch, CudaBuilder};
use cust::context::{CurrentContext, ResourceLimit};
use cust::launch;
use soft_cuda::{Config, Device, FaultKind, LaunchConfig, LaunchError};

mod common;
#[path = "common/device.rs"]
mod device;

use device::{Api, buffer};

fn text() -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/heap");
    common::ptx("heap", CudaBuilder::new(folder).alloc(true), CudaArch::Sm80)
}

#[test]
fn kernels_allocate() {
    let Some(text) = text() else { return };
    let on = Api::load(&text, CudaArch::Sm80);
    // What it calls by address, the compiler cannot count; a GPU's threads have 1 KiB by default.
    CurrentContext::set_resource_limit(ResourceLimit::StackSize, 16 << 10).unwrap();
    let kernel = on.module.get_function("allocates").unwrap();
    const BLOCKS: u32 = 4;
    let (out, stream) = (buffer(&[0u64; BLOCKS as usize * 64]), &on.stream);
    // SAFETY: an element for each thread, and `read` waits.
    unsafe { launch!(kernel<<<BLOCKS, 64, 0, stream>>>(out.as_device_ptr())) }.unwrap();
    for (i, found) in (0..).zip(on.read(&out)) {
        assert_eq!(found, heap::collections(i), "thread {i}");
    }
}

#[test]
fn what_does_not_fit_and_what_was_not_allocated_are_faults() {
    let Some(text) = text() else { return };
    let device = Device::new(Config::default());
    let module = device.load(&text).unwrap_or_else(|error| panic!("{error}"));
    let out = device.alloc(8).unwrap();
    let fault = |name: &str| {
        let kernel = module.kernel(name).unwrap();
        let config = LaunchConfig { grid: [1; 3], block: [1; 3], dynamic_shared: 0 };
        match device.launch(&kernel, config, &out.to_ne_bytes()) {
            Err(LaunchError::Fault(fault)) => fault.kind,
            other => panic!("{other:?}"),
        }
    };
    let FaultKind::Panic { message } = fault("allocates_much") else { panic!("no panic") };
    assert!(message.contains("memory allocation of"), "{message}");
    assert!(matches!(fault("frees_other"), FaultKind::BadFree { .. }));
}
