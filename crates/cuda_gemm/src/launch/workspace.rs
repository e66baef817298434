//! Device memory that launches share: partial sums and counters.

use crate::device::Stream;
use crate::error::Error;
use crate::matrix::Memory;
use crate::plan::Workspace;

/// A [`Workspace`] in device memory.
///
/// Launches on one stream use it one after the other, and each leaves zeros in the counters.
pub(crate) struct Buffers {
    partials: Memory,
    counters: Memory,
}

impl Buffers {
    /// Allocates a workspace; `None` for an empty one.
    pub(crate) fn new(stream: &Stream, workspace: Workspace) -> Result<Option<Self>, Error> {
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

    /// The addresses of the partial sums and the counters.
    pub(super) fn addresses(&self) -> [u64; 2] {
        [self.partials.address(), self.counters.address()]
    }
}
