//! What is done to the elements of a product.

/// What a vector has an element for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Each row of a matrix.
    Row,
    /// Each column.
    Column,
}

impl Axis {
    /// How many elements the vector has for a matrix of so many rows and columns.
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

/// A function of each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Relu, Self::Gelu, Self::GeluTanh, Self::Silu];

    /// As the command line and saved runs name it.
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
