//! The precision of a product.

use std::fmt;
use std::str::FromStr;

use gemm_matrix::Element;
use kernels_gpu::abi::{Arithmetic, KernelDescriptor};
use kernels_gpu::kernels;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The arithmetic of a [`Gemm`](crate::Gemm)'s multiplications.
///
/// Sums, alpha, beta and the inputs of an [`Epilogue`](crate::Epilogue) are always f32. The caller
/// chooses the precision. FMAs are at least as accurate as TF32 and tf32x3.
/// [`Auto::choose`](crate::Auto::choose) may use them for such a product: in TF32 if they are
/// predicted within 2 % of tensor cores, in tf32x3 if they are predicted to be faster.
///
/// ```
/// use cuda_gemm::{Compute, Element, Gemm};
///
/// let compute: Compute = "bf16".parse()?;
/// let gemm = Gemm::new(512, 256, 1024).computed_in(compute).stored_as(Element::Bf16);
/// gemm.validate()?;
/// assert_eq!((compute.name(), compute.element()), ("bf16", Element::Bf16));
/// // Two bytes for each element.
/// assert_eq!(gemm.bytes(), 2 * (512 * 1024 + 1024 * 256 + 512 * 256));
/// assert!(Gemm::new(1, 1, 1).stored_as(Element::F16).validate().is_err(), "f32 gives f32");
/// assert!("f64".parse::<Compute>().is_err());
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compute {
    /// FMAs on f32.
    #[default]
    F32,
    /// Tensor cores on f32 split in two TF32 parts, with f32's accuracy.
    Tf32x3,
    /// Tensor cores on f32 rounded to TF32, which has 11 significant bits.
    Tf32,
    /// Tensor cores on `bf16`, which has 8 significant bits.
    Bf16,
    /// Tensor cores on `f16`, which has 11 significant bits.
    F16,
}

impl Compute {
    /// All precisions.
    pub const ALL: [Self; 5] = [Self::F32, Self::Tf32x3, Self::Tf32, Self::Bf16, Self::F16];

    /// The name, as in `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32x3 => "tf32x3",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// The element type of A and B in memory.
    pub const fn element(self) -> Element {
        match self {
            Self::F32 | Self::Tf32x3 | Self::Tf32 => Element::F32,
            Self::Bf16 => Element::Bf16,
            Self::F16 => Element::F16,
        }
    }

    /// Whether A and B have elements of 16 bits.
    pub const fn is_16_bits(self) -> bool {
        matches!(self, Self::Bf16 | Self::F16)
    }

    /// Whether a kernel computes in this precision.
    pub fn is_of(self, kernel: &KernelDescriptor) -> bool {
        let own = Self::of_kernel(kernel);
        self == own || self.is_16_bits() && own.is_16_bits()
    }

    /// The kernels of this precision.
    pub fn kernels(self) -> impl Iterator<Item = &'static KernelDescriptor> + Clone {
        kernels().filter(move |kernel| self.is_of(kernel))
    }

    /// The precision of a kernel; `bf16` for a kernel of 16-bit operands, which also accepts `f16`.
    pub const fn of_kernel(kernel: &KernelDescriptor) -> Self {
        match kernel.arithmetic() {
            Arithmetic::Fma => Self::F32,
            Arithmetic::Tf32 => Self::Tf32,
            Arithmetic::Tf32x3 => Self::Tf32x3,
            Arithmetic::Bits16 => Self::Bf16,
        }
    }

    /// The precision in which a kernel computes this product: the kernel's own.
    ///
    /// The default, `F32`, accepts every precision of f32 matrices.
    pub(crate) fn with(self, kernel: &KernelDescriptor) -> Result<Self, Error> {
        let own = Self::of_kernel(kernel);
        if self.is_of(kernel) {
            return Ok(self);
        }
        if self == Self::F32 && own.element() == Element::F32 {
            return Ok(own);
        }
        let name = kernel.name();
        let reason = format!(
            "{name} computes in {own}: say `.computed_in(Compute::{own:?})`, or have `Auto::plan` \
             choose a kernel"
        );
        Err(self.refused(reason))
    }

    /// Refuses a C that is neither f32 nor of the type of A and B.
    pub(super) fn expect_output(self, output: Element) -> Result<(), Error> {
        if output == Element::F32 || output == self.element() {
            return Ok(());
        }
        let or = match self.element() {
            Element::F32 => format!(", or compute in {output}"),
            own => format!(" or {own}"),
        };
        let reason = format!("C cannot be stored as {output}; store it as f32{or}");
        Err(self.refused(reason))
    }

    /// An error about this precision.
    pub(crate) fn refused(self, reason: String) -> Error {
        Error::Compute { compute: self.name().to_owned(), reason }
    }
}

impl fmt::Display for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Compute {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|compute| compute.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            let reason = format!("there is none of this name; there are {names}");
            Error::Compute { compute: name.to_owned(), reason }
        })
    }
}
