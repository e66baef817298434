//! The thread that asks for the tiles of A and B, and those that copy an A that bulk copies do not reach.

use cuda_std::mbarrier::Mbarrier;
use cuda_std::shared::SharedPtr;
use cuda_std::{cluster, dependent_launch, tma, warp};

use super::storage::Storage;
use super::{Operands, Products, WM, copies};
use crate::abi::tensor_core::BK;
use crate::device::pipeline::state::PipelineState;
use crate::device::pipeline::tile_load::load_tile;
use crate::device::schedule::cluster::{Entry, Sequence};

/// Bytes of A that each block prefetches to L2 before the kernel in front of it has ended: all blocks together about
/// what device memory delivers meanwhile.
const PREFETCHED: u32 = 32 << 10;

/// The stages of a block, and the barriers that say what may be done with them.
#[derive(Clone, Copy)]
pub struct Pipeline {
    /// How many there are.
    pub stages: u32,
    /// The stages of A, and of B.
    pub a: SharedPtr<u16>,
    pub b: SharedPtr<u16>,
    /// Of each stage: it is full, or has been read.
    pub full: Mbarrier,
    pub empty: Mbarrier,
    /// Of each entry: its tile has been added up.
    pub read: Mbarrier,
    /// What the consumers are told of a tile.
    pub entries: Entry,
}

impl Pipeline {
    /// Fills the stages, tile after tile, as the block with this rank in the cluster with this index has them, of a cluster of
    /// `splits` blocks. Of B `copied_b` elements are copied for each step.
    ///
    /// # Safety
    /// The first producer calls this, or if they copy A, all producers, whose numbers these are, once, when the barriers are
    /// initialised, as [`Storage`] has them. The operands are as the launch promises.
    #[inline(always)]
    pub unsafe fn fill<
        const SUMS: usize,
        const WARPGROUPS: u32,
        const BLOCKS: u32,
        const PRODUCERS: u32,
        const MN_A: bool,
        const MN_B: bool,
    >(
        self,
        sequence: Sequence,
        [index, rank, splits]: [u32; 3],
        products: Products,
        Operands { maps: [map_a, map_b], unaligned }: Operands<MN_A>,
        copied_b: u32,
        thread: u32,
    ) {
        let Self { stages, a: a_smem, b: b_smem, full, empty, read, entries } = self;
        let bm = Storage::<SUMS, WARPGROUPS, BLOCKS>::BM;
        let bn = Storage::<SUMS, WARPGROUPS, BLOCKS>::BN;
        let stage_a = Storage::<SUMS, WARPGROUPS, BLOCKS>::STAGE_A;
        let stage_b = Storage::<SUMS, WARPGROUPS, BLOCKS>::STAGE_B;
        let lag = Storage::<SUMS, WARPGROUPS, BLOCKS>::LAG;
        let [once_a, once_b] = sequence.read_once([bm, bn], [products.step_a, products.step_b]);
        let mut state = PipelineState::FIRST;
        let (mut number, mut most) = (0, PREFETCHED / (2 * stage_a));
        loop {
            let work = sequence.work(index, number);
            let [product, y, x] = sequence.place(work.tile);
            let (row, col) = (y * bm, x * bn);
            let [begin, end] = work.part(rank);
            let [product_a, product_b] =
                [product * products.step_a, product * products.step_b].map(u32::cast_signed);
            // While the kernel before this one ends, or the sums of the tile before are added up: A comes from
            // device memory, B is small.
            let prefetched = if copies(PRODUCERS) { begin } else { end.min(begin + most) };
            for step in begin..prefetched {
                let at = (step * BK).cast_signed();
                for panel in 0..if MN_A { WARPGROUPS } else { 1 } {
                    let row = (row + panel * WM).cast_signed();
                    let at = if MN_A { [row, at, product_a] } else { [at, row, product_a] };
                    // SAFETY: a grid constant, which describes A; a later copy sees what is in L2 then.
                    unsafe { tma::prefetch_tile(map_a, at) };
                }
            }
            // The entry of two tiles before is this one's, and the sums of the tile before may lie where the stages
            // do, until they have been read.
            if number == 0 {
                dependent_launch::wait();
            } else if splits > 1 {
                cluster::sync();
                cluster::sync();
                if !Storage::<SUMS, WARPGROUPS, BLOCKS>::SEPARATE {
                    // All blocks have read sums in the memory that copies overwrite.
                    tma::fence_proxy_async_all();
                }
            } else if number >= lag {
                let tile = number - lag;
                // SAFETY: each one's phases are waited for one after the other.
                unsafe { read.add(tile % 2).wait_parity(tile / 2 % 2) };
            }
            if thread == 0 {
                // SAFETY: no consumer reads it before a stage is full, or behind the second barrier.
                unsafe {
                    let entry = entries.of(number);
                    entry.write(sequence, index, work, [rank, end - begin], [product, row, col])
                };
            }
            let unaligned = unaligned.of_product(product_a.cast_unsigned());
            for step in begin..end {
                let full = full.add(state.stage);
                // SAFETY: all warps have said that the `wgmma` that read the stage are done, and nobody else reads or writes
                // it, nor does another thread what this one writes; A is as the launch promises.
                unsafe {
                    let to_a = a_smem.add(state.stage * stage_a);
                    let at = (step * BK).cast_signed();
                    let place = [step * BK, row];
                    let is_empty = || empty.add(state.stage).wait_parity(state.parity ^ 1);
                    let loaded = copies(PRODUCERS).then(|| unaligned.load(place, thread));
                    if thread == 0 {
                        is_empty();
                        let bytes_a = if copies(PRODUCERS) { 0 } else { 2 * stage_a };
                        full.arrive_expect_tx(bytes_a + 2 * copied_b);
                        if copies(PRODUCERS) {
                        } else if MN_A {
                            for panel in 0..WARPGROUPS {
                                let row = (row + panel * WM).cast_signed();
                                let to = to_a.add(panel * (WM * BK));
                                load_tile(to, map_a, [row, at, product_a], full, once_a);
                            }
                        } else {
                            load_tile(
                                to_a,
                                map_a,
                                [at, row.cast_signed(), product_a],
                                full,
                                once_a,
                            );
                        }
                        let to = b_smem.add(state.stage * stage_b);
                        if MN_B {
                            let panel_cols = Storage::<SUMS, WARPGROUPS, BLOCKS>::PANEL;
                            for panel in 0..bn / panel_cols {
                                let col = (col + panel * panel_cols).cast_signed();
                                let to = to.add(panel * (BK * panel_cols));
                                load_tile(to, map_b, [col, at, product_b], full, once_b);
                            }
                        } else {
                            load_tile(to, map_b, [at, col.cast_signed(), product_b], full, once_b);
                        }
                    }
                    if let Some(loaded) = loaded {
                        is_empty();
                        unaligned.store(place, thread, loaded, to_a);
                        // What reads it is of the async proxy.
                        tma::fence_proxy_async();
                        warp::sync_warp(u32::MAX);
                        if warp::lane_id() == 0 {
                            full.arrive();
                        }
                    }
                }
                state = state.next_of(stages);
            }
            if work.is_last {
                break;
            }
            number += 1;
            // With one split, copies do not wait for sums that have memory of their own.
            most = if lag == 1 || splits > 1 { stages } else { 0 };
        }
    }
}
