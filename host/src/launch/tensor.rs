//! Launches of kernels with [`Arguments::Tensor`](kernels_gpu::Arguments::Tensor): A and B lie
//! behind tensor maps, or copies of them where bulk copies do not reach their rows.

use std::cell::OnceCell;
use std::ffi::{c_uint, c_void};

use cuda_driver::sys;
use cust::function::Function;
use cust::memory::{DeviceBuffer, DevicePointer};
use kernels_gpu::repack;

use super::{Kernel, Prepared, require_memory};
use crate::device::{Device, DeviceInfo};
use crate::error::Error;
use crate::gemm::{Limits, Plan};

/// What rows that bulk copies reach begin on, in bytes and in elements.
const ALIGNMENT: u64 = 16;
const ALIGNED_LD: u32 = 4;

/// For how many multiprocessors `repack` is launched at most: the blocks stay below its limit.
const MOST_MULTIPROCESSORS: u32 = 1 << 16;

/// `CU_TENSOR_MAP_DATA_TYPE_FLOAT32`.
const FLOAT32: c_uint = 7;
/// `CU_TENSOR_MAP_INTERLEAVE_NONE`.
const NO_INTERLEAVE: c_uint = 0;
/// `CU_TENSOR_MAP_SWIZZLE_NONE` and `CU_TENSOR_MAP_SWIZZLE_64B`.
const NO_SWIZZLE: c_uint = 0;
const SWIZZLE_64B: c_uint = 2;
/// `CU_TENSOR_MAP_L2_PROMOTION_L2_128B`: a whole line for each part of one.
const PROMOTE_128B: c_uint = 2;
/// `CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE`: zeros outside the matrix.
const FILL_ZEROS: c_uint = 0;

/// Refuses a device that cannot run such a kernel, whose PTX is for Hopper alone.
pub(super) fn require_maps(kernel: &'static str, info: &DeviceInfo) -> Result<(), Error> {
    let device = info.name.clone();
    match (info.capability, info.tensor_maps) {
        ((9, 0), true) => Ok(()),
        ((9, 0), false) => Err(Error::NeedsTensorMaps { kernel, device }),
        ((major, minor), _) => Err(Error::NeedsHopper { kernel, device, major, minor }),
    }
}

/// How bulk copies reach the A and the B of a plan.
pub(super) struct Reach<'k, 'd> {
    device: &'d Device,
    repack: &'k Function<'d>,
    /// The most blocks that copy a matrix.
    most_blocks: u32,
    a: Source,
    b: Source,
}

/// A matrix as the caller has it, and the place of its copy once there is one. Work on the
/// device's one stream uses that in turn.
struct Source {
    rows: u32,
    cols: u32,
    ld: u32,
    copy: OnceCell<DeviceBuffer<f32>>,
}

/// A matrix whose rows begin on [`ALIGNMENT`]: its address and leading dimension.
#[derive(Clone, Copy)]
struct Reachable {
    address: u64,
    ld: u32,
}

impl<'k, 'd> Reach<'k, 'd> {
    /// For a plan's A and B; allocates the copies that are needed whatever the addresses.
    pub(super) fn new(
        device: &'d Device,
        repack: &'k Function<'d>,
        plan: &Plan,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let gemm = plan.gemm();
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [m, n, k] = [gemm.m, gemm.n, gemm.depth()].map(|size| size as u32);
        let source =
            |rows, cols, ld: usize| Source { rows, cols, ld: ld as u32, copy: OnceCell::new() };
        let (a, b) = (source(m, k, gemm.lda), source(k, n, gemm.ldb));
        // A copy is for what is read: not where C or the sum is empty.
        if k > 0 && !plan.launches().is_empty() {
            for source in [&a, &b] {
                if !source.is_reachable(0) {
                    source.place(device)?;
                }
            }
        }
        let most_blocks = limits.multiprocessors.clamp(1, MOST_MULTIPROCESSORS) * repack::BLOCKS;
        Ok(Self { device, repack, most_blocks, a, b })
    }

    /// The matrix if bulk copies reach it, or else its copy, which is enqueued.
    ///
    /// # Safety
    ///
    /// The matrix is at this address, and nothing writes it until the copy is done. The
    /// device's context is current.
    unsafe fn of(&self, source: &Source, address: u64) -> Result<Reachable, Error> {
        if source.is_reachable(address) {
            return Ok(Reachable { address, ld: source.ld });
        }
        let mut from = address;
        let mut to = source.place(self.device)?.as_device_ptr().as_raw();
        let Source { mut rows, mut cols, ld: mut ld_from, .. } = *source;
        let mut ld_to = source.copy_ld();
        let arguments: [*mut c_void; 6] = [
            (&raw mut from).cast(),
            (&raw mut ld_from).cast(),
            (&raw mut to).cast(),
            (&raw mut ld_to).cast(),
            (&raw mut rows).cast(),
            (&raw mut cols).cast(),
        ];
        let groups = u64::from(rows) * u64::from(ld_to / ALIGNED_LD);
        let per_block = u64::from(repack::THREADS * repack::GROUPS);
        let blocks = groups.div_ceil(per_block).clamp(1, self.most_blocks.into()) as u32;
        // SAFETY: the driver copies the arguments during the call, and they match the kernel's
        // parameters; the grid and the block are as it asks. The caller vouches for the matrix,
        // which is not empty, and the place is as large as its copy; it is freed after all work.
        unsafe { self.device.stream().launch(self.repack, blocks, repack::THREADS, 0, &arguments) }
            .map_err(|e| self.device.error("launching the copy of a matrix", e))?;
        Ok(Reachable { address: to, ld: ld_to })
    }

    /// Describes the part of a matrix that begins at an element, to bulk copies of boxes.
    fn encode(
        &self,
        matrix: Reachable,
        offset: usize,
        [rows, cols]: [u32; 2],
        [box_rows, box_cols]: [u32; 2],
        swizzle: c_uint,
    ) -> Result<sys::CUtensorMap, Error> {
        let mut map = sys::CUtensorMap::default();
        let address = matrix.address.wrapping_add(4 * offset as u64);
        // No more than the driver takes, 2^32 elements and 2^40 bytes: see `MAX_DIMENSION`.
        let dims = [cols, rows].map(u64::from);
        let strides = [4 * u64::from(matrix.ld)];
        let boxes = [box_cols, box_rows];
        let steps = [1; 2];
        // SAFETY: all lists have two numbers, or one for strides; they and the map outlive the
        // call. The address is only stored.
        let result = unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut map,
                FLOAT32,
                2,
                address as *mut c_void,
                dims.as_ptr(),
                strides.as_ptr(),
                boxes.as_ptr(),
                steps.as_ptr(),
                NO_INTERLEAVE,
                swizzle,
                PROMOTE_128B,
                FILL_ZEROS,
            )
        };
        if result == sys::CUresult::CUDA_SUCCESS {
            return Ok(map);
        }
        let (name, text) = cuda_driver::error_text(result);
        let device = self.device.info().name.clone();
        Err(Error::Driver {
            call: "cuTensorMapEncodeTiled",
            device,
            reason: format!("{name}, {text}"),
        })
    }
}

impl Drop for Reach<'_, '_> {
    fn drop(&mut self) {
        // The copies are freed in the current context; see `Device::drop`.
        let _ = self.device.make_current();
    }
}

impl Source {
    /// Whether bulk copies reach every row, if the first is at this address.
    fn is_reachable(&self, address: u64) -> bool {
        address.is_multiple_of(ALIGNMENT) && self.ld.is_multiple_of(ALIGNED_LD)
    }

    /// The leading dimension of the copy; no more than 2^31.
    fn copy_ld(&self) -> u32 {
        self.cols.next_multiple_of(ALIGNED_LD)
    }

    /// The place of the copy, allocated by the first call.
    fn place(&self, device: &Device) -> Result<&DeviceBuffer<f32>, Error> {
        if let Some(place) = self.copy.get() {
            return Ok(place);
        }
        let elements = u128::from(self.rows) * u128::from(self.copy_ld());
        require_memory(device, 4 * elements)?;
        // It fits, since the bytes are no more than the device has.
        // SAFETY: `repack` stores every element before any is loaded.
        let place = unsafe { DeviceBuffer::uninitialized(elements as usize) }
            .map_err(|e| device.error("allocating device memory", e))?;
        Ok(self.copy.get_or_init(|| place))
    }
}

impl Prepared<'_, '_> {
    /// [`Prepared::enqueue_raw`] for a kernel with `Arguments::Tensor`. The device's context is
    /// current.
    ///
    /// # Safety
    ///
    /// As there.
    pub(super) unsafe fn enqueue_tensor(
        &self,
        reach: &Reach<'_, '_>,
        a: DevicePointer<f32>,
        b: DevicePointer<f32>,
        c: DevicePointer<f32>,
    ) -> Result<(), Error> {
        let Kernel { device, spec, function, .. } = self.kernel;
        let gemm = self.plan.gemm();
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [mut k, mut ldc] = [gemm.depth(), gemm.ldc].map(|size| size as u32);
        let [mut alpha, mut beta] = [gemm.alpha, gemm.beta];
        let [mut partials, mut counters] = self.workspace();
        // Where nothing is summed A and B need not be there.
        let matrices = if k == 0 || self.plan.launches().is_empty() {
            None
        } else {
            // SAFETY: the caller vouches for the matrices, which are not empty.
            let [a, b] =
                unsafe { [reach.of(&reach.a, a.as_raw()), reach.of(&reach.b, b.as_raw())] };
            Some([a?, b?])
        };
        for launch in self.plan.launches() {
            let [mut m, mut n] = [launch.m, launch.n];
            let [mut streamed, mut chain] = [launch.streamed, launch.chain];
            let mut c = c.wrapping_add(launch.c_offset).as_raw();
            let [mut map_a, mut map_b] = match matrices {
                None => [sys::CUtensorMap::default(); 2],
                Some([a, b]) => {
                    // A panel begins with a whole tile, so on 16 bytes like the matrix.
                    let [row, col] = [launch.a_offset / gemm.lda, launch.b_offset];
                    let box_a = [spec.tile.bm, spec.tile.bk];
                    let box_b = [spec.tile.bk, spec.tile.bn];
                    [
                        reach.encode(a, row * a.ld as usize, [m, k], box_a, SWIZZLE_64B)?,
                        reach.encode(b, col, [k, n], box_b, NO_SWIZZLE)?,
                    ]
                }
            };
            // The order and the types of `kernels_gpu::Arguments::Tensor`.
            let arguments: [*mut c_void; 13] = [
                (&raw mut m).cast(),
                (&raw mut n).cast(),
                (&raw mut k).cast(),
                (&raw mut alpha).cast(),
                (&raw mut map_a).cast(),
                (&raw mut map_b).cast(),
                (&raw mut beta).cast(),
                (&raw mut c).cast(),
                (&raw mut ldc).cast(),
                (&raw mut streamed).cast(),
                (&raw mut chain).cast(),
                (&raw mut partials).cast(),
                (&raw mut counters).cast(),
            ];
            // SAFETY: the driver copies the arguments during the call, and they match the
            // kernel's parameters. The plan's grid and `streamed` are what the kernel asks for,
            // the block is the rung's own, the maps describe this panel's part of A and B, and
            // the caller vouches for the memory. The workspace and the copies of A and B are as
            // large as the largest launch needs; one launch after the other uses them, and they
            // are freed after them.
            unsafe {
                device.stream().launch(
                    function,
                    (launch.grid[0], launch.grid[1]),
                    (self.plan.block()[0], self.plan.block()[1]),
                    self.plan.shared_bytes(),
                    &arguments,
                )
            }
            .map_err(|e| device.error("launching a kernel", e))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceChoice;

    #[test]
    fn only_hopper_with_a_new_driver_will_do() {
        let mut info = Device::open(DeviceChoice::SoftSm90).unwrap().info().clone();
        require_maps("tma", &info).unwrap();
        info.tensor_maps = false;
        let error = require_maps("tma", &info).unwrap_err().to_string();
        assert!(error.contains("cuTensorMapEncodeTiled") && error.contains(&info.name), "{error}");
        for capability in [(8, 0), (8, 9), (10, 0), (12, 0)] {
            let info = DeviceInfo { capability, name: "A100".to_owned(), ..info.clone() };
            let error = require_maps("tma", &info).unwrap_err().to_string();
            let (major, minor) = capability;
            assert!(
                error.contains("`tma` needs compute capability 9.0 (sm_90a)")
                    && error.contains(&format!("A100 has {major}.{minor}")),
                "{error}"
            );
        }
    }

    #[test]
    fn rows_must_begin_on_sixteen_bytes() {
        let source = |cols, ld| Source { rows: 3, cols, ld, copy: OnceCell::new() };
        assert!(source(5, 8).is_reachable(0x1010));
        assert!(!source(5, 8).is_reachable(0x1004));
        assert!(!source(5, 6).is_reachable(0));
        assert_eq!([source(5, 6).copy_ld(), source(8, 9).copy_ld()], [8, 8]);
        assert_eq!(source(i32::MAX as u32, i32::MAX as u32).copy_ld(), 1 << 31);
    }
}
