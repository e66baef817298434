//! Results on stdout, for people or for programs.

use std::io::{self, Write};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use host::kernels::{LADDER, Shared};
use host::time::Clock;
use host::verify::{Bound, Check, Deviation, Method};
use serde::Serialize;

use super::args::Format;
use super::run::Record;

/// Writes to stdout. A reader that has gone away has seen what it wanted.
fn print(text: &str) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        eprintln!("warning: stdout cannot be written: {error}");
    }
}

fn json_line(value: &impl Serialize) -> String {
    // These types have string keys only, so serialisation cannot fail.
    serde_json::to_string(value).expect("plain data") + "\n"
}

/// A rung of the ladder, in JSON. Sizes are in elements, bytes where it says so.
#[derive(Serialize)]
struct Rung {
    kernel: &'static str,
    summary: &'static str,
    block_tile: [u32; 3],
    thread_tile: [u32; 2],
    threads: u32,
    /// Null where it depends on K.
    shared_bytes: Option<u32>,
}

/// Prints the kernels.
pub fn list(format: Format) {
    let rungs = LADDER.iter().map(|spec| Rung {
        kernel: spec.name,
        summary: spec.summary,
        block_tile: [spec.tile.bm, spec.tile.bn, spec.tile.bk],
        thread_tile: [spec.tile.tm, spec.tile.tn],
        threads: spec.threads(),
        shared_bytes: match spec.shared {
            Shared::Static(bytes) => Some(bytes),
            Shared::Dynamic(_) => None,
        },
    });
    match format {
        Format::Json => print(&rungs.map(|rung| json_line(&rung)).collect::<String>()),
        Format::Table => {
            let mut table =
                table(["kernel", "BM,BN,BK", "TMxTN", "threads", "shared", "what it does"], 1..5);
            for rung in rungs {
                let [bm, bn, bk] = rung.block_tile;
                let [tm, tn] = rung.thread_tile;
                table.add_row([
                    rung.kernel.to_owned(),
                    format!("{bm},{bn},{bk}"),
                    format!("{tm}x{tn}"),
                    rung.threads.to_string(),
                    rung.shared_bytes
                        .map_or("grows with K".to_owned(), |bytes| format!("{bytes} B")),
                    rung.summary.to_owned(),
                ]);
            }
            print(&format!("{table}\n"));
        }
    }
}

/// Prints one result.
pub fn result(record: &Record<'_>, format: Format) {
    print(&match format {
        Format::Json => json_line(&ResultLine::new(record)),
        Format::Table => page(record),
    });
}

/// One result in JSON. What does not apply is null, and so is what is not finite.
#[derive(Serialize)]
struct ResultLine<'a> {
    kernel: &'a str,
    device: &'a str,
    device_kind: &'static str,
    compute_capability: String,
    m: usize,
    n: usize,
    k: usize,
    alpha: f32,
    beta: f32,
    /// Null if the matrices came from files.
    seed: Option<u64>,
    /// How many runs were timed.
    samples: usize,
    /// `gpu_events`, or `cpu_simulation` for the time the software device took, which
    /// says nothing about a GPU; `gflops` is from the same clock.
    clock: &'static str,
    time_ms: Times,
    /// At the median time. Null if there is nothing to compute.
    gflops: Option<f64>,
    /// Null on the software device.
    peak_gflops: Option<f64>,
    percent_of_peak: Option<f64>,
    max_abs_error: Option<f64>,
    /// The tolerance of the element with the largest error.
    tolerance: Option<f64>,
    status: &'static str,
    check: CheckLine,
}

#[derive(Serialize)]
struct Times {
    median: f64,
    mean: f64,
    min: f64,
    max: f64,
    samples: Vec<f64>,
}

#[derive(Serialize)]
struct CheckLine {
    /// `full`, or `sampled` for sampled rows and columns and Freivalds' check of all.
    method: &'static str,
    /// Elements per group of Freivalds' check.
    group: Option<usize>,
    /// `probabilistic` or `worst_case`.
    bound: &'static str,
    elements: u64,
    failures: u64,
    overflowed: u64,
    /// The element with the largest share of its tolerance.
    worst: Option<Worst>,
}

#[derive(Serialize)]
struct Worst {
    row: usize,
    col: usize,
    error: f64,
    tolerance: f64,
    ratio: f64,
}

impl<'a> ResultLine<'a> {
    fn new(record: &'a Record<'_>) -> Self {
        let Record { spec, device, gemm, seed, samples, check } = record;
        let info = device.info();
        let gflops = samples.gflops(gemm.flops());
        let peak = info.peak.map(|peak| peak.gflops());
        Self {
            kernel: spec.name,
            device: &info.name,
            device_kind: if device.is_soft() { "soft" } else { "gpu" },
            compute_capability: format!("{}.{}", info.capability.0, info.capability.1),
            m: gemm.m,
            n: gemm.n,
            k: gemm.k,
            alpha: gemm.alpha,
            beta: gemm.beta,
            seed: *seed,
            samples: samples.ms().len(),
            clock: match samples.clock() {
                Clock::GpuEvents => "gpu_events",
                Clock::CpuSimulation => "cpu_simulation",
            },
            time_ms: Times {
                median: samples.median(),
                mean: samples.mean(),
                min: samples.min(),
                max: samples.max(),
                samples: samples.ms().to_vec(),
            },
            gflops,
            peak_gflops: peak,
            percent_of_peak: percent(gflops, peak),
            max_abs_error: check.largest.map(|d| d.error),
            tolerance: check.largest.map(|d| d.tolerance),
            status: status(check),
            check: CheckLine {
                method: match check.method {
                    Method::Full => "full",
                    Method::Sampled { .. } => "sampled",
                },
                group: match check.method {
                    Method::Full => None,
                    Method::Sampled { group } => Some(group),
                },
                bound: match check.bound {
                    Bound::Probabilistic => "probabilistic",
                    Bound::WorstCase => "worst_case",
                },
                elements: check.elements,
                failures: check.failures,
                overflowed: check.overflowed,
                worst: check.worst.map(|d| Worst {
                    row: d.row,
                    col: d.col,
                    error: d.error,
                    tolerance: d.tolerance,
                    ratio: d.ratio(),
                }),
            },
        }
    }
}

/// One result for people: what was asked, a row of numbers, and what they mean.
fn page(record: &Record<'_>) -> String {
    let Record { spec, device, gemm, seed, samples, check } = record;
    let info = device.info();
    let gflops = samples.gflops(gemm.flops());
    let (time, rate) = match samples.clock() {
        Clock::GpuEvents => ("time", "GFLOP/s"),
        Clock::CpuSimulation => ("CPU time", "simulated GFLOP/s"),
    };
    let number = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "-".to_owned(),
    };
    let error = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3e}"));
    let mut table = table(
        [
            "kernel",
            &format!("average {time}"),
            &format!("median {time}"),
            rate,
            "% of peak",
            "max error",
            "tolerance",
            "check",
        ],
        1..7,
    );
    table.add_row([
        spec.name.to_owned(),
        milliseconds(samples.mean()),
        milliseconds(samples.median()),
        number(gflops, 1),
        number(percent(gflops, info.peak.map(|peak| peak.gflops())), 1),
        error(check.largest.map(|d| d.error)),
        error(check.largest.map(|d| d.tolerance)),
        status(check).to_owned(),
    ]);
    let matrices = match seed {
        Some(seed) => format!("random matrices, seed {seed}"),
        None => "matrices from files".to_owned(),
    };
    let (major, minor) = info.capability;
    let runs = samples.ms().len();
    let speed = match info.peak {
        Some(peak) => format!("peak:    {peak}\n"),
        None => "speed:   of the simulation on this CPU; it says nothing about a GPU\n".to_owned(),
    };
    format!(
        "device:  {}, compute capability {major}.{minor}\n\
         product: C = {} A B + {} C, M {} N {} K {}, {matrices}\n\
         {table}\n\
         runs:    {runs}, from {} to {}\n\
         {speed}\
         check:   {}\n",
        info.name,
        gemm.alpha,
        gemm.beta,
        gemm.m,
        gemm.n,
        gemm.k,
        milliseconds(samples.min()),
        milliseconds(samples.max()),
        describe(check),
    )
}

/// The check in words.
fn describe(check: &Check) -> String {
    let method = match check.method {
        Method::Full => format!("{} elements against the full product in f64", check.elements),
        Method::Sampled { group } => format!(
            "{} elements against f64 rows and columns, and all by Freivalds' check in groups of \
             {group}, because the full product is too large",
            check.elements
        ),
    };
    let bound = match check.bound {
        Bound::Probabilistic => "probabilistic rounding bound, 8 sigma",
        Bound::WorstCase => "worst-case rounding bound",
    };
    let worst = match check.worst {
        Some(worst @ Deviation { row, col, .. }) => {
            format!(
                "; the worst is at row {row}, column {col}, {:.2} % of its tolerance",
                100.0 * worst.ratio()
            )
        }
        None => String::new(),
    };
    let failures = match check.failures {
        0 => String::new(),
        count => format!("; at least {count} wrong"),
    };
    format!("{method}, {bound}{worst}{failures}")
}

fn status(check: &Check) -> &'static str {
    if check.passed() { "PASS" } else { "FAIL" }
}

fn percent(gflops: Option<f64>, peak: Option<f64>) -> Option<f64> {
    Some(100.0 * gflops? / peak?)
}

/// A time with four digits, in ms.
fn milliseconds(ms: f64) -> String {
    let digits = (3 - ms.max(1e-3).log10().floor() as i32).clamp(0, 6) as usize;
    format!("{ms:.digits$} ms")
}

/// A table that looks the same on and off a terminal, with these columns to the right.
fn table<const N: usize>(header: [&str; N], right: std::ops::Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header);
    for (i, column) in table.column_iter_mut().enumerate() {
        if right.contains(&i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_four_digits() {
        assert_eq!(milliseconds(0.0), "0.000000 ms");
        assert_eq!(milliseconds(0.012_345_6), "0.01235 ms");
        assert_eq!(milliseconds(1.234_56), "1.235 ms");
        assert_eq!(milliseconds(12_345.6), "12346 ms");
    }

    #[test]
    fn percentages_need_both() {
        assert_eq!(percent(Some(1.0), Some(4.0)), Some(25.0));
        assert_eq!(percent(None, Some(4.0)), None);
        assert_eq!(percent(Some(1.0), None), None);
    }
}
