//! The contract at random: shapes, layouts and factors that nobody thought of.
//!
//! The cases are the same each time. `PROPTEST_RNG_SEED` draws others, and `PROPTEST_CASES` asks
//! for more. A failure is reduced to a small case, and the seed that leads there is printed.

use std::env;

use host::verify::Bound;
use host::{Gemm, Matrix};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::case::{Case, fits, kernels};
use crate::common::devices;

/// Cases if nobody asks for another number; each runs on every rung and device.
const CASES: u32 = 25;
/// What they are drawn from if nobody asks for others.
const SEED: u64 = 20_261_127;

/// A drawn product.
#[derive(Clone, Debug)]
struct Drawn {
    sizes: [usize; 3],
    /// Added to each row of A, B and C, in elements.
    padding: [usize; 3],
    /// In front of A, B and C, in elements.
    offsets: [usize; 3],
    alpha: f32,
    beta: f32,
    /// What comes after the last element; with nothing, reading on leaves the buffer.
    tail: usize,
    /// Rounds everything up to fours, so that 128-bit accesses are possible, but for one of
    /// the nine measures of `Drawn::case`; from 9 on, none is left out.
    aligned_but: Option<usize>,
    /// Small integers, for which every sum is exact.
    exact: bool,
    /// For kernels that can split K.
    splits: u32,
    /// Whether A and B are the transposes of the operands.
    transposed: [bool; 2],
    seed: u64,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let size = || prop_oneof![2 => 0..=9usize, 3 => 1..=70usize, 3 => 0..=300usize];
    // Halves and integers: exact products of exact sums.
    let factor = || prop::sample::select(vec![0.0f32, 1.0, -1.0, 0.5, -2.0, 1.5]);
    (
        [size(), size(), size()],
        [0..=9usize, 0..=9, 0..=9],
        [0..=3usize, 0..=3, 0..=3],
        (factor(), factor()),
        prop::sample::select(vec![0, 64]),
        (prop::option::of(0..=12usize), any::<bool>(), 1..=9u32),
        [prop::bool::weighted(0.3), prop::bool::weighted(0.3)],
        any::<u64>(),
    )
        .prop_map(|(sizes, padding, offsets, factors, tail, how, transposed, seed)| {
            let ((alpha, beta), (aligned_but, exact, splits)) = (factors, how);
            Drawn {
                sizes,
                padding,
                offsets,
                alpha,
                beta,
                tail,
                aligned_but,
                exact,
                splits,
                transposed,
                seed,
            }
        })
}

impl Drawn {
    fn case(&self) -> Case {
        let round = |which: usize, measure: usize| match self.aligned_but {
            Some(left_out) if left_out != which => measure.next_multiple_of(4),
            _ => measure,
        };
        let [m, n, k] = [0, 1, 2].map(|i| round(i, self.sizes[i]));
        let [a, b, c] = self.padding;
        let [trans_a, trans_b] = self.transposed;
        let gemm = Gemm::new(m, n, k).scaled(self.alpha, self.beta).transposed(trans_a, trans_b);
        let Gemm { lda, ldb, ldc, .. } = gemm;
        let gemm = gemm.leading_dimensions(round(3, lda + a), round(4, ldb + b), round(5, ldc + c));
        let offsets = [0, 1, 2].map(|i| round(6 + i, self.offsets[i]));
        let mut case = Case::new(gemm, |rows, cols, stream| {
            let mut matrix = Matrix::random(rows, cols, self.seed, stream);
            if self.exact {
                for value in matrix.as_mut_slice() {
                    *value = (*value * 8.0).round();
                }
            }
            matrix
        });
        case.margins = offsets.map(|offset| (offset, self.tail));
        case.splits = self.splits;
        case
    }
}

#[test]
fn random_products() {
    let seed = match env::var("PROPTEST_RNG_SEED") {
        Ok(seed) => seed.parse().expect("PROPTEST_RNG_SEED is a number"),
        Err(_) => SEED,
    };
    // The default has read `PROPTEST_CASES`, if it is set.
    let cases = match env::var_os("PROPTEST_CASES") {
        Some(_) => Config::default().cases,
        None => CASES,
    };
    let config = Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: 200,
        ..Config::default()
    };
    let devices = devices();
    let result = TestRunner::new(config).run(&drawn(), |drawn| {
        let case = drawn.case();
        // A fault ends the process's context: no smaller case can be tried after it, and none
        // must be blamed for it.
        if devices.iter().any(|device| device.synchronize().is_err()) {
            return Ok(());
        }
        for device in &devices {
            for descriptor in kernels(device) {
                if !drawn.exact || fits(device, descriptor, &case.gemm).is_err() {
                    case.assert_right(device, descriptor, Bound::Probabilistic);
                    continue;
                }
                let check = case.verify(&case.run(device, descriptor), Bound::Probabilistic);
                let error = check.largest.map_or(0.0, |largest| largest.error);
                assert!(
                    check.passed() && error == 0.0,
                    "{} on {}: {check:?}",
                    descriptor.name(),
                    device.info().name
                );
            }
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}\nPROPTEST_RNG_SEED={seed} PROPTEST_CASES={cases} repeats this");
    }
}
