//! `tune`: measures the table that `auto` chooses by, or products.

mod accept;
pub mod args;
pub(super) mod lines;
mod products;
mod refit;
mod validate;

use std::fs::{self, File};
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use host::select::table::{Costs, EntryCosts};
use host::tune::{Calibration, Effort, Fit, Progress, Tuner};
use host::{Device, Table, find_kernel, select};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::outcome::Outcome;
use super::{product, tables};
use crate::error::Error;
use crate::io::device::DeviceArg;
use crate::io::output::Output;
use crate::io::progress::Steps;
use crate::io::{device, stdio};
use crate::report::save::Save;
use args::TuneArgs;

/// Does what the options say.
pub fn run(args: &TuneArgs) -> Result<Outcome, Error> {
    if !args.product.groups().is_empty() {
        return Err(Error::usage_of(
            "tune",
            "products with groups are not tuned: leave out --groups",
        ));
    }
    if let Some(path) = &args.accept {
        return accept::run(path);
    }
    if let Some(samples) = &args.refit {
        return refit::run(args, samples);
    }
    if let Some(count) = args.validate {
        return validate::run(args, count as usize);
    }
    let shapes = product::shapes(&args.sizes, args.shapes.as_deref())?;
    if !shapes.is_empty() {
        return products::run(args, shapes);
    }
    let clock = Instant::now();
    let kernels: Vec<_> =
        args.kernels.iter().map(|name| find_kernel(name)).collect::<Result<_, _>>()?;
    if args.table.is_some() && kernels.is_empty() || !args.product.is_default() {
        let message = "without products all kernels are measured for a new table: name products with \
                       --sizes or --shapes, or kernels with --kernels, or leave out --table and the \
                       options of the product";
        return Err(Error::usage_of("tune", message));
    }
    let device = open(args)?;
    let others = match kernels[..] {
        [] => None,
        _ => Some(costs_of_others(args, &device)?),
    };
    let output = TableOutput::new(args.out.as_deref(), &device.info().name)?;
    let mut save =
        args.save.as_deref().map(|save| Save::new(save, Some(&output.output))).transpose()?;
    if device.is_soft() {
        stdio::say("warning: simulated times say nothing about a GPU, and neither will this table");
    }
    let tuner = Tuner::new(&device)?;
    stdio::print(&format!("device:  {}\n", device.info().name))?;

    let effort = if args.quick { Effort::Trial } else { Effort::Full };
    let steps = Steps::new("measuring");
    let report = |progress: Progress<'_>| match progress {
        Progress::Step { done, total } => {
            steps.at(done, total);
            Ok(())
        }
        other => steps.above(|| report(&other)),
    };
    let Calibration { table, samples, fits, error, wrong, ffma_gflops } = match &others {
        None => tuner.run(effort, report)?,
        Some(table) => tuner.run_kernels(effort, table, &kernels, report)?,
    };
    drop(steps);
    // First what lasts, in case that stdout cannot be written.
    if let Some(save) = &mut save {
        samples.iter().try_for_each(|sample| save.line(&lines::sample(sample)))?;
    }
    output.write(&table)?;
    for (costs, fit) in table.kernels().iter().zip(fits).filter(|(_, fit)| fit.samples > 0) {
        stdio::print(&costs_line(costs, fit))?;
    }
    stdio::print(&format!(
        "model:   {} kernels, whose costs are fitted to {} times; half of these are within \
         {error:.3}x\n\
         time:    {:.0} s{}\n\
         table:   {}\n",
        table.kernels().len(),
        samples.len(),
        clock.elapsed().as_secs_f64(),
        drift(ffma_gflops),
        output.path.display(),
    ))?;
    Ok(if wrong == 0 { Outcome::Right } else { Outcome::Wrong })
}

/// The table with the costs of the kernels that are not measured.
fn costs_of_others(args: &TuneArgs, device: &Device) -> Result<Table, Error> {
    let table = match tables::read(args.table.as_deref())? {
        Some(table) => table,
        None => Table::nearest(device.info())?,
    };
    if !table.is_of(device.info()) {
        let message = format!(
            "--kernels adds to a table of this device, and the table is of {}: name another \
             with --table, or measure all kernels",
            table.device().name
        );
        return Err(Error::usage_of("tune", message));
    }
    Ok(table)
}

/// The file that a table of a device is written to.
struct TableOutput {
    path: PathBuf,
    output: Output,
    /// Whether there is a table, which is kept.
    is_table: bool,
}

impl TableOutput {
    /// Checks that the file, or a file of the device's name in this folder, can be replaced.
    fn new(out: Option<&Path>, device: &str) -> Result<Self, Error> {
        let path = table_path(out, device);
        let output = Output::new(&path)?;
        let is_table = expect_table(&path)?;
        if let (true, Ok(table)) = (is_table, Table::read(&path))
            && table.device().name != device
        {
            let (of, file) = (&table.device().name, path.display());
            let message = format!("{file} is the table of {of}: name another file with --out");
            return Err(Error::usage_of("tune", message));
        }
        if is_table {
            expect_table(&with_suffix(&path, ".before"))?;
        }
        Ok(Self { path, output, is_table })
    }

    /// Writes a table, and keeps the one that was there.
    fn write(&self, table: &Table) -> Result<(), Error> {
        if self.is_table {
            let before = with_suffix(&self.path, ".before");
            fs::copy(&self.path, &before).map_err(|error| Error::not_written(&before, &error))?;
            stdio::note(format_args!("{} has the table that was there", before.display()));
        }
        self.output.write_text(&table.to_json())
    }
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

/// Prints what happens, except steps and measured products.
fn report(progress: &Progress<'_>) -> Result<(), Error> {
    match progress {
        Progress::Step { .. } | Progress::Product { .. } | Progress::Judged(_) => {}
        Progress::DoesNotRun(kernel) => {
            stdio::note(format_args!("{} does not run on this device", kernel.name()));
        }
        Progress::WrongKernel { kernel, mistake } => {
            stdio::print(&format!("{:<16}WRONG, not measured: {mistake}\n", kernel.name()))?;
        }
        Progress::NotMeasured { shape, reason } => {
            stdio::say(format_args!("warning: {shape} is not measured: {reason}"));
        }
        Progress::WrongChoice { shape, configuration, reason } => {
            stdio::print(&format!("{shape}: {configuration} is WRONG: {reason}\n"))?;
        }
    }
    Ok(())
}

/// What a kernel costs, for people.
fn costs_line(costs: &Costs, Fit { samples, error }: Fit) -> String {
    let EntryCosts { resident, step_ns, shared_step_ns, block_ns, store_ns, .. } = costs.aligned;
    format!(
        "{:<25}{resident:>2} resident, ns: {step_ns:.0} a step, {shared_step_ns:.0} shared, \
         {block_ns:.0} a block, {store_ns:.0} a store; {samples} times, half within {error:.2}x\n",
        costs.kernel.name(),
    )
}

/// How clocks drift, in words.
fn drift(ffma_gflops: Option<[f64; 2]>) -> String {
    let words = ffma_gflops.map(|[before, after]| {
        format!("; multiply-adds {before:.0} GFLOP/s before, {after:.0} after")
    });
    words.unwrap_or_default()
}

/// Where the table goes.
fn table_path(out: Option<&Path>, device: &str) -> PathBuf {
    match out {
        Some(path) if !path.is_dir() => path.to_owned(),
        folder => folder.unwrap_or(Path::new(".")).join(select::file_name(device)),
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
