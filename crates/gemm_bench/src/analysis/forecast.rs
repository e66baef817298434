//! Estimates the software device's time from small products.

use cuda_gemm::{Device, Gemm};

use crate::buffers::L2;
use crate::error::Error;
use crate::job::Candidate;
use crate::operands::Operands;
use crate::workload::Workload;

/// The FLOP of whole tiles below which every run is short, so that no estimate is made.
const LEAST_FLOPS: f64 = 5e9;

/// The smallest work of a block: rows and columns of C, and steps along K.
const TILE: [usize; 3] = [64, 64, 32];

/// The largest K of a small product: large enough that the start and the end of a block are
/// negligible.
const DEPTH: usize = 256;

/// The estimated times of several kernels on the software device.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Gemm};
/// use gemm_bench::{KernelOptions, Selection, forecast::Forecast};
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let loaded = Selection::parse("tile2d")?.load(&device, None)?;
/// let prepare = |gemm: Gemm| {
///     let all = Selection::All(gemm.compute);
///     Ok(vec![loaded[0].prepare(gemm, KernelOptions::default(), all)?])
/// };
/// let gemm = Gemm::new(64, 64, 64);
/// let candidates = prepare(gemm)?;
/// let forecast = Forecast::new(&device, &candidates, &gemm, 1, prepare, |run| run())?;
/// assert_eq!(forecast, None, "it takes no time worth a word");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, PartialEq)]
pub struct Forecast {
    /// Seconds per run; 0 for a candidate that cannot run.
    each: Vec<f64>,
    /// Timed runs per candidate.
    runs: u32,
}

impl Forecast {
    /// Times a small product with each kernel, on a software device that may be slow.
    ///
    /// `None` means a GPU, or a short run. Each of `candidates` runs `runs` times. `prepare` makes
    /// candidates for any product. `around` is that of [`Workload::measure`].
    ///
    /// # Errors
    ///
    /// The errors of `prepare` and of [`Workload::measure`].
    pub fn new(
        device: &Device,
        candidates: &[Candidate],
        gemm: &Gemm,
        runs: u32,
        prepare: impl FnOnce(Gemm) -> Result<Vec<Candidate>, Error>,
        mut around: impl FnMut(&mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<Option<Self>, Error> {
        let all_runs = candidates.iter().filter(|candidate| candidate.job.is_ok()).count() as f64;
        if !device.is_soft() || all_runs * f64::from(runs) * flops(gemm) < LEAST_FLOPS {
            return Ok(None);
        }
        let small = small(gemm, rayon::current_num_threads());
        let operands = Operands::random(&small, 1);
        let mut workload = Workload::new(device, &operands, Some(1), L2::Warm)?;
        let mut each = Vec::new();
        for (candidate, small_candidate) in candidates.iter().zip(&prepare(small)?) {
            let timed =
                workload.measure(std::slice::from_ref(small_candidate), &mut around, |_, _| ())?;
            each.push(match &timed[..] {
                [Ok(timed)] if candidate.job.is_ok() => {
                    1e-3 * timed.samples.median() * flops(gemm) / flops(&small)
                }
                _ => 0.0,
            });
        }
        Ok(Some(Self { each, runs }))
    }

    /// Seconds for all runs.
    pub fn all(&self) -> f64 {
        f64::from(self.runs) * self.each.iter().sum::<f64>()
    }

    /// Seconds per run of the candidate at `place`, from 0, and seconds for all later candidates.
    pub fn from(&self, place: usize) -> (f64, f64) {
        let after = &self.each[place + 1..];
        (self.each[place], f64::from(self.runs) * after.iter().sum::<f64>())
    }
}

/// The FLOP of whole tiles, which even the smallest product computes.
fn flops(gemm: &Gemm) -> f64 {
    let sizes = [gemm.m, gemm.n, gemm.depth()];
    let padded = std::array::from_fn::<_, 3, _>(|i| sizes[i].next_multiple_of(TILE[i]) as f64);
    2.0 * padded.iter().product::<f64>() * gemm.matrices()[2] as f64
}

/// A product that occupies all cores for a fraction of a second, with edges like the large one's.
fn small(gemm: &Gemm, threads: usize) -> Gemm {
    // At least two blocks per thread, for kernels with the largest tiles.
    let side = 128 * ((2 * threads) as f64).sqrt().ceil() as usize;
    let part = |size: usize, most: usize| if size <= most { size } else { most + size % 4 };
    let (m, n, k) = (part(gemm.m, side), part(gemm.n, side), part(gemm.k, DEPTH));
    let small = Gemm::new(m, n, k).scaled(gemm.alpha, gemm.beta);
    let small = small.transposed(gemm.trans_a, gemm.trans_b);
    let small = small.computed_in(gemm.compute).stored_as(gemm.output);
    // For a batch, enough products for this number of blocks.
    let blocks = (side / 128).pow(2);
    let products = blocks.div_ceil(m.div_ceil(128).max(1) * n.div_ceil(128).max(1));
    match gemm.matrices()[2].min(products) {
        0 | 1 => small,
        batch => small.stacked(batch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left() {
        let forecast = Forecast { each: vec![10.0, 0.0, 20.0], runs: 3 };
        assert_eq!(forecast.all(), 90.0);
        assert_eq!(
            [0, 1, 2].map(|place| forecast.from(place)),
            [(10.0, 60.0), (0.0, 60.0), (20.0, 0.0)]
        );
    }

    #[test]
    fn a_small_product_has_the_edges_of_the_large_one() {
        let large = Gemm::new(4095, 100, 4096).scaled(2.0, 1.0);
        assert_eq!(small(&large, 2), Gemm::new(259, 100, 256).scaled(2.0, 1.0));
        assert_eq!(small(&Gemm::new(4096, 4096, 7), 16), Gemm::new(768, 768, 7));
        let tiny = small(&Gemm::new(1, 1, 1).stacked(70000), 2);
        assert_eq!(tiny, Gemm::new(1, 1, 1).stacked(4));
        assert_eq!(flops(&tiny), 4.0 * 2.0 * 64.0 * 64.0 * 32.0);
    }
}
