//! What each kernel does for an FMA, as Nsight Compute counted it on an H200: a warp's instructions,
//! and the cycles of the shared memory and L1 cache that its accesses take.
//!
//! Both belong to the machine code: the assembler merges loads, so they cannot be read off the PTX,
//! and where an access has bank conflicts, or touches many lines, it takes several cycles. They are
//! of the loop over K, and so the same for every large product. A test compares them with the run
//! they are from, `runs/h200/ladder`, whose README says how to count again after a kernel
//! has changed.

use cuda_gemm::kernels::abi::KernelDescriptor;

use crate::explain::uses_shared;

/// Threads whose instruction a multiprocessor issues per cycle: four schedulers, a warp each.
const ISSUED: f64 = 128.0;

/// Threads that the shared memory and the L1 cache serve per cycle: one warp, with 128 bytes.
const SERVED: f64 = 32.0;

/// What a kernel does for an FMA of each thread of a warp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Instructions that are issued, the FMA included.
    pub instructions: f64,
    /// Cycles of the shared memory and L1 cache (wavefronts of 128 bytes at most).
    pub l1_cycles: f64,
    /// Whether any of them are of shared memory.
    pub uses_shared: bool,
}

/// Instructions and cycles for 32 FMAs of a warp.
const COUNTED: &[(&str, f64, f64)] = &[
    ("naive", 5.362, 17.005),
    ("coalesced", 5.269, 2.001),
    ("smem_full", 3.949, 2.132),
    ("smem_tile", 3.044, 1.639),
    ("rows2", 2.464, 1.132),
    ("tile1d", 1.756, 0.742),
    ("tile2d", 1.421, 0.246),
    ("vec4", 2.721, 0.75),
    ("regtile", 1.596, 0.375),
    ("smem2d", 1.141, 0.228),
    ("transposed", 1.135, 0.251),
    ("frag_prefetch", 1.135, 0.251),
    ("prefetch", 1.126, 0.251),
    ("warptile", 1.092, 0.189),
    ("async_copy", 1.133, 0.222),
    ("tma", 1.076, 0.17),
    ("warp_specialized", 1.078, 0.172),
    ("persistent", 1.077, 0.167),
    ("tile_64x128", 1.127, 0.218),
    ("tile_64x64", 1.134, 0.24),
    ("tile_32x128", 1.172, 0.228),
    ("tile_32x64", 1.186, 0.251),
    ("tile_32x32", 1.3, 0.362),
    ("tile_16x128", 1.189, 0.235),
    ("tile_4x128", 1.525, 0.448),
    ("skinny_m_8x128", 1.822, 0.331),
    ("skinny_m_4x128", 2.233, 0.488),
    ("skinny_m_2x32", 3.503, 0.951),
    ("skinny_n_32x8", 2.006, 0.604),
    ("skinny_n_32x4", 2.41, 0.945),
    ("skinny_n_32x2", 3.279, 1.577),
    ("skinny_n_32x1", 5.195, 2.97),
];

impl Profile {
    /// That of a kernel; `None` for one that was not counted.
    ///
    /// ```
    /// use cuda_gemm::find_kernel;
    /// use gemm_bench::limit::profile::Profile;
    ///
    /// # fn main() -> Result<(), cuda_gemm::Error> {
    /// // Two 128-bit lines for each FMA of a warp, and no shared memory.
    /// let coalesced = Profile::of(find_kernel("coalesced")?).expect("counted");
    /// assert_eq!((coalesced.l1_cycles.round(), coalesced.uses_shared), (2.0, false));
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(descriptor: &KernelDescriptor) -> Option<Self> {
        let (_, instructions, l1_cycles) =
            *COUNTED.iter().find(|(name, ..)| *name == descriptor.name())?;
        let uses_shared = uses_shared(descriptor);
        Some(Self { instructions, l1_cycles, uses_shared })
    }

    /// The most of the peak of FMAs that the kernel can reach, in percent, where a multiprocessor has
    /// so many FP32 lanes: when the issue slots or the shared memory and L1 cache are full.
    pub fn bound(&self, lanes: u32) -> f64 {
        let fullest = self.percent_of_issue(100.0, lanes).max(self.percent_of_l1(100.0, lanes));
        100.0 * 100.0 / fullest.max(100.0)
    }

    /// Issue slots, in percent, of a kernel whose FMAs are so many percent of the peak, where a
    /// multiprocessor has so many FP32 lanes.
    pub fn percent_of_issue(&self, percent_of_ffma: f64, lanes: u32) -> f64 {
        percent_of_ffma * self.instructions * f64::from(lanes) / ISSUED
    }

    /// Likewise cycles of the shared memory and L1 cache.
    pub fn percent_of_l1(&self, percent_of_ffma: f64, lanes: u32) -> f64 {
        percent_of_ffma * self.l1_cycles * f64::from(lanes) / SERVED
    }
}
