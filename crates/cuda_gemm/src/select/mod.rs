//! Chooses each product's kernel and splits, from measurements.
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
//! A [`Table`] has a few numbers for each kernel, measured by `rungs tune`. A [`Model`] predicts
//! times from them, and the shortest time wins. A product that was measured itself has a
//! [`MeasuredProduct`], which comes first. A GPU without a table gets the costs of the most similar
//! GPU, scaled.

mod candidates;
mod changes;
mod configurations;
mod copies;
mod digests;
mod grid;
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

use std::collections::HashMap;
use std::fmt;

use cust::function::BlockSize;
use kernels_gpu::abi::{KernelDescriptor, Shared};

use crate::device::Device;
use crate::error::Error;
use crate::plan::{Configuration, Plan, PlanBuilder, is_fma_for_tf32};
use crate::problem::{Compute, Gemm};

use measured::Store;
use product_key::ProductKey;
use table::Timed;

pub use candidates::Asked;
pub use changes::Change;
pub use measure::{Measurement, Skipped};
pub use measured::{MeasuredChoice, Source};
pub use model::Model;
pub use prediction::Prediction;
pub use product_file::{CACHE_VARIABLE, ProductFile, file_name};
pub use table::{MeasuredProduct, Table};

/// The name that stands for the choice.
pub const NAME: &str = "auto";

/// A description of `auto`, in a line.
pub const SUMMARY: &str = "the kernel and the splits that are fastest for this product here";

/// The basis of choices, with the measured device's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Measurements on a device like this.
    Measured(String),
    /// Measurements on another device, scaled to this one.
    Scaled(String),
    /// The software device. In f32 an interpreter's work decides, otherwise measurements on a GPU.
    Software(String),
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured(on) => write!(f, "measured on {on}"),
            Self::Scaled(on) => {
                write!(f, "scaled from what was measured on {on}, because this device was not")
            }
            Self::Software(on) => write!(
                f,
                "in f32 the tile that makes the software device do the least, otherwise what was \
                 measured on {on}"
            ),
        }
    }
}

/// Chooses and prepares kernels for products on a device.
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
    model: Model,
    /// Whether measured products come before the model.
    by_measurements: bool,
    /// The table's measured products: their fastest configurations.
    products: HashMap<ProductKey, Timed>,
}

impl Device {
    /// Makes an [`Auto`] from this device's built-in table. If there is none, the most similar
    /// device's table is scaled.
    ///
    /// # Errors
    ///
    /// [`Error::Table`] if a table does not fit the kernels or the device.
    pub fn auto(&self) -> Result<Auto, Error> {
        let table = Table::nearest(self.info())?;
        let mut auto = self.auto_by(&table)?;
        if self.is_soft() && !table.is_of(self.info()) {
            auto.basis = Basis::Software(table.device().name.clone());
        }
        Ok(auto)
    }

    /// Makes an [`Auto`] from any table. The table of another device is scaled.
    ///
    /// # Errors
    ///
    /// [`Error::Table`] if nothing in the table can be launched on this device.
    pub fn auto_by(&self, table: &Table) -> Result<Auto, Error> {
        let info = self.info();
        let is_own = table.is_of(info);
        let on = table.device().name.clone();
        let (model, basis, products) = match is_own {
            true => (Model::new(table), Basis::Measured(on), table.products()),
            false => (Model::new(&scale::scaled(table, info)?), Basis::Scaled(on), &[][..]),
        };
        let products = products.iter().filter_map(|at| Some((at.key()?, at.best)));
        let (device, products) = (self.clone(), products.collect());
        Ok(Auto { device, basis, model, by_measurements: true, products })
    }

    /// The resident blocks of an entry point, per multiprocessor.
    ///
    /// The count is fixed for persistent kernels and for [`Shared::Stages`]. For other kernels the
    /// driver counts. It is 0 if the kernel cannot run.
    ///
    /// # Errors
    ///
    /// The errors of [`Device::kernel`].
    pub fn resident_blocks(
        &self,
        descriptor: &'static KernelDescriptor,
        unaligned: bool,
    ) -> Result<u32, Error> {
        if scale::room(self.info(), descriptor) == 0 {
            return Ok(0);
        }
        if let Shared::Stages { blocks, .. } = descriptor.shared() {
            return Ok(blocks);
        }
        if descriptor.is_persistent() {
            return Ok(1);
        }
        let name = match descriptor.unaligned() {
            Some(other) if unaligned => other.name,
            _ => descriptor.entry_points(false)[0],
        };
        let (block, shared) = self.launch_size(descriptor)?;
        self.entry_point(name)?.resident_blocks(block, shared)
    }

    /// Clusters of `size` blocks that run at once. The driver counts them.
    ///
    /// # Errors
    ///
    /// The errors of [`Device::kernel`].
    pub fn active_clusters(
        &self,
        descriptor: &'static KernelDescriptor,
        size: u32,
    ) -> Result<u32, Error> {
        let (block, shared) = self.launch_size(descriptor)?;
        self.entry_point(descriptor.entry_points(false)[0])?.active_clusters(size, block, shared)
    }

    /// A kernel's block, and the most shared memory that it needs.
    ///
    /// Opts in to that shared memory, which the driver counts.
    fn launch_size(&self, kernel: &'static KernelDescriptor) -> Result<(BlockSize, u32), Error> {
        // A K so long that a longer one needs no more shared memory.
        let long = Gemm::new(1, 1, 16 * kernel.tile().bk as usize);
        let plan = self.kernel(kernel)?.prepare(long.computed_in(Compute::of_kernel(kernel)))?;
        let [width, height] = kernel.block();
        Ok((BlockSize::xy(width, height), plan.launch_plan().shared_bytes()))
    }
}

impl Auto {
    /// Chooses by the model alone, without measured products. Neither a file's nor the table's
    /// count. [`Auto::measure`] measures products again.
    #[must_use]
    pub fn by_model_alone(self) -> Self {
        Self { by_measurements: false, products: HashMap::new(), ..self }
    }

    /// The basis of choices.
    pub fn basis(&self) -> &Basis {
        &self.basis
    }

    /// The model that predicts times.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The basis of choices in a precision, in words.
    pub fn basis_for(&self, compute: Compute) -> String {
        let measured = self.products.keys().filter(|key| key.compute() == compute).count();
        match (&self.basis, measured) {
            (Basis::Software(_), _) if compute == Compute::F32 => {
                "the tile that makes the software device do the least".to_owned()
            }
            (Basis::Software(on), _) => format!("what was measured on {on}"),
            (basis, 0) => basis.to_string(),
            (basis, count) => {
                format!("{basis}, and {count} product(s) that were measured themselves")
            }
        }
    }

    /// The kernel and the configuration for a product.
    ///
    /// It makes some hundred predictions, in up to half a millisecond.
    ///
    /// A product in TF32 gets a kernel for f32 if its FMAs are predicted within 2 % of the fastest.
    /// A product in tf32x3 gets one if its FMAs are the fastest. This happens mostly if memory
    /// bounds the time, as with one row. FMAs are at least as accurate.
    ///
    /// # Errors
    ///
    /// The errors of [`Gemm::validate`].
    pub fn choose(&self, gemm: &Gemm) -> Result<Configuration, Error> {
        gemm.validate()?;
        if let Some(measured) = self.measured_choice(gemm) {
            return Ok(measured.configuration);
        }
        if self.is_by_work(gemm) {
            return Ok(rule::for_software(gemm));
        }
        if let Some(fastest) = self.model.fastest(gemm) {
            return Ok(fastest.configuration);
        }
        // Nothing is predicted: C has no elements, or no kernel suits the product.
        let kernels = self.model.kernels().iter().map(|costs| costs.kernel);
        let kernels = kernels.filter(|kernel| gemm.compute.is_of(kernel));
        let mut lacks = None;
        for kernel in kernels {
            match gemm.unsuited(kernel) {
                None => return Ok(Configuration::new(kernel)),
                Some(what) => lacks = Some(Error::Unsuited { kernel: kernel.name(), what }),
            }
        }
        Err(lacks.unwrap_or_else(|| {
            gemm.compute.refused("no kernel that this device can launch computes in it".to_owned())
        }))
    }

    /// Whether the work of an interpreter decides.
    fn is_by_work(&self, gemm: &Gemm) -> bool {
        matches!(self.basis, Basis::Software(_)) && gemm.compute == Compute::F32
    }

    /// The fastest measured configuration for this product and device.
    ///
    /// Products that the device [measured or read](ProductFile::of) come before the table's. The
    /// product's matrices are dense, or 16-byte vectors reach the same parts of their rows.
    pub fn measured_choice(&self, gemm: &Gemm) -> Option<MeasuredChoice> {
        let key = ProductKey::of(gemm)?;
        let suits = |found: &MeasuredChoice| gemm.suits(found.configuration.kernel);
        let of_device = || Store::of(&self.device).find(&self.device, &key);
        let of_device = self.by_measurements.then(of_device).flatten();
        of_device.filter(suits).or_else(|| {
            let Timed { configuration, ns } = *self.products.get(&key)?;
            Some(MeasuredChoice { configuration, ns, source: Source::Table }).filter(suits)
        })
    }

    /// Chooses, checks and prepares a kernel for a product. One plan serves any number of calls.
    /// Its memory is allocated here. [`Auto::plan`] has settings.
    ///
    /// # Errors
    ///
    /// The errors of [`Auto::plan`] and [`PlanBuilder::prepare`].
    pub fn prepare(&self, gemm: Gemm) -> Result<Plan<'static>, Error> {
        self.plan(gemm)?.prepare()
    }

    /// Chooses a kernel; its preparation may then be altered.
    ///
    /// After [`Device::measure`], a new product is measured first.
    ///
    /// # Errors
    ///
    /// The errors of [`Auto::choose`], [`Device::kernel`] and [`Auto::measure`], and
    /// [`Error::Disagreement`].
    pub fn plan(&self, gemm: Gemm) -> Result<PlanBuilder, Error> {
        self.plan_on(gemm, &self.device.stream(), self.device.measured_candidates())
    }

    /// Plans a product with the caller's configuration. It may be one of [`Auto::candidates`]. A
    /// product in TF32 or tf32x3 is computed in f32 if the kernel is for f32.
    ///
    /// # Errors
    ///
    /// [`Error::Compute`] if the kernel does not compute such products, or cannot be launched so.
    /// Also the errors of [`Device::kernel`]. An epilogue that the kernel lacks is an error of
    /// [`PlanBuilder::prepare`].
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

    /// Loads the entry points for calls of these products. Then no call waits for the driver's
    /// compiler.
    ///
    /// Loading takes up to half a second per entry point, and next to nothing if it is loaded
    /// already. Without a warm-up, the first plan with a kernel loads it.
    ///
    /// Returns the kernels' names. [`Device::loaded`] has the names of all entry points.
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
    /// The errors of [`Auto::plan`] and [`PlanBuilder::prepare`] that are not about memory.
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
