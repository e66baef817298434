//! The costs of a kernel, from a few grids that are timed in turn.

use cuda_gemm::kernels::TILES;
use cuda_gemm::kernels::abi::{KernelAbi, KernelDescriptor};
use cuda_gemm::select::table::{Costs, Pace};
use cuda_gemm::{Configuration, Gemm, Kernel};

use super::context::{BenchmarkContext, TimedJob, check, operands, reference};
use crate::buffers::{L2, RotatingBuffers};
use crate::error::Error;
use crate::job::Job;

/// The two lengths along K that tell a step from the rest.
const DEPTHS: [u32; 2] = [256, 1280];

/// The same for tiles with short steps, and for those without splits, which are for a K of a step
/// or a few.
const MEDIUM_DEPTHS: [u32; 2] = [32, 320];
const SHORT_DEPTHS: [u32; 2] = [16, 80];

/// Tiles that are longer than wide by this, or the other way round, lie in a line: C is as high
/// or as wide as they are, and memory is what they wait for.
const LINE: u32 = 4;

/// Waves of blocks, to see what those after the first cost.
const WAVES: u32 = 3;

/// Blocks that share a tile, to see what a reduction costs.
const PIECES: [u32; 2] = [2, 8];

/// Splits, without copies and with them, that must be right before anything is timed.
const CHECKED: [(u32, bool); 3] = [(1, false), (3, false), (1, true)];

/// What a launch takes that has nothing to do.
pub fn launch_ns(context: &BenchmarkContext, kernel: &Kernel) -> Result<f64, Error> {
    let gemm = Gemm::new(1, 1, 0);
    let job = TimedJob { job: Job::Kernel(kernel.prepare(gemm)?), on: 0 };
    let mut buffers = [context.buffers(&operands(gemm)?, L2::Warm)?];
    Ok(context.nanoseconds(&[job], &mut buffers)?[0])
}

/// Why a kernel is wrong, if it is: whole tiles and edges, both entry points, with splits.
pub fn mistake(context: &BenchmarkContext, kernel: &Kernel) -> Result<Option<String>, Error> {
    let descriptor = kernel.descriptor();
    let [bm, bn, bk] = [descriptor.tile().bm, descriptor.tile().bn, descriptor.tile().bk]
        .map(|size| size as usize);
    for beyond in [4, 5] {
        let gemm = Gemm::new(bm + 3, 2 * bn + beyond, 3 * bk + beyond);
        let operands = operands(gemm)?;
        let reference = reference(&operands)?;
        let mut buffers = context.buffers(&operands, L2::Warm)?;
        for (splits, staged) in CHECKED {
            if splits > 1 && !descriptor.abi().splits_k() {
                continue;
            }
            let way = Configuration { splits, staged, ..Configuration::new(descriptor) };
            let job = Job::Kernel(kernel.plan(gemm).divided(&way).prepare()?);
            if let Err(reason) = check(&job, &mut buffers, &reference)? {
                let Gemm { m, n, k, .. } = gemm;
                return Ok(Some(format!("{m}x{n}x{k}, {way}: {reason}")));
            }
        }
    }
    Ok(None)
}

/// Measures a kernel of which `resident` blocks fit a multiprocessor.
pub fn measure(
    context: &BenchmarkContext,
    kernel: &Kernel,
    resident: u32,
    launch_ns: f64,
) -> Result<Costs, Error> {
    let descriptor = kernel.descriptor();
    let mut costs = Costs {
        kernel: descriptor,
        aligned: Vec::new(),
        unaligned: Vec::new(),
        aligned_wave: None,
        unaligned_wave: None,
        reduction_ns: 0.0,
        partial_ns: 0.0,
        tile_ns: 0.0,
        narrow: 1.0,
        transposed_b: 1.0,
    };
    let benchmark = KernelBenchmark { context, kernel, launch_ns };
    let resident = if descriptor.abi() == KernelAbi::StreamK { 1 } else { resident };
    (costs.aligned, costs.aligned_wave) = benchmark.paces(resident, true)?;
    if descriptor.unaligned().is_some() {
        (costs.unaligned, costs.unaligned_wave) = benchmark.paces(resident, false)?;
    }
    let pace = costs.aligned[0];
    match descriptor.abi() {
        KernelAbi::StreamK => {
            [costs.reduction_ns, costs.partial_ns] = benchmark.stream_k_fixup(pace)?;
            costs.tile_ns = benchmark.tile(pace)?;
        }
        abi if abi.splits_k() => {
            [costs.reduction_ns, costs.partial_ns] = benchmark.reduction(pace)?;
        }
        _ => {}
    }
    Ok(costs)
}

/// What the measurements of a kernel share.
struct KernelBenchmark<'a> {
    context: &'a BenchmarkContext,
    kernel: &'a Kernel,
    launch_ns: f64,
}

/// A grid that is timed.
struct Grid {
    gemm: Gemm,
    splits: u32,
}

impl KernelBenchmark<'_> {
    /// The times of grids, which take turns, without what a launch takes.
    fn time(&self, grids: &[Grid]) -> Result<Vec<f64>, Error> {
        let mut buffers: Vec<RotatingBuffers> = Vec::new();
        let mut jobs = Vec::new();
        for (on, grid) in grids.iter().enumerate() {
            buffers.push(self.context.buffers(&operands(grid.gemm)?, L2::Cold)?);
            let job = Job::Kernel(self.kernel.plan(grid.gemm).splits(grid.splits).prepare()?);
            jobs.push(TimedJob { job, on });
        }
        let times = self.context.nanoseconds(&jobs, &mut buffers)?;
        Ok(times.into_iter().map(|ns| (ns - self.launch_ns).max(0.0)).collect())
    }

    /// With one block per multiprocessor, two, and so on; and what another wave of the most takes,
    /// but for persistent blocks.
    fn paces(&self, resident: u32, aligned: bool) -> Result<(Vec<Pace>, Option<Pace>), Error> {
        let descriptor = self.kernel.descriptor();
        let depths = depths(descriptor);
        let steps = depths.map(|depth| (depth / descriptor.tile().bk).max(1));
        let mut grids = Vec::new();
        let waves = (descriptor.abi() != KernelAbi::StreamK).then_some(WAVES * resident);
        for blocks in (1..=resident).chain(waves) {
            for steps in steps {
                let gemm = gemm(descriptor, blocks * self.context.multiprocessors(), steps);
                // One column of B or of A less: no row but the first is aligned.
                let wide = descriptor.unaligned().map_or([false; 3], |other| other.vectorized);
                let (n, k) = match (aligned, wide) {
                    (true, _) => (gemm.n, gemm.k),
                    (false, [_, true, _]) => (gemm.n - 1, gemm.k),
                    (false, _) => (gemm.n, gemm.k - 1),
                };
                grids.push(Grid { gemm: Gemm::new(gemm.m, n, k), splits: 1 });
            }
        }
        let mut times = self.time(&grids)?;
        let pace = |pair: &[f64]| {
            let step_ns = (pair[1] - pair[0]) / f64::from(steps[1] - steps[0]);
            // A clock that is too coarse, or noise; a step is never free.
            let step_ns = step_ns.max(0.01);
            Pace { fixed_ns: (pair[0] - f64::from(steps[0]) * step_ns).max(0.0), step_ns }
        };
        let wave = waves.map(|_| {
            let all = times.split_off(times.len() - 2);
            let first = &times[times.len() - 2..];
            pace(&[0, 1].map(|i| (all[i] - first[i]) / f64::from(WAVES - 1)))
        });
        Ok((times.chunks(2).map(pace).collect(), wave))
    }

    /// The reduction of the sums of blocks that share a tile: once, and for each of them.
    fn reduction(&self, pace: Pace) -> Result<[f64; 2], Error> {
        let descriptor = self.kernel.descriptor();
        let steps = (DEPTHS[0] / descriptor.tile().bk).max(1);
        let grid = |pieces: u32| {
            let tiles = (self.context.multiprocessors() / pieces).max(1);
            Grid { gemm: gemm(descriptor, tiles, pieces * steps), splits: pieces }
        };
        let times = self.time(&PIECES.map(grid))?;
        let alone = pace.fixed_ns + f64::from(steps) * pace.step_ns;
        Ok(reduction([times[0] - alone, times[1] - alone], PIECES))
    }

    /// The same for persistent blocks (stream-K fix-up): they share tiles where there are fewer of these.
    fn stream_k_fixup(&self, pace: Pace) -> Result<[f64; 2], Error> {
        let descriptor = self.kernel.descriptor();
        let multiprocessors = self.context.multiprocessors();
        let steps = DEPTHS[1] / descriptor.tile().bk;
        let tiles = PIECES.map(|pieces| (multiprocessors / pieces).max(1));
        let times = self
            .time(&tiles.map(|tiles| Grid { gemm: gemm(descriptor, tiles, steps), splits: 1 }))?;
        let extra = [0, 1].map(|i| {
            let blocks = multiprocessors.min(tiles[i] * PIECES[1]);
            let share = (tiles[i] * steps).div_ceil(blocks);
            times[i] - pace.fixed_ns - f64::from(share) * pace.step_ns
        });
        // A share begins in one tile and ends in the next.
        Ok(reduction(extra, PIECES.map(|pieces| pieces + 1)))
    }

    /// What it takes a persistent block to go from one tile to the next.
    fn tile(&self, pace: Pace) -> Result<f64, Error> {
        let descriptor = self.kernel.descriptor();
        let steps = DEPTHS[0] / descriptor.tile().bk;
        let grid =
            Grid { gemm: gemm(descriptor, 2 * self.context.multiprocessors(), steps), splits: 1 };
        let time = self.time(&[grid])?[0];
        Ok((time - pace.fixed_ns - f64::from(2 * steps) * pace.step_ns).max(0.0))
    }
}

/// The two lengths along K for a kernel.
fn depths(descriptor: &KernelDescriptor) -> [u32; 2] {
    let is_tile = TILES.iter().any(|tile| tile.name() == descriptor.name());
    let tile = descriptor.tile();
    let has_slices = descriptor.threads() * tile.tm * tile.tn > tile.bm * tile.bn;
    match descriptor.abi() {
        _ if !is_tile => DEPTHS,
        KernelAbi::Batched => SHORT_DEPTHS,
        _ if tile.bk <= SHORT_DEPTHS[0] || !has_slices => MEDIUM_DEPTHS,
        _ => DEPTHS,
    }
}

/// The line through two points: what it takes once, and for each piece.
fn reduction(extra: [f64; 2], pieces: [u32; 2]) -> [f64; 2] {
    let piece = (extra[1] - extra[0]) / f64::from(pieces[1] - pieces[0]);
    let piece = piece.max(0.0);
    [(extra[0] - f64::from(pieces[0]) * piece).max(0.0), piece]
}

/// A product of so many tiles and steps.
fn gemm(descriptor: &KernelDescriptor, tiles: u32, steps: u32) -> Gemm {
    let [bm, bn] = [descriptor.tile().bm, descriptor.tile().bn];
    let rows = match () {
        () if bm >= LINE * bn => tiles,
        () if bn >= LINE * bm => 1,
        // As near to a square as whole rows make it.
        () => {
            let skew = |rows: u32| {
                let high = f64::from(rows * bm);
                let wide = f64::from(tiles / rows * bn);
                (high / wide).ln().abs()
            };
            let divisors = (1..=tiles).filter(|rows| tiles.is_multiple_of(*rows));
            divisors.min_by(|a, b| skew(*a).total_cmp(&skew(*b))).unwrap_or(1)
        }
    };
    let [m, n, k] = [rows * bm, tiles / rows * bn, steps * descriptor.tile().bk];
    Gemm::new(m as usize, n as usize, k as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::find_kernel;

    #[test]
    fn grids_have_the_tiles_they_should() {
        for (name, tiles, shape) in [
            ("tile_64x64", 132, (12 * 64, 11 * 64)),
            ("tile_64x128", 264, (24 * 64, 11 * 128)),
            ("tile_4x128", 264, (4, 264 * 128)),
            ("skinny_n_32x1", 132, (132 * 32, 1)),
            ("tile_64x64", 1, (64, 64)),
        ] {
            let descriptor = find_kernel(name).unwrap();
            let gemm = gemm(descriptor, tiles, 5);
            // High or wide is the same to a square.
            let square = (shape.1, shape.0);
            let is_line = name == "tile_4x128" || name == "skinny_n_32x1";
            let sizes = (gemm.m, gemm.n);
            assert!(sizes == shape || sizes == square && !is_line, "{name}: {sizes:?}");
            assert_eq!(gemm.k, 5 * descriptor.tile().bk as usize, "{name}");
        }
    }

    #[test]
    fn reduction_is_a_line_that_never_gains_time() {
        assert_eq!(reduction([700.0, 1300.0], [2, 8]), [500.0, 100.0]);
        assert_eq!(reduction([700.0, 600.0], [2, 8]), [700.0, 0.0]);
        assert_eq!(reduction([-5.0, -9.0], [2, 8]), [0.0, 0.0]);
    }
}
