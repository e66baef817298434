//! Times CubeCL's matrix products in f32 against `auto` and cuBLAS, in turn and in one process:
//! `cubecl_peer SIZE...`. One line of JSON per product and size.

use std::error::Error;
use std::time::Instant;

use cubecl::cuda::{CudaDevice, CudaRuntime};
use cubecl::future::block_on;
use cubecl::prelude::*;
use cubecl::std::tensor::TensorHandle;
use cubek_matmul::definition::MatmulElems;
use cubek_matmul::launch::{Strategy, launch_ref};
use cubek_matmul::routines::BlueprintStrategy;
use cubek_std::InputBinding;
use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, Matrix};
use gemm_bench::Cublas;

/// Seconds that one sample should take.
const SAMPLE: f64 = 0.02;
const SAMPLES: usize = 15;

fn strategies() -> Vec<(&'static str, Strategy)> {
    let simple = BlueprintStrategy::Inferred(Default::default());
    let double = BlueprintStrategy::Inferred(Default::default());
    vec![
        ("cubecl simple_unit", Strategy::SimpleUnit(simple)),
        ("cubecl double_unit", Strategy::DoubleUnit(double)),
        ("cubecl auto", Strategy::Auto),
    ]
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open(DeviceChoice::Gpu)?;
    let cublas = Cublas::open(&device)?;
    let client = CudaRuntime::client(&CudaDevice::default());
    for size in std::env::args().skip(1) {
        let n: usize = size.parse()?;
        let (a, b) = (Matrix::random(n, n, 42, 1), Matrix::random(n, n, 42, 2));
        let device_a = DeviceMatrix::from_host(&device, &a)?;
        let device_b = DeviceMatrix::from_host(&device, &b)?;
        let mut device_c = DeviceMatrix::zeros(&device, n, n)?;
        let ours = device.auto()?.prepare(Gemm::new(n, n, n))?;
        let theirs = cublas.prepare(Gemm::new(n, n, n))?;

        let dtype = f32::as_type_native_unchecked();
        let storage = dtype.storage_type();
        let upload = |m: &Matrix| {
            let handle = client.create_from_slice(f32::as_bytes(m.as_slice()));
            TensorHandle::<CudaRuntime>::new_contiguous(vec![1, n, n], handle, storage)
        };
        let (peer_a, peer_b) = (upload(&a), upload(&b));
        let peer_c = TensorHandle::empty(&client, vec![1, n, n], dtype);
        let launch = |strategy: &Strategy| {
            let elems = MatmulElems::from_single_dtype(dtype);
            launch_ref(
                strategy,
                &client,
                InputBinding::Normal(peer_a.clone().binding(), storage),
                InputBinding::Normal(peer_b.clone().binding(), storage),
                peer_c.clone().binding(),
                &mut elems.clone(),
            )
            .map_err(|e| format!("{e:?}"))
        };
        let sync = || block_on(client.sync()).map_err(|e| format!("{e:?}"));

        ours.enqueue(&device_a, &device_b, &mut device_c)?;
        let reference = device_c.download()?;
        let mut contenders: Vec<(String, Option<Strategy>)> =
            vec![("auto".into(), None), ("cublas".into(), None)];
        let mut notes = vec![String::new(), String::new()];
        for (name, strategy) in strategies() {
            if let Err(error) = launch(&strategy).and_then(|()| sync()) {
                println!("{{\"size\":{n},\"product\":{name:?},\"refused\":{error:?}}}");
                continue;
            }
            let bytes = client.read_one(peer_c.clone().handle).map_err(|e| format!("{e:?}"))?;
            let result = f32::from_bytes(&bytes);
            let rms = |x: f64| (x / (n * n) as f64).sqrt();
            let error: f64 = (result.iter().zip(reference.as_slice()))
                .map(|(&x, &y)| f64::from(x - y).powi(2))
                .sum();
            let scale: f64 = reference.as_slice().iter().map(|&y| f64::from(y).powi(2)).sum();
            notes.push(format!(",\"rms_of_difference\":{:.3e}", rms(error) / rms(scale)));
            contenders.push((name.into(), Some(strategy)));
        }

        let mut run = |i: usize, count: usize| -> Result<f64, Box<dyn Error>> {
            let start = Instant::now();
            for _ in 0..count {
                match (&contenders[i].1, i) {
                    (Some(strategy), _) => launch(strategy)?,
                    (None, 0) => ours.enqueue(&device_a, &device_b, &mut device_c)?,
                    (None, _) => theirs.enqueue(&device_a, &device_b, &mut device_c)?,
                }
            }
            match contenders[i].1 {
                Some(_) => sync()?,
                None => device.stream().synchronize()?,
            }
            Ok(start.elapsed().as_secs_f64() / count as f64)
        };
        let mut counts = Vec::new();
        for i in 0..notes.len() {
            run(i, 3)?;
            let once = run(i, 3)?;
            counts.push(((SAMPLE / once) as usize).clamp(1, 2000));
        }
        let mut times = vec![Vec::new(); notes.len()];
        for _ in 0..SAMPLES {
            for i in 0..notes.len() {
                times[i].push(run(i, counts[i])?);
            }
        }
        for i in 0..notes.len() {
            times[i].sort_by(f64::total_cmp);
            let median = times[i][SAMPLES / 2];
            let tflops = 2.0 * (n as f64).powi(3) / median / 1e12;
            println!(
                "{{\"size\":{n},\"product\":{:?},\"median_us\":{:.2},\"tflops\":{tflops:.2}{}}}",
                contenders[i].0,
                median * 1e6,
                notes[i]
            );
        }
    }
    Ok(())
}
