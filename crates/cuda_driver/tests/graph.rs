//! Stream capture and graphs on the software device. A capture of the global mode forbids
//! calls to every thread, so the tests run one at a time.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_driver::sys::{self, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUresult, CUstream};
use cust::context::legacy::{Context, ContextFlags, CurrentContext};
use cust::device::Device;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};

const KERNELS: &str = include_str!("kernels.ptx");

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A fresh context on the software device, current on this thread.
struct Soft {
    stream: CUstream,
    event: CUevent,
    module: Module,
    _stream: Stream,
    context: Context,
    _one: MutexGuard<'static, ()>,
}

fn soft() -> Soft {
    let one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    cust::init(cust::CudaFlags::empty()).unwrap();
    let device = Device::get_device(cuda_driver::soft_ordinal()).unwrap();
    let context = Context::create_and_push(ContextFlags::SCHED_AUTO, device).unwrap();
    let stream = Stream::new(StreamFlags::DEFAULT, None).unwrap();
    let mut event = CUevent::NULL;
    // SAFETY: `event` outlives the call.
    unsafe { sys::cuEventCreate(&mut event, 0) }.ok().unwrap();
    Soft {
        event,
        stream: CUstream::from(stream.as_inner()),
        module: Module::from_ptx(KERNELS, &[]).unwrap(),
        _stream: stream,
        context,
        _one: one,
    }
}

impl Soft {
    fn begin(&self, mode: u32) -> Result<(), CUresult> {
        begin(self.stream, mode)
    }

    fn status(&self) -> u32 {
        status(self.stream).unwrap()
    }

    fn end(&self) -> Result<CUgraph, CUresult> {
        end(self.stream)
    }

    /// Launches `c[i] = a[i] + b[i]` in one block, in `stream`.
    fn add(&self, buffers: [&DeviceBuffer<f32>; 3], stream: CUstream) -> Result<(), CUresult> {
        let function = self.module.get_function("vector_add").unwrap();
        let mut addresses = buffers.map(|buffer| buffer.as_device_ptr().as_raw());
        let mut n = buffers[2].len() as u32;
        let [a, b, c] = &mut addresses;
        let mut params: [*mut c_void; 4] =
            [(&raw mut *a).cast(), (&raw mut *b).cast(), (&raw mut *c).cast(), (&raw mut n).cast()];
        let function = sys::CUfunction::from(function.to_raw());
        // SAFETY: the parameters are the kernel's and outlive the call; no stray access
        // harms anything on the software device.
        let code = unsafe {
            sys::cuLaunchKernel(
                function,
                1,
                1,
                1,
                32,
                1,
                1,
                0,
                stream,
                params.as_mut_ptr(),
                null_mut(),
            )
        };
        code.ok()
    }
}

fn begin(stream: CUstream, mode: u32) -> Result<(), CUresult> {
    // SAFETY: the software device checks handles.
    unsafe { sys::cuStreamBeginCapture_v2(stream, mode) }.ok()
}

fn status(stream: CUstream) -> Result<u32, CUresult> {
    let mut status = u32::MAX;
    // SAFETY: `status` outlives the call.
    unsafe { sys::cuStreamIsCapturing(stream, &mut status) }.ok().map(|()| status)
}

fn end(stream: CUstream) -> Result<CUgraph, CUresult> {
    let mut graph = CUgraph(std::ptr::dangling_mut());
    // SAFETY: `graph` outlives the call.
    let code = unsafe { sys::cuStreamEndCapture(stream, &mut graph) }.ok();
    if code == Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) {
        assert_eq!(graph, CUgraph::NULL);
    }
    code.map(|()| graph)
}

fn instantiate(graph: CUgraph) -> Result<CUgraphExec, CUresult> {
    let mut exec = CUgraphExec::NULL;
    // SAFETY: `exec` outlives the call.
    unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) }.ok().map(|()| exec)
}

fn launch(exec: CUgraphExec, stream: CUstream) -> Result<(), CUresult> {
    // SAFETY: the software device checks handles.
    unsafe { sys::cuGraphLaunch(exec, stream) }.ok()
}

fn buffer(values: &[f32]) -> DeviceBuffer<f32> {
    DeviceBuffer::from_slice(values).unwrap()
}

fn address(buffer: &DeviceBuffer<f32>) -> CUdeviceptr {
    CUdeviceptr(buffer.as_device_ptr().as_raw())
}

#[test]
fn a_captured_launch_runs_with_the_graph() {
    let soft = soft();
    let (sum, one) = (buffer(&[0.0; 4]), buffer(&[1.0; 4]));
    assert_eq!(soft.status(), sys::CU_STREAM_CAPTURE_STATUS_NONE);
    soft.begin(sys::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
    assert_eq!(soft.status(), sys::CU_STREAM_CAPTURE_STATUS_ACTIVE);
    soft.add([&sum, &one, &sum], soft.stream).unwrap();
    let graph = soft.end().unwrap();
    assert_eq!(soft.status(), sys::CU_STREAM_CAPTURE_STATUS_NONE);
    assert_eq!(sum.as_host_vec().unwrap(), [0.0; 4], "a capture runs nothing");

    let exec = instantiate(graph).unwrap();
    // SAFETY: the graph is not used again; what was made of it does not need it.
    unsafe { sys::cuGraphDestroy(graph) }.ok().unwrap();
    assert_eq!(sum.as_host_vec().unwrap(), [0.0; 4]);
    for launches in 1..=2 {
        launch(exec, soft.stream).unwrap();
        assert_eq!(sum.as_host_vec().unwrap(), [launches as f32; 4]);
    }
    launch(exec, CUstream::NULL).unwrap();
    assert_eq!(sum.as_host_vec().unwrap(), [3.0; 4]);

    // The stream works as before.
    soft.add([&sum, &one, &sum], soft.stream).unwrap();
    assert_eq!(sum.as_host_vec().unwrap(), [4.0; 4]);

    // SAFETY: it is not used again but to see that the handle is gone.
    unsafe { sys::cuGraphExecDestroy(exec) }.ok().unwrap();
    assert_eq!(launch(exec, soft.stream), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert_eq!(instantiate(graph), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    // SAFETY: the software device checks handles.
    let again = unsafe { [sys::cuGraphDestroy(graph), sys::cuGraphExecDestroy(exec)] };
    assert_eq!(again, [CUresult::CUDA_ERROR_INVALID_VALUE; 2]);
}

#[test]
fn fills_copies_and_graphs_are_captured_in_order() {
    let soft = soft();
    let stream = soft.stream;
    let (a, b, c) = (buffer(&[9.0; 8]), buffer(&[9.0; 8]), buffer(&[9.0; 8]));
    soft.begin(sys::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    let two = 2.0_f32.to_bits();
    // SAFETY: the buffers have 32 bytes.
    unsafe {
        sys::cuMemsetD32Async(address(&a), two, 8, stream).ok().unwrap();
        sys::cuMemsetD16Async(address(&a), 0, 2, stream).ok().unwrap();
        sys::cuMemsetD8Async(CUdeviceptr(address(&a).0 + 4), 0, 4, stream).ok().unwrap();
        sys::cuMemcpyDtoDAsync_v2(address(&b), address(&a), 32, stream).ok().unwrap();
    }
    soft.add([&a, &b, &c], stream).unwrap();
    let inner = instantiate(soft.end().unwrap()).unwrap();
    for buffer in [&a, &b, &c] {
        assert_eq!(buffer.as_host_vec().unwrap(), [9.0; 8]);
    }

    // A graph launched in a capturing stream becomes part of the new graph.
    soft.begin(sys::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    launch(inner, stream).unwrap();
    soft.add([&c, &c, &a], stream).unwrap();
    let outer = instantiate(soft.end().unwrap()).unwrap();
    assert_eq!(c.as_host_vec().unwrap(), [9.0; 8]);
    launch(outer, stream).unwrap();
    assert_eq!(b.as_host_vec().unwrap(), [0.0, 0.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]);
    assert_eq!(c.as_host_vec().unwrap(), [0.0, 0.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0]);
    assert_eq!(a.as_host_vec().unwrap(), [0.0, 0.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0]);
}

/// A call that a capture forbids, with the error it gets.
type Forbidden = (&'static str, fn(&Soft, CUdeviceptr) -> CUresult, CUresult);

const UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
const IMPLICIT: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
const ISOLATION: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION;

macro_rules! forbidden {
    ($($name:literal, |$soft:ident, $buffer:ident| $call:expr => $code:expr;)*) => {
        // SAFETY: the places outlive the calls, and the buffer has 16 bytes.
        [$(($name, |$soft, $buffer| unsafe { $call }, $code)),*]
    };
}

const POTENTIALLY_UNSAFE: [Forbidden; 4] = forbidden! {
    "alloc", |_s, _b| sys::cuMemAlloc_v2(&mut CUdeviceptr(0), 16) => UNSUPPORTED;
    "alloc host", |_s, _b| sys::cuMemAllocHost_v2(&mut null_mut(), 16) => UNSUPPORTED;
    "query", |soft, _b| sys::cuEventQuery(soft.event) => UNSUPPORTED;
    "free", |_s, buffer| sys::cuMemFree_v2(buffer) => UNSUPPORTED;
};

const OTHERS: [Forbidden; 10] = forbidden! {
    "wait for the stream", |soft, _b| sys::cuStreamSynchronize(soft.stream) => UNSUPPORTED;
    "wait for the context", |_s, _b| sys::cuCtxSynchronize() => UNSUPPORTED;
    "record", |soft, _b| sys::cuEventRecord(soft.event, soft.stream) => UNSUPPORTED;
    "wait for an event",
        |soft, _b| sys::cuStreamWaitEvent(soft.stream, soft.event, 0) => ISOLATION;
    "read in the stream", |soft, buffer| sys::cuMemcpyDtoHAsync_v2(
        [0_u8; 16].as_mut_ptr().cast(), buffer, 16, soft.stream
    ) => UNSUPPORTED;
    "alloc in the stream",
        |soft, _b| sys::cuMemAllocAsync(&mut CUdeviceptr(0), 4, soft.stream) => UNSUPPORTED;
    "read", |_s, buffer| sys::cuMemcpyDtoH_v2(
        [0_u8; 16].as_mut_ptr().cast(), buffer, 16
    ) => IMPLICIT;
    "fill", |_s, buffer| sys::cuMemsetD32_v2(buffer, 0, 4) => IMPLICIT;
    "copy", |_s, buffer| sys::cuMemcpyDtoD_v2(buffer, buffer, 16) => IMPLICIT;
    "fill in the legacy stream",
        |_s, buffer| sys::cuMemsetD32Async(buffer, 0, 4, CUstream::NULL) => IMPLICIT;
};

#[test]
fn forbidden_calls_invalidate_the_capture() {
    let soft = soft();
    let values = buffer(&[1.0; 4]);
    let calls = POTENTIALLY_UNSAFE.iter().chain(&OTHERS);
    for (&(name, call, expected), is_unsafe) in calls.zip((0..).map(|i| i < 4)) {
        for mode in [
            sys::CU_STREAM_CAPTURE_MODE_GLOBAL,
            sys::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            sys::CU_STREAM_CAPTURE_MODE_RELAXED,
        ] {
            if is_unsafe && mode == sys::CU_STREAM_CAPTURE_MODE_RELAXED {
                continue;
            }
            soft.begin(mode).unwrap();
            soft.add([&values; 3], soft.stream).unwrap();
            assert_eq!(call(&soft, address(&values)), expected, "{name}");
            assert!(cuda_driver::last_error().is_some_and(|text| text.contains("captur")));
            assert_eq!(soft.status(), sys::CU_STREAM_CAPTURE_STATUS_INVALIDATED, "{name}");
            let invalidated = Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
            assert_eq!(soft.add([&values; 3], soft.stream), invalidated, "{name}");
            assert_eq!(soft.end().map(|_| ()), invalidated, "{name}");
            assert_eq!(soft.status(), sys::CU_STREAM_CAPTURE_STATUS_NONE, "{name}");
        }
    }
    assert_eq!(values.as_host_vec().unwrap(), [1.0; 4], "no call had an effect");
    // The same calls are fine without a capture.
    for (name, call, _) in OTHERS.into_iter().chain(POTENTIALLY_UNSAFE) {
        call(&soft, address(&values)).ok().expect(name);
    }
    std::mem::forget(values);
}

#[test]
fn modes_say_whose_allocations_are_forbidden() {
    let soft = soft();
    // SAFETY: the place outlives the call.
    let allocate = || unsafe { sys::cuMemAlloc_v2(&mut CUdeviceptr(0), 16) }.ok();
    let context = soft.context.get_unowned();
    let elsewhere = || {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                CurrentContext::set_current(&context).unwrap();
                let ended = end(soft.stream).map(|_| ());
                (allocate(), ended)
            });
            thread.join().unwrap()
        })
    };
    let wrong_thread = Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);

    soft.begin(sys::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
    assert_eq!(elsewhere(), (Err(UNSUPPORTED), wrong_thread));
    assert_eq!(soft.end().map(|_| ()), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));

    soft.begin(sys::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    assert_eq!(elsewhere(), (Ok(()), wrong_thread));
    soft.end().unwrap();

    soft.begin(sys::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    assert_eq!(allocate(), Ok(()));
    assert_eq!(elsewhere(), (Ok(()), Ok(())));
    assert_eq!(soft.status(), sys::CU_STREAM_CAPTURE_STATUS_NONE);
}

#[test]
fn only_blocking_streams_keep_the_legacy_stream_busy() {
    let soft = soft();
    let values = buffer(&[1.0; 4]);
    soft.begin(sys::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    assert_eq!(status(CUstream::NULL), Err(IMPLICIT));
    soft.end().unwrap();
    assert_eq!(status(CUstream::NULL), Ok(sys::CU_STREAM_CAPTURE_STATUS_NONE));

    let mut stream = CUstream::NULL;
    // SAFETY: `stream` outlives the call; 1 is CU_STREAM_NON_BLOCKING.
    unsafe { sys::cuStreamCreateWithPriority(&mut stream, 1, 0) }.ok().unwrap();
    begin(stream, sys::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    assert_eq!(status(CUstream::NULL), Ok(sys::CU_STREAM_CAPTURE_STATUS_NONE));
    soft.add([&values; 3], stream).unwrap();
    soft.add([&values; 3], soft.stream).unwrap();
    assert_eq!(values.as_host_vec().unwrap(), [2.0; 4]);
    let exec = instantiate(end(stream).unwrap()).unwrap();
    launch(exec, soft.stream).unwrap();
    assert_eq!(values.as_host_vec().unwrap(), [4.0; 4]);
    // SAFETY: the stream is not used again.
    unsafe { sys::cuStreamDestroy_v2(stream) }.ok().unwrap();
}

#[test]
fn what_cannot_begin_or_end() {
    let soft = soft();
    let illegal = CUresult::CUDA_ERROR_ILLEGAL_STATE;
    assert_eq!(soft.end(), Err(illegal));
    assert_eq!(soft.begin(3), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert_eq!(begin(CUstream::NULL, sys::CU_STREAM_CAPTURE_MODE_GLOBAL), Err(UNSUPPORTED));
    soft.begin(sys::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
    assert_eq!(soft.begin(sys::CU_STREAM_CAPTURE_MODE_GLOBAL), Err(illegal));
    let empty = soft.end().unwrap();
    launch(instantiate(empty).unwrap(), soft.stream).unwrap();
    let mut exec = CUgraphExec::NULL;
    // SAFETY: `exec` outlives the calls.
    let with = |flags| unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, empty, flags) }.ok();
    let codes = [8, 4, 16].map(with);
    let (invalid, missing) =
        (CUresult::CUDA_ERROR_INVALID_VALUE, CUresult::CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(codes, [Ok(()), Err(missing), Err(invalid)]);
}

#[test]
fn a_fault_ends_the_graph_and_stays_in_the_context() {
    let soft = soft();
    let values = buffer(&[1.0; 4]);
    let gone = buffer(&[1.0; 4]);
    soft.begin(sys::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
    soft.add([&values, &values, &gone], soft.stream).unwrap();
    soft.add([&values; 3], soft.stream).unwrap();
    let exec = instantiate(soft.end().unwrap()).unwrap();
    launch(exec, soft.stream).unwrap();
    assert_eq!(values.as_host_vec().unwrap(), [2.0; 4]);
    drop(gone);
    assert_eq!(launch(exec, soft.stream), Ok(()), "as on a GPU, the launch itself succeeds");
    let illegal = Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(launch(exec, soft.stream), illegal);
    assert!(cuda_driver::soft::last_fault().unwrap().contains("vector_add"));
    let mut back = [0; 16];
    cuda_driver::soft::device().read(address(&values).0, &mut back).unwrap();
    assert_eq!(back.as_chunks().0, [2.0_f32.to_ne_bytes(); 4], "what follows did not run");
}
