//! Candidates to run: a kernel, the choice of `auto`, the whole ladder, cuBLAS.

use std::sync::Arc;

use cuda_gemm::kernels::abi::{Arithmetic, KernelDescriptor};
use cuda_gemm::kernels::{LADDER, TENSOR_CORE_LADDER};
use cuda_gemm::select::Asked;
use cuda_gemm::{
    Auto, Compute, Configuration, Device, Error as GemmError, Gemm, Kernel, PlanBuilder, Table,
    find_kernel, nearest_names, select,
};

use crate::cublas::Cublas;
use crate::error::Error;
use crate::job::{Candidate, Job, KernelOptions, Title};

pub use crate::job::CUBLAS;

/// The name of all candidates: the ladder or the tensor core kernels, `auto`, and cuBLAS on a GPU.
pub const ALL: &str = "all";

/// The selected kernels.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Extras, Gemm};
/// use gemm_bench::{KernelOptions, Selection};
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let gemm = Gemm::new(2, 2, 2);
/// let ones = DeviceMatrix::from_slice(&device, [2, 2], &[1f32; 4])?;
/// for loaded in Selection::parse("auto")?.load(&device, None)? {
///     let candidate = loaded.prepare(gemm, KernelOptions::default(), Selection::Auto)?;
///     println!("auto takes {}", candidate.title.choice().unwrap_or_default());
///     let mut c = DeviceMatrix::<f32>::zeros(&device, [2, 2])?;
///     candidate.job.expect("it runs").enqueue_with(&ones, &ones, &mut c, Extras::new())?;
///     assert_eq!(c.to_vec()?, [2.0; 4]);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub enum Selection {
    /// All: the ladder for f32, else all kernels of the precision; then `auto`, and cuBLAS on a
    /// GPU.
    All(Compute),
    /// The fastest kernel for each product.
    Auto,
    /// The baseline.
    Cublas,
    /// One kernel.
    Kernel(&'static KernelDescriptor),
}

impl Selection {
    /// Parses a name: `all`, `auto`, `cublas`, or a kernel's own.
    ///
    /// # Errors
    ///
    /// [`GemmError::UnknownKernel`].
    pub fn parse(name: &str) -> Result<Self, Error> {
        match name {
            ALL => Ok(Self::All(Compute::F32)),
            select::NAME => Ok(Self::Auto),
            CUBLAS => Ok(Self::Cublas),
            name => find_kernel(name).map(Self::Kernel).map_err(|error| match error {
                GemmError::UnknownKernel { name, mut known, .. } => {
                    known.extend([select::NAME, CUBLAS, ALL]);
                    let nearest = nearest_names(&name, &known);
                    GemmError::UnknownKernel { name, nearest, known }.into()
                }
                error => error.into(),
            }),
        }
    }

    /// Sets the precision: `all` then means the kernels that compute in it.
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
    /// [`GemmError::Compute`] if the kernel does not compute in this precision.
    pub fn computing(self, compute: Compute) -> Result<Self, Error> {
        match self {
            Self::All(_) => Ok(Self::All(compute)),
            Self::Kernel(kernel) if !compute.is_of(kernel) => {
                let name = kernel.name();
                let others = match kernel.arithmetic() {
                    Arithmetic::Bits16 => "bf16 and f16",
                    _ => Compute::of_kernel(kernel).name(),
                };
                let reason = format!("{name} does not compute in it; it is for {others}");
                Err(GemmError::Compute { compute: compute.name().to_owned(), reason }.into())
            }
            one => Ok(one),
        }
    }

    /// The members one by one; those of `all` are its kernels and `auto`, without cuBLAS.
    pub fn rungs(self) -> Vec<Self> {
        let kernels = self.kernels().into_iter().map(Self::Kernel);
        match self {
            Self::All(_) => kernels.chain([Self::Auto]).collect(),
            one => vec![one],
        }
    }

    /// The named kernels, also those of `all`.
    fn kernels(self) -> Vec<&'static KernelDescriptor> {
        match self {
            Self::All(Compute::F32) => LADDER.to_vec(),
            Self::All(compute) => compute.kernels().collect(),
            Self::Kernel(kernel) => vec![kernel],
            Self::Auto | Self::Cublas => Vec::new(),
        }
    }

    /// Whether the selection has several results.
    pub fn is_several(self) -> bool {
        matches!(self, Self::All(_))
    }

    /// Whether the selection is `all` in f32.
    pub fn is_all(self) -> bool {
        matches!(self, Self::All(Compute::F32))
    }

    /// Loads the selected candidates.
    ///
    /// For `all`, a candidate that cannot run carries the reason; cuBLAS is left out on the
    /// software device. `table` replaces the built-in table of `auto`.
    ///
    /// # Errors
    ///
    /// The errors of [`Device::kernel`], [`Device::auto_by`] and [`Cublas::open`].
    pub fn load(self, device: &Device, table: Option<&Table>) -> Result<Vec<Loaded>, Error> {
        self.load_among(device, self, table)
    }

    /// Loads this member of the selection `among`: see [`Selection::load`].
    ///
    /// # Errors
    ///
    /// See [`Selection::load`].
    pub fn load_among(
        self,
        device: &Device,
        among: Self,
        table: Option<&Table>,
    ) -> Result<Vec<Loaded>, Error> {
        let kernels = self.kernels().into_iter().map(|kernel| {
            let code = device.kernel(kernel).map(Code::Kernel);
            (kernel.name(), place(kernel), code.map_err(Error::from))
        });
        let mut wanted: Vec<_> = kernels.collect();
        if self.is_several() || matches!(self, Self::Auto) {
            let auto = table.map_or_else(|| device.auto(), |table| device.auto_by(table));
            wanted.push((
                select::NAME,
                None,
                auto.map(|auto| Code::Auto(Box::new(auto))).map_err(Error::from),
            ));
        }
        // On the software device nobody expects it.
        let is_compared = self.is_several() && !device.is_soft();
        if is_compared || matches!(self, Self::Cublas) {
            wanted.push((CUBLAS, None, Cublas::open(device).map(Code::Cublas)));
        }
        let loaded = wanted.into_iter().map(|(name, rung, code)| {
            Ok(Loaded { name, rung, code: among.tolerate(code)?, any_alignment: false })
        });
        loaded.collect()
    }

    /// For `all`, turns the refusal of a rung or cuBLAS into a reason.
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

/// The place of a kernel in its ladder, from 1.
fn place(kernel: &KernelDescriptor) -> Option<usize> {
    let place = |ladder: &[&KernelDescriptor]| {
        ladder.iter().position(|other| other.name() == kernel.name()).map(|place| place + 1)
    };
    [LADDER, TENSOR_CORE_LADDER].into_iter().find_map(place)
}

/// A loaded candidate on a device, from [`Selection::load`].
pub struct Loaded {
    name: &'static str,
    rung: Option<usize>,
    code: Result<Code, Arc<Error>>,
    any_alignment: bool,
}

enum Code {
    Kernel(Kernel),
    Auto(Box<Auto>),
    Cublas(Cublas),
}

impl Loaded {
    /// Allows matrices that begin at any element: see [`PlanBuilder::any_alignment`].
    #[must_use]
    pub fn any_alignment(self) -> Self {
        Self { any_alignment: true, ..self }
    }

    /// Checks a product, divided as the options say; `auto` ignores the options.
    ///
    /// If `choice` is `all`, the candidate carries a refusal.
    ///
    /// # Errors
    ///
    /// The errors of [`PlanBuilder::prepare`] and [`Cublas::prepare`].
    pub fn prepare(
        &self,
        gemm: Gemm,
        options: KernelOptions,
        choice: Selection,
    ) -> Result<Candidate, Error> {
        let KernelOptions { splits, clusters, staged, .. } = options;
        let mut title = Title {
            name: self.name,
            rung: self.rung,
            asked_splits: splits,
            asked_clusters: clusters,
            staged,
            ..Title::default()
        };
        let prepare = |builder: Result<PlanBuilder, GemmError>| {
            let prepared = builder.and_then(|builder| match self.any_alignment {
                true => builder.any_alignment().prepare(),
                false => builder.prepare(),
            });
            choice.tolerate(prepared.map(Job::Kernel))
        };
        let job = match &self.code {
            Ok(Code::Kernel(kernel)) => {
                let asked = Asked {
                    splits,
                    clusters,
                    columns: options.columns,
                    transposes_c: options.transposes_c,
                    blocks_per_multiprocessor: options.blocks_per_multiprocessor,
                };
                let auto = kernel.device().auto()?;
                let division = auto.division(&gemm, kernel.descriptor(), asked);
                prepare(Ok(kernel.plan(gemm).divided(&Configuration { staged, ..division })))?
            }
            Ok(Code::Auto(auto)) => {
                // Measures the product first, if the device does.
                let builder = auto.plan(gemm);
                let chosen = match &builder {
                    Ok(builder) => *builder.configuration(),
                    Err(_) => auto.choose(&gemm)?,
                };
                (title.chosen, title.staged) = (Some(chosen.kernel.name()), chosen.staged);
                prepare(builder)?
            }
            Ok(Code::Cublas(cublas)) => {
                let prepared = cublas.prepare_groups(gemm, options.groups);
                choice.tolerate(prepared.map(|one| Job::Cublas(Box::new(one))))?
            }
            Err(reason) => Err(Arc::clone(reason)),
        };
        if let Ok(Job::Kernel(plan)) = &job {
            let launched = *plan.configuration();
            title.splits = launched.kernel.abi().splits_k().then_some(launched.splits);
            title.clusters = launched.clusters;
            title.columns = launched.columns;
            title.transposes_c = launched.transposes_c;
            title.blocks_per_multiprocessor = launched.blocks_per_multiprocessor;
        }
        Ok(Candidate { title, job })
    }

    /// The version of a loaded cuBLAS, as in `12.8.5`; `None` for kernels.
    pub fn cublas_version(&self) -> Option<&str> {
        match &self.code {
            Ok(Code::Cublas(cublas)) => Some(cublas.version()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::kernels::kernels;

    #[test]
    fn names() {
        assert!(matches!(Selection::parse("all"), Ok(Selection::All(Compute::F32))));
        assert!(matches!(Selection::parse("cublas"), Ok(Selection::Cublas)));
        assert!(matches!(Selection::parse("auto"), Ok(Selection::Auto)));
        let Ok(Selection::Kernel(kernel)) = Selection::parse("tile2d") else { panic!() };
        assert_eq!(kernel.name(), "tile2d");
        let Err(Error::Gemm(GemmError::UnknownKernel { nearest, known, .. })) =
            Selection::parse("cubals")
        else {
            panic!()
        };
        assert_eq!((nearest[0], known.len()), ("cublas", kernels().count() + 3));
    }

    #[test]
    fn only_all_tolerates_a_refusal() {
        let refused = || Err::<(), _>(Error::CublasNeedsGpu);
        let all = Selection::All(Compute::F32);
        assert!(all.tolerate(refused()).unwrap().is_err());
        assert!(Selection::Cublas.tolerate(refused()).is_err());
        assert!(all.tolerate(Err::<(), _>(GemmError::WrongDevice { what: "A" })).is_err());
    }
}
