//! From a [`Table`] to the time a product takes.
//!
//! # Blocks
//!
//! A grid of B blocks gives the busiest of S multiprocessors `w = ceil(B / S)` of them, one
//! after the other in waves of r, as many as fit at once; q are left for the last wave:
//!
//! ```text
//!   blocks = waves * (fixed[r] + steps * step[r]) + fixed[q] + steps * step[q]
//! ```
//!
//! `step[q]` is what q blocks take for a step each. Where three or more fit at once, blocks do not spread evenly over
//! multiprocessors: see `last_wave` and `uneven`. The blocks of a wave begin while those of the one before it still
//! store: where it was measured, a wave after the first takes less. Reading A and B from memory takes its time too: it
//! overlaps with the steps, and not with what a block does before its first one. `fixed` and `step` are `narrow` times as
//! long where C has fewer columns than a tile, and `transposed_b` times where B is read as its transpose. Of the tiles for
//! a short K the last step counts by its fours of K, and bytes of C count more where its rows do not begin on sectors. Where
//! B is copied in pairs, a step of some tiles takes less. Blocks that share a tile of C add up their sums at the end
//! (split-K reduction):
//!
//! ```text
//!   blocks = fixed + max(steps, bytes of A and B / copy rate)      each for all waves
//!   time   = launch + max(blocks, bytes / copy rate) + max(1, w / r) * (reduction_ns + splits * partial_ns)
//! ```
//!
//! # Persistent blocks
//!
//! Persistent blocks go from tile to tile, and where tiles do not fill the last wave, they have the
//! same share of all steps (stream-K).
//!
//! # Batches
//!
//! Products of a batch share a launch where a kernel takes batches, and then are so many more tiles;
//! other kernels compute one after the other.
//!
//! # Operand staging
//!
//! Of a transposed operand a kernel takes a copy, if it cannot read it as it lies. Where a leading
//! dimension is no multiple of 16 bytes, tensor maps need a copy of that matrix first; other kernels have
//! the choice: to stage A and B, or to take another entry point.
//!
//! # Few elements
//!
//! A product of few elements takes what a launch takes, and its error is a matter of luck unless sums are compensated: a
//! kernel that does so is taken, if it is not slower by far. Of one or two products it gains nothing.

use kernels_gpu::abi::{KernelAbi, KernelDescriptor};

use super::copies::copied;
use super::prediction::Prediction;
use super::table::{Costs, Pace, Table};
use crate::plan::{Configuration, Decomposition, KernelForm, MAX_SPLITS};
use crate::plan::{is_aligned, wide_rows};
use crate::problem::Gemm;

/// Rows of tiles that run at the same time: see `kernels_gpu`'s `grouped`.
const GROUP: f64 = 8.0;

/// Waves of blocks up to which a tile of C is shared: beyond, there are enough anyway.
const SHARED_WAVES: u32 = 3;

/// How much of C tiles for a short K may cover for each element that it has: what is measured of them is
/// how they store whole tiles.
const MAX_WASTE: f64 = 4.0;

/// The most steps along K of these.
const MAX_STEPS: u32 = 8;

/// What the two partial sectors at the ends of a run of C cost, in columns stored: where rows do not begin on 32 bytes, a C of
/// 4095 x 7079 took 1.18 and 1.38 times what its bytes take by runs of 128 columns, 1.57 by 64, and 2.12 by 32
/// (`kernels-gpu/NOTES.md`, "A short K").
const PARTIAL_SECTORS: f64 = 36.0;

/// Elements of a sector.
const SECTOR: usize = 8;

/// The most products that a thread adds to one sum, where C does not fill the GPU more than [`SHARED_WAVES`] times: the rms
/// error grows with the root of how many. With more than the shorter of these a kernel must be faster than by itself with
/// short sums, by [`PRICE`] for each doubling.
const LONGEST_SUM: u32 = 2048;
const SHORT_SUM: u32 = 640;
const PRICE: f64 = 0.04;

/// What a staged product takes beside its copies, in launches: that of the copies, and what the product's would otherwise
/// overlap with. With one launch, predictions of 92 staged choices were 2.4 % too short in the mean, and those of 58
/// others 0.5 % too long.
const STAGING_LAUNCHES: f64 = 1.6;

/// What a step takes where B is copied in pairs, of what it takes where its rows are odd, by tiles of 8 x 8 per thread that
/// are wider than high: eight choices for three products took 0.92 to 0.97.
const PAIRS: f64 = 0.95;

/// How much of a block more than its share a multiprocessor gets: see [`uneven`]. With it, and with a reduction for each wave,
/// predictions of 106 choices of several waves of tiles in splits are off by 5.0 % (root mean square), and by 5.7 % without
/// (`odd.txt`, `lost.txt`, `hot-spot-before.txt`).
const UNEVEN: f64 = 0.3;

/// Elements of C, up to which a kernel with compensated sums is taken, from which K on, and how much longer than the fastest it may
/// take. By the model `skinny_n_32x1` takes up to 1.33 times what `tile_16x16x16` does for one step, measured 0.8 to 1.3; where that
/// compensates a short K itself, it takes longer.
const FEW: usize = 128;
const LONG_ENOUGH: usize = 3;
const BY_FAR: f64 = 1.35;

/// What a kernel's [`Costs`] depend on beside a product's sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// C has fewer columns than a tile.
    pub narrow: bool,
    /// B lies as its transpose, and is read so.
    pub transposed_b: bool,
}

/// A device's table, ready to be asked.
///
/// ```
/// use cuda_gemm::{Gemm, Table, select::Model};
///
/// let model = Model::new(&Table::built_in()?[0]);
/// let gemm = Gemm::new(4096, 4096, 4096);
/// let fastest = model.fastest(&gemm).expect("C has elements");
/// println!("{} takes {:.0} us", fastest.configuration, fastest.ns * 1e-3);
/// assert_eq!(model.time(&gemm, &fastest.configuration), Some(fastest));
/// assert_eq!(model.ranking(&gemm, 3)[0], fastest);
/// assert!(model.kernels().iter().any(|costs| costs.kernel.name() == "persistent"));
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone)]
pub struct Model {
    multiprocessors: u32,
    l2_bytes: f64,
    launch_ns: f64,
    /// Bytes per nanosecond.
    copy: f64,
    kernels: Vec<Costs>,
}

impl Model {
    /// Takes a table as it is, for the device it was measured on.
    pub fn new(table: &Table) -> Self {
        Self {
            multiprocessors: table.device().multiprocessors,
            l2_bytes: table.device().l2_bytes as f64,
            launch_ns: table.launch_ns(),
            copy: table.copy_gbytes(),
            kernels: table.kernels().to_vec(),
        }
    }

    /// The rate at which device memory is copied, in GB/s.
    pub(crate) fn copy_gbytes(&self) -> f64 {
        self.copy
    }

    /// The kernels that are chosen from; at least one.
    pub fn kernels(&self) -> &[Costs] {
        &self.kernels
    }

    /// The fastest choice for a product, or, of few elements, one with compensated sums; `None` for a C without
    /// elements, or what [`Gemm::validate`] refuses.
    pub fn fastest(&self, gemm: &Gemm) -> Option<Prediction> {
        let (mut best, mut compensated) = (None, None);
        let keep = |least: &mut Option<Prediction>, estimate: Prediction| {
            if least.is_none_or(|least| estimate.ns < least.ns) {
                *least = Some(estimate);
            }
        };
        self.for_each(gemm, |estimate| {
            keep(&mut best, estimate);
            if is_compensated(estimate.configuration.kernel) {
                keep(&mut compensated, estimate);
            }
        });
        Some(taken(gemm, best?, compensated))
    }

    /// The best `count` choices, [the one that is taken](Model::fastest) and then the fastest first, with no more than two
    /// of the same kernel, and two with copies for it.
    pub fn ranking(&self, gemm: &Gemm, count: usize) -> Vec<Prediction> {
        let mut all = Vec::new();
        self.for_each(gemm, |estimate| all.push(estimate));
        all.sort_by(|a, b| a.ns.total_cmp(&b.ns));
        let compensated = all.iter().find(|estimate| is_compensated(estimate.configuration.kernel));
        let first = all.first().map(|best| taken(gemm, *best, compensated.copied()));
        all.splice(0..0, first);
        let mut ranking: Vec<Prediction> = Vec::new();
        for estimate in all {
            let of_kernel = |other: &&Prediction| {
                let alike =
                    |of: &Prediction| (of.configuration.kernel.name(), of.configuration.staged);
                alike(other) == alike(&estimate)
            };
            if ranking.len() < count
                && !ranking.contains(&estimate)
                && ranking.iter().filter(of_kernel).count() < 2
            {
                ranking.push(estimate);
            }
        }
        ranking
    }

    /// The time of a choice; `None` if the table does not have its kernel, and where there is no
    /// [`fastest`](Model::fastest).
    pub fn time(&self, gemm: &Gemm, choice: &Configuration) -> Option<Prediction> {
        gemm.validate().ok()?;
        let costs =
            self.kernels.iter().find(|costs| costs.kernel.name() == choice.kernel.name())?;
        let work = Work::new(gemm, choice.kernel, choice.staged);
        (work.tiles > 0).then(|| self.estimate(costs, &work, choice.splits))
    }

    /// What holds for a choice's kernel, as it computes this product.
    ///
    /// ```
    /// use cuda_gemm::{Configuration, Gemm, Table, find_kernel, select::Model};
    ///
    /// let model = Model::new(&Table::built_in()?[0]);
    /// let plain = Configuration::new(find_kernel("tile_64x64")?);
    /// let conditions = model.conditions(&Gemm::new(640, 40, 64).transposed(false, true), &plain);
    /// assert!(conditions.narrow && conditions.transposed_b);
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn conditions(&self, gemm: &Gemm, choice: &Configuration) -> Conditions {
        Work::new(gemm, choice.kernel, choice.staged).conditions
    }

    fn for_each(&self, gemm: &Gemm, mut visit: impl FnMut(Prediction)) {
        if gemm.validate().is_err() {
            return;
        }
        let both = self.kernels.iter().flat_map(|costs| [(costs, false), (costs, true)]);
        for (costs, staged) in both {
            let work = Work::new(gemm, costs.kernel, staged);
            let is_wasted = costs.kernel.abi() == KernelAbi::Batched
                && (work.waste > MAX_WASTE || work.steps > MAX_STEPS);
            if work.tiles == 0 || staged && !work.staged || !gemm.suits(costs.kernel) || is_wasted {
                continue;
            }
            if costs.kernel.abi() != KernelAbi::SplitK {
                visit(self.estimate(costs, &work, 1));
                continue;
            }
            // The splits that fill whole waves, and a few in between.
            let waves = SHARED_WAVES * costs.aligned.len() as u32;
            let filling =
                |blocks: u32| u64::from(blocks) * u64::from(self.multiprocessors) / work.tiles;
            let most = filling(waves).min(u64::from(work.steps)) as u32;
            let whole = (1..=waves).map(|blocks| filling(blocks) as u32);
            let doubles = (1..u32::BITS).map(|log| 1 << log).take_while(|splits| *splits < most);
            let with_sums_of = |length| costs.least_splits(&work, length).min(most);
            let fewest = work.whole_splits(with_sums_of(LONGEST_SUM));
            let short = work.whole_splits(with_sums_of(SHORT_SUM));
            let mut splits: Vec<u32> = whole.chain(doubles).chain([short, fewest]).collect();
            for splits in &mut splits {
                *splits = work.whole_splits((*splits).min(most)).max(fewest);
            }
            splits.sort_unstable();
            splits.dedup();
            let (with_long_sums, with_short_sums) =
                splits.split_at(splits.partition_point(|of| *of < short));
            let mut best = f64::INFINITY;
            for splits in with_short_sums {
                let estimate = self.estimate(costs, &work, *splits);
                best = best.min(estimate.ns);
                visit(estimate);
            }
            for splits in with_long_sums {
                let estimate = self.estimate(costs, &work, *splits);
                let doublings = f64::from(short).log2() - f64::from(*splits).log2();
                if estimate.ns * (1.0 + PRICE * doublings) < best {
                    visit(estimate);
                }
            }
        }
    }

    fn estimate(&self, costs: &Costs, work: &Work, splits: u32) -> Prediction {
        let splits = work.whole_splits(splits);
        let read = work.read_bytes(self, costs) / self.copy;
        let memory = read + work.output_bytes / self.copy;
        let (Pace { fixed_ns, step_ns }, reduction) = match costs.kernel.abi() {
            KernelAbi::StreamK => self.persistent(costs, work),
            _ => self.in_waves(costs, work, splits),
        };
        let blocks = fixed_ns + step_ns.max(read);
        let staging = match work.staged_bytes {
            0.0 => 0.0,
            bytes => STAGING_LAUNCHES * self.launch_ns + 2.0 * bytes / self.copy,
        };
        Prediction {
            configuration: Configuration {
                splits,
                staged: work.staged,
                ..Configuration::new(costs.kernel)
            },
            ns: work.rounds * (self.launch_ns + blocks.max(memory) + reduction) + staging,
            memory_bound: Some(memory > blocks || read > step_ns),
        }
    }

    /// What blocks take that come in waves, beside their steps and for all of these, and their split-K
    /// reduction.
    fn in_waves(&self, costs: &Costs, work: &Work, splits: u32) -> (Pace, f64) {
        let all_blocks = work.tiles.saturating_mul(splits.into());
        let blocks = all_blocks.div_ceil(u64::from(self.multiprocessors));
        let resident = costs.aligned.len() as u64;
        let steps = match is_for_short_k(costs.kernel) {
            true => work.fours,
            false => f64::from(work.steps.div_ceil(splits)),
        };
        let wave = |at_once: u64| match at_once {
            0 => Pace { fixed_ns: 0.0, step_ns: 0.0 },
            at_once => costs.pace(work, at_once as usize),
        };
        // What a wave after the first takes of what it would take alone.
        let first = wave(resident);
        let alone = first.of(steps);
        let further = costs.wave(work).filter(|_| alone > 0.0);
        let share = further.map_or(1.0, |wave| wave.of(steps).min(alone) / alone);
        let (waves, last) = (blocks / resident, wave(last_wave(blocks, resident)));
        let uneven = uneven(all_blocks as f64 / f64::from(self.multiprocessors), resident);
        let all = |of: fn(Pace) -> f64| match waves {
            0 => of(last),
            waves => uneven * (of(first) + share * ((waves - 1) as f64 * of(first) + of(last))),
        };
        let time =
            Pace { fixed_ns: all(|pace| pace.fixed_ns), step_ns: steps * all(|pace| pace.step_ns) };
        // A block keeps its place from the next one while it stores its sums and counts itself in.
        let reductions = (blocks as f64 / resident as f64).max(1.0);
        let reduction = if splits > 1 { costs.reduction(f64::from(splits)) } else { 0.0 };
        (time, reductions * reduction)
    }

    /// What persistent blocks take, likewise, and their fix-up.
    fn persistent(&self, costs: &Costs, work: &Work) -> (Pace, f64) {
        // More do not make a difference: they come out even, or nearly.
        let (tiles, steps) = (work.tiles.min(i32::MAX as u64) as u32, work.steps);
        let decomposition = Decomposition::new(tiles, steps, self.multiprocessors);
        let longest = decomposition.longest(tiles, steps) as f64;
        let further_tiles = f64::from(tiles.div_ceil(decomposition.blocks.max(1)) - 1);
        let pace = costs.pace(work, 1);
        let time = Pace {
            fixed_ns: pace.fixed_ns + further_tiles * costs.tile_ns,
            step_ns: longest * pace.step_ns,
        };
        let reduction = match decomposition {
            Decomposition { stream_k_tiles: 0, .. } => 0.0,
            Decomposition { blocks, .. } if tiles > blocks => costs.reduction(2.0),
            Decomposition { blocks, .. } => costs.reduction((blocks.div_ceil(tiles) + 1).into()),
        };
        (time, reduction)
    }
}

/// The fastest choice, or the fastest of those with compensated sums.
fn taken(gemm: &Gemm, best: Prediction, compensated: Option<Prediction>) -> Prediction {
    let elements = gemm.m.saturating_mul(gemm.n).saturating_mul(gemm.batch);
    let helps = elements <= FEW && gemm.depth() >= LONG_ENOUGH;
    compensated.filter(|one| helps && one.ns <= BY_FAR * best.ns).unwrap_or(best)
}

/// Whether the kernel keeps what rounding takes from sums and products, whatever K is, where C has few
/// rows: that for one column does. `tile_16x16x16` does so of a short K alone.
fn is_compensated(kernel: &KernelDescriptor) -> bool {
    kernel.tile().bn == 1
}

/// The number of thread groups of a block that divide a step along K among them (slice-K).
pub(super) fn slices(kernel: &KernelDescriptor) -> u32 {
    let tile = kernel.tile();
    (kernel.threads() * tile.tm * tile.tn / (tile.bm * tile.bn)).max(1)
}

/// Whether a kernel is one of the tiles for a short K: batched, and with one entry point for all matrices.
fn is_for_short_k(descriptor: &KernelDescriptor) -> bool {
    descriptor.abi() == KernelAbi::Batched && descriptor.unaligned().is_none()
}

/// Blocks in the last wave of the busiest multiprocessor, which is the last of `blocks` of them on average, rounded up.
///
/// Where as many blocks as fit run, and one more, the last one begins wherever a block ends first, so that some
/// multiprocessors get two, and others none: of seven products with four or five blocks at once this was measured, and they
/// took 1.11 to 1.28 times what one block more would. With two at once it was not so, nor with a wave more.
fn last_wave(blocks: u64, resident: u64) -> u64 {
    if resident > 2 && blocks == resident + 1 { 2 } else { blocks % resident }
}

/// How many times as long waves take because blocks are not spread evenly, where there are so many for a multiprocessor on
/// average: some get more than the rest, which shows where no multiprocessor has a block less than the busiest. Two at once
/// did not show it.
fn uneven(blocks: f64, resident: u64) -> f64 {
    let is_even = resident <= 2 || blocks <= resident as f64;
    if is_even { 1.0 } else { ((blocks + UNEVEN) / blocks.ceil()).max(1.0) }
}

impl Costs {
    /// That of so many blocks per multiprocessor, with the entry point that this product needs.
    fn pace(&self, work: &Work, blocks: usize) -> Pace {
        let pace = work.pace(self.aligned[blocks - 1], self.unaligned.get(blocks - 1).copied());
        pace.times(self.under(work.conditions))
    }

    /// How many times as long blocks take.
    fn under(&self, Conditions { narrow, transposed_b }: Conditions) -> f64 {
        let factors = [(narrow, self.narrow), (transposed_b, self.transposed_b)];
        factors.into_iter().filter(|(is_so, _)| *is_so).map(|(_, factor)| factor).product()
    }

    /// As many splits as keep sums to so many products.
    fn least_splits(&self, work: &Work, length: u32) -> u32 {
        (work.depth as u32).div_ceil(slices(self.kernel) * length)
    }

    /// What a wave after the first takes, likewise.
    fn wave(&self, work: &Work) -> Option<Pace> {
        let pace = self.aligned_wave.map(|aligned| work.pace(aligned, self.unaligned_wave));
        pace.map(|pace| pace.times(self.under(work.conditions)))
    }

    fn reduction(&self, partials: f64) -> f64 {
        self.reduction_ns + partials * self.partial_ns
    }
}

impl Pace {
    /// A block of so many steps.
    fn of(self, steps: f64) -> f64 {
        self.fixed_ns + steps * self.step_ns
    }
}

/// A product, cut into tiles.
struct Work {
    /// Of all products of a batch that share launches.
    tiles: u64,
    /// Launches of products, one after the other.
    rounds: f64,
    /// Steps along K.
    steps: u32,
    /// The same of the tiles for a short K, which take fours of K, and no more of the last step.
    fours: f64,
    /// Whether the kernel's first entry point serves, with copies if there are any.
    aligned: bool,
    /// Whether there are copies that a kernel could do without.
    staged: bool,
    /// Whether the rows of C are aligned.
    stores_aligned: bool,
    conditions: Conditions,
    /// What a step of the entry point for unaligned matrices takes, of what was measured.
    pairs: f64,
    /// Elements that the tiles cover for each one of C.
    waste: f64,
    /// Rows and columns of tiles.
    rows: f64,
    cols: f64,
    depth: f64,
    /// Bytes of A and B, and of C as often as it is touched.
    input_bytes: f64,
    output_bytes: f64,
    /// Of those of A and B that are copied first.
    staged_bytes: f64,
}

impl Work {
    /// With copies of A and B, if `staged`, where they let the kernel's first entry point serve.
    fn new(gemm: &Gemm, descriptor: &KernelDescriptor, staged: bool) -> Self {
        let form = KernelForm::new(gemm, descriptor);
        let gemm = &form.gemm;
        let tile = descriptor.tile();
        let [m, n, k] = [gemm.m, gemm.n, gemm.depth()].map(|size| size as f64);
        let rows = gemm.m.div_ceil(tile.bm as usize);
        let cols = gemm.n.div_ceil(tile.bn as usize);
        let touched = if gemm.beta == 0.0 { 1.0 } else { 2.0 };
        let wide = wide_rows(gemm, [0; 3]);
        let batch = gemm.batch as f64;
        let is_batched = descriptor.abi().has_batches();
        let (products, rounds) = if is_batched { (batch, 1.0) } else { (1.0, batch) };
        // What all products share is read once.
        let is_one = |stride: usize| stride == 0 && !gemm.pointers;
        let count = |stride: usize, products: f64| if is_one(stride) { 1.0 } else { products };
        let inputs = [(4.0 * m * k, gemm.stride_a), (4.0 * k * n, gemm.stride_b)];
        let bytes = inputs.map(|(bytes, stride)| bytes * count(stride, batch));
        let read = inputs.map(|(bytes, stride)| bytes * count(stride, products));
        let is_copied = copied(&form, descriptor, staged);
        // Copies that the kernel could do without.
        let staged = staged && is_copied != copied(&form, descriptor, false);
        let copied = |i: usize| if is_copied[i] { bytes[i] } else { 0.0 };
        // Measured for the tiles for a short K, whose time is that of storing C; the costs of others are above it.
        let run = gemm.n.min(tile.bn as usize).max(1) as f64;
        let partial_sectors = match is_for_short_k(descriptor) {
            true if !gemm.ldc.is_multiple_of(SECTOR) => PARTIAL_SECTORS / run,
            _ => 0.0,
        };
        let has_pairs = gemm.n.is_multiple_of(2) && gemm.ldb.is_multiple_of(2) && !gemm.trans_b;
        let is_wide = descriptor.abi() == KernelAbi::SplitK && tile.bn > tile.bm && tile.tn == 8;
        Self {
            // Each of the first two fits 31 bits, as `Gemm::validate` accepted the sizes.
            tiles: (rows as u64 * cols as u64).saturating_mul(products as u64),
            rounds,
            steps: gemm.depth().div_ceil(tile.bk as usize) as u32,
            fours: gemm.depth().next_multiple_of(4) as f64 / f64::from(tile.bk),
            aligned: is_aligned(descriptor, &form, [0; 3], is_copied),
            staged,
            stores_aligned: wide[2],
            conditions: Conditions {
                narrow: gemm.n < tile.bn as usize,
                transposed_b: gemm.trans_b && !is_copied[1],
            },
            pairs: if has_pairs && is_wide { PAIRS } else { 1.0 },
            waste: (rows * tile.bm as usize) as f64 * (cols * tile.bn as usize) as f64 / (m * n),
            rows: rows as f64,
            cols: cols as f64,
            depth: k,
            input_bytes: read[0] + read[1],
            output_bytes: 4.0 * touched * m * n * products * (1.0 + partial_sectors),
            staged_bytes: if k == 0.0 { 0.0 } else { copied(0) + copied(1) },
        }
    }

    /// That of the entry point that serves, of those for aligned matrices and for others: the steps
    /// wait for A and B, and C is stored after them.
    fn pace(&self, aligned: Pace, unaligned: Option<Pace>) -> Pace {
        let pairs = |pace: Pace| Pace { step_ns: self.pairs * pace.step_ns, ..pace };
        match unaligned {
            Some(unaligned) if !self.aligned => pairs(unaligned),
            Some(unaligned) if !self.stores_aligned => {
                Pace { fixed_ns: unaligned.fixed_ns.max(aligned.fixed_ns), ..aligned }
            }
            _ => aligned,
        }
    }

    /// As many splits, or as few as whole steps make of them: as [`LaunchPlan::new`] does.
    ///
    /// [`LaunchPlan::new`]: crate::LaunchPlan::new
    fn whole_splits(&self, splits: u32) -> u32 {
        let steps = self.steps.div_ceil(splits.clamp(1, MAX_SPLITS)).max(1);
        self.steps.div_ceil(steps).max(1)
    }

    /// Bytes of A and B that come from the memory: once if the L2 cache holds them; else, for each group of
    /// tiles that runs at the same time, what that needs of them.
    fn read_bytes(&self, model: &Model, costs: &Costs) -> f64 {
        if self.input_bytes <= model.l2_bytes {
            return self.input_bytes;
        }
        let tile = costs.kernel.tile();
        let at_once = costs.aligned.len() as f64 * f64::from(model.multiprocessors);
        let rows = self.rows.min(GROUP);
        let cols = (at_once / rows).clamp(1.0, self.cols);
        let per_tile = f64::from(tile.bm) / cols + f64::from(tile.bn) / rows;
        let again = 4.0 * self.depth * self.tiles as f64 * per_tile;
        again.max(self.input_bytes)
    }
}

#[cfg(test)]
mod tests;
