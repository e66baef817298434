//! Times the kernels that `auto`'s model thinks fastest, next to cuBLAS: how far its predictions
//! hold, and what it leaves behind.
//!
//! usage: ranking COUNT FILE
//!
//! FILE lists products, as `rungs bench --shapes` takes them; they are in f32. The first COUNT
//! choices of the model run in turn in one process, with cold L2. Each prints a line: the product,
//! the choice, the predicted time and the median in microseconds, and cuBLAS's time over it.

use std::error::Error;
use std::path::Path;

use cuda_gemm::select::Prediction;
use cuda_gemm::{Device, DeviceChoice};
use gemm_bench::time::Samples;
use gemm_bench::{
    Job, KernelOptions, L2, Operands, RotatingBuffers, Selection, SideBySide, buffers, shape,
};

const CUBLAS: &str = "cublas:";
const SAMPLES: u32 = 4;
const SAMPLE_MS: f64 = 0.5;

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: ranking COUNT FILE";
    let mut args = std::env::args().skip(1);
    let (count, file) = (args.next().ok_or(usage)?.parse()?, args.next().ok_or(usage)?);
    let device = Device::open(DeviceChoice::Gpu)?;
    let auto = device.auto()?;
    println!("basis: {}", auto.basis());
    let cublas = Selection::Cublas.load(&device, None)?;
    for shape in shape::read(Path::new(&file))? {
        let gemm = shape.gemm();
        let (mut names, mut jobs) = (Vec::new(), Vec::new());
        for Prediction { configuration, ns, .. } in auto.predictions(&gemm, count) {
            names.push(format!("{configuration}: {:.2} us predicted", 1e-3 * ns));
            jobs.push(Job::Kernel(auto.plan_by(gemm, &configuration)?.prepare()?));
        }
        if let Ok(job) =
            cublas[0].prepare(gemm, KernelOptions::default(), Selection::All(gemm.compute))?.job
        {
            names.push(CUBLAS.to_owned());
            jobs.push(job);
        }
        let operands = Operands::random(&gemm, 42);
        let meter = SideBySide::new(&device, gemm.bytes() as u64)?;
        let wanted = buffers::count(L2::Cold, gemm.bytes() as u64, device.info().l2_bytes);
        let mut sets = RotatingBuffers::new(&device, &operands, wanted)?;
        let all: Vec<_> = jobs.iter().collect();
        let policy = (SAMPLES, SAMPLE_MS);
        let measured = meter.measure(&all, &mut sets, policy, None, &mut |_, _| ())?;
        let medians = measured.batches.into_iter().map(|one| Samples::of_batches(one).median());
        let times: Vec<_> = medians.collect();
        let of_cublas = names.iter().zip(&times).find(|(name, _)| *name == CUBLAS);
        for (name, ms) in names.iter().zip(&times) {
            let ratio = of_cublas.map_or(f64::NAN, |(_, cublas)| cublas / ms);
            println!("{shape} {name} {:.2} us measured, {ratio:.3}", 1e3 * ms);
        }
    }
    Ok(())
}
