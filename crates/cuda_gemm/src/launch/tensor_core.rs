//! The kernels for tensor cores, and which of them takes the least time for a product.

use std::fmt;

use kernels_gpu::tensor_core::BK;
use kernels_gpu::{InputType, TensorCoreAbi, TensorCoreDescriptor, mma, wgmma_persistent};

use super::tensor;
use crate::device::Device;
use crate::error::Error;
use crate::gemm::Gemm;
use crate::limits::Limits;

/// The most tiles of C: their numbers, and one more round of all blocks, fit 32 bits.
pub(super) const MOST_TILES: u64 = 1 << 31;

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
            tensor::require_maps(descriptor.name(), self.info())?;
        }
        Ok(TensorCoreKernel { device: self.clone(), descriptor, input })
    }

    /// The kernel for tensor cores whose tiles suit a product best, for inputs of a type: with `wgmma` on
    /// compute capability 9.0, with `mma.sync` on others.
    ///
    /// # Errors
    ///
    /// As for [`Device::tensor_core`].
    pub fn tensor_core_for(
        &self,
        gemm: &Gemm,
        input: InputType,
    ) -> Result<TensorCoreKernel, Error> {
        let info = self.info();
        let descriptor = match tensor::require_maps(wgmma_persistent::DESCRIPTOR.name(), info) {
            Ok(()) => best(gemm, info.limits.multiprocessors),
            Err(_) => best_of_mma(gemm, &info.limits),
        };
        self.tensor_core(descriptor, input)
    }
}

/// What a product takes with a kernel on an H200, in microseconds.
struct Cost {
    kernel: &'static TensorCoreDescriptor,
    /// The launch, the first tiles of A and B, and the last of C.
    launch: f64,
    /// A step along K of a round, in which each multiprocessor has a tile of C.
    step: f64,
    /// A round whose sums are stored one by one, rather than in pairs.
    single_stores: f64,
}

impl Cost {
    const fn new(
        kernel: &'static TensorCoreDescriptor,
        launch: f64,
        step: f64,
        single_stores: f64,
    ) -> Self {
        Self { kernel, launch, step, single_stores }
    }

    fn of(&self, gemm: &Gemm, multiprocessors: u32) -> f64 {
        let tiles = tiles(gemm, self.kernel).saturating_mul(gemm.batch as u64);
        let rounds = tiles.div_ceil(u64::from(multiprocessors.max(1)));
        let steps = gemm.depth().div_ceil(BK as usize);
        // The kernels store pairs where C is not read and its rows begin on 8 bytes.
        let is_paired = gemm.beta == 0.0 && gemm.ldc.is_multiple_of(2);
        let stores = if is_paired { 0.0 } else { self.single_stores };
        self.launch + rounds as f64 * (steps as f64 * self.step + stores)
    }
}

/// Fitted to `runs/2026-11-22-h200-tensor-core`: the first two by least squares of relative errors to
/// the squares of 512 to 8192, where the kernel takes less than 1.5 times as long as the fastest one;
/// the last is what is left for the product with odd sizes.
const COSTS: [Cost; 5] = [
    Cost::new(&wgmma_persistent::DESCRIPTOR, 7.4, 0.680, 22.7),
    Cost::new(&wgmma_persistent::TILE_128X192, 7.7, 0.514, 25.1),
    Cost::new(&wgmma_persistent::TILE_128X128, 4.3, 0.366, 23.9),
    Cost::new(&wgmma_persistent::TILE_64X128, 4.3, 0.203, 19.8),
    Cost::new(&wgmma_persistent::TILE_64X64, 3.7, 0.153, 10.5),
];

/// The kernel that should take the least time for a product.
fn best(gemm: &Gemm, multiprocessors: u32) -> &'static TensorCoreDescriptor {
    let time = |cost: &&Cost| cost.of(gemm, multiprocessors);
    let least = COSTS.iter().min_by(|a, b| time(a).total_cmp(&time(b)));
    least.map_or(&wgmma_persistent::DESCRIPTOR, |cost| cost.kernel)
}

/// The kernel with `mma.sync` for a product: of those for which the device has the shared memory, the one
/// with the fewest outputs for a multiprocessor, those of tiles that are not whole counted in, and of such
/// the one with the largest tiles.
fn best_of_mma(gemm: &Gemm, limits: &Limits) -> &'static TensorCoreDescriptor {
    let outputs = |kernel: &&TensorCoreDescriptor| {
        let rounds = tiles(gemm, kernel).div_ceil(u64::from(limits.multiprocessors.max(1)));
        rounds.saturating_mul((kernel.rows() * kernel.cols()).into())
    };
    let kernels = [&mma::TILE_128X256, &mma::DESCRIPTOR, &mma::TILE_64X64].into_iter();
    let kernels = kernels.filter(|kernel| kernel.shared_bytes() <= limits.shared_optin);
    kernels.min_by_key(outputs).unwrap_or(&mma::TILE_64X64)
}

/// Tiles of a product's C.
pub(super) fn tiles(gemm: &Gemm, descriptor: &TensorCoreDescriptor) -> u64 {
    let along = |size: usize, tile: u32| (size as u64).div_ceil(tile.into());
    along(gemm.m, descriptor.rows()).saturating_mul(along(gemm.n, descriptor.cols()))
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs;
    use std::path::Path;

    use serde_json::Value;

    use super::*;

    /// The recorded times of the kernels, next to what was chosen from.
    #[test]
    fn the_fastest_kernel_of_the_recorded_run_is_chosen() {
        let run =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs/2026-11-22-h200-tensor-core");
        let squares = [512, 1024, 2048, 4096, 8192].map(|size| (size.to_string(), [size; 3]));
        for (name, [m, n, k]) in squares.into_iter().chain([("odd".into(), [4095, 4097, 4099])]) {
            let text = fs::read_to_string(run.join(format!("bf16-{name}.jsonl"))).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let times: HashMap<String, f64> = lines
                .filter_map(|line| {
                    let median = line["time_ms"]["median"].as_f64()?;
                    Some((line["kernel"].as_str()?.to_owned(), median * 1e3))
                })
                .collect();
            let gemm = Gemm::new(m, n, k);
            let chosen = best(&gemm, 132).name();
            for cost in &COSTS {
                let measured = times[cost.kernel.name()];
                assert!(times[chosen] <= measured, "{name}: {chosen}, {}", cost.kernel.name());
                let off = cost.of(&gemm, 132) / measured - 1.0;
                // The fit leaves no more, where it was made.
                let is_fitted = measured < 1.5 * times[chosen];
                assert!(!is_fitted || off.abs() < 0.08, "{name} {}: {off}", cost.kernel.name());
            }
        }
        assert_eq!(best(&Gemm::new(1, 0, 1), 0).name(), "wgmma_64x64");
    }
}
