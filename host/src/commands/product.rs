//! The options of a product, which several commands share.

use std::path::Path;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use host::{
    Activation, Axis, Compute, Element, Epilogue, Error, Gemm, Groups, MAX_DIMENSION, Shape, shape,
};

#[derive(Debug, clap::Args)]
pub struct ProductArgs {
    /// A lies transposed: K x M.
    #[arg(long)]
    pub trans_a: bool,

    /// B lies transposed: N x K.
    #[arg(long)]
    pub trans_b: bool,

    /// Products of a strided batch.
    ///
    /// In files the matrices lie one below the other. A B of K rows that is not transposed is
    /// shared.
    #[arg(long, value_name = "COUNT", default_value_t = 1, allow_negative_numbers = true,
          value_parser = batch)]
    pub batch: usize,

    /// Groups of rows of A and C, each with a B of its own: the rows of each, as in 128,0,37.
    ///
    /// They add up to M, and some may be 0. 8*128 is eight groups of 128 rows. For --compute bf16 and
    /// f16. In files the B lie one below the other.
    #[arg(long, value_name = "ROWS", allow_hyphen_values = true)]
    groups: Option<Groups>,

    /// The factor of the product.
    #[arg(long, default_value_t = 1.0, allow_hyphen_values = true, value_parser = factor)]
    pub alpha: f32,

    /// The factor of the old C; with 0 it is not read.
    ///
    /// A timed launch reads the C of the launch before.
    #[arg(long, default_value_t = 0.0, allow_hyphen_values = true, value_parser = factor)]
    pub beta: f32,

    /// The precision of products; sums, alpha and beta are f32.
    ///
    /// f32 uses FMAs, and tf32 where they are as fast; all others use tensor cores. tf32x3 splits
    /// f32 into two parts of TF32 and has f32's accuracy. tf32, bf16 and f16 round A and B.
    #[arg(long, value_name = "TYPE", default_value_t, value_parser = compute())]
    compute: Compute,

    /// The type of C: f32, or the type of A and B [default: f32].
    #[arg(long, value_name = "TYPE", value_parser = element())]
    output: Option<Element>,

    #[command(flatten)]
    epilogue: EpilogueArgs,
}

/// Ways to compute by their names, which shells complete.
fn compute() -> impl TypedValueParser<Value = Compute> {
    PossibleValuesParser::new(Compute::ALL.map(Compute::name)).try_map(|name| name.parse())
}

/// Types of elements by their names.
fn element() -> impl TypedValueParser<Value = Element> {
    let named = |name: String| Element::ALL.into_iter().find(|element| element.name() == name);
    PossibleValuesParser::new(Element::ALL.map(Element::name))
        .map(move |name| named(name).unwrap_or_default())
}

/// The epilogue, in this order: scale, bias, function, residual.
#[derive(Debug, clap::Args)]
pub struct EpilogueArgs {
    /// A function of each element, after scale and bias and before the store.
    ///
    /// auto, the tiles, the persistent kernels and most tensor-core kernels have it.
    #[arg(long, value_name = "FUNCTION", value_enum)]
    epilogue: Option<ActivationArg>,

    /// Multiply each row or column of the result by a random factor.
    #[arg(long, value_name = "AXIS", value_enum)]
    scale: Option<AxisArg>,

    /// Add a random bias to each row or column of the result.
    #[arg(long, value_name = "AXIS", value_enum)]
    bias: Option<AxisArg>,

    /// Add a random matrix to the result at the end.
    #[arg(long)]
    residual: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum ActivationArg {
    /// max(x, 0)
    Relu,
    /// x / 2 * (1 + erf(x / sqrt(2)))
    Gelu,
    /// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
    GeluTanh,
    /// x / (1 + exp(-x))
    Silu,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum AxisArg {
    /// One element for each row.
    Row,
    /// One element for each column.
    Column,
}

impl AxisArg {
    fn axis(self) -> Axis {
        match self {
            Self::Row => Axis::Row,
            Self::Column => Axis::Column,
        }
    }
}

impl ProductArgs {
    /// What is done to each element.
    pub fn epilogue(&self) -> Epilogue {
        let EpilogueArgs { epilogue, scale, bias, residual } = self.epilogue;
        Epilogue {
            scale: scale.map(AxisArg::axis),
            bias: bias.map(AxisArg::axis),
            activation: epilogue.map(|function| match function {
                ActivationArg::Relu => Activation::Relu,
                ActivationArg::Gelu => Activation::Gelu,
                ActivationArg::GeluTanh => Activation::GeluTanh,
                ActivationArg::Silu => Activation::Silu,
            }),
            residual,
        }
    }

    /// Adds the options to a product that has its shape, except the groups.
    pub fn apply(&self, gemm: Gemm) -> Gemm {
        let gemm = gemm.scaled(self.alpha, self.beta).then(self.epilogue());
        gemm.computed_in(self.compute()).stored_as(self.output.unwrap_or_default())
    }

    /// The product with all options, groups among them.
    ///
    /// # Errors
    ///
    /// Those of [`Groups::of`] and [`Gemm::validate`].
    pub fn grouped(&self, gemm: Gemm) -> Result<Gemm, Error> {
        let gemm = self.groups().of(self.apply(gemm))?;
        gemm.validate()?;
        Ok(gemm)
    }

    /// The groups that were asked for.
    pub fn groups(&self) -> Groups {
        self.groups.clone().unwrap_or_default()
    }

    /// Whether nothing was asked for.
    pub fn is_default(&self) -> bool {
        let shape = Shape::square(1);
        let is_plain = self.groups.is_none() && self.shape(shape) == shape;
        is_plain && self.apply(shape.gemm()) == shape.gemm()
    }

    /// How products are computed.
    pub fn compute(&self) -> Compute {
        self.compute
    }

    /// A shape with what the options add to it.
    pub fn shape(&self, shape: Shape) -> Shape {
        Shape {
            trans_a: shape.trans_a || self.trans_a,
            trans_b: shape.trans_b || self.trans_b,
            batch: if shape.batch == 1 { self.batch } else { shape.batch },
            ..shape
        }
    }
}

/// The shapes that are named, and those in a file.
///
/// # Errors
///
/// Those of [`shape::read`].
pub fn shapes(named: &[Shape], file: Option<&Path>) -> Result<Vec<Shape>, Error> {
    let mut shapes = named.to_vec();
    if let Some(file) = file {
        shapes.extend(shape::read(file)?);
    }
    Ok(shapes)
}

/// A number of products.
fn batch(text: &str) -> Result<usize, String> {
    match size(text) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(format!("a batch has 1 product or more, at most {MAX_DIMENSION}")),
    }
}

/// Alpha or beta.
fn factor(text: &str) -> Result<f32, String> {
    let number = "a factor is a number, as in 2, -0.5 or 1e-3";
    let factor: f32 = text.parse().map_err(|_| number.to_owned())?;
    let exact: f64 = text.parse().map_err(|_| number.to_owned())?;
    if factor == 0.0 && exact != 0.0 {
        return Err(format!("a factor is f32, in which {text} is 0; scale the matrices instead"));
    }
    if factor.is_infinite() && exact.is_finite() {
        return Err(format!(
            "a factor is f32, which ends at 3.4e38; scale the matrices instead of {text}"
        ));
    }
    Ok(factor)
}

/// A seed of random numbers.
pub fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number of 0 or more, at most {}", u64::MAX))
}

/// A number of rows or columns.
pub fn size(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size| *size <= MAX_DIMENSION);
    size.ok_or_else(|| format!("a size is a whole number of 0 or more, at most {MAX_DIMENSION}"))
}
