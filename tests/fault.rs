//! A kernel that faults. A fault ends the process's context on that device, so this is
//! a test program of its own.

mod common;

use cuda_gemm::{CUresult, Error};
use host::kernels::LADDER;
use host::{DeviceMatrix, Gemm};

#[test]
fn a_fault_is_reported_at_the_next_synchronisation_and_from_then_on() {
    for device in common::devices() {
        let descriptor = LADDER[0];
        let kernel = device.kernel(descriptor).unwrap();
        let prepared = kernel.prepare(Gemm::new(20, 20, 20)).unwrap();
        let c = DeviceMatrix::<f32>::zeros(&device, [20, 20]).unwrap();
        // SAFETY: not kept: A and B are nowhere. That is the test; the device protects
        // everything but this process's context.
        unsafe {
            prepared.run_raw([0, 0, c.address()], Default::default()).unwrap();
        }
        let error = device.synchronize().unwrap_err();
        assert!(matches!(error, Error::KernelFault { .. }), "{error}");
        assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
        if device.is_soft() {
            // The software device knows where it happened.
            assert!(error.to_string().contains(descriptor.name()), "{error}");
        }
        assert!(matches!(device.synchronize(), Err(Error::KernelFault { .. })));
        assert!(c.download().is_err());
        assert!(DeviceMatrix::<f32>::zeros(&device, [2, 2]).is_err());
    }
}
