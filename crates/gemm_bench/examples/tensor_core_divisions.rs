//! Times every kernel of 16-bit operands in every division of K, next to cuBLAS: what the costs in
//! `cuda_gemm`'s `select/wgmma.rs` are fitted to.
//!
//! usage: tensor_core_divisions FILE
//!
//! FILE lists products, as `rungs bench --shapes` takes them. Behind `|` a line may name kernels
//! and divisions: then only these are timed. A, B and C are in bf16. The kernels run in turn in
//! one process, with cold L2. Each prints a line:
//!
//! - the product, the kernel, `/` and its splits of K;
//! - `@` and the clusters, of stream-K;
//! - `:1`, if a multiprocessor has one block where it could have more;
//! - the median in microseconds, and cuBLAS's time over it.
//!
//! A result unlike that of the first kernel is said to be wrong.

use std::error::Error;
use std::fs;

use cuda_gemm::kernels::abi::KernelAbi;
use cuda_gemm::{Compute, Configuration, Device, DeviceChoice, Element, Gemm, Plan};
use gemm_bench::time::Samples;
use gemm_bench::{
    Job, KernelOptions, L2, Operands, RotatingBuffers, Selection, Shape, SideBySide, buffers,
};

const SAMPLES: u32 = 4;
const SAMPLE_MS: f64 = 0.4;
/// Splits of K that are tried.
const SPLITS: [u32; 6] = [1, 2, 3, 4, 6, 8];

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: tensor_core_divisions FILE")?;
    let device = Device::open(DeviceChoice::Gpu)?;
    let cublas = Selection::Cublas.load(&device, None)?;
    for (number, line) in (1..).zip(fs::read_to_string(&file)?.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (shape, names) = line.split_once('|').unwrap_or((line, ""));
        let shape = shape.trim().parse::<Shape>();
        let shape = shape.map_err(|reason| format!("{file}:{number}: {reason}"))?;
        let names: Vec<_> = names.split_whitespace().collect();
        let gemm = shape.gemm().computed_in(Compute::Bf16).stored_as(Element::Bf16);
        let mut jobs = divisions(&device, gemm, &names)?;
        if let Ok(job) =
            cublas[0].prepare(gemm, KernelOptions::default(), Selection::All(gemm.compute))?.job
        {
            jobs.push(("cublas".to_owned(), job));
        }
        let operands = Operands::random(&gemm, 42);
        let meter = SideBySide::new(&device, gemm.bytes() as u64)?;
        let wanted = buffers::count(L2::Cold, gemm.bytes() as u64, device.info().l2_bytes);
        let mut sets = RotatingBuffers::new(&device, &operands, wanted)?;
        let first = sets.result(&jobs[0].1, None)?;
        for (name, job) in &jobs[1..] {
            let result = sets.result(job, None)?;
            let pairs = first.as_slice().iter().zip(result.as_slice());
            let apart = pairs.map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
            let largest = first.as_slice().iter().fold(0.0f32, |most, one| most.max(one.abs()));
            if apart.is_nan() || apart > 0.02 * largest {
                println!("{shape} {name} is wrong: {apart} apart, of {largest}");
            }
        }
        let all: Vec<_> = jobs.iter().map(|(_, job)| job).collect();
        let policy = (SAMPLES, SAMPLE_MS);
        let measured = meter.measure(&all, &mut sets, policy, None, &mut |_, _| ())?;
        let times = measured.batches.into_iter().map(|one| Samples::of_batches(one).median());
        let times: Vec<_> = times.collect();
        let of_cublas = jobs.iter().zip(&times).find(|((name, _), _)| name == "cublas");
        for ((name, _), ms) in jobs.iter().zip(&times) {
            let ratio = of_cublas.map_or(f64::NAN, |(_, cublas)| cublas / ms);
            println!("{shape} {name} {:.3} {ratio:.4}", 1e3 * ms);
        }
    }
    Ok(())
}

/// The product by every kernel in every division, or those with these names if there are any, and
/// what they are called.
fn divisions(
    device: &Device,
    gemm: Gemm,
    names: &[&str],
) -> Result<Vec<(String, Job)>, Box<dyn Error>> {
    let mut jobs = Vec::new();
    let is_named =
        |kernel: &str| names.is_empty() || names.iter().any(|asked| kernel_of(asked) == kernel);
    let mut push = |name: String, plan: Plan<'static>| {
        if names.is_empty() || names.iter().any(|asked| is_of(&name, asked)) {
            jobs.push((name, Job::Kernel(plan)));
        }
    };
    let kernels = Compute::Bf16.kernels().filter(|kernel| kernel.takes_transposes());
    for kernel in kernels.filter(|kernel| is_named(kernel.name())) {
        let plan = device.kernel(kernel)?.plan(gemm);
        if kernel.abi() != KernelAbi::WgmmaClusters {
            push(kernel.name().to_owned(), plan.prepare()?);
            continue;
        }
        let [rows, cols] = [kernel.tile().bm, kernel.tile().bn].map(|size| size as usize);
        let tiles = |m: usize, n: usize| m.div_ceil(rows) * n.div_ceil(cols) * gemm.batch;
        let tiles = tiles(gemm.m, gemm.n).min(tiles(gemm.n, gemm.m)) as u32;
        let most = kernel.blocks_per_multiprocessor();
        let blocks = if most == 1 { vec![1] } else { vec![most, 1] };
        for (blocks, splits) in
            blocks.into_iter().flat_map(|blocks| SPLITS.map(|splits| (blocks, splits)))
        {
            let multiprocessors = device.info().limits.multiprocessors;
            let mut streams = vec![tiles, multiprocessors * blocks / splits];
            if blocks > 1 {
                streams.push(multiprocessors / splits);
            }
            for clusters in streams {
                let plan = plan.clone().splits(splits).clusters(clusters);
                let plan = plan.blocks_per_multiprocessor(blocks).prepare()?;
                let Configuration { splits: own, clusters: shared, .. } = *plan.configuration();
                if own != splits || shared.is_none() && clusters != tiles {
                    continue;
                }
                let stream = shared.map(|clusters| format!("@{clusters}")).unwrap_or_default();
                let alone = if blocks < most { ":1" } else { "" };
                push(format!("{}/{splits}{stream}{alone}", kernel.name()), plan);
            }
        }
    }
    match names.iter().find(|asked| !jobs.iter().any(|(name, _)| is_of(name, asked))) {
        Some(asked) => Err(format!("there is no division `{asked}` of this product").into()),
        None => Ok(jobs),
    }
}

/// The kernel that a division's name begins with.
fn kernel_of(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

/// Whether a division, or its kernel, has the name that is asked for.
fn is_of(name: &str, asked: &str) -> bool {
    name == asked || kernel_of(name) == asked
}
