//! Products in CUDA graphs.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use cuda_gemm::{CUresult, DeviceMatrix, Error, Stream};

use crate::common::devices;
use crate::handles::{integers, plans, product};

/// Each launch of the graph adds the product to C, also where it splits K or stages A and B. That
/// `enqueue` can be captured shows that it neither allocates nor waits: see
/// [`what_cannot_be_captured_is_an_error`].
#[test]
fn captured_products_are_launched_again_and_again() {
    for device in devices() {
        let stream = Stream::new(&device).unwrap();
        let (a, b) = (integers(70, 67, 3), integers(67, 65, 4));
        let expected = product(&a, &b);
        let a = DeviceMatrix::<f32>::from_host(&stream, &a).unwrap();
        let b = DeviceMatrix::<f32>::from_host(&stream, &b).unwrap();
        for plan in plans(&device, &stream) {
            let mut c = DeviceMatrix::<f32>::zeros(&stream, [70, 65]).unwrap();
            let graph = stream.capture(|| plan.run(&a, &b, &mut c)).unwrap();
            assert!(c.download().unwrap().as_slice().iter().all(|&x| x == 0.0), "not captured");
            for _ in 0..3 {
                // SAFETY: the plan and its matrices are there, and used by this stream alone.
                unsafe { graph.launch() }.unwrap();
            }
            let three_times = expected.as_slice().iter().map(|x| 3.0 * x);
            assert!(c.download().unwrap().as_slice().iter().copied().eq(three_times));
        }
    }
}

/// What another thread does with the stream waits until the capture is over.
#[test]
fn a_capture_has_the_stream_for_itself() {
    for device in devices() {
        let stream = device.stream();
        let (a, b) = (integers(70, 67, 5), integers(67, 65, 6));
        let expected = product(&a, &b);
        let a = Arc::new(DeviceMatrix::<f32>::from_host(&device, &a).unwrap());
        let b = Arc::new(DeviceMatrix::<f32>::from_host(&device, &b).unwrap());
        for plan in plans(&device, &stream) {
            let plan = Arc::new(plan);
            let mut c = DeviceMatrix::<f32>::zeros(&device, [70, 65]).unwrap();
            let (sender, receiver) = mpsc::channel();
            let mut other = None;
            let graph = stream.capture(|| {
                let (plan, a, b) = (Arc::clone(&plan), Arc::clone(&a), Arc::clone(&b));
                let device = device.clone();
                other = Some(thread::spawn(move || {
                    sender.send(()).unwrap();
                    let mut c = DeviceMatrix::<f32>::zeros(&device, [70, 65]).unwrap();
                    plan.run(&*a, &*b, &mut c).unwrap();
                    c.download().unwrap()
                }));
                receiver.recv().unwrap();
                // Time to get in between, which it must not.
                thread::sleep(Duration::from_millis(20));
                Ok(())
            });
            let graph = graph.unwrap();
            assert!(other.unwrap().join().unwrap() == expected);
            // SAFETY: nothing was captured.
            unsafe { graph.launch() }.unwrap();
            plan.run(&*a, &*b, &mut c).unwrap();
            assert!(c.download().unwrap() == expected);
        }
    }
}

/// What cannot be captured makes an error, and leaves the stream as it was.
#[test]
fn what_cannot_be_captured_is_an_error() {
    for device in devices() {
        let stream = Stream::new(&device).unwrap();
        let mut kept = DeviceMatrix::<f32>::from_host(&stream, &integers(3, 4, 7)).unwrap();
        let capture_error = |captured: Result<_, _>| match captured.err() {
            Some(Error::Driver { code, .. }) => code,
            other => panic!("{other:?}"),
        };
        for attempt in [
            &mut || DeviceMatrix::<f32>::zeros(&stream, [5, 5]).map(drop),
            &mut || stream.synchronize(),
            &mut || kept.download().map(drop),
        ] as [&mut dyn FnMut() -> Result<(), Error>; 3]
        {
            // Also where the closure says that all is well.
            let swallowed = stream.capture(|| {
                attempt().unwrap_err();
                Ok(())
            });
            let code = capture_error(swallowed);
            assert_eq!(code, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
            let _: CUresult = capture_error(stream.capture(&mut *attempt));
        }
        // A matrix that is dropped meanwhile.
        let matrix = DeviceMatrix::<f32>::zeros(&stream, [5, 5]).unwrap();
        let _ = stream.capture(|| {
            drop(matrix);
            Ok(())
        });
        // A panic ends the capture, too.
        let panics = || stream.capture(|| panic!("on purpose")).map(drop);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        stream.synchronize().unwrap();
        assert_eq!(kept.download().unwrap(), integers(3, 4, 7));
        kept.upload(&integers(3, 4, 8)).unwrap();
        assert_eq!(kept.download().unwrap(), integers(3, 4, 8));
    }
}
