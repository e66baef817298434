//! The configurations of a kernel worth a prediction.

use kernels_gpu::abi::{Arithmetic, KernelAbi, KernelDescriptor, Reads};

use super::copies::copied;
use super::grid::whole_splits;
use super::prediction::Prediction;
use crate::plan::{
    Configuration, KernelForm, copy_ld, most_splits, possible_columns, steps, stream_k, tiles,
};
use crate::problem::Gemm;

/// The most waves that splitting K makes. Beyond them there are enough blocks anyway.
const SPLIT_WAVES: u32 = 3;

/// The most waves that tiles are made narrower for.
const NARROW_WAVES: u64 = 4;

/// Blocks of a cluster that share a tile.
const CLUSTER_SPLITS: [u32; 6] = [1, 2, 3, 4, 6, 8];

/// The longest sum of f32 products in one register. It holds where there is room for splits.
///
/// The rms error grows with the root of its length.
pub(super) const LONGEST_SUM: u32 = 2048;

/// The longest sum that costs no relevant accuracy. A longer one must be faster by [`PRICE`] for
/// each doubling.
pub(super) const SHORT_SUM: u32 = 640;
const PRICE: f64 = 0.04;

/// f32 elements in 16 bytes.
const QUAD: usize = 4;

/// Padding of A and B that is always accepted. It is in elements of f32: 16 MiB.
const MAX_PADDING: u128 = 1 << 22;

/// A product, and a kernel that suits it.
pub(super) struct Candidates<'a> {
    pub(super) gemm: &'a Gemm,
    pub(super) kernel: &'static KernelDescriptor,
    /// Blocks that are resident on a multiprocessor.
    pub(super) resident: u32,
    pub(super) multiprocessors: u32,
}

impl Candidates<'_> {
    /// The configurations, with their times.
    pub(super) fn all(
        &self,
        form: &KernelForm,
        time: impl Fn(&Configuration) -> Prediction,
    ) -> Vec<Prediction> {
        let kernel = self.kernel;
        if kernel.abi().has_tensor_maps() && self.pads_too_much(form) {
            return Vec::new();
        }
        match kernel.abi() {
            KernelAbi::WgmmaClusters => self.clusters(form).iter().map(time).collect(),
            abi if abi.splits_k() => {
                let staged = [false, true].into_iter().filter(|staged| {
                    !staged
                        || form.gemm.depth() > 0
                            && copied(form, kernel, true) != copied(form, kernel, false)
                            && !self.pads_too_much(form)
                });
                staged.flat_map(|staged| self.splits(form, staged, &time)).collect()
            }
            _ => vec![time(&Configuration::new(kernel))],
        }
    }

    /// Divisions of a product among clusters of several sizes.
    ///
    /// Clusters share no tile, or all resident clusters share the tiles (stream-K), or as many for
    /// each tile. Several blocks share a multiprocessor, or one has it alone. Tiles have
    /// the kernel's width, or the least that still fits 1 to [`NARROW_WAVES`] waves.
    pub(super) fn clusters(&self, form: &KernelForm) -> Vec<Configuration> {
        let Self { gemm, kernel, multiprocessors, .. } = *self;
        let most = kernel.blocks_per_multiprocessor();
        let mut all = Vec::new();
        let usual = Configuration {
            transposes_c: form.orientation(&gemm.ungrouped(), kernel),
            ..Configuration::new(kernel)
        };
        let tiles_of = |columns: Option<u32>| {
            let tile = Configuration { columns, ..usual }.tile();
            tiles(&form.gemm, tile)
        };
        let tiles = tiles_of(None);
        let all_of = |tiles: u64| tiles.saturating_mul(form.gemm.batch as u64);
        let all_tiles = all_of(tiles);
        // Narrower tiles, and all their number.
        let narrow: Vec<_> = (1..kernel.tile().bn / 16)
            .map(|units| Some(16 * units))
            .filter(|columns| possible_columns(form, kernel, *columns) == *columns)
            .map(|columns| (columns, all_of(tiles_of(columns))))
            .collect();
        for splits in CLUSTER_SPLITS.into_iter().filter(|of| *of <= most_splits(gemm, kernel)) {
            let room = |blocks: u32| multiprocessors.saturating_mul(blocks) / splits;
            let with = |blocks: u32| Configuration {
                splits,
                blocks_per_multiprocessor: (blocks < most).then_some(blocks),
                ..usual
            };
            let mut add = |one: Configuration| {
                if !all.contains(&one) {
                    all.push(one);
                }
            };
            for blocks in [most, 1] {
                add(with(blocks));
                for waves in 1..=NARROW_WAVES {
                    let slots = u64::from(room(blocks)).saturating_mul(waves);
                    if let Some((columns, _)) = narrow.iter().find(|(_, tiles)| *tiles <= slots) {
                        add(Configuration { columns: *columns, ..with(blocks) });
                    }
                }
            }
            for [blocks, at_once] in [[most, most], [most, 1], [1, 1]] {
                let resident = room(at_once);
                // All of them, or as many for each tile.
                let for_each = u64::from(resident) / all_tiles.max(1) * all_tiles;
                for clusters in [resident, for_each as u32] {
                    if stream_k(&form.gemm, kernel, tiles, splits, clusters) == Some(clusters) {
                        add(Configuration { clusters: Some(clusters), ..with(blocks) });
                    }
                }
            }
        }
        all
    }

    /// The splits of K worth a prediction. They fill whole waves, are powers of two in between, or
    /// make sums short.
    fn splits(
        &self,
        form: &KernelForm,
        staged: bool,
        time: &impl Fn(&Configuration) -> Prediction,
    ) -> Vec<Prediction> {
        let Self { kernel, resident, multiprocessors, .. } = *self;
        let plain = Configuration { staged, ..Configuration::new(kernel) };
        let steps = steps(&form.gemm, kernel).max(1);
        let tiles = tiles(&form.gemm, kernel.tile()).saturating_mul(form.gemm.batch as u64).max(1);
        let waves = SPLIT_WAVES * resident;
        let filling = |blocks: u32| u64::from(blocks) * u64::from(multiprocessors) / tiles;
        let most = filling(waves).min(steps).max(1) as u32;
        let whole = |splits: u32| whole_splits(steps, splits.min(most)) as u32;
        let (fewest, short) = match kernel.arithmetic() {
            Arithmetic::Fma => {
                let of_length = |length: u32| {
                    whole((form.gemm.depth() as u32).div_ceil(slices(kernel) * length))
                };
                (of_length(LONGEST_SUM), of_length(SHORT_SUM))
            }
            _ => (1, 1),
        };
        let doubles = (0..u32::BITS).map(|log| 1 << log).take_while(|splits| *splits < most);
        let filling = (1..=waves).map(|blocks| filling(blocks) as u32);
        let splits = filling.chain(doubles).chain([short]);
        let mut splits: Vec<u32> = splits.map(|splits| whole(splits).max(fewest)).collect();
        splits.sort_unstable();
        splits.dedup();
        let times = |splits: &[u32]| -> Vec<Prediction> {
            splits.iter().map(|splits| time(&Configuration { splits: *splits, ..plain })).collect()
        };
        let (with_long_sums, with_short_sums) =
            splits.split_at(splits.partition_point(|of| *of < short));
        let mut all = times(with_short_sums);
        let best = all.iter().map(|one| one.ns).fold(f64::INFINITY, f64::min);
        let mut long = times(with_long_sums);
        long.retain(|one| {
            let doublings = f64::from(short).log2() - f64::from(one.configuration.splits).log2();
            one.ns * (1.0 + PRICE * doublings) < best
        });
        all.extend(long);
        all
    }

    /// Whether padding A and B costs too much memory. The padding, in f32, exceeds [`MAX_PADDING`]
    /// and a sixteenth of all matrices.
    ///
    /// A copy of a long column pads each element to a row.
    fn pads_too_much(&self, form: &KernelForm) -> bool {
        let kernel = self.kernel;
        if kernel.arithmetic() == Arithmetic::Bits16 {
            return false;
        }
        let is_row = form.are_columns(kernel);
        let Gemm { m, n, k, lda, ldb, batch, .. } = form.gemm;
        let has_maps = kernel.abi().has_tensor_maps();
        let is_reached = [lda, ldb].map(|ld| has_maps && ld.is_multiple_of(QUAD));
        let [mut elements, mut padding] = [m as u128 * n as u128 * batch as u128, 0];
        let ([lie_a, lie_b, _], reads) = (form.gemm.shapes(), form.reads(kernel));
        // Copies of a transpose that the kernel does not read have the other shape.
        let shapes = [(lie_a, [m, k]), (lie_b, [k, n])].into_iter().zip(reads);
        let shapes =
            shapes.map(|((lie, other), reads)| if reads == Reads::Copied { other } else { lie });
        for (i, [rows, cols]) in shapes.enumerate() {
            let rows = rows as u128 * batch as u128;
            elements += rows * cols as u128;
            if !is_row[i] && !is_reached[i] {
                padding += rows * u128::from(copy_ld(cols as u64, 4) - cols as u64);
            }
        }
        padding > MAX_PADDING.max(elements / 16)
    }
}

/// The block's thread groups that divide a step (slice-K).
pub(super) fn slices(kernel: &KernelDescriptor) -> u32 {
    let tile = kernel.tile();
    (kernel.threads() * tile.tm * tile.tn / (tile.bm * tile.bn)).max(1)
}
