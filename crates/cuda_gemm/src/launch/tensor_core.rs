//! Products by tensor cores: A and B in 16 bits, C in f32.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cust::memory::DevicePointer;
use kernels_gpu::tensor_core::BK;
use kernels_gpu::{InputType, TensorCoreAbi, TensorCoreDescriptor, mma, wgmma_persistent};

use super::parameters::{Address, TensorCoreParameters, TensorCorePointers};
use super::staging::Operand;
use super::tensor;
use crate::device::{Device, EntryPoint};
use crate::error::Error;
use crate::gemm::Gemm;
use crate::matrix::{DeviceHalfMatrix, DeviceMatrixMut};
use crate::stream::Stream;

/// The most tiles of C: their numbers, and one more round of all blocks, fit 32 bits.
const MOST_TILES: u64 = 1 << 31;
/// Elements of 16 bytes.
const VECTOR: u32 = 8;

impl Device {
    /// A kernel for tensor cores on this device, for inputs of a type. The first call loads it.
    ///
    /// # Errors
    ///
    /// Those of [`Device::kernel`].
    pub fn tensor_core(
        &self,
        descriptor: &'static TensorCoreDescriptor,
        input: InputType,
    ) -> Result<TensorCoreKernel, Error> {
        if descriptor.abi() == TensorCoreAbi::TensorMap {
            tensor::require_maps(descriptor.name(), self.info())?;
        }
        let function = self.entry_point(descriptor.entry_point(input))?;
        if descriptor.shared_bytes() > self.info().limits.shared_default {
            function.allow_shared(descriptor.shared_bytes())?;
        }
        let (device, function) = (self.clone(), Arc::new(function));
        Ok(TensorCoreKernel { device, descriptor, input, function })
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
        let best = match tensor::require_maps(mma::DESCRIPTOR.name(), info) {
            Ok(()) => best,
            Err(_) => best_of_mma,
        };
        self.tensor_core(best(gemm, &info.limits), input)
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
        let rounds = tiles(gemm, self.kernel).div_ceil(u64::from(multiprocessors.max(1)));
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
fn best(gemm: &Gemm, limits: &Limits) -> &'static TensorCoreDescriptor {
    let multiprocessors = limits.multiprocessors;
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
    let kernels = kernels.filter(|kernel| kernel.shared_bytes() <= limits.shared_max);
    kernels.min_by_key(outputs).unwrap_or(&mma::TILE_64X64)
}

/// Tiles of C.
fn tiles(gemm: &Gemm, descriptor: &TensorCoreDescriptor) -> u64 {
    let along = |size: usize, tile: u32| (size as u64).div_ceil(tile.into());
    along(gemm.m, descriptor.rows()).saturating_mul(along(gemm.n, descriptor.cols()))
}

/// A kernel for tensor cores, loaded on a device: see [`TensorCorePlan`]. Clones are the same kernel.
#[derive(Clone)]
pub struct TensorCoreKernel {
    device: Device,
    descriptor: &'static TensorCoreDescriptor,
    input: InputType,
    function: Arc<EntryPoint>,
}

impl fmt::Debug for TensorCoreKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.descriptor.entry_point(self.input);
        write!(f, "`{name}` on {}", self.device.info().name)
    }
}

impl TensorCoreKernel {
    /// The kernel.
    pub fn descriptor(&self) -> &'static TensorCoreDescriptor {
        self.descriptor
    }

    /// The type of A's and B's elements.
    pub fn input(&self) -> InputType {
        self.input
    }

    /// Checks a product, once for any number of calls on the device's own stream.
    ///
    /// # Errors
    ///
    /// Those of [`TensorCoreKernel::prepare_on`].
    pub fn prepare(&self, gemm: Gemm) -> Result<TensorCorePlan, Error> {
        let stream = self.device.stream();
        self.prepare_on(&stream, gemm)
    }

    /// As [`TensorCoreKernel::prepare`], for another stream of the device.
    ///
    /// # Errors
    ///
    /// What [`Gemm::validate`] finds; [`Error::TensorCoreShape`] for transposes, batches,
    /// epilogues, and alpha and beta in device memory;
    /// [`Error::TooLarge`] for a C of too many tiles; [`Error::WrongDevice`].
    pub fn prepare_on(&self, stream: &Stream, gemm: Gemm) -> Result<TensorCorePlan, Error> {
        if !stream.device().is_same(&self.device) {
            return Err(Error::WrongDevice { what: "the stream" });
        }
        gemm.validate()?;
        let kernel = self.descriptor.name();
        if gemm.trans_a || gemm.trans_b {
            let (what, hint) = ("transposes", "store A and B as they are multiplied");
            return Err(Error::TensorCoreShape { kernel, what, hint });
        }
        if !gemm.epilogue.is_none() {
            let (what, hint) = ("epilogues", "apply it to C with a kernel of your own");
            return Err(Error::TensorCoreShape { kernel, what, hint });
        }
        if gemm.factors_on_device {
            let (what, hint) = ("alpha and beta in device memory", "give their values");
            return Err(Error::TensorCoreShape { kernel, what, hint });
        }
        if gemm.batch != 1 || gemm.pointers {
            let (what, hint) = ("batches", "enqueue one product after the other");
            return Err(Error::TensorCoreShape { kernel, what, hint });
        }
        let tiles = tiles(&gemm, self.descriptor);
        if tiles >= MOST_TILES {
            let max = (MOST_TILES - 1) as usize;
            return Err(Error::TooLarge { what: "C, in tiles,", value: tiles as usize, max });
        }
        let (kernel, stream) = (self.clone(), stream.clone());
        Ok(TensorCorePlan { kernel, stream, gemm, tiles: tiles as u32 })
    }
}

/// A product by tensor cores that has been checked: only the matrices are missing.
///
/// A and B are `bf16` or `f16`, never silently: the kernel says which, and takes no others. Their
/// products are exact, and summed in f32; alpha, beta and C are f32.
///
/// ```no_run
/// use cuda_gemm::{Device, DeviceChoice, DeviceHalfMatrix, DeviceMatrix, Gemm, InputType, Matrix};
///
/// let device = Device::open(DeviceChoice::Gpu)?;
/// let gemm = Gemm::new(512, 256, 1024);
/// let product = device.tensor_core_for(&gemm, InputType::Bf16)?.prepare(gemm)?;
///
/// let ones = |rows, cols| {
///     DeviceHalfMatrix::from_host(&device, InputType::Bf16, &Matrix::from_fn(rows, cols, |_, _| 1.0))
/// };
/// let (a, b) = (ones(512, 1024)?, ones(1024, 256)?);
/// let mut c = DeviceMatrix::zeros(&device, 512, 256)?;
/// product.enqueue(&a, &b, &mut c)?;
/// assert_eq!(c.download()?.at(7, 7), 1024.0);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Debug)]
pub struct TensorCorePlan {
    kernel: TensorCoreKernel,
    stream: Stream,
    gemm: Gemm,
    tiles: u32,
}

impl TensorCorePlan {
    /// The product.
    pub fn gemm(&self) -> &Gemm {
        &self.gemm
    }

    /// The kernel.
    pub fn kernel(&self) -> &TensorCoreKernel {
        &self.kernel
    }

    /// The stream that the product goes to.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Enqueues `C = alpha * A * B + beta * C` on the plan's stream, of matrices with the plan's
    /// shapes. The leading dimensions of A and B are their own.
    ///
    /// A GPU returns at once, the software device when it is done. Either way a fault in the kernel is
    /// reported by the next [`Stream::synchronize`] or download.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`], [`Error::WrongStream`], [`Error::PlannedType`], [`Error::Shape`] or
    /// [`Error::PlannedLd`] if a matrix is not what was prepared for; [`Error::Driver`] if the driver
    /// refuses the launch.
    pub fn enqueue<'m>(
        &self,
        a: &DeviceHalfMatrix,
        b: &DeviceHalfMatrix,
        c: impl Into<DeviceMatrixMut<'m>>,
    ) -> Result<(), Error> {
        let c = c.into();
        let c = c.view();
        let operands = [
            ("A", a.stream(), [a.rows(), a.cols()]),
            ("B", b.stream(), [b.rows(), b.cols()]),
            ("C", c.stream(), [c.rows(), c.cols()]),
        ];
        for ((what, stream, [rows, cols]), [need_rows, need_cols]) in
            operands.into_iter().zip(self.gemm.shapes())
        {
            if !stream.is_same(&self.stream) {
                return Err(match stream.device().is_same(self.stream.device()) {
                    true => Error::WrongStream { what },
                    false => Error::WrongDevice { what },
                });
            }
            if [rows, cols] != [need_rows, need_cols] {
                return Err(Error::Shape { what, rows, cols, need_rows, need_cols });
            }
        }
        for (what, matrix) in [("A", a), ("B", b)] {
            if matrix.input() != self.kernel.input {
                let (found, planned) = (matrix.input().name(), self.kernel.input.name());
                return Err(Error::PlannedType { what, found, planned });
            }
        }
        if c.ld() != self.gemm.ldc {
            let (ld, planned) = (c.ld(), self.gemm.ldc);
            return Err(Error::PlannedLd { what: "C", ld, planned });
        }
        // No more than 2^31: `Gemm::validate` accepted the columns.
        let [a, b] = [a, b].map(|matrix| Operand {
            address: matrix.address(),
            ld: matrix.ld() as u32,
            stride: 0,
            is_addressed: false,
        });
        // SAFETY: the three matrices are on this device and stream, with the plan's shapes and these
        // leading dimensions. C is borrowed mutably, and of another type than A and B. They stay
        // allocated while the kernel runs: freeing device memory waits for the work that was enqueued
        // before, and other work with them is enqueued on the same stream.
        unsafe { self.launch([a, b], c.as_device_ptr()) }
    }

    /// Enqueues the product on bare addresses of 16-bit elements, with the plan's leading dimensions.
    ///
    /// # Errors
    ///
    /// [`Error::TensorCoreShape`] if rows of A or B do not begin on 16 bytes; [`Error::Driver`] if the
    /// driver refuses the launch.
    ///
    /// # Safety
    ///
    /// With the plan's shapes and leading dimensions:
    /// - unless alpha or k is 0, `a` and `b` point to A and B, all initialised, in this device's
    ///   memory;
    /// - `c` points to C there, initialised unless beta is 0;
    /// - C is aligned to 4 bytes, and overlaps neither A nor B, and until the work is done nothing
    ///   frees them, writes A or B, or touches C, but what is enqueued on the same stream.
    pub unsafe fn enqueue_raw(
        &self,
        a: DevicePointer<u16>,
        b: DevicePointer<u16>,
        c: DevicePointer<f32>,
    ) -> Result<(), Error> {
        let lds = [self.gemm.lda, self.gemm.ldb];
        let operands = [(a, lds[0]), (b, lds[1])].map(|(pointer, ld)| Operand {
            address: pointer.as_raw(),
            // `Gemm::validate` accepted it.
            ld: ld as u32,
            stride: 0,
            is_addressed: false,
        });
        // SAFETY: the caller's contract.
        unsafe { self.launch(operands, c) }
    }

    /// Enqueues the product.
    ///
    /// # Safety
    ///
    /// As for [`TensorCorePlan::enqueue_raw`], with these leading dimensions.
    unsafe fn launch(&self, operands: [Operand; 2], c: DevicePointer<f32>) -> Result<(), Error> {
        let TensorCoreKernel { device, descriptor, input, function } = &self.kernel;
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [m, n, k, ldc] =
            [self.gemm.m, self.gemm.n, self.gemm.depth(), self.gemm.ldc].map(|size| size as u32);
        if self.tiles == 0 {
            return Ok(());
        }
        let whats =
            ["A whose rows do not begin on 16 bytes", "B whose rows do not begin on 16 bytes"];
        for (what, Operand { address, ld, .. }) in whats.into_iter().zip(operands) {
            if k > 0 && !(address.is_multiple_of(16) && ld.is_multiple_of(VECTOR)) {
                let hint = "copy it to a `DeviceHalfMatrix`";
                return Err(Error::TensorCoreShape { kernel: descriptor.name(), what, hint });
            }
        }
        let (alpha, beta, c) = (self.gemm.alpha, self.gemm.beta, Address(c.as_raw()));
        let grid = match descriptor.is_persistent() {
            true => self.tiles.min(device.info().limits.multiprocessors).max(1),
            false => self.tiles,
        };
        let launch = |arguments: &[*mut c_void]| {
            let _exclusive = self.stream.exclusive();
            let (threads, shared) = (descriptor.threads(), descriptor.shared_bytes());
            // SAFETY: the driver copies the arguments during the call, and they are the kernel's: see
            // `parameters`. They describe A and B, the block is the kernel's own, and the grid has as many
            // blocks as the kernel wants; the caller vouches for the memory.
            unsafe { function.launch(&self.stream, grid, threads, shared, arguments) }
        };
        match descriptor.abi() {
            TensorCoreAbi::TensorMap => {
                let [map_a, map_b] = match k {
                    0 => Default::default(),
                    _ => tensor::half_maps(device, descriptor, *input, [m, n, k], operands)?,
                };
                let mut arguments =
                    TensorCoreParameters { m, n, k, alpha, map_a, map_b, beta, c, ldc };
                launch(&arguments.pointers())
            }
            TensorCoreAbi::Pointer => {
                let [(a, lda), (b, ldb)] = operands.map(|one| (Address(one.address), one.ld));
                let mut arguments =
                    TensorCorePointers { m, n, k, alpha, a, lda, b, ldb, beta, c, ldc };
                launch(&arguments.pointers())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs;
    use std::path::Path;

    use serde_json::Value;

    use super::*;
    use crate::device::DeviceChoice;
    use crate::gemm::Epilogue;
    use crate::matrix::DeviceMatrix;

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

    #[test]
    fn what_was_not_planned_is_refused() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let (input, gemm) = (InputType::Bf16, Gemm::new(8, 8, 8));
        let kernel = device.tensor_core(&wgmma_persistent::TILE_64X64, input).unwrap();
        let epilogue = gemm.then(Epilogue::new().residual());
        for (gemm, wrong) in [
            (gemm.device_factors(), "alpha and beta in device memory"),
            (gemm.batched_pointers(1), "batches"),
            (gemm.batched_pointers(2), "batches"),
            (epilogue, "epilogues"),
        ] {
            let refused = kernel.prepare(gemm).unwrap_err();
            let is_right = matches!(refused, Error::TensorCoreShape { what, .. } if what == wrong);
            assert!(is_right, "{refused}");
        }

        let other = Stream::new(&device).unwrap();
        let plan = kernel.prepare(gemm).unwrap();
        let half = |on: &Stream| DeviceHalfMatrix::zeros(on, input, 8, 8).unwrap();
        let (a, b) = (half(&device.stream()), half(&device.stream()));
        let mut c = DeviceMatrix::zeros(&device, 8, 8).unwrap();
        let mut wide = DeviceMatrix::zeros(&device, 8, 9).unwrap();
        let part = wide.submatrix_mut(0..8, 0..8).unwrap();
        let refused = plan.enqueue(&a, &b, part).unwrap_err();
        assert!(matches!(refused, Error::PlannedLd { what: "C", ld: 9, planned: 8 }), "{refused}");

        let mut other_c = DeviceMatrix::zeros(&other, 8, 8).unwrap();
        for (refused, wrong) in [
            (plan.enqueue(&half(&other), &b, &mut c), "A"),
            (plan.enqueue(&a, &half(&other), &mut c), "B"),
            (plan.enqueue(&a, &b, &mut other_c), "C"),
        ] {
            let is_right = matches!(refused, Err(Error::WrongStream { what }) if what == wrong);
            assert!(is_right, "{refused:?}");
        }

        // Rows of 16 bytes that do not begin on 16.
        let at = |matrix: &DeviceHalfMatrix, skip| DevicePointer::from_raw(matrix.address() + skip);
        for (skips, wrong) in [([2, 0], "A"), ([0, 8], "B")] {
            let [a, b] = [at(&a, skips[0]), at(&b, skips[1])];
            // SAFETY: nothing is enqueued.
            let refused = unsafe { plan.enqueue_raw(a, b, c.as_device_ptr()) }.unwrap_err();
            let is_right =
                matches!(refused, Error::TensorCoreShape { what, .. } if what.starts_with(wrong));
            assert!(is_right, "{refused}");
        }
    }
}
