//! The kernels for tensor cores, and their mutants.

use kernels_gpu::tensor_core::{BK, PANEL};
use kernels_gpu::{InputType, TENSOR_CORE, TensorCoreAbi, TensorCoreDescriptor};
use soft_cuda::{Device, Fill, LaunchConfig, Schedule, Swizzle, TensorElement, TensorMap};

use super::{device, mutate, shipped};

/// Steps along K: more than any pipeline has stages.
const STEPS: u32 = 11;
/// Blocks, of which one has two tiles.
const BLOCKS: u32 = 3;

/// Blocks that share a tile, where a kernel splits K; each has more steps than its pipeline has stages.
const SPLITS: u32 = 2;

/// Small integers, whose sums are exact.
fn value(i: u32, salt: u32) -> f32 {
    (i.wrapping_mul(31) + i / 100 + salt * 17) as f32 % 13.0 - 6.0
}

/// `C = A * B` of two tiles along each dimension; says what is wrong with it.
fn run(device: &Device, ptx: &str, spec: &TensorCoreDescriptor) -> Result<(), String> {
    let module = device.load(ptx).map_err(|error| error.to_string())?;
    let kernel = module.kernel(spec.name()).unwrap();
    let [m, n, k] = [spec.rows() + 8, spec.cols() + 8, STEPS * BK];
    let mut params: Vec<u8> = [m, n, k].into_iter().flat_map(u32::to_le_bytes).collect();
    params.extend(1f32.to_le_bytes());
    let has_maps = spec.abi() == TensorCoreAbi::TensorMap;
    for (salt, (rows, cols, boxes)) in (0..).zip([(m, k, [BK, spec.rows()]), (k, n, [PANEL, BK])]) {
        let values = (0..rows * cols).map(|i| (value(i, salt).to_bits() >> 16) as u16);
        let bytes: Vec<u8> = values.flat_map(u16::to_le_bytes).collect();
        let address = device.alloc(bytes.len() as u64).unwrap();
        device.write(address, &bytes).unwrap();
        if has_maps {
            // One product of a batch, where the kernel takes batches.
            let rank = if spec.layouts(InputType::Bf16).is_some() { 3 } else { 2 };
            let dims = [cols, rows, 1].map(u64::from);
            let strides = [2 * u64::from(cols), 2 * u64::from(cols * rows)];
            let boxes = [boxes[0], boxes[1], 1];
            let (dims, strides, boxes) = (&dims[..rank], &strides[..rank - 1], &boxes[..rank]);
            let layout = (Swizzle::Bytes128, Fill::Zeros);
            let element = TensorElement::Bf16;
            let map = TensorMap::of(element, address, dims, strides, boxes, layout).unwrap();
            params.resize(params.len().next_multiple_of(64), 0);
            params.extend(map.to_bytes());
        } else {
            params.resize(params.len().next_multiple_of(8), 0);
            params.extend(address.to_le_bytes());
            params.extend(cols.to_le_bytes());
        }
    }
    params.extend([0; 4]);
    params.resize(params.len().next_multiple_of(8), 0);
    let c = device.alloc(u64::from(4 * m * n)).unwrap();
    params.extend(c.to_le_bytes());
    params.extend(n.to_le_bytes());
    if spec.layouts(InputType::Bf16).is_some() {
        params.extend(1u32.to_le_bytes());
    }
    // No options, and no epilogue.
    params.resize(kernel.params_size(), 0);
    let splits = if spec.splits() { SPLITS } else { 1 };
    let config = LaunchConfig {
        grid: [if spec.is_persistent() { BLOCKS } else { 4 * splits }, 1, 1],
        block: [spec.threads(), 1, 1],
        dynamic_shared: spec.shared_bytes(),
    };
    let cluster = [splits, 1, 1];
    let launched = device.launch_in_clusters(&kernel, config, cluster, &params);
    launched.map_err(|error| error.to_string())?;
    let mut bytes = vec![0; 4 * (m * n) as usize];
    device.read(c, &mut bytes).unwrap();
    for (i, &word) in (0..).zip(bytes.as_chunks().0) {
        let products = (0..k).map(|l| value(i / n * k + l, 0) * value(l * n + i % n, 1));
        // Every third element is enough to see each register.
        if i % 3 == 0 && f32::from_le_bytes(word) != products.sum::<f32>() {
            return Err(format!("element {i}"));
        }
    }
    Ok(())
}

fn failure(ptx: &str, spec: &TensorCoreDescriptor) -> Option<String> {
    let schedules = [Schedule::InOrder, Schedule::Adversarial];
    let run = |schedule| run(&device(schedule, spec.name()), ptx, spec).err();
    schedules.into_iter().find_map(run)
}

fn entries() -> Vec<(&'static TensorCoreDescriptor, String)> {
    let text = shipped("sm_90a");
    let ptx =
        |spec: &TensorCoreDescriptor| ptx_syntax::extract(&text, spec.entry_point(InputType::Bf16));
    TENSOR_CORE.iter().map(|&spec| (spec, ptx(spec).unwrap())).collect()
}

#[test]
fn kernels_for_tensor_cores_pass_all_checks() {
    for (spec, ptx) in entries() {
        assert_eq!(failure(&ptx, spec), None, "{}", spec.name());
    }
}

/// Mutants that survive: the kernel, how the instruction begins, and why.
const SURVIVORS: [(&str, &str, &str); 5] = [
    ("wgmma", "barrier.sync", WHOLE),
    ("wgmma_split_64x16", "barrier.sync", WHOLE),
    ("wgmma_persistent", "mbarrier.try_wait", STAGGER),
    ("wgmma_128x192", "mbarrier.try_wait", STAGGER),
    ("wgmma_128x128", "mbarrier.try_wait", STAGGER),
];
const WHOLE: &str =
    "behind the wait for a product, which is complete for all warps of the only warpgroup";
const STAGGER: &str = "it has the second warpgroup begin later, for speed alone";

#[test]
fn mutants_for_tensor_cores_are_killed() {
    let (mut killed, mut unexplained) = (0, 0);
    for (spec, ptx) in entries() {
        let lines: Vec<&str> = ptx.lines().collect();
        for (at, &line) in lines.iter().enumerate() {
            let Some(mutant) = mutate(line) else { continue };
            let mut lines = lines.clone();
            lines[at] = &mutant;
            if failure(&lines.join("\n"), spec).is_some() {
                killed += 1;
                continue;
            }
            let known = SURVIVORS
                .iter()
                .find(|(kernel, opcode, _)| *kernel == spec.name() && line.contains(opcode));
            let why = known.map_or("NOT EXPLAINED", |(.., why)| why);
            println!("{}, line {}, `{}`: {why}", spec.name(), at + 1, line.trim());
            unexplained += usize::from(known.is_none());
        }
    }
    println!("{killed} killed");
    assert_eq!(unexplained, 0);
}
