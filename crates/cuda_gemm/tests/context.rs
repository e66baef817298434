//! What the library does with the thread's current context: nothing that its caller could see. The
//! tests share the contexts of the software device, so they are one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_driver::sys::{self, CUcontext};
use cuda_gemm::blas::{Handle, Op, sgemm};
use cuda_gemm::{
    Compute, Device, DeviceChoice, DeviceMatrix, Error, Gemm, Matrix, Stream, bf16, find_kernel,
    gemm,
};
use cust::context::{Context, CurrentContext, legacy};
use cust::device::Device as CudaDevice;
use cust::memory::DeviceBuffer;
use cust::stream::{Stream as CudaStream, StreamFlags};

/// The thread's current context.
fn current() -> CUcontext {
    let mut context = CUcontext::NULL;
    // SAFETY: the place is there.
    unsafe { sys::cuCtxGetCurrent(&raw mut context) }.ok().unwrap();
    context
}

/// Calls everything, and `check` after each call.
fn everything(choice: DeviceChoice, check: &dyn Fn(&str)) {
    macro_rules! check {
        ($($call:tt)*) => {{
            let value = $($call)*;
            check(stringify!($($call)*));
            value
        }};
    }
    let device = check!(Device::open(choice)).unwrap();
    let ones = Matrix::from_fn(4, 4, |_, _| 1.0);
    check!(device.free_memory()).unwrap();
    check!(device.require_memory(1)).unwrap();
    let kernel = check!(device.kernel(find_kernel("tile_64x64").unwrap())).unwrap();
    let auto = check!(device.auto()).unwrap();
    let plan = check!(auto.prepare(Gemm::new(4, 4, 4))).unwrap();
    let tiled = check!(kernel.prepare(Gemm::new(4, 4, 4))).unwrap();
    let a = check!(DeviceMatrix::<f32>::from_host(&device, &ones)).unwrap();
    let mut c = check!(DeviceMatrix::<f32>::zeros(&device, [4, 4])).unwrap();
    check!(plan.run(&a, &a, &mut c)).unwrap();
    check!(tiled.run(&a, &a, &mut c)).unwrap();
    check!(device.synchronize()).unwrap();
    assert_eq!(check!(c.download()).unwrap().at(3, 3), 4.0);
    check!(c.upload(&ones)).unwrap();
    check!(gemm(&a, &a).run(&mut c)).unwrap();
    let graph = device.stream().capture(|| check!(plan.run(&a, &a, &mut c)));
    let graph = check!(graph).unwrap();
    // SAFETY: all that is captured is there.
    check!(unsafe { graph.launch() }).unwrap();

    let compute = Gemm::new(4, 4, 4).computed_in(Compute::Bf16);
    let halves = check!(auto.prepare(compute)).unwrap();
    let half = check!(DeviceMatrix::<bf16>::from_host(&device, &ones)).unwrap();
    check!(halves.run(&half, &half, &mut c)).unwrap();
    if choice == DeviceChoice::SoftSm90 {
        // With tensor maps.
        let kernel = device.kernel(find_kernel("persistent").unwrap()).unwrap();
        let maps = check!(kernel.prepare(Gemm::new(4, 4, 4))).unwrap();
        check!(maps.run(&a, &a, &mut c)).unwrap();
    }

    let stream = check!(Stream::new(&device)).unwrap();
    check!(stream.wait_for(&device.stream())).unwrap();
    check!(stream.synchronize()).unwrap();
    let mut moved = check!(DeviceMatrix::<f32>::zeros(&device, [2, 2])).unwrap();
    check!(moved.move_to(&stream)).unwrap();
    let own = {
        let _current = device.enter().unwrap();
        Arc::new(CudaStream::new(StreamFlags::NON_BLOCKING, None).unwrap())
    };
    check!(());
    // SAFETY: it was made in the device's context.
    let own = unsafe { Stream::from_cust(&device, own) };
    check!(own.synchronize()).unwrap();

    let entry = check!(device.entry_point("naive")).unwrap();
    check!(entry.resident_blocks((16, 16), 0)).unwrap();
    let mut handle = check!(Handle::new(&device)).unwrap();
    let [pa, pc] = [&a, &c].map(DeviceMatrix::as_device_ptr);
    // SAFETY: the matrices are so large, and nothing else uses them.
    check!(unsafe {
        sgemm(&mut handle, Op::None, Op::None, 4, 4, 4, 1.0, pa, 4, pa, 4, 0.0, pc, 4)
    })
    .unwrap();
    let too_large = check!(DeviceMatrix::<f32>::zeros(&device, [1 << 20, 1 << 21]));
    assert!(matches!(too_large, Err(Error::Driver { .. })));
    // A capture that fails.
    let broken = device.stream().capture(|| device.synchronize());
    assert!(check!(broken).is_err());

    check!(drop(graph));
    check!(drop((a, c, half, moved)));
    check!(drop((plan, tiled, halves, handle)));
    check!(drop((stream, own)));
    check!(drop((entry, kernel, auto)));
    check!(drop(device));
}

/// Calls everything, which leaves the caller's context as it is.
fn leaves(context: CUcontext) {
    for choice in [DeviceChoice::Soft, DeviceChoice::SoftSm90] {
        everything(choice, &|call| assert_eq!(current(), context, "{choice:?}: {call}"));
    }
}

/// A fault is told whose context is not the caller's.
fn fault() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let plan = device.kernel(find_kernel("naive").unwrap()).unwrap();
    let plan = plan.prepare(Gemm::new(4, 4, 4)).unwrap();
    // SAFETY: not kept: that is the test, and the software device catches it.
    unsafe { plan.run_raw([0; 3], Default::default()) }.unwrap();
    let error = device.synchronize().unwrap_err();
    assert!(matches!(error, Error::KernelFault { .. }), "{error}");
    assert!(error.to_string().contains("naive"), "{error}");
}

#[test]
fn the_caller_s_context_stays_current() {
    cust::init(cust::CudaFlags::empty()).unwrap();
    leaves(CUcontext::NULL);
    assert!(legacy::ContextStack::pop().is_err(), "nothing is left on the stack");

    // The primary context of one of the devices, which is the library's as well.
    let device = CudaDevice::get_device(cuda_driver::soft_ordinal()).unwrap();
    let primary = Context::new(device).unwrap();
    leaves(current());
    fault();
    assert_eq!(current(), CUcontext::from(primary.as_raw()));
    let buffer = DeviceBuffer::from_slice(&[1.0f32, 2.0]).unwrap();
    leaves(current());
    assert_eq!(buffer.as_host_vec().unwrap(), [1.0, 2.0], "it is not destroyed");
    drop(buffer);

    // Another context of the same device, on top of the first.
    let flags = legacy::ContextFlags::SCHED_AUTO;
    let own = legacy::Context::create_and_push(flags, device).unwrap();
    leaves(current());
    DeviceBuffer::<f32>::zeroed(3).unwrap();
    drop(own);
    assert_eq!(current(), CUcontext::from(primary.as_raw()));

    // One device in several threads, each with a context of its own.
    let shared = Device::open(DeviceChoice::Soft).unwrap();
    let rounds = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let own = legacy::Context::create_and_push(flags, device).unwrap();
                let before = current();
                let ones = Matrix::from_fn(4, 4, |_, _| 1.0);
                let plan = shared.auto().unwrap().prepare(Gemm::new(4, 4, 4)).unwrap();
                for _ in 0..20 {
                    let a = DeviceMatrix::<f32>::from_host(&shared, &ones).unwrap();
                    let mut c = DeviceMatrix::<f32>::zeros(&shared, [4, 4]).unwrap();
                    plan.run(&a, &a, &mut c).unwrap();
                    assert_eq!(c.download().unwrap().at(0, 0), 4.0);
                    assert_eq!(current(), before);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
                drop(own);
                assert_eq!(current(), CUcontext::NULL);
            });
        }
    });
    assert_eq!(rounds.into_inner(), 80);
    CurrentContext::set_current(&primary).unwrap();

    // Where the caller asks for it, the device's context stays.
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    {
        let _outer = device.enter().unwrap();
        let _inner = shared.enter().unwrap();
        assert_eq!(current(), CUcontext::from(primary.as_raw()));
    }
    assert_eq!(current(), CUcontext::from(primary.as_raw()));
    device.make_current().unwrap();
    assert_ne!(current(), CUcontext::from(primary.as_raw()));
}
