//! Races between streams, which events, waits and the legacy stream prevent.

use std::ffi::c_void;

use cuda_driver::soft;
use cuda_driver::soft_cuda::{Checks, Config};
use cuda_driver::sys::{self, CUdeviceptr, CUfunction, CUresult, CUstream};
use cust::context::Context;
use cust::device::Device;
use cust::event::{Event, EventFlags};
use cust::memory::DeviceBuffer;
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

fn launch(kernel: CUfunction, stream: CUstream, mut buffer: u64) -> CUresult {
    let mut params = [(&raw mut buffer).cast::<c_void>()];
    // SAFETY: the kernel takes one address, of a buffer that outlives its launches, and what is
    // pointed to outlives the call.
    unsafe {
        let params = params.as_mut_ptr();
        sys::cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, std::ptr::null_mut())
    }
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
            launch(CUfunction::from(kernel.to_raw()), stream, address)
        };
        let [word, copy] = [address, address + 256].map(CUdeviceptr);
        let mut fetched = 0u32;
        // SAFETY: the buffer has these bytes, and so has `fetched`.
        let code = unsafe {
            match work {
                Reads => kernel("reads"),
                Writes => kernel("writes"),
                Adds => kernel("adds"),
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

    // The legacy stream and blocking streams wait for each other.
    let flags = 0;
    let mut blocking = CUstream::NULL;
    // SAFETY: `blocking` is valid for the write.
    let created = unsafe { sys::cuStreamCreateWithPriority(&raw mut blocking, flags, 0) };
    assert_eq!(created, CUresult::CUDA_SUCCESS);
    for pair in [[blocking, CUstream::NULL], [CUstream::NULL, blocking], [CUstream::NULL; 2]] {
        for stream in pair {
            assert_eq!(bench.run(Writes, stream), None, "{pair:?}");
        }
    }
    let other = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    let other = CUstream::from(other.as_inner());
    assert_eq!(bench.run(Writes, blocking), None);
    assert!(bench.run(Reads, other).is_some());
    cust::context::CurrentContext::synchronize().unwrap();

    // Three streams in a row, by two events.
    let row = [(); 3].map(|()| Stream::new(StreamFlags::NON_BLOCKING, None).unwrap());
    assert_eq!(bench.run(Writes, CUstream::from(row[0].as_inner())), None);
    for pair in row.windows(2) {
        let event = Event::new(EventFlags::DISABLE_TIMING).unwrap();
        event.record(&pair[0]).unwrap();
        pair[1].wait_event(event, StreamWaitEventFlags::DEFAULT).unwrap();
    }
    assert_eq!(bench.run(Writes, CUstream::from(row[2].as_inner())), None);
}
