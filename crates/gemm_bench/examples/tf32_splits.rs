//! Times TF32 kernels in every number of splits of K, next to cuBLAS in TF32, and the two kernels
//! that the model thinks fastest in f32. The costs in `cuda_gemm`'s `select/tf32/bulk.rs` are
//! fitted to these times. The kernels have bulk copies, or are for misaligned matrices.
//!
//! usage: tf32_splits FILE
//!
//! FILE lists products, as `rungs bench --shapes` takes them. The kernels run in turn in one
//! process, with cold L2. Each product prints a line: behind each `|` the kernel, `/`, its splits
//! of K, and the median in microseconds. Behind the `:` of a kernel for f32 is its predicted time.

use std::error::Error;
use std::path::Path;

use cuda_gemm::select::Prediction;
use cuda_gemm::{Compute, Device, DeviceChoice, Gemm};
use gemm_bench::time::Samples;
use gemm_bench::{
    Job, KernelOptions, L2, Operands, RotatingBuffers, Selection, SideBySide, buffers, shape,
};

const SAMPLES: u32 = 4;
const SAMPLE_MS: f64 = 0.4;
/// Splits of K that are tried, while all tiles together have no more than so many.
const SPLITS: [u32; 18] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128];
const MAX_BLOCKS: usize = 700;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: tf32_splits FILE")?;
    let device = Device::open(DeviceChoice::Gpu)?;
    let auto = device.auto()?;
    let cublas = Selection::Cublas.load(&device, None)?;
    for shape in shape::read(Path::new(&file))? {
        let gemm = shape.gemm().computed_in(Compute::Tf32);
        let mut jobs = divisions(&device, gemm)?;
        let in_f32 = gemm.computed_in(Compute::F32);
        for Prediction { configuration, ns, .. } in auto.predictions(&in_f32, 2) {
            let plan = auto.plan_by(in_f32, &configuration)?.prepare()?;
            let name = format!("{configuration:?}:{:.2}", 1e-3 * ns).replace(' ', "");
            jobs.push((name, Job::Kernel(plan)));
        }
        if let Ok(job) =
            cublas[0].prepare(gemm, KernelOptions::default(), Selection::All(gemm.compute))?.job
        {
            jobs.push(("cublas".to_owned(), job));
        }
        let operands = Operands::random(&gemm, 42);
        let meter = SideBySide::new(&device, gemm.bytes() as u64)?;
        let wanted = buffers::count(L2::Cold, gemm.bytes() as u64, device.info().l2_bytes);
        let mut sets = RotatingBuffers::new(&device, &operands, wanted)?;
        let all: Vec<_> = jobs.iter().map(|(_, job)| job).collect();
        let policy = (SAMPLES, SAMPLE_MS);
        let measured = meter.measure(&all, &mut sets, policy, None, &mut |_, _| ())?;
        let medians = measured.batches.into_iter().map(|one| Samples::of_batches(one).median());
        let times = jobs.iter().zip(medians);
        let times = times.map(|((name, _), ms)| format!("{name} {:.2}", 1e3 * ms));
        println!("{shape} | {}", times.collect::<Vec<_>>().join(" | "));
    }
    Ok(())
}

/// The product by each of these kernels in every number of splits, and what they are called.
fn divisions(device: &Device, gemm: Gemm) -> Result<Vec<(String, Job)>, Box<dyn Error>> {
    let mut jobs: Vec<(String, Job)> = Vec::new();
    let kernels = Compute::Tf32
        .kernels()
        .filter(|kernel| kernel.abi().has_tensor_maps() || kernel.unaligned().is_none());
    for kernel in kernels {
        let loaded = device.kernel(kernel)?;
        let [rows, cols] = [kernel.tile().bm, kernel.tile().bn].map(|size| size as usize);
        let tiles = |m: usize, n: usize| m.div_ceil(rows) * n.div_ceil(cols) * gemm.batch;
        let tiles = tiles(gemm.m, gemm.n).min(tiles(gemm.n, gemm.m));
        let is_tried = |splits: &u32| {
            *splits == 1 || kernel.abi().splits_k() && tiles * *splits as usize <= MAX_BLOCKS
        };
        for splits in SPLITS.into_iter().filter(is_tried) {
            let plan = loaded.plan(gemm).splits(splits).prepare()?;
            let name = format!("{}/{}", kernel.name(), plan.configuration().splits);
            if !jobs.iter().any(|(known, _)| *known == name) {
                jobs.push((name, Job::Kernel(plan)));
            }
        }
    }
    Ok(jobs)
}
