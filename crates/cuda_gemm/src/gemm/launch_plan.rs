//! The plan of a product: launches of one rung on one device.

use kernels_gpu::abi::{KernelAbi, KernelDescriptor, Shared};

use super::compute::Compute;
use super::form::KernelForm;
use super::operation::Gemm;
use super::panel::{Launch, Workspace, panels};
use super::persistent;
use super::stream_k;
use crate::error::Error;
use crate::limits::Limits;

/// The most blocks along a grid's z axis, on every device.
pub(crate) const MAX_SPLITS: u32 = 65535;

/// A [`Gemm`] as launches of one rung on one device.
///
/// ```
/// use cuda_gemm::{Gemm, Limits, LaunchPlan, find_kernel};
///
/// let limits = Limits {
///     grid: [i32::MAX as u32, 65535, 65535],
///     shared_default: 48 << 10,
///     shared_optin: 227 << 10,
///     multiprocessors: 80,
/// };
/// let kernel = find_kernel("tile_64x64")?;
/// let plan = LaunchPlan::split(kernel, Gemm::new(100, 70, 4096), 4, &limits, "a GPU")?;
/// assert_eq!((plan.splits(), plan.split_depth()), (4, 1024));
/// // Two by two tiles of 64 x 64, in one launch.
/// let [launch] = plan.launches() else { panic!() };
/// assert_eq!((launch.grid, launch.m, launch.n), ([2, 2], 100, 70));
/// // Each split stores its part of each tile, and each tile has a counter.
/// assert_eq!(plan.workspace().bytes(), 4 * (4 * 4 * 64 * 64 + 4));
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LaunchPlan {
    gemm: Gemm,
    form: KernelForm,
    pub(crate) products_per_launch: u32,
    /// Whether these share the blocks of a launch, too.
    share_blocks: bool,
    block: [u32; 2],
    shared_bytes: u32,
    splits: u32,
    split_depth: u32,
    workspace: Workspace,
    launches: Vec<Launch>,
}

impl LaunchPlan {
    /// Plans a product for a rung, on a device with these limits; `device` is the
    /// name to put into errors.
    ///
    /// A grid's y axis is short (65535 blocks), so a C that is longer than that many
    /// tiles is done in panels, one launch each. Nothing is launched for an empty C. A kernel
    /// with [`KernelAbi::StreamK`] has persistent blocks, about one per multiprocessor. The products
    /// of a batch share launches if the kernel [has batches](KernelAbi::has_batches).
    ///
    /// # Errors
    ///
    /// What [`Gemm::validate`] finds, [`Error::Compute`] for a product [in another
    /// precision](Compute) than the kernel's, [`Error::Unsuited`] and [`Error::SharedMemory`].
    pub fn new(
        descriptor: &KernelDescriptor,
        gemm: Gemm,
        limits: &Limits,
        device: &str,
    ) -> Result<Self, Error> {
        Self::split(descriptor, gemm, 1, limits, device)
    }

    /// As [`LaunchPlan::new`], with K split among `splits` blocks per tile of C, for a kernel with
    /// [`KernelAbi::SplitK`] or [`KernelAbi::Tf32SplitK`]. There are fewer splits if K has fewer steps, or where whole steps
    /// do not go further, and at most 65535; 0 counts as 1.
    ///
    /// # Errors
    ///
    /// Those of [`LaunchPlan::new`], and [`Error::CannotSplit`] for any other kernel.
    pub fn split(
        descriptor: &KernelDescriptor,
        gemm: Gemm,
        splits: u32,
        limits: &Limits,
        device: &str,
    ) -> Result<Self, Error> {
        gemm.validate()?;
        let own = Compute::of_kernel(descriptor);
        let gemm = gemm.computed_in(gemm.compute.by_hand(descriptor.name(), own)?);
        let form = KernelForm::new(&gemm, descriptor);
        let canonical = &form.gemm;
        if splits > 1 && !descriptor.abi().splits_k() {
            return Err(Error::CannotSplit { kernel: descriptor.name() });
        }
        if let Some(what) = gemm.unsuited(descriptor) {
            return Err(Error::Unsuited { kernel: descriptor.name(), what });
        }
        // `depth` fits because `validate` accepted k.
        let depth = gemm.depth() as u32;
        let steps = depth.div_ceil(descriptor.tile().bk);
        let most_splits = MAX_SPLITS.min(limits.grid[2]).max(1);
        let split_steps = steps.div_ceil(splits.clamp(1, most_splits)).max(1);
        // No split is empty, but for the only one of an empty sum.
        let splits = steps.div_ceil(split_steps).max(1);
        let (needed, dynamic) = match descriptor.shared() {
            Shared::Static(bytes) => (u64::from(bytes), 0),
            Shared::Dynamic(bytes) => (bytes(depth), bytes(depth)),
        };
        if needed > u64::from(limits.shared_optin) {
            return Err(Error::SharedMemory {
                kernel: descriptor.name(),
                device: device.to_owned(),
                k: gemm.k,
                needed,
                limit: limits.shared_optin,
            });
        }
        let shared_bytes = u32::try_from(dynamic).expect("no more than the limit, a u32");
        let products_per_launch = match descriptor.abi() {
            // `validate` accepted the batch.
            KernelAbi::Batched | KernelAbi::SplitK | KernelAbi::Tf32SplitK => {
                (most_splits / splits).clamp(1, canonical.batch.max(1) as u32)
            }
            KernelAbi::StreamK => stream_k::products_per_launch(descriptor, canonical),
            KernelAbi::Tf32TensorMap => persistent::products_per_launch(descriptor, canonical),
            KernelAbi::Gemm | KernelAbi::TensorMap => 1,
        };
        let (launches, workspace) = match descriptor.abi() {
            _ if canonical.batch == 0 => Default::default(),
            KernelAbi::StreamK => {
                stream_k::launches(descriptor, canonical, products_per_launch, limits)
            }
            KernelAbi::Tf32TensorMap => {
                (persistent::launches(descriptor, canonical, limits), Workspace::default())
            }
            KernelAbi::Gemm
            | KernelAbi::Batched
            | KernelAbi::SplitK
            | KernelAbi::TensorMap
            | KernelAbi::Tf32SplitK => {
                let launches = panels(descriptor, canonical, [limits.grid[0], limits.grid[1]]);
                let workspace = split_workspace(descriptor, splits, products_per_launch, &launches);
                (launches, workspace)
            }
        };
        let split_depth = split_steps * descriptor.tile().bk;
        let block = descriptor.block();
        Ok(Self {
            gemm,
            form,
            products_per_launch,
            share_blocks: matches!(descriptor.abi(), KernelAbi::StreamK | KernelAbi::Tf32TensorMap),
            block,
            shared_bytes,
            splits,
            split_depth,
            workspace,
            launches,
        })
    }

    /// The product this plan computes. Its launches may be those of another form of it: products of
    /// a batch that share B, and whose A and C follow each other, are one product of more rows, and a
    /// kernel for few columns computes a C of few rows as its transpose.
    pub fn gemm(&self) -> &Gemm {
        &self.gemm
    }

    /// The product in the form that is launched.
    pub(crate) fn form(&self) -> &KernelForm {
        &self.form
    }

    /// How many products of a batch each launch computes at most; there is one launch after the
    /// other, of each of [`launches`](LaunchPlan::launches), for all of them.
    pub fn products_per_launch(&self) -> u32 {
        self.products_per_launch
    }

    /// Launches in all, for all products of a batch.
    pub fn launch_count(&self) -> u64 {
        self.rounds() * self.launches.len() as u64
    }

    /// How often there are all launches.
    fn rounds(&self) -> u64 {
        (self.form.gemm.batch as u64).div_ceil(self.products_per_launch.into())
    }

    /// Blocks of all launches.
    pub fn block_count(&self) -> u64 {
        let grids = self.launches.iter().map(|launch| launch.grid.map(u64::from));
        let blocks: u64 = grids.map(|[x, y]| x * y).sum();
        let times = if self.share_blocks { self.rounds() } else { self.form.gemm.batch as u64 };
        blocks * u64::from(self.splits) * times
    }

    /// Threads per block, along x and y.
    pub fn block(&self) -> [u32; 2] {
        self.block
    }

    /// Bytes of dynamic shared memory that each launch passes.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// How many blocks share each tile of C, each with its part of K.
    pub fn splits(&self) -> u32 {
        self.splits
    }

    /// How much of K a split sums over, in elements; the last may have less.
    pub fn split_depth(&self) -> u32 {
        self.split_depth
    }

    /// What shared tiles need; the launches may use it one after the other.
    pub fn workspace(&self) -> Workspace {
        self.workspace
    }

    /// Whether any launch reads A and B.
    pub(crate) fn reads_operands(&self) -> bool {
        self.gemm.depth() > 0 && !self.launches.is_empty()
    }

    /// The launches for one product, or as many as [share
    /// launches](LaunchPlan::products_per_launch), in any order: they write different parts of C.
    pub fn launches(&self) -> &[Launch] {
        &self.launches
    }
}

/// What the splits of the largest launch need.
fn split_workspace(
    descriptor: &KernelDescriptor,
    splits: u32,
    products: u32,
    launches: &[Launch],
) -> Workspace {
    let tiles = launches.iter().map(|launch| launch.grid.map(u128::from).iter().product::<u128>());
    match tiles.max() {
        Some(tiles) if splits > 1 => {
            let tiles = tiles * u128::from(products);
            let elements = u128::from(splits * descriptor.tile().bm * descriptor.tile().bn);
            Workspace { partials: elements * tiles, counters: tiles }
        }
        _ => Workspace::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::operation::MAX_DIMENSION;
    use crate::launch::find_kernel;
    use kernels_gpu::abi::{GridOrder, Tile};
    use kernels_gpu::{LADDER, f32_kernels};

    /// The x axis walks the rows of C, with tiles of 16 x 16.
    fn rows_along_x() -> &'static KernelDescriptor {
        let descriptor = find_kernel("naive").unwrap();
        let Tile { bm, bn, .. } = descriptor.tile();
        assert!(matches!(descriptor.grid(), GridOrder::RowsAlongX) && [bm, bn] == [16, 16]);
        descriptor
    }

    /// The x axis walks the columns of C, with tiles of 32 x 32.
    fn columns_along_x() -> &'static KernelDescriptor {
        let descriptor = find_kernel("coalesced").unwrap();
        let Tile { bm, bn, .. } = descriptor.tile();
        assert!(matches!(descriptor.grid(), GridOrder::ColumnsAlongX) && [bm, bn] == [32, 32]);
        descriptor
    }

    fn plan(descriptor: &KernelDescriptor, gemm: Gemm) -> Result<LaunchPlan, Error> {
        LaunchPlan::new(descriptor, gemm, &Limits::H200, "a device")
    }

    #[test]
    fn every_rung_fits_every_device() {
        for descriptor in f32_kernels() {
            assert!(descriptor.threads() <= 1024, "{}", descriptor.name());
            plan(descriptor, Gemm::new(300, 200, 100)).unwrap();
            // So that a panel of an aligned matrix is aligned: B and C are cut into columns.
            let is_cut = descriptor
                .unaligned()
                .is_some_and(|other| other.vectorized[1] || other.vectorized[2]);
            assert!(!is_cut || descriptor.tile().bn % 4 == 0, "{}", descriptor.name());
        }
    }

    #[test]
    fn the_grid_covers_c_exactly() {
        let gemm = Gemm::new(33, 65, 5);
        assert_eq!(plan(rows_along_x(), gemm).unwrap().launches()[0].grid, [3, 5]);
        assert_eq!(plan(columns_along_x(), gemm).unwrap().launches()[0].grid, [3, 2]);
        let gemm = Gemm::new(32, 64, 5);
        assert_eq!(plan(rows_along_x(), gemm).unwrap().launches()[0].grid, [2, 4]);
        assert_eq!(plan(columns_along_x(), gemm).unwrap().launches()[0].grid, [2, 1]);
    }

    #[test]
    fn a_tall_c_is_cut_into_panels() {
        let m = 65535 * 32 * 2 + 7;
        let gemm = Gemm::new(m, 3, 5).leading_dimensions(9, 4, 6);
        let plan = plan(columns_along_x(), gemm).unwrap();
        let [first, second, last] = plan.launches() else { panic!("{:?}", plan.launches()) };
        assert_eq!(first.grid, [1, 65535]);
        assert_eq!((first.row, first.col), (0, 0));
        assert_eq!((second.row, second.col), (65535 * 32, 0));
        assert_eq!((last.grid, last.m, last.n), ([1, 1], 7, 3));
        assert_eq!(plan.launches().iter().map(|l| l.m as usize).sum::<usize>(), m);
    }

    #[test]
    fn a_wide_c_is_cut_where_y_walks_columns() {
        let n = 65535 * 16 + 1;
        let plan = plan(rows_along_x(), Gemm::new(3, n, 2)).unwrap();
        let [first, last] = plan.launches() else { panic!("{:?}", plan.launches()) };
        assert_eq!((first.grid, first.n), ([1, 65535], 65535 * 16));
        assert_eq!((last.grid, last.n), ([1, 1], 1));
        assert_eq!((last.row, last.col), (0, 65535 * 16));
    }

    #[test]
    fn an_empty_c_launches_nothing_and_an_empty_k_does() {
        for descriptor in LADDER {
            assert!(plan(descriptor, Gemm::new(0, 5, 5)).unwrap().launches().is_empty());
            assert!(plan(descriptor, Gemm::new(5, 0, 5)).unwrap().launches().is_empty());
            assert_eq!(plan(descriptor, Gemm::new(5, 5, 0)).unwrap().launches().len(), 1);
        }
    }

    #[test]
    fn splits_are_whole_steps_and_never_empty() {
        let descriptor = find_kernel("tile_64x64").unwrap();
        let bk = descriptor.tile().bk as usize;
        let plan = |k, splits| {
            LaunchPlan::split(descriptor, Gemm::new(65, 127, k), splits, &Limits::H200, "a device")
                .unwrap()
        };
        for k in 0..20 * bk {
            for splits in [0, 1, 2, 3, 7, 65536, u32::MAX] {
                let plan = plan(k, splits);
                let (count, depth) = (plan.splits() as usize, plan.split_depth() as usize);
                assert!((1..=splits.clamp(1, MAX_SPLITS)).contains(&plan.splits()));
                assert!(depth > 0 && depth.is_multiple_of(bk) && count * depth >= k);
                assert!(count == 1 || (count - 1) * depth < k, "{k} {splits}: {count} of {depth}");
            }
        }
        // Two by two tiles of 64 x 64.
        let workspace = plan(10 * bk, 3).workspace();
        assert_eq!(workspace, Workspace { partials: 3 * 4 * 64 * 64, counters: 4 });
        assert_eq!(workspace.bytes(), 4 * (3 * 4 * 64 * 64 + 4));
        assert_eq!(plan(10 * bk, 1).workspace(), Workspace::default());
        // Up to 65535 blocks along z, 3 for each product.
        let batch = Gemm::new(65, 127, 10 * bk).batched(30_000, [0, 0, 65 * 127]);
        let plan = LaunchPlan::split(descriptor, batch, 3, &Limits::H200, "a device").unwrap();
        assert_eq!((plan.splits(), plan.products_per_launch()), (3, 21845));
        assert_eq!((plan.launch_count(), plan.block_count()), (2, 4 * 3 * 30_000));
        assert_eq!(plan.workspace().counters, 4 * 21845);
        let plan = LaunchPlan::new(LADDER[0], batch, &Limits::H200, "a device").unwrap();
        assert_eq!((plan.launches().len(), plan.products_per_launch()), (1, 1));
        assert_eq!((plan.launch_count(), plan.block_count()), (30_000, 5 * 8 * 30_000));
        let refused =
            LaunchPlan::split(LADDER[0], Gemm::new(1, 1, 1), 2, &Limits::H200, "a device");
        assert!(matches!(refused, Err(Error::CannotSplit { kernel: "naive" })));
    }

    #[test]
    fn a_kernel_refuses_every_precision_that_it_is_not_for() {
        let gemm = Gemm::new(5, 6, 7);
        for descriptor in f32_kernels() {
            let own = Compute::of_kernel(descriptor);
            for compute in Compute::ALL {
                match plan(descriptor, gemm.computed_in(compute)) {
                    // The default says nothing.
                    Ok(plan) => {
                        assert!(compute == own || compute == Compute::F32);
                        assert_eq!(plan.gemm().compute, own);
                    }
                    Err(refused) => {
                        assert!(compute != own && compute != Compute::F32);
                        let says = format!("{own}: say `.computed_in(Compute::{own:?})`");
                        assert!(refused.to_string().contains(&says), "{refused}");
                    }
                }
            }
        }
    }

    #[test]
    fn sizes_are_checked() {
        let naive = LADDER[0];
        let big = MAX_DIMENSION + 1;
        for gemm in [Gemm::new(big, 1, 1), Gemm::new(1, big, 1), Gemm::new(1, 1, usize::MAX)] {
            assert!(matches!(plan(naive, gemm), Err(Error::TooLarge { .. })), "{gemm:?}");
        }
        let gemm = Gemm::new(2, 3, 4);
        let narrow = gemm.transposed(true, true).leading_dimensions(2, 3, 3);
        for gemm in [gemm.leading_dimensions(3, 3, 3), gemm.leading_dimensions(4, 2, 3), narrow] {
            assert!(matches!(plan(naive, gemm), Err(Error::LeadingDimension { .. })), "{gemm:?}");
        }
        let gemm = Gemm::new(1, 1, 1).scaled(f32::NAN, 0.0);
        assert!(matches!(plan(naive, gemm), Err(Error::NotFinite { what: "alpha", .. })));
        // The largest accepted: nothing may overflow on the way.
        let max = MAX_DIMENSION;
        assert!(plan(naive, Gemm::new(max, max, max)).is_ok());
        assert!(Gemm::new(max, max, max).bytes() > u128::from(u64::MAX / 2));
        let max = usize::MAX;
        assert_eq!(Gemm::new(max, max, max).bytes(), u128::MAX);
    }

    #[test]
    fn too_much_shared_memory_names_both_numbers() {
        let hungry = find_kernel("smem_full").unwrap();
        assert_eq!(plan(hungry, Gemm::new(1, 1, 200)).unwrap().shared_bytes(), 51200);
        let error = plan(hungry, Gemm::new(1, 1, 4096)).unwrap_err().to_string();
        assert!(error.contains("1048576") && error.contains("232448"), "{error}");
        // With alpha 0 nothing is summed, so nothing is stored.
        assert!(plan(hungry, Gemm::new(1, 1, 4096).scaled(0.0, 1.0)).is_ok());
    }
}
