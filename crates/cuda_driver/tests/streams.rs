//! Races between streams, which events, waits and the legacy stream prevent.

use std::ffi::c_void;

use cuda_driver::soft;
use cuda_driver::soft_cuda::{Checks, Config};
use cuda_driver::sys::{self, CUcontext, CUdevice, CUdeviceptr, CUfunction, CUresult, CUstream};
use cust::context::Context;
use cust::device::Device;
use cust::event::{Event, EventFlags};
use cust::memory::{DeviceBuffer, LockedBuffer};
use cust::module::Module;
use cust::stream::{Stream, StreamFlags, StreamWaitEventFlags};

const KERNELS: &str = ".version 7.2
.target sm_80
.address_size 64
.visible .entry reads(.param .u64 p) {
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  ld.param.b64 %rd1, [p]; ld.global.b32 %r1, [%rd1]; st.global.b32 [%rd1+64], %r1; ret;
}
.visible .entry writes(.param .u64 p) {
  .reg .b64 %rd<2>; ld.param.b64 %rd1, [p]; st.global.b32 [%rd1], 1; ret;
}
.visible .entry stores(.param .u64 p) {
  .reg .b64 %rd<2>; ld.param.b64 %rd1, [p]; st.global.b32 [%rd1], 1; ret;
}
.visible .entry nop(.param .u64 p) { ret; }
.visible .entry adds(.param .u64 p) {
  .reg .b64 %rd<2>; ld.param.b64 %rd1, [p]; red.global.add.u32 [%rd1+128], 1; ret;
}
";

/// Words of the buffer: the first is read and written, and those from 64 on are its copy.
const WORDS: usize = 128;

/// Work in a stream, on the buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    Reads,
    Writes,
    Adds,
    /// Copies the first word.
    CopiesFrom,
    /// Copies over the first word.
    CopiesTo,
    Fills,
    /// Copies the first word to the host.
    Fetches,
    /// A launch that may begin early, and does nothing.
    EarlyNop,
    /// A load that may begin early.
    EarlyReads,
}

use Work::*;

/// How the host orders two pieces of work.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Nothing,
    /// The second stream waits for an event behind the first work.
    Event,
    /// The second stream waits for an event that was recorded before the first work.
    EarlyEvent,
    /// The host waits for the event.
    HostEvent,
    Stream,
    Context,
    /// The host waits for the other stream.
    OtherStream,
}

fn launch(kernel: CUfunction, stream: CUstream, buffer: u64) -> CUresult {
    launch_with(kernel, stream, buffer, false)
}

/// A launch that may begin before the one in front of it has ended, if `is_early`.
fn launch_with(kernel: CUfunction, stream: CUstream, mut buffer: u64, is_early: bool) -> CUresult {
    let mut value = [0; 64];
    value[0] = is_early.into();
    let id = sys::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    let mut attribute = sys::CUlaunchAttribute { id, pad: [0; 4], value };
    let config = sys::CUlaunchConfig {
        grid_dim_x: 1,
        grid_dim_y: 1,
        grid_dim_z: 1,
        block_dim_x: 1,
        block_dim_y: 1,
        block_dim_z: 1,
        shared_mem_bytes: 0,
        stream,
        attrs: &mut attribute,
        num_attrs: 1,
    };
    let mut params = [(&raw mut buffer).cast::<c_void>()];
    // SAFETY: the kernel takes one address, of a buffer that outlives its launches, and what is
    // pointed to outlives the call.
    unsafe { sys::cuLaunchKernelEx(&config, kernel, params.as_mut_ptr(), std::ptr::null_mut()) }
}

struct Bench {
    module: Module,
    buffer: DeviceBuffer<u32>,
}

impl Bench {
    /// Does work in a stream, and returns what was found.
    fn run(&self, work: Work, stream: CUstream) -> Option<String> {
        let address = self.buffer.as_device_ptr().as_raw();
        let kernel = |name| {
            let kernel = self.module.get_function(name).unwrap();
            let is_early = matches!(work, EarlyNop | EarlyReads);
            launch_with(CUfunction::from(kernel.to_raw()), stream, address, is_early)
        };
        let [word, copy] = [address, address + 256].map(CUdeviceptr);
        let mut fetched = 0u32;
        // SAFETY: the buffer has these bytes, and so has `fetched`.
        let code = unsafe {
            match work {
                Reads => kernel("reads"),
                Writes => kernel("writes"),
                Adds => kernel("adds"),
                EarlyNop => kernel("nop"),
                EarlyReads => kernel("reads"),
                CopiesFrom => sys::cuMemcpyDtoDAsync_v2(copy, word, 4, stream),
                CopiesTo => sys::cuMemcpyDtoDAsync_v2(word, copy, 4, stream),
                Fills => sys::cuMemsetD32Async(word, 7, 1, stream),
                Fetches => sys::cuMemcpyDtoHAsync_v2((&raw mut fetched).cast(), word, 4, stream),
            }
        };
        let found = soft::take_findings().to_string();
        match code {
            CUresult::CUDA_SUCCESS => (!found.is_empty()).then_some(found),
            code => {
                assert_eq!(code, CUresult::CUDA_ERROR_LAUNCH_FAILED);
                Some(cuda_driver::last_error().unwrap())
            }
        }
    }

    /// What is found of work in two streams, in this order.
    fn found(&self, [first, second]: [Work; 2], order: Order) -> Option<String> {
        let streams = [(); 2].map(|()| Stream::new(StreamFlags::NON_BLOCKING, None).unwrap());
        let event = Event::new(EventFlags::DISABLE_TIMING).unwrap();
        event.record(&streams[0]).unwrap();
        assert_eq!(self.run(first, CUstream::from(streams[0].as_inner())), None);
        if order != Order::EarlyEvent {
            event.record(&streams[0]).unwrap();
        }
        match order {
            Order::Nothing => {}
            Order::Event | Order::EarlyEvent => {
                streams[1].wait_event(event, StreamWaitEventFlags::DEFAULT).unwrap();
            }
            Order::HostEvent => event.synchronize().unwrap(),
            Order::Stream => streams[0].synchronize().unwrap(),
            Order::Context => cust::context::CurrentContext::synchronize().unwrap(),
            Order::OtherStream => streams[1].synchronize().unwrap(),
        }
        let found = self.run(second, CUstream::from(streams[1].as_inner()));
        streams.iter().for_each(|stream| stream.synchronize().unwrap());
        found
    }
}

#[test]
fn work_of_two_streams_races_unless_something_orders_it() {
    let checks = Checks { races: true, ..Checks::NONE };
    soft::configure(Config { checks, max_findings: 10, ..soft::default_config() }).unwrap();
    cust::init(cust::CudaFlags::empty()).unwrap();
    let device = Device::get_device(cuda_driver::soft_ordinal()).unwrap();
    let _context = Context::new(device).unwrap();
    let module = Module::from_ptx(KERNELS, &[]).unwrap();
    let bench = Bench { module, buffer: DeviceBuffer::zeroed(WORDS).unwrap() };

    let writers = [Writes, CopiesTo, Fills];
    let all = [Reads, CopiesFrom, Fetches].into_iter().chain(writers);
    for first in all.clone() {
        for second in all.clone() {
            let pair = [first, second];
            // The driver waits for a copy to memory of the host that is not page-locked.
            let race = pair.iter().any(|work| writers.contains(work)) && first != Fetches
                // Both write the copy of the word.
                || pair == [CopiesFrom; 2] || pair == [Reads; 2];
            for order in [Order::Nothing, Order::EarlyEvent, Order::OtherStream] {
                let found = bench.found(pair, order);
                assert_eq!(found.is_some(), race, "{pair:?}, {order:?}: {found:?}");
                let Some(text) = found else { continue };
                assert!(text.contains("in another stream"), "{text}");
                assert!(text.contains("let this stream wait for an event behind that"), "{text}");
            }
            for order in [Order::Event, Order::HostEvent, Order::Stream, Order::Context] {
                assert_eq!(bench.found(pair, order), None, "{pair:?}, {order:?}");
            }
        }
    }
    assert_eq!(bench.found([Adds; 2], Order::Nothing), None);
    let text = bench.found([Writes, Reads], Order::Nothing).unwrap();
    assert!(text.contains("load and the store of kernel `writes`, launched before in"), "{text}");

    bench.launches_in_front();
    bench.default_streams();
    bench.launches();
    bench.ranges();
    bench.memory_of_host();
    bench.ends_of_streams();
    bench.graphs();
    bench.host_functions();
    bench.contexts(device);
}

/// Makes work of each context and stream known to the host.
fn settle() {
    let mut address = CUdeviceptr(0);
    // SAFETY: `address` is valid for the write, and is freed once.
    let codes = unsafe { [sys::cuMemAlloc_v2(&raw mut address, 4), sys::cuMemFree_v2(address)] };
    assert_eq!(codes, [CUresult::CUDA_SUCCESS; 2]);
}

/// A stream that blocks the legacy stream, or does not.
fn stream(is_blocking: bool) -> CUstream {
    let mut stream = CUstream::NULL;
    // SAFETY: `stream` is valid for the write.
    let code =
        unsafe { sys::cuStreamCreateWithPriority(&raw mut stream, (!is_blocking).into(), 0) };
    assert_eq!(code, CUresult::CUDA_SUCCESS);
    stream
}

impl Bench {
    /// Expects a race, or none, at the last of these pieces of work alone.
    fn expect(&self, races: bool, works: &[(Work, CUstream)]) {
        settle();
        let (last, before) = works.split_last().unwrap();
        for (work, stream) in before {
            assert_eq!(self.run(*work, *stream), None, "{works:?}");
        }
        let found = self.run(last.0, last.1);
        assert_eq!(found.is_some(), races, "{works:?}: {found:?}");
    }

    fn default_streams(&self) {
        let ([b, c], n, legacy) = ([(); 2].map(|()| stream(true)), stream(false), CUstream::NULL);
        self.expect(false, &[(Writes, b), (Writes, legacy)]);
        self.expect(false, &[(Writes, legacy), (Writes, b)]);
        self.expect(false, &[(Writes, b), (EarlyNop, legacy), (Writes, c)]);
        self.expect(true, &[(Writes, b), (Writes, c)]);
        self.expect(true, &[(Writes, n), (Reads, legacy)]);
        self.expect(true, &[(Writes, legacy), (Reads, n)]);
        // By way of the legacy stream, a blocking stream comes after what that waited for.
        settle();
        assert_eq!(self.run(Writes, n), None);
        let mut event = sys::CUevent::NULL;
        // SAFETY: `event` is valid for the write, and exists from then on, as the streams do.
        let codes = unsafe {
            let created = sys::cuEventCreate(&raw mut event, 2);
            [created, sys::cuEventRecord(event, n), sys::cuStreamWaitEvent(legacy, event, 0)]
        };
        assert_eq!(codes, [CUresult::CUDA_SUCCESS; 3]);
        assert_eq!(self.run(Writes, b), None);
        // A wait for a blocking stream is one for what the legacy stream did before it.
        settle();
        assert_eq!(self.run(Writes, legacy), None);
        // SAFETY: the stream exists.
        assert_eq!(unsafe { sys::cuStreamSynchronize(b) }, CUresult::CUDA_SUCCESS);
        assert_eq!(self.run(Reads, n), None);
    }

    /// An early launch races with the one in front in its stream.
    fn launches_in_front(&self) {
        let kernel = self.module.get_function("stores").unwrap();
        let kernel = CUfunction::from(kernel.to_raw());
        let [first, second] =
            [(); 2].map(|()| Stream::new(StreamFlags::NON_BLOCKING, None).unwrap());
        let out = DeviceBuffer::<u32>::zeroed(1).unwrap();
        let out = out.as_device_ptr().as_raw();
        let run = |stream: &Stream, early| {
            let launched = launch_with(kernel, CUstream::from(stream.as_inner()), out, early);
            assert_eq!(launched, CUresult::CUDA_SUCCESS);
            soft::take_findings().to_string()
        };
        assert_eq!(run(&first, true), "");
        assert_eq!(run(&first, false), "");
        assert!(run(&first, true).contains("of kernel `stores`, launched before,"));
        // Behind waits of the host.
        first.synchronize().unwrap();
        assert_eq!(run(&second, true), "");
        second.synchronize().unwrap();
        assert_eq!(run(&second, true), "");
        cust::context::CurrentContext::synchronize().unwrap();
        assert_eq!(run(&second, true), "");
        assert_ne!(run(&second, true), "");
    }

    /// A launch may begin before the one in front ends, but not before a copy or a fill does.
    fn launches(&self) {
        let (n, b) = (stream(false), stream(true));
        // Of many, also the first one, by a stream that has had no work.
        let mut many = vec![(Adds, n); 60];
        many[0].0 = Writes;
        self.expect(true, &[many, vec![(Reads, stream(false))]].concat());
        self.expect(true, &[(Writes, n), (EarlyReads, n)]);
        self.expect(false, &[(Fills, n), (EarlyReads, n)]);
        self.expect(false, &[(CopiesTo, n), (EarlyReads, n)]);
        self.expect(false, &[(Writes, n), (EarlyNop, n), (Fills, n)]);
        self.expect(true, &[(Writes, b), (EarlyReads, b)]);
        self.expect(false, &[(Writes, b), (EarlyNop, CUstream::NULL), (EarlyReads, b)]);
    }

    /// Fills beside each other, byte by byte.
    fn ranges(&self) {
        let [n, o] = [(); 2].map(|()| stream(false));
        let fill = |from: u64, bytes: usize, stream| {
            let address = CUdeviceptr(self.buffer.as_device_ptr().as_raw() + from);
            // SAFETY: the buffer has these bytes.
            let code = unsafe { sys::cuMemsetD8Async(address, 1, bytes, stream) };
            code == CUresult::CUDA_SUCCESS
        };
        for ([from, bytes], [other, count], is_free) in [
            ([4, 8], [0, 4], true),
            ([4, 8], [12, 4], true),
            ([4, 8], [0, 5], false),
            ([4, 8], [11, 1], false),
            ([4, 8], [6, 0], true),
            ([0, 512], [508, 4], false),
        ] {
            for (one, two) in [([from, bytes], [other, count]), ([other, count], [from, bytes])] {
                settle();
                assert!(fill(one[0], one[1] as usize, n));
                assert_eq!(fill(two[0], two[1] as usize, o), is_free, "{one:?} {two:?}");
            }
        }
        // Beside a kernel that reads the first word and writes the one at 64.
        for (from, bytes, is_free) in [
            (4, 60, true),
            (68, 60, true),
            (2, 0, true),
            (3, 1, false),
            (60, 5, false),
            (67, 1, false),
        ] {
            settle();
            assert!(fill(from, bytes, n));
            assert_eq!(self.run(Reads, o).is_none(), is_free, "{bytes} bytes at {from}");
            settle();
            assert_eq!(self.run(Reads, o), None);
            assert_eq!(fill(from, bytes, n), is_free, "{bytes} bytes at {from}");
        }
        // What races does not happen, and can be done later.
        settle();
        assert_eq!(self.run(Writes, n), None);
        assert!(!fill(0, 4, o));
        assert_eq!(self.run(Reads, n), None);
    }

    /// The driver waits for copies to memory of the host that is not page-locked, and for no other.
    fn memory_of_host(&self) {
        let [n, o] = [(); 2].map(|()| stream(false));
        let mut locked = LockedBuffer::new(&0u32, 1).unwrap();
        let word = CUdeviceptr(self.buffer.as_device_ptr().as_raw());
        settle();
        // SAFETY: both have these bytes, and nothing else uses them meanwhile.
        let code = unsafe { sys::cuMemcpyDtoHAsync_v2(locked.as_mut_ptr().cast(), word, 4, n) };
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        assert!(self.run(Writes, o).is_some());
        settle();
        // SAFETY: as above.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(word, locked.as_ptr().cast(), 4, n) };
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        assert!(self.run(Reads, o).is_some());
        // A fill without a stream is one in the legacy stream.
        settle();
        // SAFETY: the buffer has these bytes.
        assert_eq!(unsafe { sys::cuMemsetD32_v2(word, 1, 1) }, CUresult::CUDA_SUCCESS);
        assert!(self.run(Reads, n).is_some());
        settle();
        // SAFETY: as above.
        let code = unsafe { sys::cuMemcpyHtoD_v2(word, locked.as_ptr().cast(), 4) };
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        assert_eq!(self.run(Reads, n), None);
    }

    /// Work goes on when its stream is gone, and memory belongs to the stream that allocates it.
    fn ends_of_streams(&self) {
        let n = stream(false);
        for is_blocking in [false, true] {
            let gone = stream(is_blocking);
            settle();
            assert_eq!(self.run(Writes, gone), None);
            // SAFETY: nobody uses the stream any more.
            assert_eq!(unsafe { sys::cuStreamDestroy_v2(gone) }, CUresult::CUDA_SUCCESS);
            assert!(self.run(Reads, n).is_some());
            cust::context::CurrentContext::synchronize().unwrap();
            assert_eq!(self.run(Reads, n), None);
        }
        let (mut address, other) = (CUdeviceptr(0), stream(false));
        settle();
        // SAFETY: `address` is valid for the write; it has four bytes until it is freed.
        unsafe {
            let code = sys::cuMemAllocAsync(&raw mut address, 4, n);
            assert_eq!(code, CUresult::CUDA_SUCCESS);
            let code = sys::cuMemsetD32Async(address, 1, 1, other);
            assert_eq!(code, CUresult::CUDA_ERROR_LAUNCH_FAILED);
            let code = sys::cuMemsetD32Async(address, 1, 1, n);
            assert_eq!(code, CUresult::CUDA_SUCCESS);
            let code = sys::cuMemFreeAsync(address, other);
            assert_eq!(code, CUresult::CUDA_ERROR_LAUNCH_FAILED);
            assert_eq!(sys::cuMemFreeAsync(address, n), CUresult::CUDA_SUCCESS);
        }
    }

    /// Launches of one executable graph follow each other.
    fn graphs(&self) {
        let [n, o] = [(); 2].map(|()| stream(false));
        let (mut graph, mut exec) = (sys::CUgraph::NULL, sys::CUgraphExec::NULL);
        settle();
        // SAFETY: the outputs are valid, and the handles exist.
        unsafe {
            assert_eq!(sys::cuStreamBeginCapture_v2(n, 2), CUresult::CUDA_SUCCESS);
            assert_eq!(self.run(Writes, n), None);
            assert_eq!(sys::cuStreamEndCapture(n, &raw mut graph), CUresult::CUDA_SUCCESS);
            let made = sys::cuGraphInstantiateWithFlags(&raw mut exec, graph, 0);
            assert_eq!(made, CUresult::CUDA_SUCCESS);
            for stream in [n, o] {
                assert_eq!(sys::cuGraphLaunch(exec, stream), CUresult::CUDA_SUCCESS);
                assert_eq!(soft::take_findings().to_string(), "");
            }
        }
        assert!(self.run(Reads, n).is_some());
    }

    /// What a host function tells the host comes after the work of its stream.
    fn host_functions(&self) {
        unsafe extern "C" fn nothing(_: *mut c_void) {}
        let [n, o] = [(); 2].map(|()| stream(false));
        settle();
        assert_eq!(self.run(Writes, n), None);
        // SAFETY: the function takes anything.
        let code = unsafe { sys::cuLaunchHostFunc(n, Some(nothing), std::ptr::null_mut()) };
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        assert_eq!(self.run(Reads, o), None);
    }

    /// Calls without a stream are the current context's, whatever memory they use.
    fn contexts(&self, device: Device) {
        let word = CUdeviceptr(self.buffer.as_device_ptr().as_raw());
        let (own, mut other) = (stream(true), CUcontext::NULL);
        // SAFETY: `other` is valid for the write, and is current from then on.
        let code = unsafe { sys::cuCtxCreate_v2(&raw mut other, 0, CUdevice(device.as_raw())) };
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        settle();
        let mut fetched = 0u32;
        let (blocking, free) = (stream(true), stream(false));
        let module = Module::from_ptx(KERNELS, &[]).unwrap();
        let kernel = CUfunction::from(module.get_function("writes").unwrap().to_raw());
        let read = |fetched: &mut u32| {
            // SAFETY: both have these bytes.
            unsafe { sys::cuMemcpyDtoH_v2((&raw mut *fetched).cast(), word, 4) }
        };
        for (stream, is_ordered) in [(CUstream::NULL, true), (blocking, true), (free, false)] {
            settle();
            assert_eq!(launch(kernel, stream, word.0), CUresult::CUDA_SUCCESS);
            assert_eq!(read(&mut fetched) == CUresult::CUDA_SUCCESS, is_ordered);
        }
        // The memory's own context takes part in that, but not in other work of this context.
        settle();
        assert_eq!(self.run(Fills, own), None);
        assert_eq!(read(&mut fetched), CUresult::CUDA_SUCCESS);
        assert_eq!(self.run(Fills, own), None);
        assert_eq!(launch(kernel, CUstream::NULL, word.0), CUresult::CUDA_SUCCESS);
        assert!(!soft::take_findings().is_empty());
    }
}
