//! Device memory that launches share: partial sums and counters.

use crate::error::Error;
use crate::gemm::Workspace;
use crate::matrix::Memory;
use crate::stream::Stream;

/// A [`Workspace`] on a device. Work on one stream uses it one launch after the other, and leaves
/// zeros in the counters each time.
pub(super) struct Buffers {
    partials: Memory,
    counters: Memory,
}

impl Buffers {
    /// Allocates a workspace; none if nothing is needed.
    pub(super) fn new(stream: &Stream, workspace: Workspace) -> Result<Option<Self>, Error> {
        let needed = workspace.bytes();
        if needed == 0 {
            return Ok(None);
        }
        stream.device().require_memory(needed)?;
        // Both counts fit, since the bytes are no more than the device has.
        let [partials, counters] =
            [workspace.partials, workspace.counters].map(|count| count as usize);
        Ok(Some(Self {
            // The kernels store every partial sum before they load it.
            partials: Memory::uninitialized(stream, partials)?,
            counters: Memory::zeroed(stream, counters)?,
        }))
    }

    /// Addresses of the partial sums and the counters.
    pub(super) fn addresses(&self) -> [u64; 2] {
        [self.partials.address(), self.counters.address()]
    }
}
