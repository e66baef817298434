//! Products of `wgmma` in flight, in commit groups.

use std::collections::HashMap;
use std::ops::Range;

/// An instruction that a warp has issued.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Number of the commit group it belongs to.
    pub group: u64,
    pub line: u32,
    /// Where its words are in [`Cx::extra`](super::op::Cx::extra), and the slots of its registers.
    pub x: u32,
    pub registers: Range<usize>,
    /// Where the chunks of A are, unless it is in registers, and those of B.
    pub a: Vec<u32>,
    pub b: Vec<u32>,
    /// Whether it adds to the accumulators.
    pub adds: bool,
    /// Where races are looked for, what stands for the last writes of the chunks.
    pub writes: [Vec<u64>; 2],
}

/// The instructions of one warp that nobody has waited for.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    pub pending: Vec<Pending>,
    /// Groups committed so far.
    pub committed: u64,
    /// Whether there was a fence, and what was accessed since, by the line: slots of registers.
    fenced: bool,
    touched: HashMap<u32, u32>,
}

impl InFlight {
    /// Forgets everything, for a new block.
    pub(crate) fn clear(&mut self) {
        self.pending.clear();
        self.committed = 0;
        self.fenced = false;
        self.touched.clear();
    }

    /// Takes out the products of all but the latest `keep` groups.
    pub(super) fn take_due(&mut self, keep: u64) -> Vec<Pending> {
        let due = self.committed.saturating_sub(keep);
        let split = self.pending.partition_point(|pending| pending.group < due);
        self.pending.drain(..split).collect()
    }

    /// Notes a fence.
    pub(super) fn fence(&mut self) {
        self.fenced = true;
        self.touched.clear();
    }

    /// Notes an access of a register of a product by the instruction at a line.
    pub(super) fn touch(&mut self, slot: u32, line: u32) {
        self.touched.insert(slot, line);
    }

    /// The line of the product in flight that has the register in `slot`. `extra` are the words
    /// of all operations.
    pub(super) fn holder(&self, extra: &[u32], slot: u32) -> Option<u32> {
        let holds = |pending: &&Pending| extra[pending.registers.clone()].contains(&slot);
        self.pending.iter().find(holds).map(|pending| pending.line)
    }

    /// What is wrong if a product of these registers is issued now.
    pub(super) fn unfenced<'a>(
        &self,
        mut registers: impl Iterator<Item = &'a u32>,
    ) -> Option<String> {
        if !self.fenced {
            return Some("there was no `wgmma.fence` before the warp's first product".to_owned());
        }
        let line = registers.find_map(|slot| self.touched.get(slot))?;
        Some(format!(
            "no `wgmma.fence` came after line {line}, which accesses one of this product's registers"
        ))
    }
}
