//! Contexts: faults, and what ends with them.

use super::*;

#[test]
fn a_fault_stays_until_the_context_is_gone() {
    for (offset, kernel, error, text) in [
        (4096, "store_one", CudaError::IllegalAddress, "out of bounds"),
        (1, "store_one", CudaError::MisalignedAddress, "not a multiple of 4"),
        (0, "traps", CudaError::LaunchFailed, "trap"),
        (0, "asserts", CudaError::AssertError, "a.cu:64: f(): assertion `i < n` failed"),
        (0, "counts_in_its_own_memory", CudaError::InvalidAddressSpace, "local memory"),
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
