//! A product's launches: waves, steps along K, and bytes.

use kernels_gpu::abi::tensor_core::PANEL;
use kernels_gpu::abi::{KernelAbi, Reads};

use super::copies::copied;
use crate::plan::{
    Configuration, Decomposition, KernelForm, MAX_SPLITS, is_aligned, steps, stream_k, tiles,
};

/// Rows of tiles that run at once: `kernels_gpu`'s raster.
const RASTER_ROWS: f64 = 8.0;

/// The blocks of one launch, and their work.
#[derive(Clone)]
pub(super) struct Grid {
    /// Launches: one, or one per product of the batch.
    pub(super) launches: f64,
    /// Tiles of C, of all products of a launch.
    pub(super) tiles: f64,
    /// Blocks of a launch.
    pub(super) blocks: f64,
    /// Waves before the last one, with all resident blocks.
    pub(super) full_waves: f64,
    /// Blocks per multiprocessor in the last wave. At least 1.
    pub(super) last_wave: f64,
    /// Steps along K of each block.
    pub(super) steps: f64,
    /// Tiles of each block, one after the other.
    pub(super) tiles_per_block: f64,
    /// Blocks that share a tile by split-K.
    pub(super) splits: f64,
    /// Partial sums per tile of stream-K, else 0.
    pub(super) stream_k_parts: f64,
    /// Whether clusters of stream-K begin and end within tiles.
    pub(super) is_uneven: bool,
}

/// The device's room for a product's grid.
#[derive(Clone, Copy)]
pub(super) struct Slots<'a> {
    pub(super) multiprocessors: u64,
    /// Blocks that are resident on a multiprocessor.
    pub(super) resident: u64,
    /// Resident clusters of 1 to 8 blocks. A multiprocessor holds one of their blocks.
    pub(super) clusters: &'a [u32; 8],
}

impl Slots<'_> {
    /// The groups of `size` blocks that run at once. A cluster lies in one GPC.
    fn groups(&self, size: u64, is_cluster: bool) -> u64 {
        let groups = match self.clusters.get(size as usize - 1) {
            Some(clusters) if is_cluster => u64::from(*clusters) * self.resident,
            _ => self.multiprocessors * self.resident / size,
        };
        groups.max(1)
    }
}

impl Grid {
    pub(super) fn new(form: &KernelForm, configuration: &Configuration, slots: Slots<'_>) -> Self {
        let Configuration { kernel, splits, clusters, .. } = *configuration;
        let gemm = &form.gemm;
        let batch = gemm.batch as u64;
        let (products, launches) = if kernel.abi().has_batches() { (batch, 1) } else { (1, batch) };
        let tiles = tiles(gemm, configuration.tile()).saturating_mul(products).max(1);
        let steps = steps(gemm, kernel).max(1);
        let mut grid = Self {
            launches: launches as f64,
            tiles: tiles as f64,
            blocks: tiles as f64,
            full_waves: 0.0,
            last_wave: 1.0,
            steps: steps as f64,
            tiles_per_block: 1.0,
            splits: 1.0,
            stream_k_parts: 0.0,
            is_uneven: false,
        };
        match kernel.abi() {
            KernelAbi::StreamK => grid.persistent_stream_k(tiles, steps, slots),
            _ if kernel.is_persistent() => {
                grid.tile_after_tile(tiles.div_ceil(slots.multiprocessors));
            }
            KernelAbi::WgmmaClusters => {
                let splits = u64::from(splits.max(1));
                let tiles_of_one = tiles / batch.max(1);
                let asked = clusters
                    .and_then(|asked| stream_k(gemm, kernel, tiles_of_one, splits as u32, asked));
                grid.splits = splits as f64;
                match asked.map(u64::from) {
                    None if splits == 1 => {
                        let blocks = slots.groups(1, true).min(tiles);
                        grid.tile_after_tile(tiles.div_ceil(blocks));
                        grid.waves(blocks, 1, true, slots);
                    }
                    None => {
                        grid.steps = steps.div_ceil(splits) as f64;
                        grid.waves(tiles, splits, true, slots);
                    }
                    Some(clusters) => {
                        grid.steps = (tiles as f64) * (steps as f64) / (clusters * splits) as f64;
                        let is_shared = !tiles.is_multiple_of(clusters);
                        // A number for each tile, so that each cluster has a part of one tile.
                        let is_even = clusters.is_multiple_of(tiles);
                        grid.is_uneven = is_shared && !is_even;
                        let begun = u64::from(tiles > 1 && grid.is_uneven);
                        grid.tiles_per_block = (tiles.div_ceil(clusters) + begun) as f64;
                        if is_shared {
                            let more = u64::from(!is_even);
                            grid.stream_k_parts = (clusters.div_ceil(tiles) + more) as f64;
                        }
                        grid.waves(clusters, splits, true, slots);
                    }
                }
            }
            _ => {
                let splits = whole_splits(steps, splits);
                grid.splits = splits as f64;
                grid.steps = steps.div_ceil(splits) as f64;
                grid.waves(tiles.saturating_mul(splits), 1, false, slots);
            }
        }
        grid
    }

    /// Gives each block this number of whole tiles, one after another.
    fn tile_after_tile(&mut self, tiles_per_block: u64) {
        self.tiles_per_block = tiles_per_block as f64;
        self.steps *= self.tiles_per_block;
    }

    /// Divides groups of blocks into waves.
    fn waves(&mut self, groups: u64, size: u64, is_cluster: bool, slots: Slots<'_>) {
        self.blocks = groups as f64 * size as f64;
        let at_once = slots.groups(size, is_cluster);
        let full = groups.div_ceil(at_once) - 1;
        let last = (groups - full * at_once) * size;
        self.full_waves = full as f64;
        self.last_wave = last.div_ceil(slots.multiprocessors).clamp(1, slots.resident) as f64;
    }

    /// Persistent blocks whose first tiles are shared.
    fn persistent_stream_k(&mut self, tiles: u64, steps: u64, slots: Slots<'_>) {
        // More tiles than this come out even, or nearly.
        let [tiles, steps, multiprocessors] =
            [tiles, steps, slots.multiprocessors].map(|count| count.min(i32::MAX as u64) as u32);
        let decomposition = Decomposition::new(tiles, steps, multiprocessors);
        let Decomposition { blocks, stream_k_tiles } = decomposition;
        let blocks = blocks.max(1);
        self.blocks = blocks.into();
        self.steps = decomposition.longest(tiles, steps) as f64;
        let whole = (tiles - stream_k_tiles).div_ceil(blocks);
        let (shared, parts) = match stream_k_tiles {
            0 => (0, 0),
            _ if tiles > blocks => (stream_k_tiles.div_ceil(blocks) + 1, 2),
            _ => (1, blocks.div_ceil(tiles) + 1),
        };
        self.tiles_per_block = f64::from(whole + shared);
        self.stream_k_parts = f64::from(parts);
    }

    /// All waves, once per tile of a block.
    pub(super) fn rounds(&self) -> f64 {
        self.tiles_per_block * (self.full_waves + 1.0)
    }
}

/// The number of splits that get steps. Each gets equally many, the last one perhaps fewer.
pub(super) fn whole_splits(steps: u64, splits: u32) -> u64 {
    let per_split = steps.div_ceil(u64::from(splits.clamp(1, MAX_SPLITS))).max(1);
    steps.div_ceil(per_split).max(1)
}

/// The tiles that are partly out of bounds.
pub(super) struct Edges {
    /// Their out-of-bounds share of rows or columns. The larger share counts.
    pub(super) outside: f64,
    /// Their number, relative to all tiles.
    pub(super) share: f64,
}

impl Edges {
    pub(super) fn new(form: &KernelForm, configuration: &Configuration) -> Self {
        let kernel = configuration.kernel;
        let tile = configuration.tile();
        // Elements that are copied together, and so in part outside. Even parts are not.
        let [down, across] = match kernel.abi() {
            KernelAbi::WgmmaClusters | KernelAbi::WgmmaBatched => [
                if form.gemm.trans_a { PANEL } else { 1 },
                if form.gemm.trans_b { 1 } else { tile.bn.next_multiple_of(PANEL.min(tile.bn)) },
            ],
            _ => [tile.bm, tile.bn],
        };
        let along = |size: usize, tile: u32, copied: u32| {
            let beyond = tile.next_multiple_of(copied) - tile;
            if beyond > 0 {
                // Whole panels of every tile, which are wider.
                return (f64::from(beyond) / f64::from(tile), 1.0);
            }
            let tiles = size.div_ceil(tile as usize).max(1);
            let outside = size.next_multiple_of(copied as usize) - size;
            // As a part of the last tile.
            let share = if outside > 0 { 1.0 / tiles as f64 } else { 0.0 };
            (outside as f64 / f64::from(tile), share)
        };
        let (rows, of_rows) = along(form.gemm.m, tile.bm, down);
        let (cols, of_cols) = along(form.gemm.n, tile.bn, across);
        let share = 1.0 - (1.0 - of_rows) * (1.0 - of_cols);
        Self { outside: rows.max(cols), share }
    }
}

/// Bytes of device memory that a launch moves.
#[derive(Clone)]
pub(super) struct Bytes {
    /// A and B.
    pub(super) inputs: f64,
    /// A and B, as often as blocks ask the L2 cache for them.
    pub(super) asked: f64,
    /// C, an old C and a residual.
    pub(super) outputs: f64,
    /// Staged A and B, of all launches.
    pub(super) staged: f64,
}

impl Bytes {
    /// Counts bytes. `at_once` tiles run at the same time.
    pub(super) fn new(
        form: &KernelForm,
        configuration: &Configuration,
        grid: &Grid,
        at_once: f64,
        l2_bytes: f64,
    ) -> Self {
        let Configuration { kernel, staged, .. } = *configuration;
        let gemm = &form.gemm;
        let tile = configuration.tile();
        let [m, n, k, batch] = [gemm.m, gemm.n, gemm.depth(), gemm.batch].map(|size| size as f64);
        let element = gemm.compute.element().bytes() as f64;
        // Products that share an operand read it once.
        let is_shared = |stride: usize| gemm.batch > 1 && stride == 0 && !gemm.has_pointers();
        let count = |stride: usize| if is_shared(stride) { 1.0 } else { batch };
        let operands = [(m * k, gemm.stride_a), (k * n, gemm.stride_b)]
            .map(|(elements, stride)| element * elements * count(stride));
        let once = operands.iter().sum::<f64>() / grid.launches;
        let tiles = |size: f64, tile: u32| (size / f64::from(tile)).ceil();
        let mut inputs = once;
        if once > l2_bytes {
            let rows = tiles(m, tile.bm).min(RASTER_ROWS);
            let cols = (at_once / rows).clamp(1.0, tiles(n, tile.bn).max(1.0));
            let mut per_tile = f64::from(tile.bm) / cols + f64::from(tile.bn) / rows;
            if grid.is_uneven {
                // Clusters are at different places along K: L2 still has half of what others read.
                per_tile = (per_tile + f64::from(tile.bm).min(m) + f64::from(tile.bn).min(n)) / 2.0;
            }
            inputs = once.max(element * k * grid.tiles * per_tile);
        }
        // Blocks with tiles of the same rows or columns ask for the same part of A or B.
        let asked_a = m * tiles(n, tile.bn);
        let asked_b = n * tiles(m, tile.bm);
        let asked = (element * k * batch * (asked_a + asked_b) / grid.launches).max(inputs);
        let c = gemm.output.bytes() as f64;
        let touched = if gemm.beta == 0.0 && !gemm.factors_on_device { c } else { 2.0 * c };
        let residual = if gemm.epilogue.residual { 4.0 } else { 0.0 };
        let outputs = (touched + residual) * m * n * batch / grid.launches;
        let is_copied = copied(form, kernel, staged);
        let staged =
            operands.iter().zip(is_copied).map(|(bytes, is)| if is { *bytes } else { 0.0 });
        Self { inputs, asked, outputs, staged: if k == 0.0 { 0.0 } else { staged.sum() } }
    }
}

/// The misalignments that cost a kernel time.
#[derive(Clone)]
pub(super) struct Alignment {
    /// Whether the first entry point serves.
    pub(super) is_aligned: bool,
    /// Whether rows of C are not 16-byte aligned.
    pub(super) is_c_misaligned: bool,
    /// Whether threads read a misaligned A or B. Its rows do not begin on 16 bytes.
    pub(super) is_operand_misaligned: bool,
}

impl Alignment {
    pub(super) fn new(form: &KernelForm, configuration: &Configuration) -> Self {
        let Configuration { kernel, staged, .. } = *configuration;
        let is_copied = copied(form, kernel, staged);
        let [a, b, c] = form.gemm.rows_begin_on_16_bytes();
        let reads = form.reads(kernel);
        let is_misaligned = |i: usize| {
            reads[i] == Reads::Anywhere
                && !is_copied[i]
                && ![a, b][i]
                && kernel.unaligned().is_none()
        };
        Self {
            is_aligned: is_aligned(kernel, form, [0; 3], is_copied),
            is_c_misaligned: !c,
            is_operand_misaligned: is_misaligned(0) || is_misaligned(1),
        }
    }
}
