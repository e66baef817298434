//! A table for a device that nobody has measured, from that of another.

use kernels_gpu::{Arguments, Shared, Spec};

use super::table::{Measured, Table};
use crate::device::DeviceInfo;

/// Bytes of shared memory that each block costs beside its own.
const RESERVED: u64 = 1024;

/// How many blocks of a kernel a multiprocessor has room for, without asking the driver, which
/// would have to compile the kernel first; 0 if it cannot run at all. Registers are not counted:
/// all GPUs that kernels are built for have as many, so that a table's blocks fit them.
pub fn room(info: &DeviceInfo, spec: &Spec) -> u32 {
    let shared = match spec.shared() {
        Shared::Static(bytes) => bytes.into(),
        Shared::Dynamic(bytes) => bytes(1),
    };
    let lacks_maps = info.capability != (9, 0) || !info.tensor_maps;
    if spec.arguments() == Arguments::Tensor && lacks_maps
        || shared > u64::from(info.limits.shared_optin)
    {
        return 0;
    }
    let by_shared = u64::from(info.shared_per_multiprocessor) / (shared + RESERVED);
    (info.threads_per_multiprocessor / spec.threads()).min(by_shared as u32)
}

/// What a table's costs become on another device: work takes less time there by as much as its
/// multiprocessors are faster, copies by as much as its memory is. Of blocks at once there are
/// no more than have [`room`]; kernels that cannot run are left out. What was measured for single
/// products says nothing about another device.
pub fn scaled(table: &Table, info: &DeviceInfo, multiprocessors: u32) -> Table {
    let measured = &table.device;
    let rate = f64::from(measured.clock_khz) * f64::from(measured.lanes);
    let slower =
        info.peak.map_or(1.0, |peak| rate / f64::from(peak.clock_khz) / f64::from(peak.lanes));
    let wider = info.memory_gbytes.map_or(1.0, |gbytes| gbytes / measured.memory_gbytes);
    let kernels = table.kernels.iter().filter_map(|costs| {
        let mut costs = costs.clone();
        for paces in [&mut costs.aligned, &mut costs.unaligned] {
            paces.truncate(room(info, costs.kernel) as usize);
            for pace in paces {
                pace.fixed_ns *= slower;
                pace.step_ns *= slower;
            }
        }
        for ns in [&mut costs.join_ns, &mut costs.piece_ns, &mut costs.tile_ns] {
            *ns *= slower;
        }
        (!costs.aligned.is_empty()).then_some(costs)
    });
    Table {
        device: Measured { multiprocessors, l2_bytes: info.l2_bytes, ..measured.clone() },
        launch_ns: table.launch_ns,
        copy_gbytes: table.copy_gbytes * wider,
        kernels: kernels.collect(),
        exceptions: Vec::new(),
    }
}
