//! Measures tensor-parallel layers and a large square against one device, and checks elements.
//!
//! ```text
//! measure [TRANSPORT...] [--gpus N] [--timeout S] [--short] [--soft]
//! ```
//!
//! One process has all ranks, unless a launcher has started one per GPU (torchrun, mpirun, srun).
//! Each line is a measurement as JSON, in ms: the median of five batches, on the slowest rank.
//! Transports are copies, nccl and host. `--short` leaves out the 70B layers and the squares.
//! `--soft` runs tiny shapes on software devices, whose times say nothing.

use std::process::ExitCode;
use std::time::Duration;

use cuda_distributed::{
    DistributedMatrix, Distribution, Error, Schedule, Settings, Transport, World, gemm,
};
use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, OutputOf, Scalar, Timer, bf16};

/// M, K and N of the first layer, with its name. The second has half of N, gated, as its K.
type Layer = (&'static str, [usize; 3]);

const LAYERS: [Layer; 4] = [
    ("8B MLP", [2048, 4096, 28_672]),
    ("8B MLP", [8192, 4096, 28_672]),
    ("70B MLP", [2048, 8192, 57_344]),
    ("70B MLP", [8192, 8192, 57_344]),
];
const TINY: [Layer; 1] = [("tiny", [32, 64, 128])];

/// A multiple of 1/128 below 1, which every element type has.
fn element(row: usize, col: usize, seed: usize) -> f32 {
    let mixed = (row as u32).wrapping_mul(0x9e37_79b1)
        ^ (col as u32).wrapping_mul(0x85eb_ca77)
        ^ (seed as u32).wrapping_mul(0xc2b2_ae3d);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x2c1b_3c6d);
    ((mixed >> 12 & 0xff) as f32 - 128.0) / 128.0
}

/// A number of any element type.
trait Number: Scalar {
    fn of(value: f32) -> Self;
}

impl Number for f32 {
    fn of(value: f32) -> Self {
        value
    }
}

impl Number for bf16 {
    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// A distributed matrix of [`element`]s.
fn filled<T: Number>(
    world: &World,
    shape: [usize; 2],
    distribution: Distribution,
    seed: usize,
) -> Result<DistributedMatrix<T>, Error> {
    let [rows, cols] = distribution.part(shape, world.size(), world.rank());
    let mut elements = Vec::with_capacity(rows.len() * cols.len());
    for row in rows.clone() {
        elements.extend(cols.clone().map(|col| T::of(element(row, col, seed))));
    }
    let part = DeviceMatrix::from_slice(world.device(), [rows.len(), cols.len()], &elements)?;
    DistributedMatrix::from_device(world.clone(), shape, distribution, part)
}

/// Compares some elements of C with sums in f64.
///
/// The tolerance is the worst case of tensor cores, `(9 K / 8 + 4) u`, with one more addition per
/// rank and a rounding to C's type.
fn check<U: Scalar>(c: &DistributedMatrix<U>, k: usize, seeds: [usize; 2]) -> Result<f64, Error> {
    let [m, n] = c.shape();
    let (mut worst, size) = (0f64, c.world().size() as f64);
    for row in [0, m / 2 - 1, m / 2, m - 1] {
        let found = c.rows_to_host(row..row + 1)?;
        for i in 0..16 {
            let col = (i * (n - 1) / 15).min(n - 1);
            let products = (0..k).map(|i| {
                f64::from(element(row, i, seeds[0])) * f64::from(element(i, col, seeds[1]))
            });
            let (sum, norm) = products.fold((0.0, 0.0), |(sum, norm), p| (sum + p, norm + p.abs()));
            let unit = f64::from(f32::EPSILON) / 2.0;
            let rounding = if U::ELEMENT.bytes() == 2 { 1.0 / 256.0 } else { unit };
            let tolerance =
                (9.0 * k as f64 / 8.0 + 4.0 + size) * unit * norm + rounding * sum.abs();
            let error = (f64::from(found.at(0, col)) - sum).abs();
            assert!(error <= tolerance, "element {row}, {col}: {error} > {tolerance}");
            worst = worst.max(error / tolerance);
        }
    }
    Ok(worst)
}

/// Work to measure, with its name.
type Work<'w> = (&'w str, &'w mut dyn FnMut() -> Result<(), Error>);

/// The median times of each work in ms, in five rounds of one batch each: what a device's power
/// allows changes within seconds. Work of this many operations per device runs 30 times in a batch,
/// or for about 0.1 s.
fn times<'w>(
    world: &World,
    flops: f64,
    works: &mut [Work<'w>],
) -> Result<Vec<(&'w str, f64)>, Error> {
    let timer = Timer::new(world.device())?;
    let batch = |count: usize, work: &mut dyn FnMut() -> Result<(), Error>| {
        world.synchronize()?;
        world.barrier()?;
        let ms = timer.milliseconds(|| (0..count).try_for_each(|_| work()))?;
        Ok::<_, Error>(ms / count as f64)
    };
    // All ranks run equally many.
    let is_soft = world.device().is_soft();
    let count = if is_soft { 1 } else { (7e13 / flops).clamp(2.0, 30.0) as usize };
    let mut rounds = vec![Vec::new(); works.len()];
    for round in 0..6 {
        for ((_, work), times) in works.iter_mut().zip(&mut rounds) {
            let time = batch(count, *work)?;
            // The first round warms up.
            if round > 0 {
                times.push(time);
            }
        }
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    Ok(works.iter().map(|(name, _)| *name).zip(rounds.into_iter().map(median)).collect())
}

/// One line of the report.
type Line = (String, f64);

/// M x K x N on one device.
struct Alone<T> {
    a: DeviceMatrix<T>,
    b: DeviceMatrix<T>,
    c: DeviceMatrix<T>,
}

impl<T: cuda_distributed::Multiply + Number + OutputOf<T>> Alone<T> {
    fn new(device: &Device, [m, k, n]: [usize; 3]) -> Result<Self, Error> {
        let fill = |rows: usize, cols: usize| {
            let mut elements = Vec::with_capacity(rows * cols);
            for row in 0..rows {
                elements.extend((0..cols).map(|col| T::of(element(row, col, 9))));
            }
            DeviceMatrix::from_slice(device, [rows, cols], &elements)
        };
        Ok(Self { a: fill(m, k)?, b: fill(k, n)?, c: DeviceMatrix::zeros(device, [m, n])? })
    }

    fn run(&mut self) -> Result<(), Error> {
        Ok(cuda_gemm::gemm(&self.a, &self.b).run(&mut self.c)?)
    }
}

fn layers(world: &World, layers: &[Layer]) -> Result<Vec<Line>, Error> {
    let mut lines = Vec::new();
    let size = world.size();
    for (name, [m, k, n]) in layers {
        let (m, k, n) = (*m, *k, *n);
        let [rows, columns] = [Distribution::Rows, Distribution::Columns];
        let mut line =
            |what: &str, value: f64| lines.push((format!("{name}, M {m}: {what}"), value));
        if let Some(link) = world.link() {
            for (what, bytes) in
                [("all-gather", 2 * m / size * k), ("partial sums", 4 * m / size * k)]
            {
                let ms = 1e-3 * link.microseconds((size - 1) * bytes);
                line(&format!("{what} alone, from the link"), ms);
            }
        }
        let mut alone = Alone::<bf16>::new(world.device(), [m, k, n / size])?;
        let x = filled::<bf16>(world, [m, k], rows, 1)?;
        let w = filled::<bf16>(world, [k, n], columns, 2)?;
        let mut y = DistributedMatrix::<bf16>::zeros(world.clone(), [m, n], columns)?;
        let mut works: [Work<'_>; 2] = [
            ("column-parallel product alone", &mut || alone.run()),
            ("all-gather + product", &mut || gemm(&x, &w).run(&mut y)),
        ];
        let flops = 2.0 * (m * n / size * k) as f64;
        for (what, ms) in times(world, flops, &mut works)? {
            line(what, ms);
        }
        line("its largest error / tolerance", check(&y, k, [1, 2])?);
        drop((alone, x, w, y));

        let inner = n / 2;
        let mut alone = Alone::<bf16>::new(world.device(), [m, inner / size, k])?;
        let x = filled::<bf16>(world, [m, inner], columns, 3)?;
        let w = filled::<bf16>(world, [inner, k], rows, 4)?;
        let mut y = DistributedMatrix::<bf16>::zeros(world.clone(), [m, k], rows)?;
        let mut works: [Work<'_>; 2] = [
            ("row-parallel product alone", &mut || alone.run()),
            ("product + reduce-scatter", &mut || {
                gemm(&x, &w).schedule(Schedule::Reduce).run(&mut y)
            }),
        ];
        let flops = 2.0 * (m * k) as f64 * (inner / size) as f64;
        for (what, ms) in times(world, flops, &mut works)? {
            line(what, ms);
        }
        line("its largest error / tolerance", check(&y, inner, [3, 4])?);
    }
    Ok(lines)
}

/// A square whose matrices are spread: rows without traffic, and with all of B gathered.
fn square<T>(world: &World, size: usize) -> Result<Vec<Line>, Error>
where
    T: cuda_distributed::Multiply + Number + OutputOf<T>,
    f32: OutputOf<T>,
{
    let shape = [size, size];
    let name = format!("{} {size}", T::ELEMENT);
    let mut alone = Alone::<T>::new(world.device(), [size; 3])?;
    let a = filled::<T>(world, shape, Distribution::Rows, 5)?;
    let mut c = DistributedMatrix::<T>::zeros(world.clone(), shape, Distribution::Rows)?;
    let mut lines = Vec::new();
    for of_b in [Distribution::Replicated, Distribution::Columns, Distribution::Rows] {
        let b = filled::<T>(world, shape, of_b, 6)?;
        let by_rows = format!("A by rows, B {of_b}");
        let mut works: [Work<'_>; 2] =
            [("one device", &mut || alone.run()), (&by_rows, &mut || gemm(&a, &b).run(&mut c))];
        // FMAs have a tenth of the tensor cores' rate.
        let flops = if T::ELEMENT.bytes() == 4 { 20.0 } else { 2.0 } * (size as f64).powi(3);
        for (what, ms) in times(world, flops, &mut works)? {
            lines.push((format!("{name}: {what}"), ms));
        }
        check(&c, size, [5, 6])?;
    }
    Ok(lines)
}

fn measure(world: &World, is_short: bool) -> Result<Vec<Line>, Error> {
    let mut lines = Vec::new();
    let is_soft = world.device().is_soft();
    if !is_soft {
        let link = world.measure_link()?;
        lines.push(("link, GB/s".to_owned(), link.gbytes_per_s));
        lines.push(("link, us".to_owned(), link.latency_us));
    }
    lines.extend(layers(
        world,
        match (is_soft, is_short) {
            (true, _) => &TINY,
            (false, true) => &LAYERS[..2],
            (false, false) => &LAYERS,
        },
    )?);
    if is_short {
        return Ok(lines);
    }
    let size = if is_soft { 64 } else { 16_384 };
    lines.extend(square::<bf16>(world, size)?);
    lines.extend(square::<f32>(world, size)?);
    Ok(lines)
}

fn print(transport: &str, lines: &[Line]) {
    for (what, value) in lines {
        println!("{{\"transport\":\"{transport}\",\"what\":\"{what}\",\"value\":{value:.4}}}");
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [is_soft, is_short] =
        ["--soft", "--short"].map(|option| arguments.iter().any(|argument| argument == option));
    let number = |option: &str, default: u32| {
        let at = arguments.iter().position(|argument| argument == option);
        let text = at.map(|at| arguments.get(at + 1).map_or("", String::as_str));
        text.map_or(Ok(default), |text| match text.parse::<u32>() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(format!("{option} takes a number from 1 on, not `{text}`")),
        })
    };
    let gpus = number("--gpus", 2)?;
    let timeout = Duration::from_secs(number("--timeout", 30)?.into());
    let mut transports = Vec::new();
    for (name, transport) in
        [("copies", Transport::Copies), ("nccl", Transport::Nccl), ("host", Transport::Host)]
    {
        if arguments.iter().any(|argument| argument == name) {
            transports.push(transport);
        }
    }
    if transports.is_empty() {
        transports.push(Transport::Auto);
    }
    for transport in transports {
        let settings = Settings { transport, timeout, ..Settings::default() };
        if std::env::var_os("RANK").is_some() {
            let world = World::from_environment(&settings)?;
            let lines = measure(&world, is_short)?;
            print(&format!("{}, rank {} alone", world.transport(), world.rank()), &lines);
            continue;
        }
        let choice =
            |i| if is_soft { DeviceChoice::SoftOrdinal(i) } else { DeviceChoice::GpuOrdinal(i) };
        let devices = (0..gpus).map(|i| Device::open(choice(i))).collect::<Result<Vec<_>, _>>()?;
        let ranks = World::run(&devices, &settings, |world| {
            Ok::<_, Error>((world.transport(), measure(&world, is_short)?))
        });
        let ranks = ranks.into_iter().collect::<Result<Vec<_>, _>>()?;
        let (name, mut slowest) = ranks[0].clone();
        for (_, lines) in &ranks[1..] {
            slowest.iter_mut().zip(lines).for_each(|(most, line)| most.1 = most.1.max(line.1));
        }
        print(&name, &slowest);
    }
    Ok(())
}
