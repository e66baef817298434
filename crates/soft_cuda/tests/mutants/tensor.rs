//! The kernels for tensor cores, and their mutants.

use kernels_gpu::TENSOR_CORE;
use kernels_gpu::abi::epilogue::{Parameters, operations};
use kernels_gpu::abi::tensor_core::{BK, PANEL, equal_part, even_part, options, stages};
use kernels_gpu::abi::{KernelAbi, KernelDescriptor, Reads, Shared};
use soft_cuda::{
    Device, Fill, LaunchConfig, LaunchOptions, Schedule, Swizzle, TensorElement, TensorMap,
};
use std::mem::offset_of;
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::front::{self, WAIT};
use super::{device, is_asked_for, is_of, mutate, shipped};

/// Steps along K: more than any pipeline has stages.
const STEPS: u32 = 11;
/// Blocks, of which one has two tiles; with a bias one block has all, and so each warpgroup
/// several.
const BLOCKS: u32 = 3;

/// Tiles of C.
const TILES: u32 = 4;
/// Clusters, parts of K, and whether clusters share tiles, where a kernel splits K: a cluster for
/// each tile, each of whose blocks has more steps than its pipeline has stages; clusters with one
/// tile or two; and stream-K, where a cluster's share ends within a tile, or is all tiles.
const WHOLE_TILES: [Division; 2] = [(TILES, 2, false), (3, 1, false)];
const STREAM_K: [Division; 4] = [(3, 1, true), (3, 2, true), (1, 1, true), (1, 2, true)];
type Division = (u32, u32, bool);

/// Small integers, whose sums are exact.
fn value(i: u32, salt: u32) -> f32 {
    ((i.wrapping_mul(31) + i / 100 + salt * 17) % 13) as f32 - 6.0
}

/// The nearest `bf16` to a number, as its bits.
fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// What C is of.
#[derive(Clone, Copy)]
struct Output {
    /// 16 bits, or f32.
    is_half: bool,
    /// `C = A * B + C`, in f32 with a bias for each column and in 16 bits with a residual; or
    /// `C = A * B`, of persistent kernels in 16 bits with a bias.
    accumulates: bool,
    /// Rows of C begin anywhere, and those of A and B where a kernel reads them; or on 16 bytes.
    is_odd: bool,
    /// It is stored transposed.
    is_across: bool,
    /// Without a bias and a residual.
    is_plain: bool,
    /// With SiLU.
    is_silu: bool,
}

/// `C` of two tiles along each dimension; says what is wrong with it.
fn run(
    device: &Device,
    ptx: &str,
    spec: &KernelDescriptor,
    Output { is_half, accumulates, is_odd, is_across, is_plain, is_silu }: Output,
    (clusters, splits, shares_tiles): Division,
    columns: u32,
) -> Result<(), String> {
    let module = device.load(ptx).map_err(|error| error.to_string())?;
    let kernel = module.kernel(spec.name()).unwrap();
    let odd = u32::from(is_odd && reads_anywhere(spec));
    // Persistent blocks zero what no copy fills. Here that is little, so that they do not begin
    // late.
    let m = if spec.is_persistent() { 2 * spec.tile().bm - 8 } else { spec.tile().bm + 8 };
    let [n, k] = [columns + 8 - odd, STEPS * BK - odd];
    // Of C, with a gap behind each row unless its length is odd.
    let [lines, width] = if is_across { [n, m] } else { [m, n] };
    let pitch = width + u32::from(is_odd) - odd;
    // The number of the product's element that lies in a row and a column of C.
    let element = |row, col| if is_across { col * n + row } else { row * n + col };
    let mut params: Vec<u8> = [m, n, k].into_iter().flat_map(u32::to_le_bytes).collect();
    params.extend(1f32.to_le_bytes());
    let mut matrices = Vec::new();
    let has_maps = spec.abi().has_tensor_maps();
    let panel = PANEL.min(spec.tile().bn);
    let rows_of_a = match spec.abi() {
        KernelAbi::WgmmaClusters => even_part(m, PANEL),
        KernelAbi::WgmmaBatched => equal_part(m, spec.tile().bm),
        _ => spec.tile().bm,
    };
    let boxes = [[BK, rows_of_a], [panel, BK]];
    for (salt, (rows, cols, boxes)) in (0..).zip([(m, k, boxes[0]), (k, n, boxes[1])]) {
        let values = (0..rows * cols).map(|i| (value(i, salt).to_bits() >> 16) as u16);
        let bytes: Vec<u8> = values.flat_map(u16::to_le_bytes).collect();
        let address = device.alloc(bytes.len() as u64).unwrap();
        device.write(address, &bytes).unwrap();
        matrices.push((address, rows * cols / 2));
        if has_maps {
            // One product of a batch, where the kernel takes batches.
            let rank = if spec.takes_transposes() { 3 } else { 2 };
            let dims = [cols, rows, 1].map(u64::from);
            let strides = [2 * u64::from(cols), 2 * u64::from(cols * rows)];
            let boxes = [boxes[0], boxes[1], 1];
            let (dims, strides, boxes) = (&dims[..rank], &strides[..rank - 1], &boxes[..rank]);
            // A row of a box is as long as its swizzle.
            let swizzle = match boxes[0] {
                16 => Swizzle::Bytes32,
                32 => Swizzle::Bytes64,
                _ => Swizzle::Bytes128,
            };
            let layout = (swizzle, Fill::Zeros);
            let element = TensorElement::Bf16;
            let map = TensorMap::of(element, address, dims, strides, boxes, layout).unwrap();
            params.resize(params.len().next_multiple_of(64), 0);
            params.extend(map.to_bytes());
        } else {
            params.resize(params.len().next_multiple_of(8), 0);
            params.extend(address.to_le_bytes());
            params.extend(cols.to_le_bytes());
            // One product of a batch.
            params.resize(params.len().next_multiple_of(8) + 8, 0);
        }
    }
    params.extend(f32::from(u8::from(accumulates)).to_le_bytes());
    params.resize(params.len().next_multiple_of(8), 0);
    let c = device.alloc(u64::from(4 * lines * pitch)).unwrap();
    if accumulates {
        let old = |at| match at % pitch < width {
            true => value(element(at / pitch, at % pitch), 2),
            false => 0.0,
        };
        let old: Vec<u8> = match is_half {
            true => (0..lines * pitch).flat_map(|at| to_bf16(old(at)).to_le_bytes()).collect(),
            false => (0..lines * pitch).flat_map(|at| old(at).to_le_bytes()).collect(),
        };
        device.write(c, &old).unwrap();
    }
    // What is added to is kept.
    let words = if is_half { lines * pitch / 2 } else { lines * pitch };
    let (old, new) = if accumulates { ((c, words), (c, 0)) } else { ((c, 0), (c, words)) };
    matrices.push(old);
    params.extend(c.to_le_bytes());
    params.extend(pitch.to_le_bytes());
    if has_maps && spec.takes_transposes() {
        params.extend(1u32.to_le_bytes());
    }
    let half = if is_half { options::HALF_OUTPUT } else { 0 };
    // One cluster has all memory of a multiprocessor, and so more stages.
    let blocks = if clusters == 1 { 1 } else { spec.blocks_per_multiprocessor() };
    let shared = shared_bytes(spec, blocks);
    let narrow = match spec.shared() {
        Shared::Stages { front: Some(front), .. } => {
            // As many as of the widest tile, so that a narrower one also has more steps.
            let lines = [spec.tile().bm, spec.tile().bn];
            options::columns(columns) | options::stages(stages(lines, shared - front))
        }
        _ => 0,
    };
    let across = if is_across { options::TRANSPOSED_C } else { 0 };
    let options = half | across | narrow;
    if options != 0 {
        params.resize(params.len().next_multiple_of(8) + 8, 0);
        params.extend(options.to_le_bytes());
    }
    // No other options, and no epilogue but a bias or a residual.
    params.resize(kernel.params_size(), 0);
    let takes_epilogue = spec.takes_transposes() && !is_plain;
    let has_bias =
        takes_epilogue && accumulates != is_half && (accumulates || spec.is_persistent());
    let has_residual = takes_epilogue && accumulates && is_half;
    // The last parameter, but for those of kernels that split K.
    let behind = if splits_k(spec) { 40 } else { 0 };
    let epilogue = params.len().saturating_sub(behind + size_of::<Parameters>());
    let mut set =
        |at: usize, bytes: &[u8]| params[epilogue + at..][..bytes.len()].copy_from_slice(bytes);
    let floats = |count: u32, salt: u32| {
        let address = device.alloc(u64::from(4 * count)).unwrap();
        let bytes: Vec<u8> = (0..count).flat_map(|i| value(i, salt).to_le_bytes()).collect();
        device.write(address, &bytes).unwrap();
        address.to_le_bytes()
    };
    if has_bias {
        set(offset_of!(Parameters, operations), &operations::BIAS_COLUMN.to_le_bytes());
        set(offset_of!(Parameters, bias), &floats(width, 3));
    }
    if has_residual {
        set(offset_of!(Parameters, operations), &operations::RESIDUAL.to_le_bytes());
        set(offset_of!(Parameters, residual), &floats(m * n, 4));
        set(offset_of!(Parameters, ld_residual), &width.to_le_bytes());
    }
    if is_silu {
        set(offset_of!(Parameters, operations), &operations::SILU.to_le_bytes());
    }
    if splits_k(spec) {
        let tile = u64::from(spec.tile().bm * spec.tile().bn);
        let partials = match shares_tiles {
            true => device.alloc(4 * 2 * u64::from(clusters) * tile).unwrap(),
            false => 0,
        };
        let bytes = 4 * u64::from(clusters * splits * spec.warps_with_sums());
        let counters = device.alloc(bytes).unwrap();
        device.fill_u8(counters, 0, bytes).unwrap();
        // Behind them is A, for a kernel that takes it unaligned, with its stride in a batch.
        let at = params.len() - 40;
        let addresses = [partials, counters, matrices[0].0];
        params.splice(at..at + 24, addresses.into_iter().flat_map(u64::to_le_bytes));
        params.splice(at + 24..at + 28, k.to_le_bytes());
    }
    let config = LaunchConfig {
        grid: [
            match spec.is_persistent() {
                true if has_bias => 1,
                true => BLOCKS,
                false => clusters * splits,
            },
            1,
            1,
        ],
        block: [spec.threads(), 1, 1],
        dynamic_shared: shared,
    };
    let cluster = [splits, 1, 1];
    let early = starts_early(spec);
    if early {
        front::launch(device, matrices.try_into().unwrap(), new);
    }
    let options = LaunchOptions { early, ..LaunchOptions::default() };
    let launched = device.launch_with(&kernel, config, cluster, &params, options);
    launched.map_err(|error| error.to_string())?;
    let mut bytes = vec![0; 4 * (lines * pitch) as usize];
    device.read(c, &mut bytes).unwrap();
    let [a, b_across] = [
        (0..m * k).map(|i| value(i, 0)).collect::<Vec<f32>>(),
        (0..n * k).map(|i| value(i % k * n + i / k, 1)).collect(),
    ];
    // Every third element is enough to see each register.
    let is_wrong = |i: u32| {
        let [row, col] = [i / n * k, i % n * k].map(|at| at as usize..(at + k) as usize);
        let products = a[row].iter().zip(&b_across[col]).map(|(a, b)| a * b);
        let [line, place] = if is_across { [i % n, i / n] } else { [i / n, i % n] };
        let (sum, at) = (products.sum::<f32>(), (line * pitch + place) as usize);
        let sum = if accumulates { sum + value(i, 2) } else { sum };
        let sum = if has_bias { sum + value(place, 3) } else { sum };
        let sum = if has_residual { sum + value(line * width + place, 4) } else { sum };
        let stored = match is_half {
            true => f32::from_bits(u32::from(u16::from_le_bytes(bytes.as_chunks().0[at])) << 16),
            false => f32::from_le_bytes(bytes.as_chunks().0[at]),
        };
        match (is_silu, is_half) {
            // Its approximations, and a rounding.
            (true, _) => (stored - sum / (1.0 + (-sum).exp())).abs() > 0.01 * sum.abs(),
            (false, true) => stored.to_bits() >> 16 != u32::from(to_bf16(sum)),
            (false, false) => stored != sum,
        }
    };
    match (0..m * n).step_by(3).find(|&i| is_wrong(i)) {
        Some(i) => Err(format!("element {i}")),
        None => Ok(()),
    }
}

/// Whether blocks of a cluster share a tile, each with its part of K.
fn splits_k(spec: &KernelDescriptor) -> bool {
    spec.abi() == KernelAbi::WgmmaClusters
}

/// Whether rows of A and of B may begin anywhere.
fn reads_anywhere(spec: &KernelDescriptor) -> bool {
    [false, true].map(|is_b| spec.reads(is_b, false)) == [Reads::Anywhere; 2]
}

/// Dynamic shared memory per block where `blocks` share a multiprocessor.
fn shared_bytes(spec: &KernelDescriptor, blocks: u32) -> u32 {
    let Shared::Stages { blocks: most, bytes, .. } = spec.shared() else {
        unreachable!("a launch chooses the stages of every kernel for 16 bits");
    };
    bytes[usize::from(blocks < most)]
}

/// Whether it waits for the launch in front, as those that `auto` chooses from do.
fn starts_early(spec: &KernelDescriptor) -> bool {
    let is_chosen = spec.abi().has_tensor_maps() || reads_anywhere(spec);
    is_chosen && spec.takes_transposes()
}

fn failure(ptx: &str, spec: &KernelDescriptor) -> Option<String> {
    let has_halves = spec.takes_transposes();
    let (whole, streams) = match splits_k(spec) {
        true => (&WHOLE_TILES[..], &STREAM_K[..]),
        false => (&[(TILES, 1, false)][..], &[][..]),
    };
    let of = |is_half, accumulates| Output {
        is_half,
        accumulates,
        is_odd: false,
        is_across: false,
        is_plain: false,
        is_silu: false,
    };
    let plain = of(false, false);
    let outputs = match (has_halves, splits_k(spec)) {
        (false, _) => vec![plain],
        (true, true) => vec![plain, of(true, false), of(true, true), of(false, true)],
        // Sums are stored in other ways for each.
        (true, false) => {
            let only_accumulates = Output { is_plain: true, ..of(true, true) };
            let silu = |is_half| Output { is_plain: true, is_silu: true, ..of(is_half, false) };
            let summed =
                [plain, of(true, true), only_accumulates, of(true, false), of(false, true)];
            summed.into_iter().chain([silu(false), silu(true)]).collect()
        }
    };
    // Rows that begin anywhere take other ways than those that begin on 16 bytes.
    let odd = if has_halves { vec![of(true, true), of(false, true)] } else { vec![] };
    let odd = odd.into_iter().map(|output| Output { is_odd: true, ..output });
    let across = if splits_k(spec) { outputs.clone() } else { vec![] };
    let across = across.into_iter().map(|output| Output { is_across: true, ..output });
    let outputs = outputs.into_iter().chain(odd).chain(across);
    let all = spec.tile().bn;
    let outputs = outputs.flat_map(|output| whole.iter().map(move |one| (*one, output, all)));
    let runs = outputs.chain(streams.iter().map(|division| (*division, plain, all)));
    // By blocks that have all of K, which is more steps than there are stages.
    let runs = runs.chain(widths(spec).map(|columns| (WHOLE_TILES[1], plain, columns)));
    let runs = runs.flat_map(|(division, output, columns)| {
        [Schedule::InOrder, Schedule::Adversarial]
            .map(|schedule| (schedule, output, division, columns))
    });
    let run = |(schedule, output, division, columns)| {
        run(&device(schedule, spec.name()), ptx, spec, output, division, columns).err()
    };
    let mut runs = runs;
    runs.find_map(run)
}

/// Columns of narrower tiles, in whole panels of B.
fn widths(spec: &KernelDescriptor) -> impl Iterator<Item = u32> {
    let panels = if spec.narrows() { (spec.tile().bn - 1) / PANEL } else { 0 };
    (1..=panels).map(|panels| panels * PANEL)
}

pub fn entries() -> Vec<(&'static KernelDescriptor, String)> {
    TENSOR_CORE.iter().map(|&spec| (spec, shipped(spec.entry_points(false)[0]))).collect()
}

#[test]
fn kernels_for_tensor_cores_pass_all_checks() {
    for (spec, ptx) in entries().into_iter().filter(|(spec, _)| is_asked_for(spec.name())) {
        assert_eq!(failure(&ptx, spec), None, "{}", spec.name());
    }
}

/// Mutants that survive: the kernel, how the instruction begins, and why.
pub const SURVIVORS: [(&str, &str, &str); 15] = [
    ("wgmma*", WAIT, FRONT_ENDED),
    ("wgmma", "barrier.sync", WHOLE),
    ("wgmma_split_64x*", "barrier.sync", WHOLE),
    ("wgmma_split*", "mbarrier.init", FEWER),
    ("wgmma_split*", "mbarrier.try_wait", FIRST_STEP),
    ("wgmma_persistent", "mbarrier.try_wait", STAGGER),
    ("wgmma_128x192", "mbarrier.try_wait", STAGGER),
    ("wgmma_128x128", "mbarrier.try_wait", STAGGER),
    ("mma*", SYNC, LAST),
    ("wgmma*", SYNC, LAST),
    ("wgmma_pingpong", "wgmma.fence", SECOND),
    ("wgmma_pingpong", "wgmma.wait_group.sync.aligned \t0", BOTH),
    ("wgmma_split_64x16_align1", "fence.proxy.async", IN_A),
    ("wgmma_split_64x32_align1", "fence.proxy.async", IN_A),
    ("wgmma_split_64x64_align1", "fence.proxy.async.shared", IN_A),
];
const FENCE: &str = "wgmma.fence";
const SYNC: &str = "bar.warp.sync";
const LAST: &str = "a lane next stages where it alone has read; or the last of a tile, behind which the warp stages no \
    more, or only after the other warpgroup";
const SECOND: &str =
    "of the second half of a step: nothing has touched the sums since that of the first";
const BOTH: &str = "one for the sums of each half, side by side: each waits for all";
const FEWER: &str = "of the loop for eight stages at a time, of which there are fewer";
const FRONT_ENDED: &str = "where K is 0, which no product here has; or of consumers, which come after the producer's: they \
    wait for tiles that it has loaded";
const WHOLE: &str =
    "behind the wait for a product, which is complete for all warps of the only warpgroup";
const FIRST_STEP: &str = "a tile's first step, apart from the loop: nothing has been copied to its stage, or all of it has been read";
const IN_A: &str = "sums lie in place of a stage of A, which threads store, and no bulk copy; or of zeros, where this \
    layout has none";
const STAGGER: &str = "it has the second warpgroup begin later, for speed alone";

/// Of how many mutants of a kernel CI tries one.
const SHARE: usize = 48;

#[test]
fn some_mutants_for_tensor_cores_are_killed() {
    kill(SHARE);
}

#[test]
#[ignore = "takes several minutes: more than five hundred mutants"]
fn mutants_for_tensor_cores_are_killed() {
    kill(1);
}

/// Tries one of `share` mutants of each kernel, and all that lack a wait for the launch in front.
/// Which ones differs from kernel to kernel: much of their code is the same.
fn kill(share: usize) {
    let (mut killed, mut unexplained) = (0, 0);
    let entries = entries().into_iter().enumerate();
    for (kernel, (spec, ptx)) in entries.filter(|(_, (spec, _))| is_asked_for(spec.name())) {
        let lines: Vec<&str> = ptx.lines().collect();
        let (mut waits, mut left, mut left_syncs) = (0, 0, 0);
        let mut groups = 0;
        let mutants = lines.iter().enumerate().filter_map(|(at, line)| Some((at, mutate(line)?)));
        let is_tried =
            |number, at: usize| (number + kernel) % share == 0 || lines[at].contains(WAIT);
        let mutants = (0..).zip(mutants).filter(|(number, (at, _))| is_tried(*number, *at));
        let mutants: Vec<(usize, String)> = mutants.map(|(_, mutant)| mutant).collect();
        let is_killed = |(at, mutant): &(usize, String)| {
            let mut lines = lines.clone();
            lines[*at] = mutant;
            failure(&lines.join("\n"), spec).is_some()
        };
        for ((at, _), is_killed) in mutants.iter().zip(all(&mutants, is_killed)) {
            let line = lines[*at];
            if is_killed {
                killed += 1;
                waits += usize::from(line.contains(WAIT));
                groups += usize::from(line.contains(FENCE));
                continue;
            }
            let known = SURVIVORS.iter().find(|survivor| is_of(survivor, spec.name(), line));
            let why = known.map_or("NOT EXPLAINED", |(.., why)| why);
            println!("{}, line {}, `{}`: {why}", spec.name(), at + 1, line.trim());
            unexplained += usize::from(known.is_none());
            left += usize::from(line.contains("mbarrier.try_wait"));
            left_syncs += usize::from(line.contains(SYNC));
        }
        assert_eq!(waits, usize::from(starts_early(spec)), "{}: waits", spec.name());
        // Those of the widths that are run.
        let widths = 1 + widths(spec).count();
        assert!(share > 1 || !spec.narrows() || groups == widths, "{}: groups", spec.name());
        // Of a share there are seldom two of them.
        assert!(left <= 1, "{}: what explains one wait does not explain {left}", spec.name());
        // One behind each way to store a tile that ends with a part.
        let most = if splits_k(spec) { 9 } else { 7 };
        assert!(
            left_syncs <= most,
            "{}: what explains {most} does not explain {left_syncs}",
            spec.name()
        );
    }
    println!("{killed} killed");
    assert_eq!(unexplained, 0);
}

/// What `is_killed` says of each, asked by as many threads as there are processors: each device
/// here has one thread.
///
/// These are no threads of rayon: one that waits for a device takes up another mutant meanwhile,
/// and so on, until its stack is full.
fn all<T: Sync>(mutants: &[T], is_killed: impl Fn(&T) -> bool + Sync) -> Vec<bool> {
    let next = AtomicUsize::new(0);
    let answers: Vec<OnceLock<bool>> = mutants.iter().map(|_| OnceLock::new()).collect();
    let work = || {
        while let Some(at) = Some(next.fetch_add(1, Relaxed)).filter(|at| *at < mutants.len()) {
            answers[at].set(is_killed(&mutants[at])).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    answers.into_iter().map(|answer| answer.into_inner().unwrap()).collect()
}
