//! Producers: one thread asks for tiles of A and B, or a warpgroup copies a misaligned A.

use cuda_std::hint::black_box;
use cuda_std::mbarrier::Mbarrier;
use cuda_std::shared::SharedPtr;
use cuda_std::{cluster, dependent_launch, tma, warp};

use super::storage::Storage;
use super::{Operands, Products, WM, copies};
use crate::abi::tensor_core::BK;
use crate::device::pipeline::state::PipelineState;
use crate::device::pipeline::tile_load::load_tile;
use crate::device::schedule::cluster::{Entry, Sequence};

/// Bytes of A that each block prefetches to L2 before the kernel in front of it has ended. All
/// blocks together ask for about what device memory delivers meanwhile.
const PREFETCHED: u32 = 32 << 10;

/// The stages of a block, and the barriers that say what may be done with them.
#[derive(Clone, Copy)]
pub struct Pipeline {
    /// The number of stages.
    pub stages: u32,
    /// The stages, each of A and then of B.
    pub smem: SharedPtr<u16>,
    /// Columns of a tile: lines of B in a stage, or columns of its panels.
    pub bn: u32,
    /// Of each stage: it is full, or it has been read.
    pub full: Mbarrier,
    pub empty: Mbarrier,
    /// Of each entry: its tile has been stored, if the block is alone. Otherwise the cluster's
    /// barriers say so.
    pub read: Mbarrier,
    /// The messages to the consumers about tiles.
    pub entries: Entry,
    /// Whether this thread asks for the block's copies. One thread of the first producing warp does.
    pub leads: bool,
}

impl Pipeline {
    /// Fills the stages, tile after tile, with the work of one block.
    ///
    /// The block is number `rank` of `splits` in cluster `index`. A has `m` rows, a panel of a tile
    /// `rows`, and a tile `cols` columns.
    ///
    /// # Safety
    /// - The first producing warp calls this, or all producers if they copy A.
    /// - `thread` is the number of the calling producer.
    /// - Each calls it once, when the barriers are initialised as [`Storage`] has them.
    /// - The operands are as the launch promises.
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
        sequence: impl Fn() -> Sequence,
        [index, rank, splits]: [u32; 3],
        products: Products,
        Operands { maps: [map_a, map_b], unaligned }: Operands<MN_A>,
        [m, rows, cols]: [u32; 3],
        thread: u32,
    ) {
        let Self { stages, smem, bn, full, empty, read, entries, leads } = self;
        let bm = Storage::<SUMS, WARPGROUPS, BLOCKS>::BM;
        let stage_a = Storage::<SUMS, WARPGROUPS, BLOCKS>::STAGE_A;
        let known = sequence();
        let [once_a, once_b] = known.read_once([bm, bn], [products.step_a, products.step_b]);
        let mut state = PipelineState::FIRST;
        let (mut number, mut most) = (0, PREFETCHED / (2 * stage_a));
        loop {
            // Producers that copy A have no registers for what they can compute again.
            let tiles = if copies(PRODUCERS) { sequence() } else { known };
            let work = tiles.work(index, number);
            let [product, y, x] = tiles.place(work.tile);
            let (row, col) = (y * WARPGROUPS * rows, x * cols);
            let panels = (m - row).div_ceil(rows.max(1)).min(WARPGROUPS);
            let [begin, end] = work.part(rank);
            let [product_a, product_b] =
                [product * products.step_a, product * products.step_b].map(u32::cast_signed);
            // Prefetch A while the kernel before this one ends, or while the last tile's sums are
            // added up. A comes from device memory; B is small.
            let prefetched = if copies(PRODUCERS) { begin } else { end.min(begin + most) };
            for step in if leads { begin..prefetched } else { 0..0 } {
                let at = (step * BK).cast_signed();
                for panel in 0..panels {
                    let row = (row + panel * rows).cast_signed();
                    let at = if MN_A { [row, at, product_a] } else { [at, row, product_a] };
                    // SAFETY: a grid constant, which describes A. A later copy sees what L2 then
                    // has.
                    unsafe { tma::prefetch_tile(map_a, at) };
                }
            }
            // This tile overwrites the entry of two tiles ago. If the blocks of a cluster share
            // tiles, its stages lie where the sums of the tile before are.
            if number == 0 {
                dependent_launch::wait();
            } else if splits > 1 {
                cluster::sync();
                cluster::sync();
                // All blocks have read the sums that copies will overwrite.
                tma::fence_proxy_async_all();
            } else if number > 1 {
                let tile = number - 2;
                // SAFETY: this thread waits for each phase, one after the other. Its warp has been
                // together since, so it is not two phases behind.
                unsafe { read.add(tile % 2).wait_parity(tile / 2 % 2) };
            }
            if leads {
                // SAFETY: no consumer reads the new entry before a stage is full. None still reads the
                // old one: this thread has waited for that above.
                unsafe {
                    let entry = entries.of(number);
                    entry.write(
                        tiles,
                        index,
                        work,
                        end - begin,
                        [product, row, col],
                        [panels - 1, if copies(PRODUCERS) { 0 } else { cols }],
                    )
                };
            }
            let unaligned = unaligned.of_product(product_a.cast_unsigned());
            for step in begin..end {
                let full = full.add(state.stage);
                // SAFETY: all warps have said that the `wgmma` that read the stage are done. Nobody
                // else reads or writes the stage, and no other thread writes what this one does. A
                // is as the launch promises.
                unsafe {
                    let to_a = smem.add(state.stage * (stage_a + bn * BK));
                    let at = (step * BK).cast_signed();
                    let place = [step * BK, row];
                    let loaded = copies(PRODUCERS).then(|| unaligned.load(place, thread));
                    empty.add(state.stage).wait_parity(state.parity ^ 1);
                    if leads {
                        let bytes_a = if copies(PRODUCERS) { 0 } else { 2 * panels * rows * BK };
                        let cols_b = if MN_B { bn } else { cols };
                        full.arrive_expect_tx(bytes_a + 2 * cols_b * BK);
                        let panels = if copies(PRODUCERS) { 0 } else { panels };
                        for panel in 0..panels {
                            let row = (row + panel * rows).cast_signed();
                            let to = to_a.add(panel * (WM * BK));
                            let place = if MN_A { [row, at] } else { [at, row] };
                            load_tile(to, map_a, [place[0], place[1], product_a], full, once_a);
                        }
                        let to = to_a.add(stage_a);
                        if MN_B {
                            let panel_cols = Storage::<SUMS, WARPGROUPS, BLOCKS>::PANEL;
                            for panel in 0..bn / panel_cols {
                                let col = (col + panel * panel_cols).cast_signed();
                                let to = to.add(panel * BK * panel_cols);
                                load_tile(to, map_b, [col, at, product_b], full, once_b);
                            }
                        } else {
                            let col = col.cast_signed();
                            load_tile(to, map_b, [at, col, product_b], full, once_b);
                        }
                    }
                    if !copies(PRODUCERS) {
                        // No lane falls two phases behind the one that leads.
                        warp::sync_warp(u32::MAX);
                    }
                    if let Some(loaded) = loaded {
                        unaligned.store(place, thread, loaded, to_a);
                        // The async proxy reads it.
                        tma::fence_proxy_async();
                        warp::sync_warp(u32::MAX);
                        if warp::lane_id() == 0 {
                            full.arrive();
                        }
                    }
                }
                state = state.next_of(stages);
            }
            let is_last = match copies(PRODUCERS) {
                true => sequence().work(black_box(index), number).is_last,
                false => work.is_last,
            };
            if is_last {
                break;
            }
            number += 1;
            // Without other blocks, copies do not wait for sums.
            most = if splits > 1 { stages } else { 0 };
        }
    }
}
