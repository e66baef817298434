//! The limits of a context: `cuCtxSetLimit`.

use super::*;

const PTX: &str = "
.version 7.0
.target sm_80
.address_size 64

.extern .func (.param .b64 address) malloc(.param .b64 bytes);

// Calls itself n times, with 64 bytes of its own each time.
.func down(.param .b32 n)
{
    .local .align 8 .b8 own[48];
    .reg .b32 %r<3>;
    .reg .pred %p<2>;
    ld.param.b32 %r1, [n];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 ret;
    sub.u32 %r2, %r1, 1;
    { .param .b32 a; st.param.b32 [a], %r2; call down, (a); }
    ret;
}

.visible .entry deep(.param .u32 n)
{
    .reg .b32 %r<2>;
    ld.param.u32 %r1, [n];
    { .param .b32 a; st.param.b32 [a], %r1; call down, (a); }
    ret;
}

// Stores the address of as many bytes, or 0.
.visible .entry allocate(.param .u64 bytes, .param .u64 out)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [bytes];
    ld.param.u64 %rd2, [out];
    { .param .b64 a; .param .b64 b;
      st.param.b64 [a], %rd1;
      call (b), malloc, (a);
      ld.param.b64 %rd3, [b]; }
    st.global.u64 [%rd2], %rd3;
    ret;
}";

fn set(limit: ResourceLimit, value: usize) -> Result<(), CudaError> {
    CurrentContext::set_resource_limit(limit, value)
}

fn get(limit: ResourceLimit) -> usize {
    CurrentContext::get_resource_limit(limit).unwrap()
}

#[test]
fn the_stack_is_as_large_as_its_limit() {
    // Whether this many calls fit in a context with this stack.
    let deep = |calls: u32, stack: Option<usize>| {
        let (_device, _context) = soft();
        if let Some(bytes) = stack {
            set(ResourceLimit::StackSize, bytes).unwrap();
        }
        assert_eq!(get(ResourceLimit::StackSize), stack.unwrap_or(1024));
        let module = Module::from_ptx(PTX, &[]).unwrap();
        let stream = stream();
        // SAFETY: the kernel touches no memory.
        unsafe { launch!(module.deep<<<1, 32, 0, stream>>>(calls)) }.unwrap();
        let ended = stream.synchronize();
        if ended.is_err() {
            assert_eq!(ended, Err(CudaError::HardwareStackError));
            let fault = cuda_driver::soft::last_fault().unwrap();
            // The frames of the kernel and of one call are known.
            let bytes = format!("the {} bytes", stack.unwrap_or(1024) + 80);
            assert!(fault.contains(&bytes) && fault.contains("CU_LIMIT_STACK_SIZE"), "{fault}");
        }
        ended.is_ok()
    };
    // As on a GPU, it is 1 KiB at first.
    assert!(deep(10, None) && !deep(20, None));
    assert!(deep(3, Some(512)) && !deep(10, Some(512)));
    assert!(deep(200, Some(32 << 10)) && !deep(600, Some(32 << 10)));
    assert!(deep(3000, Some(256 << 10)) && deep(3000, Some(512 << 10)));

    let (_device, _context) = soft();
    assert_eq!(set(ResourceLimit::StackSize, (512 << 10) + 1), Err(CudaError::InvalidValue));
    assert!(cuda_driver::last_error().unwrap().contains("524288 bytes at most"));
    assert_eq!(get(ResourceLimit::StackSize), 1024);
}

#[test]
fn a_graph_is_launched_with_the_limits_of_then() {
    let (_device, _context) = soft();
    let module = Module::from_ptx(PTX, &[]).unwrap();
    let stream = stream();
    let raw = sys::CUstream::from(stream.as_inner());
    let (mut graph, mut exec) = (sys::CUgraph::NULL, sys::CUgraphExec::NULL);
    // Other tests allocate meanwhile.
    let mode = sys::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the kernel touches no memory, and the handles are what the calls made.
    unsafe {
        sys::cuStreamBeginCapture_v2(raw, mode).ok().unwrap();
        launch!(module.deep<<<1, 32, 0, stream>>>(100_u32)).unwrap();
        sys::cuStreamEndCapture(raw, &mut graph).ok().unwrap();
        sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0).ok().unwrap();
        set(ResourceLimit::StackSize, 16 << 10).unwrap();
        sys::cuGraphLaunch(exec, raw).ok().unwrap();
    }
    assert_eq!(stream.synchronize(), Ok(()));
}

#[test]
fn the_heap_is_as_large_as_its_limit() {
    let allocated = |bytes: u64| {
        let module = Module::from_ptx(PTX, &[]).unwrap();
        let stream = stream();
        let out = DeviceBox::new(&1_u64).unwrap();
        // SAFETY: the place is there until the stream has been waited for.
        unsafe {
            launch!(module.allocate<<<1, 1, 0, stream>>>(bytes, out.as_device_ptr())).unwrap();
        }
        stream.synchronize().unwrap();
        out.as_host_value().unwrap()
    };
    for (limit, fits) in [(None, 8 << 20), (Some(1 << 20), 1 << 20), (Some(64 << 20), 64 << 20)] {
        for (bytes, is_there) in [(fits, true), (fits + 1, false)] {
            let (_device, _context) = soft();
            if let Some(limit) = limit {
                set(ResourceLimit::MallocHeapSize, limit).unwrap();
            }
            assert_eq!(get(ResourceLimit::MallocHeapSize) as u64, fits);
            assert_eq!(allocated(bytes) != 0, is_there, "{bytes} of {fits}");
        }
    }

    // It is each context's own, goes with it, and stays as it is from the first kernel on.
    let (_device, outer) = soft();
    let (_device, inner) = soft();
    let address = allocated(16);
    let is_there = || cuda_driver::soft::device().allocation_of(address).is_some();
    assert_ne!(address, 0);
    assert_eq!(set(ResourceLimit::MallocHeapSize, 16 << 20), Err(CudaError::InvalidValue));
    assert!(cuda_driver::last_error().unwrap().contains("set the size of the heap before"));
    assert!(is_there());
    drop(inner);
    assert!(!is_there());
    cust::context::legacy::CurrentContext::set_current(&outer).unwrap();
    assert_eq!(set(ResourceLimit::MallocHeapSize, 16 << 20), Ok(()));
    let all = cuda_driver::soft::device().memory_info().1 as usize;
    assert_eq!(set(ResourceLimit::MallocHeapSize, all + 1), Err(CudaError::OutOfMemory));
}
