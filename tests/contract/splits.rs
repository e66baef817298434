//! K split among blocks: the same bits every time, and no trace left for the next call.

use cuda_gemm::Error;
use host::kernels::TILES;
use host::kernels::abi::KernelDescriptor;
use host::verify::Bound;
use host::{DeviceMatrix, Gemm, Limits, find_kernel};

use crate::case::{Case, SPLITS};
use crate::common::devices;

/// Those for a short K cannot, and take matrices as they lie.
fn can_split(descriptor: &KernelDescriptor) -> bool {
    descriptor.abi().splits_k()
}

/// One preparation serves any number of calls: the counters are zero again after each. The
/// blocks arrive in another order each time, and still add up in the same one.
#[test]
fn repeated_calls_give_the_same_bits() {
    for device in devices() {
        for descriptor in TILES {
            let kernel = device.kernel(descriptor).unwrap();
            let (m, n) = (descriptor.tile().bm as usize + 9, 2 * descriptor.tile().bn as usize + 4);
            for splits in SPLITS.into_iter().filter(|splits| *splits == 1 || can_split(descriptor))
            {
                let case = Case::random(Gemm::new(m, n, 7 * descriptor.tile().bk as usize), 22);
                let prepared = kernel.plan(case.gemm).splits(splits).prepare().unwrap();
                assert_eq!(prepared.configuration().splits, splits);
                let a = DeviceMatrix::<f32>::from_host(&device, &case.a).unwrap();
                let b = DeviceMatrix::<f32>::from_host(&device, &case.b).unwrap();
                let results = [(); 3].map(|()| {
                    let mut c = DeviceMatrix::<f32>::zeros(&device, [m, n]).unwrap();
                    prepared.run(&a, &b, &mut c).unwrap();
                    c.download().unwrap()
                });
                assert!(
                    case.verify(&results[0], Bound::Probabilistic).passed(),
                    "{}",
                    descriptor.name()
                );
                assert!(
                    results.iter().all(|result| *result == results[0]),
                    "{}",
                    descriptor.name()
                );
            }
        }
    }
}

/// Copies of what 128-bit accesses do not reach, whatever does not let them: the shape, the
/// leading dimension or the address. Nothing is read beyond what is there.
#[test]
fn copies_of_a_and_b_are_right() {
    for device in devices() {
        for descriptor in TILES.iter().filter(|descriptor| can_split(descriptor)) {
            let kernel = device.kernel(descriptor).unwrap();
            let [bm, bn, bk] = [descriptor.tile().bm, descriptor.tile().bn, descriptor.tile().bk]
                .map(|size| size as usize);
            for ([m, n, k], pads, offsets, splits) in [
                ([bm + 3, bn + 1, bk + 3], [0, 0, 0], [0, 0, 0], 1),
                ([bm, 2 * bn + 3, 2 * bk + 1], [1, 1, 1], [0, 0, 0], 2),
                ([5, bn + 4, 3 * bk + 4], [0, 0, 0], [1, 2, 3], 3),
                ([5, 4, 4], [0, 0, 1], [0, 0, 0], 1),
                ([3, 7, 0], [0, 0, 0], [0, 0, 0], 1),
                ([0, 7, 5], [0, 0, 0], [0, 0, 0], 1),
            ] {
                let gemm = Gemm::new(m, n, k).scaled(-1.5, 0.5);
                let gemm = gemm.leading_dimensions(k + pads[0], n + pads[1], n + pads[2]);
                let mut case = Case::random(gemm, 23);
                case.margins = offsets.map(|offset| (offset, 0));
                let limits = Limits { grid: [2, 1, 65535], ..device.info().limits };
                let plan = kernel.plan(gemm).splits(splits).staged(true).within(&limits);
                let prepared = case.with_alignment(plan).prepare().unwrap();
                let addresses = offsets.map(|offset| 4 * offset as u64);
                assert_eq!(prepared.entry_point(addresses), descriptor.name());
                // The second call uses the copies' places again.
                for _ in 0..2 {
                    let name = format!("{}, staged", descriptor.name());
                    let result = case.run_with(&device, &name, |a, b, c| prepared.run(a, b, c));
                    let check = case.verify(&result, Bound::Probabilistic);
                    assert!(check.passed(), "{name}: {gemm:?}: {check:?}");
                }
            }
        }
    }
}

/// Splits beyond the steps of K change nothing, and a rung has none.
#[test]
fn what_cannot_be_split_is_not() {
    for device in devices() {
        let descriptor = TILES[0];
        let kernel = device.kernel(descriptor).unwrap();
        let steps = kernel
            .plan(Gemm::new(5, 5, 3 * descriptor.tile().bk as usize))
            .splits(100)
            .prepare()
            .unwrap();
        assert_eq!(steps.configuration().splits, 3);
        let rung = device.kernel(find_kernel("async_copy").unwrap()).unwrap();
        let error = rung.plan(Gemm::new(5, 5, 100)).splits(2).prepare();
        assert!(matches!(error, Err(Error::CannotSplit { kernel: "async_copy" })));
        assert!(rung.plan(Gemm::new(5, 5, 100)).splits(1).prepare().is_ok());
        // A workspace of many times the device's memory.
        let large = kernel.plan(Gemm::new(1 << 30, 1 << 30, 1 << 20)).splits(60_000).prepare();
        assert!(matches!(large, Err(Error::DeviceMemory { .. })));
    }
}
