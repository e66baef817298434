//! Places of matrices in memory.

use gemm_matrix::{Element, span};

use crate::error::Error;

/// The place of equally shaped matrices in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Placement {
    pub(crate) address: u64,
    pub(crate) element: Element,
    /// Stored rows and columns.
    pub(crate) shape: [usize; 2],
    pub(crate) ld: usize,
    /// The number of matrices, and elements from one to the next; 0 if all are the same.
    pub(crate) count: usize,
    pub(crate) stride: usize,
}

impl Placement {
    /// The address `elements` elements after the first.
    pub(super) fn offset(&self, elements: usize) -> u64 {
        let bytes = (self.element.bytes() as u64).wrapping_mul(elements as u64);
        // The address of an empty matrix is not used.
        self.address.wrapping_add(bytes)
    }
}

/// Whether a buffer of `len` elements has room for a matrix.
pub(super) fn expect_room(len: usize, [rows, cols]: [usize; 2], ld: usize) -> Result<(), Error> {
    if ld < cols {
        return Err(Error::LeadingDimension { what: "ld", ld, cols });
    }
    let needed = span(rows, cols, ld);
    if needed > len as u128 {
        return Err(Error::BufferTooShort { needed, len });
    }
    Ok(())
}
