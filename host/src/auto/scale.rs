//! A table for a device that nobody has measured, from that of another.

use kernels_gpu::{Arguments, Spec};

use super::table::{Measured, Table};
use crate::device::DeviceInfo;

/// What a table's costs become on another device: work takes less time there by as much as its
/// multiprocessors are faster, copies by as much as its memory is. `resident` says how many
/// blocks of a kernel fit a multiprocessor there; kernels of which none does are left out.
/// What was measured for single products says nothing about another device.
pub fn scaled(
    table: &Table,
    info: &DeviceInfo,
    multiprocessors: u32,
    resident: impl Fn(&Spec) -> u32,
) -> Table {
    let measured = &table.device;
    let rate = f64::from(measured.clock_khz) * f64::from(measured.lanes);
    let slower =
        info.peak.map_or(1.0, |peak| rate / f64::from(peak.clock_khz) / f64::from(peak.lanes));
    let wider = info.memory_gbytes.map_or(1.0, |gbytes| gbytes / measured.memory_gbytes);
    let kernels = table.kernels.iter().filter_map(|costs| {
        let mut costs = costs.clone();
        // Blocks that stay come one to a multiprocessor.
        let fits = match costs.kernel.arguments {
            Arguments::Tensor => resident(costs.kernel).min(1),
            Arguments::Gemm | Arguments::Split => resident(costs.kernel),
        } as usize;
        for paces in [&mut costs.aligned, &mut costs.unaligned] {
            paces.truncate(fits);
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
