//! Which kernel, and with how many splits: for each product and device, from measurements.
//!
//! ```no_run
//! use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm};
//!
//! # fn main() -> Result<(), cuda_gemm::Error> {
//! let device = Device::open(DeviceChoice::Auto)?;
//! let auto = device.auto()?; // once
//! let product = auto.prepare(Gemm::new(16, 4096, 4096))?; // once for each shape
//! # let a = DeviceMatrix::<f32>::zeros(&device, [16, 4096])?;
//! # let b = DeviceMatrix::<f32>::zeros(&device, [4096, 4096])?;
//! # let mut c = DeviceMatrix::<f32>::zeros(&device, [16, 4096])?;
//! product.run(&a, &b, &mut c)?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Table`] has a few constants for each kernel, measured by `rungs tune`; a [`Model`] makes
//! times of them; the least time wins. A product that was measured itself has a
//! [`MeasuredProduct`], which comes first. A GPU without a table gets the costs of the
//! one most like it, scaled; without any table, the largest tile that fills the GPU is taken.

mod candidates;
mod changes;
mod copies;
mod digests;
mod measure;
mod measured;
pub mod model;
mod prediction;
mod product_file;
mod product_key;
mod rule;
mod scale;
pub mod table;
#[cfg(test)]
mod tests;
mod tf32;
mod wgmma;

use std::collections::HashMap;
use std::fmt;

use cust::function::BlockSize;
use kernels_gpu::LADDER;
use kernels_gpu::abi::{KernelAbi, KernelDescriptor, Target};

use crate::device::Device;
use crate::error::Error;
use crate::plan::{Configuration, Plan, PlanBuilder, is_fma_for_tf32};
use crate::problem::{Compute, Gemm};

use measured::Store;
use product_key::ProductKey;

pub use changes::Change;
pub use measure::{Measurement, Skipped};
pub use measured::{MeasuredChoice, Source};
pub use model::{Conditions, Model};
pub use prediction::Prediction;
pub use product_file::{CACHE_VARIABLE, ProductFile};
pub use table::{MeasuredProduct, Table};
pub use wgmma::division;

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
/// use cuda_gemm::{Device, DeviceChoice, Gemm, Table};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let tables = Table::built_in()?;
/// let auto = device.auto_by(&tables[0])?;
/// println!("{}", auto.basis());
///
/// let gemm = Gemm::new(500, 400, 300);
/// let choice = auto.choose(&gemm)?;
/// // Best first.
/// assert_eq!(auto.predictions(&gemm, 3)[0].configuration, choice);
/// assert!(auto.measured_choice(&gemm).is_none());
/// let product = auto.plan_by(gemm, &choice)?.prepare()?;
/// assert_eq!(*product.configuration(), choice);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct Auto {
    device: Device,
    basis: Basis,
    /// Whether measured products come before the model.
    by_measurements: bool,
    /// The table's products that were measured, what was fastest for them, and nanoseconds.
    products: HashMap<ProductKey, (Configuration, f64)>,
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
            let products = table.products().iter();
            let products =
                products.filter_map(|at| Some((at.key()?, (at.best.configuration(), at.best.ns))));
            auto.products = products.collect();
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
        Self { device: device.clone(), basis, by_measurements: true, products: HashMap::new() }
    }

    /// The same choices without measured products, neither a file's nor a table's.
    #[must_use]
    pub fn by_model_alone(self) -> Self {
        Self { by_measurements: false, products: HashMap::new(), ..self }
    }

    /// What choices for products in f32 are based on.
    pub fn basis(&self) -> &Basis {
        &self.basis
    }

    /// What choices for products in a precision are based on, in words.
    pub fn basis_for(&self, compute: Compute) -> String {
        let info = self.device.info();
        let basis = match compute {
            Compute::F32 => return self.basis.to_string(),
            Compute::Tf32 | Compute::Tf32x3 => tf32::basis(tf32::target(info)),
            Compute::Bf16 | Compute::F16 => wgmma::basis(info),
        };
        let measured = self.products.keys().filter(|key| key.compute() == compute).count();
        let measured = match measured {
            0 => String::new(),
            count => format!(", and {count} product(s) that were measured themselves"),
        };
        let of_f32 = match &self.basis {
            Basis::Measured { .. } if !compute.is_16_bits() => {
                format!("; kernels for f32 by what was {}", self.basis)
            }
            _ => String::new(),
        };
        format!("{basis}{measured}{of_f32}")
    }

    /// The kernel for a product, and how it divides the product. It takes some microseconds.
    ///
    /// A product in TF32, or tf32x3, gets a kernel for f32 where that should be faster: as a rule
    /// where memory is what takes the time, as with one row. FMAs are at least as accurate.
    ///
    /// # Errors
    ///
    /// Those of [`Gemm::validate`].
    pub fn choose(&self, gemm: &Gemm) -> Result<Configuration, Error> {
        gemm.validate()?;
        if let Some(measured) = self.measured_choice(gemm) {
            return Ok(measured.configuration);
        }
        Ok(match gemm.compute {
            Compute::F32 => self.choose_fma(gemm),
            Compute::Tf32 | Compute::Tf32x3 => {
                let least = tf32::choose(gemm, self.gpu());
                let fma = self.fma_ranking(gemm, 1).into_iter().next();
                let fma = fma.filter(|fma| fma.ns < fmas_ahead(gemm.compute) * least.ns);
                fma.unwrap_or(least).configuration
            }
            Compute::Bf16 | Compute::F16 => wgmma::choose(gemm, self.device.info()),
        })
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

    /// The best few choices in f32 for a product in TF32, or tf32x3, the one that is taken first.
    /// Kernels by `mma.sync` have no costs that were measured, and are compared with none.
    fn fma_ranking(&self, gemm: &Gemm, count: usize) -> Vec<Prediction> {
        let gemm = gemm.computed_in(Compute::F32);
        match &self.basis {
            Basis::Measured { model, .. } if self.gpu().target == Target::Sm90a => {
                let mut ranking = model.ranking(&gemm, count);
                let measured = self.measured_choice(&gemm).and_then(|found| {
                    let MeasuredChoice { configuration, ns, .. } = found;
                    Some(Prediction { ns, ..model.time(&gemm, &configuration)? })
                });
                if let Some(measured) = measured {
                    ranking.retain(|other| other.configuration != measured.configuration);
                    ranking.insert(0, measured);
                    ranking.truncate(count);
                }
                ranking
            }
            Basis::Measured { .. } | Basis::Size { .. } | Basis::Software => Vec::new(),
        }
    }

    /// The choice for a product in f32, which is valid, by costs.
    fn choose_fma(&self, gemm: &Gemm) -> Configuration {
        match &self.basis {
            // Any kernel computes nothing.
            Basis::Measured { model, .. } => model.fastest(gemm).map_or_else(
                || Configuration::new(model.kernels()[0].kernel),
                |fastest| fastest.configuration,
            ),
            Basis::Size { multiprocessors, rungs } => rule::for_gpu(gemm, *multiprocessors, rungs),
            Basis::Software => rule::for_software(gemm),
        }
    }

    /// The configuration that was measured to be fastest for this product on this device.
    ///
    /// What the device [measured or read](ProductFile::of) comes first, then the table's products.
    /// The matrices are dense, or vectors of 16 bytes reach the same parts of their rows.
    pub fn measured_choice(&self, gemm: &Gemm) -> Option<MeasuredChoice> {
        let key = ProductKey::of(gemm)?;
        let suits = |found: &MeasuredChoice| gemm.suits(found.configuration.kernel);
        let of_device = || Store::of(&self.device).find(&self.device, &key);
        let of_device = self.by_measurements.then(of_device).flatten();
        of_device.filter(suits).or_else(|| {
            let (configuration, ns) = *self.products.get(&key)?;
            Some(MeasuredChoice { configuration, ns, source: Source::Table }).filter(suits)
        })
    }

    /// The best few choices in f32 by costs alone, as [`Model::ranking`] has them, if there are any
    /// measurements.
    fn ranking(&self, gemm: &Gemm, count: usize) -> Vec<Prediction> {
        match &self.basis {
            Basis::Measured { model, .. } => model.ranking(gemm, count),
            Basis::Size { .. } | Basis::Software => Vec::new(),
        }
    }

    /// Chooses a kernel for a product and checks it, once for any number of calls. The memory that
    /// it needs is allocated here. [`Auto::plan`] has settings.
    ///
    /// # Errors
    ///
    /// Those of [`Auto::plan`] and [`PlanBuilder::prepare`].
    pub fn prepare(&self, gemm: Gemm) -> Result<Plan<'static>, Error> {
        self.plan(gemm)?.prepare()
    }

    /// Chooses a kernel for a product; how it is prepared may then be altered.
    ///
    /// After [`Device::measure`], a new product is measured first.
    ///
    /// # Errors
    ///
    /// Those of [`Auto::choose`], [`Device::kernel`] and [`Auto::measure`], and
    /// [`Error::Disagreement`].
    pub fn plan(&self, gemm: Gemm) -> Result<PlanBuilder, Error> {
        self.plan_on(gemm, &self.device.stream(), self.device.measured_candidates())
    }

    /// How to prepare a product by a kernel, and a way to launch it, of the caller's choice: one of
    /// [`Auto::candidates`], say. With a kernel for f32 a product in TF32, or tf32x3, is one in f32.
    ///
    /// # Errors
    ///
    /// [`Error::Compute`] for a kernel that does not compute such products, or cannot be launched
    /// so; those of [`Device::kernel`]. An epilogue that the kernel does not have is an error when
    /// the product is prepared.
    pub fn plan_by(&self, gemm: Gemm, configuration: &Configuration) -> Result<PlanBuilder, Error> {
        let kernel = configuration.kernel;
        let gemm = match is_fma_for_tf32(&gemm, kernel) {
            true => gemm.computed_in(Compute::F32),
            false => gemm,
        };
        let possible = configuration.expect_possible(&gemm, self.device.info().capability);
        possible.map_err(|reason| gemm.compute.refused(reason))?;
        Ok(self.device.kernel(kernel)?.plan(gemm).divided(configuration))
    }

    /// Loads the entry points that calls of these products may take, so that none of them waits for
    /// the driver's compiler. It takes as long as that needs, up to half a second for each, and next
    /// to nothing for one that is loaded. Without it the first plan with a kernel loads it. Returns
    /// the kernels' names; [`Device::loaded`] has those of all entry points.
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
    /// Those of [`Auto::plan`] and [`PlanBuilder::prepare`] that are not about memory.
    pub fn warm_up(&self, products: &[Gemm]) -> Result<Vec<&'static str>, Error> {
        let mut names = Vec::new();
        for gemm in products {
            let builder = self.plan(*gemm)?.any_alignment();
            names.push(builder.kernel().descriptor().name());
            builder.load()?;
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}

/// How many times as long as tensor cores FMAs may be predicted to take, and be taken yet: in TF32
/// they are more accurate.
fn fmas_ahead(compute: Compute) -> f64 {
    if compute == Compute::Tf32 { 1.02 } else { 1.0 }
}
