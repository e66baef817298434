//! What registers hold before any instruction has written them.

use super::code::{Initial, Special};
use super::machine::{LANES, RESERVED_BYTES, Shape, index_in};
use super::op::Cx;
use super::special::lane_mask;

impl Special {
    /// Whether it differs from block to block.
    fn is_of_block(self) -> bool {
        matches!(
            self,
            Special::Ctaid(_)
                | Special::SmId
                | Special::ClusterId(_)
                | Special::ClusterCtaid(_)
                | Special::ClusterCtaRank
        )
    }

    fn value(self, shape: &Shape, warp: usize, lane: usize) -> u64 {
        let thread = || index_in((warp * LANES + lane) as u64, shape.block);
        match self {
            Special::Tid(axis) => thread()[axis as usize].into(),
            Special::Ntid(axis) => shape.block[axis as usize].into(),
            Special::Ctaid(axis) => index_in(shape.index, shape.grid)[axis as usize].into(),
            Special::Nctaid(axis) => shape.grid[axis as usize].into(),
            Special::LaneId => lane as u64,
            Special::WarpId => warp as u64,
            Special::NWarpId => shape.warps.into(),
            Special::LaneMask(kind) => lane_mask(kind.into(), lane as u32).into(),
            Special::ClusterId(axis) => {
                let dim = shape.cluster.dims[axis as usize];
                (index_in(shape.index, shape.grid)[axis as usize] / dim).into()
            }
            Special::NClusterId(axis) => shape.cluster.clusters()[axis as usize].into(),
            Special::ClusterCtaid(axis) => {
                let dim = shape.cluster.dims[axis as usize];
                (index_in(shape.index, shape.grid)[axis as usize] % dim).into()
            }
            Special::ClusterNctaid(axis) => shape.cluster.dims[axis as usize].into(),
            Special::ClusterCtaRank => shape.cluster.of_block(shape.index).1 as u64,
            Special::ClusterNctaRank => shape.cluster.blocks() as u64,
            Special::SmId => shape.index % u64::from(shape.sm_count),
            Special::NSmId => shape.sm_count.into(),
            Special::GridId => 1,
            Special::DynamicShared => shape.dynamic_shared.into(),
            Special::TotalShared => shape.shared_bytes.into(),
            Special::AggregateShared => (shape.shared_bytes + RESERVED_BYTES).into(),
        }
    }
}

impl Cx<'_> {
    /// Sets the registers of the current warp that are the same in every block.
    pub(super) fn fill_initial(&mut self, initial: &Initial) {
        for constant in &initial.constants {
            self.fill(constant.slot, constant.wide, |_| constant.bits);
        }
        self.fill_specials(initial, false);
    }

    /// Sets those that are the block's own.
    pub(super) fn fill_of_block(&mut self, initial: &Initial) {
        self.fill_specials(initial, true);
        for &(slot, wide) in &initial.zeroed {
            self.fill(slot, wide, |_| 0);
        }
        for &predicate in &initial.zeroed_predicates {
            // SAFETY: `predicate` is a predicate of this kernel.
            unsafe { *self.preds.add(predicate as usize) = 0 };
        }
    }

    fn fill_specials(&mut self, initial: &Initial, of_block: bool) {
        let shape = self.shape;
        let warp = self.warp % shape.warps as usize;
        let specials = initial.specials.iter();
        for &(slot, special) in specials.filter(|(_, special)| special.is_of_block() == of_block) {
            let wide = special == Special::GridId;
            self.fill(slot, wide, |lane| special.value(&shape, warp, lane));
        }
    }

    /// Sets all lanes of a slot of the current warp.
    fn fill(&mut self, slot: u32, wide: bool, value: impl Fn(usize) -> u64) {
        for lane in 0..LANES {
            // SAFETY: `slot` is a slot of this kernel, of that width.
            unsafe {
                if wide {
                    *self.slot::<u64>(slot).add(lane) = value(lane);
                } else {
                    *self.slot::<u32>(slot).add(lane) = value(lane) as u32;
                }
            }
        }
    }
}
