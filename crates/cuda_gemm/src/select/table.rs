//! What a device was measured to need, as data: a [`Table`] in JSON.
//!
//! `rungs tune` makes one. Those under `crates/cuda_gemm/tuned` are built into the program, and found by
//! the device's name; any other can be read from a file. However a table is made, [`Table::new`]
//! checks it, and nothing alters it afterwards.
//!
//! ```
//! use cuda_gemm::select::table::{Costs, DeviceCosts, EntryCosts, Exception, Measured, Timed};
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
//!     misaligned_operand: 0.0,
//! };
//! let kernels = vec![Costs { kernel, aligned, unaligned: Some(aligned) }];
//! let costs = DeviceCosts {
//!     launch_ns: 2000.0,
//!     copy_gbytes: 1500.0,
//!     staging_ns: 3000.0,
//!     clusters: [132, 66, 39, 30, 22, 17, 15, 15],
//!     vector: 0.1,
//!     activation: 0.1,
//!     matrix: 1.0,
//! };
//! let table = Table::new(measured, costs, kernels, Vec::new())?;
//! let timed = |splits, ns| {
//!     Timed::new(Configuration { splits, ..Configuration::new(kernel) }, ns)
//! };
//! let exception = Exception::new(&Gemm::new(64, 64, 4096), timed(2, 9e3), timed(1, 11e3));
//! let table = table.with_exceptions(vec![exception])?;
//!
//! let auto = device.auto_by(&Table::parse(&table.to_json(), "a copy")?)?;
//! assert_eq!(auto.choose(&Gemm::new(64, 64, 4096))?.splits, 2);
//! # Ok::<(), cuda_gemm::Error>(())
//! ```

mod parts;
mod valid;

use std::fmt;
use std::path::Path;

use super::product_key::ProductKey;
use crate::device::{Device, DeviceChoice, DeviceInfo, Peak};
use crate::error::Error;
use crate::problem::Gemm;
use host_system::text;

use parts::Parts;
pub use parts::{Costs, DeviceCosts, EntryCosts, Exception, Measured, Timed};

/// The tables under `crates/cuda_gemm/tuned`: file name and text.
pub(super) const TUNED: &[(&str, &str)] = include!(env!("TUNED_TABLES"));

/// What kernels were measured to need on a device. Times are in nanoseconds.
///
/// It stays as it was checked:
///
/// ```compile_fail,E0615
/// fn alter(table: &mut cuda_gemm::Table) {
///     table.kernels.clear();
/// }
/// ```
#[derive(Clone)]
pub struct Table(Parts);

impl Table {
    /// Checks a table; `device` has the digests of all that was measured.
    ///
    /// # Errors
    ///
    /// [`Error::Table`], with what is wrong.
    pub fn new(
        device: Measured,
        costs: DeviceCosts,
        kernels: Vec<Costs>,
        exceptions: Vec<Exception>,
    ) -> Result<Self, Error> {
        let place = format!("the table of {}", device.name);
        let parts = Parts { device, costs, kernels, exceptions };
        Self::checked(parts, place)
    }

    fn checked(parts: Parts, place: String) -> Result<Self, Error> {
        match valid::check(&parts) {
            Ok(()) => Ok(Self(parts)),
            Err(reason) => Err(Error::Table { place, reason }),
        }
    }

    /// The same for another device.
    ///
    /// # Errors
    ///
    /// As for [`Table::new`].
    pub fn with_device(&self, device: Measured) -> Result<Self, Error> {
        self.altered(|parts| parts.device = device)
    }

    /// The same with other costs.
    ///
    /// # Errors
    ///
    /// As for [`Table::new`].
    pub fn with_kernels(&self, kernels: Vec<Costs>) -> Result<Self, Error> {
        self.altered(|parts| parts.kernels = kernels)
    }

    /// The same with other exceptions.
    ///
    /// # Errors
    ///
    /// As for [`Table::new`].
    pub fn with_exceptions(&self, exceptions: Vec<Exception>) -> Result<Self, Error> {
        self.altered(|parts| parts.exceptions = exceptions)
    }

    /// Whether a table can have an exception for a product: it is one of dense matrices, or [like](Table::with_product) one.
    pub fn can_have(gemm: &Gemm) -> bool {
        ProductKey::of(gemm).is_some()
    }

    /// The same with this exception for a product in place of the one that it may have, or with none. A product is like one of dense matrices if
    /// the same of A and B (in f32 of C, too) can be read by vectors of 16 bytes, alpha is not 0, it is no batch of pointers, and batches share neither A nor B.
    ///
    /// Where the PTX of a kernel for tensor cores in this exception has changed since others of it were measured, these go.
    ///
    /// # Errors
    ///
    /// As for [`Table::new`], for a product that is [none of a table](Table::can_have), and for an exception of another product.
    pub fn with_product(&self, gemm: &Gemm, exception: Option<Exception>) -> Result<Self, Error> {
        let Some(key) = ProductKey::of(gemm) else {
            let place = format!("the table of {}", self.0.device.name);
            let reason = "this product is not like one of dense matrices".to_owned();
            return Err(Error::Table { place, reason });
        };
        if exception.as_ref().is_some_and(|exception| exception.key() != Some(key)) {
            let place = format!("the table of {}", self.0.device.name);
            let reason = "the exception is of another product".to_owned();
            return Err(Error::Table { place, reason });
        }
        self.altered(|parts| {
            parts.exceptions.retain(|one| one.key() != Some(key));
            for kernel in exception.iter().flat_map(|one| [one.best.kernel, one.instead_of.kernel])
            {
                let name = kernel.name();
                if parts.kernels.iter().any(|costs| costs.kernel.name() == name) {
                    continue;
                }
                let before = parts.device.ptx_sha256.get(name).cloned();
                parts.device.add(kernel);
                if parts.device.ptx_sha256.get(name) != before.as_ref() {
                    let is_named = |one: &Exception| {
                        [&one.best, &one.instead_of].iter().any(|at| at.kernel.name() == name)
                    };
                    parts.exceptions.retain(|one| !is_named(one));
                    parts.device.changed_since.remove(name);
                }
            }
            parts.exceptions.extend(exception);
        })
    }

    fn altered(&self, alter: impl FnOnce(&mut Parts)) -> Result<Self, Error> {
        let mut parts = self.0.clone();
        alter(&mut parts);
        let place = format!("the table of {}", parts.device.name);
        Self::checked(parts, place)
    }

    /// Whether it was measured on a device like this: the costs of others are scaled, and their exceptions do not hold. A device that does not
    /// tell how many multiprocessors it has is like any of its name.
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

    /// What launches and memory take, whatever the kernel.
    pub fn costs(&self) -> &DeviceCosts {
        &self.0.costs
    }

    /// The kernels that are chosen from; at least one.
    pub fn kernels(&self) -> &[Costs] {
        &self.0.kernels
    }

    /// Products, in any precision, for which what the costs say is fastest was slower than another, or less accurate
    /// than cuBLAS.
    pub fn exceptions(&self) -> &[Exception] {
        &self.0.exceptions
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

    /// Reads a table from a text; `place` says in errors where that is from.
    ///
    /// # Errors
    ///
    /// [`Error::Table`], with the line or the entry that is wrong.
    pub fn parse(text: &str, place: impl fmt::Display) -> Result<Self, Error> {
        let parts = serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            // The place is said in front.
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

    /// The built-in table for a device: its own, or that of the device most like it.
    ///
    /// # Errors
    ///
    /// As for [`Table::built_in`].
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

    /// The software device, described as the one that was measured: `auto` chooses on it as there.
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
    /// Those of [`Device::open`].
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
        // String keys and plain data only, so that serialisation cannot fail.
        serde_json::to_string_pretty(&self.0).expect("plain data") + "\n"
    }
}
