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
use std::time::{Duration, Instant};

use cuda_distributed::{
    DistributedMatrix, Distribution, Error, Schedule, Settings, Transport, World, gemm,
};
use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, OutputOf, Scalar, bf16};

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

/// The median time of `work` in ms, over five batches. Each is a product of M x N x K per device.
fn time(
    world: &World,
    shape: [usize; 3],
    mut work: impl FnMut() -> Result<(), Error>,
) -> Result<f64, Error> {
    let mut batch = |count: usize| -> Result<f64, Error> {
        world.synchronize()?;
        world.barrier()?;
        let start = Instant::now();
        for _ in 0..count {
            work()?;
        }
        world.synchronize()?;
        Ok(1e3 * start.elapsed().as_secs_f64() / count as f64)
    };
    batch(1)?;
    // All ranks run equally many.
    let flops: f64 = 2.0 * shape.iter().map(|len| *len as f64).product::<f64>();
    let count = if world.device().is_soft() { 1 } else { (2e13 / flops).clamp(2.0, 30.0) as usize };
    batch(count)?;
    let mut times = [0.0; 5];
    for time in &mut times {
        *time = batch(count)?;
    }
    times.sort_by(f64::total_cmp);
    Ok(times[2])
}

/// One line of the report.
type Line = (String, f64);

/// Rows and columns of a product on one device, with what it multiplies.
fn alone<T: cuda_distributed::Multiply + Number + OutputOf<T>>(
    world: &World,
    [m, k, n]: [usize; 3],
) -> Result<f64, Error> {
    let device = world.device();
    let fill = |rows: usize, cols: usize| {
        let mut elements = Vec::with_capacity(rows * cols);
        for row in 0..rows {
            elements.extend((0..cols).map(|col| T::of(element(row, col, 9))));
        }
        DeviceMatrix::from_slice(device, [rows, cols], &elements)
    };
    let (a, b) = (fill(m, k)?, fill(k, n)?);
    let mut c = DeviceMatrix::<T>::zeros(device, [m, n])?;
    time(world, [m, n, k], || Ok(cuda_gemm::gemm(&a, &b).run(&mut c)?))
}

fn layers(world: &World, layers: &[Layer]) -> Result<Vec<Line>, Error> {
    let mut lines = Vec::new();
    let size = world.size();
    for (name, [m, k, n]) in layers {
        let (m, k, n) = (*m, *k, *n);
        let [rows, columns] = [Distribution::Rows, Distribution::Columns];
        let mut line = |what: &str, ms: f64| lines.push((format!("{name}, M {m}: {what}"), ms));

        let link = world.link();
        let mut travel = |what: &str, bytes: usize| {
            if let Some(link) = link {
                line(what, 1e-3 * link.microseconds((size - 1) * bytes));
            }
        };
        travel("all-gather alone, from the link", 2 * m / size * k);
        travel("partial sums alone, from the link", 4 * m / size * k);
        line("column-parallel product alone", alone::<bf16>(world, [m, k, n / size])?);
        let x = filled::<bf16>(world, [m, k], rows, 1)?;
        let w = filled::<bf16>(world, [k, n], columns, 2)?;
        let mut y = DistributedMatrix::<bf16>::zeros(world.clone(), [m, n], columns)?;
        line("all-gather + product", time(world, [m, n / size, k], || gemm(&x, &w).run(&mut y))?);
        line("its largest error / tolerance", check(&y, k, [1, 2])?);
        drop((x, w, y));

        let inner = n / 2;
        line("row-parallel product alone", alone::<bf16>(world, [m, inner / size, k])?);
        let x = filled::<bf16>(world, [m, inner], columns, 3)?;
        let w = filled::<bf16>(world, [inner, k], rows, 4)?;
        let mut y = DistributedMatrix::<bf16>::zeros(world.clone(), [m, k], rows)?;
        let reduce = || gemm(&x, &w).schedule(Schedule::Reduce);
        line(
            "product + reduce-scatter",
            time(world, [m, k, inner / size], || reduce().run(&mut y))?,
        );
        line("its largest error / tolerance", check(&y, inner, [3, 4])?);
        for panels in [1, 2, 4] {
            let ms = time(world, [m, k, inner / size], || reduce().panels(panels).run(&mut y))?;
            line(&format!("product + reduce-scatter, panels {panels}"), ms);
            check(&y, inner, [3, 4])?;
        }
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
    let one = alone::<T>(world, [size; 3])?;
    let mut lines = vec![(format!("{name}: one device"), one)];
    let a = filled::<T>(world, shape, Distribution::Rows, 5)?;
    let mut c = DistributedMatrix::<T>::zeros(world.clone(), shape, Distribution::Rows)?;
    for of_b in [Distribution::Replicated, Distribution::Columns, Distribution::Rows] {
        let b = filled::<T>(world, shape, of_b, 6)?;
        let ms = time(world, [size / world.size(), size, size], || gemm(&a, &b).run(&mut c))?;
        lines.push((format!("{name}: A by rows, B {of_b}"), ms));
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
