//! What each kernel does for an FMA, as Nsight Compute counted it on an H200: a warp's instructions,
//! and the cycles of the shared memory and L1 cache that its accesses take.
//!
//! Both belong to the machine code: the assembler merges loads, so they cannot be read off the PTX,
//! and where an access has bank conflicts, or touches many lines, it takes several cycles. They are
//! of the loop over K, and so the same for every large product. A test compares them with the run
//! they are from.

use cuda_gemm::kernels::{KernelDescriptor, Shared};

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
    ("tile1d", 1.756, 0.741),
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
        let uses_shared = !matches!(descriptor.shared(), Shared::Static(0));
        Some(Self { instructions, l1_cycles, uses_shared })
    }
}
