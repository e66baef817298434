//! What is chosen.

use std::fmt;

use kernels_gpu::abi::KernelDescriptor;

/// A kernel, and how many blocks share each tile of C.
///
/// ```
/// use cuda_gemm::{Choice, find_kernel};
///
/// let choice = Choice { descriptor: find_kernel("tile_64x64")?, splits: 3, staged: true };
/// assert_eq!(choice.to_string(), "tile_64x64 in 3 splits, staged");
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Choice {
    /// The kernel.
    pub descriptor: &'static KernelDescriptor,
    /// 1 where K is not split.
    pub splits: u32,
    /// Whether A and B are staged where 128-bit accesses do not reach them: see
    /// [`PlanBuilder::staged`](crate::launch::PlanBuilder::staged). False where that makes no difference.
    pub staged: bool,
}

impl Choice {
    /// Whether the kernel keeps what rounding takes from sums and products, whatever K is, where C has few rows: that for one column
    /// does. `tile_16x16x16` does so of a short K alone.
    pub(super) fn is_compensated(&self) -> bool {
        self.descriptor.tile().bn == 1
    }
}

/// Parts of a step along K, each of which other threads of a block sum over (slice-K).
pub(super) fn slices(descriptor: &KernelDescriptor) -> u32 {
    let tile = descriptor.tile();
    (descriptor.threads() * tile.tm * tile.tn / (tile.bm * tile.bn)).max(1)
}

impl PartialEq for Choice {
    fn eq(&self, other: &Self) -> bool {
        // Names are unique.
        let parts = |choice: &Self| (choice.descriptor.name(), choice.splits, choice.staged);
        parts(self) == parts(other)
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} / {}", self.descriptor.name(), self.splits)?;
        f.write_str(if self.staged { " staged" } else { "" })
    }
}

/// Says what a kernel's name and splits are, as in `tile_64x64 in 3 splits, staged`.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { descriptor, splits, staged } = self;
        f.write_str(descriptor.name())?;
        if *splits > 1 {
            write!(f, " in {splits} splits")?;
        }
        f.write_str(if *staged { ", staged" } else { "" })
    }
}
