//! Products in any precision, by whichever kernels compute in it.

use cust::memory::DevicePointer;

use super::builder::PlanBuilder;
use super::extras::{Extras, RawExtras};
use super::plan::Plan;
use super::tensor_core::{TensorCoreBuilder, TensorCorePlan};
use crate::error::Error;
use crate::gemm::Gemm;
use crate::matrix::{OperandMut, OperandRef};
use crate::stream::Stream;

/// How a product is prepared, in whichever precision it says: see
/// [`Auto::product`](crate::Auto::product).
#[derive(Debug)]
#[must_use]
pub enum ProductBuilder {
    /// By a kernel for f32.
    F32(PlanBuilder),
    /// By a kernel for tensor cores.
    TensorCore(TensorCoreBuilder),
}

impl ProductBuilder {
    /// The stream that the product goes to, of the kernel's device; its own one until told otherwise.
    /// A, B and C belong to the same stream.
    pub fn on(self, stream: &Stream) -> Self {
        match self {
            Self::F32(builder) => Self::F32(builder.on(stream)),
            Self::TensorCore(builder) => Self::TensorCore(builder.on(stream)),
        }
    }

    /// A and B may begin at any element, rather than on 16 bytes: see
    /// [`PlanBuilder::any_alignment`] and [`TensorCoreBuilder::any_alignment`].
    pub fn any_alignment(self) -> Self {
        match self {
            Self::F32(builder) => Self::F32(builder.any_alignment()),
            Self::TensorCore(builder) => Self::TensorCore(builder.any_alignment()),
        }
    }

    /// The name of the kernel.
    pub fn kernel_name(&self) -> &'static str {
        match self {
            Self::F32(builder) => builder.kernel().descriptor().name(),
            Self::TensorCore(builder) => builder.kernel().descriptor().name(),
        }
    }

    /// Checks the product, and loads every entry point that its calls may take.
    pub(crate) fn load(self) -> Result<(), Error> {
        match self {
            Self::F32(builder) => builder.load().map(drop),
            Self::TensorCore(builder) => builder.load().map(drop),
        }
    }

    /// Checks the product, and allocates the memory that it needs.
    ///
    /// # Errors
    ///
    /// Those of [`PlanBuilder::prepare`] or [`TensorCoreBuilder::prepare`].
    pub fn prepare(self) -> Result<Product, Error> {
        Ok(match self {
            Self::F32(builder) => Product::F32(builder.prepare()?),
            Self::TensorCore(builder) => Product::TensorCore(builder.prepare()?),
        })
    }
}

/// A product in whichever precision it says, checked: only the matrices are missing.
///
/// ```
/// use cuda_gemm::{
///     Activation, Axis, Compute, Device, DeviceChoice, DeviceHalfMatrix, DeviceMatrix, Element,
///     Epilogue, Extras, Gemm, InputType, Matrix,
/// };
///
/// let device = Device::open(DeviceChoice::SoftSm90)?;
/// // relu(A B^T + bias) in bf16.
/// let epilogue = Epilogue::new().bias(Axis::Column).activation(Activation::Relu);
/// let gemm = Gemm::new(2, 3, 1).transposed(false, true).then(epilogue);
/// let gemm = gemm.computed_in(Compute::Bf16).stored_as(Element::Bf16);
/// let linear = device.auto()?.product(gemm)?.prepare()?;
///
/// let half = |rows, cols, elements| {
///     DeviceHalfMatrix::from_host(&device, InputType::Bf16, &Matrix::from_vec(rows, cols, elements))
/// };
/// let (a, b) = (half(2, 1, vec![1.0, 2.0])?, half(3, 1, vec![1.0, 2.0, 3.0])?);
/// let bias = DeviceMatrix::from_host(&device, &Matrix::from_vec(1, 3, vec![0.0, -3.0, 1.0]))?;
/// let mut c = DeviceHalfMatrix::zeros(&device, InputType::Bf16, 2, 3)?;
/// linear.enqueue_with(&a, &b, &mut c, Extras::new().bias(&bias))?;
/// assert_eq!(c.download()?.as_slice(), [1.0, 0.0, 4.0, 2.0, 1.0, 7.0]);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Debug)]
pub enum Product {
    /// By a kernel for f32.
    F32(Plan),
    /// By a kernel for tensor cores.
    TensorCore(TensorCorePlan),
}

impl Product {
    /// The product.
    pub fn gemm(&self) -> &Gemm {
        match self {
            Self::F32(plan) => plan.launch_plan().gemm(),
            Self::TensorCore(plan) => plan.gemm(),
        }
    }

    /// The kernel's name.
    pub fn kernel_name(&self) -> &'static str {
        match self {
            Self::F32(plan) => plan.kernel().descriptor().name(),
            Self::TensorCore(plan) => plan.kernel().descriptor().name(),
        }
    }

    /// Parts of K that are summed over by blocks of their own; none for a kernel that cannot split K.
    pub fn splits(&self) -> Option<u32> {
        match self {
            Self::F32(plan) => {
                let can_split = plan.kernel().descriptor().abi().splits_k();
                can_split.then(|| plan.launch_plan().splits())
            }
            Self::TensorCore(plan) => plan.kernel().descriptor().splits().then(|| plan.splits()),
        }
    }

    /// Clusters that share the steps along K of all tiles, if there is not one for each tile: see
    /// [`TensorCorePlan::clusters`].
    pub fn clusters(&self) -> Option<u32> {
        match self {
            Self::F32(_) => None,
            Self::TensorCore(plan) => plan.clusters(),
        }
    }

    /// The stream that the product goes to.
    pub fn stream(&self) -> &Stream {
        match self {
            Self::F32(plan) => plan.stream(),
            Self::TensorCore(plan) => plan.stream(),
        }
    }

    /// Enqueues `C = alpha * op(A) * op(B) + beta * C` on the plan's stream: see [`Plan::enqueue`] and
    /// [`TensorCorePlan::enqueue`].
    ///
    /// # Errors
    ///
    /// As there, and [`Error::PlannedType`] for matrices of another type than the product's.
    pub fn enqueue<'m>(
        &self,
        a: impl Into<OperandRef<'m>>,
        b: impl Into<OperandRef<'m>>,
        c: impl Into<OperandMut<'m>>,
    ) -> Result<(), Error> {
        self.enqueue_with(a, b, c, Extras::new())
    }

    /// As [`Product::enqueue`], with what the product's epilogue reads, and alpha and beta in device
    /// memory.
    ///
    /// # Errors
    ///
    /// As there, and [`Error::Extras`] if something is missing, or was not prepared for.
    pub fn enqueue_with<'m>(
        &self,
        a: impl Into<OperandRef<'m>>,
        b: impl Into<OperandRef<'m>>,
        c: impl Into<OperandMut<'m>>,
        extras: Extras<'m>,
    ) -> Result<(), Error> {
        match self {
            Self::F32(plan) => {
                let (a, b) = (a.into().f32("A")?, b.into().f32("B")?);
                plan.enqueue_with(a, b, c.into().f32("C")?, extras)
            }
            Self::TensorCore(plan) => plan.enqueue_with(a, b, c, extras),
        }
    }

    /// Enqueues the product on bare addresses, with other factors than the plan's, of which each is 0 if and only if
    /// the plan's is.
    ///
    /// # Safety
    ///
    /// As for [`Plan::enqueue_raw_with`] or [`TensorCorePlan::enqueue_raw_with`].
    pub(crate) unsafe fn enqueue_scaled(
        &self,
        addresses: [u64; 3],
        extras: RawExtras,
        factors: [f32; 2],
    ) -> Result<(), Error> {
        match self {
            Self::F32(plan) => {
                let [a, b, c] = addresses.map(DevicePointer::from_raw);
                // SAFETY: the caller's contract.
                unsafe { plan.enqueue_scaled(a, b, c, extras, factors) }
            }
            // SAFETY: the caller's contract.
            Self::TensorCore(plan) => unsafe { plan.enqueue_scaled(addresses, extras, factors) },
        }
    }
}
