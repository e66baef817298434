//! K split among blocks: the same bits every time, and no trace left for the next call.

use host::kernels::TILES;
use host::verify::Bound;
use host::{DeviceMatrix, Error, Gemm, find_kernel};

use crate::case::{Case, SPLITS};
use crate::common::devices;

/// One preparation serves any number of calls: the counters are zero again after each. The
/// blocks arrive in another order each time, and still add up in the same one.
#[test]
fn repeated_calls_give_the_same_bits() {
    for device in devices() {
        for spec in TILES {
            let kernel = device.kernel(spec).unwrap();
            let (m, n) = (spec.tile.bm as usize + 9, 2 * spec.tile.bn as usize + 4);
            for splits in SPLITS {
                let case = Case::random(Gemm::new(m, n, 7 * spec.tile.bk as usize), 22);
                let prepared = kernel.prepare_split(case.gemm, splits).unwrap();
                assert_eq!(prepared.plan().splits(), splits);
                let a = DeviceMatrix::from_host(&device, &case.a).unwrap();
                let b = DeviceMatrix::from_host(&device, &case.b).unwrap();
                let results = [(); 3].map(|()| {
                    let mut c = DeviceMatrix::zeros(&device, m, n).unwrap();
                    prepared.enqueue(&a, &b, &mut c).unwrap();
                    c.download().unwrap()
                });
                assert!(case.verify(&results[0], Bound::Probabilistic).passed(), "{}", spec.name);
                assert!(results.iter().all(|result| *result == results[0]), "{}", spec.name);
            }
        }
    }
}

/// Splits beyond the steps of K change nothing, and a rung has none.
#[test]
fn what_cannot_be_split_is_not() {
    for device in devices() {
        let spec = TILES[0];
        let kernel = device.kernel(spec).unwrap();
        let steps = kernel.prepare_split(Gemm::new(5, 5, 3 * spec.tile.bk as usize), 100).unwrap();
        assert_eq!(steps.plan().splits(), 3);
        let rung = device.kernel(find_kernel("async_copy").unwrap()).unwrap();
        let error = rung.prepare_split(Gemm::new(5, 5, 100), 2);
        assert!(matches!(error, Err(Error::CannotSplit { kernel: "async_copy" })));
        assert!(rung.prepare_split(Gemm::new(5, 5, 100), 1).is_ok());
        // A workspace of many times the device's memory.
        let large = kernel.prepare_split(Gemm::new(1 << 30, 1 << 30, 1 << 20), 60_000);
        assert!(matches!(large, Err(Error::DeviceMemory { .. })));
    }
}
