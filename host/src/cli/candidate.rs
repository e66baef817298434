//! What runs: a kernel, the one that `auto` chooses, all of the ladder, cuBLAS.

use cuda_gemm::{Error as GemmError, PlanBuilder};
use gemm_bench::Error as BenchError;
use host::kernels::{KernelAbi, KernelDescriptor, LADDER};
use host::{
    Auto, Cublas, CublasProduct, Device, DeviceMatrix, Error, Gemm, Kernel, Prepared, Table, auto,
    find_kernel, nearest_name,
};

/// The names of the baseline, and of everything.
const CUBLAS: &str = "cublas";
const ALL: &str = "all";

/// What `--kernel` asks for.
#[derive(Clone, Copy)]
pub enum KernelArg {
    /// The ladder, the choice, and cuBLAS.
    All,
    /// What is fastest for each product.
    Auto,
    Cublas,
    Rung(&'static KernelDescriptor),
}

impl KernelArg {
    /// # Errors
    ///
    /// [`GemmError::UnknownKernel`].
    pub fn parse(name: &str) -> Result<Self, Error> {
        match name {
            ALL => Ok(Self::All),
            auto::NAME => Ok(Self::Auto),
            CUBLAS => Ok(Self::Cublas),
            name => find_kernel(name).map(Self::Rung).map_err(|error| match error {
                GemmError::UnknownKernel { name, mut known, .. } => {
                    known.extend([auto::NAME, CUBLAS, ALL]);
                    let nearest = nearest_name(&name, &known);
                    GemmError::UnknownKernel { name, nearest, known }.into()
                }
                error => error.into(),
            }),
        }
    }

    /// What it stands for, one by one; all are the ladder and the choice, without cuBLAS.
    pub fn rungs(self) -> Vec<Self> {
        match self {
            Self::All => LADDER.iter().copied().map(Self::Rung).chain([Self::Auto]).collect(),
            one => vec![one],
        }
    }

    pub fn is_all(self) -> bool {
        matches!(self, Self::All)
    }

    /// Loads what was asked for. Where that is everything, what cannot run says why. `table` is
    /// what `auto` goes by, if not by the one that is built in.
    pub fn load(self, device: &Device, table: Option<&Table>) -> Result<Vec<Loaded>, Error> {
        self.load_among(device, self, table)
    }

    /// As [`KernelArg::load`], where this is one of several that `among` stands for.
    pub fn load_among(
        self,
        device: &Device,
        among: Self,
        table: Option<&Table>,
    ) -> Result<Vec<Loaded>, Error> {
        let specs = match &self {
            Self::All => LADDER,
            Self::Auto | Self::Cublas => &[],
            Self::Rung(spec) => std::slice::from_ref(spec),
        };
        let rungs = specs.iter().map(|spec| {
            let place = LADDER.iter().position(|other| other.name() == spec.name());
            (spec.name(), place, device.kernel(spec).map(Code::Rung).map_err(Error::from))
        });
        let mut wanted: Vec<_> = rungs.collect();
        if matches!(self, Self::All | Self::Auto) {
            let auto = table.map_or_else(|| device.auto(), |table| device.auto_by(table));
            wanted.push((auto::NAME, None, auto.map(Code::Auto).map_err(Error::from)));
        }
        if matches!(self, Self::All | Self::Cublas) {
            wanted.push((
                CUBLAS,
                None,
                Cublas::open(device).map(Code::Cublas).map_err(Error::from),
            ));
        }
        let loaded = wanted.into_iter().map(|(name, place, code)| {
            Ok(Loaded { name, rung: place.map(|place| place + 1), code: among.tolerate(code)? })
        });
        loaded.collect()
    }

    /// Where everything was asked for, turns what a rung or cuBLAS refuses into a reason.
    fn tolerate<T>(self, result: Result<T, impl Into<Error>>) -> Result<Result<T, String>, Error> {
        match result.map_err(Into::into) {
            Ok(value) => Ok(Ok(value)),
            Err(
                error @ (Error::Bench(_)
                | Error::Gemm(
                    GemmError::SharedMemory { .. }
                    | GemmError::DeviceMemory { .. }
                    | GemmError::NotInPtx { .. }
                    | GemmError::NeedsHopper { .. }
                    | GemmError::NeedsTensorMaps { .. },
                )),
            ) if self.is_all() => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }
}

/// Something that runs, on a device.
pub struct Loaded {
    name: &'static str,
    rung: Option<usize>,
    code: Result<Code, String>,
}

enum Code {
    Rung(Kernel),
    Auto(Auto),
    Cublas(Cublas),
}

impl Loaded {
    /// Checks a product, with K in so many splits, or fewer where K has fewer steps, and A and B
    /// copied first if `packed`, against it; `auto` makes up its own mind about both.
    pub fn prepare(
        &self,
        gemm: Gemm,
        asked_splits: u32,
        mut packed: bool,
        choice: KernelArg,
    ) -> Result<Candidate, Error> {
        let mut chosen = None;
        let job = match &self.code {
            Ok(Code::Rung(kernel)) => {
                let prepared = kernel.plan(gemm).splits(asked_splits).staged(packed).prepare();
                choice.tolerate(prepared.map(Job::rung))?
            }
            Ok(Code::Auto(auto)) => {
                let fastest = auto.choose(&gemm)?;
                (chosen, packed) = (Some(fastest.spec), fastest.packed);
                let plan = auto.plan_choice(gemm, fastest);
                choice.tolerate(plan.and_then(PlanBuilder::prepare).map(Job::rung))?
            }
            Ok(Code::Cublas(cublas)) => choice.tolerate(cublas.prepare(gemm).map(Job::Cublas))?,
            Err(reason) => Err(reason.clone()),
        };
        let spec = match &self.code {
            Ok(Code::Rung(kernel)) => Some(kernel.spec()),
            _ => chosen,
        };
        let splits = match (&job, spec) {
            (Ok(Job::Rung(prepared)), Some(spec)) if spec.abi() == KernelAbi::SplitK => {
                Some(prepared.plan().splits())
            }
            _ => None,
        };
        let chosen = chosen.map(|spec| spec.name());
        let Self { name, rung, .. } = *self;
        Ok(Candidate { title: Title { name, rung, chosen, splits, asked_splits, packed }, job })
    }

    pub fn cublas_version(&self) -> Option<&str> {
        match &self.code {
            Ok(Code::Cublas(cublas)) => Some(cublas.version()),
            _ => None,
        }
    }
}

/// What a row of a report is about.
#[derive(Clone, Copy, Debug, Default)]
pub struct Title {
    pub name: &'static str,
    /// The place in the ladder, from 1; none for what is not in it.
    pub rung: Option<usize>,
    /// The kernel that `auto` chose.
    pub chosen: Option<&'static str>,
    /// Blocks that share each tile of C; none for a kernel that cannot split K.
    pub splits: Option<u32>,
    /// How many were asked for, which are more where K has fewer steps.
    pub asked_splits: u32,
    /// Whether A and B are copied first, as `auto` chose or `--packed` says.
    pub packed: bool,
}

impl Title {
    pub fn is_cublas(&self) -> bool {
        self.name == CUBLAS
    }

    /// What `auto` chose, in words.
    pub fn choice(&self) -> Option<String> {
        let splits = self.splits.filter(|splits| *splits > 1);
        let splits = splits.map(|splits| format!(" in {splits} splits")).unwrap_or_default();
        let packed = if self.packed { ", packed" } else { "" };
        self.chosen.map(|name| format!("{name}{splits}{packed}"))
    }
}

/// One row of a report, before it has run: a kernel for a product.
pub struct Candidate {
    pub title: Title,
    /// Why not, if it cannot run.
    pub job: Result<Job, String>,
}

/// A product that has been checked, and needs only the matrices.
pub enum Job {
    Rung(Box<Prepared>),
    Cublas(CublasProduct),
}

impl Job {
    pub fn rung(prepared: Prepared) -> Self {
        Self::Rung(Box::new(prepared))
    }

    pub fn enqueue(
        &self,
        a: &DeviceMatrix,
        b: &DeviceMatrix,
        c: &mut DeviceMatrix,
    ) -> Result<(), Error> {
        match self {
            Self::Rung(prepared) => Ok(prepared.enqueue(a, b, c)?),
            Self::Cublas(product) => Ok(product.enqueue(a, b, c)?),
        }
    }
}

/// Whether an error is about one product, so that others may still run. After a fault
/// nothing does.
pub fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::HostMemory { .. }
            | Error::Bench(BenchError::Cublas { .. })
            | Error::Gemm(
                GemmError::DeviceMemory { .. }
                    | GemmError::SharedMemory { .. }
                    | GemmError::Driver { .. },
            )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::kernels::TILES;

    #[test]
    fn names() {
        assert!(matches!(KernelArg::parse("all"), Ok(KernelArg::All)));
        assert!(matches!(KernelArg::parse("cublas"), Ok(KernelArg::Cublas)));
        assert!(matches!(KernelArg::parse("auto"), Ok(KernelArg::Auto)));
        assert!(
            matches!(KernelArg::parse("tile2d"), Ok(KernelArg::Rung(spec)) if spec.name() == "tile2d")
        );
        let Err(Error::Gemm(GemmError::UnknownKernel { nearest, known, .. })) =
            KernelArg::parse("cubals")
        else {
            panic!()
        };
        assert_eq!((nearest, known.len()), (Some("cublas"), LADDER.len() + TILES.len() + 3));
    }

    #[test]
    fn only_all_tolerates_a_refusal() {
        let refused = || Err::<(), _>(BenchError::CublasNeedsGpu);
        assert!(KernelArg::All.tolerate(refused()).unwrap().is_err());
        assert!(KernelArg::Cublas.tolerate(refused()).is_err());
        assert!(
            KernelArg::All.tolerate(Err::<(), _>(GemmError::WrongDevice { what: "A" })).is_err()
        );
    }

    #[test]
    fn a_fault_ends_everything() {
        assert!(is_refusal(
            &GemmError::DeviceMemory { device: "".into(), needed: 1, available: 0 }.into()
        ));
        let fault = GemmError::KernelFault { device: "a GPU".into(), reason: "misaligned".into() };
        assert!(!is_refusal(&fault.into()));
    }
}
