//! A device's measured costs: a [`Table`] in JSON.
//!
//! `rungs tune` makes tables. The tables under `crates/cuda_gemm/tuned` are built into the program,
//! and found by the device's name. Others can be read from files. Every table is checked when it is
//! made, and nothing alters it afterwards.
//!
//! ```
//! use cuda_gemm::select::table::{Costs, DeviceCosts, EntryCosts, Measured, MeasuredProduct, Timed};
//! use cuda_gemm::{Configuration, Device, DeviceChoice, Gemm, Table, find_kernel};
//!
//! let device = Device::open(DeviceChoice::Soft)?;
//! let kernel = find_kernel("tile_64x64")?;
//! let mut measured = Measured::now(&device)?;
//! measured.add(kernel);
//! let aligned = EntryCosts {
//!     resident: 2,
//!     step_ns: 45.0,
//!     shared_step_ns: 40.0,
//!     block_ns: 900.0,
//!     store_ns: 100.0,
//!     next_tile: 1.0,
//!     reduction_ns: 500.0,
//!     partial_ns: 200.0,
//!     out_of_bounds: 0.1,
//!     misaligned_c: 0.2,
//!     transposed_c: 0.0,
//!     misaligned_operand: 0.0,
//!     narrow_step: 0.0,
//!     uneven_step: 0.0,
//! };
//! let kernels = vec![Costs { kernel, aligned, unaligned: Some(aligned) }];
//! let costs = DeviceCosts {
//!     launch_ns: 2000.0,
//!     copy_gbytes: 1500.0,
//!     l2_gbytes: 4000.0,
//!     multiprocessor_gbytes: 100.0,
//!     staging_ns: 3000.0,
//!     clusters: [132, 66, 39, 30, 22, 17, 15, 15],
//!     vector: 0.1,
//!     activation: 0.1,
//!     matrix: 1.0,
//! };
//! let table = Table::new(measured, costs, kernels, Vec::new())?;
//! let best = Timed::new(Configuration { splits: 2, ..Configuration::new(kernel) }, 9e3);
//! let product = MeasuredProduct::new(&Gemm::new(64, 64, 4096), best);
//! let table = table.with_products(vec![product])?;
//!
//! let auto = device.auto_by(&Table::parse(&table.to_json(), "a copy")?)?;
//! assert_eq!(auto.choose(&Gemm::new(64, 64, 4096))?.splits, 2);
//! # Ok::<(), cuda_gemm::Error>(())
//! ```

mod parts;
mod valid;

use std::fmt;
use std::path::Path;

use crate::device::{Device, DeviceChoice, DeviceInfo, Peak};
use crate::error::Error;
use host_system::text;

use parts::Parts;
pub use parts::{Costs, DeviceCosts, EntryCosts, Measured, MeasuredProduct, Timed};
pub(super) use valid::check_product;

/// The tables under `crates/cuda_gemm/tuned`: file name and text.
pub(super) const TUNED: &[(&str, &str)] = include!(env!("TUNED_TABLES"));

/// The measured costs of kernels on a device. Times are in nanoseconds.
///
/// A checked table cannot be altered:
///
/// ```compile_fail,E0615
/// fn alter(table: &mut cuda_gemm::Table) {
///     table.kernels.clear();
/// }
/// ```
#[derive(Clone)]
pub struct Table(Parts);

impl Table {
    /// Makes a table, and checks it. `device` has the digests of all that was measured.
    ///
    /// # Errors
    ///
    /// [`Error::Table`], with what is wrong.
    pub fn new(
        device: Measured,
        costs: DeviceCosts,
        kernels: Vec<Costs>,
        products: Vec<MeasuredProduct>,
    ) -> Result<Self, Error> {
        let place = format!("the table of {}", device.name);
        let parts = Parts { device, costs, kernels, products };
        Self::checked(parts, place)
    }

    fn checked(parts: Parts, place: String) -> Result<Self, Error> {
        match valid::check(&parts) {
            Ok(()) => Ok(Self(parts)),
            Err(reason) => Err(Error::Table { place, reason }),
        }
    }

    /// A copy of the table for another device.
    ///
    /// # Errors
    ///
    /// The errors of [`Table::new`].
    pub fn with_device(&self, device: Measured) -> Result<Self, Error> {
        self.altered(|parts| parts.device = device)
    }

    /// A copy of the table with other kernels' costs.
    ///
    /// # Errors
    ///
    /// The errors of [`Table::new`].
    pub fn with_kernels(&self, kernels: Vec<Costs>) -> Result<Self, Error> {
        self.altered(|parts| parts.kernels = kernels)
    }

    /// A copy of the table with other measured products.
    ///
    /// # Errors
    ///
    /// The errors of [`Table::new`].
    pub fn with_products(&self, products: Vec<MeasuredProduct>) -> Result<Self, Error> {
        self.altered(|parts| parts.products = products)
    }

    fn altered(&self, alter: impl FnOnce(&mut Parts)) -> Result<Self, Error> {
        let mut parts = self.0.clone();
        alter(&mut parts);
        let place = format!("the table of {}", parts.device.name);
        Self::checked(parts, place)
    }

    /// Whether the table was measured on such a device. The costs of other devices are scaled, and
    /// their products do not count. A device that does not report its multiprocessors matches by
    /// its name alone.
    pub fn is_of(&self, info: &DeviceInfo) -> bool {
        let measured = self.device();
        let multiprocessors = info.peak.map(|peak| peak.multiprocessors);
        measured.name == info.name
            && multiprocessors.is_none_or(|count| count == measured.multiprocessors)
    }

    /// The device, and what else the measurements depend on.
    pub fn device(&self) -> &Measured {
        &self.0.device
    }

    /// The costs of launches and memory, whatever the kernel.
    pub fn costs(&self) -> &DeviceCosts {
        &self.0.costs
    }

    /// The kernels that are chosen from; at least one.
    pub fn kernels(&self) -> &[Costs] {
        &self.0.kernels
    }

    /// Products, in any precision, that were measured themselves.
    pub fn products(&self) -> &[MeasuredProduct] {
        &self.0.products
    }

    /// Reads a table from a file.
    ///
    /// # Errors
    ///
    /// [`Error::Table`], with the line or the entry that is wrong.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = text::read(path).map_err(|error| Error::Table {
            place: path.display().to_string(),
            reason: error.to_string(),
        })?;
        Self::parse(&text, path.display())
    }

    /// Reads a table from a text. Errors name `place` as its origin.
    ///
    /// # Errors
    ///
    /// [`Error::Table`], with the line or the entry that is wrong.
    pub fn parse(text: &str, place: impl fmt::Display) -> Result<Self, Error> {
        let parts = serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            // The error has the place in front.
            let reason = error.to_string();
            let at = format!(" at line {line} column {column}");
            let reason = reason.strip_suffix(&at).unwrap_or(&reason).to_owned();
            Error::Table { place: format!("{place}:{line}"), reason }
        })?;
        Self::checked(parts, place.to_string())
    }

    /// The tables that are built in.
    ///
    /// # Errors
    ///
    /// [`Error::Table`] if one cannot be read: it was made for other kernels.
    pub fn built_in() -> Result<Vec<Self>, Error> {
        TUNED.iter().map(|(file, text)| Self::parse(text, format_args!("tuned/{file}"))).collect()
    }

    /// The built-in table of this or the nearest device.
    ///
    /// # Errors
    ///
    /// The errors of [`Table::built_in`].
    pub fn nearest(info: &DeviceInfo) -> Result<Self, Error> {
        let multiprocessors = info.peak.map_or(0, |peak| peak.multiprocessors);
        let distance = |table: &Self| {
            let Measured { name, capability, multiprocessors: other, .. } = table.device();
            (
                *name != info.name,
                *capability != info.capability,
                capability.0.abs_diff(info.capability.0),
                other.abs_diff(multiprocessors),
            )
        };
        let nearest = Self::built_in()?.into_iter().min_by_key(distance);
        nearest.ok_or_else(|| Error::Table {
            place: "the built-in tables".to_owned(),
            reason: "there are none".to_owned(),
        })
    }

    /// The software device, described as the measured one. `auto` chooses on it as on the measured
    /// device.
    ///
    /// ```
    /// use cuda_gemm::{Gemm, Table};
    ///
    /// for table in Table::built_in()? {
    ///     let auto = table.stand_in()?.auto_by(&table)?;
    ///     println!("{}: {}", table.device().name, auto.choose(&Gemm::new(512, 512, 512))?);
    /// }
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Device::open`].
    pub fn stand_in(&self) -> Result<Device, Error> {
        let measured = self.device();
        let model =
            if measured.capability.0 == 9 { DeviceChoice::SoftSm90 } else { DeviceChoice::Soft };
        let Measured { clock_khz, multiprocessors, lanes, .. } = *measured;
        Ok(Device::open(model)?.described(|info| {
            info.name.clone_from(&measured.name);
            info.peak = Some(Peak { clock_khz, multiprocessors, lanes });
            info.limits.multiprocessors = multiprocessors;
            info.l2_bytes = measured.l2_bytes;
            info.memory_gbytes = Some(measured.memory_gbytes);
        }))
    }

    /// The text of a file that [`Table::read`] reads.
    pub fn to_json(&self) -> String {
        // Serialisation cannot fail: there are only string keys and plain data.
        serde_json::to_string_pretty(&self.0).expect("plain data") + "\n"
    }
}
