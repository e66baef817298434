//! Correction factors of kernels for tensor cores: how much slower each is here than its costs on an H200 say, relative
//! to the kernel where that is least.

use std::collections::BTreeMap;

use cuda_gemm::auto::{Auto, Prediction};
use cuda_gemm::kernels::{
    KernelDescriptor, TENSOR_CORE, TensorCoreDescriptor, tf32, wgmma_persistent,
};
use cuda_gemm::{Compute, Device, Element, Error as GemmError, Gemm, InputType, Product};

use super::context::{BenchmarkContext, TimedJob, check, operands, reference};
use crate::buffers::L2;
use crate::error::Error;
use crate::job::Job;

/// M, N and K: products that tensor cores are the limit of, not launches, nor memory, which takes as long by every kernel. Of larger
/// ones the host would take long to make and to check the matrices.
const PRODUCTS: [[usize; 3]; 6] = [
    [1536, 1536, 1536],
    [2048, 2048, 2048],
    [3072, 3072, 3072],
    [4096, 4096, 4096],
    [4096, 4096, 1024],
    [2048, 8192, 8192],
];

/// What a trial measures.
const TRIAL: [[usize; 3]; 1] = [[64, 64, 128]];

/// What they are computed in. In f16 kernels take as long as in bf16.
const COMPUTES: [Compute; 3] = [Compute::Bf16, Compute::Tf32, Compute::Tf32x3];

/// What is measured for every product, so that products can be compared.
fn anchor(compute: Compute) -> &'static str {
    match compute {
        Compute::Tf32 => tf32::tma::TILE_256X128.name(),
        Compute::Tf32x3 => tf32::wgmma::tf32x3_128x128::DESCRIPTOR.name(),
        Compute::Bf16 | Compute::F16 | Compute::F32 => wgmma_persistent::DESCRIPTOR.name(),
    }
}

/// Others are measured for products that should take them at most so many times as long as the fastest.
const SLOWEST: f64 = 1.7;

/// Rounds of [`Factors::of_kernels`].
const ROUNDS: usize = 100;

/// A kernel for tensor cores.
#[derive(Clone, Copy)]
pub enum Kernel {
    /// Of matrices in 16 bits, of this type.
    Half(&'static TensorCoreDescriptor, InputType),
    /// Of matrices in f32.
    F32(&'static KernelDescriptor),
}

impl Kernel {
    /// That for a product in a precision that has this name; kernels of other precisions may compute it, too.
    fn find(name: &str, compute: Compute) -> Option<Self> {
        match compute.input() {
            Some(input) => {
                let known = TENSOR_CORE.iter().find(|known| known.name() == name);
                known.map(|known| Self::Half(known, input))
            }
            None => compute.f32_kernels().find(|known| known.name() == name).map(Self::F32),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Half(descriptor, _) => descriptor.name(),
            Self::F32(descriptor) => descriptor.name(),
        }
    }

    /// A product by it, divided as is predicted.
    fn prepare(
        self,
        device: &Device,
        gemm: Gemm,
        prediction: Prediction,
    ) -> Result<Product, GemmError> {
        Ok(match self {
            Self::Half(descriptor, input) => {
                Product::TensorCore(device.tensor_core(descriptor, input)?.prepare(gemm)?)
            }
            Self::F32(descriptor) => {
                let Prediction { splits, staged, .. } = prediction;
                let plan = device.kernel(descriptor)?.plan(gemm).splits(splits).staged(staged);
                Product::F32(plan.prepare()?)
            }
        })
    }
}

/// What a kernel takes for a product.
struct Measurement {
    kernel: Kernel,
    /// The number of the product.
    product: usize,
    /// The logarithm of the time over the predicted one.
    log: f64,
}

/// What is measured: products for each of some precisions.
pub fn products(device: &Device, is_trial: bool) -> Vec<(Compute, &'static [[usize; 3]])> {
    // Where there are no costs, nothing is predicted.
    let info = device.info();
    if info.capability != (9, 0) || !info.tensor_maps {
        return Vec::new();
    }
    let products: &[_] = if is_trial { &TRIAL } else { &PRODUCTS };
    COMPUTES.into_iter().map(|compute| (compute, products)).collect()
}

/// The measurements of all products in a precision.
pub struct Factors {
    compute: Compute,
    measurements: Vec<Measurement>,
    /// How many products were measured.
    products: usize,
}

impl Factors {
    /// Of none so far.
    pub fn new(compute: Compute) -> Self {
        Self { compute, measurements: Vec::new(), products: 0 }
    }

    /// Measures a product by the kernels that should be fast for it, in turn. Returns those that are wrong, and why.
    pub fn measure(
        &mut self,
        context: &BenchmarkContext,
        auto: &Auto,
        [m, n, k]: [usize; 3],
    ) -> Result<Vec<(&'static str, String)>, Error> {
        let compute = self.compute;
        let output = if compute.input().is_some() { compute.element() } else { Element::F32 };
        let gemm = Gemm::new(m, n, k).computed_in(compute).stored_as(output);
        let predictions = auto.predictions(&gemm, usize::MAX);
        let longest = predictions.first().map_or(0.0, |best| SLOWEST * best.ns);
        let operands = operands(gemm)?;
        let reference = reference(&operands)?;
        let mut buffers = [context.buffers(&operands, L2::Cold)?];
        let (mut jobs, mut measured, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
        for prediction in predictions {
            let Prediction { kernel, ns, .. } = prediction;
            let is_measured = ns <= longest || kernel == anchor(compute);
            let known = Kernel::find(kernel, compute).filter(|_| is_measured);
            let Some(descriptor) = known else { continue };
            let job = Job::product(descriptor.prepare(&context.device, gemm, prediction)?);
            if let Err(reason) = check(&job, &mut buffers[0], &reference)? {
                wrong.push((kernel, reason));
                continue;
            }
            jobs.push(TimedJob { job, on: 0 });
            measured.push((descriptor, ns));
        }
        let times = context.nanoseconds(&jobs, &mut buffers)?;
        let product = self.products;
        self.products += 1;
        let pairs = times.into_iter().zip(measured);
        self.measurements.extend(pairs.map(|(ns, (kernel, predicted))| Measurement {
            kernel,
            product,
            // A clock that is too coarse; a time that is no number stays one.
            log: (if ns == 0.0 { f64::MIN_POSITIVE } else { ns / predicted }).ln(),
        }));
        Ok(wrong)
    }

    /// The kernels that were measured, how many products by each, and its factor, next to the smallest.
    ///
    /// A time over the predicted one is the product of two factors, one of the kernel, and one of the product, since large ones
    /// have the GPU lower its clock. Logarithms of both are fitted to all measurements, by least squares, in turn.
    pub fn of_kernels(&self) -> Vec<(Kernel, usize, f64)> {
        let mut kernels: BTreeMap<&str, (Kernel, Vec<&Measurement>)> = BTreeMap::new();
        for one in &self.measurements {
            let (_, own) = kernels.entry(one.kernel.name()).or_insert((one.kernel, Vec::new()));
            own.push(one);
        }
        let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len().max(1) as f64;
        let (mut of_products, mut of_kernels) = (vec![0.0; self.products], BTreeMap::new());
        for _ in 0..ROUNDS {
            for (name, (_, own)) in &kernels {
                let logs: Vec<_> =
                    own.iter().map(|one| one.log - of_products[one.product]).collect();
                of_kernels.insert(*name, mean(&logs));
            }
            for (product, log) in of_products.iter_mut().enumerate() {
                let own = self.measurements.iter().filter(|one| one.product == product);
                let logs: Vec<_> = own.map(|one| one.log - of_kernels[one.kernel.name()]).collect();
                *log = mean(&logs);
            }
        }
        let smallest = of_kernels.values().copied().fold(f64::INFINITY, f64::min);
        let of = |(name, (kernel, own)): (&&str, &(Kernel, Vec<_>))| {
            (*kernel, own.len(), (of_kernels[name] - smallest).exp())
        };
        kernels.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_those_of_kernels_whatever_products_they_had() {
        let [one, other, third] = [0, 1, 2].map(|i| Kernel::Half(TENSOR_CORE[i], InputType::Bf16));
        let measurement = |(kernel, product, factor): (_, _, f64)| Measurement {
            kernel,
            product,
            log: factor.ln(),
        };
        // The second product takes 1.5 times as long by all, and the first was not measured by `other`.
        let all = [(one, 0, 1.1), (third, 0, 1.65), (one, 1, 1.65), (other, 1, 3.3)];
        let measurements = all.map(measurement).into();
        let factors = Factors { measurements, products: 2, ..Factors::new(Compute::Bf16) };
        let of_kernels = factors.of_kernels();
        assert_eq!(of_kernels.len(), 3);
        for (kernel, count, factor) in of_kernels {
            let expected = [(one, 2, 1.0), (other, 1, 2.0), (third, 1, 1.5)];
            let own = expected.iter().find(|(known, ..)| known.name() == kernel.name()).unwrap();
            assert_eq!(count, own.1);
            assert!((factor - own.2).abs() < 1e-6, "{}: {factor}", kernel.name());
        }
        assert!(Factors::new(Compute::Tf32).of_kernels().is_empty());
    }
}
