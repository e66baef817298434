//! Where the groups of a grouped product end: an array in device memory.

use std::fmt;

use super::memory::{Memory, copy_from_host};
use crate::device::Stream;
use crate::error::Error;

/// Where the groups of a [grouped product](crate::Gemm::grouped) end.
///
/// They are cumulative numbers of rows, `u32` in device memory, as PyTorch's `offs`. Each product
/// reads them when it runs. So [`set`](Self::set), or a kernel of the same stream,
/// may change them between two runs of a plan, or of a captured graph.
///
/// A kernel may write anything there: ends that decrease, or lie behind all rows, are clamped. No
/// access is out of bounds.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Error, GroupEnds};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// // Groups of 3, 0 and 4 rows.
/// let mut ends = GroupEnds::new(&device.stream(), &[3, 3, 7])?;
/// assert_eq!(ends.count(), 3);
/// ends.set(&[1, 2, 7])?;
/// let wrong = ends.set(&[2, 1, 7]).unwrap_err();
/// assert!(matches!(wrong, Error::GroupEnds { group: 1, end: 1, before: 2 }));
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct GroupEnds {
    memory: Memory,
    count: usize,
}

impl fmt::Debug for GroupEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupEnds").field("count", &self.count).finish_non_exhaustive()
    }
}

impl GroupEnds {
    /// Copies ends to the device, for products on this stream.
    ///
    /// # Errors
    ///
    /// [`Error::GroupEnds`] if one is smaller than that before; [`Error::Driver`].
    pub fn new(stream: &Stream, ends: &[u32]) -> Result<Self, Error> {
        let mut all =
            Self { memory: Memory::uninitialized(stream, ends.len())?, count: ends.len() };
        all.set(ends)?;
        Ok(all)
    }

    /// Replaces all ends, behind the work that is on the stream, and waits for that. So it cannot be
    /// captured.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new), and [`Error::GroupCount`] for another number of groups.
    pub fn set(&mut self, ends: &[u32]) -> Result<(), Error> {
        if ends.len() != self.count {
            return Err(Error::GroupCount { count: ends.len(), groups: self.count });
        }
        if let Some(at) = ends.windows(2).position(|pair| pair[1] < pair[0]) {
            let (group, end, before) = (at + 1, ends[at + 1], ends[at]);
            return Err(Error::GroupEnds { group, end, before });
        }
        if ends.is_empty() {
            return Ok(());
        }
        let stream = self.memory.stream();
        let _current = stream.device().enter()?;
        let _exclusive = stream.exclusive();
        // SAFETY: the memory has room for them, and the copy is waited for.
        let copied = unsafe { copy_from_host(stream, self.memory.address(), ends) };
        stream.synchronize().and(copied)
    }

    /// The number of groups.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The stream of the products.
    pub fn stream(&self) -> &Stream {
        self.memory.stream()
    }

    /// The address of the first end, for a kernel that writes them.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }
}
