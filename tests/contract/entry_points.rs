//! 128-bit accesses: made exactly where every row is aligned.

use host::Gemm;
use host::kernels::abi::Unaligned;
use host::verify::Bound;

use crate::case::{Case, for_each_kernel};

/// What alignment depends on, in elements: where A, B and C begin, the distances between
/// their rows, n and k.
type Measures = [usize; 8];

const ALIGNED: Measures = [0, 4, 8, 64, 64, 64, 36, 20];

fn gemm([_, _, _, lda, ldb, ldc, n, k]: Measures) -> Gemm {
    Gemm::new(37, n, k).scaled(1.0, 0.5).leading_dimensions(lda, ldb, ldc)
}

/// Of which matrices each measure tells the alignment: A, B and C, as `Unaligned::vectorized` says.
const OF: [[bool; 3]; 8] = [
    [true, false, false],
    [false, true, false],
    [false, false, true],
    [true, false, false],
    [false, true, false],
    [false, false, true],
    [false, true, true],
    [true, false, false],
];

/// All measures aligned, and each of them off by 0 to 4; and the matrices that are aligned.
fn variations() -> impl Iterator<Item = (Measures, [bool; 3])> {
    (0..ALIGNED.len()).flat_map(|which| {
        (0..=4).map(move |by| {
            let mut measures = ALIGNED;
            measures[which] += by;
            (measures, OF[which].map(|is_its| !is_its || by % 4 == 0))
        })
    })
}

#[test]
fn wide_entry_points_are_chosen_exactly_where_they_work() {
    for_each_kernel(|device, descriptor| {
        let kernel = device.kernel(descriptor).unwrap();
        for (measures, aligned) in variations() {
            let prepared = kernel.prepare(gemm(measures)).unwrap();
            let addresses = [0, 1, 2].map(|i| 4 * measures[i] as u64);
            let expected = match descriptor.unaligned() {
                Some(Unaligned { name, vectorized: wide, .. })
                    if (0..3).any(|i| wide[i] && !aligned[i]) =>
                {
                    name
                }
                _ => descriptor.name(),
            };
            assert_eq!(prepared.entry_point(addresses), expected, "{measures:?}");
        }
    });
}

/// Nothing faults, and nothing is wrong, whichever is chosen.
#[test]
fn every_alignment_is_right() {
    for_each_kernel(|device, descriptor| {
        for (measures, _) in variations() {
            let mut case = Case::random(gemm(measures), 21);
            case.margins = [0, 1, 2].map(|i| (measures[i], 0));
            case.assert_right(device, descriptor, Bound::Probabilistic);
        }
    });
}
