//! What a product of 16-bit operands takes, and the kernel and the division of it that take the
//! least.

use std::iter;

use gemm_matrix::Element;
use kernels_gpu::abi::{KernelAbi, KernelDescriptor, Reads, Shared};
use kernels_gpu::families::half::{mma_outer, wgmma_split};
use kernels_gpu::ladder::tensor::mma;
use kernels_gpu::ladder::tensor::sm_90a::{wgmma_persistent, wgmma_pingpong};

use super::prediction::Prediction;
use crate::device::{DeviceInfo, Limits};
use crate::plan::{Configuration, KernelForm, has_hopper, most_splits, steps, stream_k, tiles};
use crate::problem::{Epilogue, Gemm};

/// Numbers of blocks in a cluster that are chosen from: those of the run that costs are fitted to.
const SPLITS: [u32; 6] = [1, 2, 3, 4, 6, 8];

/// The kernel that suits a product best, and how it divides it: on compute capability 9.0 one with
/// `wgmma`, or with `mma.sync` for a short K, and on others one with `mma.sync` and a pipeline.
pub(super) fn choose(gemm: &Gemm, info: &DeviceInfo) -> Configuration {
    let times = times(gemm, info);
    let least = times.iter().min_by(|a, b| a.ns.total_cmp(&b.ns));
    match least {
        Some(least) => least.configuration,
        None => Configuration::new(best_of_mma(gemm, &info.limits)),
    }
}

/// What [`choose`] goes by.
pub(super) fn basis(info: &DeviceInfo) -> &'static str {
    match has_hopper(info) {
        true => "the least time by the costs of tiles and steps along K on an H200",
        false => {
            "by `mma.sync`: the fewest outputs for a multiprocessor, and of such the largest tiles"
        }
    }
}

/// The kernel with `mma.sync` for a product, where none have costs: of those for which the device has the shared memory,
/// and which need rows that begin on 16 bytes, the one with the fewest outputs for a multiprocessor, those of tiles that
/// are not whole counted in, and of such the one with the largest tiles.
fn best_of_mma(gemm: &Gemm, limits: &Limits) -> &'static KernelDescriptor {
    let outputs = |kernel: &&'static KernelDescriptor| {
        let rounds = tiles(gemm, kernel).div_ceil(u64::from(limits.multiprocessors.max(1)));
        rounds.saturating_mul((kernel.tile().bm * kernel.tile().bn).into())
    };
    let fits = |kernel: &&'static KernelDescriptor| match kernel.shared() {
        Shared::Stages { bytes, .. } => bytes[1] <= limits.shared_optin,
        Shared::Static(_) | Shared::Dynamic(_) => true,
    };
    let kernels = [&mma::TILE_128X256, &mma::DESCRIPTOR, &mma::TILE_64X64].into_iter();
    kernels.filter(fits).min_by_key(outputs).unwrap_or(&mma::TILE_64X64)
}

/// All that is chosen from for a product: several numbers of blocks in a cluster, and of each a cluster for each tile, or
/// as many clusters as run at once, or one block for each multiprocessor; with memory for as many blocks as can share a
/// multiprocessor, or all of it for one.
fn divisions(
    gemm: &Gemm,
    kernel: &'static KernelDescriptor,
    multiprocessors: u32,
) -> impl Iterator<Item = Configuration> + use<> {
    let gemm = *gemm;
    let form = KernelForm::new(&gemm, kernel);
    let tiles = tiles(&form.gemm, kernel);
    let (most, most_splits) = (kernel.blocks_per_multiprocessor(), most_splits(&gemm, kernel));
    let has_clusters = kernel.abi() == KernelAbi::WgmmaClusters;
    let shared = [[most, most], [most, 1], [1, 1]];
    let count = match (has_clusters, most) {
        (false, _) => 0,
        (true, 1) => 1,
        (true, _) => shared.len(),
    };
    let alone = (has_clusters && most > 1).then_some(1);
    let splits = SPLITS.into_iter().filter(move |splits| *splits <= most_splits);
    splits.flat_map(move |splits| {
        let of = move |blocks: u32| Configuration {
            splits,
            blocks_per_multiprocessor: (blocks < most).then_some(blocks),
            ..Configuration::new(kernel)
        };
        let whole = iter::once(most).chain(alone).map(of);
        let shared = shared.into_iter().take(count).filter_map(move |[blocks, at_once]| {
            let clusters = multiprocessors.saturating_mul(at_once) / splits;
            let can_be = stream_k(&form.gemm, kernel, tiles, splits, clusters) == Some(clusters);
            can_be.then_some(Configuration { clusters: Some(clusters), ..of(blocks) })
        });
        whole.chain(shared)
    })
}

/// What a product takes with a kernel on an H200, in microseconds.
///
/// A block has a chain of steps along K and of tiles of C, and a multiprocessor has the work of all its blocks. On top of the launch
/// comes the 8-norm of these two and of the time of device memory: a little more than the longest, where two are alike.
struct Cost {
    kernel: &'static KernelDescriptor,
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
    fn of(&self, gemm: &Gemm, division: &Configuration, multiprocessors: u32) -> f64 {
        let Self { kernel, launch, chain, outside, edge, ref split } = *self;
        let form = KernelForm::new(gemm, kernel);
        let [bm, bn] = [kernel.tile().bm, kernel.tile().bn];
        let most_blocks = kernel.blocks_per_multiprocessor();
        let blocks_at_once = division.blocks_per_multiprocessor.unwrap_or(most_blocks);
        let multiprocessors = u64::from(multiprocessors.max(1));
        let tiles = tiles(&form.gemm, kernel).saturating_mul(gemm.batch as u64).max(1);
        let depth = steps(gemm, kernel);
        let splits = u64::from(division.splits);
        // Steps and tiles of a block, and how many blocks are one after the other, and on a multiprocessor.
        let (steps, of_block, rounds, blocks) = match division.clusters.map(u64::from) {
            None => {
                let slots = multiprocessors * u64::from(blocks_at_once);
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
            let share = f64::from(4 * bm * bn) / (splits as f64);
            split.fixup[0] + split.fixup[1] * parts * share / 1e5
        });
        let [rows, cols] = form.order([gemm.m, gemm.n]);
        let is_outside =
            |size: usize, tile: u32| 1.0 - (size.min(tile as usize) as f64) / f64::from(tile);
        // Of a B that lies along K, `wgmma_split` does not copy what is outside.
        let lies_along_k = if form.transposes_c { !gemm.trans_a } else { gemm.trans_b };
        let is_cut = kernel.abi() == KernelAbi::WgmmaClusters && lies_along_k;
        let of_cols = if is_cut { 0.0 } else { is_outside(cols, bn) };
        let is_outside = is_outside(rows, bm) + of_cols;
        // Persistent kernels store vectors of 16 bytes; what the edges of the others are fitted to are rows that are no multiple of four.
        let [_, _, has_vectors] = gemm.rows_begin_on_16_bytes();
        let is_stored_by_vectors = match kernel.is_persistent() {
            true => has_vectors,
            false => gemm.ldc.is_multiple_of(4),
        };
        let has_edge = !is_stored_by_vectors || gemm.m < 16;
        let edge = if has_edge { edge } else { 0.0 };
        let sequence = if division.clusters.is_some() { split.sequence } else { 1.0 };
        let is_alone = blocks_at_once < most_blocks;
        let [of_step, of_block_of_cluster] = match is_alone {
            true => [chain[0] * split.alone[0], split.block + split.alone[1]],
            false => [chain[0], split.block],
        };
        let takes_turns = kernel.name() == wgmma_pingpong::DESCRIPTOR.name();
        let warpgroups = if takes_turns { 1 } else { bm.div_ceil(64) };
        let sums = f64::from(bm * bn) / f64::from(128 * warpgroups);
        // Of smaller tiles it is too little to tell; where warpgroups take turns it is hidden; and what edges take is fitted to a C in f32.
        let is_stored_slowly = kernel.is_persistent()
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
        let copies = copying(gemm, needs_alignment(&form, kernel));
        // Clusters that share no tile add up each of theirs; what others are fitted to has that in the fix-up.
        let added = if shared.is_none() { of_block } else { 1 };
        let adding = ((splits - 1) * added) as f64 * of_block_of_cluster;
        launch + norm + adding + fixup + copies
    }

    /// Whether the kernel is for a product: none is whose threads load an operand that bulk copies do not reach, if they do.
    fn is_for(&self, gemm: &Gemm) -> bool {
        let needed = needs_alignment(&KernelForm::new(gemm, self.kernel), self.kernel);
        let has_maps = self.kernel.abi().has_tensor_maps();
        !has_maps || (0..2).all(|i| needed[i] || !is_aligned(gemm, i))
    }
}

/// Which of A and B must have rows that begin on 16 bytes, in the caller's order.
fn needs_alignment(form: &KernelForm, kernel: &KernelDescriptor) -> [bool; 2] {
    form.order(form.reads(kernel).map(|reads| reads == Reads::Aligned))
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

/// What each kernel takes for a product in each division that is chosen from; nothing where there are
/// no costs, which is on all but compute capability 9.0.
pub(super) fn times(gemm: &Gemm, info: &DeviceInfo) -> Vec<Prediction> {
    if !has_hopper(info) {
        return Vec::new();
    }
    let multiprocessors = info.limits.multiprocessors;
    let costs = COSTS.iter().filter(|cost| cost.is_for(gemm));
    let times = costs.flat_map(|cost| {
        divisions(gemm, cost.kernel, multiprocessors).map(move |configuration| Prediction {
            configuration,
            ns: 1e3 * cost.of(gemm, &configuration, multiprocessors),
            memory_bound: None,
        })
    });
    times.collect()
}

/// How a kernel divides a product, in the way that is asked for: splits, clusters, and blocks of a
/// multiprocessor. What is not said is as seems best.
///
/// ```
/// use cuda_gemm::{Compute, Gemm, find_kernel, select};
///
/// let gemm = Gemm::new(16, 4096, 4096).computed_in(Compute::Bf16);
/// let kernel = find_kernel("wgmma_split_64x16")?;
/// let division = select::division(&gemm, kernel, 132, [Some(2), None, None]);
/// assert_eq!(division.splits, 2);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub fn division(
    gemm: &Gemm,
    kernel: &'static KernelDescriptor,
    multiprocessors: u32,
    [splits, clusters, blocks]: [Option<u32>; 3],
) -> Configuration {
    let most_blocks = kernel.blocks_per_multiprocessor();
    let whole = Configuration {
        splits: splits.unwrap_or(1),
        clusters,
        blocks_per_multiprocessor: blocks.and_then(|blocks| (blocks < most_blocks).then_some(1)),
        ..Configuration::new(kernel)
    };
    if kernel.abi() != KernelAbi::WgmmaClusters || gemm.validate().is_err() {
        return whole;
    }
    let cost = COSTS.iter().find(|cost| cost.kernel.name() == kernel.name());
    let time = |division: &Configuration| {
        cost.map_or(0.0, |cost| cost.of(gemm, division, multiprocessors))
    };
    let splits = splits.map(|splits| splits.clamp(1, most_splits(gemm, kernel)));
    // Of each number of blocks for a multiprocessor there is a cluster for each tile.
    let asked = divisions(gemm, kernel, multiprocessors).filter(|division| {
        blocks.is_none() || division.blocks_per_multiprocessor == whole.blocks_per_multiprocessor
    });
    let asked = asked.filter_map(|division| match splits {
        None => Some(division),
        Some(_) if division.splits != 1 || division.clusters.is_some() => None,
        Some(splits) => Some(Configuration { splits, ..division }),
    });
    let asked = asked.filter_map(|division| match clusters {
        None => Some(division),
        Some(_) if division.clusters.is_some() => None,
        Some(clusters) => Some(Configuration { clusters: Some(clusters), ..division }),
    });
    asked.min_by(|a, b| time(a).total_cmp(&time(b))).unwrap_or(whole)
}
