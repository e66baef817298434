//! What runs: a kernel, the one that `auto` chooses, all of the ladder, cuBLAS.

use std::sync::Arc;

use cuda_gemm::kernels::{
    KernelAbi, KernelDescriptor, LADDER, TENSOR_CORE, TENSOR_CORE_LADDER, TensorCoreDescriptor,
};
use cuda_gemm::{
    Auto, Device, DeviceBatchRef, DeviceHalfMatrix, DeviceMatrixMut, DeviceMatrixRef,
    Error as GemmError, Extras, Gemm, InputType, Kernel, Plan, PlanBuilder, Table,
    TensorCoreKernel, TensorCorePlan, auto, find_kernel, nearest_name,
};

use crate::cublas::{Cublas, CublasProduct};
use crate::cublas_half::CublasHalf;
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
    /// A kernel for tensor cores, of A and B in 16 bits.
    TensorCore(&'static TensorCoreDescriptor, InputType),
    /// All of them, and cuBLAS with the same matrices.
    Half(InputType),
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
            name if let Some(choice) = Self::half(name) => Ok(choice),
            name => find_kernel(name).map(Self::Rung).map_err(|error| match error {
                GemmError::UnknownKernel { name, mut known, .. } => {
                    known.extend(InputType::ALL.iter().flat_map(|input| {
                        let kernels = TENSOR_CORE.iter().map(|one| one.entry_point(*input));
                        kernels.chain([input.name()])
                    }));
                    known.extend([auto::NAME, CUBLAS, ALL]);
                    let nearest = nearest_name(&name, &known);
                    GemmError::UnknownKernel { name, nearest, known }.into()
                }
                error => error.into(),
            }),
        }
    }

    /// What a name for 16-bit inputs stands for: their type's, or that of a kernel's entry point.
    fn half(name: &str) -> Option<Self> {
        InputType::ALL.into_iter().find_map(|input| {
            let kernel = TENSOR_CORE.iter().find(|kernel| kernel.entry_point(input) == name);
            match kernel {
                Some(kernel) => Some(Self::TensorCore(kernel, input)),
                None => (input.name() == name).then_some(Self::Half(input)),
            }
        })
    }

    /// The type of A and B, where that is not f32.
    pub fn input(self) -> Option<InputType> {
        match self {
            Self::TensorCore(_, input) | Self::Half(input) => Some(input),
            Self::All | Self::Auto | Self::Cublas | Self::Rung(_) => None,
        }
    }

    /// What it stands for, one by one; all are the ladder and the choice, without cuBLAS.
    pub fn rungs(self) -> Vec<Self> {
        match self {
            Self::All => LADDER.iter().copied().map(Self::Rung).chain([Self::Auto]).collect(),
            Self::Half(input) => {
                TENSOR_CORE.iter().map(|kernel| Self::TensorCore(kernel, input)).collect()
            }
            one => vec![one],
        }
    }

    /// Whether it stands for several results.
    pub fn is_several(self) -> bool {
        matches!(self, Self::All | Self::Half(_))
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
            Self::Auto | Self::Cublas | Self::TensorCore(..) | Self::Half(_) => &[],
            Self::Rung(descriptor) => std::slice::from_ref(descriptor),
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
        if matches!(self, Self::All | Self::Auto) {
            let auto = table.map_or_else(|| device.auto(), |table| device.auto_by(table));
            wanted.push((auto::NAME, None, auto.map(Code::Auto).map_err(Error::from)));
        }
        if matches!(self, Self::All | Self::Cublas) {
            wanted.push((CUBLAS, None, Cublas::open(device).map(Code::Cublas)));
        }
        for one in self.rungs() {
            if let Self::TensorCore(descriptor, input) = one {
                let kernel = device.tensor_core(descriptor, input).map(Code::TensorCore);
                let mut ladder = TENSOR_CORE_LADDER.iter();
                let place = ladder.position(|other| other.name() == descriptor.name());
                wanted.push((descriptor.entry_point(input), place, kernel.map_err(Error::from)));
            }
        }
        if let Self::Half(input) = self {
            let cublas = Cublas::open(device).map(|cublas| Code::CublasHalf(cublas, input));
            wanted.push((CUBLAS, None, cublas));
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
    TensorCore(TensorCoreKernel),
    CublasHalf(Cublas, InputType),
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
            Ok(Code::Auto(auto)) => {
                let fastest = auto.choose(&gemm)?;
                (chosen, staged) = (Some(fastest.descriptor), fastest.staged);
                let plan = auto.plan_choice(gemm, fastest);
                let prepared = plan.and_then(|plan| self.aligned(plan).prepare());
                choice.tolerate(prepared.map(Job::rung))?
            }
            Ok(Code::Cublas(cublas)) => choice.tolerate(cublas.prepare(gemm).map(Job::Cublas))?,
            Ok(Code::TensorCore(kernel)) => {
                let plan = kernel.prepare(gemm).map(|plan| Job::TensorCore(Box::new(plan)));
                choice.tolerate(plan)?
            }
            Ok(Code::CublasHalf(cublas, input)) => {
                choice.tolerate(CublasHalf::new(cublas, gemm, *input).map(Job::CublasHalf))?
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
        let chosen = chosen.map(|descriptor| descriptor.name());
        let Self { name, rung, .. } = *self;
        Ok(Candidate { title: Title { name, rung, chosen, splits, asked_splits, staged }, job })
    }

    /// The version, as in `12.8.5`, of a cuBLAS that was loaded; `None` for all else.
    pub fn cublas_version(&self) -> Option<&str> {
        match &self.code {
            Ok(Code::Cublas(cublas) | Code::CublasHalf(cublas, _)) => Some(cublas.version()),
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
    /// By cuBLAS, of A and B in 16 bits.
    CublasHalf(CublasHalf),
}

impl Job {
    /// A product that a kernel of this library computes.
    pub fn rung(prepared: Plan) -> Self {
        Self::Rung(Box::new(prepared))
    }

    /// The product.
    pub fn gemm(&self) -> &Gemm {
        match self {
            Self::Rung(plan) => plan.launch_plan().gemm(),
            Self::Cublas(product) => product.gemm(),
            Self::TensorCore(plan) => plan.gemm(),
            Self::CublasHalf(product) => product.gemm(),
        }
    }

    /// The type of A and B, where that is not f32.
    pub fn input(&self) -> Option<InputType> {
        match self {
            Self::Rung(_) | Self::Cublas(_) => None,
            Self::TensorCore(plan) => Some(plan.kernel().input()),
            Self::CublasHalf(product) => Some(product.input()),
        }
    }

    /// Enqueues the product of A and B in 16 bits on the device's stream, and returns at once.
    ///
    /// # Errors
    ///
    /// Those of [`TensorCorePlan::enqueue`], or [`Error::Cublas`]; [`GemmError::PlannedType`] for a job
    /// of f32.
    pub fn enqueue_half(
        &self,
        a: &DeviceHalfMatrix,
        b: &DeviceHalfMatrix,
        c: DeviceMatrixMut<'_>,
    ) -> Result<(), Error> {
        match self {
            Self::TensorCore(plan) => Ok(plan.enqueue(a, b, c)?),
            Self::CublasHalf(product) => product.enqueue(a, b, c),
            Self::Rung(_) | Self::Cublas(_) => {
                let (what, found) = ("A", a.input().name());
                Err(GemmError::PlannedType { what, found, planned: "f32" }.into())
            }
        }
    }

    /// Enqueues the product on the device's stream, and returns at once. The matrices have its
    /// [`shapes`](crate::operands::shapes).
    ///
    /// # Errors
    ///
    /// Those of [`Plan::enqueue`] or [`CublasProduct::enqueue`]; [`GemmError::PlannedType`] for a job
    /// of A and B in 16 bits.
    pub fn enqueue<'m>(
        &self,
        a: impl Into<DeviceMatrixRef<'m>>,
        b: impl Into<DeviceMatrixRef<'m>>,
        c: impl Into<DeviceMatrixMut<'m>>,
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
        a: impl Into<DeviceMatrixRef<'m>>,
        b: impl Into<DeviceMatrixRef<'m>>,
        c: impl Into<DeviceMatrixMut<'m>>,
        extras: Extras<'m>,
    ) -> Result<(), Error> {
        let (batch, [shape_a, shape_b, _]) = (self.gemm().batch, self.gemm().shapes());
        let (a, b) = (operand(a.into(), batch, shape_a)?, operand(b.into(), batch, shape_b)?);
        let c = c.into();
        let c = if batch == 1 { c.into() } else { c.split_rows(batch)? };
        match self {
            Self::Rung(prepared) => Ok(prepared.enqueue_with(a, b, c, extras)?),
            Self::Cublas(product) => Ok(product.enqueue_with(a, b, c, extras)?),
            Self::TensorCore(_) | Self::CublasHalf(_) => {
                let planned = self.input().map_or("f32", InputType::name);
                Err(GemmError::PlannedType { what: "A", found: "f32", planned }.into())
            }
        }
    }
}

/// The matrices of a batch, which lie one below the other, or one for all.
fn operand(
    matrix: DeviceMatrixRef<'_>,
    batch: usize,
    [rows, _]: [usize; 2],
) -> Result<DeviceBatchRef<'_>, GemmError> {
    match batch {
        1 => Ok(matrix.into()),
        _ if matrix.rows() == rows => Ok(matrix.broadcast(batch)),
        _ => matrix.split_rows(batch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::kernels::TILES;

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
            (Some("cublas"), LADDER.len() + TILES.len() + 2 * TENSOR_CORE.len() + 5)
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
