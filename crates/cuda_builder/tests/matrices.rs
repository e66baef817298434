//! Matrices in the registers of a warp: which lane holds what, and products that are exact.

use api::matrices::{
    WORDS, bf16_k8, bf16_k16, f16_k8, f16_k8_f16, f16_k16, f16_k16_f16, loads_matrices,
    stores_matrices, tf32_k4, tf32_k8,
};
use cuda_builder::CudaArch;

mod common;
#[path = "common/device.rs"]
mod device;

use device::{Api, buffer};

/// Element (row, col) of A and B: small integers, which all types have, and whose sums are exact.
fn element(row: usize, col: usize, salt: usize) -> f32 {
    ((row * 5 + col * 3 + salt) % 13) as f32 - 6.0
}

#[test]
fn products_of_all_shapes_are_exact() {
    for arch in [CudaArch::Sm80, CudaArch::Sm90a] {
        let Some(api) = Api::of(common::api(), arch) else { return };
        macro_rules! products {
            ($($kernel:ident: $k:literal;)*) => {$(
                let matrix = |rows: usize, cols: usize, salt| {
                    (0..rows * cols).map(|at| element(at / cols, at % cols, salt)).collect::<Vec<_>>()
                };
                let (a, b, c) = (matrix(16, $k, 1), matrix($k, 8, 2), matrix(16, 8, 3));
                let expected: Vec<f32> = (0..16 * 8)
                    .map(|at| {
                        let products = (0..$k).map(|k| a[at / 8 * $k + k] * b[k * 8 + at % 8]);
                        products.sum::<f32>() + c[at]
                    })
                    .collect();
                let [a, b, c] = [a, b, c].map(|matrix| buffer(&matrix));
                let d = buffer(&[f32::NAN; 16 * 8]);
                // SAFETY: the module was built from these kernels.
                let kernel = unsafe { $kernel::load(&api.module) }.unwrap();
                let [a, b, c, to] = [&a, &b, &c, &d].map(|buffer| buffer.as_device_ptr());
                // SAFETY: as many elements as the kernel says, and `read` waits.
                unsafe { kernel.launch(&api.stream, (1, 32), a, b, c, to) }.unwrap();
                assert_eq!(api.read(&d), expected, "{} for {arch}", stringify!($kernel));
            )*};
        }
        products! {
            bf16_k8: 8;
            bf16_k16: 16;
            f16_k8: 8;
            f16_k16: 16;
            tf32_k4: 4;
            tf32_k8: 8;
            f16_k8_f16: 8;
            f16_k16_f16: 16;
        }
    }
}

/// What is rounded to tf32: to 11 bits, ties away from zero.
#[test]
fn tf32_is_rounded_to_nearest() {
    for arch in [CudaArch::Sm80, CudaArch::Sm90a] {
        let Some(api) = Api::of(common::api(), arch) else { return };
        let tie = 1.0 + f32::EPSILON * 4096.0;
        let cases = [
            (tie, 1.0 + f32::EPSILON * 8192.0),
            (-tie, -1.0 - f32::EPSILON * 8192.0),
            (tie - f32::EPSILON, 1.0),
            (f32::INFINITY, f32::INFINITY),
        ];
        for (value, rounded) in cases {
            let (mut a, mut b) = (vec![0.0f32; 16 * 4], vec![0.0f32; 4 * 8]);
            (a[0], b[0]) = (value, 1.0);
            let [a, b, c] = [a, b, vec![0.0f32; 16 * 8]].map(|matrix| buffer(&matrix));
            let d = buffer(&[f32::NAN; 16 * 8]);
            // SAFETY: the module was built from these kernels.
            let kernel = unsafe { tf32_k4::load(&api.module) }.unwrap();
            let [a, b, c, to] = [&a, &b, &c, &d].map(|buffer| buffer.as_device_ptr());
            // SAFETY: as many elements as the kernel says, and `read` waits.
            unsafe { kernel.launch(&api.stream, (1, 32), a, b, c, to) }.unwrap();
            assert_eq!(api.read(&d)[0], rounded, "{value} for {arch}");
        }
    }
}

/// The numbers of matrices that the loads, and the stores, are of.
const COUNTS: [usize; 6] = [1, 2, 4, 1, 2, 4];

#[test]
fn each_lane_has_its_row_and_columns() {
    for arch in [CudaArch::Sm80, CudaArch::Sm90a] {
        let Some(api) = Api::of(common::api(), arch) else { return };
        let elements: Vec<u16> = (0..256).map(|at| at * 251 + 7).collect();
        let word = |matrix: usize, lane: usize, is_transposed: bool| {
            let half = |j: usize| {
                let (row, col) = (lane / 4, lane % 4 * 2 + j);
                let (row, col) = if is_transposed { (col, row) } else { (row, col) };
                u32::from(elements[matrix * 64 + row * 8 + col])
            };
            half(0) | half(1) << 16
        };
        let expected: Vec<u32> = (0..32)
            .flat_map(|lane| {
                let loads = COUNTS.into_iter().enumerate();
                loads.flat_map(move |(i, count)| (0..count).map(move |at| (at, lane, i >= 3)))
            })
            .map(|(matrix, lane, is_transposed)| word(matrix, lane, is_transposed))
            .collect();
        let from = buffer(&elements);
        let words = buffer(&vec![0u32; 32 * WORDS as usize]);
        // SAFETY: the module was built from these kernels.
        let kernel = unsafe { loads_matrices::load(&api.module) }.unwrap();
        let pointers = (from.as_device_ptr(), words.as_device_ptr());
        // SAFETY: as many elements as the kernel says, and `read` waits.
        unsafe { kernel.launch(&api.stream, (1, 32), pointers.0, pointers.1) }.unwrap();
        assert_eq!(api.read(&words), expected, "{arch}");

        if arch == CudaArch::Sm90a {
            let to = buffer(&[0u16; 14 * 64]);
            // SAFETY: the module was built from these kernels.
            let kernel = unsafe { stores_matrices::load(&api.module) }.unwrap();
            let pointers = (words.as_device_ptr(), to.as_device_ptr());
            // SAFETY: as many elements as the kernel says, and `read` waits.
            unsafe { kernel.launch(&api.stream, (1, 32), pointers.0, pointers.1) }.unwrap();
            let stored: Vec<u16> =
                COUNTS.iter().flat_map(|count| elements[..count * 64].iter().copied()).collect();
            assert_eq!(api.read(&to), stored);
        }
    }
}
