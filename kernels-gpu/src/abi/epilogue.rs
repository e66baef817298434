//! The epilogue of a launch, as the host passes it to a kernel.

/// The terms of [`Parameters::operations`].
pub mod operations {
    /// A factor for each row of C.
    pub const SCALE_ROW: u32 = 1;
    /// A factor for each column.
    pub const SCALE_COLUMN: u32 = 1 << 1;
    /// A bias for each row of C.
    pub const BIAS_ROW: u32 = 1 << 2;
    /// A bias for each column.
    pub const BIAS_COLUMN: u32 = 1 << 3;
    /// A matrix that is added last.
    pub const RESIDUAL: u32 = 1 << 4;
    /// Alpha and beta are read from device memory.
    pub const DEVICE_FACTORS: u32 = 1 << 5;
    /// K is 0, so the alpha in device memory does not matter.
    pub const NO_SUM: u32 = 1 << 6;
    /// The bits of the activation; at most one is set.
    pub const ACTIVATION: u32 = 7 << 8;
    /// `max(x, 0)`.
    pub const RELU: u32 = 1 << 8;
    /// `x / 2 * (1 + erf(x / sqrt(2)))`.
    pub const GELU: u32 = 2 << 8;
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
    pub const GELU_TANH: u32 = 3 << 8;
    /// `x / (1 + exp(-x))`.
    pub const SILU: u32 = 4 << 8;
}

/// The epilogue of a launch, one parameter of a kernel.
///
/// Inputs that [`operations`] does not name are not read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// The sum of the [`operations`]; 0 for none.
    pub operations: u32,
    /// The leading dimension of the residual.
    pub ld_residual: u32,
    /// Alpha, one element.
    pub alpha: *const f32,
    /// Beta, one element.
    pub beta: *const f32,
    /// One element per row or column of C.
    pub scale: *const f32,
    /// One element per row or column of C.
    pub bias: *const f32,
    /// A matrix of C's shape.
    pub residual: *const f32,
    /// Elements from one product's scale to the next.
    pub stride_scale: u64,
    /// Elements from one product's bias to the next.
    pub stride_bias: u64,
    /// Elements from one product's residual to the next.
    pub stride_residual: u64,
}
