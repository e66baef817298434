//! Launches of persistent blocks (stream-K): their number, and the tiles that they share.
//!
//! `kernels-gpu/src/device/schedule/stream_k.rs` is the device's side, and explains the
//! decomposition.

use kernels_gpu::abi::KernelDescriptor;

use super::form::tiles;
use super::panel::{Launch, MAX_PANEL, Workspace, panels};
use crate::device::Limits;
use crate::problem::Gemm;

/// The most blocks per tile, if there are fewer tiles than multiprocessors.
///
/// Each additional block stores and loads a tile once more.
const MAX_BLOCKS_PER_TILE: u64 = 8;

/// The longest accumulation lengths (blocked summation).
///
/// The first is for a C of whole tiles that fill the last wave, the second for any other C. The
/// error grows with the root of the length: that of 4096 is three times that of 416. Storing and
/// loading a partial sum takes 4 us. cuBLAS sums all of K at once if tiles fill the last wave, and
/// otherwise in up to four parts of 500 or more. Our errors should be no larger.
const EVEN_LENGTH: u32 = 2048;
const UNEVEN_LENGTH: u32 = 600;
/// Up to this depth, K is not split.
const SHORT: u32 = 640;
/// cuBLAS's whole tiles, and the least share of all waves that tiles fill, in tenths.
const EVEN: usize = 256;
const EVEN_TENTHS: u64 = 9;

/// Steps along K per partial sum, for `tiles` tiles.
fn accumulation_steps(
    descriptor: &KernelDescriptor,
    gemm: &Gemm,
    tiles: u32,
    multiprocessors: u32,
) -> u32 {
    // `Gemm::validate` accepted k.
    let depth = gemm.depth() as u32;
    let (tiles, all) = (u64::from(tiles), u64::from(multiprocessors.max(1)));
    let is_even = gemm.m.is_multiple_of(EVEN)
        && gemm.n.is_multiple_of(EVEN)
        && 10 * tiles >= EVEN_TENTHS * tiles.next_multiple_of(all);
    let most = match is_even {
        _ if depth <= SHORT => SHORT,
        false => UNEVEN_LENGTH,
        // Two partial sums per tile are enough.
        true if tiles >= all => EVEN_LENGTH.max(depth.div_ceil(2)),
        true => EVEN_LENGTH,
    };
    // Divides K into equal lengths.
    let sums = depth.div_ceil(most).max(1);
    depth.div_ceil(sums).div_ceil(descriptor.tile().bk).max(1)
}

/// The duration of a tile's fix-up, in steps.
const FIXUP: u64 = 5;

/// The device counts `step * blocks` in 32 bits.
const MAX_STEPS: u64 = 1 << 31;

/// The largest stride in a batch, in elements: a tensor map's strides stay below 2^40 bytes.
const MAX_STRIDE: usize = (1 << 38) - 1;

/// The number of products of a batch that share a launch.
///
/// All products share one. If their tiles are too many to count, or their strides too large for a
/// tensor map, each has its own.
pub(super) fn products_per_launch(descriptor: &KernelDescriptor, gemm: &Gemm) -> u32 {
    // Each of the three fits 31 bits: `Gemm::validate` accepted them.
    let most_tiles = u128::from(MAX_PANEL[0] * MAX_PANEL[1]);
    let is_counted = u128::from(tiles(gemm, descriptor.tile())) * gemm.batch as u128 <= most_tiles;
    let has_maps = gemm.stride_a <= MAX_STRIDE && gemm.stride_b <= MAX_STRIDE;
    if is_counted && has_maps { gemm.batch.max(1) as u32 } else { 1 }
}

/// The launches of persistent blocks for `products` products, and the largest launch's workspace.
pub(super) fn launches(
    descriptor: &KernelDescriptor,
    gemm: &Gemm,
    products: u32,
    limits: &Limits,
) -> (Vec<Launch>, Workspace) {
    // `Gemm::validate` accepted k.
    let steps = (gemm.depth() as u32).div_ceil(descriptor.tile().bk);
    let most_blocks = limits.multiprocessors.min(limits.grid[0]);
    let panel = [0, 1].map(|axis| MAX_PANEL[axis].min(limits.grid[axis]));
    let mut launches = panels(descriptor, gemm, panel);
    let mut workspace = Workspace::default();
    for launch in &mut launches {
        let tiles = launch.grid[0] * launch.grid[1] * products;
        let Decomposition { blocks, stream_k_tiles } =
            Decomposition::new(tiles, steps, most_blocks);
        launch.grid = [blocks, 1];
        launch.stream_k_tiles = stream_k_tiles;
        launch.accumulation_steps = accumulation_steps(descriptor, gemm, tiles, most_blocks);
        if stream_k_tiles > 0 || steps > launch.accumulation_steps {
            let partials =
                3 * u128::from(blocks) * u128::from(descriptor.tile().bm * descriptor.tile().bn);
            workspace.partials = workspace.partials.max(partials);
            workspace.counters = workspace.counters.max(stream_k_tiles.into());
        }
    }
    (launches, workspace)
}

/// The stream-K decomposition of a panel: the division of its tiles among blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decomposition {
    /// Blocks of the grid.
    pub blocks: u32,
    /// The number of leading tiles whose steps along K all blocks share.
    pub stream_k_tiles: u32,
}

impl Decomposition {
    /// Decomposes tiles of `steps` steps, with a block per multiprocessor.
    pub fn new(tiles: u32, steps: u32, multiprocessors: u32) -> Self {
        let multiprocessors = multiprocessors.max(1);
        let whole = Self { blocks: multiprocessors.min(tiles), stream_k_tiles: 0 };
        if tiles == 0 || steps == 0 || tiles.is_multiple_of(multiprocessors) {
            return whole;
        }
        let (blocks, stream_k_tiles) = if tiles < multiprocessors {
            // No share is empty.
            let most = u64::from(tiles) * u64::from(steps).min(MAX_BLOCKS_PER_TILE);
            (u64::from(multiprocessors).min(most), u64::from(tiles))
        } else {
            // The tiles of the tail wave, and one more per block, so that shares are long.
            let uneven = u64::from(tiles % multiprocessors);
            (u64::from(multiprocessors), u64::from(multiprocessors) + uneven)
        };
        // The first product is below 2^64, as `stream_k_tiles` is at most `tiles`.
        let shared = match (stream_k_tiles * u64::from(steps)).checked_mul(blocks) {
            Some(reach) if reach < MAX_STEPS && blocks != stream_k_tiles => {
                Self { blocks: blocks as u32, stream_k_tiles: stream_k_tiles as u32 }
            }
            _ => return whole,
        };
        let longest = |decomposition: Self| decomposition.longest(tiles, steps);
        if longest(shared) + FIXUP < longest(whole) { shared } else { whole }
    }

    /// The steps of the block that has the most.
    pub fn longest(self, tiles: u32, steps: u32) -> u64 {
        let Self { blocks, stream_k_tiles } = self;
        let blocks = u64::from(blocks.max(1));
        let shared = (u64::from(stream_k_tiles) * u64::from(steps)).div_ceil(blocks);
        shared + u64::from(tiles - stream_k_tiles).div_ceil(blocks) * u64::from(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Configuration, LaunchPlan};
    use crate::problem::MAX_DIMENSION;
    use kernels_gpu::LADDER;
    use kernels_gpu::abi::KernelAbi;

    /// The device's arithmetic in 32 bits; panics on overflow.
    fn start(block: u32, all: u32, blocks: u32) -> u32 {
        block.checked_mul(all).unwrap() / blocks
    }

    fn owner(step: u32, all: u32, blocks: u32) -> u32 {
        ((step + 1).checked_mul(blocks).unwrap() - 1) / all
    }

    /// Simulates the work of every block.
    fn walk(tiles: u32, steps: u32, multiprocessors: u32) {
        let Decomposition { blocks, stream_k_tiles } =
            Decomposition::new(tiles, steps, multiprocessors);
        let name =
            format!("{tiles} tiles of {steps} on {multiprocessors}: {blocks}, {stream_k_tiles}");
        assert!((1..=multiprocessors.max(1)).contains(&blocks), "{name}");
        assert!(stream_k_tiles <= tiles, "{name}");
        // The remaining tiles fill whole waves, unless nothing is shared.
        assert!(
            stream_k_tiles == 0 || (tiles - stream_k_tiles).is_multiple_of(blocks),
            "{name}: the rest is uneven"
        );
        if stream_k_tiles == 0 {
            return;
        }
        let all = stream_k_tiles.checked_mul(steps).unwrap();
        assert_eq!(start(0, all, blocks), 0);
        assert_eq!(start(blocks, all, blocks), all);
        for block in 0..blocks {
            let (mut at, end) = (start(block, all, blocks), start(block + 1, all, blocks));
            assert!(at < end, "{name}: block {block} has an empty share");
            assert_eq!(owner(at, all, blocks), block, "{name}");
            assert_eq!(owner(end - 1, all, blocks), block, "{name}");
            // One place for the partial sums of a tile's end, and one for a tile's beginning.
            let mut pieces = [0; 2];
            while at < end {
                let first = at % steps;
                let count = (steps - first).min(end - at);
                if count < steps {
                    pieces[usize::from(first == 0)] += 1;
                }
                at += count;
            }
            assert!(pieces.iter().all(|&count| count <= 1), "{name}: block {block}, {pieces:?}");
        }
    }

    #[test]
    fn no_share_is_empty_and_nothing_overflows() {
        for multiprocessors in [0, 1, 2, 3, 7, 108, 132] {
            for tiles in (1..=300).chain([511, 512, 1000, 4095, 65537, 1 << 30]) {
                for steps in [0, 1, 2, 3, 7, 8, 9, 63, 256, 4096, 61_000, 1 << 20, 1 << 27] {
                    walk(tiles, steps, multiprocessors);
                }
            }
        }
        let extreme = Decomposition::new(u32::MAX, u32::MAX, u32::MAX - 1);
        assert_eq!(extreme, Decomposition { blocks: u32::MAX - 1, stream_k_tiles: 0 });
        assert_eq!(Decomposition::new(0, 5, 132), Decomposition { blocks: 0, stream_k_tiles: 0 });
    }

    #[test]
    fn tiles_are_shared_where_they_do_not_come_out_even() {
        let shares = |tiles, steps| {
            let Decomposition { blocks, stream_k_tiles } = Decomposition::new(tiles, steps, 132);
            (blocks, stream_k_tiles)
        };
        // Nothing to share.
        assert_eq!(shares(132, 256), (132, 0));
        assert_eq!(shares(528, 256), (132, 0));
        assert_eq!(shares(5, 0), (5, 0));
        // 512 tiles are three full waves and 116 tiles; a full wave is also shared.
        assert_eq!(shares(512, 256), (132, 248));
        // Fewer tiles than multiprocessors: up to eight blocks per tile, and at most one per step.
        assert_eq!(shares(1, 256), (8, 1));
        assert_eq!(shares(1, 7), (7, 1));
        assert_eq!(shares(100, 256), (132, 100));
        // The fix-up would cost as much as it saves.
        assert_eq!(shares(1, 6), (1, 0));
        assert_eq!(shares(128, 128), (128, 0));
        assert_eq!(shares(256, 32), (132, 0));
        // Too many steps to count in 32 bits.
        assert_eq!(shares(512, 1 << 20), (132, 0));
        assert_eq!(shares(1, 1 << 27), (8, 1));
        assert_eq!(shares(1, 1 << 28), (1, 0));
        // One step per tile.
        assert_eq!(shares(100, 1), (100, 0));
    }

    #[test]
    fn accumulation_lengths_are_short_where_cublas_splits() {
        let descriptor =
            LADDER.iter().find(|descriptor| descriptor.abi() == KernelAbi::StreamK).unwrap();
        let length = |m, n, k| {
            let plan = LaunchPlan::new(
                &Configuration::new(descriptor),
                Gemm::new(m, n, k),
                &Limits::H200,
                "a device",
            )
            .unwrap();
            plan.launches()[0].accumulation_steps * descriptor.tile().bk
        };
        assert_eq!(length(2048, 2048, 2048), 2048);
        assert_eq!(length(4096, 4096, 4096), 2048);
        assert_eq!(length(8192, 8192, 8192), 4096);
        // 288 tiles are two waves and a fifth; 128 are nearly one.
        assert_eq!(length(3072, 3072, 3072), 512);
        assert_eq!(length(2048, 2048, 16384), 2048);
        // Rounded to whole steps.
        assert_eq!(length(4097, 4097, 4097), 592);
        assert_eq!(length(2000, 2000, 500), 512);
        assert_eq!(length(5, 5, 0), descriptor.tile().bk);
    }

    #[test]
    fn the_workspace_is_three_tiles_per_block() {
        let descriptor =
            LADDER.iter().find(|descriptor| descriptor.abi() == KernelAbi::StreamK).unwrap();
        let [bm, bn] = [descriptor.tile().bm as usize, descriptor.tile().bn as usize];
        let plan = |gemm| {
            LaunchPlan::new(&Configuration::new(descriptor), gemm, &Limits::H200, "a device")
                .unwrap()
        };
        let streams = plan(Gemm::new(3 * bm, 5 * bn, 4096));
        let tile = u128::from(descriptor.tile().bm * descriptor.tile().bn);
        assert_eq!(streams.workspace(), Workspace { partials: 3 * 120 * tile, counters: 15 });
        let [launch] = streams.launches() else { panic!("{:?}", streams.launches()) };
        assert_eq!((launch.grid, launch.stream_k_tiles), ([120, 1], 15));
        for gemm in [Gemm::new(12 * bm, 11 * bn, 2048), Gemm::new(bm, bn, 0)] {
            assert_eq!(plan(gemm).workspace(), Workspace::default());
        }
        // A small grid has panels, and fewer blocks.
        let limits = Limits { grid: [3, 2, 1], ..Limits::H200 };
        let plan = LaunchPlan::new(
            &Configuration::new(descriptor),
            Gemm::new(4 * bm, bn, 400),
            &limits,
            "a device",
        )
        .unwrap();
        let [one, other] = plan.launches() else { panic!("{:?}", plan.launches()) };
        assert!([one, other].iter().all(|panel| (panel.grid, panel.stream_k_tiles) == ([3, 1], 2)));
        assert_eq!(plan.workspace(), Workspace { partials: 3 * 3 * tile, counters: 2 });
    }

    /// One workspace serves one launch after the other.
    #[test]
    fn the_workspace_is_enough_for_each_panel() {
        let descriptor =
            LADDER.iter().find(|descriptor| descriptor.abi() == KernelAbi::StreamK).unwrap();
        let [bm, bn, bk] = [descriptor.tile().bm, descriptor.tile().bn, descriptor.tile().bk]
            .map(|size| size as usize);
        // Nine tiles for eight blocks, and one tile of seven steps.
        let limits = Limits { grid: [8, 9, 1], ..Limits::H200 };
        let gemm = Gemm::new(10 * bm, bn, 7 * bk);
        let (launches, workspace) = launches(descriptor, &gemm, 1, &limits);
        let [first, last] = &launches[..] else { panic!("{launches:?}") };
        assert_eq!([first, last].map(|panel| panel.grid[0]), [8, 7]);
        assert_eq!([first, last].map(|panel| panel.stream_k_tiles), [9, 1]);
        for launch in [first, last] {
            let partials = 3 * u128::from(launch.grid[0]) * (bm * bn) as u128;
            assert!(workspace.partials >= partials, "{workspace:?}: {launch:?}");
            assert!(
                workspace.counters >= launch.stream_k_tiles.into(),
                "{workspace:?}: {launch:?}"
            );
        }
    }

    #[test]
    fn products_share_launches_if_tiles_are_counted_and_tensor_maps_reach() {
        let descriptor =
            LADDER.iter().find(|descriptor| descriptor.abi() == KernelAbi::StreamK).unwrap();
        let [bm, bn] = [descriptor.tile().bm as usize, descriptor.tile().bn as usize];
        let share = |gemm| products_per_launch(descriptor, &gemm);
        // Strides below 2^40 bytes.
        let short = 4 * bm;
        let long = (1 << 40) / 4;
        for (strides, products) in
            [([short, short], 2), ([long - 1, long - 1], 2), ([long, short], 1), ([short, long], 1)]
        {
            let [stride_a, stride_b] = strides;
            let gemm = Gemm { batch: 2, stride_a, stride_b, ..Gemm::new(bm, bn, 4) };
            assert_eq!(share(gemm), products, "{strides:?}");
        }
        // As many tiles as the largest panel, and more.
        let half = Gemm::new(bm << 15, bn << 14, 4);
        assert_eq!(share(Gemm { batch: 2, ..half }), 2);
        assert_eq!(share(Gemm { batch: 3, ..half }), 1);
    }

    #[test]
    fn the_largest_c_is_cut_into_panels() {
        let descriptor =
            LADDER.iter().find(|descriptor| descriptor.abi() == KernelAbi::StreamK).unwrap();
        let gemm = Gemm::new(MAX_DIMENSION, MAX_DIMENSION, MAX_DIMENSION);
        let plan =
            LaunchPlan::new(&Configuration::new(descriptor), gemm, &Limits::H200, "a device")
                .unwrap();
        assert!(plan.launches().len() > 1);
        for launch in plan.launches() {
            assert_eq!((launch.grid, launch.stream_k_tiles), ([132, 1], 0));
            let [m, n] = [launch.m, launch.n].map(u64::from);
            let tiles =
                m.div_ceil(descriptor.tile().bm.into()) * n.div_ceil(descriptor.tile().bn.into());
            assert!(tiles + 132 < 1 << 32);
        }
    }
}
