//! Forwarding to a driver, with a stand-in that this test builds and that child
//! processes load in place of `libcuda.so.1`.
#![cfg(target_os = "linux")]

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::Barrier;

use cuda_driver::sys::{self, CUdeviceptr, CUresult};
use cuda_driver::{GpuUnavailable, gpu_count};
use cust::context::legacy::{ContextFlags, ContextStack};
use cust::context::{Context, ContextHandle, CurrentContext, legacy};
use cust::device::Device;
use cust::error::CudaError;
use cust::event::{Event, EventFlags};
use cust::memory::{CopyDestination, DeviceBuffer};
use cust::stream::{Stream, StreamFlags};

mod common;

use common::{build, child, fake_driver};

#[test]
fn a_driver_is_used_beside_the_software_device() {
    child("child_with_a_driver", fake_driver(), &[]);
}

#[test]
fn every_way_to_have_no_gpu_is_told_apart() {
    let reason = |folder: &Path, settings: &[(&str, &str)], expected: &str| {
        let settings = [settings, &[("EXPECTED", expected)]].concat();
        child("child_without_a_gpu", folder, &settings);
    };
    let fake = fake_driver();
    reason(fake, &[("FAKE_INIT", "100")], "NoDevice");
    reason(fake, &[("FAKE_DEVICES", "0")], "NoDevice");
    reason(fake, &[("FAKE_VERSION", "11030")], "DriverTooOld { found: 11030, needed: 11040 }");
    reason(fake, &[("FAKE_INIT", "803")], "Init { function: \"cuInit\", code: 803");

    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let broken = tmp.join("broken_driver");
    std::fs::create_dir_all(&broken).unwrap();
    std::fs::write(broken.join("libcuda.so.1"), [b'?'; 4096]).unwrap();
    reason(&broken, &[], "LibraryNotFound");

    let empty = tmp.join("empty.rs");
    std::fs::write(&empty, "").unwrap();
    reason(&build("empty_driver", &empty), &[], "NotADriver");
}

#[test]
#[ignore = "runs in a child process"]
fn child_without_a_gpu() {
    let reason = gpu_count().unwrap_err();
    let expected = std::env::var("EXPECTED").unwrap();
    assert!(format!("{reason:?}").starts_with(&expected), "{reason:?}");

    cust::init(cust::CudaFlags::empty()).unwrap();
    assert_eq!(cuda_driver::soft_ordinal(), 0);
    let _context = Context::new(Device::get_device(0).unwrap()).unwrap();
    assert_eq!(DeviceBuffer::from_slice(&[1, 2]).unwrap().as_host_vec().unwrap(), [1, 2]);

    // A handle of nobody reaches nobody.
    // SAFETY: there is no driver that would take it for a pointer.
    let code = unsafe { sys::cuMemFree_v2(CUdeviceptr(0x1234_5678)) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_a_driver() {
    ordinals();
    let (gpu, soft) = (Device::get_device(1).unwrap(), Device::get_device(2).unwrap());
    memory_goes_by_its_address(gpu, soft);
    contexts_interleave(gpu, soft);
    every_device_at_once();
    codes_and_missing_functions(gpu);
    nothing_is_exported();
}

fn ordinals() {
    assert_eq!(gpu_count(), Ok(2));
    cust::init(cust::CudaFlags::empty()).unwrap();
    for (ordinal, device) in (0..).zip(Device::devices().unwrap()) {
        assert_eq!(device.unwrap().as_raw(), ordinal);
    }
    let names: Vec<_> =
        Device::devices().unwrap().map(|device| device.unwrap().name().unwrap()).collect();
    assert_eq!(
        names,
        ["Fake GPU 0", "Fake GPU 1", "Software CUDA device", "Software CUDA device (sm_90a)"]
    );
    assert_eq!(cust::CudaApiVersion::get().unwrap().major(), 12);
}

fn memory_goes_by_its_address(gpu: Device, soft: Device) {
    let gpu_context = Context::new(gpu).unwrap();
    let on_gpu = DeviceBuffer::from_slice(&[1_u32, 2, 3]).unwrap();
    let soft_context = Context::new(soft).unwrap();
    let mut on_soft = DeviceBuffer::from_slice(&[4_u32, 5, 6]).unwrap();
    assert_eq!(CurrentContext::get_device().unwrap(), soft);

    for current in [&gpu_context, &soft_context] {
        CurrentContext::set_current(current).unwrap();
        assert_eq!(on_gpu.as_host_vec().unwrap(), [1, 2, 3]);
        assert_eq!(on_soft.as_host_vec().unwrap(), [4, 5, 6]);
    }
    assert_eq!(on_soft.copy_from(&on_gpu), Err(CudaError::InvalidValue));
    assert!(cuda_driver::last_error().unwrap().contains("mixes"));
}

fn contexts_interleave(gpu: Device, soft: Device) {
    while ContextStack::pop().is_ok() {}
    let create = |flags, device| legacy::Context::create_and_push(flags, device).unwrap();
    let bottom = create(ContextFlags::SCHED_AUTO, gpu);
    let middle = create(ContextFlags::SCHED_AUTO, soft);
    let upper = create(ContextFlags::SCHED_SPIN, gpu);
    let top = create(ContextFlags::SCHED_SPIN, soft);
    let current = || legacy::CurrentContext::get_current().unwrap().get_inner();
    assert_eq!(current(), top.get_inner());
    drop(top);
    assert_eq!(current(), upper.get_inner());
    assert_eq!(ContextStack::pop().unwrap().get_inner(), upper.get_inner());
    assert_eq!(current(), middle.get_inner());
    ContextStack::push(&upper).unwrap();
    assert_eq!(current(), upper.get_inner());

    // Setting replaces the top, whichever kind it is.
    legacy::CurrentContext::set_current(&middle).unwrap();
    assert_eq!(current(), middle.get_inner());
    assert_eq!(ContextStack::pop().unwrap().get_inner(), middle.get_inner());
    legacy::CurrentContext::set_current(&upper).unwrap();
    drop(upper);
    assert_eq!(current(), bottom.get_inner());
    drop(bottom);
    assert!(current().is_null());
    assert_eq!(ContextStack::pop().map(|_| ()), Err(CudaError::InvalidContext));
    drop(middle);
}

/// A thread for each ordinal, and another that uses all of their contexts in turn.
fn every_device_at_once() {
    let count = Device::num_devices().unwrap();
    let all_open = Barrier::new(count as usize);
    let open = |ordinal| {
        let context = Context::new(Device::get_device(ordinal).unwrap()).unwrap();
        let buffer = DeviceBuffer::from_slice(&[ordinal; 5]).unwrap();
        all_open.wait();
        assert_eq!(buffer.as_host_vec().unwrap(), [ordinal; 5]);
        let device = CurrentContext::get_device().unwrap();
        assert_eq!(device, Device::get_device(ordinal).unwrap());
        (context, device, buffer)
    };
    let opened: Vec<_> = std::thread::scope(|scope| {
        let open = &open;
        let threads: Vec<_> =
            (0..count).map(|ordinal| scope.spawn(move || open(ordinal))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (ordinal, (context, device, buffer)) in (0..count).zip(&opened) {
        CurrentContext::set_current(context).unwrap();
        assert_eq!(CurrentContext::get_device().unwrap(), *device);
        assert_eq!(buffer.as_host_vec().unwrap(), [ordinal; 5]);
    }
}

fn codes_and_missing_functions(gpu: Device) {
    let _context = Context::new(gpu).unwrap();
    let stream = Stream::new(StreamFlags::DEFAULT, None).map(|_| ());
    assert_eq!(stream, Err(CudaError::UnknownError));
    assert!(cuda_driver::last_error().unwrap().contains("912"));

    // Not exported, and handed out by cuGetProcAddress.
    let event = Event::new(EventFlags::DEFAULT).unwrap();
    assert_eq!(event.elapsed_time_f32(&event), Ok(1.5));
    // Neither.
    assert_eq!(event.query().map(|_| ()), Err(CudaError::NotFound));
    assert!(cuda_driver::last_error().unwrap().contains("cuEventQuery"));

    // SAFETY: the stand-in reads through no handle.
    let launch = |exec: usize| unsafe {
        sys::cuGraphLaunch(sys::CUgraphExec(exec as *mut c_void), sys::CUstream::NULL)
    };
    assert_eq!(launch(0x9999_0000), CUresult::CUDA_SUCCESS);

    // cust passes this option without a value; the stand-in answers how many it got.
    let mut options = [sys::CU_JIT_TARGET, sys::CU_JIT_TARGET_FROM_CUCONTEXT];
    let mut values = [80 as *mut c_void];
    let mut module = sys::CUmodule::NULL;
    // SAFETY: the image ends with a NUL, and options that need a value have one.
    let code = unsafe {
        sys::cuModuleLoadDataEx(
            &mut module,
            c"".as_ptr().cast(),
            2,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    assert_eq!((code, module), (CUresult::CUDA_SUCCESS, sys::CUmodule(0x7777_0001 as *mut c_void)));
}

/// The driver and the libraries that use it must not find this program's functions.
fn nothing_is_exported() {
    let program = libloading::os::unix::Library::this();
    // SAFETY: the symbol is not used.
    assert!(unsafe { program.get::<*const ()>(b"cuInit\0") }.is_err());
}

#[test]
fn a_library_that_calls_back_is_no_driver() {
    child("child_with_a_library_that_calls_back", fake_driver(), &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_a_library_that_calls_back() {
    // SAFETY: the stand-in's initialisers do nothing, and its function has this signature.
    unsafe {
        let library = libloading::Library::new("libcuda.so.1").unwrap();
        type Count = unsafe extern "C" fn(*mut c_int) -> CUresult;
        let forward_to = library.get::<unsafe extern "C" fn(Count)>(b"forward_to\0").unwrap();
        forward_to(sys::cuDeviceGetCount);
        std::mem::forget(library);
    }
    cust::init(cust::CudaFlags::empty()).unwrap();
    assert!(matches!(gpu_count(), Err(GpuUnavailable::CallsBack { library: "libcuda.so.1" })));
    assert_eq!(Device::num_devices(), Ok(2));
}
