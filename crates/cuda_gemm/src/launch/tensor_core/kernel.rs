//! The kernels for tensor cores, and which of them takes the least time for a product.

use std::fmt;

use kernels_gpu::abi::tensor_core::{InputType, TensorCoreAbi, TensorCoreDescriptor};
use kernels_gpu::ladder::tensor::mma;

use super::cost::{self, TensorCoreTime};
use super::division::{Asked, tiles};
use crate::device::{Device, DeviceInfo};
use crate::error::Error;
use crate::gemm::Gemm;
use crate::launch::tensor_map;
use crate::limits::Limits;

/// The most tiles of C: their numbers, and one more round of all blocks, fit 32 bits.
pub(super) const MAX_TILES: u64 = 1 << 31;

impl Device {
    /// A kernel for tensor cores on this device, for inputs of a type. The first product loads it.
    ///
    /// # Errors
    ///
    /// [`Error::NeedsHopper`] or [`Error::NeedsTensorMaps`] if the device or its driver lacks what the
    /// kernel needs.
    pub fn tensor_core(
        &self,
        descriptor: &'static TensorCoreDescriptor,
        input: InputType,
    ) -> Result<TensorCoreKernel, Error> {
        if descriptor.abi() == TensorCoreAbi::TensorMap {
            tensor_map::require_maps(descriptor.name(), self.info())?;
        }
        Ok(TensorCoreKernel { device: self.clone(), descriptor, input })
    }
}

/// The kernel that suits a product best, and how it divides it: on compute capability 9.0 one with `wgmma`, or with `mma.sync` for a short
/// K, and on others one with `mma.sync` and a pipeline.
pub(crate) fn choose(gemm: &Gemm, info: &DeviceInfo) -> (&'static TensorCoreDescriptor, Asked) {
    match times(gemm, info).min_by(|a, b| a.us.total_cmp(&b.us)) {
        Some(TensorCoreTime { kernel, division, .. }) => (kernel, division),
        None => (best_of_mma(gemm, &info.limits), Asked::default()),
    }
}

/// What [`choose`] goes by.
pub(crate) fn basis(info: &DeviceInfo) -> &'static str {
    match tensor_map::has_hopper(info) {
        true => "the least time by the costs of tiles and steps along K on an H200",
        false => {
            "by `mma.sync`: the fewest outputs for a multiprocessor, and of such the largest tiles"
        }
    }
}

/// What [`choose`] chooses from by costs; nothing where there are no costs, which is on all but compute capability 9.0.
pub(crate) fn times(gemm: &Gemm, info: &DeviceInfo) -> impl Iterator<Item = TensorCoreTime> {
    let has_costs = tensor_map::has_hopper(info);
    let multiprocessors = info.limits.multiprocessors;
    has_costs.then(|| cost::times(gemm, multiprocessors)).into_iter().flatten()
}

/// The kernel with `mma.sync` for a product, where none have costs: of those for which the device has the shared memory,
/// and which need rows that begin on 16 bytes, the one with the fewest outputs for a multiprocessor, those of tiles that
/// are not whole counted in, and of such the one with the largest tiles.
fn best_of_mma(gemm: &Gemm, limits: &Limits) -> &'static TensorCoreDescriptor {
    let outputs = |kernel: &&TensorCoreDescriptor| {
        let rounds =
            tiles([gemm.m, gemm.n], kernel).div_ceil(u64::from(limits.multiprocessors.max(1)));
        rounds.saturating_mul((kernel.rows() * kernel.cols()).into())
    };
    let kernels = [&mma::TILE_128X256, &mma::DESCRIPTOR, &mma::TILE_64X64].into_iter();
    let kernels = kernels.filter(|kernel| kernel.shared_bytes(1) <= limits.shared_optin);
    kernels.min_by_key(outputs).unwrap_or(&mma::TILE_64X64)
}

/// A kernel for tensor cores on a device: see [`TensorCorePlan`](super::TensorCorePlan). Clones are the
/// same kernel.
#[derive(Clone)]
pub struct TensorCoreKernel {
    device: Device,
    descriptor: &'static TensorCoreDescriptor,
    input: InputType,
}

impl fmt::Debug for TensorCoreKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.descriptor.entry_point(self.input);
        write!(f, "`{name}` on {}", self.device.info().name)
    }
}

impl TensorCoreKernel {
    /// Where it runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The kernel.
    pub fn descriptor(&self) -> &'static TensorCoreDescriptor {
        self.descriptor
    }

    /// The type of A's and B's elements.
    pub fn input(&self) -> InputType {
        self.input
    }
}
