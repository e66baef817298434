//! From a rung and a [`Gemm`] to work on a device: [`Device::kernel`], then
//! [`Kernel::prepare`], then [`Prepared::enqueue`].

use std::ffi::c_int;
use std::iter;

use cuda_driver::sys;
use cust::function::Function;
use cust::memory::{DeviceBuffer, DevicePointer};
use kernels_gpu::{KernelAbi, KernelDescriptor, LADDER, TILES, Unaligned};

use crate::device::Device;
use crate::error::Error;
use crate::gemm::{Gemm, Plan, Workspace};
use crate::limits::Limits;
use crate::matrix::DeviceMatrix;

pub(crate) mod parameters;
mod reach;
mod tensor;

use reach::{Need, Reach, is_read};

/// Finds a kernel by its name: a rung of the ladder, or a tile.
///
/// # Errors
///
/// [`Error::UnknownKernel`], with the name that looks most like it.
pub fn find_kernel(name: &str) -> Result<&'static KernelDescriptor, Error> {
    let kernels = LADDER.iter().chain(TILES);
    if let Some(spec) = kernels.clone().find(|spec| spec.name() == name) {
        return Ok(spec);
    }
    let known: Vec<_> = kernels.map(|spec| spec.name()).collect();
    let nearest = nearest_name(name, &known);
    Err(Error::UnknownKernel { name: name.to_owned(), nearest, known })
}

/// The name that looks most like a misspelt one, if any does.
pub fn nearest_name(name: &str, known: &[&'static str]) -> Option<&'static str> {
    // Names are short: below this likeness a suggestion is a guess.
    const ALIKE: f64 = 0.7;
    let lower = name.to_lowercase();
    known
        .iter()
        .map(|known| (strsim::jaro_winkler(&lower, known), *known))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

impl Device {
    /// A rung's kernel on this device. The first call loads the kernels.
    ///
    /// # Errors
    ///
    /// [`Error::Jit`] if the driver refuses the PTX, [`Error::NotInPtx`] if the PTX for
    /// this device lacks the kernel, [`Error::NeedsHopper`] or [`Error::NeedsTensorMaps`] if
    /// the kernel needs what the device or its driver lacks, [`Error::Driver`].
    pub fn kernel(&self, spec: &'static KernelDescriptor) -> Result<Kernel<'_>, Error> {
        if spec.abi().has_tensor_maps() {
            tensor::require_maps(spec.name(), self.info())?;
        }
        let repack = match spec.abi() {
            KernelAbi::Gemm => None,
            KernelAbi::SplitK | KernelAbi::TensorMap | KernelAbi::StreamK => {
                Some(self.entry_point("stage_operands")?)
            }
        };
        let function = self.entry_point(spec.name())?;
        let unaligned = spec.unaligned().map(|other| self.entry_point(other.name)).transpose()?;
        Ok(Kernel { device: self, spec, function, unaligned, repack })
    }
}

/// A rung's kernel, loaded on a device.
pub struct Kernel<'d> {
    device: &'d Device,
    spec: &'static KernelDescriptor,
    function: Function<'d>,
    /// For matrices that 128-bit accesses cannot reach, if `function` makes such.
    unaligned: Option<Function<'d>>,
    /// Copies matrices that `function` cannot reach, if it can do with copies.
    repack: Option<Function<'d>>,
}

impl<'d> Kernel<'d> {
    /// Where it is loaded.
    pub fn device(&self) -> &'d Device {
        self.device
    }

    /// The rung.
    pub fn spec(&self) -> &'static KernelDescriptor {
        self.spec
    }

    /// Checks a product against the rung and the device, once for any number of calls.
    ///
    /// # Errors
    ///
    /// Those of [`Plan::new`], [`Error::DeviceMemory`] and [`Error::Driver`].
    pub fn prepare(&self, gemm: Gemm) -> Result<Prepared<'_, 'd>, Error> {
        self.prepare_within(gemm, &self.device.info().limits)
    }

    /// As [`Kernel::prepare`], within limits that may be tighter than the device's: a
    /// smaller grid makes more launches, and persistent blocks are as few as multiprocessors.
    ///
    /// # Errors
    ///
    /// Those of [`Kernel::prepare`].
    pub fn prepare_within(&self, gemm: Gemm, limits: &Limits) -> Result<Prepared<'_, 'd>, Error> {
        self.prepare_as(gemm, 1, false, limits)
    }

    /// As [`Kernel::prepare`], with K split among `splits` blocks per tile of C: see
    /// [`Plan::split`]. The memory that these need is allocated here.
    ///
    /// # Errors
    ///
    /// Those of [`Plan::split`], [`Error::DeviceMemory`] and [`Error::Driver`].
    pub fn prepare_split(&self, gemm: Gemm, splits: u32) -> Result<Prepared<'_, 'd>, Error> {
        self.prepare_as(gemm, splits, false, &self.device.info().limits)
    }

    /// As [`Kernel::prepare_split`], within limits, as for [`Kernel::prepare_within`]; and if
    /// `packed`, for a kernel that can split K: where 128-bit accesses do not reach A or B, it
    /// computes with copies of them, made anew by each call, instead of copying one by one. Where
    /// they do, or for another kernel, that changes nothing.
    ///
    /// Places of copies are allocated as for bulk copies: see [`Prepared::enqueue`].
    ///
    /// # Errors
    ///
    /// Those of [`Kernel::prepare_split`].
    pub fn prepare_as(
        &self,
        gemm: Gemm,
        splits: u32,
        packed: bool,
        limits: &Limits,
    ) -> Result<Prepared<'_, 'd>, Error> {
        let info = self.device.info();
        let limits = info.limits.min(limits);
        let plan = Plan::split(self.spec, gemm, splits, &limits, &info.name)?;
        if plan.shared_bytes() > info.limits.shared_default {
            for function in iter::once(&self.function).chain(&self.unaligned) {
                self.allow_shared(function, plan.shared_bytes())?;
            }
        }
        let buffers = Buffers::new(self.device, plan.workspace())?;
        let wide = self.spec.unaligned().map_or([false; 3], |unaligned| unaligned.vectorized);
        let needs = match self.spec.abi() {
            KernelAbi::TensorMap | KernelAbi::StreamK => Some([Need::Rows; 2]),
            KernelAbi::SplitK if packed => {
                Some([wide[0], wide[1]].map(|wide| if wide { Need::Groups } else { Need::Nothing }))
            }
            KernelAbi::Gemm | KernelAbi::SplitK => None,
        };
        let reach = match (&self.repack, needs) {
            (Some(repack), Some(needs)) => {
                Some(Box::new(Reach::new(self.device, repack, &plan, &limits, needs)?))
            }
            _ => None,
        };
        Ok(Prepared { kernel: self, plan, buffers, reach })
    }

    /// Opts in to more dynamic shared memory than every kernel may use; `cust` does
    /// not know the attribute. Never takes any back, which another product may need.
    fn allow_shared(&self, function: &Function<'_>, bytes: u32) -> Result<(), Error> {
        const ATTRIBUTE: c_int = sys::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        self.device.make_current()?;
        let function: sys::CUfunction = function.to_raw().into();
        // No more than the device's limit, which the driver counts in an i32.
        let bytes = bytes.cast_signed();
        let mut allowed = 0;
        // SAFETY: `allowed` is valid for the write. The function is loaded, and belongs to the
        // context just made current.
        let result = unsafe { sys::cuFuncGetAttribute(&raw mut allowed, ATTRIBUTE, function) };
        self.device.check("cuFuncGetAttribute", result)?;
        if bytes <= allowed {
            return Ok(());
        }
        // SAFETY: as above.
        let result = unsafe { sys::cuFuncSetAttribute(function, ATTRIBUTE, bytes) };
        self.device.check("cuFuncSetAttribute", result)
    }
}

/// A product whose launches have been checked: only the matrices are missing.
pub struct Prepared<'k, 'd> {
    kernel: &'k Kernel<'d>,
    plan: Plan,
    buffers: Option<Buffers<'d>>,
    /// How bulk copies reach A and B, if the kernel makes such, or 128-bit accesses, if they
    /// are to have copies.
    reach: Option<Box<Reach<'k, 'd>>>,
}

/// A [`Workspace`] on a device. Work on the device's one stream uses it in turn, and leaves
/// zeros in the counters each time.
struct Buffers<'d> {
    device: &'d Device,
    partials: DeviceBuffer<f32>,
    counters: DeviceBuffer<u32>,
}

impl<'d> Buffers<'d> {
    /// Allocates a workspace; none if nothing is needed.
    fn new(device: &'d Device, workspace: Workspace) -> Result<Option<Self>, Error> {
        let needed = workspace.bytes();
        if needed == 0 {
            return Ok(None);
        }
        require_memory(device, needed)?;
        let failed = |e| device.error("allocating device memory", e);
        // Both counts fit, since the bytes are no more than the device has.
        let [partials, counters] =
            [workspace.partials, workspace.counters].map(|count| count as usize);
        // SAFETY: the kernels store every partial sum before they load it.
        let partials = unsafe { DeviceBuffer::uninitialized(partials) }.map_err(failed)?;
        let counters = DeviceBuffer::zeroed(counters).map_err(failed)?;
        Ok(Some(Self { device, partials, counters }))
    }
}

/// Refuses what does not fit into the device's free memory.
fn require_memory(device: &Device, needed: u128) -> Result<(), Error> {
    let available = device.free_memory()?;
    if needed > u128::from(available) {
        let device = device.info().name.clone();
        return Err(Error::DeviceMemory { device, needed, available });
    }
    Ok(())
}

impl Drop for Buffers<'_> {
    fn drop(&mut self) {
        // The buffers are freed in the current context; see `Device::drop`.
        let _ = self.device.make_current();
    }
}

impl Prepared<'_, '_> {
    /// The launches.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The entry point that is launched for matrices at these addresses: the rung's own,
    /// or, where 128-bit accesses do not reach every row that they should, its unaligned one.
    pub fn entry_point(
        &self,
        a: DevicePointer<f32>,
        b: DevicePointer<f32>,
        c: DevicePointer<f32>,
    ) -> &'static str {
        let spec = self.kernel.spec;
        match spec.unaligned() {
            Some(unaligned) if !self.is_aligned([a, b, c]) => unaligned.name,
            _ => spec.name(),
        }
    }

    /// Addresses of the partial sums and the counters; 0 where no launch touches them.
    fn workspace(&self) -> [u64; 2] {
        self.buffers.as_ref().map_or([0; 2], |buffers| {
            [buffers.partials.as_device_ptr().as_raw(), buffers.counters.as_device_ptr().as_raw()]
        })
    }

    /// Whether the rung's own entry point takes matrices at these addresses, or copies of A
    /// and B.
    fn is_aligned(&self, pointers: [DevicePointer<f32>; 3]) -> bool {
        let Some(Unaligned { vectorized: mut wide, .. }) = self.kernel.spec.unaligned() else {
            return true;
        };
        if self.reach.is_some() {
            [wide[0], wide[1]] = [false; 2];
        }
        is_aligned(wide, self.plan.gemm(), pointers.map(|pointer| pointer.as_raw()))
    }

    /// Enqueues the product on the device's stream.
    ///
    /// A GPU returns at once, the software device when it is done. Either way a fault in
    /// the kernel is reported by the next [`Device::synchronize`] or download.
    ///
    /// A kernel that copies in bulk cannot reach rows that do not begin on 16 bytes, and
    /// computes with a copy of such a matrix, made anew by each call; so does one from
    /// [`Kernel::prepare_as`]. Its place is allocated with the plan if the shape or the
    /// leading dimension is to blame, and by the first call if it is the address.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`], [`Error::Shape`] or [`Error::PlannedLd`] if a matrix is not
    /// what was prepared for; [`Error::DeviceMemory`] if a copy does not fit;
    /// [`Error::Driver`] if the driver refuses the launch.
    pub fn enqueue(
        &self,
        a: &DeviceMatrix<'_>,
        b: &DeviceMatrix<'_>,
        c: &mut DeviceMatrix<'_>,
    ) -> Result<(), Error> {
        let Gemm { m, n, k, lda, ldb, ldc, .. } = *self.plan.gemm();
        let device = self.kernel.device;
        expect_planned(device, "A", a, [m, k], lda)?;
        expect_planned(device, "B", b, [k, n], ldb)?;
        expect_planned(device, "C", c, [m, n], ldc)?;
        // SAFETY: the three matrices are on this device and have the shapes and leading
        // dimensions of the plan. C is borrowed mutably, so it is neither A nor B. They
        // stay allocated while the kernel runs: freeing device memory waits for the work
        // that was enqueued before, and so do copies.
        unsafe { self.enqueue_raw(a.as_device_ptr(), b.as_device_ptr(), c.as_device_ptr()) }
    }

    /// Enqueues the product on bare addresses, with the plan's leading dimensions.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceMemory`] if a copy does not fit (see [`Prepared::enqueue`]);
    /// [`Error::Driver`] if the driver refuses the launch.
    ///
    /// # Safety
    ///
    /// With the plan's m, n, k and leading dimensions:
    /// - unless alpha or k is 0, `a` and `b` point to m x k and k x n elements, all
    ///   initialised, in this device's memory;
    /// - `c` points to m x n elements there, initialised unless beta is 0;
    /// - all three are aligned to 4 bytes, C overlaps neither A nor B, and until the
    ///   work is done nothing frees them, writes A or B, or touches C.
    pub unsafe fn enqueue_raw(
        &self,
        a: DevicePointer<f32>,
        b: DevicePointer<f32>,
        c: DevicePointer<f32>,
    ) -> Result<(), Error> {
        let Kernel { device, function, unaligned, .. } = self.kernel;
        device.make_current()?;
        if let (Some(reach), true) = (&self.reach, self.kernel.spec.abi().has_tensor_maps()) {
            // SAFETY: the caller's contract.
            return unsafe { self.enqueue_tensor(reach, a, b, c) };
        }
        // Panels keep what holds for the whole, because tiles are multiples of four wide.
        let function = match unaligned {
            Some(unaligned) if !self.is_aligned([a, b, c]) => unaligned,
            _ => function,
        };
        let gemm = self.plan.gemm();
        // All fit 32 bits: `Gemm::validate` accepted them.
        let [k, mut lda, mut ldb, ldc] =
            [gemm.depth(), gemm.lda, gemm.ldb, gemm.ldc].map(|size| size as u32);
        let (mut first_a, mut first_b) = (a.as_raw(), b.as_raw());
        if let Some(reach) = self.reach.as_ref().filter(|_| is_read(&self.plan)) {
            // SAFETY: the caller vouches for the matrices, which are not empty.
            let [a, b] = unsafe { reach.matrices([first_a, first_b]) }?;
            (first_a, lda, first_b, ldb) = (a.address, a.ld, b.address, b.ld);
        }
        let [partials, counters] = self.workspace();
        for launch in self.plan.launches() {
            // Panels of A are rows, and those of B columns.
            let row = launch.a_offset / gemm.lda.max(1);
            let mut arguments = parameters::Gemm {
                m: launch.m,
                n: launch.n,
                k,
                alpha: gemm.alpha,
                a: first_a.wrapping_add(4 * row as u64 * u64::from(lda)),
                lda,
                b: first_b.wrapping_add(4 * launch.b_offset as u64),
                ldb,
                beta: gemm.beta,
                c: c.wrapping_add(launch.c_offset).as_raw(),
                ldc,
                depth: self.plan.split_depth(),
                partials,
                counters,
            };
            let count = parameters::kinds(self.kernel.spec.abi()).len();
            // SAFETY: the driver copies the arguments during the call, and they are the
            // kernel's: see `parameters`. The grid covers this panel of C and no more, the block
            // is the rung's own, the matrices are aligned as this entry point needs, and
            // the caller vouches for the memory. The workspace is as large as the largest
            // launch needs; one launch after the other uses it, and it is freed after them.
            unsafe {
                device.stream().launch(
                    function,
                    (launch.grid[0], launch.grid[1], self.plan.splits()),
                    (self.plan.block()[0], self.plan.block()[1]),
                    self.plan.shared_bytes(),
                    &arguments.pointers()[..count],
                )
            }
            .map_err(|e| device.error("launching a kernel", e))?;
        }
        Ok(())
    }
}

/// Whether a matrix is on this device, and has the shape and the leading dimension that
/// a call was prepared for.
pub(crate) fn expect_planned(
    device: &Device,
    what: &'static str,
    matrix: &DeviceMatrix<'_>,
    [need_rows, need_cols]: [usize; 2],
    planned: usize,
) -> Result<(), Error> {
    if !std::ptr::eq(matrix.device(), device) {
        return Err(Error::WrongDevice { what });
    }
    let (rows, cols) = (matrix.rows(), matrix.cols());
    if (rows, cols) != (need_rows, need_cols) {
        return Err(Error::Shape { what, rows, cols, need_rows, need_cols });
    }
    let ld = matrix.layout().ld;
    if ld != planned {
        return Err(Error::PlannedLd { what, ld, planned });
    }
    Ok(())
}

/// Whether 128-bit accesses reach every row of those matrices, at these addresses, of which a
/// rung makes such: see `KernelDescriptor::unaligned`.
pub(crate) fn is_aligned(wide: [bool; 3], gemm: &Gemm, addresses: [u64; 3]) -> bool {
    let rows = [(gemm.lda, gemm.depth()), (gemm.ldb, gemm.n), (gemm.ldc, gemm.n)];
    (0..3).all(|i| !wide[i] || is_wide(addresses[i], rows[i].0, rows[i].1))
}

/// Whether 128-bit accesses reach every row of `cols` elements, `ld` apart, if the first is at
/// this address.
fn is_wide(address: u64, ld: usize, cols: usize) -> bool {
    address.is_multiple_of(16) && ld.is_multiple_of(4) && cols.is_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_name() {
        for spec in LADDER.iter().chain(TILES) {
            assert_eq!(find_kernel(spec.name()).unwrap().name(), spec.name());
        }
    }

    #[test]
    fn alignment_is_of_everything() {
        let gemm = Gemm::new(5, 8, 12);
        let all = [true; 3];
        assert!(is_aligned(all, &gemm, [16, 256, 0]));
        for bad in [[4, 0, 0], [0, 8, 0], [0, 0, 12]] {
            assert!(!is_aligned(all, &gemm, bad));
        }
        for bad in [Gemm::new(5, 9, 12), Gemm::new(5, 8, 13), gemm.strided(14, 8, 8)] {
            assert!(!is_aligned(all, &bad, [0; 3]));
        }
        // Where nothing is summed, rows of A and B are not read, whatever their length.
        assert!(is_aligned(all, &Gemm::new(5, 8, 13).scaled(0.0, 1.0).strided(16, 8, 8), [0; 3]));
    }

    #[test]
    fn alignment_is_of_what_is_wide() {
        let b = [false, true, false];
        assert!(is_aligned(b, &Gemm::new(5, 8, 13).strided(13, 8, 9), [4, 16, 4]));
        assert!(!is_aligned(b, &Gemm::new(5, 8, 13), [0, 4, 0]));
        assert!(!is_aligned(b, &Gemm::new(5, 7, 12).strided(12, 8, 8), [0; 3]));
        assert!(is_aligned([false; 3], &Gemm::new(5, 7, 11), [4; 3]));
    }

    #[test]
    fn a_misspelt_name_gets_the_nearest() {
        for (typed, meant) in [("tile2", "tile2d"), ("Tile2D", "tile2d"), ("niave", "naive")] {
            let Err(Error::UnknownKernel { nearest, known, .. }) = find_kernel(typed) else {
                panic!("{typed}")
            };
            assert_eq!(nearest, Some(meant));
            assert_eq!(known.len(), LADDER.len() + TILES.len());
        }
        assert!(matches!(find_kernel("xyzzy"), Err(Error::UnknownKernel { nearest: None, .. })));
        assert!(find_kernel("").is_err());
    }
}
