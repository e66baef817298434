//! What a product by tensor cores takes, and the kernel and the division of it that take the least.

use kernels_gpu::tensor_core::BK;
use kernels_gpu::{TensorCoreDescriptor, wgmma_persistent, wgmma_split};

use super::tensor_division::Division;
use crate::gemm::Gemm;

/// A kernel, how it divides a product, and what that takes.
#[derive(Clone, Copy)]
pub(crate) struct TensorCoreTime {
    pub kernel: &'static str,
    pub splits: u32,
    pub clusters: Option<u32>,
    /// Microseconds.
    pub us: f64,
}

/// What a product takes with a kernel on an H200, in microseconds.
///
/// A block has a chain of steps along K and of tiles of C, and a multiprocessor has the work of all its blocks. On top of the launch
/// comes the 8-norm of these two and of the time of device memory: a little more than the longest, where two are alike.
struct Cost {
    kernel: &'static TensorCoreDescriptor,
    /// The launch, the first tiles of A and B, and the last of C.
    launch: f64,
    /// A step along K, and a tile of C, of a block.
    chain: [f64; 2],
    /// By what factor more a step takes for the parts of a tile's rows and of its columns that are outside of C.
    outside: f64,
    /// What a tile takes on top where a warp cannot store whole sectors of rows.
    edge: f64,
    split: SplitCost,
}

/// What it takes to divide K.
struct SplitCost {
    /// A step along K, and a tile of C, of the multiprocessor.
    work: [f64; 2],
    /// Each block of a cluster but the first.
    block: f64,
    /// Clusters that share a tile, and each 10^5 bytes of their parts of it that a block loads.
    fixup: [f64; 2],
    /// The factor on a tile's time in stream-K.
    sequence: f64,
}

/// Of a kernel that does not divide K.
const WHOLE: SplitCost = SplitCost { work: [0.0; 2], block: 0.0, fixup: [0.0; 2], sequence: 1.0 };

/// Bytes that device memory of an H200 delivers in a microsecond.
const BANDWIDTH: f64 = 4.4e6;

impl Cost {
    fn of(&self, gemm: &Gemm, division: Division, multiprocessors: u32) -> f64 {
        let Self { launch, chain, outside, edge, ref split, .. } = *self;
        let multiprocessors = u64::from(multiprocessors.max(1));
        let tiles = division.tiles.saturating_mul(gemm.batch as u64).max(1);
        let depth = gemm.depth().div_ceil(BK as usize) as u64;
        let splits = u64::from(division.splits);
        // Steps and tiles of a block, and how many blocks are one after the other, and on a multiprocessor.
        let (steps, of_block, rounds, blocks) = match division.clusters.map(u64::from) {
            None => {
                let blocks = tiles.saturating_mul(splits);
                let slots = multiprocessors * u64::from(self.kernel.blocks_per_multiprocessor());
                let steps = depth.div_ceil(splits) as f64;
                (steps, 1, blocks.div_ceil(slots), blocks)
            }
            Some(clusters) => {
                let blocks = clusters * splits;
                let steps = (tiles as f64) * (depth as f64) / (blocks.max(1) as f64);
                let begun = u64::from(tiles > 1 && !tiles.is_multiple_of(clusters));
                (steps, tiles.div_ceil(clusters) + begun, 1, blocks)
            }
        };
        let shared =
            division.clusters.filter(|clusters| !tiles.is_multiple_of(u64::from(*clusters)));
        let fixup = shared.map_or(0.0, |clusters| {
            let parts = u64::from(clusters).div_ceil(tiles) as f64;
            let share = f64::from(4 * self.kernel.rows() * self.kernel.cols()) / (splits as f64);
            split.fixup[0] + split.fixup[1] * parts * share / 1e5
        });
        let [rows, cols] = division.ordered([gemm.m, gemm.n]);
        let is_outside =
            |size: usize, tile: u32| 1.0 - (size.min(tile as usize) as f64) / f64::from(tile);
        // Of a B that lies along K, `wgmma_split` does not copy what is outside.
        let is_cut = self.kernel.splits() && division.transposes([gemm.trans_a, gemm.trans_b])[1];
        let of_cols = if is_cut { 0.0 } else { is_outside(cols, self.kernel.cols()) };
        let is_outside = is_outside(rows, self.kernel.rows()) + of_cols;
        let has_edge = !gemm.n.is_multiple_of(4) || gemm.m < 16;
        let edge = if has_edge { edge } else { 0.0 };
        let sequence = if division.clusters.is_some() { split.sequence } else { 1.0 };
        let time = |[of_step, of_tile]: [f64; 2], times: u64, edge: f64| {
            let of_step = of_step * (1.0 + outside * is_outside);
            times as f64 * (steps * of_step + of_block as f64 * (of_tile * sequence + edge))
        };
        let chain = time(chain, rounds, edge);
        let work = time(split.work, blocks.div_ceil(multiprocessors), 0.0);
        let [m, n, k, batch] = [gemm.m, gemm.n, gemm.depth(), gemm.batch].map(|size| size as f64);
        let memory = 2.0 * batch * (m * k + k * n + m * n) / BANDWIDTH;
        let norm = [chain, work, memory].map(|time| time.powi(8)).iter().sum::<f64>().powf(0.125);
        launch + norm + (splits - 1) as f64 * split.block + fixup
    }

    /// The division that takes the least time, and that time.
    fn least(&self, gemm: &Gemm, multiprocessors: u32) -> Option<(f64, Division)> {
        let all = Division::all(gemm, self.kernel, multiprocessors);
        let times = all.map(|division| (self.of(gemm, division, multiprocessors), division));
        times.min_by(|(a, _), (b, _)| a.total_cmp(b))
    }
}

/// Fitted to `runs/2026-11-23-h200-divisions-cut` and to the squares of `runs/2026-11-22-h200-tensor-core`, so that what is chosen is near
/// the fastest. The times themselves are rough: a step is bounded from below by what tensor cores can do.
const COSTS: [Cost; 10] = [
    Cost {
        kernel: &wgmma_persistent::DESCRIPTOR,
        launch: 2.059,
        chain: [0.672, 2.1],
        outside: 0.407,
        edge: 2.783,
        split: WHOLE,
    },
    Cost {
        kernel: &wgmma_persistent::TILE_128X192,
        launch: 3.328,
        chain: [0.504, 1.746],
        outside: 0.274,
        edge: 1.588,
        split: WHOLE,
    },
    Cost {
        kernel: &wgmma_persistent::TILE_128X128,
        launch: 1.477,
        chain: [0.365, 2.176],
        outside: 0.369,
        edge: 0.003,
        split: WHOLE,
    },
    Cost {
        kernel: &wgmma_persistent::TILE_64X128,
        launch: 0.5,
        chain: [0.349, 1.136],
        outside: 0.269,
        edge: 2.939,
        split: WHOLE,
    },
    Cost {
        kernel: &wgmma_persistent::TILE_64X64,
        launch: 0.559,
        chain: [0.159, 1.087],
        outside: 1.5,
        edge: 1.756,
        split: WHOLE,
    },
    Cost {
        kernel: &wgmma_split::TILE_64X16,
        launch: 1.479,
        chain: [0.205, 1.456],
        outside: 1.5,
        edge: 0.024,
        split: SplitCost {
            work: [0.164, 0.763],
            block: 1.145,
            fixup: [4.468, 14.634],
            sequence: 0.317,
        },
    },
    Cost {
        kernel: &wgmma_split::TILE_128X32,
        launch: 0.5,
        chain: [0.309, 3.738],
        outside: 1.165,
        edge: 0.326,
        split: SplitCost {
            work: [0.25, 1.872],
            block: 2.023,
            fixup: [10.284, 0.472],
            sequence: 0.365,
        },
    },
    Cost {
        kernel: &wgmma_split::TILE_128X64,
        launch: 2.378,
        chain: [0.453, 0.344],
        outside: 1.337,
        edge: 1.201,
        split: SplitCost {
            work: [0.546, 2.53],
            block: 0.253,
            fixup: [1.707, 9.197],
            sequence: 0.27,
        },
    },
    Cost {
        kernel: &wgmma_split::TILE_128X128,
        launch: 0.5,
        chain: [0.558, 0.557],
        outside: 0.577,
        edge: 0.26,
        split: SplitCost {
            work: [0.576, 2.597],
            block: 1.394,
            fixup: [6.659, 1.334],
            sequence: 1.37,
        },
    },
    Cost {
        kernel: &wgmma_split::TILE_256X128,
        launch: 2.641,
        chain: [0.861, 0.141],
        outside: 0.06,
        edge: 3.266,
        split: SplitCost {
            work: [0.672, 5.221],
            block: 7.634,
            fixup: [0.118, 1.965],
            sequence: 1.063,
        },
    },
];

/// The kernel that should take the least time for a product.
pub(super) fn best(gemm: &Gemm, multiprocessors: u32) -> &'static TensorCoreDescriptor {
    let times = COSTS.iter().filter_map(|cost| {
        let (time, _) = cost.least(gemm, multiprocessors)?;
        Some((time, cost.kernel))
    });
    let least = times.min_by(|(a, _), (b, _)| a.total_cmp(b));
    least.map_or(&wgmma_persistent::DESCRIPTOR, |(_, kernel)| kernel)
}

/// All kernels that are chosen from, fastest first.
pub(super) fn ranking(gemm: &Gemm, multiprocessors: u32) -> Vec<TensorCoreTime> {
    let times = COSTS.iter().filter_map(|cost| {
        let (us, Division { splits, clusters, .. }) = cost.least(gemm, multiprocessors)?;
        Some(TensorCoreTime { kernel: cost.kernel.name(), splits, clusters, us })
    });
    let mut times: Vec<_> = times.collect();
    times.sort_by(|a, b| a.us.total_cmp(&b.us));
    times
}

/// How a kernel divides a product, in so many splits and among so many clusters if they are given.
pub(super) fn division(
    gemm: &Gemm,
    kernel: &TensorCoreDescriptor,
    multiprocessors: u32,
    [splits, clusters]: [Option<u32>; 2],
) -> Division {
    let cost = COSTS.iter().find(|cost| cost.kernel.name() == kernel.name());
    let time =
        |division: &Division| cost.map_or(0.0, |cost| cost.of(gemm, *division, multiprocessors));
    let all = Division::all(gemm, kernel, multiprocessors);
    let asked: Vec<_> = match splits {
        None => all.collect(),
        Some(splits) => {
            let splits = splits.clamp(1, Division::most_splits(gemm, kernel));
            vec![Division { splits, ..Division::whole(gemm, kernel) }]
        }
    };
    let asked = asked.into_iter().filter_map(|division| match clusters {
        None => Some(division),
        Some(_) if division.clusters.is_some() => None,
        Some(clusters) => Some(division.among(gemm, clusters)),
    });
    let least = asked.min_by(|a, b| time(a).total_cmp(&time(b)));
    least.unwrap_or_else(|| Division::whole(gemm, kernel))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// What is chosen, next to the fastest of a recorded run.
    #[test]
    fn the_choice_is_near_the_fastest_of_the_recorded_run() {
        let run =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs/2026-11-23-h200-divisions-cut");
        let text = fs::read_to_string(run.join("divisions.txt")).unwrap();
        let mut shapes: HashMap<&str, HashMap<&str, f64>> = HashMap::new();
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let time = words[2].parse().unwrap();
            shapes.entry(words[0]).or_default().insert(words[1], time);
        }
        let mut logs = Vec::new();
        for (&shape, times) in &shapes {
            let (sizes, layout) = shape.split_once(':').unwrap_or((shape, "NN"));
            let (batch, sizes) = sizes.split_once('*').unwrap_or(("1", sizes));
            let sizes: Vec<usize> = sizes.split('x').map(|size| size.parse().unwrap()).collect();
            let [m, n, k] = [0, 1, 2].map(|i| sizes[i % sizes.len()]);
            let gemm = Gemm::new(m, n, k).transposed(&layout[..1] == "T", &layout[1..] == "T");
            let gemm = gemm.batched(batch.parse().unwrap(), [0; 3]);
            let kernel = best(&gemm, 132);
            let Division { splits, clusters, .. } = division(&gemm, kernel, 132, [None; 2]);
            let chosen = match (kernel.splits(), clusters) {
                (false, _) => kernel.name().to_owned(),
                (true, None) => format!("{}/{splits}", kernel.name()),
                (true, Some(clusters)) => format!("{}/{splits}@{clusters}", kernel.name()),
            };
            let Some(time) = times.get(chosen.as_str()) else { panic!("{shape}: {chosen}") };
            let kernels = times.iter().filter(|(name, _)| name.starts_with("wgmma"));
            let least = kernels.map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
            assert!(*time < 1.15 * least, "{shape}: {chosen} takes {time}, and another {least}");
            logs.push((time / least).ln());
        }
        // Where tensor cores are what limits, large tiles of a persistent kernel were the fastest.
        for [m, n, k] in [[4096; 3], [8192; 3], [16384; 3], [2048, 8192, 8192], [4096, 4096, 1024]]
        {
            let chosen = best(&Gemm::new(m, n, k), 132).name();
            assert!(
                ["wgmma_persistent", "wgmma_128x192"].contains(&chosen),
                "{m}x{n}x{k}: {chosen}"
            );
        }
        let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
        assert!(logs.len() > 30 && mean < 1.02, "{mean}");
        assert_eq!(best(&Gemm::new(1, 0, 1), 0).name(), "wgmma_split_64x16");
    }
}
