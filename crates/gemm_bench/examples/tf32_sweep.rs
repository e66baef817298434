use std::error::Error;
use std::path::Path;

use cuda_gemm::{Compute, Device, DeviceChoice, Product};
use gemm_bench::time::Samples;
use gemm_bench::{
    Job, KernelOptions, L2, Operands, RotatingBuffers, Selection, SideBySide, buffers, shape,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("FILE")?;
    let device = Device::open(DeviceChoice::Gpu)?;
    let auto = device.auto()?;
    let cublas = Selection::Cublas.load(&device, None)?;
    for shape in shape::read(Path::new(&file))? {
        let gemm = shape.gemm().computed_in(Compute::Tf32);
        let (mut names, mut jobs) = (Vec::new(), Vec::new());
        for kernel in Compute::Tf32.f32_kernels() {
            if kernel.name().contains("mma") {
                continue;
            }
            let tile = kernel.tile();
            let tiles = gemm.m.div_ceil(tile.bm as usize).min(gemm.n.div_ceil(tile.bm as usize))
                * gemm.n.max(gemm.m).div_ceil(128);
            let list: &[u32] = if kernel.name().starts_with("tf32_split") {
                &[1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128]
            } else {
                &[1]
            };
            let mut seen = Vec::new();
            for splits in list {
                if *splits > 1 && tiles * gemm.batch * *splits as usize > 700 {
                    continue;
                }
                if let Ok(plan) = device.kernel(kernel)?.plan(gemm).splits(*splits).prepare() {
                    let s = plan.launch_plan().splits();
                    if seen.contains(&s) {
                        continue;
                    }
                    seen.push(s);
                    names.push(format!("{}/{}", kernel.name(), s));
                    jobs.push(Job::product(Product::F32(plan)));
                }
            }
        }
        let f32 = gemm.computed_in(Compute::F32);
        for estimate in auto.ranking(&f32, 2) {
            let plan = auto.plan_choice(f32, estimate.choice)?.prepare()?;
            names.push(format!(
                "{}:{:.2}",
                format!("{:?}", estimate.choice).replace(' ', ""),
                1e-3 * estimate.ns
            ));
            jobs.push(Job::product(Product::F32(plan)));
        }
        if let Ok(job) = cublas[0].prepare(gemm, KernelOptions::default(), Selection::All)?.job {
            names.push("cublas".to_owned());
            jobs.push(job);
        }
        let operands = Operands::random(&gemm, 42);
        let meter = SideBySide::new(&device, gemm.bytes() as u64)?;
        let wanted = buffers::count(L2::Cold, gemm.bytes() as u64, device.info().l2_bytes);
        let mut sets = RotatingBuffers::new(&device, &operands, wanted)?;
        let all: Vec<_> = jobs.iter().collect();
        let measured = meter.measure(&all, &mut sets, (4, 0.4), None, &mut |_, _| ())?;
        let medians = measured.batches.into_iter().map(|one| Samples::of_batches(one).median());
        let line: Vec<_> =
            names.iter().zip(medians).map(|(name, ms)| format!("{name} {:.2}", 1e3 * ms)).collect();
        println!("{shape} | {}", line.join(" | "));
    }
    Ok(())
}
