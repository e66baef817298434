//! Results on stdout, as text or JSON.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Row, Table};
use host::kernels::abi::{Arithmetic, KernelDescriptor};
use host::time::Samples;
use host::verify::{Bound, Check, Deviation, Method};
use host::{Compute, DeviceInfo, DeviceKind, Element, Gemm, L2, Load, Shape, select};
use serde::Serialize;

use super::format::{Format, milliseconds, number, percent, scientific};
use super::json;
use super::record::{Ratio, Record, Setting};
use crate::error::Error;
use crate::io::stdio::{accent, print, print_styled};

/// A kernel, in JSON. Sizes are in elements, bytes where it says so.
#[derive(Serialize)]
struct Listed {
    kernel: &'static str,
    summary: &'static str,
    block_tile: [u32; 3],
    /// Null for 16-bit operands, whose accumulators belong to a warpgroup.
    thread_tile: Option<[u32; 2]>,
    threads: u32,
    /// Null where it depends on K.
    shared_bytes: Option<u64>,
    /// Whether `--splits` can split K.
    splits: bool,
}

/// Prints kernels.
pub fn list(
    format: Format,
    title: &str,
    kernels: impl Iterator<Item = &'static KernelDescriptor>,
) -> Result<(), Error> {
    let kernels = kernels.map(|kernel| Listed {
        kernel: kernel.name(),
        summary: kernel.summary(),
        block_tile: [kernel.tile().bm, kernel.tile().bn, kernel.tile().bk],
        thread_tile: (kernel.arithmetic() != Arithmetic::Bits16)
            .then_some([kernel.tile().tm, kernel.tile().tn]),
        threads: kernel.threads(),
        shared_bytes: kernel.shared_bytes(),
        splits: kernel.abi().splits_k(),
    });
    match format {
        Format::Json => print(&kernels.map(|kernel| json::line(&kernel)).collect::<String>()),
        Format::Table => {
            let mut table =
                table(["kernel", "BM,BN,BK", "TMxTN", "threads", "shared", "what it does"], 1..5);
            for listed in kernels {
                let [bm, bn, bk] = listed.block_tile;
                table.add_row([
                    listed.kernel.to_owned(),
                    format!("{bm},{bn},{bk}"),
                    listed.thread_tile.map_or("-".to_owned(), |[tm, tn]| format!("{tm}x{tn}")),
                    listed.threads.to_string(),
                    listed
                        .shared_bytes
                        .map_or("grows with K".to_owned(), |bytes| format!("{bytes} B")),
                    listed.summary.to_owned(),
                ]);
            }
            print(&format!("{title}\n{table}\n"))
        }
    }
}

/// `auto` in a list, in JSON: it has no geometry.
#[derive(Serialize)]
struct ListedAuto {
    kernel: &'static str,
    summary: &'static str,
}

/// Prints `auto` as the last of the kernels.
pub fn list_auto(format: Format) -> Result<(), Error> {
    let listed = ListedAuto { kernel: select::NAME, summary: select::SUMMARY };
    print(&match format {
        Format::Json => json::line(&listed),
        Format::Table => format!("{}: {}\n", listed.kernel, listed.summary),
    })
}

/// Prints one result.
pub fn result(record: &Record<'_>, format: Format) -> Result<(), Error> {
    match format {
        Format::Json => print(&json::result(record)),
        Format::Table => {
            let text = match record.setting.gpus {
                Some(_) => on_several(record),
                None => page(record),
            };
            print_styled(&text, &[accent(record.status().word())])
        }
    }
}

/// A result on several devices as a line.
fn on_several(record: &Record<'_>) -> String {
    let Record { setting, samples, speedup, transport, .. } = record;
    let time = match samples.device {
        DeviceKind::Gpu => {
            let speed = number(samples.gflops(setting.gemm.flops()), 0);
            let speedup = speedup.map(|ratio| format!(", {:.2} x one device", ratio.median));
            let time = milliseconds(samples.median());
            format!("  {time}, {speed} GFLOP/s{}", speedup.unwrap_or_default())
        }
        // A rate of the simulation would say nothing.
        DeviceKind::Soft => String::new(),
    };
    format!(
        "{}  {} {}{time}  on {}, {}\n",
        record.verdict(),
        Shape::of(&setting.gemm),
        setting.gemm.compute,
        setting.device_name(),
        transport.as_deref().unwrap_or_default(),
    )
}

/// One result as text: the product, a row of numbers, and what they mean.
fn page(record: &Record<'_>) -> String {
    let Record { setting, title, samples, check, load, .. } = record;
    let gflops = samples.gflops(setting.gemm.flops());
    let peak = setting.peak().map(|peak| peak.gflops());
    let mut columns = vec![("kernel", title.name.to_owned())];
    let names = time_columns(samples.ms.len(), samples.device);
    columns.extend(names.iter().copied().zip(times(samples)));
    // A rate of the simulation would say nothing.
    if samples.device == DeviceKind::Gpu {
        columns.push(("GFLOP/s", number(gflops, 1)));
        columns.push(("% of peak", number(percent(gflops, peak), 1)));
    }
    columns.push(("max error", scientific(check.largest.map(|d| d.error))));
    columns.push(("tolerance", scientific(check.largest.map(|d| d.tolerance))));
    columns.push(("check", record.verdict()));
    let (header, cells): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    let mut table = table(header, 1..cells.len() - 1);
    table.add_row(cells);
    let range = match samples.ms.len() {
        1 => String::new(),
        _ => format!(", from {} to {}", milliseconds(samples.min()), milliseconds(samples.max())),
    };
    let how = match (title.choice(), title.splits, title.asked_splits) {
        (Some(choice), ..) => format!("chosen:  {choice}\n"),
        (None, None, _) | (None, Some(1), None | Some(1)) => String::new(),
        (None, Some(splits), asked) => count("splits:  ", splits, asked),
    };
    let clusters = match (title.chosen, title.clusters, title.asked_clusters) {
        (Some(_), ..) | (None, None, None) => String::new(),
        (None, Some(clusters), asked) => count("clusters: ", clusters, asked),
        (None, None, Some(asked)) => {
            format!("clusters: none share tiles ({asked} were asked for)\n")
        }
    };
    let cols = match (title.chosen, title.columns) {
        (None, Some(cols)) => format!("tiles:   of {cols} columns\n"),
        _ => String::new(),
    };
    let form = match (title.chosen, title.transposes_c) {
        (None, Some(true)) => "form:    the transpose of C\n",
        (None, Some(false)) => "form:    C, not its transpose\n",
        _ => "",
    };
    let interval = samples.interval().map(|(low, high)| {
        format!("; 95 % interval of the median: {} to {}", milliseconds(low), milliseconds(high))
    });
    let launches = match samples.gap_free {
        None => String::new(),
        Some(is_gap_free) => {
            let gaps = if is_gap_free { "without gaps" } else { "with gaps" };
            format!(" of {} launch(es) each {gaps}", samples.launches)
        }
    };
    format!(
        "{}{table}\n{how}{clusters}{cols}{form}samples: {}{launches}{range}{}\n{}{}{}check:   {}\n{}",
        product(setting),
        samples.ms.len(),
        interval.unwrap_or_default(),
        setting.l2.map(|policy| l2(setting.device.info(), policy)).unwrap_or_default(),
        speed(setting),
        limit(load.as_ref()) + &share(record),
        describe(check),
        accuracy(record),
    )
}

/// The columns of times: one sample is one number.
pub fn time_columns(samples: usize, device: DeviceKind) -> &'static [&'static str] {
    match (samples, device) {
        (1, DeviceKind::Gpu) => &["time"],
        (1, DeviceKind::Soft) => &["CPU time"],
        (_, DeviceKind::Gpu) => &["average time", "median time"],
        (_, DeviceKind::Soft) => &["average CPU time", "median CPU time"],
    }
}

/// What stands in these columns.
pub fn times(samples: &Samples) -> Vec<String> {
    match samples.ms.len() {
        1 => vec![milliseconds(samples.median())],
        _ => vec![milliseconds(samples.mean()), milliseconds(samples.median())],
    }
}

/// A line with a number, and with the number asked for if it differs.
fn count(label: &str, count: u32, asked: Option<u32>) -> String {
    match asked {
        Some(asked) if asked != count => format!("{label}{count} ({asked} were asked for)\n"),
        _ => format!("{label}{count}\n"),
    }
}

/// The rms error, and the errors against unrounded A and B if the check rounds them.
fn accuracy(Record { check, unrounded, .. }: &Record<'_>) -> String {
    let rms = check.rms_error().map(|error| {
        let tolerance = check.rms_tolerance().map(|most| format!(", tolerance {most:.3e}"));
        format!("rms:     {error:.3e}{}\n", tolerance.unwrap_or_default())
    });
    let unrounded = unrounded.map(|check| {
        let (rms, max) = (check.rms_error(), check.largest.map(|d| d.error));
        let [rms, max] = [rms, max].map(scientific);
        format!("errors:  rms {rms}, max {max} against A and B before they were rounded\n")
    });
    [rms, unrounded].into_iter().flatten().collect()
}

/// The unit that limits the product.
fn limit(load: Option<&Load>) -> String {
    let limit = load.and_then(Load::limit);
    limit.map(|limit| format!("limited by {limit}\n")).unwrap_or_default()
}

/// The speed next to cuBLAS's, where both ran.
fn share(record: &Record<'_>) -> String {
    let Some(Ratio { median, interval }) = record.share_of_cublas else { return String::new() };
    let interval = interval.map(|(low, high)| format!(" ({low:.3} to {high:.3})"));
    format!("speed:   {median:.3} x cuBLAS{}\n", interval.unwrap_or_default())
}

/// The product's types, if they are not all f32.
pub fn types(gemm: &Gemm) -> String {
    let inputs = gemm.compute.element();
    match gemm.output {
        _ if gemm.compute == Compute::F32 => String::new(),
        _ if gemm.compute == Compute::Tf32x3 => "; f32 in two parts of TF32 each".to_owned(),
        _ if gemm.compute == Compute::Tf32 => {
            "; A and B rounded to TF32, the rest is f32".to_owned()
        }
        Element::F32 => format!("; A and B rounded to {inputs}, the rest is f32"),
        output => format!("; A, B and C rounded to {inputs}, sums in f32, C stored as {output}"),
    }
}

/// The device and the product.
pub fn product(setting: &Setting<'_>) -> String {
    let Gemm { m, n, k, alpha, beta, trans_a, trans_b, batch, epilogue, .. } = setting.gemm;
    let then = if epilogue.is_none() { String::new() } else { format!(", then {epilogue}") };
    let op = |trans: bool| if trans { "^T" } else { "" };
    let batch = match setting.groups.words() {
        Some(groups) => format!(", {groups}"),
        None if batch == 1 => String::new(),
        None => format!(", batch of {batch}"),
    };
    let matrices = match setting.seed {
        Some(seed) => format!("random matrices, seed {seed}"),
        None => "matrices from files".to_owned(),
    };
    let rounded = types(&setting.gemm);
    format!(
        "device:  {}, compute capability {}\n\
         product: C = {alpha} A{} B{} + {beta} C, M {m} N {n} K {k}{batch}{then}, {matrices}{rounded}\n",
        setting.device.info().name,
        setting.compute_capability(),
        op(trans_a),
        op(trans_b),
    )
}

/// How a GPU's times are taken.
pub fn method_of_timing(info: &DeviceInfo, policy: L2, samples: u32, sample_ms: f64) -> String {
    format!(
        "{}samples: {samples} of each, in turn; each is a batch of launches without gaps, \
         {sample_ms} ms or longer\n",
        l2(info, policy),
    )
}

/// What the L2 cache holds.
fn l2(info: &DeviceInfo, policy: L2) -> String {
    let words = match policy {
        L2::Cold => "cold: launches take turns on more matrices than fit into it",
        L2::Warm => "warm: all launches take the same matrices",
    };
    format!("L2:      {} MiB, {words}\n", info.l2_bytes >> 20)
}

/// The peak and cuBLAS, to compare a speed with.
pub fn speed(setting: &Setting<'_>) -> String {
    let cublas = match setting.cublas_version {
        Some(version) if setting.gemm.is_grouped() => {
            format!("cuBLAS:  {version}, one cublasGemmEx for each group in turn, sums in f32\n")
        }
        Some(version) if !matches!(setting.gemm.compute, Compute::F32 | Compute::Tf32x3) => {
            format!(
                "cuBLAS:  {version}, the fastest of cublasGemmEx and cublasLt's algorithms, of the same \
             types, sums in f32\n"
            )
        }
        Some(version) => format!("cuBLAS:  {version}, f32 arithmetic (no TF32)\n"),
        None => String::new(),
    };
    match setting.peak() {
        None if !setting.device.is_soft() => cublas,
        Some(peak) => format!("peak:    {peak}\n{cublas}"),
        None => "time:    of the interpreter on this CPU; it says nothing about a GPU\n".to_owned(),
    }
}

/// The check in words.
fn describe(check: &Check) -> String {
    let worst = match check.worst {
        Some(worst @ Deviation { row, col, .. }) => {
            format!(
                "; the worst is at row {row}, column {col}, {:.2} % of its tolerance",
                100.0 * worst.ratio()
            )
        }
        None => String::new(),
    };
    let failure = check.failure().map(|reason| format!("; {reason}")).unwrap_or_default();
    format!("{}{worst}{failure}", method(check))
}

/// The method and the bound of a check.
pub fn method(check: &Check) -> String {
    let method = match check.method {
        Method::Full => format!("{} elements against the full product in f64", check.elements),
        Method::Sampled { group } => format!(
            "{} elements against f64 rows and columns, and all by Freivalds' check in groups of \
             {group}, because the full product is too large",
            check.elements
        ),
    };
    let bound = match check.bound {
        Bound::Probabilistic => {
            "probabilistic rounding bounds, 8 sigma, of the largest and the rms error"
        }
        Bound::WorstCase => "worst-case rounding bound",
    };
    format!("{method}, {bound}")
}

/// A table whose columns in `right` are aligned right.
pub fn table(header: impl Into<Row>, right: std::ops::Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header);
    for (i, column) in table.column_iter_mut().enumerate() {
        if right.contains(&i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
