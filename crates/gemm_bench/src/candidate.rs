//! What runs: a kernel, the one that `auto` chooses, all of the ladder, cuBLAS.

use std::sync::Arc;

use cuda_gemm::kernels::abi::KernelDescriptor;
use cuda_gemm::kernels::abi::tensor_core::TensorCoreDescriptor;
use cuda_gemm::kernels::{LADDER, TENSOR_CORE, TENSOR_CORE_LADDER};
use cuda_gemm::{
    Auto, Compute, Device, Error as GemmError, Gemm, Kernel, ProductBuilder, Table, auto,
    find_kernel, nearest_names,
};

use crate::cublas::Cublas;
use crate::cublas_fastest::CublasFastest;
use crate::error::Error;
use crate::job::{Candidate, Job, KernelOptions, Title};

pub use crate::job::CUBLAS;

/// The name of everything: the ladder, or the kernels for tensor cores, `auto` and cuBLAS.
pub const ALL: &str = "all";

/// Which kernels are meant.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, Matrix};
/// use gemm_bench::{KernelOptions, Selection};
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let gemm = Gemm::new(2, 2, 2);
/// let ones = DeviceMatrix::from_host(&device, &Matrix::from_vec(2, 2, vec![1.0; 4]))?;
/// for loaded in Selection::parse("auto")?.load(&device, None)? {
///     let candidate = loaded.prepare(gemm, KernelOptions::default(), Selection::Auto)?;
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
                        let nearest = nearest_names(&name, &known);
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
            let reason = format!("{kernel} does not compute in it; it is for {others}");
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
                compute.f32_kernels().map(Self::Rung).chain([Self::Auto]).collect()
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
        let descriptors = match self {
            Self::All => LADDER.to_vec(),
            Self::Auto | Self::Cublas | Self::TensorCore(_) | Self::AllTensorCore => Vec::new(),
            Self::Rung(descriptor) => vec![descriptor],
            Self::AllTf32(compute) => compute.f32_kernels().collect(),
        };
        let rungs = descriptors.into_iter().map(|descriptor| {
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

/// Whether the rows of A and B in 16 bits begin on 16 bytes if the first do: kernels for f32 look at leading dimensions themselves.
pub fn are_wide(gemm: &Gemm) -> bool {
    let [a, b, _] = gemm.rows_begin_on_16_bytes();
    gemm.compute.input().is_none() || a && b
}

enum Code {
    Rung(Kernel),
    Auto(Auto),
    Cublas(Cublas),
    TensorCore(Device, &'static TensorCoreDescriptor),
}

impl Loaded {
    /// For matrices that begin at any element: see [`ProductBuilder::any_alignment`].
    #[must_use]
    pub fn any_alignment(self) -> Self {
        Self { any_alignment: true, ..self }
    }

    /// Checks a product against it, divided as the options say; `auto` makes up its own mind about them. Where `choice` is
    /// everything, what is refused is in the candidate.
    ///
    /// # Errors
    ///
    /// Those of [`ProductBuilder::prepare`] and [`Cublas::prepare`].
    pub fn prepare(
        &self,
        gemm: Gemm,
        options: KernelOptions,
        choice: Selection,
    ) -> Result<Candidate, Error> {
        let KernelOptions {
            splits: asked_splits,
            clusters: asked_clusters,
            blocks_per_multiprocessor,
            mut staged,
        } = options;
        let mut chosen = None;
        let prepare = |builder: Result<ProductBuilder, GemmError>| {
            let any_alignment = self.any_alignment || !are_wide(&gemm);
            let prepared = builder.and_then(|builder| match any_alignment {
                true => builder.any_alignment().prepare(),
                false => builder.prepare(),
            });
            choice.tolerate(prepared.map(Job::product))
        };
        let job = match &self.code {
            Ok(Code::Rung(kernel)) => {
                let plan = kernel.plan(gemm).splits(asked_splits.unwrap_or(1)).staged(staged);
                prepare(Ok(ProductBuilder::F32(plan)))?
            }
            Ok(Code::Auto(auto)) if gemm.compute.input().is_none() => {
                let fastest = auto.choose(&gemm)?;
                (chosen, staged) = (Some(fastest.descriptor), fastest.staged);
                prepare(auto.plan_choice(gemm, fastest).map(ProductBuilder::F32))?
            }
            Ok(Code::Auto(auto)) => prepare(auto.product(gemm))?,
            Ok(Code::Cublas(cublas)) => choice.tolerate(match CublasFastest::is_for(&gemm) {
                false => cublas.prepare(gemm).map(Job::Cublas),
                true => {
                    CublasFastest::new(cublas, gemm).map(|one| Job::CublasFastest(Box::new(one)))
                }
            })?,
            Ok(Code::TensorCore(device, descriptor)) => {
                let input = gemm.compute.input().ok_or_else(|| GemmError::Compute {
                    compute: gemm.compute.name().to_owned(),
                    reason: format!("{} does not compute in it", descriptor.name()),
                });
                let kernel = input.and_then(|input| device.tensor_core(descriptor, input));
                prepare(kernel.map(|kernel| {
                    let mut plan = kernel.plan(gemm);
                    if let Some(splits) = asked_splits {
                        plan = plan.splits(splits);
                    }
                    if let Some(clusters) = asked_clusters {
                        plan = plan.clusters(clusters);
                    }
                    if let Some(blocks) = blocks_per_multiprocessor {
                        plan = plan.blocks_per_multiprocessor(blocks);
                    }
                    ProductBuilder::TensorCore(plan)
                }))?
            }
            Err(reason) => Err(Arc::clone(reason)),
        };
        let (splits, clusters) = match &job {
            Ok(Job::Kernel(product)) => (product.splits(), product.clusters()),
            _ => (None, None),
        };
        let chosen = match (&job, &self.code) {
            (Ok(Job::Kernel(product)), Ok(Code::Auto(_))) => Some(product.kernel_name()),
            _ => chosen.map(|descriptor| descriptor.name()),
        };
        let Self { name, rung, .. } = *self;
        Ok(Candidate {
            title: Title {
                name,
                rung,
                chosen,
                splits,
                asked_splits,
                clusters,
                asked_clusters,
                staged,
            },
            job,
        })
    }

    /// The version, as in `12.8.5`, of a cuBLAS that was loaded; `None` for all else.
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
            (nearest[0], known.len()),
            ("cublas", f32_kernels().count() + TENSOR_CORE.len() + 3)
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
