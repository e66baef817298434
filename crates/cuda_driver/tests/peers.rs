//! Several software devices, in a process of its own: their number is the process's.

use std::ptr;

use cuda_driver::sys::{self, CUcontext, CUdevice, CUdeviceptr, CUresult, CUstream};
use cust::device::{Device, DeviceAttribute};

const OK: CUresult = CUresult::CUDA_SUCCESS;

/// The primary context of a device, retained.
fn context(ordinal: u32) -> CUcontext {
    let mut context = CUcontext::NULL;
    // SAFETY: `context` is valid for the write.
    let code = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, CUdevice(ordinal as i32)) };
    assert_eq!(code, OK);
    context
}

fn current(context: CUcontext) {
    // SAFETY: the context is retained.
    assert_eq!(unsafe { sys::cuCtxSetCurrent(context) }, OK);
}

#[test]
fn devices_are_there_when_they_were_asked_for() {
    cust::init(cust::CudaFlags::empty()).unwrap();
    let gpus = cuda_driver::gpu_count().unwrap_or(0);
    assert_eq!(Device::num_devices().unwrap(), gpus + 2);
    let [old, new] = cuda_driver::soft_ordinals(2).unwrap();
    assert_eq!([old, new], [gpus + 4, gpus + 5]);
    assert_eq!(Device::num_devices().unwrap(), gpus + 6);
    cuda_driver::soft_ordinals(1).unwrap();
    assert_eq!(Device::num_devices().unwrap(), gpus + 6, "none goes");
    for (ordinal, major) in [(old, 8), (new, 9)] {
        let device = Device::get_device(ordinal).unwrap();
        let attribute = DeviceAttribute::ComputeCapabilityMajor;
        assert_eq!(device.get_attribute(attribute).unwrap(), major);
    }

    let [first, second] = [cuda_driver::soft_ordinal(), old].map(context);
    assert_ne!(first, second);
    let can = |device: u32, peer: u32| {
        let mut can = -1;
        let [device, peer] = [device, peer].map(|ordinal| CUdevice(ordinal as i32));
        // SAFETY: `can` is valid for the write.
        (unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, device, peer) }, can)
    };
    assert_eq!([can(old, new), can(gpus, old), can(old, old)], [(OK, 1), (OK, 1), (OK, 0)]);
    assert_eq!(can(old, gpus + 6).0, CUresult::CUDA_ERROR_INVALID_DEVICE);

    // Access is switched on once, and off once, in one direction.
    current(first);
    // SAFETY: these take handles of live contexts alone.
    let codes = unsafe {
        [
            sys::cuCtxDisablePeerAccess(second),
            sys::cuCtxEnablePeerAccess(second, 0),
            sys::cuCtxEnablePeerAccess(second, 0),
            sys::cuCtxEnablePeerAccess(first, 0),
            sys::cuCtxDisablePeerAccess(second),
        ]
    };
    let refused = CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    let again = CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    assert_eq!(codes, [refused, OK, again, CUresult::CUDA_ERROR_INVALID_DEVICE, OK]);

    // A copy between two contexts, now and in a stream, needs no access.
    let mut at = [CUdeviceptr(0); 2];
    for (context, at) in [first, second].into_iter().zip(&mut at) {
        current(context);
        // SAFETY: `at` is valid for the write.
        assert_eq!(unsafe { sys::cuMemAlloc_v2(at, 8) }, OK);
    }
    let [from, to] = at;
    let later = CUdeviceptr(to.0 + 4);
    // SAFETY: both allocations have 8 bytes, and `words` has room for them.
    unsafe {
        assert_eq!(sys::cuMemsetD32_v2(from, 7, 1), OK);
        assert_eq!(sys::cuMemcpyPeer(to, second, from, first, 4), OK);
        assert_eq!(sys::cuMemcpyPeerAsync(later, second, to, second, 4, CUstream::NULL), OK);
        let mut words = [0u32; 2];
        assert_eq!(sys::cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), to, 8), OK);
        assert_eq!(words, [7, 7]);
        let nobody = CUcontext(ptr::without_provenance_mut((0x50 << 48) + 127));
        let code = sys::cuMemcpyPeer(to, second, from, nobody, 4);
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }

    // The memory of a device goes with its own context.
    // SAFETY: nothing of it is used again.
    unsafe {
        assert_eq!(sys::cuDevicePrimaryCtxRelease_v2(CUdevice(old as i32)), OK);
        current(first);
        let mut word = 0u32;
        assert_eq!(sys::cuMemcpyDtoH_v2((&raw mut word).cast(), from, 4), OK);
        assert_ne!(sys::cuMemcpyDtoH_v2((&raw mut word).cast(), to, 4), OK);
    }
}
