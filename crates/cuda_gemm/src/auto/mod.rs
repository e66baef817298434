//! Which kernel, and with how many splits: for each product and device, from measurements.
//!
//! ```no_run
//! use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm};
//!
//! # fn main() -> Result<(), cuda_gemm::Error> {
//! let device = Device::open(DeviceChoice::Auto)?;
//! let auto = device.auto()?; // once
//! let product = auto.prepare(Gemm::new(16, 4096, 4096))?; // once for each shape
//! # let a = DeviceMatrix::zeros(&device, 16, 4096)?;
//! # let b = DeviceMatrix::zeros(&device, 4096, 4096)?;
//! # let mut c = DeviceMatrix::zeros(&device, 16, 4096)?;
//! product.enqueue(&a, &b, &mut c)?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Table`] has a few constants for each kernel, measured by `rungs tune`; a [`Model`] makes
//! times of them; the least time wins. Where a product was measured itself, and the choice was
//! slower than another or less accurate than cuBLAS, there is an
//! [`Exception`](table::Exception), which comes first. A GPU without a table gets the costs of the
//! one most like it, scaled; without any table, the largest tile that fills the GPU is taken.

mod changes;
mod choice;
mod configuration;
mod copies;
mod digests;
pub mod model;
mod prediction;
mod product_key;
mod rule;
mod scale;
pub mod table;
#[cfg(test)]
mod tests;
mod tf32;

use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

use cust::function::BlockSize;
use kernels_gpu::abi::tensor_core::TensorCoreDescriptor;
use kernels_gpu::abi::{KernelAbi, KernelDescriptor, Target};
use kernels_gpu::{LADDER, f32_kernels};

use crate::device::Device;
use crate::error::Error;
use crate::gemm::{Compute, Gemm};
use crate::launch::tensor_core::{self, Asked};
use crate::launch::{Kernel, Plan, PlanBuilder, ProductBuilder, TensorCoreKernel};

use configuration::AnyKernel;
use product_key::ProductKey;

pub use changes::Change;
pub use choice::Choice;
pub use configuration::Configuration;
pub use model::{Conditions, Estimate, Model};
pub use prediction::Prediction;
pub use table::Table;

/// The name that stands for the choice.
pub const NAME: &str = "auto";

/// What `auto` is, in a line.
pub const SUMMARY: &str = "the kernel and the splits that are fastest for this product here";

/// What choices are based on.
#[derive(Clone)]
pub enum Basis {
    /// Measurements on a device like this, or on one with another name (`on`), scaled.
    Measured {
        /// The device that was measured.
        on: String,
        /// Whether that is another one.
        scaled: bool,
        /// The costs.
        model: Model,
    },
    /// A GPU, and no table: the largest tile that fills it.
    Size {
        /// Its multiprocessors.
        multiprocessors: u32,
        /// Rungs that are considered beside the tiles.
        rungs: Vec<&'static KernelDescriptor>,
    },
    /// The software device: the tile that makes it do the least.
    Software,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured { on, scaled: false, .. } => write!(f, "measured on {on}"),
            Self::Measured { on, scaled: true, .. } => {
                write!(f, "scaled from what was measured on {on}, because this device was not")
            }
            Self::Size { multiprocessors, .. } => write!(
                f,
                "not measured: the largest tile that fills {multiprocessors} multiprocessors"
            ),
            Self::Software => f.write_str("the tile that makes the software device do the least"),
        }
    }
}

/// Chooses kernels for products on a device, and prepares them.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, Table};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let tables = Table::built_in()?;
/// let auto = device.auto_by(&tables[0])?;
/// println!("{}", auto.basis());
///
/// let gemm = Gemm::new(500, 400, 300);
/// let choice = auto.choose(&gemm)?;
/// // Best first.
/// assert_eq!(auto.ranking(&gemm, 3)[0].choice, choice);
/// assert_eq!(auto.exception(&gemm), None);
/// let product = auto.plan_choice(gemm, choice)?.prepare()?;
/// assert_eq!(product.launch_plan().splits(), choice.splits);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct Auto {
    device: Device,
    basis: Basis,
    /// Products that were measured on this device, what was fastest for them, and nanoseconds.
    exceptions: HashMap<ProductKey, (Configuration, f64)>,
    /// All kernels, loaded when they are first chosen.
    kernels: Vec<(&'static KernelDescriptor, OnceLock<Kernel>)>,
}

impl Device {
    /// What chooses kernels on this device, by the table that is built in for it.
    ///
    /// # Errors
    ///
    /// [`Error::Table`] if a table does not fit the kernels or the device.
    pub fn auto(&self) -> Result<Auto, Error> {
        let info = self.info();
        let basis = match Table::nearest(info)? {
            _ if self.is_soft() => Basis::Software,
            Some(table) => return self.auto_by(&table),
            None => Basis::Size {
                multiprocessors: info.limits.multiprocessors,
                rungs: LADDER
                    .iter()
                    .filter(|descriptor| {
                        descriptor.abi() == KernelAbi::StreamK && scale::room(info, descriptor) > 0
                    })
                    .copied()
                    .collect(),
            },
        };
        Ok(Auto::new(self, basis))
    }

    /// As [`Device::auto`], by any table: that of another device is scaled.
    ///
    /// # Errors
    ///
    /// [`Error::Table`] if nothing in the table can be launched on this device.
    pub fn auto_by(&self, table: &Table) -> Result<Auto, Error> {
        let info = self.info();
        let measured = table.device();
        let multiprocessors = info.peak.map(|peak| peak.multiprocessors);
        let own = table.is_of(info);
        let model = if own {
            Model::new(table)
        } else {
            // The software device has no number of its own.
            let multiprocessors = multiprocessors.unwrap_or(measured.multiprocessors);
            Model::new(&scale::scaled(table, info, multiprocessors)?)
        };
        let on = measured.name.clone();
        let mut auto = Auto::new(self, Basis::Measured { on, scaled: !own, model });
        if own {
            let exceptions = table.exceptions().iter();
            let exceptions = exceptions
                .filter_map(|at| Some((at.key()?, (at.best.configuration(), at.best.ns))));
            auto.exceptions = exceptions.collect();
        }
        Ok(auto)
    }

    /// How many blocks of a kernel fit a multiprocessor at once, as the driver says; 0 if it
    /// cannot run at all.
    ///
    /// # Errors
    ///
    /// Those of [`Device::kernel`].
    pub fn resident_blocks(&self, descriptor: &'static KernelDescriptor) -> Result<u32, Error> {
        if scale::room(self.info(), descriptor) == 0 {
            return Ok(0);
        }
        // Opts in to as much shared memory as the kernel needs, which counts here.
        let kernel = self.kernel(descriptor)?;
        // As long a K as any needs to take as much shared memory as ever.
        let long = 16 * descriptor.tile().bk as usize;
        let shared = kernel.prepare(Gemm::new(1, 1, long))?.launch_plan().shared_bytes();
        self.entry_point(descriptor.name())?
            .resident_blocks(BlockSize::xy(descriptor.block()[0], descriptor.block()[1]), shared)
    }
}

impl Auto {
    fn new(device: &Device, basis: Basis) -> Self {
        let kernels = f32_kernels().map(|descriptor| (descriptor, OnceLock::new()));
        let exceptions = HashMap::new();
        Self { device: device.clone(), basis, exceptions, kernels: kernels.collect() }
    }

    /// How to prepare a product in whichever precision it says, by the kernel that is fastest for it.
    ///
    /// # Errors
    ///
    /// Those of [`Auto::plan`] and [`Device::tensor_core`].
    pub fn product(&self, gemm: Gemm) -> Result<ProductBuilder, Error> {
        match gemm.compute.input() {
            None => Ok(ProductBuilder::F32(self.plan(gemm)?)),
            Some(input) => {
                let (descriptor, division) = self.choose_half(&with_aligned_rows(&gemm));
                let kernel = self.device.tensor_core(descriptor, input)?;
                let builder = kernel.plan(gemm).divided(division);
                let (descriptor, division) = self.choose_half(&gemm);
                let for_any_alignment = self.device.tensor_core(descriptor, input)?;
                let builder = builder.for_any_alignment(for_any_alignment, division);
                Ok(ProductBuilder::TensorCore(builder))
            }
        }
    }

    /// As [`Auto::product`], with a kernel, and a way to launch it, of the caller's choice: one of [`Auto::candidates`], say.
    ///
    /// # Errors
    ///
    /// [`Error::Compute`] for a kernel that does not compute such products, or cannot be launched so; those of [`Device::kernel`] and of
    /// [`Device::tensor_core`]. An epilogue that the kernel does not have is an error when the product is prepared.
    pub fn product_by(
        &self,
        gemm: Gemm,
        configuration: &Configuration,
    ) -> Result<ProductBuilder, Error> {
        let Configuration { splits, staged, .. } = *configuration;
        let kernel = configuration.kernel_for(&gemm, self.device.info().capability);
        match kernel.map_err(|reason| gemm.compute.refused(reason))? {
            AnyKernel::F32(descriptor) => {
                let choice = Choice { descriptor, splits, staged };
                Ok(ProductBuilder::F32(self.plan_choice(gemm, choice)?))
            }
            AnyKernel::Half(descriptor, input) => {
                let plan = self.device.tensor_core(descriptor, input)?.plan(gemm);
                let plan = plan.divided(configuration.division(descriptor));
                Ok(ProductBuilder::TensorCore(plan))
            }
        }
    }

    /// The kernel for a product in 16 bits, and how it divides the product: what was measured to be the fastest, or else by costs.
    fn choose_half(&self, gemm: &Gemm) -> (&'static TensorCoreDescriptor, Asked) {
        let exception = self.exception(gemm).and_then(|configuration| {
            match AnyKernel::find(configuration.kernel, gemm.compute)? {
                AnyKernel::Half(descriptor, _) => {
                    Some((descriptor, configuration.division(descriptor)))
                }
                AnyKernel::F32(_) => None,
            }
        });
        exception.unwrap_or_else(|| tensor_core::choose(gemm, self.device.info()))
    }

    /// The kernel for a product of matrices in 16 bits whose rows begin on 16 bytes, as those of a
    /// [`DeviceHalfMatrix`](crate::DeviceHalfMatrix) do, by tensor cores: with `wgmma` on compute capability 9.0, with `mma.sync`
    /// on others; by costs alone. [`Auto::product`] may choose another, for rows that begin anywhere, or because of an [exception](Auto::exception).
    ///
    /// # Errors
    ///
    /// [`Error::Compute`] for a product of f32 matrices; those of [`Device::tensor_core`].
    pub fn tensor_core(&self, gemm: &Gemm) -> Result<TensorCoreKernel, Error> {
        let Some(input) = gemm.compute.input() else {
            let reason = "its matrices are of f32: use `Auto::plan`".to_owned();
            return Err(gemm.compute.refused(reason));
        };
        let (descriptor, _) = tensor_core::choose(&with_aligned_rows(gemm), self.device.info());
        self.device.tensor_core(descriptor, input)
    }

    /// What choices for products in f32 are based on.
    pub fn basis(&self) -> &Basis {
        &self.basis
    }

    /// The same in words, for products that are computed so.
    pub fn basis_for(&self, compute: Compute) -> String {
        match compute {
            Compute::F32 => self.basis.to_string(),
            Compute::Tf32 | Compute::Tf32x3 => {
                let basis = tf32::basis(tf32::target(self.device.info()));
                let basis = format!("{basis}{}", self.and_exceptions(compute));
                match &self.basis {
                    Basis::Measured { .. } => {
                        format!("{basis}; kernels for f32 by what was {}", self.basis)
                    }
                    Basis::Size { .. } | Basis::Software => basis,
                }
            }
            Compute::Bf16 | Compute::F16 => {
                format!(
                    "{}{}",
                    tensor_core::basis(self.device.info()),
                    self.and_exceptions(compute)
                )
            }
        }
    }

    /// How many products in a precision were measured themselves, in words.
    fn and_exceptions(&self, compute: Compute) -> String {
        match self.exceptions.keys().filter(|key| key.compute() == compute).count() {
            0 => String::new(),
            count => format!(", and {count} product(s) that were measured themselves"),
        }
    }

    /// The kernel and the splits for a product of f32 matrices. It takes some microseconds.
    ///
    /// A product in TF32, or tf32x3, gets a kernel for f32 where that should be faster: as a rule where memory is what takes the
    /// time, as with one row. FMAs are at least as accurate.
    ///
    /// # Errors
    ///
    /// Those of [`Gemm::validate`], and [`Error::Compute`] for a product of others.
    pub fn choose(&self, gemm: &Gemm) -> Result<Choice, Error> {
        gemm.validate()?;
        match gemm.compute {
            Compute::F32 => {
                Ok(self.exception_choice(gemm).unwrap_or_else(|| self.choose_fma(gemm)))
            }
            Compute::Tf32 | Compute::Tf32x3 => {
                Ok(self.exception_choice(gemm).unwrap_or_else(|| {
                    let (choice, ns) = tf32::choose(gemm, self.gpu());
                    let fma =
                        self.fastest_fma(gemm).filter(|fma| fma.ns < fmas_ahead(gemm.compute) * ns);
                    fma.map_or(choice, |fma| fma.choice)
                }))
            }
            Compute::Bf16 | Compute::F16 => {
                let reason = "it has kernels of its own: use `Auto::product`".to_owned();
                Err(gemm.compute.refused(reason))
            }
        }
    }

    /// What the times of kernels for TF32 depend on.
    fn gpu(&self) -> tf32::Gpu {
        let info = self.device.info();
        let memory = match &self.basis {
            Basis::Measured { model, .. } => model.copy_gbytes() / tf32::H200_COPY_GBYTES,
            Basis::Size { .. } | Basis::Software => 1.0,
        };
        let multiprocessors = info.limits.multiprocessors;
        tf32::Gpu { target: tf32::target(info), multiprocessors, memory }
    }

    /// The choice that takes the least time in f32 for a product in TF32, or tf32x3, if there are measurements.
    fn fastest_fma(&self, gemm: &Gemm) -> Option<Estimate> {
        self.fma_ranking(gemm, 1).first().copied()
    }

    /// The best few, the one that is taken first. Kernels by `mma.sync` have no costs that were measured, and are compared with none.
    fn fma_ranking(&self, gemm: &Gemm, count: usize) -> Vec<Estimate> {
        let gemm = gemm.computed_in(Compute::F32);
        match &self.basis {
            Basis::Measured { model, .. } if self.gpu().target == Target::Sm90a => {
                let mut ranking = model.ranking(&gemm, count);
                let measured = self.measured(&gemm).and_then(|(configuration, ns)| {
                    let estimate = model.time(&gemm, configuration.choice(gemm.compute)?)?;
                    Some(Estimate { ns, ..estimate })
                });
                if let Some(measured) = measured {
                    ranking.retain(|other| other.choice != measured.choice);
                    ranking.insert(0, measured);
                    ranking.truncate(count);
                }
                ranking
            }
            Basis::Measured { .. } | Basis::Size { .. } | Basis::Software => Vec::new(),
        }
    }

    /// The choice for a product in f32, which is valid, by costs.
    fn choose_fma(&self, gemm: &Gemm) -> Choice {
        match &self.basis {
            // Any kernel computes nothing.
            Basis::Measured { model, .. } => model.fastest(gemm).map_or_else(
                || Choice { descriptor: model.kernels()[0].kernel, splits: 1, staged: false },
                |estimate| estimate.choice,
            ),
            Basis::Size { multiprocessors, rungs } => rule::for_gpu(gemm, *multiprocessors, rungs),
            Basis::Software => rule::for_software(gemm),
        }
    }

    /// What was measured to be fastest for this very product on this device, against what costs say: of dense matrices, or of others of which vectors of
    /// 16 bytes reach the same. In 16 bits it is what [`Auto::product`] takes if the matrices lie as the product says: if rows do not begin on 16 bytes then,
    /// with [`ProductBuilder::any_alignment`].
    pub fn exception(&self, gemm: &Gemm) -> Option<Configuration> {
        self.measured(gemm).map(|(configuration, _)| configuration)
    }

    /// The same as a choice for a product of f32 matrices.
    fn exception_choice(&self, gemm: &Gemm) -> Option<Choice> {
        self.exception(gemm)?.choice(gemm.compute)
    }

    /// The same, and nanoseconds.
    fn measured(&self, gemm: &Gemm) -> Option<(Configuration, f64)> {
        let (configuration, ns) = *self.exceptions.get(&ProductKey::of(gemm)?)?;
        let choice = configuration.choice(gemm.compute);
        let suits = choice.is_none_or(|choice| gemm.suits(choice.descriptor));
        suits.then_some((configuration, ns))
    }

    /// The best few choices by costs alone, as [`Model::ranking`] has them, if there are any measurements.
    pub fn ranking(&self, gemm: &Gemm, count: usize) -> Vec<Estimate> {
        match &self.basis {
            Basis::Measured { model, .. } => model.ranking(gemm, count),
            Basis::Size { .. } | Basis::Software => Vec::new(),
        }
    }

    /// Chooses a kernel for a product and checks it, once for any number of calls. The memory
    /// that it needs is allocated here. [`Auto::plan`] has settings.
    ///
    /// # Errors
    ///
    /// Those of [`Auto::plan`] and [`PlanBuilder::prepare`].
    pub fn prepare(&self, gemm: Gemm) -> Result<Plan, Error> {
        self.plan(gemm)?.prepare()
    }

    /// Loads the entry points that calls of these products may take, wherever their matrices begin, so that none
    /// of them waits for the driver's compiler; it takes as long as that needs, up to half a second for each, and
    /// next to nothing for one that is loaded. Without it the first plan with a kernel loads it. Returns the
    /// kernels' names; [`Device::loaded`] has those of all entry points.
    ///
    /// ```
    /// use cuda_gemm::{Compute, Device, DeviceChoice, Gemm};
    ///
    /// let device = Device::open(DeviceChoice::SoftSm90)?;
    /// let layer = Gemm::new(32, 100, 64);
    /// let auto = device.auto()?;
    /// let kernels = auto.warm_up(&[layer, layer.transposed(false, true)])?;
    /// assert_eq!(kernels.len(), 1);
    /// // In bf16 on tensor cores.
    /// let in_bf16 = layer.computed_in(Compute::Bf16);
    /// assert!(auto.warm_up(&[in_bf16])?[0].starts_with("wgmma_"));
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Auto::product`] and [`ProductBuilder::prepare`] that are not about memory.
    pub fn warm_up(&self, products: &[Gemm]) -> Result<Vec<&'static str>, Error> {
        let mut names = Vec::new();
        for gemm in products {
            for builder in [self.product(*gemm)?, self.product(*gemm)?.any_alignment()] {
                names.push(builder.kernel_name());
                builder.load()?;
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Chooses a kernel for a product; how it is prepared may then be altered.
    ///
    /// # Errors
    ///
    /// Those of [`Auto::choose`] and [`Device::kernel`].
    pub fn plan(&self, gemm: Gemm) -> Result<PlanBuilder, Error> {
        self.plan_choice(gemm, self.choose(&gemm)?)
    }

    /// As [`Auto::plan`], with the choice given. With a kernel for f32 a product in TF32, or tf32x3, is one in f32.
    ///
    /// # Errors
    ///
    /// Those of [`Device::kernel`].
    pub fn plan_choice(&self, gemm: Gemm, choice: Choice) -> Result<PlanBuilder, Error> {
        let Choice { descriptor, splits, staged } = choice;
        let gemm = match (gemm.compute, Compute::of_kernel(descriptor)) {
            (Compute::Tf32 | Compute::Tf32x3, Compute::F32) => gemm.computed_in(Compute::F32),
            _ => gemm,
        };
        Ok(self.kernel(descriptor)?.plan(gemm).splits(splits).staged(staged))
    }

    fn kernel(&self, descriptor: &'static KernelDescriptor) -> Result<&Kernel, Error> {
        let place = self.kernels.iter().find(|(other, _)| other.name() == descriptor.name());
        let Some((_, cell)) = place else {
            return Err(Error::NotInPtx {
                kernel: descriptor.name(),
                device: self.device.info().name.clone(),
            });
        };
        if let Some(kernel) = cell.get() {
            return Ok(kernel);
        }
        let kernel = self.device.kernel(descriptor)?;
        Ok(cell.get_or_init(|| kernel))
    }
}

/// The same product of matrices whose rows begin on 16 bytes, in 16 bits.
fn with_aligned_rows(gemm: &Gemm) -> Gemm {
    let up = |elements: usize| elements.checked_next_multiple_of(8).unwrap_or(elements);
    let Gemm { lda, ldb, stride_a, stride_b, .. } = *gemm;
    let [lda, ldb, stride_a, stride_b] = [lda, ldb, stride_a, stride_b].map(up);
    Gemm { lda, ldb, stride_a, stride_b, ..*gemm }
}

/// How many times as long as tensor cores FMAs may be predicted to take, and be taken yet: in TF32 they are more accurate.
fn fmas_ahead(compute: Compute) -> f64 {
    if compute == Compute::Tf32 { 1.02 } else { 1.0 }
}
