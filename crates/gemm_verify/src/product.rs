//! Products in f64, on all cores, as references for results.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gemm_matrix::Matrix;
use matrixmultiply::dgemm;
use rayon::prelude::*;

/// The block sizes of a task: rows, columns, and the inner dimension.
///
/// Two f64 blocks stay in a core's cache.
const ROWS: usize = 256;
const COLS: usize = 1024;
const DEPTH: usize = 256;

/// The FMAs of this process's current reference, and those done. One reference is computed at a
/// time.
static TOTAL: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);

/// Progress of the current or last reference of this process: FMAs done, and all FMAs.
///
/// Several references at once mix the numbers up, so use it only for display.
///
/// ```
/// let (done, total) = gemm_verify::progress();
/// assert!(done <= total);
/// ```
pub fn progress() -> (u64, u64) {
    let total = TOTAL.load(Relaxed);
    (DONE.load(Relaxed).min(total), total)
}

/// Begins a reference of `fmas` FMAs.
pub(super) fn begin(fmas: u128) {
    DONE.store(0, Relaxed);
    TOTAL.store(u64::try_from(fmas).unwrap_or(u64::MAX), Relaxed);
}

/// `out = A * B` in f64, with A m x k, B k x n and `out` m x n, row-major.
///
/// A and B are functions that fill in a piece of a row: `a(row, col, piece)` sets `piece` to A's
/// elements from (row, col) on. So no matrix is converted to f64 as a whole.
pub(super) fn product(
    [m, n, k]: [usize; 3],
    a: impl Fn(usize, usize, &mut [f64]) + Sync,
    b: impl Fn(usize, usize, &mut [f64]) + Sync,
    out: &mut [f64],
) {
    assert_eq!(out.len(), m * n);
    if out.is_empty() {
        return;
    }
    // Several tasks per core, so that all end at about the same time.
    let rows = m.div_ceil(4 * rayon::current_num_threads()).clamp(16, ROWS);
    out.par_chunks_mut(rows * n).enumerate().for_each_init(
        || (vec![0.0; rows * DEPTH], vec![0.0; DEPTH * COLS.min(n)]),
        |(a_block, b_block), (task, panel)| {
            panel.fill(0.0);
            let row = task * rows;
            let mb = panel.len() / n;
            for k0 in (0..k).step_by(DEPTH) {
                let kb = DEPTH.min(k - k0);
                for (i, piece) in a_block.chunks_mut(kb).take(mb).enumerate() {
                    a(row + i, k0, piece);
                }
                for j0 in (0..n).step_by(COLS) {
                    let nb = COLS.min(n - j0);
                    for (i, piece) in b_block.chunks_mut(nb).take(kb).enumerate() {
                        b(k0 + i, j0, piece);
                    }
                    // SAFETY: the blocks hold mb x kb and kb x nb elements, row after row; the
                    // panel holds mb rows of n, and j0 + nb <= n.
                    unsafe {
                        dgemm(
                            mb,
                            kb,
                            nb,
                            1.0,
                            a_block.as_ptr(),
                            kb as isize,
                            1,
                            b_block.as_ptr(),
                            nb as isize,
                            1,
                            1.0,
                            panel.as_mut_ptr().add(j0),
                            n as isize,
                            1,
                        );
                    }
                }
                DONE.fetch_add((mb * kb) as u64 * n as u64, Relaxed);
            }
        },
    );
}

/// A piece of a matrix's row, for [`product`].
pub(super) fn piece(matrix: &Matrix) -> impl Fn(usize, usize, &mut [f64]) + Sync + '_ {
    |row, col, piece| {
        for (to, from) in piece.iter_mut().zip(&matrix.row(row)[col..]) {
            *to = f64::from(*from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_three_loops() {
        for [m, n, k] in [[1, 1, 1], [3, 5, 7], [300, 40, 600], [17, 1100, 3], [2, 3, 0], [0, 4, 4]]
        {
            let a = Matrix::random(m, k, 1, 1);
            let b = Matrix::random(k, n, 1, 2);
            let mut out = vec![f64::NAN; m * n];
            product([m, n, k], piece(&a), piece(&b), &mut out);
            for i in 0..m {
                for j in 0..n {
                    let expected: f64 =
                        (0..k).map(|l| f64::from(a.at(i, l)) * f64::from(b.at(l, j))).sum();
                    approx::assert_abs_diff_eq!(out[i * n + j], expected, epsilon = 1e-12);
                }
            }
        }
    }
}
