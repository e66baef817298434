//! `tune`: measures the table that `auto` chooses by, or products.

mod accept;
pub mod args;
mod lines;
mod products;
mod validate;

use std::fs::{self, File};
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use host::select::table::Costs;
use host::tune::{Effort, Progress, Run, SearchResult, Tuner, Tuning};
use host::{Device, Table};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::outcome::Outcome;
use super::product;
use crate::error::{Error, no_baseline, not_compared};
use crate::io::device::DeviceArg;
use crate::io::output::Output;
use crate::io::progress::Steps;
use crate::io::{device, stdio};
use crate::report::format::milliseconds;
use crate::report::json;
use crate::report::save::Save;
use args::TuneArgs;
use lines::SearchLine;

/// Does what the options say.
pub fn run(args: &TuneArgs) -> Result<Outcome, Error> {
    if let Some(path) = &args.accept {
        return accept::run(path);
    }
    if let Some(count) = args.validate {
        return validate::run(args, count as usize);
    }
    let shapes = product::shapes(&args.sizes, args.shapes.as_deref())?;
    if !shapes.is_empty() {
        return products::run(args, shapes);
    }
    let clock = Instant::now();
    if args.table.is_some() || !args.product.is_default() {
        let message = "without products all kernels are measured for a new table: name products with \
                       --sizes or --shapes, or leave out --table and the options of the product";
        return Err(Error::usage_of("tune", message));
    }
    let device = open(args)?;
    let path = table_path(args.out.as_deref(), &device.info().name);
    let output = Output::new(&path)?;
    let is_table = expect_table(&path)?;
    if let (true, Ok(table)) = (is_table, Table::read(&path))
        && !table.is_of(device.info())
    {
        let (of, file) = (&table.device().name, path.display());
        let message = format!("{file} is the table of {of}: name another file with --out");
        return Err(Error::usage_of("tune", message));
    }
    let mut save = args.save.as_deref().map(|save| Save::new(save, Some(&output))).transpose()?;
    if device.is_soft() {
        stdio::say("warning: simulated times say nothing about a GPU, and neither will this table");
    }
    // Until it is complete a table has another name, and what it replaces stays.
    let so_far = with_suffix(&path, ".part");
    let so_far_output = Output::new(&so_far)?;
    let before = with_suffix(&path, ".before");
    if is_table {
        expect_table(&before)?;
    }
    expect_table(&so_far)?;
    stdio::note(format_args!("until all is measured the table is in {}", so_far.display()));
    let tuner = Tuner::new(&device)?;
    stdio::print(&format!("device:  {}\n", device.info().name))?;

    let effort = if args.quick { Effort::Trial } else { Effort::Full };
    let steps = Steps::new("measuring");
    let report = |progress: Progress<'_>| match progress {
        Progress::Step { done, total } => {
            steps.at(done, total);
            Ok(())
        }
        other => steps.above(|| report(&other, &so_far_output, save.as_mut())),
    };
    let Tuning { table, results, wrong, measured_loss, corrected_loss, ffma_gflops } =
        tuner.run(effort, report)?;
    drop(steps);
    if is_table {
        fs::copy(&path, &before).map_err(|error| Error::not_written(&before, &error))?;
    }
    output.write_text(&table.to_json())?;
    fs::remove_file(&so_far).map_err(|error| Error::not_written(&so_far, &error))?;
    if is_table {
        stdio::note(format_args!("{} has the table that was there", before.display()));
    }
    let corrected =
        corrected_loss.map(|loss| format!(", {loss:.3}x with corrected costs")).unwrap_or_default();
    stdio::print(&format!(
        "model:   what it chooses takes {measured_loss:.3}x the time of the fastest over {} \
         shape(s){corrected}\n\
         errors:  {}\n\
         time:    {:.0} s{}\n\
         table:   {}\n",
        results.len(),
        errors(&results),
        clock.elapsed().as_secs_f64(),
        drift(ffma_gflops),
        path.display(),
    ))?;
    Ok(if wrong == 0 { Outcome::Right } else { Outcome::Wrong })
}

/// Opens the device. The software device must be named.
fn open(args: &TuneArgs) -> Result<Device, Error> {
    let device = device::open(args.device.choice())?;
    if device.is_soft() && matches!(args.device, DeviceArg::Auto) {
        let message = "there is no GPU to measure, and simulated times do not help auto; for a \
                       trial add --device soft; `rungs doctor` says what a GPU needs";
        return Err(Error::usage_of("tune", message));
    }
    Ok(device)
}

/// Keeps and prints what happens. The output is replaced as a whole, so that there is a table at
/// any time, though not of all kernels.
fn report(progress: &Progress<'_>, output: &Output, save: Option<&mut Save>) -> Result<(), Error> {
    if let Progress::Kernel { table, .. } = progress {
        output.write_text(&table.to_json())?;
    }
    report_line(progress, save)
}

/// Prints what happens, and saves a product's times.
fn report_line(progress: &Progress<'_>, save: Option<&mut Save>) -> Result<(), Error> {
    match progress {
        // The bar shows it.
        Progress::Step { .. } => {}
        Progress::DoesNotRun(kernel) => {
            stdio::note(format_args!("{} does not run on this device", kernel.name()));
        }
        Progress::WrongKernel { kernel, mistake } => {
            stdio::print(&format!("{:<16}WRONG, not measured: {mistake}\n", kernel.name()))?;
        }
        Progress::Kernel { costs, .. } => stdio::print(&costs_line(costs))?,
        Progress::NoBaseline(missing) => stdio::say(no_baseline(missing)),
        Progress::NotCompared(reason) => stdio::say(not_compared(reason)),
        Progress::NotMeasured { shape, reason } => {
            stdio::say(format_args!("warning: {shape} is not measured: {reason}"));
        }
        Progress::WrongChoice { shape, configuration, reason } => {
            stdio::print(&format!("{shape}: {configuration} is WRONG: {reason}\n"))?;
        }
        Progress::Product { result } => {
            if let Some(save) = save {
                save.line(&json::line(&SearchLine::new(result)))?;
            }
            stdio::print(&product_line(result))?;
        }
    }
    Ok(())
}

/// What a kernel costs, for people.
fn costs_line(costs: &Costs) -> String {
    let paces = costs
        .aligned
        .iter()
        .map(|pace| format!("{:.0} + {:.1} per step", pace.fixed_ns, pace.step_ns));
    format!(
        "{:<16}ns: {}; to meet {:.0} + {:.0} each\n",
        costs.kernel.name(),
        paces.collect::<Vec<_>>().join(", "),
        costs.reduction_ns,
        costs.partial_ns
    )
}

/// What came of a product, for people.
fn product_line(result: &SearchResult) -> String {
    let ms = |ns: f64| milliseconds(1e-6 * ns);
    let fastest = result.fastest();
    let chosen = match result.chosen_run() {
        Some(run) => format!("{:>11} measured", ms(run.ns())),
        None => "not measured".to_owned(),
    };
    let left_out = result.left_out().map(|(run, error)| {
        let Run { configuration, .. } = run;
        format!("; left out: {configuration}, {}, rms error {error:.2}x cuBLAS's", ms(run.ns()))
    });
    format!(
        "{:<7}{:<20}{:>11} predicted, {chosen}, {}; fastest {:>11}, {:.3}x, {}{}\n",
        result.gemm.compute,
        result.shape(),
        ms(result.chosen.ns),
        result.chosen.configuration,
        ms(fastest.ns()),
        result.loss_of_chosen(),
        fastest.configuration,
        left_out.unwrap_or_default(),
    )
}

/// How clocks drift, in words.
fn drift(ffma_gflops: Option<[f64; 2]>) -> String {
    let words = ffma_gflops.map(|[before, after]| {
        format!("; multiply-adds {before:.0} GFLOP/s before, {after:.0} after")
    });
    words.unwrap_or_default()
}

/// What errors decided, in words.
fn errors(results: &[SearchResult]) -> String {
    if results.iter().all(|result| result.cublas_rms_error.is_none()) {
        return "not compared with cuBLAS's".to_owned();
    }
    let left_out = results.iter().filter(|result| result.left_out().is_some()).count();
    let inaccurate = results.iter().filter(|result| !result.is_accurate()).count();
    format!(
        "the fastest was left out for its rms error for {left_out} shape(s); no choice was as \
         accurate as cuBLAS for {inaccurate}"
    )
}

/// Where the table goes.
fn table_path(out: Option<&Path>, device: &str) -> PathBuf {
    let name: String = device
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .collect();
    match out {
        Some(path) if !path.is_dir() => path.to_owned(),
        folder => folder.unwrap_or(Path::new(".")).join(format!("{name}.json")),
    }
}

/// A path with `suffix` appended to its name.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What every table has, of whatever age.
#[derive(Deserialize)]
struct AnyTable {
    #[serde(rename = "device")]
    _device: IgnoredAny,
    #[serde(rename = "kernels")]
    _kernels: IgnoredAny,
}

/// Whether there is a table at `path`; an error if there is anything else but an empty file.
fn expect_table(path: &Path) -> Result<bool, Error> {
    let is_table = match File::open(path) {
        Ok(file) if file.metadata().is_ok_and(|metadata| metadata.len() == 0) => Some(false),
        Ok(file) => {
            let read = serde_json::from_reader::<_, AnyTable>(BufReader::new(file));
            read.is_ok().then_some(true)
        }
        Err(error) => (error.kind() == ErrorKind::NotFound).then_some(false),
    };
    let reason = "it holds something other than a table of auto".to_owned();
    is_table.ok_or(Error::Output { path: path.to_owned(), reason })
}
