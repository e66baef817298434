//! `--gpus`: a product on several devices, checked as on one.

use std::time::Instant;

use cuda_distributed::{DistributedMatrix, Distribution, Multiply, Product, Settings, World, gemm};
use cuda_driver::soft;
use cuda_gemm::{DeviceMatrix, OutputOf, Precision, bf16, f16};
use host::time::Samples;
use host::verify::Bound;
use host::{Compute, Device, DeviceChoice, Element, Gemm, Matrix, Operands, Title, select};

use super::outcome::Outcome;
use crate::error::Error;
use crate::io::{progress, stdio, threads};
use crate::report::Reporter;
use crate::report::record::{Ratio, Record, Setting};

/// Opens `count` devices of a kind.
pub fn devices(choice: DeviceChoice, count: u32) -> Result<Vec<Device>, Error> {
    threads::start()?;
    let gpus = cuda_driver::gpu_count();
    let numbered = match choice {
        DeviceChoice::Soft | DeviceChoice::SoftOrdinal(_) => DeviceChoice::SoftOrdinal,
        DeviceChoice::SoftSm90 | DeviceChoice::SoftSm90Ordinal(_) => DeviceChoice::SoftSm90Ordinal,
        DeviceChoice::Auto if gpus.is_err() => {
            stdio::note("running on software devices, because there is no GPU");
            DeviceChoice::SoftOrdinal
        }
        _ => DeviceChoice::GpuOrdinal,
    };
    Ok((0..count).map(|i| Device::open(numbered(i))).collect::<Result<_, _>>()?)
}

/// A product that ran.
struct Ran {
    result: Matrix,
    /// From the call to the end on all devices.
    samples: Samples,
    /// How matrices travelled.
    transport: String,
}

/// Runs a product `samples` times, and on GPUs once before: A and C by rows, B by columns.
fn product(devices: &[Device], operands: &Operands, samples: u32) -> Result<Ran, Error> {
    let gemm = operands.gemm();
    if gemm.batch != 1 {
        return Err(Error::usage(
            "--gpus is for one product at a time: leave out --batch or `COUNT*`, or --gpus",
        ));
    }
    let precision = match gemm.compute {
        Compute::Tf32 => Precision::Tf32,
        Compute::Tf32x3 => Precision::Tf32x3,
        _ => Precision::F32,
    };
    let work = Work { devices, operands, samples };
    match (gemm.compute, gemm.output) {
        (Compute::Bf16, Element::Bf16) => work.run::<bf16, bf16>(|product| product),
        (Compute::Bf16, _) => work.run::<bf16, f32>(|product| product),
        (Compute::F16, Element::F16) => work.run::<f16, f16>(|product| product),
        (Compute::F16, _) => work.run::<f16, f32>(|product| product),
        _ => work.run::<f32, f32>(|product| product.precision(precision)),
    }
}

struct Work<'w> {
    devices: &'w [Device],
    operands: &'w Operands,
    samples: u32,
}

impl Work<'_> {
    fn run<T, U>(
        &self,
        change: impl for<'m> Fn(Product<'m, T>) -> Product<'m, T> + Sync,
    ) -> Result<Ran, Error>
    where
        T: Multiply,
        U: Multiply + OutputOf<T>,
        f32: OutputOf<T> + OutputOf<U>,
    {
        let ranks = World::run(self.devices, &Settings::default(), |world| {
            self.rank::<T, U>(&world, &change)
        });
        let ranks = ranks.into_iter().collect::<Result<Vec<_>, _>>()?;
        let slowest = |mut one: Ran, other: Ran| {
            for (ms, other) in one.samples.ms.iter_mut().zip(other.samples.ms) {
                *ms = ms.max(other);
            }
            one
        };
        // Each rank has the same result.
        ranks.into_iter().reduce(slowest).ok_or(Error::usage("--gpus is 1 or more"))
    }

    fn rank<T, U>(
        &self,
        world: &World,
        change: &impl for<'m> Fn(Product<'m, T>) -> Product<'m, T>,
    ) -> Result<Ran, cuda_distributed::Error>
    where
        T: Multiply,
        U: Multiply + OutputOf<T>,
        f32: OutputOf<T> + OutputOf<U>,
    {
        let operands = self.operands;
        let Gemm { m, n, trans_a, trans_b, alpha, beta, epilogue, .. } = *operands.gemm();
        let [rows, columns] = [Distribution::Rows, Distribution::Columns];
        let spread = |matrix: &Matrix, distribution| {
            DistributedMatrix::<T>::from_host(world.clone(), matrix, distribution)
        };
        let a = spread(operands.a(), if trans_a { columns } else { rows })?;
        let b = spread(operands.b(), if trans_b { rows } else { columns })?;
        let mut c = match operands.c() {
            Some(c) if beta != 0.0 => DistributedMatrix::<U>::from_host(world.clone(), c, rows)?,
            _ => DistributedMatrix::<U>::zeros(world.clone(), [m, n], rows)?,
        };
        let [scale, bias, residual] = operands.extras();
        // A vector is a row or a column on the host.
        let vector = |vector: Option<&Matrix>| {
            let of = |vector: &Matrix| {
                let elements = vector.as_slice();
                DeviceMatrix::<f32>::from_slice(world.device(), [1, elements.len()], elements)
            };
            vector.map(of).transpose()
        };
        let (scale, bias) = (vector(scale)?, vector(bias)?);
        let residual = residual
            .map(|residual| DistributedMatrix::<f32>::from_host(world.clone(), residual, rows));
        let residual = residual.transpose()?;
        let mut product = match (trans_a, trans_b) {
            (false, false) => gemm(&a, &b),
            (true, false) => gemm(a.t(), &b),
            (false, true) => gemm(&a, b.t()),
            (true, true) => gemm(a.t(), b.t()),
        };
        product = change(product.alpha(alpha).beta(beta));
        if let (Some(scale), Some(axis)) = (&scale, epilogue.scale) {
            product = product.scale(axis, scale);
        }
        if let (Some(bias), Some(axis)) = (&bias, epilogue.bias) {
            product = product.bias_along(axis, bias);
        }
        if let Some(activation) = epilogue.activation {
            product = product.activation(activation);
        }
        if let Some(residual) = &residual {
            product = product.residual(residual);
        }
        let timed = |c: &mut DistributedMatrix<U>| -> Result<f64, cuda_distributed::Error> {
            world.barrier()?;
            let start = Instant::now();
            product.run(c)?;
            world.synchronize()?;
            Ok(1e3 * start.elapsed().as_secs_f64())
        };
        let mut ms = vec![timed(&mut c)?];
        let result = c.to_host()?;
        // On a GPU the first product takes longer than others.
        if !world.device().is_soft() {
            ms.clear();
        }
        while ms.len() < self.samples as usize {
            ms.push(timed(&mut c)?);
        }
        let device = world.device().info().kind;
        let samples = Samples { device, launches: 1, gap_free: None, ms, enqueue_ms: Vec::new() };
        Ok(Ran { result, samples, transport: world.transport() })
    }
}

/// Runs products on all devices, and with `is_compared` also on the first alone. Each result is
/// checked against the product in f64. The seed is that of random matrices.
pub fn all(
    devices: &[Device],
    products: impl Iterator<Item = Result<(Operands, Bound, Option<u64>), Error>>,
    (samples, is_compared): (u32, bool),
    mut reporter: Reporter,
    mut keep: impl FnMut(&Matrix) -> Result<(), Error>,
) -> Result<Outcome, Error> {
    let mut outcome = Outcome::Right;
    for (place, next) in products.enumerate() {
        if !reporter.is_wanted() {
            break;
        }
        let (operands, bound, seed) = next?;
        let setting = Setting {
            device: &devices[0],
            gpus: Some(devices.len()),
            gemm: *operands.gemm(),
            groups: operands.groups(),
            seed,
            cublas_version: None,
            l2: None,
            samples,
        };
        if place == 0 {
            reporter.begin(&setting)?;
        }
        let one = match is_compared {
            true => {
                let one = || product(&devices[..1], &operands, samples);
                Some(progress::step("on one device", one)?.samples)
            }
            false => None,
        };
        let title = Title { name: select::NAME, ..Title::default() };
        let ran = progress::step("on all devices", || product(devices, &operands, samples));
        // Empty on GPUs.
        let findings = soft::take_findings();
        // A finding that ended the launch is the error itself.
        for finding in findings.iter().filter(|finding| !finding.ended()) {
            stdio::say(format_args!("found: {finding}"));
        }
        let ran = match ran {
            Err(error) if !findings.is_empty() => {
                reporter.fault(&setting, &title, &error.to_string(), &findings)?;
                return Err(error);
            }
            ran => ran?,
        };
        let check = progress::portion(
            "checking against the product in f64",
            host::verify::progress,
            || {
                let reference = operands.reference(bound, seed.unwrap_or(0))?;
                // Each rank chooses FMAs or TF32 for each of its parts.
                match operands.gemm().compute {
                    Compute::Tf32 => reference.check_unrounded(&ran.result),
                    _ => reference.check(&ran.result),
                }
            },
        )?;
        if let Some(reason) = check.failure() {
            stdio::say(format_args!("wrong: {reason}"));
        }
        match check.passed() && findings.is_empty() {
            true => keep(&ran.result)?,
            false => outcome = Outcome::Wrong,
        }
        // Not in turn, so that there are no pairs.
        let speedup = one.as_ref().map(|one| one.median() / ran.samples.median());
        reporter.result(&Record {
            setting,
            title,
            samples: ran.samples,
            sets: 1,
            load: None,
            check,
            unrounded: None,
            speedup: speedup.map(|median| Ratio { median, interval: None }),
            share_of_cublas: None,
            transport: Some(ran.transport),
            one,
            findings,
        })?;
    }
    Ok(outcome)
}

/// Refuses options that are for one device.
pub fn refuse(command: &'static str, options: &[(&str, bool)]) -> Result<(), Error> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => {
            let message = format!("{option} is for one device: leave it out, or --gpus");
            Err(Error::usage_of(command, message))
        }
        None => Ok(()),
    }
}
