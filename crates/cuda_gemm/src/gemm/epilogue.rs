//! What becomes of a sum before it is stored.

use std::fmt;

use gemm_matrix::{Activation, Axis};
use kernels_gpu::abi::epilogue::operations;

/// What a kernel does to each element of `alpha * op(A) * op(B) + beta * C` before it stores it, in this
/// order: `activation(value * scale + bias) + residual`, each only if there is one. It is done once,
/// to the final sum, whatever the splits.
///
/// The vectors and the residual are given with each call: [`Extras`](crate::Extras).
///
/// ```
/// use cuda_gemm::{Activation, Axis, Device, DeviceChoice, DeviceMatrix, Epilogue, Extras, Gemm, Matrix};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// // relu(A B + bias), with a bias for each column.
/// let epilogue = Epilogue::new().bias(Axis::Column).activation(Activation::Relu);
/// let gemm = Gemm::new(2, 3, 1).then(epilogue);
/// let linear = device.auto()?.prepare(gemm)?;
///
/// let on_device = |rows, cols, elements| {
///     DeviceMatrix::from_host(&device, &Matrix::from_vec(rows, cols, elements))
/// };
/// let a = on_device(2, 1, vec![1.0, 2.0])?;
/// let b = on_device(1, 3, vec![1.0, 2.0, 3.0])?;
/// let bias = on_device(1, 3, vec![0.0, -3.0, 1.0])?;
/// let mut c = DeviceMatrix::zeros(&device, 2, 3)?;
/// linear.enqueue_with(&a, &b, &mut c, Extras::new().bias(&bias))?;
/// assert_eq!(c.download()?.as_slice(), [1.0, 0.0, 4.0, 2.0, 1.0, 7.0]);
/// // The bias is missing.
/// assert!(linear.enqueue(&a, &b, &mut c).is_err());
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epilogue {
    /// A factor for each row, or for each column.
    pub scale: Option<Axis>,
    /// What is added to each row, or to each column.
    pub bias: Option<Axis>,
    /// A function of each element.
    pub activation: Option<Activation>,
    /// Whether a matrix of C's shape is added in the end.
    pub residual: bool,
}

impl Epilogue {
    /// Nothing is done.
    pub const fn new() -> Self {
        Self { scale: None, bias: None, activation: None, residual: false }
    }

    /// The same with a factor for each row, or for each column.
    #[must_use]
    pub const fn scale(self, axis: Axis) -> Self {
        Self { scale: Some(axis), ..self }
    }

    /// The same with a bias for each row, or for each column.
    #[must_use]
    pub const fn bias(self, axis: Axis) -> Self {
        Self { bias: Some(axis), ..self }
    }

    /// The same with a function of each element.
    #[must_use]
    pub const fn activation(self, activation: Activation) -> Self {
        Self { activation: Some(activation), ..self }
    }

    /// The same with a matrix that is added in the end.
    #[must_use]
    pub const fn residual(self) -> Self {
        Self { residual: true, ..self }
    }

    /// Whether nothing is done.
    pub const fn is_none(&self) -> bool {
        self.activation.is_none() && !self.reads()
    }

    /// Whether it reads anything.
    pub const fn reads(&self) -> bool {
        self.scale.is_some() || self.bias.is_some() || self.residual
    }

    /// As kernels take it.
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

/// In the order of what is done, as in `bias column, gelu`; nothing of it is `none`.
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
