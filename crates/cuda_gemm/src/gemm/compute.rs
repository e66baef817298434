//! In which precision a product is computed.

use std::fmt;
use std::str::FromStr;

use gemm_matrix::Element;
use kernels_gpu::abi::tensor_core::InputType;
use kernels_gpu::abi::{Arithmetic, KernelDescriptor};
use kernels_gpu::f32_kernels;

use crate::error::Error;

/// How the products of a [`Gemm`](crate::Gemm) are computed. Sums, alpha, beta and what an
/// [`Epilogue`](crate::Epilogue) reads are f32 in each of them.
///
/// It is the caller's choice. [`Auto::product`](crate::Auto::product) takes a kernel of what the product
/// says, but for products in TF32, or tf32x3, that FMAs of f32 compute faster, and no less accurately
/// ([`Auto::choose`](crate::Auto::choose)). A kernel that is chosen by hand is a choice, too: it computes in its own precision, which its name
/// says. With it a product may leave this at the default, `F32`; another that is not the kernel's is refused.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compute {
    /// FMAs of f32.
    #[default]
    F32,
    /// Tensor cores, with f32 split in two parts of TF32 each, to f32's accuracy.
    Tf32x3,
    /// Tensor cores, with f32 rounded to TF32, of 11 bits; by `auto` FMAs, where they are predicted to be as fast.
    Tf32,
    /// Tensor cores, of A and B in `bf16`, of 8 bits.
    Bf16,
    /// Tensor cores, of A and B in `f16`, of 11 bits.
    F16,
}

impl Compute {
    /// All of them.
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

    /// The type of A's and B's elements in memory.
    pub const fn element(self) -> Element {
        match self {
            Self::F32 | Self::Tf32x3 | Self::Tf32 => Element::F32,
            Self::Bf16 => Element::Bf16,
            Self::F16 => Element::F16,
        }
    }

    /// What the kernels for tensor cores take, if it is 16 bits.
    pub const fn input(self) -> Option<InputType> {
        match self {
            Self::F32 | Self::Tf32x3 | Self::Tf32 => None,
            Self::Bf16 => Some(InputType::Bf16),
            Self::F16 => Some(InputType::F16),
        }
    }

    /// The type that tensor cores take 16-bit inputs in.
    pub const fn of(input: InputType) -> Self {
        match input {
            InputType::Bf16 => Self::Bf16,
            InputType::F16 => Self::F16,
        }
    }

    /// The kernels for f32 matrices that compute so; for tensor cores those with the largest tiles first.
    pub fn f32_kernels(self) -> impl Iterator<Item = &'static KernelDescriptor> + Clone {
        f32_kernels().filter(move |kernel| Self::of_kernel(kernel) == self)
    }

    /// How a kernel for f32 matrices computes.
    pub const fn of_kernel(descriptor: &KernelDescriptor) -> Self {
        match descriptor.arithmetic() {
            Arithmetic::Fma => Self::F32,
            Arithmetic::Tf32 => Self::Tf32,
            Arithmetic::Tf32x3 => Self::Tf32x3,
        }
    }

    /// What a product is computed in by a kernel that was chosen by hand, which is for `own`: see
    /// [`Compute`].
    pub(crate) fn by_hand(self, kernel: &str, own: Self) -> Result<Self, Error> {
        if self == own || self == Self::F32 {
            return Ok(own);
        }
        let reason = format!(
            "{kernel} computes in {own}: say `.computed_in(Compute::{own:?})`, or have `Auto::product` \
             choose a kernel"
        );
        Err(self.refused(reason))
    }

    /// Refuses a C that is neither of f32 nor of the type of A and B.
    pub(super) fn expect_output(self, output: Element) -> Result<(), Error> {
        if output == Element::F32 || output == self.element() {
            return Ok(());
        }
        let reason = format!("C cannot be stored as {output}; store it as f32, or as A and B are");
        Err(self.refused(reason))
    }

    /// The error of a product in this precision.
    pub(crate) fn refused(self, reason: String) -> Error {
        Error::Compute { compute: self.name().to_owned(), reason }
    }
}

fn names(all: &[Compute]) -> String {
    all.iter().map(|compute| compute.name()).collect::<Vec<_>>().join(", ")
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
        found.ok_or_else(|| Error::Compute {
            compute: name.to_owned(),
            reason: format!("there is none of this name; there are {}", names(&Self::ALL)),
        })
    }
}
