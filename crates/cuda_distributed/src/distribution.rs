//! Which rank has which part of a matrix.

use std::fmt;
use std::ops::Range;

use crate::error::Error;

/// How a matrix is spread over the ranks.
///
/// Each dimension is cut into blocks of equal size, rounded up: the last blocks are smaller or
/// empty. The block in row `i` and column `j` of a grid belongs to rank `i * cols + j`.
///
/// ```
/// use cuda_distributed::Distribution;
///
/// // Ten rows on four ranks: 3, 3, 3 and 1.
/// assert_eq!(Distribution::Rows.part([10, 7], 4, 3), [9..10, 0..7]);
/// let grid = Distribution::Grid { rows: 2, cols: 2 };
/// assert_eq!(grid.part([10, 7], 4, 1), [0..5, 4..7]);
/// assert_eq!(Distribution::Replicated.part([10, 7], 4, 1), [0..10, 0..7]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Each rank has some rows.
    Rows,
    /// Each rank has some columns.
    Columns,
    /// Each rank has a block of a grid with one block per rank.
    Grid {
        /// Blocks along a column.
        rows: usize,
        /// Blocks along a row.
        cols: usize,
    },
    /// Each rank has the whole matrix.
    Replicated,
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows => f.write_str("by rows"),
            Self::Columns => f.write_str("by columns"),
            Self::Grid { rows, cols } => write!(f, "on a grid of {rows} x {cols}"),
            Self::Replicated => f.write_str("replicated"),
        }
    }
}

impl Distribution {
    /// The rows and columns of the part of `rank`, of a matrix of this shape on `size` ranks.
    ///
    /// # Panics
    ///
    /// Panics if a grid has no rows or no columns.
    pub fn part(self, shape: [usize; 2], size: usize, rank: usize) -> [Range<usize>; 2] {
        let grid = self.grid(size);
        let block = match self {
            Self::Replicated => [0, 0],
            _ => [rank / grid[1], rank % grid[1]],
        };
        [0, 1].map(|i| cut(shape[i], grid[i], block[i]))
    }

    /// Blocks along both dimensions.
    pub(crate) fn grid(self, size: usize) -> [usize; 2] {
        match self {
            Self::Rows => [size, 1],
            Self::Columns => [1, size],
            Self::Grid { rows, cols } => [rows, cols],
            Self::Replicated => [1, 1],
        }
    }

    /// Refuses a grid that does not have one block for each rank.
    pub(crate) fn expect_grid(self, size: usize) -> Result<(), Error> {
        let [rows, cols] = self.grid(size);
        if self == Self::Replicated || rows.checked_mul(cols) == Some(size) {
            return Ok(());
        }
        let reason = format!("{rows} x {cols} blocks are not one for each of {size} ranks");
        Err(Error::Unfit { what: "the grid", reason })
    }

    /// Rows and columns of the largest part.
    pub(crate) fn largest(self, shape: [usize; 2], size: usize) -> [usize; 2] {
        let grid = self.grid(size);
        [0, 1].map(|i| shape[i].div_ceil(grid[i]))
    }
}

/// Block `index` of `len` elements cut into `parts`.
pub(crate) fn cut(len: usize, parts: usize, index: usize) -> Range<usize> {
    let block = len.div_ceil(parts);
    (index * block).min(len)..((index + 1) * block).min(len)
}

/// The elements of both.
pub(crate) fn common(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// `range`, counted from `origin`.
pub(crate) fn within(range: &Range<usize>, origin: usize) -> Range<usize> {
    range.start - origin..range.end - origin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_matrix_once() {
        let grid = Distribution::Grid { rows: 2, cols: 3 };
        for shape in [[10, 7], [1, 1], [6, 0], [0, 0], [5, 100]] {
            for distribution in [Distribution::Rows, Distribution::Columns, grid] {
                let mut covered = vec![0; shape[0] * shape[1]];
                for rank in 0..6 {
                    let [rows, cols] = distribution.part(shape, 6, rank);
                    let most = distribution.largest(shape, 6);
                    assert!(rows.len() <= most[0] && cols.len() <= most[1]);
                    for row in rows {
                        cols.clone().for_each(|col| covered[row * shape[1] + col] += 1);
                    }
                }
                assert!(covered.iter().all(|count| *count == 1), "{distribution} {shape:?}");
            }
        }
        assert!(grid.expect_grid(6).is_ok() && grid.expect_grid(4).is_err());
    }
}
