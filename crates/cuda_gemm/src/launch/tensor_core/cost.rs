//! What a product by tensor cores takes, and the kernel and the division of it that take the least.

use gemm_matrix::Element;
use kernels_gpu::abi::tensor_core::{BK, TensorCoreAbi, TensorCoreDescriptor};
use kernels_gpu::families::half::{mma_outer, wgmma_split};
use kernels_gpu::ladder::tensor::sm_90a::{wgmma_persistent, wgmma_pingpong};

use super::division::{Asked, Division, most_splits};
use crate::gemm::{Epilogue, Gemm};

/// A kernel, how it divides a product, and what that takes.
#[derive(Clone, Copy)]
pub(crate) struct TensorCoreTime {
    pub kernel: &'static TensorCoreDescriptor,
    pub division: Asked,
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
    /// A step along K, and a tile of C, of a block, or of one of two warpgroups that take turns.
    chain: [f64; 2],
    /// By what factor more a step takes for the parts of a tile's rows and of its columns that are outside of C.
    outside: f64,
    /// What a tile takes on top where a warp cannot store rows by vectors.
    edge: f64,
    split: SplitCost,
}

/// What it takes to divide K.
struct SplitCost {
    /// A step along K, and a tile of C, of the multiprocessor.
    work: [f64; 2],
    /// What such a tile takes on top where C is in f32: of `mma_outer`, fitted to 65536 x 64 x 64 and 64 x 65536 x 64, which take up to 1.27 times as
    /// long by it as by others (`runs/h100/bf16`).
    floats: f64,
    /// Each block of a cluster but the first.
    block: f64,
    /// Clusters that share a tile, and each 10^5 bytes of their parts of it that a block loads.
    fixup: [f64; 2],
    /// The factor on a tile's time in stream-K.
    sequence: f64,
    /// Of a block that is alone on a multiprocessor: the factor on a step of its chain, and each block of a cluster but the first.
    alone: [f64; 2],
}

/// Of a kernel that does not divide K.
const WHOLE: SplitCost = SplitCost {
    work: [0.0; 2],
    floats: 0.0,
    block: 0.0,
    fixup: [0.0; 2],
    sequence: 1.0,
    alone: [1.0, 0.0],
};

/// Microseconds that each 128 sums of a thread take on top of being stored in 16 bits, measured of `wgmma_persistent` on an H100
/// (`runs/h100/epilogues`) and counted for all kernels: in f32, for large tiles alone; with a bias or a factor; with an activation; and
/// with an old C or a residual, in f32 and in 16 bits.
const STORED_IN_F32: f64 = 1.0;
const VECTOR: f64 = 1.0;
const ACTIVATION: f64 = 2.0;
const MATRIX_IN_F32: f64 = 6.8;
const MATRIX_IN_16_BITS: f64 = 4.8;

/// What an epilogue takes, of as many sums.
fn epilogue_cost(gemm: &Gemm) -> f64 {
    let Epilogue { scale, bias, activation, residual } = gemm.epilogue;
    let old = match gemm.output {
        Element::F32 => MATRIX_IN_F32,
        Element::F16 | Element::Bf16 => MATRIX_IN_16_BITS,
    };
    [
        (scale.is_some(), VECTOR),
        (bias.is_some(), VECTOR),
        (activation.is_some(), ACTIVATION),
        (residual, MATRIX_IN_F32),
        (gemm.beta != 0.0, old),
    ]
    .iter()
    .map(|(is_there, cost)| if *is_there { *cost } else { 0.0 })
    .sum()
}

/// Bytes that device memory of an H200 delivers in a microsecond. With as many as an H100 has, these costs choose worse there.
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
                let slots = multiprocessors * u64::from(division.blocks);
                let steps = depth.div_ceil(splits) as f64;
                let rounds = tiles.div_ceil(clusters_at_once(slots, splits));
                (steps, 1, rounds, tiles.saturating_mul(splits))
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
        // Persistent kernels store vectors of 16 bytes; what the edges of the others are fitted to are rows that are no multiple of four.
        let [_, _, has_vectors] = gemm.rows_begin_on_16_bytes();
        let is_stored_by_vectors = match self.kernel.is_persistent() {
            true => has_vectors,
            false => gemm.ldc.is_multiple_of(4),
        };
        let has_edge = !is_stored_by_vectors || gemm.m < 16;
        let edge = if has_edge { edge } else { 0.0 };
        let sequence = if division.clusters.is_some() { split.sequence } else { 1.0 };
        let is_alone = division.blocks < self.kernel.blocks_per_multiprocessor();
        let [of_step, of_block_of_cluster] = match is_alone {
            true => [chain[0] * split.alone[0], split.block + split.alone[1]],
            false => [chain[0], split.block],
        };
        let takes_turns = self.kernel.name() == wgmma_pingpong::DESCRIPTOR.name();
        let warpgroups = if takes_turns { 1 } else { self.kernel.rows().div_ceil(64) };
        let sums = f64::from(self.kernel.rows() * self.kernel.cols()) / f64::from(128 * warpgroups);
        // Of smaller tiles it is too little to tell; where warpgroups take turns it is hidden; and what edges take is fitted to a C in f32.
        let is_stored_slowly = self.kernel.is_persistent()
            && !takes_turns
            && !has_edge
            && sums > 64.0
            && gemm.output == Element::F32;
        let stored = if is_stored_slowly { STORED_IN_F32 } else { 0.0 };
        let epilogue = (stored + epilogue_cost(gemm)) * sums / 128.0;
        let outside = 1.0 + outside * is_outside;
        let of_tile = chain[1] * sequence + edge + epilogue;
        let of_steps = steps * of_step * outside;
        let chain = match takes_turns {
            true => alternating(rounds * of_block, of_steps, of_tile),
            false => rounds as f64 * (of_steps + of_block as f64 * of_tile),
        };
        let floats = if gemm.output == Element::F32 { split.floats } else { 0.0 };
        let [of_step, of_tile] = split.work;
        let work = blocks.div_ceil(multiprocessors) as f64
            * (steps * of_step * outside + of_block as f64 * (of_tile * sequence + floats));
        let [m, n, k, batch] = [gemm.m, gemm.n, gemm.depth(), gemm.batch].map(|size| size as f64);
        // C is read before it is written, unless beta is 0.
        let of_c = gemm.output.bytes() as f64 * if gemm.beta == 0.0 { 1.0 } else { 2.0 };
        let memory = batch * (2.0 * (m * k + k * n) + of_c * m * n) / BANDWIDTH;
        let norm = [chain, work, memory].map(|time| time.powi(8)).iter().sum::<f64>().powf(0.125);
        let copies = copying(gemm, division.needs_alignment(self.kernel));
        // Clusters that share no tile add up each of theirs; what others are fitted to has that in the fix-up.
        let added = if shared.is_none() { of_block } else { 1 };
        let adding = ((splits - 1) * added) as f64 * of_block_of_cluster;
        launch + norm + adding + fixup + copies
    }

    /// Whether the kernel is for a product: none is whose threads load an operand that bulk copies do not reach, if they do.
    fn is_for(&self, gemm: &Gemm) -> bool {
        let needed = Division::whole(gemm, self.kernel).needs_alignment(self.kernel);
        let has_maps = self.kernel.abi() == TensorCoreAbi::TensorMap;
        !has_maps || (0..2).all(|i| needed[i] || !is_aligned(gemm, i))
    }
}

/// How many clusters of `blocks` run at once, where a device has room for `slots` blocks. A cluster lies in one GPC, whose multiprocessors are
/// seldom a multiple of it: on an H200 and an H100, of 132 multiprocessors, 36 clusters of three blocks run at once, and 40 do not; nor do 32 of four, nor 16 of eight
/// (`runs/h200/bf16`, `runs/h100/bf16`).
fn clusters_at_once(slots: u64, blocks: u64) -> u64 {
    let clusters = slots / blocks.max(1);
    let fit = if blocks > 2 { clusters * 9 / 10 } else { clusters };
    fit.max(1)
}

/// Whether the rows of A or of B are planned to begin on 16 bytes, if the first one does.
fn is_aligned(gemm: &Gemm, i: usize) -> bool {
    let ([rows, cols], ld) = (gemm.shapes()[i], [gemm.lda, gemm.ldb][i]);
    // A vector without gaps is read as one row.
    let has_rows = rows > 1 && (cols > 1 || ld > 1);
    (!has_rows || ld.is_multiple_of(8)) && (gemm.batch == 1 || gemm.strides()[i].is_multiple_of(8))
}

/// What copies of those of A and B take that need to be aligned, and are not: a launch, and what the caches and
/// device memory read and write, as [`COPIES`] has it.
fn copying(gemm: &Gemm, needs_alignment: [bool; 2]) -> f64 {
    let bytes = |i: usize| {
        let [rows, cols] = gemm.shapes()[i].map(|size| size as f64);
        let count = if gemm.strides()[i] == 0 { 1 } else { gemm.batch };
        4.0 * rows * cols * count as f64
    };
    let copied = (0..2).filter(|i| needs_alignment[*i] && !is_aligned(gemm, *i));
    let bytes = copied.map(bytes).sum::<f64>();
    let [launch, cached, cache, memory] = COPIES;
    match bytes {
        0.0 => 0.0,
        _ => launch + bytes / cached + (bytes - cache).max(0.0) / memory,
    }
}

/// What `tiles` take two warpgroups that take turns at the steps, and each of which ends its tile meanwhile.
fn alternating(tiles: u64, steps: f64, end: f64) -> f64 {
    let all_steps = tiles as f64 * steps + end;
    let first = tiles.div_ceil(2) as f64 * (steps + end);
    let second = if tiles > 1 { steps + (tiles / 2) as f64 * (steps + end) } else { 0.0 };
    all_steps.max(first).max(second)
}

/// Fitted to the three files `divisions*.txt` of `runs/h200/bf16`, and to a few older times and estimates of large products,
/// which its README names. They are fitted so that what is chosen is near the fastest, not to
/// each time: as microseconds, which [`Auto::predictions`](crate::Auto::predictions) has of them, they are rough. The factor of 2 on a step of a block that is
/// alone, of kernels for rows that begin anywhere, was not measured: it keeps `auto` from such launches.
const COSTS: [Cost; 16] = [
    Cost {
        kernel: &wgmma_persistent::DESCRIPTOR,
        launch: 4.45,
        chain: [0.523, 2.37],
        outside: 0.0402,
        edge: 0.73,
        split: WHOLE,
    },
    Cost {
        kernel: &wgmma_persistent::TILE_128X192,
        launch: 1.84,
        chain: [0.514, 2.03],
        outside: 0.252,
        edge: 0.225,
        split: WHOLE,
    },
    Cost {
        kernel: &wgmma_persistent::TILE_128X128,
        launch: 2.46,
        chain: [0.338, 1.4],
        outside: 0.023,
        edge: 0.096,
        split: WHOLE,
    },
    Cost {
        kernel: &wgmma_persistent::TILE_64X128,
        launch: 2.25,
        chain: [0.191, 0.938],
        outside: 0.181,
        edge: 2.02,
        split: WHOLE,
    },
    Cost {
        kernel: &wgmma_persistent::TILE_64X64,
        launch: 2.02,
        chain: [0.152, 0.598],
        outside: 0.883,
        edge: 1.58,
        split: WHOLE,
    },
    Cost {
        kernel: &wgmma_pingpong::DESCRIPTOR,
        launch: 0.3,
        chain: [0.359, 3.77],
        outside: 0.0585,
        edge: 0.413,
        split: WHOLE,
    },
    Cost {
        kernel: &mma_outer::TILE_128X64,
        launch: 0.304,
        chain: [3.09, 0.449],
        outside: 0.0771,
        edge: 0.886,
        split: SplitCost { work: [1.75, 0.078], floats: 0.39, ..WHOLE },
    },
    Cost {
        kernel: &mma_outer::TILE_64X128,
        launch: 1.47,
        chain: [2.16, 0.521],
        outside: 0.159,
        edge: 0.0778,
        split: SplitCost { work: [1.0, 0.0454], floats: 0.7, ..WHOLE },
    },
    Cost {
        kernel: &wgmma_split::TILE_64X16,
        launch: 1.16,
        chain: [0.153, 1.07],
        outside: 0.521,
        edge: 1.24,
        split: SplitCost {
            work: [0.147, 0.868],
            floats: 0.0,
            block: 0.103,
            fixup: [2.95, 18.4],
            sequence: 0.273,
            alone: [0.339, 0.205],
        },
    },
    Cost {
        kernel: &wgmma_split::TILE_128X32,
        launch: 1.23,
        chain: [0.437, 2.11],
        outside: 0.0291,
        edge: 1.11,
        split: SplitCost {
            work: [0.277, 0.0903],
            floats: 0.0,
            block: 0.266,
            fixup: [5.35, 0.325],
            sequence: 0.209,
            alone: [0.3, 0.384],
        },
    },
    Cost {
        kernel: &wgmma_split::TILE_128X64,
        launch: 1.7,
        chain: [0.399, 0.206],
        outside: 0.684,
        edge: 0.892,
        split: SplitCost {
            work: [0.109, 5.39],
            floats: 0.0,
            block: 0.976,
            fixup: [2.67, 1.02],
            sequence: 1.0,
            alone: [0.503, 0.535],
        },
    },
    Cost {
        kernel: &wgmma_split::TILE_128X128,
        launch: 1.66,
        chain: [1.02, 1.07],
        outside: 0.266,
        edge: 1.18,
        split: SplitCost {
            work: [0.0827, 2.95],
            floats: 0.0,
            block: 0.209,
            fixup: [2.59, 7.03],
            sequence: 0.914,
            alone: [0.36, 0.785],
        },
    },
    Cost {
        kernel: &wgmma_split::TILE_256X128,
        launch: 2.35,
        chain: [0.866, 5.5],
        outside: 0.1,
        edge: 2.21,
        split: SplitCost {
            work: [0.111, 0.0673],
            floats: 0.0,
            block: 0.101,
            fixup: [0.571, 5.16],
            sequence: 1.0,
            alone: [1.0, 0.0],
        },
    },
    Cost {
        kernel: &wgmma_split::TILE_64X16_ALIGN1,
        launch: 0.387,
        chain: [1.16, 0.182],
        outside: 1.45,
        edge: 0.605,
        split: SplitCost {
            work: [0.373, 1.77],
            floats: 0.0,
            block: 0.932,
            fixup: [1.64, 0.657],
            sequence: 0.613,
            alone: [2.0, 0.0],
        },
    },
    Cost {
        kernel: &wgmma_split::TILE_64X32_ALIGN1,
        launch: 1.44,
        chain: [1.27, 5.09],
        outside: 0.164,
        edge: 0.41,
        split: SplitCost {
            work: [0.138, 0.418],
            floats: 0.0,
            block: 0.807,
            fixup: [2.48, 0.338],
            sequence: 0.376,
            alone: [2.0, 0.0],
        },
    },
    Cost {
        kernel: &wgmma_split::TILE_64X64_ALIGN1,
        launch: 1.85,
        chain: [1.39, 0.14],
        outside: 0.444,
        edge: 0.757,
        split: SplitCost {
            work: [0.459, 1.57],
            floats: 0.0,
            block: 0.542,
            fixup: [1.34, 3.57],
            sequence: 0.575,
            alone: [2.0, 0.0],
        },
    },
];

/// Of copies: the launch, the bytes that are read and written in a microsecond, and how many the L2 cache takes in; beyond those, one in so
/// many bytes costs a microsecond more. Fitted with the costs of the kernels that need none.
const COPIES: [f64; 4] = [1.5, 3.64e6, 40e6, 17.1e6];

/// What each kernel takes for a product in each division that is chosen from.
pub(super) fn times(gemm: &Gemm, multiprocessors: u32) -> impl Iterator<Item = TensorCoreTime> {
    let gemm = *gemm;
    COSTS.iter().filter(move |cost| cost.is_for(&gemm)).flat_map(move |cost| {
        let all = Division::all(&gemm, cost.kernel, multiprocessors);
        all.map(move |division| TensorCoreTime {
            kernel: cost.kernel,
            division: division.asked(),
            us: cost.of(&gemm, division, multiprocessors),
        })
    })
}

/// How a kernel divides a product, in the way that is asked for.
pub(super) fn division(
    gemm: &Gemm,
    kernel: &TensorCoreDescriptor,
    multiprocessors: u32,
    Asked { splits, clusters, blocks }: Asked,
) -> Division {
    let cost = COSTS.iter().find(|cost| cost.kernel.name() == kernel.name());
    let time =
        |division: &Division| cost.map_or(0.0, |cost| cost.of(gemm, *division, multiprocessors));
    let all = Division::all(gemm, kernel, multiprocessors);
    let splits = splits.map(|splits| splits.clamp(1, most_splits(gemm, kernel)));
    let most = kernel.blocks_per_multiprocessor();
    let blocks = blocks.map(|blocks| if blocks < most { 1 } else { most });
    // Of each number of blocks for a multiprocessor there is a cluster for each tile.
    let asked = all.filter(|division| blocks.is_none_or(|blocks| division.blocks == blocks));
    let asked = asked.filter_map(|division| match splits {
        None => Some(division),
        Some(_) if division.splits != 1 || division.clusters.is_some() => None,
        Some(splits) => Some(Division { splits, ..division }),
    });
    let asked = asked.filter_map(|division| match clusters {
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

    use gemm_matrix::Activation;

    use super::*;

    /// Microseconds of each kernel and division, and of cuBLAS, for each product of a recorded run.
    fn recorded(file: &str) -> HashMap<String, HashMap<String, f64>> {
        let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs/h200/bf16");
        let text = fs::read_to_string(runs.join(file)).unwrap();
        let mut shapes: HashMap<String, HashMap<String, f64>> = HashMap::new();
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let times = shapes.entry(words[0].to_owned()).or_default();
            times.insert(words[1].to_owned(), words[2].parse().unwrap());
        }
        shapes
    }

    /// The kernel that takes the least time on an H200.
    fn best(gemm: &Gemm) -> &'static TensorCoreDescriptor {
        let least = times(gemm, 132).min_by(|a, b| a.us.total_cmp(&b.us));
        least.expect("some computes every product").kernel
    }

    /// The geometric mean.
    fn mean(numbers: &[f64]) -> f64 {
        (numbers.iter().map(|number| number.ln()).sum::<f64>() / numbers.len() as f64).exp()
    }

    /// How many times as long as the fastest what is chosen takes, of recorded products of dense matrices.
    fn losses(shapes: &HashMap<String, HashMap<String, f64>>) -> Vec<f64> {
        let loss = |(shape, recorded): (&String, &HashMap<String, f64>)| {
            let (sizes, layout) = shape.split_once(':').unwrap_or((shape, "NN"));
            let (batch, sizes) = sizes.split_once('*').unwrap_or(("1", sizes));
            let sizes: Vec<usize> = sizes.split('x').map(|size| size.parse().unwrap()).collect();
            let [m, n, k] = [0, 1, 2].map(|i| sizes[i % sizes.len()]);
            let gemm = Gemm::new(m, n, k).transposed(&layout[..1] == "T", &layout[1..] == "T");
            let gemm = gemm.batched(batch.parse().unwrap(), [0; 3]).stored_as(Element::Bf16);
            let is_recorded =
                |kernel: &str| recorded.keys().any(|name| name.split('/').next() == Some(kernel));
            let times = times(&gemm, 132).filter(|time| is_recorded(time.kernel.name()));
            let least = times.min_by(|a, b| a.us.total_cmp(&b.us));
            let TensorCoreTime { kernel, division, .. } = least.expect("some kernel is recorded");
            let Asked { splits, clusters, blocks } = division;
            let most = kernel.blocks_per_multiprocessor();
            let alone = if blocks.is_some_and(|blocks| blocks < most) { ":1" } else { "" };
            let splits = splits.unwrap_or(1);
            let chosen = match (kernel.splits(), clusters) {
                (false, _) => kernel.name().to_owned(),
                (true, None) => format!("{}/{splits}{alone}", kernel.name()),
                (true, Some(clusters)) => format!("{}/{splits}@{clusters}{alone}", kernel.name()),
            };
            let Some(time) = recorded.get(chosen.as_str()) else { panic!("{shape}: {chosen}") };
            let kernels = recorded.iter().filter(|(name, _)| *name != "cublas");
            let least = kernels.map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
            time / least
        };
        shapes.iter().map(loss).collect()
    }

    /// The same where rows begin anywhere: kernels that read A so are among what is chosen, and copies are counted in.
    #[test]
    fn the_choice_for_rows_that_begin_anywhere_is_near_the_fastest() {
        let losses = losses(&recorded("divisions-align1.txt"));
        assert!(losses.len() > 25 && losses.iter().all(|loss| *loss < 1.4), "{losses:?}");
        assert!(mean(&losses) < 1.06, "{}", mean(&losses));
        let chosen = |gemm: Gemm| best(&gemm).name();
        let weights = Gemm::new(16, 4093, 14336);
        assert_eq!(chosen(weights), "wgmma_split_64x16_align1");
        // Where B's rows begin on 16 bytes, though they end elsewhere, none of them.
        assert_eq!(chosen(Gemm { ldb: 4096, ..weights }), chosen(Gemm::new(16, 4096, 14336)));
    }

    /// What is chosen, next to the fastest of a recorded run, most of whose products have rows that begin on 16 bytes.
    #[test]
    fn the_choice_is_near_the_fastest_of_a_recorded_run() {
        let losses = losses(&recorded("divisions.txt"));
        assert!(losses.len() > 60 && losses.iter().all(|loss| *loss < 1.25), "{losses:?}");
        assert!(mean(&losses) < 1.02, "{}", mean(&losses));
        // Where tensor cores are what limits, large tiles, or warpgroups that take turns, were the fastest.
        for [m, n, k] in [[4096; 3], [8192; 3], [16384; 3], [2048, 8192, 8192], [4096, 4096, 1024]]
        {
            let chosen = best(&Gemm::new(m, n, k)).name();
            assert!(
                ["wgmma_persistent", "wgmma_128x192", "wgmma_pingpong"].contains(&chosen),
                "{m}x{n}x{k}: {chosen}"
            );
        }
        // An epilogue goes on while the next tile is multiplied.
        let epilogue = Epilogue::new().activation(Activation::Relu);
        let then = best(&Gemm::new(4096, 4096, 1024).then(epilogue));
        assert_eq!(then.name(), "wgmma_pingpong");
        assert!(times(&Gemm::new(1, 0, 1), 0).all(|time| time.us.is_finite()));
    }
}
