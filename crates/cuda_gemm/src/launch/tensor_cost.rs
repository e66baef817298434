//! What a product by tensor cores takes, and the kernel and the division of it that take the least.

use kernels_gpu::tensor_core::BK;
use kernels_gpu::{TensorCoreDescriptor, wgmma_persistent, wgmma_split};

use super::tensor_division::Division;
use crate::gemm::Gemm;

/// What a product takes with a kernel on an H200, in microseconds.
struct Cost {
    kernel: &'static TensorCoreDescriptor,
    /// The launch, the first tiles of A and B, and the last of C.
    launch: f64,
    /// A step along K of a round, in which each multiprocessor has a tile of C.
    step: f64,
    /// Each split of K but the first.
    split: f64,
}

impl Cost {
    const fn new(kernel: &'static TensorCoreDescriptor, launch: f64, step: f64) -> Self {
        Self { kernel, launch, step, split: 0.0 }
    }

    const fn splitting(self, split: f64) -> Self {
        Self { split, ..self }
    }

    fn of(&self, gemm: &Gemm, division: Division, multiprocessors: u32) -> f64 {
        let tiles = division.tiles.saturating_mul(gemm.batch as u64);
        let clusters = division.clusters.map_or(tiles, u64::from);
        let blocks = clusters.saturating_mul(division.splits.into());
        let rounds = blocks.div_ceil(u64::from(multiprocessors.max(1)));
        let steps = gemm.depth().div_ceil(BK as usize) as u64;
        let steps = match division.clusters {
            None => steps.div_ceil(division.splits.into()),
            Some(_) => tiles.saturating_mul(steps).div_ceil(blocks.max(1)),
        };
        let splits = f64::from(division.splits - 1) * self.split;
        // Each block of the last cluster loads its share of all parts of a tile.
        let fixup = division.clusters.map_or(0.0, |clusters| {
            let parts = f64::from(clusters) / (tiles.max(1) as f64);
            let share = f64::from(4 * self.kernel.rows() * self.kernel.cols() / division.splits);
            FIXUP + parts * share / LOADED
        });
        self.launch + rounds as f64 * (steps as f64 * self.step) + splits + fixup
    }

    /// The division that takes the least time, and that time.
    fn least(&self, gemm: &Gemm, multiprocessors: u32) -> Option<(f64, Division)> {
        let all = Division::all(gemm, self.kernel, multiprocessors);
        let times = all.map(|division| (self.of(gemm, division, multiprocessors), division));
        times.min_by(|(a, _), (b, _)| a.total_cmp(b))
    }
}

/// What it takes clusters to leave their parts of a tile in device memory and to count them, in microseconds, and how many
/// bytes a block loads in one. Estimated, not measured.
const FIXUP: f64 = 3.0;
const LOADED: f64 = 1e5;

/// Fitted to `runs/2026-11-22-h200-skinny/second.txt`, so that what is chosen is near the fastest; but the steps of the
/// tiles of `wgmma_persistent`, other than the smallest one's, to `runs/2026-11-22-h200-tensor-core`.
const COSTS: [Cost; 10] = [
    Cost::new(&wgmma_persistent::DESCRIPTOR, 4.5, 0.680),
    Cost::new(&wgmma_persistent::TILE_128X192, 2.8, 0.514),
    Cost::new(&wgmma_persistent::TILE_128X128, 3.1, 0.366),
    Cost::new(&wgmma_persistent::TILE_64X128, 2.8, 0.203),
    Cost::new(&wgmma_persistent::TILE_64X64, 2.6, 0.162),
    Cost::new(&wgmma_split::TILE_64X16, 3.4, 0.280).splitting(0.3),
    Cost::new(&wgmma_split::TILE_128X32, 2.5, 0.309).splitting(2.1),
    Cost::new(&wgmma_split::TILE_128X64, 5.0, 0.590).splitting(0.5),
    Cost::new(&wgmma_split::TILE_128X128, 5.5, 0.600).splitting(0.8),
    Cost::new(&wgmma_split::TILE_256X128, 8.0, 1.200).splitting(1.0),
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

/// All kernels that are chosen from, fastest first: name, splits and microseconds.
pub(super) fn ranking(gemm: &Gemm, multiprocessors: u32) -> Vec<(&'static str, u32, f64)> {
    let times = COSTS.iter().filter_map(|cost| {
        let (time, division) = cost.least(gemm, multiprocessors)?;
        Some((cost.kernel.name(), division.splits, time))
    });
    let mut times: Vec<_> = times.collect();
    times.sort_by(|(.., a), (.., b)| a.total_cmp(b));
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
    let all = || Division::all(gemm, kernel, multiprocessors);
    let most = all().map(|division| division.splits).max().unwrap_or(1);
    let splits = splits.map(|splits| splits.clamp(1, most));
    let allowed = all().filter(|division| splits.is_none_or(|splits| splits == division.splits));
    let asked = allowed.filter_map(|division| match clusters {
        None => (splits.is_none() || division.clusters.is_none()).then_some(division),
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
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs/2026-11-22-h200-skinny");
        let text = fs::read_to_string(run.join("second.txt")).unwrap();
        let mut shapes: HashMap<&str, HashMap<&str, f64>> = HashMap::new();
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let time = words[2].parse().unwrap();
            let name = words[1].trim_start_matches("auto=");
            shapes.entry(words[0]).or_default().insert(name, time);
        }
        let mut logs = Vec::new();
        for (&shape, times) in &shapes {
            let (sizes, layout) = shape.split_once(':').unwrap_or((shape, "NN"));
            let sizes: Vec<usize> = sizes.split('x').map(|size| size.parse().unwrap()).collect();
            let [m, n, k] = [0, 1, 2].map(|i| sizes[i % sizes.len()]);
            let gemm = Gemm::new(m, n, k).transposed(&layout[..1] == "T", &layout[1..] == "T");
            let kernel = best(&gemm, 132);
            let chosen =
                format!("{}/{}", kernel.name(), division(&gemm, kernel, 132, [None; 2]).splits);
            let Some(time) = times.get(chosen.as_str()) else { panic!("{shape}: {chosen}") };
            let kernels = times.iter().filter(|(name, _)| name.starts_with("wgmma"));
            let least = kernels.map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
            assert!(*time < 1.3 * least, "{shape}: {chosen} takes {time}, and another {least}");
            logs.push((time / least).ln());
        }
        let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
        assert!(logs.len() > 15 && mean < 1.05, "{mean}");
        assert_eq!(best(&Gemm::new(1, 0, 1), 0).name(), "wgmma_split_128x32");
    }
}
