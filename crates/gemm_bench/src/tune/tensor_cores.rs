//! How many times as long kernels for tensor cores in 16 bits take here as what was measured on an H200 says.

use std::collections::BTreeMap;

use cuda_gemm::auto::{Auto, Prediction};
use cuda_gemm::kernels::{TENSOR_CORE, TensorCoreDescriptor};
use cuda_gemm::{Compute, Device, Element, Gemm, InputType, Product};

use super::context::{BenchmarkContext, TimedJob, check, operands, reference};
use super::tuner::Effort;
use crate::buffers::L2;
use crate::error::Error;
use crate::job::Job;

/// Squares, layers of decoders, and others, of M, N and K, of which each kernel should be fast for a few.
const PRODUCTS: [[usize; 3]; 16] = [
    [512, 512, 512],
    [1024, 1024, 1024],
    [1536, 1536, 1536],
    [2048, 2048, 2048],
    [3072, 3072, 3072],
    [4096, 4096, 4096],
    [6144, 6144, 6144],
    [8192, 8192, 8192],
    [4096, 4096, 1024],
    [2048, 8192, 2048],
    [16, 4096, 4096],
    [16, 6144, 4096],
    [32, 4096, 14336],
    [64, 8192, 8192],
    [128, 4096, 4096],
    [1001, 1000, 2000],
];

/// What a trial measures.
const TRIAL: [[usize; 3]; 1] = [[64, 64, 128]];

/// A kernel is measured for products that should take it at most so many times as long as the fastest.
const SLOWEST: f64 = 1.7;

/// What a kernel takes for a product.
struct Measurement {
    kernel: &'static TensorCoreDescriptor,
    /// The time over the predicted one.
    factor: f64,
}

/// What is measured.
pub fn products(device: &Device, effort: Effort) -> &'static [[usize; 3]] {
    let has_costs = device.info().capability == (9, 0) && device.info().tensor_maps;
    match effort {
        _ if !has_costs => &[],
        Effort::Full => &PRODUCTS,
        Effort::Trial => &TRIAL,
    }
}

/// The measurements of all products.
#[derive(Default)]
pub struct Factors(Vec<Measurement>);

impl Factors {
    /// Measures a product by the kernels that should be fast for it, in turn. Returns those that are wrong, and why.
    pub fn measure(
        &mut self,
        context: &BenchmarkContext,
        auto: &Auto,
        [m, n, k]: [usize; 3],
    ) -> Result<Vec<(&'static str, String)>, Error> {
        let gemm = Gemm::new(m, n, k).computed_in(Compute::Bf16).stored_as(Element::Bf16);
        let predictions = auto.predictions(&gemm, usize::MAX);
        let longest = predictions.first().map_or(0.0, |best| SLOWEST * best.ns);
        let operands = operands(gemm)?;
        let reference = reference(&operands)?;
        let mut buffers = [context.buffers(&operands, L2::Cold)?];
        let (mut jobs, mut measured, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
        for Prediction { kernel, ns, .. } in predictions {
            let known = TENSOR_CORE.iter().find(|known| known.name() == kernel);
            let Some(descriptor) = known.filter(|_| ns <= longest) else { continue };
            let plan = context.device.tensor_core(descriptor, InputType::Bf16)?.prepare(gemm)?;
            let job = Job::product(Product::TensorCore(plan));
            if let Err(reason) = check(&job, &mut buffers[0], &reference)? {
                wrong.push((kernel, reason));
                continue;
            }
            jobs.push(TimedJob { job, on: 0 });
            measured.push((*descriptor, ns));
        }
        let times = context.nanoseconds(&jobs, &mut buffers)?;
        self.0.extend(
            times
                .into_iter()
                .zip(measured)
                .map(|(ns, (kernel, predicted))| Measurement { kernel, factor: ns / predicted }),
        );
        Ok(wrong)
    }

    /// The kernels that were measured, how many products by each, and its factor: the geometric mean, next to that of all kernels.
    pub fn of_kernels(&self) -> Vec<(&'static TensorCoreDescriptor, usize, f64)> {
        let mut logs: BTreeMap<&str, (&'static TensorCoreDescriptor, Vec<f64>)> = BTreeMap::new();
        for Measurement { kernel, factor } in &self.0 {
            let (_, logs) = logs.entry(kernel.name()).or_insert((kernel, Vec::new()));
            logs.push(factor.max(f64::MIN_POSITIVE).ln());
        }
        let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len() as f64;
        let means: Vec<_> = logs.values().map(|(_, logs)| mean(logs)).collect();
        let of_all = mean(&means);
        let of = |((kernel, logs), own): (&(_, Vec<_>), _)| (*kernel, logs.len(), own);
        logs.values().zip(means.iter().map(|own: &f64| (own - of_all).exp())).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_means_next_to_that_of_all() {
        let [one, other] = [TENSOR_CORE[0], TENSOR_CORE[1]];
        let measurement = |(kernel, factor)| Measurement { kernel, factor };
        let all = [(one, 2.0), (other, 1.5), (one, 8.0), (other, 0.7 / 1.05)];
        let of_kernels = Factors(all.map(measurement).into()).of_kernels();
        assert_eq!(of_kernels.len(), 2);
        for (kernel, count, factor) in of_kernels {
            let expected = if kernel.name() == one.name() { 2.0 } else { 0.5 };
            assert_eq!(count, 2);
            assert!((factor - expected).abs() < 1e-6, "{}: {factor}", kernel.name());
        }
        assert!(Factors::default().of_kernels().is_empty());
    }
}
