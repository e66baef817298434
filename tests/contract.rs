//! The contract of every kernel, on every device: `C = alpha * A * B + beta * C` for every
//! shape, factor and layout, with BLAS's rules for what is not read.
//!
//! `REQUIRE_GPU=1` turns a missing GPU into a failure. `CONTRACT=whole` runs every case on both
//! models of the software device.

#[path = "contract/auto.rs"]
mod auto;
#[path = "contract/batches.rs"]
mod batches;
#[path = "common/case.rs"]
mod case;
mod common;
#[path = "contract/cublas.rs"]
mod cublas;
#[path = "contract/entry_points.rs"]
mod entry_points;
#[path = "contract/epilogues.rs"]
mod epilogues;
#[path = "contract/graphs.rs"]
mod graphs;
#[path = "contract/groups.rs"]
mod groups;
#[path = "contract/handles.rs"]
mod handles;
#[path = "contract/nothing_summed.rs"]
mod nothing_summed;
#[path = "contract/pointers.rs"]
mod pointers;
#[path = "contract/property.rs"]
mod property;
#[path = "contract/shared_limit.rs"]
mod shared_limit;
#[path = "contract/splits.rs"]
mod splits;
#[path = "contract/stream_k.rs"]
mod stream_k;
#[path = "contract/tensor_core.rs"]
mod tensor_core;
#[path = "contract/tf32.rs"]
mod tf32;
#[path = "contract/transposed.rs"]
mod transposed;
#[path = "contract/views.rs"]
mod views;

use approx::assert_relative_eq;
use case::{Case, SPLITS, fits, for_each_kernel, for_each_kernel_and_device};
use common::{devices, is_whole, runs_all};
use cuda_gemm::Error;
use host::kernels::abi::{KernelDescriptor, Tile};
use host::verify::Bound;
use host::{Device, DeviceMatrix, Gemm, Limits, Matrix, find_kernel};

/// alpha and beta: the special values, and some that are not.
const FACTORS: [(f32, f32); 7] =
    [(1.0, 0.0), (1.0, 1.0), (-1.5, 0.5), (0.0, 0.0), (0.0, 2.0), (2.0, -1.0), (0.25, 0.0)];

/// M, N and K of this kernel's tile.
fn tile(descriptor: &KernelDescriptor) -> [usize; 3] {
    let Tile { bm, bn, bk, .. } = descriptor.tile();
    [bm, bn, bk].map(|size| size as usize)
}

/// Shapes M, N, K at the edges of this kernel's tiles.
fn edges(descriptor: &KernelDescriptor) -> Vec<[usize; 3]> {
    let [bm, bn, bk] = tile(descriptor);
    vec![
        [1, 1, 1],
        [7, 11, 13],
        [bm, bn, bk],
        [bm, bn, bk + 1],
        [bm + 1, 5, 7 * bk],
        [bm - 1, bn + 1, bk + 2],
        [bm + 1, bn - 1, bk + 2],
        // Nothing to do, and nothing to sum.
        [0, 5, 5],
        [5, 0, 5],
        [5, 5, 0],
        [bm + 1, bn + 1, 0],
    ]
}

/// Shapes M, N, K that catch mistakes in anyone's kernel, and all those around the edges of this
/// kernel's tiles.
fn shapes(descriptor: &KernelDescriptor) -> Vec<[usize; 3]> {
    let [bm, bn, bk] = tile(descriptor);
    let others = [
        [2, 3, 5],
        [31, 37, 41],
        [127, 131, 17],
        [257, 129, 31],
        [1, 300, 9],
        [300, 1, 9],
        [1, 1, 1000],
        // K shorter than a step, and around whole steps.
        [bm, bn, 1],
        [bm, bn, bk.saturating_sub(1)],
        [5, 6, 2 * bk],
        [5, 6, 3 * bk - 1],
        // M or N smaller than a tile, and around whole tiles.
        [bm / 2, 2 * bn, bk],
        [2 * bm, bn / 2, bk],
        [2 * bm + 1, bn, 3],
        [bm, 2 * bn + 1, 3],
        [0, 0, 0],
    ];
    edges(descriptor).into_iter().chain(others).collect()
}

#[test]
fn every_shape_and_factor() {
    for_each_kernel_and_device(|device, descriptor| {
        let runs_all = runs_all(device);
        let shapes = if runs_all { shapes(descriptor) } else { edges(descriptor) };
        for (seed, [m, n, k]) in (1..).zip(shapes) {
            let factors = FACTORS.into_iter().zip(SPLITS.into_iter().cycle());
            // At edges some factors for each shape, which are others for the next one.
            let factors = (seed..).zip(factors).filter(|(at, _)| runs_all || at % 3 == 0);
            for (_, ((alpha, beta), splits)) in factors {
                let gemm = Gemm::new(m, n, k).scaled(alpha, beta);
                let case = Case { splits, ..Case::random(gemm, seed) };
                case.assert_right(device, descriptor, Bound::Probabilistic);
            }
        }
    });
}

/// Every K up to a few steps: loops over K are unrolled by factors that nobody wrote down.
#[test]
fn every_short_k() {
    for_each_kernel_and_device(|device, descriptor| {
        let [_, _, bk] = tile(descriptor);
        let is_edge = |k: usize| k < 10 || (k + 1) % bk <= 2;
        for k in (0..=40.max(3 * bk + 1)).filter(|k| runs_all(device) || is_edge(*k)) {
            // Misaligned rows and aligned ones. Away from edges one of them: 5 shares no factor
            // with the steps of a loop.
            let columns: &[usize] = match k % 5 {
                _ if is_whole() || is_edge(k) => &[9, 12],
                0..3 => &[9],
                _ => &[12],
            };
            for &n in columns {
                let gemm = Gemm::new(6, n, k).scaled(1.0, 0.5);
                let case = Case { splits: SPLITS[k % 4], ..Case::random(gemm, k as u64) };
                case.assert_right(device, descriptor, Bound::Probabilistic);
            }
        }
    });
}

/// Small integers and halves: every partial sum is exact in f32, so that the result
/// must be exact too, whatever the order of the sum.
#[test]
fn small_integers_are_exact() {
    for_each_kernel(|device, descriptor| {
        for [m, n, k] in shapes(descriptor) {
            for (alpha, beta, splits) in [(1.0, 0.0, 7), (-0.5, 2.0, 2)] {
                let gemm = Gemm::new(m, n, k).scaled(alpha, beta);
                if fits(device, descriptor, &gemm).is_err() {
                    continue;
                }
                let mut case = Case::new(gemm, |rows, cols, salt| {
                    Matrix::from_fn(rows, cols, |i, j| {
                        ((i * 31 + j * 17 + salt as usize * 7) % 17) as f32 - 8.0
                    })
                });
                case.splits = splits;
                let result = case.run(device, descriptor);
                let across = case.b.transposed();
                let expected = Matrix::from_fn(m, n, |i, j| {
                    let products = case.a.row(i).iter().zip(across.row(j)).map(|(a, b)| a * b);
                    alpha * products.sum::<f32>() + beta * case.c.at(i, j)
                });
                assert_eq!(result, expected, "{} {gemm:?}", descriptor.name());
            }
        }
    });
}

/// Rows that lie further apart than they are long, and buffers that begin anywhere.
#[test]
fn padded_rows_and_unaligned_bases() {
    for_each_kernel_and_device(|device, descriptor| {
        let layouts = [
            ([33, 45, 29], [1, 2, 3]),
            ([130, 140, 20], [4, 8, 4]),
            ([132, 260, 36], [0, 0, 0]),
            ([64, 128, 16], [7, 0, 64]),
            ([1, 1, 1], [100, 100, 100]),
            ([3, 200, 0], [5, 5, 5]),
        ];
        let count = if runs_all(device) { layouts.len() } else { 2 };
        for ([m, n, k], [pad_a, pad_b, pad_c]) in layouts.into_iter().take(count) {
            // In elements, of A, B and C: all on 16 bytes, and each of them off.
            for (i, offsets) in [[0, 0, 0], [4, 8, 12], [1, 0, 0], [0, 2, 0], [0, 0, 3], [3, 1, 2]]
                .iter()
                .enumerate()
            {
                let gemm = Gemm::new(m, n, k)
                    .scaled(1.5, if i % 2 == 0 { 0.0 } else { -1.0 })
                    .leading_dimensions(k + pad_a, n + pad_b, n + pad_c);
                let mut case = Case::random(gemm, 9);
                // Nothing behind the last element: reading on would leave the buffer.
                case.margins = offsets.map(|offset| (offset, 0));
                case.assert_right(device, descriptor, Bound::Probabilistic);
            }
        }
    });
}

/// With beta 0, C is written and not read: it holds NaN before (see `Case::run`).
#[test]
fn beta_zero_does_not_read_c() {
    for_each_kernel(|device, descriptor| {
        for (alpha, beta) in [(1.0, 0.0), (0.0, 0.0), (1.0, -0.0)] {
            for k in [0, 5, 40] {
                let case = Case::random(Gemm::new(150, 140, k).scaled(alpha, beta), 11);
                let result = case.run(device, descriptor);
                assert!(result.as_slice().iter().all(|x| x.is_finite()), "{}", descriptor.name());
                assert!(case.verify(&result, Bound::Probabilistic).passed());
            }
        }
    });
}

/// With alpha 0 or K 0, neither A nor B is read: they are NaN, or not even there.
#[test]
fn alpha_or_k_zero_reads_neither_a_nor_b() {
    for_each_kernel(|device, descriptor| {
        let (m, n, k) = (70, 90, 33);
        let nan = |rows, cols| Matrix::from_fn(rows, cols, |_, _| f32::NAN);
        let mut case = Case::random(Gemm::new(m, n, k).scaled(0.0, 0.5), 12);
        (case.a, case.b) = (nan(m, k), nan(k, n));
        let result = case.run(device, descriptor);
        for i in [0, m - 1] {
            for j in [0, n - 1] {
                assert_relative_eq!(result.at(i, j), 0.5 * case.c.at(i, j));
            }
        }
        assert!(case.verify(&result, Bound::WorstCase).passed());

        for gemm in [Gemm::new(m, n, k).scaled(0.0, 0.5), Gemm::new(m, n, 0).scaled(3.0, 0.5)] {
            let c = DeviceMatrix::<f32>::from_host(device, &case.c).unwrap();
            let kernel = device.kernel(descriptor).unwrap();
            let prepared = kernel.prepare(gemm).unwrap();
            // SAFETY: A and B are not read; C has the planned shape and is not in use.
            unsafe {
                prepared.run_raw([0, 0, c.address()], Default::default()).unwrap();
            }
            let result = c.download().unwrap();
            assert!(result.as_slice().iter().zip(case.c.as_slice()).all(|(x, y)| *x == 0.5 * y));
        }
    });
}

/// A NaN or an infinity in A, B or C reaches exactly the elements that depend on it.
#[test]
fn nan_and_infinities_go_where_they_belong() {
    for_each_kernel(|device, descriptor| {
        // More than a step, so that splits share it.
        let (m, n, k) = (140, 135, 37.max(descriptor.tile().bk as usize + 5));
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, k - 1] {
                let case = Case::random(Gemm::new(m, n, k), 13);
                let mut case = Case { splits: 2, ..case };
                case.a.as_mut_slice()[129 * k + at] = value;
                let result = case.run(device, descriptor);
                assert!(case.verify(&result, Bound::Probabilistic).passed());
                let bad = |i, j| !f32::is_finite(result.at(i, j));
                assert!((0..n).all(|j| bad(129, j) && !bad(128, j) && !bad(130, j)));

                let case = Case::random(Gemm::new(m, n, k), 14);
                let mut case = Case { splits: 2, ..case };
                case.b.as_mut_slice()[at * n + 134] = value;
                let result = case.run(device, descriptor);
                assert!(case.verify(&result, Bound::Probabilistic).passed());
                let bad = |i, j| !f32::is_finite(result.at(i, j));
                assert!((0..m).all(|i| bad(i, 134) && !bad(i, 133)));
            }
            let mut case = Case::random(Gemm::new(m, n, k).scaled(1.0, -2.0), 15);
            case.c.as_mut_slice()[5 * n + 6] = value;
            let result = case.run(device, descriptor);
            assert!(case.verify(&result, Bound::Probabilistic).passed());
            assert_eq!(result.as_slice().iter().filter(|x| !x.is_finite()).count(), 1);
        }
    });
}

/// Infinities that cancel, and zeros times infinity, are NaN.
#[test]
fn infinities_that_meet_are_nan() {
    for_each_kernel(|device, descriptor| {
        // Of a short K, too, whose sums may be compensated.
        for k in [10, 20] {
            infinities_meet(device, descriptor, k);
        }
    });
}

fn infinities_meet(device: &Device, descriptor: &'static KernelDescriptor, k: usize) {
    let mut case = Case::random(Gemm::new(3, 3, k), 16);
    case.a.as_mut_slice()[2] = f32::INFINITY;
    case.a.as_mut_slice()[9] = f32::INFINITY;
    case.b.as_mut_slice()[2 * 3..][..3].copy_from_slice(&[1.0, 1.0, 0.0]);
    case.b.as_mut_slice()[9 * 3..][..3].copy_from_slice(&[1.0, -1.0, 1.0]);
    let result = case.run(device, descriptor);
    assert_eq!(result.at(0, 0), f32::INFINITY);
    assert!(result.at(0, 1).is_nan() && result.at(0, 2).is_nan());
    assert!(case.verify(&result, Bound::Probabilistic).passed());
}

/// What is finite in any order of additions is finite, next to the largest number too, where what a
/// sum has lost is not known.
#[test]
fn sums_next_to_the_largest_number_are_finite() {
    for_each_kernel(|device, descriptor| {
        for (k, at, splits) in [(5, 1, 1), (5, 4, 1), (256, 1, 1), (256, 4, 1), (256, 130, 2)] {
            let mut case = Case { splits, ..Case::random(Gemm::new(2, 2, k), 18) };
            case.a.as_mut_slice().fill(0.0);
            case.b.as_mut_slice().fill(1.0);
            case.a.as_mut_slice()[0] = -1.5 * 2f32.powi(104);
            case.a.as_mut_slice()[at] = f32::MAX;
            let result = case.run(device, descriptor);
            let expected = f32::MAX - 1.5 * 2f32.powi(104);
            let error = (result.at(0, 0) - expected).abs();
            assert!(error <= 2f32.powi(104), "{}: {}", descriptor.name(), result.at(0, 0));
        }
    });
}

/// A tile for small products compensates short sums if it is launched for a single one: what a sum
/// of three loses to rounding is there in the end. With more blocks, or a longer K, the same
/// products add up to zero.
#[test]
fn short_sums_are_compensated() {
    for device in devices() {
        let descriptor = find_kernel("tile_16x16x16").unwrap();
        for (m, k, expected) in
            [(2, 3, 1.0), (2, 4, 1.0), (2, 12, 1.0), (2, 13, 0.0), (16 * 265, 3, 0.0)]
        {
            let gemm = Gemm::new(m, 2, k);
            let mut case = Case::new(gemm, |rows, cols, _| Matrix::zeros(rows, cols));
            case.b.as_mut_slice().fill(1.0);
            for row in case.a.as_mut_slice().chunks_mut(k) {
                row[..3].copy_from_slice(&[16_777_216.0, 1.0, -16_777_216.0]);
            }
            let result = case.run(&device, descriptor);
            assert!(result.as_slice().iter().all(|sum| *sum == expected), "{m} x 2 x {k}");
        }
    }
}

/// A product that overflows by itself, but not in a sum, is no reason for infinity, of a short K
/// either.
#[test]
fn products_that_overflow_by_themselves_are_added_up() {
    for device in devices() {
        let descriptor = find_kernel("tile_16x16x16").unwrap();
        for k in [2, 3, 12, 13] {
            let mut case = Case::new(Gemm::new(2, 2, k), |rows, cols, _| Matrix::zeros(rows, cols));
            case.b.as_mut_slice().fill(2e19);
            case.a.as_mut_slice()[..2].copy_from_slice(&[-1.5e19, 2e19]);
            let result = case.run(&device, descriptor);
            assert!((result.at(0, 0) / 1e38 - 1.0).abs() < 1e-6, "K of {k}: {}", result.at(0, 0));
        }
    }
}

/// Equal elements round the same way at every step: the worst case for an error bound.
#[test]
fn structured_matrices_keep_the_worst_case_bound() {
    for_each_kernel(|device, descriptor| {
        let gemm = Gemm::new(40, 33, 3000).scaled(1.0, 1.0);
        let case = Case::new(gemm, |rows, cols, _| Matrix::from_fn(rows, cols, |_, _| 0.1));
        let case = Case { splits: 3, ..case };
        case.assert_right(device, descriptor, Bound::WorstCase);
    });
}

/// A C with more tiles than a grid has blocks is done in several launches.
#[test]
fn a_grid_that_is_too_small_is_launched_in_panels() {
    for_each_kernel(|device, descriptor| {
        let Tile { bm, bn, .. } = descriptor.tile();
        let (m, n) = (4 * bm as usize + 3, 3 * bn as usize + 5);
        let k = 2 * descriptor.tile().bk as usize + 3;
        let gemm = Gemm::new(m, n, k).scaled(2.0, 1.0).leading_dimensions(k + 1, n + 1, n + 2);
        let mut case = Case { splits: 2, ..Case::random(gemm, 17) };
        case.limits = Some(Limits { grid: [3, 2, 65535], ..device.info().limits });
        case.assert_right(device, descriptor, Bound::Probabilistic);
    });
}

/// The real limit of the y axis, where it is cheap to reach.
#[test]
fn more_than_65535_tiles_along_y() {
    for_each_kernel(|device, descriptor| {
        if descriptor.name() == "naive" {
            let n = 65_535 * descriptor.tile().bn as usize + 3;
            Case::random(Gemm::new(1, n, 2), 18).assert_right(
                device,
                descriptor,
                Bound::Probabilistic,
            );
        }
    });
}

/// Matrices that were not planned for are refused, not launched.
#[test]
fn the_safe_call_refuses_what_was_not_prepared() {
    for_each_kernel(|device, descriptor| {
        let kernel = device.kernel(descriptor).unwrap();
        let prepared = kernel.prepare(Gemm::new(4, 5, 6)).unwrap();
        let zeros = |rows, cols| DeviceMatrix::<f32>::zeros(device, [rows, cols]).unwrap();
        let (a, b, mut c) = (zeros(4, 6), zeros(6, 5), zeros(4, 5));
        prepared.run(&a, &b, &mut c).unwrap();
        assert!(matches!(prepared.run(&b, &b, &mut c), Err(Error::Shape { what: "A", .. })));
        assert!(matches!(prepared.run(&a, &a, &mut c), Err(Error::Shape { what: "B", .. })));
        let mut wrong = zeros(5, 4);
        assert!(matches!(prepared.run(&a, &b, &mut wrong), Err(Error::Shape { what: "C", .. })));
        let padded = kernel.prepare(Gemm::new(4, 5, 6).leading_dimensions(6, 8, 5)).unwrap();
        assert!(matches!(padded.run(&a, &b, &mut c), Err(Error::PlannedLd { what: "B", .. })));
        for other in devices() {
            let foreign = DeviceMatrix::<f32>::zeros(&other, [4, 6]).unwrap();
            let error = prepared.run(&foreign, &b, &mut c);
            assert!(matches!(error, Err(Error::WrongDevice { what: "A" })));
        }
    });
}
