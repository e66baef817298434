//! `smem_full`, whose shared memory grows with K: up to the device's limit, and not beyond.

use cuda_gemm::Error;
use host::kernels::abi::Shared;
use host::verify::Bound;
use host::{Gemm, find_kernel};

use crate::case::Case;
use crate::common::devices;

#[test]
fn the_largest_k_that_fits_runs_and_the_next_is_refused() {
    let descriptor = find_kernel("smem_full").unwrap();
    let Shared::Dynamic(bytes) = descriptor.shared() else { panic!("smem_full depends on K") };
    for device in devices() {
        let limit = device.info().limits.shared_optin;
        let most = u64::from(limit) / bytes(1);
        assert!(bytes(most as u32) > 48 << 10, "the opt-in is needed");
        let case = Case::random(Gemm::new(33, 40, most as usize).scaled(1.0, 1.0), 22);
        case.assert_right(&device, descriptor, Bound::Probabilistic);

        let kernel = device.kernel(descriptor).unwrap();
        for k in [most as usize + 1, 4096] {
            let Err(error) = kernel.prepare(Gemm::new(33, 40, k)) else { panic!("{k} runs") };
            let text = error.to_string();
            let needed = bytes(k as u32);
            assert!(matches!(error, Error::SharedMemory { .. }), "{text}");
            for number in [needed.to_string(), limit.to_string()] {
                assert!(text.contains(&number), "{number}: {text}");
            }
        }
        // A refusal leaves the kernel usable.
        case.assert_right(&device, descriptor, Bound::Probabilistic);
    }
}

/// Products that are prepared at the same time share the kernel, and what it may use.
#[test]
fn a_product_that_needs_less_takes_nothing_from_one_that_needs_more() {
    let descriptor = find_kernel("smem_full").unwrap();
    for device in devices() {
        let kernel = device.kernel(descriptor).unwrap();
        // All of them need the opt-in.
        let cases = [700, 300, 500].map(|k| Case::random(Gemm::new(20, 30, k), 23));
        let products = cases.each_ref().map(|case| kernel.prepare(case.gemm).unwrap());
        for (case, product) in cases.iter().zip(&products) {
            let result = case.run_with(&device, descriptor.name(), |a, b, c| product.run(a, b, c));
            assert!(case.verify(&result, Bound::Probabilistic).passed());
        }
    }
}
