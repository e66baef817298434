//! Operations on the elements of a product.

/// The dimension for which a vector has one element each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Axis {
    /// One element per row of a matrix.
    Row,
    /// One element per column.
    Column,
}

impl Axis {
    /// The number of elements for a matrix of `rows` x `cols`.
    ///
    /// ```
    /// use gemm_matrix::Axis;
    ///
    /// assert_eq!([Axis::Row, Axis::Column].map(|axis| axis.len(3, 5)), [3, 5]);
    /// ```
    pub const fn len(self, rows: usize, cols: usize) -> usize {
        match self {
            Self::Row => rows,
            Self::Column => cols,
        }
    }
}

/// A function applied to each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `x / 2 * (1 + erf(x / sqrt(2)))`.
    Gelu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
    GeluTanh,
    /// `x / (1 + exp(-x))`.
    Silu,
}

impl Activation {
    /// All activations.
    pub const ALL: [Self; 4] = [Self::Relu, Self::Gelu, Self::GeluTanh, Self::Silu];

    /// The name on the command line and in saved runs.
    ///
    /// ```
    /// use gemm_matrix::Activation;
    ///
    /// assert_eq!(Activation::ALL.map(Activation::name), ["relu", "gelu", "gelu_tanh", "silu"]);
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_tanh",
            Self::Silu => "silu",
        }
    }
}
