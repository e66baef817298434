//! Launches of blocks that stay (stream-K): how many there are, and which tiles they share.
//!
//! `kernels-gpu/src/stream_k.rs` is the device's side of it, and says why.

use kernels_gpu::KernelDescriptor;

use super::{Gemm, Launch, Limits, Workspace, panels};

/// The most tiles of a panel, along x and y: so that their numbers fit 32 bits.
const PANEL: [u32; 2] = [1 << 15, 1 << 15];

/// The most blocks that share a tile, if there are fewer tiles than multiprocessors: each one
/// more costs a tile that is stored and loaded again.
const MOST_SHARES: u64 = 8;

/// The most of K that is summed up in one chain, where C is made of whole tiles that come out even
/// on the device, and where it is not. The error grows with the root of a chain's length: that of
/// 4096 is three times that of 416. What a chain leaves is stored and loaded again, which takes 4 us.
/// cuBLAS sums up all of K in one chain where tiles come out even, and in up to four where they do
/// not, of 500 or more; nobody should get larger errors from us.
const EVEN_CHAIN: u32 = 2048;
const UNEVEN_CHAIN: u32 = 600;
/// Up to here, nobody splits.
const SHORT: u32 = 640;
/// Whole tiles of cuBLAS; and the least of the last round, in tenths, with all before it full.
const EVEN: usize = 256;
const EVEN_TENTHS: u64 = 9;

/// Steps of K in one chain, for so many tiles.
fn chain(spec: &KernelDescriptor, gemm: &Gemm, tiles: u32, multiprocessors: u32) -> u32 {
    // `Gemm::validate` accepted k.
    let depth = gemm.depth() as u32;
    let (tiles, all) = (u64::from(tiles), u64::from(multiprocessors.max(1)));
    let is_even = gemm.m.is_multiple_of(EVEN)
        && gemm.n.is_multiple_of(EVEN)
        && 10 * tiles >= EVEN_TENTHS * tiles.next_multiple_of(all);
    let most = match is_even {
        _ if depth <= SHORT => SHORT,
        false => UNEVEN_CHAIN,
        // Two chains for each tile are enough.
        true if tiles >= all => EVEN_CHAIN.max(depth.div_ceil(2)),
        true => EVEN_CHAIN,
    };
    // Of equal lengths.
    let chains = depth.div_ceil(most).max(1);
    depth.div_ceil(chains).div_ceil(spec.tile().bk).max(1)
}

/// Steps' time that it takes the blocks of a tile to meet.
const MEETING: u64 = 5;

/// The device counts `step * blocks` in 32 bits.
const MOST_STEPS: u64 = 1 << 31;

/// The launches of a kernel whose blocks stay, and what the largest needs.
pub(super) fn launches(
    spec: &KernelDescriptor,
    gemm: &Gemm,
    limits: &Limits,
) -> (Vec<Launch>, Workspace) {
    // `Gemm::validate` accepted k.
    let steps = (gemm.depth() as u32).div_ceil(spec.tile().bk);
    let most_blocks = limits.multiprocessors.min(limits.grid[0]);
    let panel = [0, 1].map(|axis| PANEL[axis].min(limits.grid[axis]));
    let mut launches = panels(spec, gemm, panel);
    let mut workspace = Workspace::default();
    for launch in &mut launches {
        let [width, height] = launch.grid;
        let Shares { blocks, streamed } = Shares::new(width * height, steps, most_blocks);
        let chain = chain(spec, gemm, width * height, most_blocks);
        (launch.grid, launch.streamed, launch.chain) = ([blocks, 1], streamed, chain);
        if streamed > 0 || steps > chain {
            let partials = 3 * u128::from(blocks) * u128::from(spec.tile().bm * spec.tile().bn);
            workspace.partials = workspace.partials.max(partials);
            workspace.counters = workspace.counters.max(streamed.into());
        }
    }
    (launches, workspace)
}

/// How the tiles of a panel are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Blocks of the grid.
    pub blocks: u32,
    /// Tiles, the first ones, whose steps along K all blocks share.
    pub streamed: u32,
}

impl Shares {
    /// For tiles of so many steps, with a block per multiprocessor.
    pub fn new(tiles: u32, steps: u32, multiprocessors: u32) -> Self {
        let multiprocessors = multiprocessors.max(1);
        let whole = Self { blocks: multiprocessors.min(tiles), streamed: 0 };
        if tiles == 0 || steps == 0 || tiles.is_multiple_of(multiprocessors) {
            return whole;
        }
        let (blocks, streamed) = if tiles < multiprocessors {
            // No share is empty.
            let most = u64::from(tiles) * u64::from(steps).min(MOST_SHARES);
            (u64::from(multiprocessors).min(most), u64::from(tiles))
        } else {
            // What does not come out even, and a tile for each, so that shares are long.
            let uneven = u64::from(tiles % multiprocessors);
            (u64::from(multiprocessors), u64::from(multiprocessors) + uneven)
        };
        // The first product is less than 2^64, as `streamed` is at most `tiles`.
        let shared = match (streamed * u64::from(steps)).checked_mul(blocks) {
            Some(reach) if reach < MOST_STEPS && blocks != streamed => {
                Self { blocks: blocks as u32, streamed: streamed as u32 }
            }
            _ => return whole,
        };
        let longest = |shares: Self| shares.longest(tiles, steps);
        if longest(shared) + MEETING < longest(whole) { shared } else { whole }
    }

    /// Steps of the block that has the most.
    pub fn longest(self, tiles: u32, steps: u32) -> u64 {
        let Self { blocks, streamed } = self;
        let blocks = u64::from(blocks.max(1));
        let shared = (u64::from(streamed) * u64::from(steps)).div_ceil(blocks);
        shared + u64::from(tiles - streamed).div_ceil(blocks) * u64::from(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::{MAX_DIMENSION, Plan};
    use kernels_gpu::{KernelAbi, LADDER};

    const LIMITS: Limits = Limits {
        grid: [i32::MAX as u32, 65535],
        shared_default: 49152,
        shared_optin: 232448,
        multiprocessors: 132,
    };

    /// The device's own arithmetic, in 32 bits: panics where that overflows.
    fn start(block: u32, all: u32, blocks: u32) -> u32 {
        block.checked_mul(all).unwrap() / blocks
    }

    fn owner(step: u32, all: u32, blocks: u32) -> u32 {
        ((step + 1).checked_mul(blocks).unwrap() - 1) / all
    }

    /// Walks through what every block does.
    fn walk(tiles: u32, steps: u32, multiprocessors: u32) {
        let Shares { blocks, streamed } = Shares::new(tiles, steps, multiprocessors);
        let name = format!("{tiles} tiles of {steps} on {multiprocessors}: {blocks}, {streamed}");
        assert!((1..=multiprocessors.max(1)).contains(&blocks), "{name}");
        assert!(streamed <= tiles, "{name}");
        // Those that are left come out even, or there is nothing else to be done.
        assert!(
            streamed == 0 || (tiles - streamed).is_multiple_of(blocks),
            "{name}: the rest is uneven"
        );
        if streamed == 0 {
            return;
        }
        let all = streamed.checked_mul(steps).unwrap();
        assert_eq!(start(0, all, blocks), 0);
        assert_eq!(start(blocks, all, blocks), all);
        for block in 0..blocks {
            let (mut at, end) = (start(block, all, blocks), start(block + 1, all, blocks));
            assert!(at < end, "{name}: block {block} has an empty share");
            assert_eq!(owner(at, all, blocks), block, "{name}");
            assert_eq!(owner(end - 1, all, blocks), block, "{name}");
            // A slot for the end of a tile, and one for a beginning.
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
        let extreme = Shares::new(u32::MAX, u32::MAX, u32::MAX - 1);
        assert_eq!(extreme, Shares { blocks: u32::MAX - 1, streamed: 0 });
        assert_eq!(Shares::new(0, 5, 132), Shares { blocks: 0, streamed: 0 });
    }

    #[test]
    fn tiles_are_shared_where_they_do_not_come_out_even() {
        let shares = |tiles, steps| {
            let Shares { blocks, streamed } = Shares::new(tiles, steps, 132);
            (blocks, streamed)
        };
        // Nothing to share.
        assert_eq!(shares(132, 256), (132, 0));
        assert_eq!(shares(528, 256), (132, 0));
        assert_eq!(shares(5, 0), (5, 0));
        // 512 tiles are three whole rounds and 116; a round of whole ones is streamed too.
        assert_eq!(shares(512, 256), (132, 248));
        // Fewer tiles than multiprocessors: up to eight blocks for each, and no more than steps.
        assert_eq!(shares(1, 256), (8, 1));
        assert_eq!(shares(1, 7), (7, 1));
        assert_eq!(shares(100, 256), (132, 100));
        // It takes as long to meet.
        assert_eq!(shares(1, 6), (1, 0));
        assert_eq!(shares(128, 128), (128, 0));
        assert_eq!(shares(256, 32), (132, 0));
        // Too long to count.
        assert_eq!(shares(512, 1 << 20), (132, 0));
        assert_eq!(shares(1, 1 << 27), (8, 1));
        assert_eq!(shares(1, 1 << 28), (1, 0));
        // A tile for each.
        assert_eq!(shares(100, 1), (100, 0));
    }

    #[test]
    fn chains_are_short_where_cublas_splits() {
        let spec = LADDER.iter().find(|spec| spec.abi() == KernelAbi::StreamK).unwrap();
        let chain = |m, n, k| {
            let plan = Plan::new(spec, Gemm::new(m, n, k), &LIMITS, "a device").unwrap();
            plan.launches()[0].chain * spec.tile().bk
        };
        assert_eq!(chain(2048, 2048, 2048), 2048);
        assert_eq!(chain(4096, 4096, 4096), 2048);
        assert_eq!(chain(8192, 8192, 8192), 4096);
        // 288 tiles are two rounds and a fifth; 128 are less than one, but nearly.
        assert_eq!(chain(3072, 3072, 3072), 512);
        assert_eq!(chain(2048, 2048, 16384), 2048);
        // Whole steps.
        assert_eq!(chain(4097, 4097, 4097), 592);
        assert_eq!(chain(2000, 2000, 500), 512);
        assert_eq!(chain(5, 5, 0), spec.tile().bk);
    }

    #[test]
    fn the_workspace_is_three_tiles_per_block() {
        let spec = LADDER.iter().find(|spec| spec.abi() == KernelAbi::StreamK).unwrap();
        let [bm, bn] = [spec.tile().bm as usize, spec.tile().bn as usize];
        let plan = |gemm| Plan::new(spec, gemm, &LIMITS, "a device").unwrap();
        let streams = plan(Gemm::new(3 * bm, 5 * bn, 4096));
        let tile = u128::from(spec.tile().bm * spec.tile().bn);
        assert_eq!(streams.workspace(), Workspace { partials: 3 * 120 * tile, counters: 15 });
        let [launch] = streams.launches() else { panic!("{:?}", streams.launches()) };
        assert_eq!((launch.grid, launch.streamed), ([120, 1], 15));
        for gemm in [Gemm::new(12 * bm, 11 * bn, 2048), Gemm::new(bm, bn, 0)] {
            assert_eq!(plan(gemm).workspace(), Workspace::default());
        }
        // In a small grid there are panels, and fewer blocks.
        let limits = Limits { grid: [3, 2], ..LIMITS };
        let plan = Plan::new(spec, Gemm::new(4 * bm, bn, 400), &limits, "a device").unwrap();
        let [one, other] = plan.launches() else { panic!("{:?}", plan.launches()) };
        assert!([one, other].iter().all(|panel| (panel.grid, panel.streamed) == ([3, 1], 2)));
        assert_eq!(plan.workspace(), Workspace { partials: 3 * 3 * tile, counters: 2 });
    }

    #[test]
    fn the_largest_c_is_cut_into_panels() {
        let spec = LADDER.iter().find(|spec| spec.abi() == KernelAbi::StreamK).unwrap();
        let gemm = Gemm::new(MAX_DIMENSION, MAX_DIMENSION, MAX_DIMENSION);
        let plan = Plan::new(spec, gemm, &LIMITS, "a device").unwrap();
        assert!(plan.launches().len() > 1);
        for launch in plan.launches() {
            assert_eq!((launch.grid, launch.streamed), ([132, 1], 0));
            let [m, n] = [launch.m, launch.n].map(u64::from);
            let tiles = m.div_ceil(spec.tile().bm.into()) * n.div_ceil(spec.tile().bn.into());
            assert!(tiles + 132 < 1 << 32);
        }
    }
}
