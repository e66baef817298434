//! Clusters: the shared memory of other blocks, and the state of the cluster's barrier.

use super::clock::Clock;
use super::machine::{RANK_SHIFT, SHARED_BASE, SHARED_WINDOW};
use super::op::{Cx, Handler, Op};
use super::order::WarpClock;
use crate::error::Place;
use crate::fault::{Access, AddressSpace, FaultKind};

/// The part of an address in `.shared::cluster` that says where in a block's shared memory it is.
const OFFSET: u64 = (1 << RANK_SHIFT) - 1;

/// The barrier of a cluster (`barrier.cluster`): by warp, the lanes that have arrived in this
/// phase, and those that need not wait any longer, because the phase in which they arrived is
/// complete.
pub(crate) struct ClusterBarrier {
    pub arrived: Vec<u32>,
    pub passed: Vec<u32>,
    /// What those knew who arrived in this phase, and in the last that is complete.
    pub arriving: (WarpClock, Clock),
    pub complete: (WarpClock, Clock),
}

impl ClusterBarrier {
    pub(crate) fn new(warps: usize) -> ClusterBarrier {
        ClusterBarrier {
            arrived: vec![0; warps],
            passed: vec![0; warps],
            arriving: Default::default(),
            complete: Default::default(),
        }
    }

    /// Forgets everything, for a new cluster.
    pub(crate) fn clear(&mut self) {
        self.arrived.fill(0);
        self.passed.fill(0);
        self.arriving = Default::default();
        self.complete = Default::default();
    }
}

impl Cx<'_> {
    /// The rank that an address of `.shared::cluster` names, which the cluster may not have.
    fn rank_of(&self, address: u64) -> u32 {
        match (address >> RANK_SHIFT) as u32 {
            0 => self.rank,
            named => named - 1,
        }
    }

    /// Where in the shared memory of the cluster's blocks an address of `.shared::cluster` lies,
    /// if it lies there.
    pub(crate) fn cluster_offset(&self, address: u64) -> Option<u32> {
        let rank = self.rank_of(address);
        let offset = (address & OFFSET).wrapping_sub(SHARED_BASE.into());
        let inside = rank < self.blocks && offset < self.shared_size.into() && address >> 32 == 0;
        inside.then(|| rank * self.shared_stride + offset as u32)
    }

    /// As [`cluster_offset`](Cx::cluster_offset), for offsets into the block's own shared memory.
    /// Those outside remain outside.
    #[inline(always)]
    pub(crate) fn to_cluster_offsets(&self, offsets: &mut [u32]) {
        if self.blocks == 1 {
            return;
        }
        for offset in offsets {
            *offset = match *offset < self.shared_size {
                true => self.rank * self.shared_stride + *offset,
                false => u32::MAX,
            };
        }
    }

    /// The offset of a place in the cluster's shared memory, by its address on the host.
    pub(crate) fn cluster_offset_of(&self, host: *const u8) -> usize {
        (host as usize).wrapping_sub(self.cluster_shared as usize)
    }

    /// The rank of the block in whose shared memory an offset into the cluster's lies, and the
    /// address there.
    pub(crate) fn rank_and_address(&self, offset: u32) -> (u32, u32) {
        match self.blocks {
            1 => (0, SHARED_BASE + offset),
            _ => (offset / self.shared_stride, SHARED_BASE + offset % self.shared_stride),
        }
    }

    /// Fails if the destination of a bulk copy from shared memory, an offset into the cluster's, is
    /// in the same block. PTX allows it; an H200 does not, and `mapa` of the block's own rank gives
    /// the same address there.
    pub(super) fn check_other_block(&self, address: u64, offset: u32) -> Result<(), FaultKind> {
        match self.rank_and_address(offset).0 == self.rank {
            true => Err(FaultKind::BulkToOwnBlock { address }),
            false => Ok(()),
        }
    }
}

/// The host memory of `bytes` bytes at an address of `.shared::cluster`.
pub(super) fn find(
    cx: &Cx<'_>,
    (address, bytes): (u64, u32),
    named: AddressSpace,
    access: Access,
) -> Result<*mut u8, FaultKind> {
    let rank = cx.rank_of(address);
    let outside = |place| FaultKind::OutOfBounds { address, bytes, access, space: named, place };
    if rank >= cx.blocks {
        return Err(outside(Place::Nowhere));
    }
    let size = u64::from(cx.shared_size);
    let base = (address & !OFFSET) + u64::from(SHARED_BASE);
    let Some(offset) = address.checked_sub(base) else {
        return Err(outside(Place::Before { base, size, distance: base - address }));
    };
    if offset + u64::from(bytes) > size {
        let past_end = offset as i64 - size as i64;
        return Err(outside(Place::After { base, size, past_end }));
    }
    if cx.exited >> rank & 1 != 0 {
        return Err(FaultKind::ExitedBlock { address, access, rank });
    }
    // SAFETY: every block of the cluster has `shared_size` bytes, `shared_stride` apart.
    Ok(unsafe { cx.cluster_shared.add((rank * cx.shared_stride) as usize + offset as usize) })
}

/// `mapa`: `d` = the address in slot `a`, in the shared memory of the block whose rank is in slot
/// `b`. `x` is whether the addresses have 64 bits, and `y` whether they are generic.
pub(crate) struct MapAddress;

// SAFETY: touches only the slots `d`, `a` and `b`.
unsafe impl Handler for MapAddress {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let window = if op.y != 0 { SHARED_WINDOW } else { 0 };
        for lane in cx.active() {
            // SAFETY: the slots have lanes of the sizes that `x` says, and `b` of 32 bits.
            let (address, rank) = unsafe {
                let address = match op.x {
                    0 => u64::from(*cx.slot::<u32>(op.a).add(lane)),
                    _ => *cx.slot::<u64>(op.a).add(lane),
                };
                (address.wrapping_sub(window), *cx.slot::<u32>(op.b).add(lane))
            };
            if rank >= cx.blocks {
                return cx.fail(lane as u32, FaultKind::BadRank { rank, blocks: cx.blocks });
            }
            if address >> 32 != 0 {
                let (address, place) = (address.wrapping_add(window), Place::Nowhere);
                let (access, space) = (Access::Load, AddressSpace::SharedCluster);
                let kind = FaultKind::OutOfBounds { address, bytes: 1, access, space, place };
                return cx.fail(lane as u32, kind);
            }
            let mapped = (address & OFFSET | u64::from(rank + 1) << RANK_SHIFT) + window;
            // SAFETY: as above.
            unsafe {
                match op.x {
                    0 => *cx.slot::<u32>(op.d).add(lane) = mapped as u32,
                    _ => *cx.slot::<u64>(op.d).add(lane) = mapped,
                }
            }
        }
        false
    }
}

/// `getctarank`: `d` = the rank of the block in whose shared memory the address in slot `a` lies;
/// `x` and `y` as for [`MapAddress`].
pub(crate) struct RankOfAddress;

// SAFETY: touches only the slots `d` and `a`.
unsafe impl Handler for RankOfAddress {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let window = if op.y != 0 { SHARED_WINDOW } else { 0 };
        for lane in cx.active() {
            // SAFETY: `a` has lanes of the size that `x` says, and `d` of 32 bits.
            unsafe {
                let address = match op.x {
                    0 => u64::from(*cx.slot::<u32>(op.a).add(lane)),
                    _ => *cx.slot::<u64>(op.a).add(lane),
                };
                *cx.slot::<u32>(op.d).add(lane) = cx.rank_of(address.wrapping_sub(window));
            }
        }
        false
    }
}
