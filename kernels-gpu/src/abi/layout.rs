//! How the operands of a launch lie: the kernels' parameter `layout` is a sum of these.

/// A is behind an array of addresses, one
/// for each product of a batch.
pub const POINTERS_A: u32 = 1;
/// B is.
pub const POINTERS_B: u32 = 2;
/// C is.
pub const POINTERS_C: u32 = 4;
/// A lies as its transpose: k x m elements, with `lda >= m`.
pub const TRANSPOSED_A: u32 = 8;
/// B lies as its transpose: n x k elements, with `ldb >= k`.
pub const TRANSPOSED_B: u32 = 16;
/// C lies as its transpose: n x m elements, with `ldc >= m`.
pub const TRANSPOSED_C: u32 = 32;
