//! A table for a device that nobody has measured, from that of another.

use kernels_gpu::abi::{KernelDescriptor, Shared};

use super::table::{Measured, Table};
use crate::device::DeviceInfo;
use crate::device::RESERVED_SHARED;
use crate::error::Error;

/// How many blocks of a kernel a multiprocessor has room for, without asking the driver, which
/// would have to compile the kernel first; 0 if it cannot run at all. Registers are not counted:
/// all GPUs that kernels are built for have as many, so that a table's blocks fit them.
pub fn room(info: &DeviceInfo, descriptor: &KernelDescriptor) -> u32 {
    let shared = match descriptor.shared() {
        Shared::Static(bytes) => bytes.into(),
        // Of a K that is long enough to take as much as any.
        Shared::Dynamic(bytes) => bytes(16 * descriptor.tile().bk),
        Shared::Stages { bytes, .. } => bytes[0].into(),
    };
    let lacks_maps = info.capability != (9, 0) || !info.tensor_maps;
    if descriptor.abi().has_tensor_maps() && lacks_maps
        || shared > u64::from(info.limits.shared_optin)
    {
        return 0;
    }
    let by_shared =
        u64::from(info.shared_per_multiprocessor) / (shared + u64::from(RESERVED_SHARED));
    (info.threads_per_multiprocessor / descriptor.threads()).min(by_shared as u32)
}

/// What a table's costs become on another device: work takes less time there by as much as its
/// multiprocessors are faster, copies by as much as its memory is; where a driver does not tell,
/// they are as fast. Of blocks at once there are no more than have [`room`]; kernels that cannot
/// run are left out. What was measured for single products says nothing about another device.
///
/// # Errors
///
/// [`Error::Table`] if nothing is left.
pub fn scaled(table: &Table, info: &DeviceInfo, multiprocessors: u32) -> Result<Table, Error> {
    let measured = table.device();
    let rate = |clock_khz: u32, lanes: u32| f64::from(clock_khz) * f64::from(lanes);
    let own_rate = info.peak.map(|peak| rate(peak.clock_khz, peak.lanes)).filter(|&own| own > 0.0);
    let slower = own_rate.map_or(1.0, |own| rate(measured.clock_khz, measured.lanes) / own);
    let own_gbytes = info.memory_gbytes.filter(|&own| own > 0.0);
    let wider = own_gbytes.map_or(1.0, |own| own / measured.memory_gbytes);
    let kernels = table.kernels().iter().filter_map(|costs| {
        let mut costs = costs.clone();
        let whole = costs.aligned.len();
        for paces in [&mut costs.aligned, &mut costs.unaligned] {
            paces.truncate(room(info, costs.kernel) as usize);
            for pace in paces {
                *pace = pace.times(slower);
            }
        }
        // A wave of fewer blocks was not measured.
        let is_whole = costs.aligned.len() == whole;
        for wave in [&mut costs.aligned_wave, &mut costs.unaligned_wave] {
            *wave = wave.filter(|_| is_whole).map(|wave| wave.times(slower));
        }
        for ns in [&mut costs.reduction_ns, &mut costs.partial_ns, &mut costs.tile_ns] {
            *ns *= slower;
        }
        (!costs.aligned.is_empty()).then_some(costs)
    });
    let kernels: Vec<_> = kernels.collect();
    if kernels.is_empty() {
        let reason = "no kernel in it can be launched on this device".to_owned();
        return Err(Error::Table { place: format!("the table of {}", measured.name), reason });
    }
    let device = Measured { multiprocessors, l2_bytes: info.l2_bytes, ..measured.clone() };
    Table::new(device, table.launch_ns(), table.copy_gbytes() * wider, kernels, Vec::new())
}
