//! What the threads of a block have printed.

use std::collections::HashMap;

use crate::fault::FaultKind;

/// What comes before the place and the message in what a panic prints.
const PANICKED: &str = "panicked at ";

/// What a block has printed.
#[derive(Debug, Default)]
pub(crate) struct Printed {
    bytes: Vec<u8>,
    /// The latest text of each thread, by warp and lane.
    latest: HashMap<(usize, u32), Vec<u8>>,
}

impl Printed {
    /// Forgets everything, for a new block.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.latest.clear();
    }

    /// Adds what a lane prints.
    pub(super) fn add(&mut self, warp: usize, lane: u32, text: Vec<u8>) {
        self.bytes.extend_from_slice(&text);
        self.latest.insert((warp, lane), text);
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// What a trap of a lane is, if the lane has just printed that it panicked.
    pub(super) fn panic(&self, warp: usize, lane: u32) -> Option<FaultKind> {
        let text = String::from_utf8_lossy(self.latest.get(&(warp, lane))?);
        let (_, message) = text.split_once(PANICKED)?;
        Some(FaultKind::Panic { message: message.trim_end().to_owned() })
    }
}
