//! Limits of a launch.

/// Bytes of shared memory that the system reserves per block.
pub(crate) const RESERVED_SHARED: u32 =
    kernels_gpu::abi::tensor_core::RESERVED_SHARED_MEMORY_PER_BLOCK;

/// Limits of a launch; 0 blocks or multiprocessors count as 1.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Limits};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let limits = device.info().limits;
/// let one = Limits { multiprocessors: 1, ..limits };
/// assert_eq!(limits.min(&one), one);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Bytes of shared memory per block without the opt-in.
    pub shared_default: u32,
    /// Bytes of shared memory per block with the opt-in.
    pub shared_optin: u32,
    /// Multiprocessors, and so the most persistent blocks.
    pub multiprocessors: u32,
}

impl Limits {
    /// The limits of an H200, for tests.
    #[cfg(test)]
    pub(crate) const H200: Self = Self {
        grid: [i32::MAX as u32, 65535, 65535],
        shared_default: 49152,
        shared_optin: 232448,
        multiprocessors: 132,
    };

    /// The smaller of each limit.
    #[must_use]
    pub fn min(&self, other: &Self) -> Self {
        Self {
            grid: [0, 1, 2].map(|axis| self.grid[axis].min(other.grid[axis])),
            shared_default: self.shared_default.min(other.shared_default),
            shared_optin: self.shared_optin.min(other.shared_optin),
            multiprocessors: self.multiprocessors.min(other.multiprocessors),
        }
    }
}
