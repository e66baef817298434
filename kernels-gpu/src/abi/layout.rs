//! The terms of the kernel parameter `layout`: the storage of a launch's operands.

/// A is an array of addresses, one per product of a batch.
pub const POINTERS_A: u32 = 1;
/// B is an array of addresses.
pub const POINTERS_B: u32 = 2;
/// C is an array of addresses.
pub const POINTERS_C: u32 = 4;
/// A is stored transposed: k x m elements, with `lda >= m`.
pub const TRANSPOSED_A: u32 = 8;
/// B is stored transposed: n x k elements, with `ldb >= k`.
pub const TRANSPOSED_B: u32 = 16;
/// C is stored transposed: n x m elements, with `ldc >= m`.
pub const TRANSPOSED_C: u32 = 32;
