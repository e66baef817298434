//! The launches of a product by one kernel on one device.

use kernels_gpu::abi::{Arithmetic, KernelAbi, KernelDescriptor, Shared};

use super::clusters;
use super::configuration::Configuration;
use super::form::{KernelForm, tiles};
use super::panel::{Launch, Workspace, panels};
use super::{persistent, stream_k};
use crate::device::Limits;
use crate::error::Error;
use crate::problem::{Compute, Gemm};

/// The most blocks along a grid's z axis, on every device.
pub(crate) const MAX_SPLITS: u32 = 65535;

/// Exclusive limit of the tiles of C, for a kernel of 16-bit operands.
///
/// Tile numbers, plus one more round of all blocks, fit 32 bits.
const MAX_TILES: u64 = 1 << 31;

/// The launches of a [`Gemm`] by one kernel on one device.
///
/// ```
/// use cuda_gemm::{Configuration, Gemm, LaunchPlan, Limits, find_kernel};
///
/// let limits = Limits {
///     grid: [i32::MAX as u32, 65535, 65535],
///     shared_default: 48 << 10,
///     shared_optin: 227 << 10,
///     multiprocessors: 80,
/// };
/// let in_four = Configuration { splits: 4, ..Configuration::new(find_kernel("tile_64x64")?) };
/// let plan = LaunchPlan::new(&in_four, Gemm::new(100, 70, 4096), &limits, "a GPU")?;
/// assert_eq!((plan.configuration().splits, plan.split_depth()), (4, 1024));
/// // Two by two tiles of 64 x 64, in one launch.
/// let [launch] = plan.launches() else { panic!() };
/// assert_eq!((plan.grid(launch, 1), launch.m, launch.n), ([2, 2, 4], 100, 70));
/// // Each split stores its part of each tile, and each tile has a counter.
/// assert_eq!(plan.workspace().bytes(), 4 * (4 * 4 * 64 * 64 + 4));
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LaunchPlan {
    gemm: Gemm,
    form: KernelForm,
    configuration: Configuration,
    pub(super) products_per_launch: u32,
    shared_bytes: u32,
    columns_and_stages: [u32; 2],
    split_depth: u32,
    workspace: Workspace,
    launches: Vec<Launch>,
    multiprocessors: u32,
}

impl LaunchPlan {
    /// Plans a product within these limits; `device` is the name for errors.
    ///
    /// A grid's y axis has at most 65535 blocks, so a longer C is computed in panels, one launch
    /// each. An empty C has no launches. The products of a batch share launches if the kernel [has
    /// batches](KernelAbi::has_batches).
    ///
    /// The plan may have fewer splits than requested:
    ///
    /// - at most one per step along K;
    /// - no empty split, where each has `ceil(steps / splits)` whole steps;
    /// - at most 65535, or 8 in a cluster.
    ///
    /// 0 splits count as 1. Clusters are limited to the most that are possible.
    ///
    /// # Errors
    ///
    /// - The errors of [`Gemm::validate`].
    /// - [`Error::Compute`] for a product [in another precision](crate::Compute) than the kernel's.
    /// - [`Error::CannotSplit`], [`Error::Unsuited`] and [`Error::SharedMemory`].
    /// - [`Error::TooLarge`] for a C of too many tiles.
    pub fn new(
        configuration: &Configuration,
        gemm: Gemm,
        limits: &Limits,
        device: &str,
    ) -> Result<Self, Error> {
        gemm.validate()?;
        let kernel = configuration.kernel;
        let gemm = gemm.computed_in(gemm.compute.with(kernel)?);
        let Configuration { splits, clusters, .. } = *configuration;
        let blocks = configuration.blocks_per_multiprocessor;
        let has_clusters = kernel.abi() == KernelAbi::WgmmaClusters;
        let most_blocks = kernel.blocks_per_multiprocessor();
        let blocks = blocks.map_or(most_blocks, |blocks| blocks.min(most_blocks));
        let is_divided = clusters.is_some()
            || blocks != most_blocks
            || configuration.columns.is_some()
            || configuration.transposes_c.is_some();
        if splits > 1 && !kernel.abi().splits_k() || is_divided && !has_clusters {
            return Err(Error::CannotSplit { kernel: kernel.name() });
        }
        if let Some(what) = gemm.unsuited(kernel) {
            return Err(Error::Unsuited { kernel: kernel.name(), what });
        }
        let form = KernelForm::of(&gemm, configuration);
        let shared_bytes = shared_bytes(kernel, &gemm, blocks, limits, device)?;
        let bk = kernel.tile().bk;
        // The steps fit because `validate` accepted k.
        let steps = clusters::steps(&gemm, kernel) as u32;
        let most_splits = match has_clusters {
            true => clusters::most_splits(&gemm, kernel),
            false => MAX_SPLITS.min(limits.grid[2]).max(1),
        };
        let splits = splits.clamp(1, most_splits);
        let split_steps = steps.div_ceil(splits).max(1);
        // No split is empty, except the only one of an empty sum. Blocks of a cluster may have
        // different numbers of steps.
        let splits = if has_clusters { splits } else { steps.div_ceil(split_steps).max(1) };
        let configuration = Configuration {
            splits,
            clusters: None,
            columns: clusters::possible_columns(&form, kernel, configuration.columns),
            transposes_c: form.orientation(&gemm, kernel),
            blocks_per_multiprocessor: (blocks != most_blocks).then_some(1),
            ..*configuration
        };
        let columns = clusters::multiplied_columns(&form, &configuration);
        let mut plan = Self {
            gemm,
            form,
            configuration,
            products_per_launch: 1,
            shared_bytes,
            columns_and_stages: [columns, clusters::stages_in(kernel, columns, shared_bytes)],
            split_depth: split_steps * bk,
            workspace: Workspace::default(),
            launches: Vec::new(),
            multiprocessors: limits.multiprocessors.max(1),
        };
        if gemm.batch > 0 {
            plan.lay_out(clusters, most_splits, limits)?;
        }
        Ok(plan)
    }

    /// Divides C into launches.
    fn lay_out(
        &mut self,
        clusters: Option<u32>,
        most_splits: u32,
        limits: &Limits,
    ) -> Result<(), Error> {
        let (kernel, gemm) = (self.configuration.kernel, &self.form.gemm);
        let splits = self.configuration.splits;
        match kernel.abi() {
            KernelAbi::StreamK => {
                self.products_per_launch = stream_k::products_per_launch(kernel, gemm);
                (self.launches, self.workspace) =
                    stream_k::launches(kernel, gemm, self.products_per_launch, limits);
            }
            KernelAbi::Tf32TensorMap => {
                self.products_per_launch = persistent::products_per_launch(kernel, gemm);
                self.launches = persistent::launches(kernel, gemm, limits);
            }
            KernelAbi::Gemm
            | KernelAbi::Batched
            | KernelAbi::SplitK
            | KernelAbi::TensorMap
            | KernelAbi::Tf32SplitK => {
                if kernel.abi().has_batches() {
                    // `validate` accepted the batch.
                    let products = gemm.batch as u32;
                    self.products_per_launch = (most_splits / splits).clamp(1, products);
                }
                self.launches = panels(kernel, gemm, [limits.grid[0], limits.grid[1]]);
                self.workspace =
                    split_workspace(kernel, splits, self.products_per_launch, &self.launches);
            }
            KernelAbi::Wgmma
            | KernelAbi::WgmmaBatched
            | KernelAbi::WgmmaClusters
            | KernelAbi::MmaPointers => self.lay_out_tiles(clusters, limits)?,
        }
        Ok(())
    }

    /// Plans the single launch for all tiles, for a kernel of 16-bit operands.
    fn lay_out_tiles(&mut self, clusters: Option<u32>, limits: &Limits) -> Result<(), Error> {
        let (kernel, gemm) = (self.configuration.kernel, &self.form.gemm);
        let splits = self.configuration.splits;
        let tiles = tiles(gemm, self.configuration.tile());
        if tiles.saturating_mul(splits.into()) >= MAX_TILES {
            let max = ((MAX_TILES - 1) / u64::from(splits)) as usize;
            let (what, value) = ("C, counted in tiles,", tiles as usize);
            return Err(Error::TooLarge { what, value, max });
        }
        if tiles == 0 {
            return Ok(());
        }
        let clusters =
            clusters.and_then(|asked| clusters::stream_k(gemm, kernel, tiles, splits, asked));
        if gemm.is_grouped() {
            self.workspace = clusters::group_workspace(gemm, kernel);
        }
        // Without a workspace, the kernel's clusters share no tile.
        if let Some(clusters) = clusters {
            self.workspace = clusters::workspace(&self.configuration, clusters);
        }
        self.configuration.clusters = clusters;
        let most = match (kernel.abi(), clusters) {
            _ if gemm.is_grouped() => u64::MAX,
            (KernelAbi::MmaPointers, _) => limits.grid[1].max(1).into(),
            (_, None) => (MAX_TILES - 1) / (tiles * u64::from(splits)),
            (_, Some(_)) => u64::MAX,
        };
        // `validate` accepted the batch and the sizes; the tiles are fewer than 2^31.
        self.products_per_launch = most.min(gemm.batch as u64) as u32;
        self.launches = vec![Launch {
            grid: [tiles as u32, 1],
            m: gemm.m as u32,
            n: gemm.n as u32,
            ..Launch::default()
        }];
        Ok(())
    }

    /// The product that this plan computes.
    ///
    /// Its launches may compute another form of it. A batch that shares B, with contiguous A and C,
    /// is one product of more rows. Some kernels compute the transpose of C.
    pub fn gemm(&self) -> &Gemm {
        &self.gemm
    }

    /// The product in the form of the launches.
    pub(crate) fn form(&self) -> &KernelForm {
        &self.form
    }

    /// The kernel and the division of the product, as launched.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// The most products of a batch per launch.
    ///
    /// Each of the [`launches`](LaunchPlan::launches) is repeated until all products are computed.
    pub fn products_per_launch(&self) -> u32 {
        self.products_per_launch
    }

    /// The grid of a launch for `products` products.
    pub fn grid(&self, launch: &Launch, products: u32) -> [u32; 3] {
        let Configuration { kernel, splits, clusters, .. } = self.configuration;
        let [x, y] = launch.grid;
        // Groups have the tiles of one product.
        let products = if self.form.gemm.is_grouped() { 1 } else { products };
        if kernel.arithmetic() != Arithmetic::Bits16 {
            let z = if kernel.is_persistent() { 1 } else { splits * products };
            return [x, y, z];
        }
        if kernel.abi() == KernelAbi::MmaPointers {
            return [x, products, 1];
        }
        // At most `MAX_TILES` blocks, or those of the requested clusters.
        let blocks = clusters.unwrap_or(x * products) * splits;
        let at_once = match kernel.abi() {
            // Blocks that share no tile take one whole tile after another.
            KernelAbi::WgmmaClusters if splits == 1 && clusters.is_none() => self
                .configuration
                .blocks_per_multiprocessor
                .unwrap_or(kernel.blocks_per_multiprocessor()),
            _ if kernel.is_persistent() => 1,
            _ => u32::MAX,
        };
        let most = self.multiprocessors.saturating_mul(at_once);
        [blocks.min(most), 1, 1]
    }

    /// Blocks of a cluster, along x; `None` for launches without clusters.
    pub fn cluster(&self) -> Option<u32> {
        let Configuration { kernel, splits, .. } = self.configuration;
        match kernel.abi() {
            KernelAbi::WgmmaClusters => Some(splits),
            KernelAbi::Wgmma | KernelAbi::WgmmaBatched => Some(1),
            _ => None,
        }
    }

    /// All launches, each with its first product and its number of products.
    pub(crate) fn all_launches(&self) -> impl Iterator<Item = (usize, u32, &Launch)> {
        let (batch, each) = (self.form.gemm.batch, self.products_per_launch);
        (0..batch).step_by(each as usize).flat_map(move |product| {
            // Fits: at most `each`.
            let products = (batch - product).min(each as usize) as u32;
            self.launches.iter().map(move |launch| (product, products, launch))
        })
    }

    /// The number of launches for all products of a batch.
    pub fn launch_count(&self) -> u64 {
        let rounds = (self.form.gemm.batch as u64).div_ceil(self.products_per_launch.into());
        rounds * self.launches.len() as u64
    }

    /// The number of blocks in all launches.
    pub fn block_count(&self) -> u64 {
        let (batch, each) = (self.form.gemm.batch as u64, u64::from(self.products_per_launch));
        let blocks = |products: u64| -> u64 {
            // At most `each`.
            let grid = |launch| self.grid(launch, products as u32).map(u64::from);
            self.launches.iter().map(|launch| grid(launch).iter().product::<u64>()).sum()
        };
        batch / each * blocks(each) + if batch % each > 0 { blocks(batch % each) } else { 0 }
    }

    /// Threads per block, along x and y.
    pub fn block(&self) -> [u32; 2] {
        self.configuration.kernel.block()
    }

    /// Bytes of dynamic shared memory per block.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// The columns that a tile multiplies, and its stages: 0 if the kernel counts them itself.
    pub(crate) fn columns_and_stages(&self) -> [u32; 2] {
        self.columns_and_stages
    }

    /// Elements of K per split; the last split may have fewer.
    pub fn split_depth(&self) -> u32 {
        self.split_depth
    }

    /// The workspace of shared tiles, which one launch after the other may use.
    pub fn workspace(&self) -> Workspace {
        self.workspace
    }

    /// Whether any launch reads A and B.
    pub(crate) fn reads_operands(&self) -> bool {
        self.gemm.depth() > 0 && !self.launches.is_empty()
    }

    /// The launches for the products that [share launches](LaunchPlan::products_per_launch), in any
    /// order.
    ///
    /// They write different parts of C.
    pub fn launches(&self) -> &[Launch] {
        &self.launches
    }

    /// The entry point for matrices with the kernel's alignment.
    pub(crate) fn entry_point(&self) -> &'static str {
        let Gemm { trans_a, trans_b, compute, .. } = self.form.gemm;
        let kernel: &'static KernelDescriptor = self.configuration.kernel;
        let of_f16 = compute == Compute::F16;
        let grouped = kernel.grouped_entry_points(of_f16);
        if self.form.gemm.is_grouped() && !grouped.is_empty() {
            return grouped[usize::from(trans_b)];
        }
        match kernel.entry_points(of_f16) {
            [only] => only,
            layouts => layouts[usize::from(trans_a) + 2 * usize::from(trans_b)],
        }
    }
}

/// Bytes of dynamic shared memory, if `blocks` share a multiprocessor.
fn shared_bytes(
    kernel: &KernelDescriptor,
    gemm: &Gemm,
    blocks: u32,
    limits: &Limits,
    device: &str,
) -> Result<u32, Error> {
    // Fits because `validate` accepted k.
    let depth = gemm.depth() as u32;
    let (needed, dynamic) = match kernel.shared() {
        Shared::Static(bytes) => (u64::from(bytes), 0),
        Shared::Dynamic(bytes) => (bytes(depth), bytes(depth)),
        Shared::Stages { blocks: most, bytes, .. } => {
            let bytes = u64::from(bytes[usize::from(blocks < most)]);
            (bytes, bytes)
        }
    };
    if needed > u64::from(limits.shared_optin) {
        return Err(Error::SharedMemory {
            kernel: kernel.name(),
            device: device.to_owned(),
            k: gemm.k,
            needed,
            limit: limits.shared_optin,
        });
    }
    Ok(u32::try_from(dynamic).expect("no more than the limit, a u32"))
}

/// The workspace for the splits of the largest launch.
fn split_workspace(
    kernel: &KernelDescriptor,
    splits: u32,
    products: u32,
    launches: &[Launch],
) -> Workspace {
    let tiles = launches.iter().map(|launch| launch.grid.map(u128::from).iter().product::<u128>());
    match tiles.max() {
        Some(tiles) if splits > 1 => {
            let tiles = tiles * u128::from(products);
            let elements = u128::from(splits * kernel.tile().bm * kernel.tile().bn);
            Workspace { partials: elements * tiles, counters: tiles }
        }
        _ => Workspace::default(),
    }
}

#[cfg(test)]
mod tests;
