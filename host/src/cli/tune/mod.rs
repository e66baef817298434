//! `tune`: what `auto` goes by, measured.

mod accept;
pub mod args;
mod calibrate;
mod context;
mod costs;
mod search;
mod search_result;
mod shapes;

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use host::auto::table::Measured;
use host::auto::{Model, Table};
use host::kernels::{KernelAbi, KernelDescriptor, LADDER, TILES};
use host::output::Output;
use host::{Error, find_kernel};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::format::milliseconds;
use super::outcome::Outcome;
use super::save::Save;
use super::shape::Shape;
use super::{baseline, device, json, stdio};
use args::TuneArgs;
use context::BenchmarkContext;
use search::CandidateSearch;
use search_result::{Run, SearchResult};

/// Rungs of one launch per product that are worth a try beside the tiles.
const RUNGS: [&str; 2] = ["warptile", "async_copy"];

/// What a test on the software device measures.
const QUICK: [&str; 3] = ["async_copy", "tile_32x32", "tile_4x128"];

/// Of more blocks per multiprocessor nothing is measured.
const MOST_RESIDENT: u32 = 4;

/// Does what the options say.
pub fn run(args: &TuneArgs) -> Result<Outcome, Error> {
    if let Some(path) = &args.accept {
        return accept::run(path);
    }
    let clock = Instant::now();
    let device = device::open(args.device.choice())?;
    let path = table_path(args.out.as_deref(), &device.info().name);
    let output = Output::new(&path)?;
    expect_table(&path)?;
    let save = args.save.as_deref().map(|save| Save::new(save, Some(&output))).transpose()?;
    if device.is_soft() {
        stdio::say("warning: simulated times say nothing about a GPU, and nor will this table");
    }
    let context = BenchmarkContext::new(&device)?;
    stdio::print(&format!("device:  {}\n", device.info().name))?;

    let before = context.ffma_gflops()?;
    let mut tuning = Tuning { context: &context, output, save, wrong: 0 };
    let table = tuning.costs(&kernels(args.quick)?)?;
    let results = tuning.search(&table, args.quick)?;
    let after = context.ffma_gflops()?;

    let measured = calibrate::mean_loss(&table, &results);
    let calibrated = calibrate::calibrated(&table, &results)?;
    let is_better = calibrated.is_some();
    let table = with_exceptions(calibrated.unwrap_or(table), &results)?;
    tuning.output.write_text(&table.to_json())?;
    let corrected = if is_better {
        format!(", {:.3}x with corrected costs", calibrate::mean_loss(&table, &results))
    } else {
        String::new()
    };
    let drift = before.zip(after).map(|(before, after)| {
        format!("; multiply-adds {before:.0} GFLOP/s before, {after:.0} after")
    });
    stdio::print(&format!(
        "model:   what it chooses takes {measured:.3}x the time of the fastest over {} \
         shape(s){corrected}; {} exception(s)\n\
         errors:  {}\n\
         time:    {:.0} s{}\n\
         table:   {}\n",
        results.len(),
        table.exceptions().len(),
        errors(&results),
        clock.elapsed().as_secs_f64(),
        drift.unwrap_or_default(),
        path.display(),
    ))?;
    Ok(if tuning.wrong == 0 { Outcome::Right } else { Outcome::Wrong })
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

/// The table, with exceptions for products that its costs mislead about.
fn with_exceptions(table: Table, results: &[SearchResult]) -> Result<Table, Error> {
    let model = Model::new(&table);
    let exceptions = results.iter().filter_map(|result| result.exception(&model)).collect();
    Ok(table.with_exceptions(exceptions)?)
}

/// What is measured: the tiles, and rungs that may be faster where they fit.
fn kernels(quick: bool) -> Result<Vec<&'static KernelDescriptor>, Error> {
    let streaming = LADDER.iter().filter(|spec| spec.abi() == KernelAbi::StreamK);
    let mut kernels: Vec<_> = streaming.copied().collect();
    let named = if quick { &QUICK[..] } else { &RUNGS[..] };
    for name in named {
        kernels.push(find_kernel(name)?);
    }
    if !quick {
        kernels.extend(TILES);
    }
    Ok(kernels)
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

/// What every table has, of whatever age.
#[derive(Deserialize)]
struct AnyTable {
    #[serde(rename = "device")]
    _device: IgnoredAny,
    #[serde(rename = "kernels")]
    _kernels: IgnoredAny,
}

/// Makes sure that only a table is replaced by a table, or an empty file, or none.
fn expect_table(path: &Path) -> Result<(), Error> {
    let is_replaceable = match File::open(path) {
        Ok(file) => {
            let is_empty = file.metadata().is_ok_and(|metadata| metadata.len() == 0);
            is_empty || serde_json::from_reader::<_, AnyTable>(BufReader::new(file)).is_ok()
        }
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    let reason = "it holds something other than a table of auto".to_owned();
    is_replaceable.then_some(()).ok_or(Error::Output { path: path.to_owned(), reason })
}

/// The times of a product, in JSON.
#[derive(Serialize)]
struct SearchLine {
    m: usize,
    n: usize,
    k: usize,
    cublas_rms_error: Option<f64>,
    /// In the order of what they should have taken.
    runs: Vec<RunLine>,
}

#[derive(Serialize)]
struct RunLine {
    kernel: &'static str,
    splits: u32,
    packed: bool,
    predicted_ns: f64,
    ns: f64,
    rms_error: Option<f64>,
}

impl SearchLine {
    fn new(result: &SearchResult) -> Self {
        let run = |run: &Run| RunLine {
            kernel: run.choice.spec.name(),
            splits: run.choice.splits,
            packed: run.choice.packed,
            predicted_ns: run.predicted_ns,
            ns: run.ns(),
            rms_error: run.rms_error,
        };
        let Shape { m, n, k } = result.shape;
        let runs = result.runs.iter().map(run).collect();
        Self { m, n, k, cublas_rms_error: result.cublas_rms_error, runs }
    }
}

/// What the steps of a tuning share.
struct Tuning<'a> {
    context: &'a BenchmarkContext,
    /// Is replaced as a whole, so that there is a table at any time.
    output: Output,
    save: Option<Save>,
    /// How many kernels and choices were wrong.
    wrong: usize,
}

impl Tuning<'_> {
    /// Measures what kernels cost, one after the other.
    fn costs(&mut self, kernels: &[&'static KernelDescriptor]) -> Result<Table, Error> {
        let Self { context, .. } = *self;
        let device = &context.device;
        let empty = device.kernel(find_kernel("naive")?)?;
        let mut measured = Measured::now(device)?;
        let launch_ns = costs::launch_ns(context, &empty)?.max(1.0);
        let copy_gbytes = context.copy_gbytes()?;
        let mut table: Option<Table> = None;
        for spec in kernels {
            let resident = match device.resident_blocks(spec)?.min(MOST_RESIDENT) {
                0 => {
                    stdio::say(format_args!("note: {} does not run on this device", spec.name()));
                    continue;
                }
                resident => resident,
            };
            let kernel = device.kernel(spec)?;
            if let Some(mistake) = costs::mistake(context, &kernel)? {
                self.wrong += 1;
                stdio::print(&format!("{:<16}WRONG, not measured: {mistake}\n", spec.name()))?;
                continue;
            }
            let costs = costs::measure(context, &kernel, resident, launch_ns)?;
            let paces = costs
                .aligned
                .iter()
                .map(|pace| format!("{:.0} + {:.1} per step", pace.fixed_ns, pace.step_ns));
            let line = format!(
                "{:<16}ns: {}; to meet {:.0} + {:.0} each\n",
                spec.name(),
                paces.collect::<Vec<_>>().join(", "),
                costs.join_ns,
                costs.piece_ns
            );
            measured.add(spec);
            let mut all = table.map_or_else(Vec::new, |table| table.kernels().to_vec());
            all.push(costs);
            let so_far = Table::new(measured.clone(), launch_ns, copy_gbytes, all, Vec::new())?;
            self.output.write_text(&so_far.to_json())?;
            stdio::print(&line)?;
            table = Some(so_far);
        }
        table.ok_or(Error::NothingMeasured { count: kernels.len() })
    }

    /// Measures products; the table that is written has exceptions of those where the costs mislead.
    fn search(&mut self, table: &Table, quick: bool) -> Result<Vec<SearchResult>, Error> {
        let device = &self.context.device;
        // The software device has none.
        let cublas = if device.is_soft() { None } else { baseline::load(device)? };
        let auto = device.auto_by(table)?;
        let model = Model::new(table);
        let search = CandidateSearch {
            context: self.context,
            auto: &auto,
            model: &model,
            cublas: cublas.as_ref(),
        };
        let mut exceptions = Vec::new();
        let mut results = Vec::new();
        for shape in shapes::shapes(quick) {
            let result = match search.run(shape)? {
                Ok(result) => result,
                Err(reason) => {
                    stdio::say(format_args!("note: {shape} is not measured: {reason}"));
                    continue;
                }
            };
            for (choice, reason) in &result.wrong {
                self.wrong += 1;
                stdio::print(&format!("{shape}: {choice} is WRONG: {reason}\n"))?;
            }
            let ms = |ns: f64| milliseconds(1e-6 * ns);
            let (chosen, fastest) = (result.chosen(&model), result.fastest());
            let exception = result.exception(&model);
            let is_exception = exception.is_some();
            if let Some(save) = &mut self.save {
                save.line(&json::line(&SearchLine::new(&result)))?;
            }
            exceptions.extend(exception);
            self.output.write_text(&table.with_exceptions(exceptions.clone())?.to_json())?;
            let left_out = result.left_out().map(|(run, error)| {
                let Run { choice, .. } = run;
                format!("; left out: {choice}, {}, rms error {error:.2}x cuBLAS's", ms(run.ns()))
            });
            stdio::print(&format!(
                "{shape:<20}{:>11} predicted, {:>11} measured, {}; fastest {:>11}, {:.3}x, \
                 {}{}{}\n",
                ms(chosen.predicted_ns),
                ms(chosen.ns()),
                chosen.choice,
                ms(fastest.ns()),
                chosen.ns() / fastest.ns(),
                fastest.choice,
                left_out.unwrap_or_default(),
                if is_exception { " (exception)" } else { "" },
            ))?;
            results.push(result);
        }
        Ok(results)
    }
}
