//! `bench`: kernels next to cuBLAS, shape by shape.

pub mod args;
#[cfg(test)]
mod tests;

use std::time::Instant;

use cuda_gemm::error::no_gpu;
use host::compare::{Compared, Comparison, Note, Observer, Step};
use host::telemetry::Telemetry;
use host::verify::Bound;
use host::{
    Compute, Device, DeviceChoice, Gemm, Loaded, Operands, Selection, Shape, Table, baseline,
};

use super::outcome::Outcome;
use super::{product, several, tables};
use crate::error::{Error, few_sets, no_baseline, not_compared};
use crate::io::{device, progress, stdio};
use crate::report::format::Format;
use crate::report::record::Setting;
use crate::report::{Reporter, RowFormat, RowReporter, json, page};
use args::BenchArgs;

/// Squares, for a call that names no shapes.
const SQUARES: [usize; 6] = [256, 512, 1024, 2048, 4096, 8192];

/// Does what the options say.
pub fn run(args: &BenchArgs) -> Result<Outcome, Error> {
    // Mistakes are found in the order of what it costs to find them.
    let mut choices = Vec::new();
    for name in args.kernels() {
        choices.extend(Selection::parse(name)?.computing(args.compute())?.rungs());
    }
    let mut shapes = product::shapes(&args.sizes, args.shapes.as_deref())?;
    shapes.extend(args.random());
    if shapes.is_empty() {
        shapes.extend(SQUARES.map(Shape::square));
    }
    let products: Vec<_> =
        shapes.into_iter().map(|shape| args.gemm(shape)).collect::<Result<_, _>>()?;
    if let Some(count) = args.gpus {
        return on_several(args, count, &choices, &products);
    }
    let table = tables::read(args.table.as_deref())?;
    let reporter = RowReporter::new(args.format, args.save.as_deref(), stdio::print_styled)?;
    if let Err(reason) = cuda_driver::gpu_count() {
        return Err(Error::BenchNeedsGpu { reason: no_gpu(&reason) });
    }
    let device = device::open(DeviceChoice::Gpu)?;
    tables::note_of_other(table.as_ref(), &device);
    if choices.iter().any(|choice| matches!(choice, Selection::Auto)) {
        tables::note_of_products(&device);
    } else if args.measure.is_some() {
        let message = "--measure is for --kernel auto: leave it out, or take auto";
        return Err(Error::usage_of("bench", message));
    }
    device.measure(args.measure.unwrap_or(0) as usize);
    let rows = Rows::new(reporter, choices.len() * products.len());
    measure(args, &device, rows, &choices, &products, table.as_ref())
}

/// Compares several GPUs with one.
fn on_several(
    args: &BenchArgs,
    count: u32,
    choices: &[Selection],
    products: &[Gemm],
) -> Result<Outcome, Error> {
    let named = choices.iter().any(|choice| !matches!(choice, Selection::Auto));
    args.for_several(named)?;
    let format = match args.format {
        RowFormat::Json => Format::Json,
        RowFormat::Table | RowFormat::Csv => Format::Table,
    };
    let reporter = Reporter::new(format, Selection::Auto, args.save.as_deref(), None)?;
    if let Err(reason) = cuda_driver::gpu_count() {
        return Err(Error::BenchNeedsGpu { reason: no_gpu(&reason) });
    }
    let devices = several::devices(DeviceChoice::Gpu, count)?;
    let options = args.options();
    let products = products.iter().map(|gemm| {
        super::run::require_host_memory(gemm, false)?;
        Ok((Operands::random(gemm, options.seed), Bound::Probabilistic, Some(options.seed)))
    });
    several::all(&devices, products, (options.samples, true), reporter, |_| Ok(()))
}

/// Measures all rows, and says what came of them.
fn measure(
    args: &BenchArgs,
    device: &Device,
    mut rows: Rows,
    choices: &[Selection],
    products: &[Gemm],
    table: Option<&Table>,
) -> Result<Outcome, Error> {
    let telemetry = Telemetry::open(device).map(Some).unwrap_or_else(|reason| {
        stdio::note(format_args!(
            "clocks, power and temperature are not recorded, because {reason}"
        ));
        None
    });
    let mut comparison = Comparison::new(device, args.options(), telemetry)?;
    let mut kernels = Vec::new();
    for choice in choices {
        // Refusals are rows, and the others go on.
        let loaded = choice.load_among(device, Selection::All(args.compute()), table)?;
        kernels.extend(loaded.into_iter().map(|kernel| match args.options().left {
            0 => kernel,
            _ => kernel.any_alignment(),
        }));
    }
    let cublas = baseline::load(device)?.map(Some).unwrap_or_else(|missing| {
        stdio::say(no_baseline(&missing));
        None
    });
    let setting = Setting {
        device,
        gpus: None,
        gemm: products[0],
        groups: &args.options().groups,
        seed: Some(args.options().seed),
        cublas_version: cublas.as_ref().and_then(Loaded::cublas_version),
        l2: Some(args.options().l2),
        samples: args.options().samples,
    };
    rows.reporter.begin(&json::environment(&setting)?, &head(&comparison, &setting))?;
    for gemm in products {
        if !rows.reporter.is_wanted() {
            break;
        }
        comparison.shape(*gemm, &kernels, cublas.as_ref(), &mut rows)?;
    }
    rows.reporter.end()?;
    Ok(if rows.reporter.all_right() { Outcome::Right } else { Outcome::Wrong })
}

/// What is above the table.
fn head(comparison: &Comparison, setting: &Setting<'_>) -> String {
    let (info, options) = (comparison.device().info(), comparison.options());
    let epilogue = setting.gemm.epilogue;
    let then = if epilogue.is_none() { String::new() } else { format!(", then {epilogue}") };
    let groups = setting.groups.words().map(|groups| format!(", {groups}")).unwrap_or_default();
    let cublas = match (setting.cublas_version, setting.gemm.compute) {
        (Some(version), _) if setting.gemm.is_grouped() => {
            format!("cuBLAS {version}, one cublasGemmEx for each group in turn")
        }
        (Some(version), Compute::F32 | Compute::Tf32x3) => {
            format!("cuBLAS {version}, f32 arithmetic (no TF32)")
        }
        (Some(version), _) => {
            format!("cuBLAS {version}, the fastest of cublasGemmEx and cublasLt's algorithms")
        }
        (None, _) => "nothing".to_owned(),
    };
    format!(
        "device:  {}, compute capability {}\n\
         product: C = {} A B + {} C{groups}{then}, random matrices, seed {}{}\n\
         against: {cublas}\n\
         {}\
         columns: medians; ratio is cuBLAS's time / the kernel's, over pairs; 95 % is its \
         interval; rms err is the kernel's root mean square error against f64 / \
         cuBLAS's; us / call is the host's time to enqueue, of both\n",
        info.name,
        setting.compute_capability(),
        setting.gemm.alpha,
        setting.gemm.beta,
        options.seed,
        page::types(&setting.gemm),
        page::method_of_timing(info, options.l2, options.samples, options.sample_ms),
    )
}

/// Reports what a comparison does.
struct Rows {
    reporter: RowReporter,
    /// Rows that are done, and all; since when.
    done: usize,
    total: usize,
    begun: Instant,
}

impl Rows {
    fn new(reporter: RowReporter, total: usize) -> Self {
        Self { reporter, done: 0, total, begun: Instant::now() }
    }

    /// Where this is, and how long the rest should take.
    fn place(&self) -> String {
        let Self { done, total, .. } = self;
        let left = match done {
            0 => String::new(),
            done => {
                let each = self.begun.elapsed().as_secs_f64() / *done as f64;
                format!(", {} left in all", progress::about(each * (total - done) as f64))
            }
        };
        format!("measuring row {} of {total}{left}", done + 1)
    }
}

impl Observer for Rows {
    type Error = Error;

    fn row(&mut self, compared: Compared) -> Result<(), Error> {
        self.done += 1;
        self.reporter.row(compared)
    }

    fn step<T>(&mut self, step: Step, work: impl FnOnce() -> T) -> T {
        match step {
            Step::Matrices => progress::step("preparing the matrices", work),
            Step::Reference => {
                progress::portion("computing the product in f64", host::verify::progress, work)
            }
            Step::Check => progress::step("checking", work),
        }
    }

    fn measure<T>(&mut self, work: impl FnOnce(&mut dyn FnMut(u32, u32)) -> T) -> T {
        progress::samples(self.place(), work)
    }

    fn note(&mut self, note: &Note) {
        match note {
            Note::FewSets { shape, count, wanted } => {
                stdio::say(few_sets(*shape, *count, *wanted));
            }
            Note::NotCompared(reason) => stdio::say(not_compared(reason)),
        }
    }
}
