//! The work of each kernel per FMA, counted by Nsight Compute on an H200.
//!
//! It consists of a warp's instructions, and of the shared memory and L1 cycles of its accesses.
//!
//! Both belong to the machine code. They cannot be read off the PTX, because the assembler merges
//! loads, and an access with bank conflicts or many lines needs several cycles. The counts are of
//! the loop over K, and so equal for every large product. A test compares them with their run,
//! `runs/h200/ladder`. Its README says how to count again after a kernel has changed.

use cuda_gemm::kernels::abi::KernelDescriptor;

use crate::explain::uses_shared;

/// Threads whose instruction a multiprocessor issues per cycle: four schedulers, one warp each.
const ISSUED: f64 = 128.0;

/// Threads that shared memory and the L1 cache serve per cycle: one warp, with 128 bytes.
const SERVED: f64 = 32.0;

/// A kernel's work per FMA of each thread of a warp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Issued instructions, including the FMA.
    pub instructions: f64,
    /// Cycles of shared memory and the L1 cache (wavefronts of at most 128 bytes).
    pub l1_cycles: f64,
    /// Whether some of these cycles are of shared memory.
    pub uses_shared: bool,
}

/// Instructions and cycles per 32 FMAs of a warp.
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
    /// The profile of a kernel; `None` if it was not counted.
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

    /// The largest share of the FMA peak that the kernel can reach, in percent.
    ///
    /// At that share the issue slots, or shared memory and the L1 cache, are full. `lanes` are the
    /// FP32 lanes per multiprocessor.
    pub fn bound(&self, lanes: u32) -> f64 {
        let fullest = self.percent_of_issue(100.0, lanes).max(self.percent_of_l1(100.0, lanes));
        100.0 * 100.0 / fullest.max(100.0)
    }

    /// The used issue slots, in percent, at a share of the FMA peak.
    ///
    /// `lanes` are the FP32 lanes per multiprocessor.
    pub fn percent_of_issue(&self, percent_of_ffma: f64, lanes: u32) -> f64 {
        percent_of_ffma * self.instructions * f64::from(lanes) / ISSUED
    }

    /// The used cycles of shared memory and the L1 cache, in percent, at a share of the FMA peak.
    pub fn percent_of_l1(&self, percent_of_ffma: f64, lanes: u32) -> f64 {
        percent_of_ffma * self.l1_cycles * f64::from(lanes) / SERVED
    }
}
