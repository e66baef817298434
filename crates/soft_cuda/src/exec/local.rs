//! Which bytes of local memory have been written.

use super::machine::LANES;

/// The local memory of all threads of a cluster.
#[derive(Debug)]
pub(crate) struct LocalShadow {
    written: Vec<bool>,
    /// Bytes of a thread.
    size: usize,
}

impl LocalShadow {
    pub(crate) fn new(warps: usize, size: u32) -> LocalShadow {
        LocalShadow { written: vec![false; size as usize * LANES * warps], size: size as usize }
    }

    /// Forgets everything, for new threads.
    pub(crate) fn clear(&mut self) {
        self.written.fill(false);
    }

    /// What is known of `bytes` bytes of a lane's memory from `offset` on; `None` if they are not
    /// all in it.
    pub(crate) fn bytes(
        &mut self,
        (warp, lane): (usize, usize),
        offset: usize,
        bytes: u32,
    ) -> Option<&mut [bool]> {
        let at = (warp * LANES + lane) * self.size;
        self.written[at..at + self.size].get_mut(offset..offset.checked_add(bytes as usize)?)
    }

    /// Notes that bytes of a lane's memory, from an offset on, hold nothing, or something.
    pub(crate) fn set(
        &mut self,
        thread: (usize, usize),
        (offset, bytes): (u32, u32),
        written: bool,
    ) {
        if let Some(bytes) = self.bytes(thread, offset as usize, bytes) {
            bytes.fill(written);
        }
    }

    /// Notes a copy between two places of a lane's memory.
    pub(crate) fn copy(
        &mut self,
        (warp, lane): (usize, usize),
        (from, to): (u32, u32),
        bytes: u32,
    ) {
        let at = (warp * LANES + lane) * self.size;
        let from = at + from as usize;
        self.written.copy_within(from..from + bytes as usize, at + to as usize);
    }
}
