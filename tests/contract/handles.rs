//! Handles: what may be kept anywhere, used by any thread, and put on any stream.

use std::sync::Arc;
use std::thread;

use cuda_gemm::{
    Auto, Device, DeviceChoice, DeviceMatrix, DeviceMatrixMut, DeviceMatrixRef, Error, Gemm, Graph,
    Kernel, Matrix, Plan, Stream, find_kernel,
};
use cust::stream::{Stream as CudaStream, StreamFlags};

use crate::common::devices;

/// Small integers, so that products are exact in any order of their sums.
pub fn integers(rows: usize, cols: usize, seed: usize) -> Matrix {
    Matrix::from_fn(rows, cols, |row, col| ((7 * row + 5 * col + seed) % 9) as f32 - 4.0)
}

/// The product of such matrices.
pub fn product(a: &Matrix, b: &Matrix) -> Matrix {
    Matrix::from_fn(a.rows(), b.cols(), |row, col| {
        (0..a.cols()).map(|l| a.at(row, l) * b.at(l, col)).sum()
    })
}

/// For each kernel ABI that the device runs, kernels with plans that need all a plan may have: a
/// workspace, and memory to stage operands, whose rows are of odd length.
pub fn plans(device: &Device, stream: &Stream) -> Vec<Plan<'static>> {
    let names: &[_] = match device.info().capability {
        (9, 0) => &["tile2d", "async_copy", "tile_64x64", "tma", "persistent"],
        _ => &["tile2d", "async_copy", "tile_64x64"],
    };
    let kernels = names.iter().map(|name| device.kernel(find_kernel(name).unwrap()).unwrap());
    let plan = |kernel: Kernel| {
        let splits = if kernel.descriptor().abi().splits_k() { 3 } else { 1 };
        let plan = kernel.plan(Gemm::new(70, 65, 67).scaled(1.0, 1.0)).splits(splits);
        plan.staged(true).any_alignment().on(stream).prepare().unwrap()
    };
    kernels.map(plan).collect()
}

#[test]
fn handles_are_send_and_sync() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Device>();
    is_send_and_sync::<Stream>();
    is_send_and_sync::<Kernel>();
    is_send_and_sync::<Plan<'_>>();
    is_send_and_sync::<Auto>();
    is_send_and_sync::<DeviceMatrix<f32>>();
    is_send_and_sync::<DeviceMatrixRef<'_, f32>>();
    is_send_and_sync::<DeviceMatrixMut<'_, f32>>();
    is_send_and_sync::<Graph>();
}

/// A plan beside its device, as a program would keep it.
struct Layer {
    plan: Plan<'static>,
    device: Device,
}

/// The threads share the plan's workspace and its copies of A and B.
#[test]
fn threads_share_a_plan() {
    for device in devices() {
        for plan in plans(&device, &device.stream()) {
            let layer = Arc::new(Layer { plan, device: device.clone() });
            let threads = [0, 1, 2, 3].map(|seed| {
                let layer = Arc::clone(&layer);
                thread::spawn(move || {
                    let Layer { plan, device } = &*layer;
                    let (a, b) = (integers(70, 67, seed), integers(67, 65, 10 * seed));
                    let expected = product(&a, &b);
                    let a = DeviceMatrix::<f32>::from_host(device, &a).unwrap();
                    let b = DeviceMatrix::<f32>::from_host(device, &b).unwrap();
                    for _ in 0..4 {
                        let mut c = DeviceMatrix::<f32>::zeros(device, [70, 65]).unwrap();
                        plan.run(&a, &b, &mut c).unwrap();
                        assert!(c.download().unwrap() == expected, "thread {seed}");
                    }
                })
            });
            for thread in threads {
                thread.join().unwrap();
            }
        }
    }
}

/// A stream made through `cust`, and one that is known as the driver knows it.
#[test]
fn plans_go_to_the_caller_s_streams() {
    for device in devices() {
        device.make_current().unwrap();
        let stream = Arc::new(CudaStream::new(StreamFlags::NON_BLOCKING, None).unwrap());
        let raw = CudaStream::new(StreamFlags::DEFAULT, None).unwrap();
        // SAFETY: both were just made in the device's context, and outlive what is made on them.
        let streams = unsafe {
            [
                Stream::from_cust(&device, Arc::clone(&stream)),
                Stream::from_raw(&device, raw.as_inner().into()),
            ]
        };
        assert!(streams[0].as_cust().is_some() && streams[1].as_cust().is_none());
        let (a, b) = (integers(70, 67, 1), integers(67, 65, 2));
        for stream in &streams {
            let device_a = DeviceMatrix::<f32>::from_host(stream, &a).unwrap();
            let device_b = DeviceMatrix::<f32>::from_host(stream, &b).unwrap();
            for plan in plans(&device, stream) {
                assert!(plan.stream().is_same(stream));
                let mut c = DeviceMatrix::<f32>::zeros(stream, [70, 65]).unwrap();
                plan.run(&device_a, &device_b, &mut c).unwrap();
                stream.synchronize().unwrap();
                assert!(c.download().unwrap() == product(&a, &b));
            }
        }
    }
}

#[test]
fn operands_of_other_streams_and_devices_are_refused() {
    for choice in [DeviceChoice::Soft, DeviceChoice::SoftSm90] {
        let (device, other) = (Device::open(choice).unwrap(), Device::open(choice).unwrap());
        let stream = Stream::new(&device).unwrap();
        let kernel = device.kernel(find_kernel("tile2d").unwrap()).unwrap();
        let plan = kernel.prepare(Gemm::new(2, 2, 2)).unwrap();
        let matrix = |on: &Stream| DeviceMatrix::<f32>::from_host(on, &integers(2, 2, 0)).unwrap();
        let (own, foreign) = (matrix(&device.stream()), matrix(&other.stream()));
        let mut moved = matrix(&stream);
        let mut c = DeviceMatrix::<f32>::zeros(&device, [2, 2]).unwrap();

        let refused = plan.run(&own, &moved, &mut c);
        assert!(matches!(refused, Err(Error::WrongStream { what: "B" })), "{refused:?}");
        let refused = plan.run(&foreign, &own, &mut c);
        assert!(matches!(refused, Err(Error::WrongDevice { what: "A" })), "{refused:?}");
        let refused = plan.run(&own, &own, &mut matrix(&stream));
        assert!(matches!(refused, Err(Error::WrongStream { what: "C" })), "{refused:?}");
        let refused = moved.move_to(&other.stream());
        assert!(matches!(refused, Err(Error::WrongDevice { .. })), "{refused:?}");
        let refused = kernel.plan(Gemm::new(2, 2, 2)).on(&other.stream()).prepare();
        assert!(matches!(refused, Err(Error::WrongDevice { .. })));

        moved.move_to(&device.stream()).unwrap();
        plan.run(&own, &moved, &mut c).unwrap();
        let host = integers(2, 2, 0);
        assert_eq!(c.download().unwrap(), product(&host, &host));
    }
}
