//! What a device was measured to need, as data: a [`Table`] in JSON.
//!
//! `host tune` makes one. Those under `host/tuned` are built into the program, and found by
//! the device's name; any other can be read from a file. However a table is made, [`Table::new`]
//! checks it, and nothing alters it afterwards.

mod changes;
mod valid;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use kernels_gpu::KernelDescriptor;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Choice;
use crate::device::{Device, DeviceInfo, Peak};
use crate::environment::Environment;
use crate::error::Error;
use crate::launch::find_kernel;
use crate::text;

pub use changes::Change;

/// The tables under `host/tuned`: file name and text.
pub(super) const TUNED: &[(&str, &str)] = include!(env!("TUNED_TABLES"));

/// What kernels were measured to need on a device. Times are in nanoseconds.
///
/// It stays as it was checked:
///
/// ```compile_fail,E0615
/// fn alter(table: &mut host::Table) {
///     table.kernels.clear();
/// }
/// ```
#[derive(Clone)]
pub struct Table(Parts);

/// A [`Table`] before it is checked, and in JSON.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    device: Measured,
    launch_ns: f64,
    copy_gbytes: f64,
    kernels: Vec<Costs>,
    exceptions: Vec<Exception>,
}

/// Where and with what a [`Table`] was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The name the driver gives the device.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// The highest clock of these, in kHz.
    pub clock_khz: u32,
    /// FP32 lanes of each.
    pub lanes: u32,
    /// Bytes of the L2 cache.
    pub l2_bytes: u64,
    /// What the memory can do at best, in GB/s (10^9).
    pub memory_gbytes: f64,
    /// When, in seconds since 1970.
    pub unix_time: u64,
    /// The driver's version, where the system told.
    pub driver_version: Option<String>,
    /// The version of this library.
    pub host_version: String,
    /// The SHA-256 of the PTX of each entry point that was measured.
    pub ptx_sha256: BTreeMap<String, String>,
    /// Entry points whose PTX has changed since, as the table openly says: the SHA-256 of what is
    /// taken in place of what was measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub changed_since: BTreeMap<String, String>,
}

/// What a kernel takes: see [`Model`](super::Model) for how these make a time.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// The kernel.
    #[serde(serialize_with = "name", deserialize_with = "by_name")]
    pub kernel: &'static KernelDescriptor,
    /// With one block per multiprocessor, with two, and so on to as many as fit.
    pub aligned: Vec<Pace>,
    /// The same for the entry point for matrices that are not aligned; empty if the kernel
    /// has none.
    pub unaligned: Vec<Pace>,
    /// For a tile of C that several blocks share: to store their sums, and for the
    /// last one to know that it is the last.
    pub join_ns: f64,
    /// For each of these blocks: to add up what it left.
    pub piece_ns: f64,
    /// For a persistent block: to go from one tile to the next.
    pub tile_ns: f64,
}

/// How fast blocks are that share a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// From the beginning of a block to its end, without the steps.
    pub fixed_ns: f64,
    /// A step along K, all of the blocks together.
    pub step_ns: f64,
}

/// A product of densely stored matrices, with what was measured to be fastest. Both kernels are
/// among those that the table has costs of.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// The fastest that is as accurate as cuBLAS, or nearly.
    pub best: Timed,
    /// What the costs say is fastest; its time is what they say where it was not measured.
    pub instead_of: Timed,
}

/// A choice and its time.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timed {
    /// The kernel.
    #[serde(serialize_with = "name", deserialize_with = "by_name")]
    pub kernel: &'static KernelDescriptor,
    /// Blocks that share each tile of C.
    pub splits: u32,
    /// Whether A and B are copied first.
    #[serde(default)]
    pub packed: bool,
    /// The time.
    pub ns: f64,
}

impl Measured {
    /// This device, now, before any kernel is measured: see [`Measured::add`].
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn now(device: &Device) -> Result<Self, Error> {
        let info = device.info();
        let environment = Environment::of(device)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        // The software device has no clock, and a table needs numbers.
        let peak = info.peak.unwrap_or(Peak { clock_khz: 1, multiprocessors: 1, lanes: 1 });
        Ok(Self {
            name: info.name.clone(),
            capability: info.capability,
            multiprocessors: peak.multiprocessors,
            clock_khz: peak.clock_khz,
            lanes: peak.lanes,
            l2_bytes: info.l2_bytes,
            memory_gbytes: info.memory_gbytes.unwrap_or(1.0),
            unix_time: now.map_or(0, |time| time.as_secs()),
            driver_version: environment.driver_version,
            host_version: environment.host_version.to_owned(),
            ptx_sha256: changes::of_every_table(info.capability),
            changed_since: BTreeMap::new(),
        })
    }

    /// Adds a kernel that is measured with its PTX in this program.
    pub fn add(&mut self, kernel: &KernelDescriptor) {
        self.ptx_sha256.extend(changes::of_kernel(self.capability, kernel));
    }
}

impl Timed {
    /// Without the time.
    pub fn choice(&self) -> Choice {
        Choice { spec: self.kernel, splits: self.splits, packed: self.packed }
    }
}

impl Table {
    /// Checks a table; `device` has the digests of all that was measured.
    ///
    /// # Errors
    ///
    /// [`Error::Table`], with what is wrong.
    pub fn new(
        device: Measured,
        launch_ns: f64,
        copy_gbytes: f64,
        kernels: Vec<Costs>,
        exceptions: Vec<Exception>,
    ) -> Result<Self, Error> {
        let place = format!("the table of {}", device.name);
        let parts = Parts { device, launch_ns, copy_gbytes, kernels, exceptions };
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
        let Parts { launch_ns, copy_gbytes, kernels, exceptions, .. } = self.0.clone();
        Self::new(device, launch_ns, copy_gbytes, kernels, exceptions)
    }

    /// The same with other costs.
    ///
    /// # Errors
    ///
    /// As for [`Table::new`].
    pub fn with_kernels(&self, kernels: Vec<Costs>) -> Result<Self, Error> {
        let Parts { device, launch_ns, copy_gbytes, exceptions, .. } = self.0.clone();
        Self::new(device, launch_ns, copy_gbytes, kernels, exceptions)
    }

    /// The same with other exceptions.
    ///
    /// # Errors
    ///
    /// As for [`Table::new`].
    pub fn with_exceptions(&self, exceptions: Vec<Exception>) -> Result<Self, Error> {
        let Parts { device, launch_ns, copy_gbytes, kernels, .. } = self.0.clone();
        Self::new(device, launch_ns, copy_gbytes, kernels, exceptions)
    }

    /// The device, and what else the measurements depend on.
    pub fn device(&self) -> &Measured {
        &self.0.device
    }

    /// What a launch takes that has nothing to do.
    pub fn launch_ns(&self) -> f64 {
        self.0.launch_ns
    }

    /// Bytes read plus bytes written in a copy, in GB/s (10^9).
    pub fn copy_gbytes(&self) -> f64 {
        self.0.copy_gbytes
    }

    /// The kernels that are chosen from; at least one.
    pub fn kernels(&self) -> &[Costs] {
        &self.0.kernels
    }

    /// Products for which what the costs say is fastest was slower than another, or less accurate
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

    /// The built-in table for a device: its own, or that of the device most like it. `None`
    /// if there are none.
    ///
    /// # Errors
    ///
    /// As for [`Table::built_in`].
    pub fn nearest(info: &DeviceInfo) -> Result<Option<Self>, Error> {
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
        Ok(Self::built_in()?.into_iter().min_by_key(distance))
    }

    /// The text of a file that [`Table::read`] reads.
    pub fn to_json(&self) -> String {
        // String keys and plain data only, so that serialisation cannot fail.
        serde_json::to_string_pretty(&self.0).expect("plain data") + "\n"
    }
}

fn name<S: Serializer>(spec: &&'static KernelDescriptor, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(spec.name())
}

fn by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<&'static KernelDescriptor, D::Error> {
    let name = String::deserialize(deserializer)?;
    find_kernel(&name).map_err(D::Error::custom)
}
