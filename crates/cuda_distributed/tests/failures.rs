//! Ranks that differ, leave, come late or panic: an error on every rank, and no hang.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{devices, integers, on_every_rank};
use cuda_distributed::{
    DistributedMatrix, Distribution, Error, Failure, Schedule, Settings, Transport, World, gemm,
};
use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Matrix, bf16};

const TRANSPORTS: [Transport; 2] = [Transport::Copies, Transport::Host];

fn settings(transport: Transport, milliseconds: u64) -> Settings {
    let timeout = Duration::from_millis(milliseconds);
    Settings { transport, timeout, ..Settings::default() }
}

fn zeros(world: &World, shape: [usize; 2]) -> Result<DistributedMatrix<f32>, Error> {
    DistributedMatrix::zeros(world.clone(), shape, Distribution::Rows)
}

/// A product that every rank can make.
fn product(world: &World) -> Result<Matrix, Error> {
    let (a, b) = (integers(4, 3, 1), integers(3, 2, 2));
    let a = DistributedMatrix::<f32>::from_host(world.clone(), &a, Distribution::Rows)?;
    let b = DistributedMatrix::<f32>::from_host(world.clone(), &b, Distribution::Columns)?;
    let mut c = zeros(world, [4, 2])?;
    gemm(&a, &b).run(&mut c)?;
    c.to_host()
}

fn failures<T: std::fmt::Debug>(results: Vec<Result<T, Error>>) -> Vec<Failure> {
    let failure = |result| match result {
        Err(Error::Lost(failure)) => failure,
        other => panic!("{other:?}"),
    };
    results.into_iter().map(failure).collect()
}

#[test]
fn ranks_that_differ_are_named_and_go_on() {
    for transport in TRANSPORTS {
        let results = on_every_rank(&devices(3), &settings(transport, 20_000), |world| {
            let is_odd = world.rank() == 1;
            // Another shape.
            let n = if is_odd { 5 } else { 2 };
            let (a, b) = (zeros(&world, [4, 3])?, zeros(&world, [3, n])?);
            let error = gemm(&a, &b).run(&mut zeros(&world, [4, n])?).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::Mismatch { rank: 1, .. }), "{text}");
            assert!(text.contains("B 3 x 2 f32") && text.contains("B 3 x 5 f32"), "{text}");
            // Another type of C.
            let half = DistributedMatrix::<bf16>::zeros(world.clone(), [4, 3], Distribution::Rows)?;
            let right =
                DistributedMatrix::<bf16>::zeros(world.clone(), [3, 2], Distribution::Rows)?;
            let refused = if is_odd {
                gemm(&half, &right).run(&mut zeros(&world, [4, 2])?)
            } else {
                let rows = Distribution::Rows;
                let mut c = DistributedMatrix::<bf16>::zeros(world.clone(), [4, 2], rows)?;
                gemm(&half, &right).run(&mut c)
            };
            assert!(matches!(refused, Err(Error::Mismatch { rank: 1, .. })), "{refused:?}");
            product(&world)
        });
        let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        assert!(results.iter().all(|c| *c == results[0]));
    }
}

#[test]
fn a_rank_that_cannot_take_part_tells_the_others() {
    let results = on_every_rank(&devices(2), &Settings::default(), |world| {
        let (a, b) = (zeros(&world, [4, 3])?, zeros(&world, [3, 2])?);
        let mut c = zeros(&world, [4, 2])?;
        let bias = DeviceMatrix::<f32>::zeros(world.device(), [1, 2 + world.rank()])?;
        let error = gemm(&a, &b).bias(&bias).run(&mut c).unwrap_err();
        match world.rank() {
            0 => assert!(
                matches!(&error, Error::Refused { rank: 1, reason, .. } if reason.contains("the bias")),
                "{error}"
            ),
            _ => assert!(
                matches!(error, Error::Gemm(cuda_gemm::Error::Shape { what: "the bias", .. })),
                "{error}"
            ),
        }
        // The bias of rank 1 is on another device.
        let other = &devices(3)[2 * world.rank()];
        let bias = DeviceMatrix::<f32>::zeros(other, [1, 2])?;
        let error = gemm(&a, &b).bias(&bias).run(&mut c).unwrap_err();
        match world.rank() {
            0 => assert!(matches!(error, Error::Refused { rank: 1, .. }), "{error}"),
            _ => assert!(
                matches!(error, Error::Gemm(cuda_gemm::Error::WrongDevice { what: "the bias" })),
                "{error}"
            ),
        }
        let error = gemm(&a, &b).run(&mut zeros(&world, [4, 3])?).unwrap_err();
        assert!(matches!(error, Error::Gemm(cuda_gemm::Error::Shape { what: "C", .. })), "{error}");
        let grid = Distribution::Grid { rows: 2, cols: 2 };
        let refused = DistributedMatrix::<f32>::zeros(world.clone(), [4, 4], grid);
        assert!(matches!(refused, Err(Error::Unfit { what: "the grid", .. })));
        product(&world)
    });
    results.into_iter().for_each(|result| _ = result.unwrap());
}

#[test]
fn a_rank_that_leaves_or_comes_late_is_named() {
    for transport in TRANSPORTS {
        let results =
            on_every_rank(&devices(3), &settings(transport, 20_000), |world| match world.rank() {
                2 => Err(Error::Lost(Failure {
                    operation: "its own".into(),
                    suspect: 2,
                    reason: "left".into(),
                })),
                _ => product(&world),
            });
        for failure in &failures(results)[..2] {
            assert_eq!((failure.suspect, &*failure.reason), (2, "has left the world"));
            assert!(failure.operation.contains("a product"), "{failure}");
        }

        let start = Instant::now();
        let results = on_every_rank(&devices(3), &settings(transport, 300), |world| {
            if world.rank() == 1 {
                thread::sleep(Duration::from_millis(900));
            }
            product(&world)
        });
        for failure in failures(results) {
            assert_eq!(failure.suspect, 1);
            assert_eq!(failure.reason, "did not take part within 0.3 s");
        }
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn a_panic_ends_the_world_of_all() {
    let errors = std::sync::Mutex::new(Vec::new());
    let caught = std::panic::catch_unwind(|| {
        on_every_rank(&devices(2), &Settings::default(), |world| {
            let first = product(&world);
            assert_ne!(world.rank(), 1, "a planted panic");
            // The first product may end before the panic, or after it.
            let failed = first.and_then(|_| product(&world));
            errors.lock().unwrap().push(failed.unwrap_err().to_string());
            Ok(())
        })
    });
    assert!(caught.is_err());
    let errors = errors.into_inner().unwrap();
    assert!(errors[0].contains("rank 1 panicked"), "{errors:?}");
}

#[test]
fn a_process_has_several_worlds() {
    let expected = on_every_rank(&devices(1), &Settings::default(), |world| product(&world));
    let expected = expected.into_iter().next().unwrap().unwrap();
    thread::scope(|scope| {
        for transport in TRANSPORTS {
            let expected = &expected;
            scope.spawn(move || {
                for _ in 0..3 {
                    let settings = settings(transport, 20_000);
                    let results = on_every_rank(&devices(2), &settings, |world| product(&world));
                    results.into_iter().for_each(|c| assert_eq!(c.unwrap(), *expected));
                }
            });
        }
    });
    // Matrices of two worlds do not go together.
    let (first, second) = (devices(2), devices(2));
    let results = on_every_rank(&first, &Settings::default(), |outer| {
        let a = zeros(&outer, [2, 2])?;
        let inner = World::run(&second[..1], &Settings::default(), |world| {
            let b = zeros(&world, [2, 2])?;
            let mut c = zeros(&world, [2, 2])?;
            let error = gemm(&a, &b).run(&mut c).unwrap_err();
            assert!(matches!(error, Error::Unfit { what: "A", .. }), "{error}");
            Ok::<_, Error>(())
        });
        inner.into_iter().collect::<Result<Vec<_>, _>>()
    });
    results.into_iter().for_each(|result| _ = result.unwrap());
}

#[test]
fn what_needs_a_gpu_says_so() {
    let results = on_every_rank(&devices(2), &settings(Transport::Nccl, 5_000), |_| Ok(()));
    for result in results {
        let text = result.unwrap_err().to_string();
        assert!(text.contains("software device"), "{text}");
    }
    let results = on_every_rank(&devices(2), &Settings::default(), |world| {
        assert!(matches!(world.measure_link(), Err(Error::Unfit { what: "the world", .. })));
        world.barrier()
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn threads_may_share_a_rank() {
    for transport in TRANSPORTS {
        let results = on_every_rank(&devices(2), &settings(transport, 20_000), |world| {
            // Barriers of both threads, in any order.
            thread::scope(|scope| {
                let threads =
                    [(); 2].map(|()| scope.spawn(|| (0..50).try_for_each(|_| world.barrier())));
                threads.into_iter().try_for_each(|thread| thread.join().unwrap())
            })?;
            product(&world)
        });
        results.into_iter().for_each(|result| _ = result.unwrap());
    }
}

/// Two models of software devices.
#[test]
fn devices_that_differ_multiply() {
    let all = [DeviceChoice::SoftOrdinal(0), DeviceChoice::SoftSm90Ordinal(1)];
    let all = all.map(|choice| Device::open(choice).unwrap());
    let results = on_every_rank(&all, &Settings::default(), |world| {
        let (a, b) = (integers(600, 2, 1), integers(2, 300, 2));
        let a = DistributedMatrix::<f32>::from_host(world.clone(), &a, Distribution::Columns)?;
        let b = DistributedMatrix::<f32>::from_host(world.clone(), &b, Distribution::Rows)?;
        let mut c = zeros(&world, [600, 300])?;
        gemm(&a, &b).schedule(Schedule::Reduce).run(&mut c)?;
        c.to_host()
    });
    let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
    assert_eq!(results[0], results[1]);
}

#[test]
fn the_longest_timeout_is_a_timeout() {
    let settings = Settings { timeout: Duration::MAX, ..Settings::default() };
    let results = on_every_rank(&devices(2), &settings, |world| product(&world));
    results.into_iter().for_each(|result| _ = result.unwrap());
}
