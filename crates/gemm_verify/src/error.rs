//! The errors of a check.

/// The reason why a result cannot be compared with a reference.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A matrix whose shape does not fit the product.
    #[error(
        "{what} is {rows} x {cols}, and this product needs {need_rows} x {need_cols}; \
         pass a matrix of that shape"
    )]
    Shape {
        /// The matrix: `A`, `B`, `C` or the result.
        what: &'static str,
        /// Rows it has.
        rows: usize,
        /// Columns it has.
        cols: usize,
        /// Rows it should have.
        need_rows: usize,
        /// Columns it should have.
        need_cols: usize,
    },

    /// A dimension with which the elements of C overflow the counter.
    #[error("{what} is {value}, and the largest possible is {max}; use a smaller {what}")]
    TooLarge {
        /// The parameter's name: `m`, `lda`, ...
        what: &'static str,
        /// Its value.
        value: usize,
        /// The largest value accepted.
        max: usize,
    },
}
