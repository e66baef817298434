//! Products of every distribution, on software devices, against exact sums of small integers.
//!
//! With `CUDA_DISTRIBUTED_TEST=nccl` or `copies` they run on GPUs, where there are enough of them.

mod common;

use common::{devices, gpus, integers, on_every_rank};
use cuda_distributed::{
    DistributedMatrix, Distribution, Error, Multiply, Product, Schedule, Settings, Transport, gemm,
};
use cuda_gemm::{Activation, Axis, DeviceMatrix, Matrix, OutputOf, Precision, bf16, f16};

/// A product and the way in which it is made.
#[derive(Clone, Copy, Debug)]
struct Case {
    ranks: usize,
    /// M, N and K.
    shape: [usize; 3],
    /// Of A, B and C.
    distributions: [Distribution; 3],
    transposed: [bool; 2],
    factors: [f32; 2],
    epilogue: Epilogue,
    schedule: Option<Schedule>,
    panels: Option<usize>,
    transport: Transport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Epilogue {
    None,
    Bias,
    ScaledRows,
    Everything,
}

const CASE: Case = Case {
    ranks: 2,
    shape: [5, 6, 7],
    distributions: [Distribution::Rows; 3],
    transposed: [false; 2],
    factors: [1.0, 0.0],
    epilogue: Epilogue::None,
    schedule: None,
    panels: None,
    transport: Transport::Auto,
};

/// What the case must give, in f64, before it is rounded to C's type.
fn expected(case: &Case, a: &Matrix, b: &Matrix, c: &Matrix) -> Vec<f64> {
    let [m, n, k] = case.shape;
    let [alpha, beta] = case.factors.map(f64::from);
    let mut all = Vec::new();
    for row in 0..m {
        for col in 0..n {
            let sum: f64 = (0..k).map(|i| f64::from(a.at(row, i)) * f64::from(b.at(i, col))).sum();
            let value = alpha * sum + beta * f64::from(c.at(row, col));
            all.push(match case.epilogue {
                Epilogue::None => value,
                Epilogue::Bias => value + f64::from(bias(col)),
                Epilogue::ScaledRows => value * f64::from(scale(row)),
                Epilogue::Everything => {
                    let value = value * f64::from(scale(col)) + f64::from(bias(row));
                    value.max(0.0) + f64::from(residual(row, col))
                }
            });
        }
    }
    all
}

fn scale(i: usize) -> f32 {
    [1.0, 0.5, 2.0, -1.0][i % 4]
}

fn bias(i: usize) -> f32 {
    (i % 5) as f32 - 2.0
}

fn residual(row: usize, col: usize) -> f32 {
    ((3 * row + col) % 4) as f32
}

/// Runs a case on all ranks, and checks every bit of C on each.
fn check<T: Multiply, U: Multiply + OutputOf<T>>(case: Case)
where
    f32: OutputOf<T> + OutputOf<U>,
{
    check_with::<T, U>(case, |product| product);
}

fn check_with<T: Multiply, U: Multiply + OutputOf<T>>(
    case: Case,
    change: impl for<'m> Fn(Product<'m, T>) -> Product<'m, T> + Sync,
) where
    f32: OutputOf<T> + OutputOf<U>,
{
    let [m, n, k] = case.shape;
    let (a, b, c) = (integers(m, k, 1), integers(k, n, 2), integers(m, n, 3));
    let expected = expected(&case, &a, &b, &c);
    let (devices, transport) = match gpus() {
        Some((gpus, _)) if gpus.len() < case.ranks => return,
        Some((gpus, transport)) => (gpus[..case.ranks].to_vec(), transport),
        None => (devices(case.ranks), case.transport),
    };
    let settings = Settings { transport, ..Settings::default() };
    let results = on_every_rank(&devices, &settings, |world| {
        let stored = |whole: &Matrix, transposed: bool, distribution| {
            let stored = if transposed { whole.transposed() } else { whole.clone() };
            DistributedMatrix::<T>::from_host(world.clone(), &stored, distribution)
        };
        let [of_a, of_b, of_c] = case.distributions;
        let [trans_a, trans_b] = case.transposed;
        let (a, b) = (stored(&a, trans_a, of_a)?, stored(&b, trans_b, of_b)?);
        let mut c = DistributedMatrix::<U>::from_host(world.clone(), &c, of_c)?;
        let vector = |len: usize, of: fn(usize) -> f32| {
            let elements: Vec<_> = (0..len).map(of).collect();
            DeviceMatrix::from_slice(world.device(), [1, len], &elements)
        };
        let (rows_scale, cols_scale) = (vector(m, scale)?, vector(n, scale)?);
        let (rows_bias, cols_bias) = (vector(m, bias)?, vector(n, bias)?);
        let added = Matrix::from_fn(m, n, residual);
        let added = DistributedMatrix::<f32>::from_host(world.clone(), &added, of_c)?;
        let [alpha, beta] = case.factors;
        let product = match case.transposed {
            [false, false] => gemm(&a, &b),
            [true, false] => gemm(a.t(), &b),
            [false, true] => gemm(&a, b.t()),
            [true, true] => gemm(a.t(), b.t()),
        };
        let mut product = change(product.alpha(alpha).beta(beta));
        product = match case.epilogue {
            Epilogue::None => product,
            Epilogue::Bias => product.bias(&cols_bias),
            Epilogue::ScaledRows => product.scale(Axis::Row, &rows_scale),
            Epilogue::Everything => product
                .scale(Axis::Column, &cols_scale)
                .bias_along(Axis::Row, &rows_bias)
                .activation(Activation::Relu)
                .residual(&added),
        };
        if let Some(schedule) = case.schedule {
            product = product.schedule(schedule);
        }
        if let Some(panels) = case.panels {
            product = product.panels(panels);
        }
        product.run(&mut c)?;
        let first = c.to_host()?;
        assert_eq!(c.rows_to_host(m / 3..m)?.as_slice(), &first.as_slice()[m / 3 * n..]);
        Ok(first)
    });
    for (rank, result) in results.into_iter().enumerate() {
        let c = result.unwrap_or_else(|error| panic!("{case:?}: rank {rank}: {error}"));
        for (i, (found, exact)) in c.as_slice().iter().zip(&expected).enumerate() {
            let rounded = U::ELEMENT.round(*exact as f32);
            assert_eq!(*found, rounded, "{case:?}: rank {rank}, element {i}");
        }
    }
}

/// Every distribution of `ranks`.
fn distributions(ranks: usize) -> Vec<Distribution> {
    let mut all = vec![Distribution::Rows, Distribution::Columns, Distribution::Replicated];
    if ranks.is_multiple_of(2) {
        all.push(Distribution::Grid { rows: 2, cols: ranks / 2 });
    }
    all
}

/// All combinations, each with a shape, transposes, factors and an epilogue of its own.
fn combinations(ranks: usize) -> impl Iterator<Item = Case> {
    let shapes = [[5, 6, 7], [8, 8, 8], [1, 9, 3], [7, 1, 5], [16, 4, 33], [3, 3, 1], [2, 5, 40]];
    let factors = [[1.0, 0.0], [2.0, 1.0], [-1.0, 0.5], [0.0, 2.0]];
    let epilogues = [Epilogue::None, Epilogue::Everything, Epilogue::Bias, Epilogue::ScaledRows];
    let of = distributions(ranks);
    let triples = of.clone().into_iter().flat_map(move |a| {
        let of = of.clone();
        of.clone().into_iter().flat_map(move |b| of.clone().into_iter().map(move |c| [a, b, c]))
    });
    triples.enumerate().map(move |(i, distributions)| Case {
        ranks,
        shape: shapes[i % shapes.len()],
        distributions,
        transposed: [i % 2 == 1, i / 2 % 2 == 1],
        factors: factors[i / 3 % factors.len()],
        epilogue: epilogues[i % 5 % epilogues.len()],
        ..CASE
    })
}

#[test]
fn every_combination_of_distributions_in_f32() {
    for ranks in [1, 2, 3, 4, 6] {
        combinations(ranks).for_each(check::<f32, f32>);
    }
}

#[test]
fn every_combination_of_distributions_in_16_bits() {
    for case in combinations(4) {
        check::<bf16, bf16>(case);
        if case.shape[2] == 7 {
            check::<f16, f16>(case);
            check::<bf16, f32>(case);
        }
    }
}

#[test]
fn partial_sums_of_every_kind_are_added_once() {
    for ranks in [1, 2, 3] {
        for c in distributions(ranks) {
            for epilogue in
                [Epilogue::None, Epilogue::Bias, Epilogue::ScaledRows, Epilogue::Everything]
            {
                for panels in [1, 2, 3] {
                    let case = Case {
                        ranks,
                        shape: [7, 4, 11],
                        distributions: [Distribution::Columns, Distribution::Rows, c],
                        factors: [2.0, -1.0],
                        epilogue,
                        schedule: Some(Schedule::Reduce),
                        panels: Some(panels),
                        ..CASE
                    };
                    check::<f32, f32>(case);
                    check::<bf16, bf16>(case);
                }
            }
        }
    }
}

#[test]
fn few_rows_and_no_rows() {
    let [rows, columns] = [Distribution::Rows, Distribution::Columns];
    let triples = [[rows; 3], [columns, rows, rows], [rows, columns, columns]];
    for shape in [[1, 5, 2], [2, 1, 1], [0, 4, 4], [4, 0, 4], [4, 4, 0], [0, 0, 0], [3, 2, 2]] {
        for distributions in triples {
            for factors in [[1.0, 0.0], [1.0, 2.0]] {
                for epilogue in [Epilogue::None, Epilogue::Everything] {
                    let case = Case { ranks: 4, shape, distributions, factors, epilogue, ..CASE };
                    check::<f32, f32>(case);
                    check::<bf16, bf16>(case);
                    if distributions[0] == columns {
                        let schedule = Some(Schedule::Reduce);
                        check::<f32, f32>(Case { schedule, panels: Some(2), ..case });
                    }
                }
            }
        }
    }
}

#[test]
fn the_host_transports_the_same_bits() {
    for case in combinations(2) {
        check::<f32, f32>(Case { transport: Transport::Host, ..case });
    }
}

#[test]
fn f32_has_a_choice_of_arithmetic() {
    for precision in [Precision::Tf32, Precision::Tf32x3] {
        check_with::<f32, f32>(CASE, |product| product.precision(precision));
    }
}

#[test]
fn equal_calls_have_equal_bits() {
    // Sums that are not exact.
    let inexact = |rows: usize, cols: usize, seed: usize| {
        Matrix::from_fn(rows, cols, |row, col| 1.0 / (1 + (row * 31 + col * 17 + seed) % 97) as f32)
    };
    let (a, b) = (inexact(9, 50, 1), inexact(50, 6, 2));
    let run = || {
        let results = on_every_rank(&devices(3), &Settings::default(), |world| {
            let of = |whole: &Matrix, distribution| {
                DistributedMatrix::<f32>::from_host(world.clone(), whole, distribution)
            };
            let (a, b) = (of(&a, Distribution::Columns)?, of(&b, Distribution::Rows)?);
            let mut bits = Vec::new();
            for distribution in distributions(3) {
                for schedule in [Schedule::Gather, Schedule::Reduce] {
                    let mut c =
                        DistributedMatrix::<f32>::zeros(world.clone(), [9, 6], distribution)?;
                    gemm(&a, &b).schedule(schedule).run(&mut c)?;
                    bits.extend(c.to_host()?.as_slice().iter().map(|x| x.to_bits()));
                }
            }
            Ok(bits)
        });
        results.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    let first = run();
    assert!(first.iter().all(|bits| *bits == first[0]), "ranks differ");
    assert_eq!(run(), first);
}

#[test]
fn parts_come_from_devices() {
    let whole = integers(5, 4, 1);
    let results = on_every_rank(&devices(2), &Settings::default(), |world| {
        let [rows, _] = Distribution::Rows.part([5, 4], 2, world.rank());
        let part = Matrix::from_fn(rows.len(), 4, |row, col| whole.at(rows.start + row, col));
        let part = DeviceMatrix::<f32>::from_host(world.device(), &part)?;
        let matrix =
            DistributedMatrix::from_device(world.clone(), [5, 4], Distribution::Rows, part)?;
        let wrong = DeviceMatrix::<f32>::zeros(world.device(), [5, 4])?;
        let refused = DistributedMatrix::from_device(world, [5, 4], Distribution::Rows, wrong);
        assert!(matches!(refused, Err(Error::Unfit { what: "the part", .. })));
        matrix.to_host()
    });
    results.into_iter().for_each(|result| assert_eq!(result.unwrap(), whole));
}

#[test]
fn each_rank_reads_its_part_of_a_file() {
    let path = std::env::temp_dir().join(format!("distributed-{}.npy", std::process::id()));
    let whole = integers(7, 5, 1);
    let mut file = std::fs::File::create(&path).unwrap();
    cuda_gemm::npy::write_matrix(&whole, &mut file).unwrap();
    for distribution in distributions(4) {
        let results = on_every_rank(&devices(4), &Settings::default(), |world| {
            DistributedMatrix::<f32>::from_npy(world, &path, distribution)?.to_host()
        });
        results.into_iter().for_each(|result| assert_eq!(result.unwrap(), whole));
    }
    std::fs::remove_file(&path).unwrap();
}
