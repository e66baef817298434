//! What runs: a kernel, the one that `auto` chooses, all of the ladder, cuBLAS.

use std::sync::Arc;

use cuda_gemm::kernels::{
    KernelAbi, KernelDescriptor, LADDER, TENSOR_CORE, TENSOR_CORE_LADDER, TensorCoreDescriptor,
};
use cuda_gemm::{
    Auto, Compute, Device, Error as GemmError, Extras, Gemm, InputType, Kernel, OperandMut,
    OperandRef, Plan, PlanBuilder, Product, Table, TensorCorePlan, auto, find_kernel, nearest_name,
};

use crate::cublas::{Cublas, CublasProduct};
use crate::cublas_fastest::CublasFastest;
use crate::error::Error;

/// The names of the baseline, and of everything.
const CUBLAS: &str = "cublas";
const ALL: &str = "all";

/// Which kernels are meant.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, Matrix};
/// use gemm_bench::Selection;
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let gemm = Gemm::new(2, 2, 2);
/// let ones = DeviceMatrix::from_host(&device, &Matrix::from_vec(2, 2, vec![1.0; 4]))?;
/// for loaded in Selection::parse("auto")?.load(&device, None)? {
///     let candidate = loaded.prepare(gemm, 1, false, Selection::Auto)?;
///     println!("auto takes {}", candidate.title.choice().unwrap_or_default());
///     let mut c = DeviceMatrix::zeros(&device, 2, 2)?;
///     candidate.job.expect("it runs").enqueue(&ones, &ones, &mut c)?;
///     assert_eq!(c.download()?.as_slice(), [2.0; 4]);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub enum Selection {
    /// The ladder, the choice, and cuBLAS.
    All,
    /// What is fastest for each product.
    Auto,
    /// The baseline.
    Cublas,
    /// A rung of the ladder, or a tile.
    Rung(&'static KernelDescriptor),
    /// A kernel for tensor cores.
    TensorCore(&'static TensorCoreDescriptor),
    /// The kernels for tensor cores of 16-bit matrices, the choice, and cuBLAS.
    AllTensorCore,
    /// Those of f32 matrices that compute in some precision, the choice, and cuBLAS.
    AllTf32(Compute),
}

impl Selection {
    /// What a name stands for: `all`, `auto`, `cublas`, or a kernel's own.
    ///
    /// # Errors
    ///
    /// [`GemmError::UnknownKernel`].
    pub fn parse(name: &str) -> Result<Self, Error> {
        match name {
            ALL => Ok(Self::All),
            auto::NAME => Ok(Self::Auto),
            CUBLAS => Ok(Self::Cublas),
            name => {
                let tensor_core = TENSOR_CORE.iter().find(|kernel| kernel.name() == name);
                if let Some(kernel) = tensor_core {
                    return Ok(Self::TensorCore(kernel));
                }
                find_kernel(name).map(Self::Rung).map_err(|error| match error {
                    GemmError::UnknownKernel { name, mut known, .. } => {
                        known.extend(TENSOR_CORE.iter().map(|kernel| kernel.name()));
                        known.extend([auto::NAME, CUBLAS, ALL]);
                        let nearest = nearest_name(&name, &known);
                        GemmError::UnknownKernel { name, nearest, known }.into()
                    }
                    error => error.into(),
                })
            }
        }
    }

    /// The same for a product in some precision: all are the kernels that compute in it.
    ///
    /// ```
    /// use cuda_gemm::Compute;
    /// use gemm_bench::Selection;
    ///
    /// let all = Selection::parse("all")?.computing(Compute::F16)?;
    /// assert!(all.rungs().iter().all(|one| one.computing(Compute::F16).is_ok()));
    /// assert!(Selection::parse("naive")?.computing(Compute::F16).is_err());
    /// assert!(Selection::parse("wgmma")?.computing(Compute::F32).is_err());
    /// # Ok::<(), gemm_bench::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`GemmError::Compute`] for a precision that there are no kernels for, or that this one does not
    /// compute in.
    pub fn computing(self, compute: Compute) -> Result<Self, Error> {
        let is_half = compute.input().is_some();
        let refused = |kernel: &str, others: &str| {
            let reason = format!(
                "{kernel} does not compute in it; it is for {others}, which must be asked for"
            );
            Err(GemmError::Compute { compute: compute.name().to_owned(), reason }.into())
        };
        match self {
            Self::All if is_half => Ok(Self::AllTensorCore),
            Self::All if compute != Compute::F32 => Ok(Self::AllTf32(compute)),
            Self::Rung(kernel) if Compute::of_kernel(kernel) != compute => {
                refused(kernel.name(), Compute::of_kernel(kernel).name())
            }
            Self::TensorCore(kernel) if !is_half => refused(kernel.name(), "bf16 and f16"),
            one => Ok(one),
        }
    }

    /// What it stands for, one by one; all are the ladder and the choice, without cuBLAS.
    pub fn rungs(self) -> Vec<Self> {
        match self {
            Self::All => LADDER.iter().copied().map(Self::Rung).chain([Self::Auto]).collect(),
            Self::AllTensorCore => {
                TENSOR_CORE.iter().copied().map(Self::TensorCore).chain([Self::Auto]).collect()
            }
            Self::AllTf32(compute) => {
                let kernels = compute.tf32_kernels().iter().copied();
                kernels.map(Self::Rung).chain([Self::Auto]).collect()
            }
            one => vec![one],
        }
    }

    /// Whether it stands for several results.
    pub fn is_several(self) -> bool {
        matches!(self, Self::All | Self::AllTensorCore | Self::AllTf32(_))
    }

    /// Whether it is everything in f32.
    pub fn is_all(self) -> bool {
        matches!(self, Self::All)
    }

    /// Loads what was asked for. Where that is everything, what cannot run says why. `table` is
    /// what `auto` goes by, if not by the one that is built in.
    ///
    /// # Errors
    ///
    /// Those of [`Device::kernel`], [`Device::auto_by`] and [`Cublas::open`].
    pub fn load(self, device: &Device, table: Option<&Table>) -> Result<Vec<Loaded>, Error> {
        self.load_among(device, self, table)
    }

    /// As [`Selection::load`], where this is one of several that `among` stands for.
    ///
    /// # Errors
    ///
    /// As for [`Selection::load`].
    pub fn load_among(
        self,
        device: &Device,
        among: Self,
        table: Option<&Table>,
    ) -> Result<Vec<Loaded>, Error> {
        let descriptors = match &self {
            Self::All => LADDER,
            Self::Auto | Self::Cublas | Self::TensorCore(_) | Self::AllTensorCore => &[],
            Self::Rung(descriptor) => std::slice::from_ref(descriptor),
            Self::AllTf32(compute) => compute.tf32_kernels(),
        };
        let rungs = descriptors.iter().map(|descriptor| {
            let place = LADDER.iter().position(|other| other.name() == descriptor.name());
            (
                descriptor.name(),
                place,
                device.kernel(descriptor).map(Code::Rung).map_err(Error::from),
            )
        });
        let mut wanted: Vec<_> = rungs.collect();
        let tensor_core = match &self {
            Self::AllTensorCore => TENSOR_CORE,
            Self::TensorCore(descriptor) => std::slice::from_ref(descriptor),
            Self::All | Self::Auto | Self::Cublas | Self::Rung(_) | Self::AllTf32(_) => &[],
        };
        wanted.extend(tensor_core.iter().map(|descriptor| {
            let code = Code::TensorCore(device.clone(), descriptor);
            let mut ladder = TENSOR_CORE_LADDER.iter();
            let place = ladder.position(|other| other.name() == descriptor.name());
            (descriptor.name(), place, Ok(code))
        }));
        if self.is_several() || matches!(self, Self::Auto) {
            let auto = table.map_or_else(|| device.auto(), |table| device.auto_by(table));
            wanted.push((auto::NAME, None, auto.map(Code::Auto).map_err(Error::from)));
        }
        if self.is_several() || matches!(self, Self::Cublas) {
            wanted.push((CUBLAS, None, Cublas::open(device).map(Code::Cublas)));
        }
        let loaded = wanted.into_iter().map(|(name, place, code)| {
            let rung = place.map(|place| place + 1);
            Ok(Loaded { name, rung, code: among.tolerate(code)?, any_alignment: false })
        });
        loaded.collect()
    }

    /// Where everything was asked for, turns what a rung or cuBLAS refuses into a reason.
    fn tolerate<T>(
        self,
        result: Result<T, impl Into<Error>>,
    ) -> Result<Result<T, Arc<Error>>, Error> {
        let is_tolerable = |error: &Error| match error {
            Error::Gemm(error) => matches!(
                error,
                GemmError::SharedMemory { .. }
                    | GemmError::DeviceMemory { .. }
                    | GemmError::NotInPtx { .. }
                    | GemmError::NeedsHopper { .. }
                    | GemmError::NeedsTensorMaps { .. }
                    | GemmError::TensorCoreShape { .. }
                    | GemmError::Unsuited { .. }
            ),
            error => error.is_of_cublas(),
        };
        match result.map_err(Into::into) {
            Ok(value) => Ok(Ok(value)),
            Err(error) if self.is_several() && is_tolerable(&error) => Ok(Err(Arc::new(error))),
            Err(error) => Err(error),
        }
    }
}

/// Something that runs, on a device; [`Selection::load`] makes it.
pub struct Loaded {
    name: &'static str,
    rung: Option<usize>,
    code: Result<Code, Arc<Error>>,
    any_alignment: bool,
}

enum Code {
    Rung(Kernel),
    Auto(Auto),
    Cublas(Cublas),
    TensorCore(Device, &'static TensorCoreDescriptor),
}

impl Loaded {
    /// For matrices that begin at any element: see [`PlanBuilder::any_alignment`].
    #[must_use]
    pub fn any_alignment(self) -> Self {
        Self { any_alignment: true, ..self }
    }

    fn aligned(&self, plan: PlanBuilder) -> PlanBuilder {
        if self.any_alignment { plan.any_alignment() } else { plan }
    }

    fn tensor_core(
        &self,
        device: &Device,
        descriptor: &'static TensorCoreDescriptor,
        gemm: Gemm,
    ) -> Result<Job, Error> {
        let Some(input) = gemm.compute.input() else {
            let reason = format!("{} does not compute in it", descriptor.name());
            let compute = gemm.compute.name().to_owned();
            return Err(GemmError::Compute { compute, reason }.into());
        };
        let plan = device.tensor_core(descriptor, input)?.plan(gemm);
        let plan = if self.any_alignment { plan.any_alignment() } else { plan };
        Ok(Job::TensorCore(Box::new(plan.prepare()?)))
    }

    /// Checks a product, with K in so many splits, or fewer where K has fewer steps, and A and B
    /// copied first if `staged`, against it; `auto` makes up its own mind about both. Where `choice` is everything, what is refused
    /// is in the candidate.
    ///
    /// # Errors
    ///
    /// Those of [`PlanBuilder::prepare`] and [`Cublas::prepare`].
    pub fn prepare(
        &self,
        gemm: Gemm,
        asked_splits: u32,
        mut staged: bool,
        choice: Selection,
    ) -> Result<Candidate, Error> {
        let mut chosen = None;
        let job = match &self.code {
            Ok(Code::Rung(kernel)) => {
                let plan = kernel.plan(gemm).splits(asked_splits).staged(staged);
                choice.tolerate(self.aligned(plan).prepare().map(Job::rung))?
            }
            Ok(Code::Auto(auto)) if gemm.compute.input().is_none() => {
                let fastest = auto.choose(&gemm)?;
                (chosen, staged) = (Some(fastest.descriptor), fastest.staged);
                let plan = auto.plan_choice(gemm, fastest);
                let prepared = plan.and_then(|plan| self.aligned(plan).prepare());
                choice.tolerate(prepared.map(Job::rung))?
            }
            Ok(Code::Auto(auto)) => {
                let prepared = auto.product(gemm).and_then(|builder| match self.any_alignment {
                    true => builder.any_alignment().prepare(),
                    false => builder.prepare(),
                });
                choice.tolerate(prepared.map(Job::product))?
            }
            Ok(Code::Cublas(cublas)) => choice.tolerate(match CublasFastest::is_for(&gemm) {
                false => cublas.prepare(gemm).map(Job::Cublas),
                true => {
                    CublasFastest::new(cublas, gemm).map(|one| Job::CublasFastest(Box::new(one)))
                }
            })?,
            Ok(Code::TensorCore(device, descriptor)) => {
                choice.tolerate(self.tensor_core(device, descriptor, gemm))?
            }
            Err(reason) => Err(Arc::clone(reason)),
        };
        let descriptor = match &self.code {
            Ok(Code::Rung(kernel)) => Some(kernel.descriptor()),
            _ => chosen,
        };
        let splits = match (&job, descriptor) {
            (Ok(Job::Rung(prepared)), Some(descriptor))
                if descriptor.abi() == KernelAbi::SplitK =>
            {
                Some(prepared.launch_plan().splits())
            }
            _ => None,
        };
        let chosen = match (&job, &self.code) {
            (Ok(Job::TensorCore(plan)), Ok(Code::Auto(_))) => {
                Some(plan.kernel().descriptor().name())
            }
            _ => chosen.map(|descriptor| descriptor.name()),
        };
        let Self { name, rung, .. } = *self;
        Ok(Candidate { title: Title { name, rung, chosen, splits, asked_splits, staged }, job })
    }

    /// The version, as in `12.8.5`, of a cuBLAS that was loaded; `None` for all else.
    pub fn cublas_version(&self) -> Option<&str> {
        match &self.code {
            Ok(Code::Cublas(cublas)) => Some(cublas.version()),
            _ => None,
        }
    }
}

/// What a row of a report is about.
///
/// ```
/// use gemm_bench::Title;
///
/// let chosen = Some("tile_64x64");
/// let title = Title { name: "auto", chosen, splits: Some(4), ..Title::default() };
/// assert_eq!(title.choice().as_deref(), Some("tile_64x64 in 4 splits"));
/// assert!(!title.is_cublas());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Title {
    /// The kernel's name, `auto` or `cublas`.
    pub name: &'static str,
    /// The place in the ladder, from 1; none for what is not in it.
    pub rung: Option<usize>,
    /// The kernel that `auto` chose.
    pub chosen: Option<&'static str>,
    /// Blocks that share each tile of C; none for a kernel that cannot split K.
    pub splits: Option<u32>,
    /// How many were asked for, which are more where K has fewer steps.
    pub asked_splits: u32,
    /// Whether A and B are copied first, as `auto` chose or was asked for.
    pub staged: bool,
}

impl Title {
    /// Whether it is the baseline.
    pub fn is_cublas(&self) -> bool {
        self.name == CUBLAS
    }

    /// What `auto` chose, in words; `None` for all else.
    pub fn choice(&self) -> Option<String> {
        let splits = self.splits.filter(|splits| *splits > 1);
        let splits = splits.map(|splits| format!(" in {splits} splits")).unwrap_or_default();
        let staged = if self.staged { ", staged" } else { "" };
        self.chosen.map(|name| format!("{name}{splits}{staged}"))
    }
}

/// One row of a report, before it has run: a kernel for a product, from [`Loaded::prepare`].
pub struct Candidate {
    /// What it is.
    pub title: Title,
    /// What runs; why not, if it cannot.
    pub job: Result<Job, Arc<Error>>,
}

/// A product that has been checked, and needs only the matrices; [`RotatingBuffers`] has an
/// example.
///
/// [`RotatingBuffers`]: crate::RotatingBuffers
pub enum Job {
    /// By a kernel of this library.
    Rung(Box<Plan>),
    /// By cuBLAS.
    Cublas(CublasProduct),
    /// By a kernel for tensor cores.
    TensorCore(Box<TensorCorePlan>),
    /// By the fastest that cuBLAS has.
    CublasFastest(Box<CublasFastest>),
}

impl Job {
    /// A product that a kernel of this library computes.
    pub fn rung(prepared: Plan) -> Self {
        Self::Rung(Box::new(prepared))
    }

    /// A product that a kernel of this library computes, in any precision.
    pub fn product(prepared: Product) -> Self {
        match prepared {
            Product::F32(plan) => Self::rung(plan),
            Product::TensorCore(plan) => Self::TensorCore(Box::new(plan)),
        }
    }

    /// The product.
    pub fn gemm(&self) -> &Gemm {
        match self {
            Self::Rung(plan) => plan.launch_plan().gemm(),
            Self::Cublas(product) => product.gemm(),
            Self::TensorCore(plan) => plan.gemm(),
            Self::CublasFastest(product) => product.gemm(),
        }
    }

    /// Which of several was the fastest that cuBLAS has, in words, once it has run.
    pub fn chosen_by_cublas(&self) -> Option<String> {
        match self {
            Self::CublasFastest(product) => product.chosen(),
            Self::Rung(_) | Self::Cublas(_) | Self::TensorCore(_) => None,
        }
    }

    /// Enqueues the product on the device's stream, and returns at once. The matrices have its
    /// [`shapes`](crate::operands::shapes) and [types](crate::operands::elements).
    ///
    /// # Errors
    ///
    /// Those of [`Plan::enqueue`], [`TensorCorePlan::enqueue`] or [`CublasProduct::enqueue`];
    /// [`GemmError::PlannedType`] for matrices of another type.
    pub fn enqueue<'m>(
        &self,
        a: impl Into<OperandRef<'m>>,
        b: impl Into<OperandRef<'m>>,
        c: impl Into<OperandMut<'m>>,
    ) -> Result<(), Error> {
        self.enqueue_with(a, b, c, Extras::new())
    }

    /// As [`Job::enqueue`], with what the product's epilogue reads.
    ///
    /// # Errors
    ///
    /// As there, and those of [`Plan::enqueue_with`].
    pub fn enqueue_with<'m>(
        &self,
        a: impl Into<OperandRef<'m>>,
        b: impl Into<OperandRef<'m>>,
        c: impl Into<OperandMut<'m>>,
        extras: Extras<'m>,
    ) -> Result<(), Error> {
        let (a, b, c) = (a.into(), b.into(), c.into());
        let (batch, [[rows_a, _], [rows_b, _], _]) = (self.gemm().batch, self.gemm().shapes());
        // Matrices of a batch lie one below the other, or one is for all.
        let operand = |matrix: OperandRef<'m>, rows| match batch {
            1 => Ok(matrix),
            _ if matrix.rows() == rows => Ok(matrix.broadcast(batch)),
            _ => matrix.split_rows(batch),
        };
        let (a, b) = (operand(a, rows_a)?, operand(b, rows_b)?);
        let c = if batch == 1 { c } else { c.split_rows(batch)? };
        let of_f32 = |operand| match operand {
            OperandRef::F32(batch) => Ok(batch),
            OperandRef::Half(half) => Err(not_f32(half.input())),
        };
        match (self, c) {
            (Self::TensorCore(plan), c) => Ok(plan.enqueue_with(a, b, c, extras)?),
            (Self::CublasFastest(product), c) => product.enqueue_with(a, b, c, extras),
            (_, OperandMut::Half(c)) => Err(not_f32(c.view().input())),
            (Self::Rung(plan), OperandMut::F32(c)) => {
                Ok(plan.enqueue_with(of_f32(a)?, of_f32(b)?, c, extras)?)
            }
            (Self::Cublas(product), OperandMut::F32(c)) => {
                product.enqueue_with(of_f32(a)?, of_f32(b)?, c, extras)
            }
        }
    }
}

/// The error of a matrix for a product in f32.
fn not_f32(found: InputType) -> Error {
    let (what, found, planned) = ("a matrix", found.name(), "f32");
    GemmError::PlannedType { what, found, planned }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::kernels::f32_kernels;

    #[test]
    fn names() {
        assert!(matches!(Selection::parse("all"), Ok(Selection::All)));
        assert!(matches!(Selection::parse("cublas"), Ok(Selection::Cublas)));
        assert!(matches!(Selection::parse("auto"), Ok(Selection::Auto)));
        assert!(
            matches!(Selection::parse("tile2d"), Ok(Selection::Rung(descriptor)) if descriptor.name() == "tile2d")
        );
        let Err(Error::Gemm(GemmError::UnknownKernel { nearest, known, .. })) =
            Selection::parse("cubals")
        else {
            panic!()
        };
        assert_eq!(
            (nearest, known.len()),
            (Some("cublas"), f32_kernels().count() + TENSOR_CORE.len() + 3)
        );
    }

    #[test]
    fn only_all_tolerates_a_refusal() {
        let refused = || Err::<(), _>(Error::CublasNeedsGpu);
        assert!(Selection::All.tolerate(refused()).unwrap().is_err());
        assert!(Selection::Cublas.tolerate(refused()).is_err());
        assert!(
            Selection::All.tolerate(Err::<(), _>(GemmError::WrongDevice { what: "A" })).is_err()
        );
    }
}
