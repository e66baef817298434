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
//! A [`Table`] has a few numbers for each kernel, measured by `rungs tune`. A [`Model`] predicts
//! times from them, and the shortest time wins. A product that was measured itself has a
//! [`MeasuredProduct`], which comes first. A GPU without a table gets the costs of the one most like
//! it, scaled.

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

pub use changes::Change;
pub use measure::{Measurement, Skipped};
pub use measured::{MeasuredChoice, Source};
pub use model::Model;
pub use prediction::Prediction;
pub use product_file::{CACHE_VARIABLE, ProductFile};
pub use table::{MeasuredProduct, Table};

/// The name that stands for the choice.
pub const NAME: &str = "auto";

/// What `auto` is, in a line.
pub const SUMMARY: &str = "the kernel and the splits that are fastest for this product here";

/// What choices are based on, with the name of the device that was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Measurements on a device like this.
    Measured(String),
    /// Measurements on another device, scaled to this one.
    Scaled(String),
    /// The software device: in f32 the work of an interpreter, otherwise measurements on a GPU.
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
    model: Model,
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
        let table = Table::nearest(self.info())?;
        let mut auto = self.auto_by(&table)?;
        if self.is_soft() && !table.is_of(self.info()) {
            auto.basis = Basis::Software(table.device().name.clone());
        }
        Ok(auto)
    }

    /// As [`Device::auto`], by any table: that of another device is scaled.
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
        let products = products
            .iter()
            .filter_map(|at| Some((at.key()?, (at.best.configuration(), at.best.ns))));
        let (device, products) = (self.clone(), products.collect());
        Ok(Auto { device, basis, model, by_measurements: true, products })
    }

    /// The blocks of a kernel's entry point that are resident on a multiprocessor, as the driver
    /// says; 0 if the kernel cannot run.
    ///
    /// # Errors
    ///
    /// Those of [`Device::kernel`].
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
        // Opts in to as much shared memory as the kernel needs, which counts here.
        let kernel = self.kernel(descriptor)?;
        // A K that needs as much shared memory as any.
        let compute = Compute::of_kernel(descriptor);
        let long = Gemm::new(1, 1, 16 * descriptor.tile().bk as usize).computed_in(compute);
        let shared = kernel.prepare(long)?.launch_plan().shared_bytes();
        let name = match descriptor.unaligned() {
            Some(other) if unaligned => other.name,
            _ => descriptor.entry_points(false)[0],
        };
        let block = BlockSize::xy(descriptor.block()[0], descriptor.block()[1]);
        self.entry_point(name)?.resident_blocks(block, shared)
    }

    /// Clusters of `size` blocks of a kernel that run at once, as the driver says.
    ///
    /// # Errors
    ///
    /// Those of [`Device::kernel`].
    pub fn active_clusters(
        &self,
        descriptor: &'static KernelDescriptor,
        size: u32,
    ) -> Result<u32, Error> {
        let kernel = self.kernel(descriptor)?;
        let gemm = Gemm::new(1, 1, 16 * descriptor.tile().bk as usize);
        let gemm = gemm.computed_in(Compute::of_kernel(descriptor));
        let shared = kernel.prepare(gemm)?.launch_plan().shared_bytes();
        let block = BlockSize::xy(descriptor.block()[0], descriptor.block()[1]);
        self.entry_point(descriptor.entry_points(false)[0])?.active_clusters(size, block, shared)
    }
}

impl Auto {
    /// The same choices without measured products, neither a file's nor a table's.
    #[must_use]
    pub fn by_model_alone(self) -> Self {
        Self { by_measurements: false, products: HashMap::new(), ..self }
    }

    /// What choices are based on.
    pub fn basis(&self) -> &Basis {
        &self.basis
    }

    /// The model that predicts times.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What choices for products in a precision are based on, in words.
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

    /// The kernel for a product, and how it divides the product.
    ///
    /// It predicts some hundred times, which takes up to half a millisecond.
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
        if self.is_by_work(gemm) {
            return Ok(rule::for_software(gemm));
        }
        if let Some(fastest) = self.model.fastest(gemm) {
            return Ok(fastest.configuration);
        }
        // Any kernel computes nothing.
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
