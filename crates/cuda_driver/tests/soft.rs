//! The software device through `cust`, each test in a context of its own.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::mem::size_of;

use cuda_driver::sys::{self, CUdeviceptr, CUfunction, CUresult};
use cust::context::legacy::{Context, ContextFlags, ContextStack, CurrentContext, ResourceLimit};
use cust::device::{Device, DeviceAttribute};
use cust::error::CudaError;
use cust::event::{Event, EventFlags, EventStatus};
use cust::function::{BlockSize, Function, FunctionAttribute};
use cust::launch;
use cust::memory::{
    AsyncCopyDestination, CopyDestination, DeviceBox, DeviceBuffer, LockedBuffer, UnifiedBuffer,
};
use cust::module::{Module, ModuleJitOption};
use cust::stream::{Stream, StreamFlags};

const KERNELS: &str = include_str!("kernels.ptx");

/// The software device and a fresh context on it, current on this thread.
fn soft() -> (Device, Context) {
    cust::init(cust::CudaFlags::empty()).unwrap();
    let device = Device::get_device(cuda_driver::soft_ordinal()).unwrap();
    (device, Context::create_and_push(ContextFlags::SCHED_AUTO, device).unwrap())
}

fn stream() -> Stream {
    Stream::new(StreamFlags::NON_BLOCKING, None).unwrap()
}

fn raw(function: &Function) -> CUfunction {
    CUfunction::from(function.to_raw())
}

#[test]
fn the_last_two_ordinals_are_the_software_device() {
    let (device, _context) = soft();
    let count = Device::num_devices().unwrap();
    assert_eq!(count, cuda_driver::soft_sm90_ordinal() + 1);
    assert_eq!(count, cuda_driver::gpu_count().unwrap_or(0) + 2);
    assert_eq!(Device::get_device(count).unwrap_err(), CudaError::InvalidDevice);
    assert_eq!(device.name().unwrap(), "Software CUDA device");
    assert!(device.total_memory().unwrap() > 0);
    assert_eq!(CurrentContext::get_device().unwrap(), device);
}

#[test]
fn attributes() {
    let (device, _context) = soft();
    let attribute = |attribute| device.get_attribute(attribute).unwrap();
    assert_eq!(attribute(DeviceAttribute::ComputeCapabilityMajor), 8);
    assert_eq!(attribute(DeviceAttribute::ComputeCapabilityMinor), 0);
    assert_eq!(attribute(DeviceAttribute::MaxThreadsPerBlock), 1024);
    assert_eq!(attribute(DeviceAttribute::MaxSharedMemoryPerBlock), 49_152);
    assert_eq!(attribute(DeviceAttribute::WarpSize), 32);
    assert_eq!(attribute(DeviceAttribute::ManagedMemory), 0);
    let sms = cuda_driver::soft::device().config().sm_count;
    assert_eq!(attribute(DeviceAttribute::MultiprocessorCount), sms as i32);

    let raw_device = sys::CUdevice(device.as_raw());
    let mut value = 0;
    let mut query =
        // SAFETY: `value` outlives the call.
        |attribute| unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, raw_device) }
            .ok()
            .map(|()| value);
    assert_eq!(query(sys::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), Ok(232_448));
    assert_eq!(query(0), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert_eq!(query(100_000), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
}

#[test]
fn a_short_buffer_cuts_the_name() {
    let (device, _context) = soft();
    let mut name = [b'?' as _; 10];
    let raw_device = sys::CUdevice(device.as_raw());
    // SAFETY: 9 bytes are inside the buffer.
    unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), 9, raw_device) }.ok().unwrap();
    assert_eq!(name.map(|byte| byte as u8), *b"Software\0?");
}

#[test]
fn versions_and_texts() {
    let (_device, context) = soft();
    if cuda_driver::gpu_count().is_err() {
        assert_eq!(cust::CudaApiVersion::get().unwrap().major(), 13);
    }
    assert_eq!(context.get_api_version().unwrap().major(), 13);
    assert!(CudaError::InvalidPtx.to_string().contains("PTX"));
    let (name, description) = cuda_driver::error_text(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(name, "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert!(description.contains("illegal"));
    assert_eq!(cuda_driver::error_text(CUresult(12_345)).0, "CUDA_ERROR_UNKNOWN");
}

#[test]
fn memory_round_trips() {
    let (_device, _context) = soft();
    let data: Vec<u32> = (0..10_000).collect();
    let mut a = DeviceBuffer::from_slice(&data).unwrap();
    // Routing depends on it: soft_cuda's addresses carry the tag.
    assert_eq!(a.as_device_ptr().as_raw() >> 48, 0x0050);
    assert_eq!(a.as_host_vec().unwrap(), data);

    let mut part = vec![0; 10];
    a.index(100..110).copy_to(&mut part).unwrap();
    assert_eq!(part, data[100..110]);

    let stream = stream();
    let mut b = DeviceBuffer::<u32>::zeroed(10_000).unwrap();
    // SAFETY: work on the software device is complete when the call returns.
    unsafe {
        b.async_copy_from(&a, &stream).unwrap();
        let mut back = LockedBuffer::new(&0, 10_000).unwrap();
        b.async_copy_to(&mut back, &stream).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(*back, data[..]);
    }
    a.set_8(0xAB).unwrap();
    assert_eq!(a.as_host_vec().unwrap(), [0xABAB_ABAB; 10_000]);
    a.set_16(0x1234).unwrap();
    assert_eq!(a.as_host_vec().unwrap(), [0x1234_1234; 10_000]);
    a.set_32(7).unwrap();
    assert_eq!(a.as_host_vec().unwrap(), [7; 10_000]);
}

#[test]
fn memory_is_counted_and_its_end_is_guarded() {
    let (_device, _context) = soft();
    let (free, total) = cust::memory::mem_get_info().unwrap();
    assert!(0 < free && free <= total);
    let too_much = DeviceBuffer::<u8>::zeroed(total + 1).map(|_| ());
    assert_eq!(too_much, Err(CudaError::OutOfMemory));
    assert!(cuda_driver::last_error().unwrap().contains("bytes of device memory"));
    // SAFETY: null is refused.
    let code = unsafe { sys::cuMemAlloc_v2(std::ptr::null_mut(), 1) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cuda_driver::last_error(), None, "no text outlives the next failure");

    let buffer = DeviceBuffer::<u8>::zeroed(16).unwrap();
    let address = buffer.as_device_ptr().as_raw();
    let mut host = [0_u8; 17];
    // SAFETY: the host buffer has 17 bytes.
    let code =
        unsafe { sys::cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), CUdeviceptr(address), host.len()) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    assert!(cuda_driver::last_error().unwrap().contains("16-byte allocation"));

    // SAFETY: not the start of an allocation, which is what is tested.
    let code = unsafe { sys::cuMemFree_v2(CUdeviceptr(address + 1)) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn a_soft_address_is_no_host_pointer() {
    let (_device, _context) = soft();
    let buffer = DeviceBuffer::<u8>::zeroed(16).unwrap();
    let address = CUdeviceptr(buffer.as_device_ptr().as_raw());
    // SAFETY: refused before anything is read.
    let code = unsafe { sys::cuMemcpyHtoD_v2(address, address.0 as *const c_void, 16) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn pitched_copies() {
    let (_device, _context) = soft();
    // 3 rows of 4 bytes out of rows of 10, from column 2 of row 1.
    let host: Vec<u8> = (0..50).collect();
    let mut device = DeviceBuffer::<u8>::zeroed(24).unwrap();
    let mut copy = sys::CUDA_MEMCPY2D {
        src_x_in_bytes: 2,
        src_y: 1,
        src_memory_type: sys::CU_MEMORYTYPE_HOST,
        src_host: host.as_ptr().cast(),
        src_device: CUdeviceptr(0),
        src_array: sys::CUarray::NULL,
        src_pitch: 10,
        dst_x_in_bytes: 0,
        dst_y: 0,
        dst_memory_type: sys::CU_MEMORYTYPE_DEVICE,
        dst_host: std::ptr::null_mut(),
        dst_device: CUdeviceptr(device.as_device_ptr().as_raw()),
        dst_array: sys::CUarray::NULL,
        dst_pitch: 8,
        width_in_bytes: 4,
        height: 3,
    };
    // SAFETY: rows 1 to 3 of 10 bytes lie in `host`, 3 rows of 8 bytes in `device`.
    unsafe { sys::cuMemcpy2D_v2(&copy) }.ok().unwrap();
    let expected =
        [12, 13, 14, 15, 0, 0, 0, 0, 22, 23, 24, 25, 0, 0, 0, 0, 32, 33, 34, 35, 0, 0, 0, 0];
    assert_eq!(device.as_host_vec().unwrap(), expected);

    copy.src_pitch = 5;
    // SAFETY: refused, since the rows would reach into each other.
    let code = unsafe { sys::cuMemcpy2D_v2(&copy) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    device.set_8(0).unwrap();
}

#[test]
fn vector_add() {
    let (_device, _context) = soft();
    let module = Module::from_ptx(KERNELS, &[]).unwrap();
    let stream = stream();
    let n = 1000_u32;
    let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..n).map(|i| 0.5 * i as f32).collect();
    let (a_dev, b_dev) =
        (DeviceBuffer::from_slice(&a).unwrap(), DeviceBuffer::from_slice(&b).unwrap());
    let c_dev = DeviceBuffer::from_slice(&vec![-1.0_f32; n as usize + 1]).unwrap();
    // SAFETY: three buffers of at least n elements.
    unsafe {
        launch!(module.vector_add<<<n.div_ceil(128), 128, 0, stream>>>(
            a_dev.as_device_ptr(),
            b_dev.as_device_ptr(),
            c_dev.as_device_ptr(),
            n
        ))
        .unwrap();
    }
    stream.synchronize().unwrap();
    let c = c_dev.as_host_vec().unwrap();
    assert!((0..n as usize).all(|i| c[i] == a[i] + b[i]));
    assert_eq!(c[n as usize], -1.0);
    let progress = cuda_driver::soft::progress();
    assert!(progress.blocks_done <= progress.blocks_total);
}

#[test]
fn parameters_are_laid_out_as_the_kernel_says() {
    let (_device, _context) = soft();
    let module = Module::from_ptx(KERNELS, &[]).unwrap();
    let stream = stream();
    let out = DeviceBuffer::<u64>::zeroed(2).unwrap();
    // SAFETY: `out` has 16 bytes.
    unsafe {
        launch!(module.store_byte_and_word<<<1, 1, 0, stream>>>(
            0x5A_u8,
            0x1122_3344_5566_7788_u64,
            out.as_device_ptr()
        ))
        .unwrap();
    }
    assert_eq!(out.as_host_vec().unwrap(), [0x5A, 0x1122_3344_5566_7788]);

    // The same as one buffer.
    #[repr(C)]
    struct Parameters {
        byte: u8,
        word: u64,
        out: u64,
    }
    let parameters = Parameters { byte: 1, word: 2, out: out.as_device_ptr().as_raw() };
    let mut size = size_of::<Parameters>();
    let mut extra: [*mut c_void; 5] = [
        std::ptr::without_provenance_mut(1),
        (&raw const parameters).cast_mut().cast(),
        std::ptr::without_provenance_mut(2),
        (&raw mut size).cast(),
        std::ptr::null_mut(),
    ];
    let function = module.get_function("store_byte_and_word").unwrap();
    let (no_params, stream) = (std::ptr::null_mut(), sys::CUstream::from(stream.as_inner()));
    // SAFETY: `extra` describes `parameters`, whose layout is that of the kernel's.
    unsafe {
        sys::cuLaunchKernel(
            raw(&function),
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            stream,
            no_params,
            extra.as_mut_ptr(),
        )
    }
    .ok()
    .unwrap();
    assert_eq!(out.as_host_vec().unwrap(), [1, 2]);

    // SAFETY: refused for its missing parameters.
    let code = unsafe {
        sys::cuLaunchKernel(raw(&function), 1, 1, 1, 1, 1, 1, 0, stream, no_params, no_params)
    };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn events_measure_time() {
    let (_device, _context) = soft();
    let stream = stream();
    let (start, stop) =
        (Event::new(EventFlags::DEFAULT).unwrap(), Event::new(EventFlags::DEFAULT).unwrap());
    assert_eq!(stop.elapsed_time_f32(&start), Err(CudaError::InvalidHandle), "not recorded");
    start.record(&stream).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(5));
    stop.record(&stream).unwrap();
    stop.synchronize().unwrap();
    assert_eq!(stop.query(), Ok(EventStatus::Ready));
    assert!(stop.elapsed_time_f32(&start).unwrap() >= 5.0);
    assert!(start.elapsed_time_f32(&stop).unwrap() <= -5.0);
    let untimed = Event::new(EventFlags::DISABLE_TIMING).unwrap();
    untimed.record(&stream).unwrap();
    assert_eq!(untimed.elapsed_time_f32(&start), Err(CudaError::InvalidHandle));
}

#[test]
fn streams() {
    let (_device, _context) = soft();
    let stream = stream();
    assert_eq!(stream.get_flags().unwrap(), StreamFlags::DEFAULT, "cust drops NON_BLOCKING");
    assert_eq!(stream.get_priority().unwrap(), 0);
    let called = std::sync::atomic::AtomicBool::new(false);
    stream
        .add_callback(Box::new(|| called.store(true, std::sync::atomic::Ordering::Relaxed)))
        .unwrap();
    stream.synchronize().unwrap();
    assert!(called.into_inner());
    let event = Event::new(EventFlags::DEFAULT).unwrap();
    stream.wait_event(event, cust::stream::StreamWaitEventFlags::DEFAULT).unwrap();
}

#[test]
fn module_variables() {
    let (_device, _context) = soft();
    let module = Module::from_ptx(KERNELS, &[]).unwrap();
    let mut symbol = module.get_global::<u32>(&CString::new("answer").unwrap()).unwrap();
    let mut value = 0;
    symbol.copy_to(&mut value).unwrap();
    assert_eq!(value, 42);
    symbol.copy_from(&43).unwrap();
    symbol.copy_to(&mut value).unwrap();
    assert_eq!(value, 43);
    let missing = module.get_global::<u32>(&CString::new("nothing").unwrap()).map(|_| ());
    assert_eq!(missing, Err(CudaError::NotFound));
}

#[test]
fn functions() {
    let (_device, _context) = soft();
    let module = Module::from_ptx(KERNELS, &[]).unwrap();
    assert_eq!(module.get_function("nothing").map(|_| ()), Err(CudaError::NotFound));
    let function = module.get_function("exactly_32_threads").unwrap();
    let attribute = |attribute| function.get_attribute(attribute).unwrap();
    assert_eq!(attribute(FunctionAttribute::MaxThreadsPerBlock), 32);
    assert_eq!(attribute(FunctionAttribute::SharedMemorySizeBytes), 0);
    assert_eq!(raw(&function), raw(&module.get_function("exactly_32_threads").unwrap()));
}

#[test]
fn occupancy() {
    let (_device, _context) = soft();
    let module = Module::from_ptx(KERNELS, &[]).unwrap();
    let function = module.get_function("vector_add").unwrap();
    let blocks = |threads, shared| {
        function.max_active_blocks_per_multiprocessor(BlockSize::x(threads), shared)
    };
    assert_eq!(blocks(1024, 0), Ok(2));
    assert_eq!(blocks(33, 0), Ok(32));
    assert_eq!(blocks(256, 100 << 10), Ok(2));
    assert_eq!(blocks(256, 232_448), Ok(1));
    assert_eq!(blocks(256, 232_449), Ok(0));
    assert_eq!(blocks(1025, 0), Ok(0));
    let (grid, block) = function.suggested_launch_configuration(0, BlockSize::x(0)).unwrap();
    let sms = cuda_driver::soft::device().config().sm_count;
    assert_eq!((grid, block), (2 * sms, 1024));
    let dynamic =
        function.available_dynamic_shared_memory_per_block(2.into(), BlockSize::x(256)).unwrap();
    assert_eq!(blocks(256, dynamic), Ok(2));
    assert_eq!(blocks(256, dynamic + 1), Ok(1));
}

#[test]
fn wrong_blocks_are_refused_at_once() {
    let (_device, _context) = soft();
    let module = Module::from_ptx(KERNELS, &[]).unwrap();
    let stream = stream();
    // SAFETY: the kernels do nothing.
    unsafe {
        launch!(module.exactly_32_threads<<<1, 32, 0, stream>>>()).unwrap();
        let wrong = launch!(module.exactly_32_threads<<<1, 64, 0, stream>>>());
        assert_eq!(wrong, Err(CudaError::InvalidValue));
        assert!(cuda_driver::last_error().unwrap().contains("exactly_32_threads"));
        launch!(module.at_most_64_threads<<<1, 64, 0, stream>>>()).unwrap();
        assert!(launch!(module.at_most_64_threads<<<1, 65, 0, stream>>>()).is_err());
        let empty = launch!(module.exactly_32_threads<<<0, 32, 0, stream>>>());
        assert_eq!(empty, Err(CudaError::InvalidValue));
    }
    stream.synchronize().unwrap();
}

#[test]
fn much_dynamic_shared_memory_has_to_be_asked_for() {
    let (_device, _context) = soft();
    let module = Module::from_ptx(KERNELS, &[]).unwrap();
    let stream = stream();
    let out = DeviceBuffer::<u32>::zeroed(1).unwrap();
    let bytes = 200 << 10;
    let function = module.get_function("dynamic_shared").unwrap();
    let run = |bytes: u32| {
        // SAFETY: the kernel writes the last word of its shared memory, and `out`.
        unsafe { launch!(function<<<1, 1, bytes, stream>>>(out.as_device_ptr(), bytes - 4)) }
    };
    run(48 << 10).unwrap();
    assert_eq!(run((48 << 10) + 4), Err(CudaError::InvalidValue));
    assert!(cuda_driver::last_error().unwrap().contains("MAX_DYNAMIC_SHARED_SIZE_BYTES"));
    let limit = |bytes| {
        let attribute = sys::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the module, and so the function, is alive.
        unsafe { sys::cuFuncSetAttribute(raw(&function), attribute, bytes) }.ok()
    };
    assert_eq!(limit(232_449), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    limit(bytes as c_int).unwrap();
    run(bytes).unwrap();
    assert_eq!(out.as_host_vec().unwrap(), [7]);
    assert_eq!(run(bytes + 4), Err(CudaError::InvalidValue));
}

#[test]
fn bad_ptx_fills_the_log() {
    let (_device, _context) = soft();
    let bad = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n  frobnicate.b32;\n}\n";
    assert_eq!(Module::from_ptx(bad, &[]).map(|_| ()), Err(CudaError::InvalidPtx));
    assert!(cuda_driver::last_error().unwrap().contains("line 5"));

    let text = CString::new(bad).unwrap();
    for size in [4096_usize, 10, 0] {
        let mut log = vec![0xFF_u8; size];
        let mut options = [
            sys::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            sys::CU_JIT_ERROR_LOG_BUFFER,
            sys::CU_JIT_TARGET_FROM_CUCONTEXT,
        ];
        let mut values: [*mut c_void; 2] = [size as *mut c_void, log.as_mut_ptr().cast()];
        let mut module = sys::CUmodule::NULL;
        // SAFETY: the image ends with a NUL, and each log option has its value. The last
        // option has none, as cust would pass it.
        let code = unsafe {
            sys::cuModuleLoadDataEx(
                &mut module,
                text.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_PTX);
        let written = values[0] as usize;
        assert!(written < size.max(1), "{written} of {size}");
        if size > 0 {
            assert_eq!(log[written], 0);
            let log = std::str::from_utf8(&log[..written]).unwrap();
            assert!("PTX line 5".starts_with(&log[..log.len().min(9)]), "{log}");
        }
    }
    let module = Module::from_ptx(KERNELS, &[ModuleJitOption::DetermineTargetFromContext]);
    module.unwrap();
}

#[test]
fn binaries_are_refused() {
    let (_device, _context) = soft();
    let refused = Err(CudaError::NoBinaryForGpu);
    assert_eq!(Module::from_cubin(b"\x7fELF\x02\x01\x01", &[]).map(|_| ()), refused);
    assert_eq!(Module::from_fatbin([0x50, 0xED, 0x55, 0xBA], &[]).map(|_| ()), refused);
    assert!(cuda_driver::last_error().unwrap().contains("PTX text"));
    assert_eq!(Module::from_file("/no/such/file").map(|_| ()), Err(CudaError::FileNotFound));
}

#[test]
fn ptx_loads_from_a_file() {
    let (_device, _context) = soft();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx");
    Module::from_file(path).unwrap().get_function("vector_add").unwrap();
}

#[test]
fn a_fault_stays_until_the_context_is_gone() {
    for (offset, kernel, error, text) in [
        (4096, "store_one", CudaError::IllegalAddress, "out of bounds"),
        (1, "store_one", CudaError::MisalignedAddress, "not a multiple of 4"),
        (0, "traps", CudaError::LaunchFailed, "trap"),
    ] {
        let (device, context) = soft();
        let module = Module::from_ptx(KERNELS, &[]).unwrap();
        let stream = stream();
        let event = Event::new(EventFlags::DEFAULT).unwrap();
        let buffer = DeviceBuffer::<u32>::zeroed(16).unwrap();
        let function = module.get_function(kernel).unwrap();
        assert_eq!(cuda_driver::soft::last_fault(), None);
        let at = buffer.as_device_ptr().as_raw() + offset;
        // SAFETY: the software device catches the stray store.
        let launched = unsafe { launch!(function<<<1, 1, 0, stream>>>(at)) };
        assert_eq!(launched, Ok(()), "as on a GPU, the launch itself succeeds");

        assert_eq!(stream.synchronize(), Err(error));
        assert_eq!(CurrentContext::synchronize(), Err(error));
        assert_eq!(event.record(&stream), Err(error));
        assert_eq!(buffer.as_host_vec().map(|_| ()), Err(error));
        assert_eq!(DeviceBuffer::<u8>::zeroed(1).map(|_| ()), Err(error));
        assert_eq!(Module::from_ptx(KERNELS, &[]).map(|_| ()), Err(error));
        // SAFETY: it does not run.
        let again = unsafe { launch!(function<<<1, 1, 0, stream>>>(at)) };
        assert_eq!(again, Err(error));
        let fault = cuda_driver::soft::last_fault().unwrap();
        assert!(fault.contains(text) && fault.contains(kernel), "{fault}");
        // What does not touch the context still works.
        assert_eq!(CurrentContext::get_device().unwrap(), device);

        drop(context);
        assert_eq!(cuda_driver::soft::last_fault(), None);
    }
}

#[test]
fn a_context_takes_its_memory_along() {
    let (_device, context) = soft();
    let buffer = DeviceBuffer::<u8>::zeroed(1 << 20).unwrap();
    let address = buffer.as_device_ptr().as_raw();
    let soft = cuda_driver::soft::device();
    assert_eq!(soft.allocation_of(address), Some((address, 1 << 20)));
    drop(context);
    assert_eq!(soft.allocation_of(address), None);
    assert_eq!(buffer.as_host_vec().map(|_| ()), Err(CudaError::InvalidContext));
}

#[test]
fn contexts_stack() {
    let (device, outer) = soft();
    let inner = Context::create_and_push(ContextFlags::SCHED_SPIN, device).unwrap();
    assert_eq!(CurrentContext::get_flags().unwrap(), ContextFlags::SCHED_SPIN);
    ContextStack::pop().unwrap();
    assert_eq!(CurrentContext::get_flags().unwrap(), ContextFlags::SCHED_AUTO);
    ContextStack::push(&inner).unwrap();
    CurrentContext::set_resource_limit(ResourceLimit::StackSize, 4096).unwrap();
    drop(inner);
    let stack = CurrentContext::get_resource_limit(ResourceLimit::StackSize);
    assert_eq!(stack, Ok(1024), "the outer context's own");
    ContextStack::pop().unwrap();
    assert_eq!(CurrentContext::synchronize(), Err(CudaError::InvalidContext));
    assert_eq!(ContextStack::pop().map(|_| ()), Err(CudaError::InvalidContext));
    CurrentContext::set_current(&outer).unwrap();
    CurrentContext::synchronize().unwrap();

    // Memory calls need a context on the thread they are made on.
    let buffer = DeviceBuffer::<u8>::zeroed(1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(buffer.as_host_vec(), Err(CudaError::InvalidContext)));
    });
}

#[test]
fn a_destroyed_context_is_told_on_other_threads() {
    let (_device, context) = soft();
    let unowned = context.get_unowned();
    let (dropped, wait) = std::sync::mpsc::channel::<()>();
    let (current, ready) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            CurrentContext::set_current(&unowned).unwrap();
            current.send(()).unwrap();
            wait.recv().unwrap();
            // cust has no name for the destroyed state of a current context but this.
            assert_eq!(CurrentContext::synchronize(), Err(CudaError::ContextIsDestroyed));
        });
        ready.recv().unwrap();
        drop(context);
        dropped.send(()).unwrap();
    });
}

#[test]
fn launches_with_attributes() {
    let (_device, _context) = soft();
    let module = Module::from_ptx(KERNELS, &[]).unwrap();
    let function = module.get_function("exactly_32_threads").unwrap();
    let mut cluster = [0_u8; 64];
    cluster[0] = 1;
    let mut attribute = sys::CUlaunchAttribute {
        id: sys::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        pad: [0; 4],
        value: cluster,
    };
    let launch = |attribute: &mut sys::CUlaunchAttribute| {
        let config = sys::CUlaunchConfig {
            grid_dim_x: 2,
            grid_dim_y: 1,
            grid_dim_z: 1,
            block_dim_x: 32,
            block_dim_y: 1,
            block_dim_z: 1,
            shared_mem_bytes: 0,
            stream: sys::CUstream::NULL,
            attrs: attribute,
            num_attrs: 1,
        };
        let none = std::ptr::null_mut();
        // SAFETY: the kernel takes no parameters, and the attribute outlives the call.
        unsafe { sys::cuLaunchKernelEx(&config, raw(&function), none, none) }.ok()
    };
    launch(&mut attribute).unwrap();
    attribute.value[0] = 2;
    assert_eq!(launch(&mut attribute), Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
}

#[test]
fn what_is_missing_says_so() {
    let (_device, _context) = soft();
    let managed = UnifiedBuffer::<u32>::new(&0, 4).map(|_| ());
    assert_eq!(managed, Err(CudaError::NotSupported));
    assert!(cuda_driver::last_error().unwrap().contains("cuMemAllocManaged"));
    assert_eq!(cust::link::Linker::new().map(|_| ()), Err(CudaError::NotSupported));
}

#[test]
fn stale_handles_are_errors() {
    let (_device, _context) = soft();
    let module = Module::from_ptx(KERNELS, &[]).unwrap();
    let function = raw(&module.get_function("traps").unwrap());
    drop(module);
    let none = std::ptr::null_mut();
    let stream = sys::CUstream::NULL;
    // SAFETY: the software device checks handles.
    let code = unsafe { sys::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, none) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_HANDLE);
    let boxed = DeviceBox::new(&1_u32).unwrap();
    assert_eq!(boxed.as_host_value(), Ok(1));
}
