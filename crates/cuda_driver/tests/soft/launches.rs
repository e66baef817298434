//! Launches: parameters, blocks, shared memory, streams and events.

use super::*;

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
