//! Scales a table to a device that nobody measured.

use kernels_gpu::abi::{Arithmetic, KernelDescriptor, Shared, Target};

use super::table::{Costs, DeviceCosts, EntryCosts, Measured, Table};
use crate::device::{DeviceInfo, RESERVED_SHARED};
use crate::error::Error;
use crate::plan::has_hopper;

/// How many blocks of a kernel fit a multiprocessor. It is 0 if the kernel cannot run.
///
/// The driver is not asked, because it would have to compile the kernel first. Registers are not
/// counted: all GPUs that kernels are built for have equally many, so a table's blocks fit.
pub fn room(info: &DeviceInfo, descriptor: &KernelDescriptor) -> u32 {
    let shared = match descriptor.shared() {
        Shared::Static(bytes) => bytes.into(),
        // For a K so long that a longer one needs no more.
        Shared::Dynamic(bytes) => bytes(16 * descriptor.tile().bk),
        Shared::Stages { bytes, .. } => bytes[0].into(),
    };
    let is_of_hopper = descriptor.target() == Target::Sm90a || descriptor.abi().has_tensor_maps();
    if is_of_hopper && !has_hopper(info) || shared > u64::from(info.limits.shared_optin) {
        return 0;
    }
    let by_shared =
        u64::from(info.shared_per_multiprocessor) / (shared + u64::from(RESERVED_SHARED));
    (info.threads_per_multiprocessor / descriptor.threads()).min(by_shared as u32)
}

/// Scales a table's costs to another device.
///
/// Kernels take less time on faster multiprocessors, and copies with faster memory. FMAs scale with
/// clock and lanes, tensor cores with the clock alone. A value that the driver does not report
/// scales nothing.
///
/// Blocks are resident as far as they have [`room`]. Kernels that cannot run are left out, and so
/// are measured products.
///
/// # Errors
///
/// [`Error::Table`] if nothing is left.
pub fn scaled(table: &Table, info: &DeviceInfo) -> Result<Table, Error> {
    let measured = table.device();
    let ratio = |own: u32, measured: u32| {
        if own > 0 { f64::from(measured) / f64::from(own) } else { 1.0 }
    };
    let [clock, lanes] = info.peak.map_or([1.0; 2], |peak| {
        [ratio(peak.clock_khz, measured.clock_khz), ratio(peak.lanes, measured.lanes)]
    });
    let own_gbytes = info.memory_gbytes.filter(|&own| own > 0.0);
    let wider = own_gbytes.map_or(1.0, |own| own / measured.memory_gbytes);
    // The software device has no number of its own.
    let multiprocessors = info.peak.map_or(measured.multiprocessors, |peak| peak.multiprocessors);
    let kernels = table.kernels().iter().filter_map(|costs| {
        let room = room(info, costs.kernel);
        let is_fma = costs.kernel.arithmetic() == Arithmetic::Fma;
        let slower = if is_fma { clock * lanes } else { clock };
        let entry = |entry: EntryCosts| EntryCosts {
            resident: entry.resident.min(room),
            ..entry.times(slower)
        };
        let unaligned = costs.unaligned.map(entry);
        (room > 0).then(|| Costs { aligned: entry(costs.aligned), unaligned, ..costs.clone() })
    });
    let kernels: Vec<_> = kernels.collect();
    if kernels.is_empty() {
        let reason = "no kernel in it can be launched on this device".to_owned();
        return Err(Error::Table { place: format!("the table of {}", measured.name), reason });
    }
    let device = Measured {
        multiprocessors,
        l2_bytes: info.l2_bytes,
        capability: info.capability,
        ..measured.clone()
    };
    let share = f64::from(multiprocessors) / f64::from(measured.multiprocessors);
    let costs = table.costs();
    let costs = DeviceCosts {
        copy_gbytes: costs.copy_gbytes * wider,
        l2_gbytes: costs.l2_gbytes * share,
        clusters: costs.clusters.map(|count| ((f64::from(count) * share) as u32).max(1)),
        ..*costs
    };
    Table::new(device, costs, kernels, Vec::new())
}
