//! Operations on a sum before it is stored.

use std::fmt;

use gemm_matrix::{Activation, Axis};
use kernels_gpu::abi::epilogue::operations;

/// The operations on each element of `alpha * op(A) * op(B) + beta * C` before it is stored.
///
/// The order is `activation(value * scale + bias) + residual`, where each part is optional. The
/// epilogue runs once, on the final sum, whatever the splits.
///
/// Each call passes the vectors and the residual: [`Extras`](crate::Extras).
///
/// ```
/// use cuda_gemm::{
///     Activation, Axis, Device, DeviceChoice, DeviceMatrix, Epilogue, Extras, Gemm,
/// };
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// // relu(A B + bias), with a bias for each column.
/// let epilogue = Epilogue::new().bias(Axis::Column).activation(Activation::Relu);
/// let gemm = Gemm::new(2, 3, 1).then(epilogue);
/// let linear = device.auto()?.prepare(gemm)?;
///
/// let a = DeviceMatrix::from_slice(&device, [2, 1], &[1f32, 2.0])?;
/// let b = DeviceMatrix::from_slice(&device, [1, 3], &[1f32, 2.0, 3.0])?;
/// let bias = DeviceMatrix::from_slice(&device, [1, 3], &[0f32, -3.0, 1.0])?;
/// let mut c = DeviceMatrix::<f32>::zeros(&device, [2, 3])?;
/// linear.run_with(&a, &b, &mut c, Extras::new().bias(&bias))?;
/// assert_eq!(c.to_vec()?, [1.0, 0.0, 4.0, 2.0, 1.0, 7.0]);
/// // The bias is missing.
/// assert!(linear.run(&a, &b, &mut c).is_err());
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epilogue {
    /// A factor for each row or each column.
    pub scale: Option<Axis>,
    /// A summand for each row or each column.
    pub bias: Option<Axis>,
    /// A function applied to each element.
    pub activation: Option<Activation>,
    /// Whether a matrix of C's shape is added last.
    pub residual: bool,
}

impl Epilogue {
    /// An epilogue without operations.
    pub const fn new() -> Self {
        Self { scale: None, bias: None, activation: None, residual: false }
    }

    /// Adds a factor for each row or each column.
    #[must_use]
    pub const fn scale(self, axis: Axis) -> Self {
        Self { scale: Some(axis), ..self }
    }

    /// Adds a bias for each row or each column.
    #[must_use]
    pub const fn bias(self, axis: Axis) -> Self {
        Self { bias: Some(axis), ..self }
    }

    /// Adds a function applied to each element.
    #[must_use]
    pub const fn activation(self, activation: Activation) -> Self {
        Self { activation: Some(activation), ..self }
    }

    /// Adds a matrix that is summed last.
    #[must_use]
    pub const fn residual(self) -> Self {
        Self { residual: true, ..self }
    }

    /// Whether there are no operations.
    pub const fn is_none(&self) -> bool {
        self.activation.is_none() && !self.reads()
    }

    /// Whether the epilogue reads memory.
    pub const fn reads(&self) -> bool {
        self.scale.is_some() || self.bias.is_some() || self.residual
    }

    /// The operations as the kernel parameter.
    pub(crate) fn operations(&self) -> u32 {
        let axis = |axis: Option<Axis>, row, column| match axis {
            None => 0,
            Some(Axis::Row) => row,
            Some(Axis::Column) => column,
        };
        axis(self.scale, operations::SCALE_ROW, operations::SCALE_COLUMN)
            | axis(self.bias, operations::BIAS_ROW, operations::BIAS_COLUMN)
            | match self.activation {
                None => 0,
                Some(Activation::Relu) => operations::RELU,
                Some(Activation::Gelu) => operations::GELU,
                Some(Activation::GeluTanh) => operations::GELU_TANH,
                Some(Activation::Silu) => operations::SILU,
            }
            | if self.residual { operations::RESIDUAL } else { 0 }
    }
}

/// Lists the operations in order, as in `bias column, gelu`, or writes `none`.
impl fmt::Display for Epilogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axis = |what, axis: Option<Axis>| {
            axis.map(|axis| match axis {
                Axis::Row => format!("{what} row"),
                Axis::Column => format!("{what} column"),
            })
        };
        let parts = [
            axis("scale", self.scale),
            axis("bias", self.bias),
            self.activation.map(|activation| activation.name().to_owned()),
            self.residual.then(|| "residual".to_owned()),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "none" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}
