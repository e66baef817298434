//! `explain auto`: the choice for a product, and its reasons.

use host::kernels::{TENSOR_CORE, TF32};
use host::select::{Basis, Prediction};
use host::{Auto, Compute, Configuration, Gemm, Shape, Table, select};
use serde::Serialize;
use serde_json::Value;

use super::explain::args::ExplainArgs;
use super::outcome::Outcome;
use super::tables;
use crate::error::Error;
use crate::io::device;
use crate::io::stdio::print;
use crate::report::format::{Format, milliseconds};
use crate::report::json;

/// Products to explain, for a call that names none.
const SHAPES: [Shape; 3] = [Shape::square(512), Shape::square(4096), Shape::new(16, 4096, 4096)];

/// The number of choices that are shown.
const SHOWN: usize = 5;

/// A product and its choice, in JSON.
#[derive(Serialize)]
struct Chosen<'a> {
    kernel: &'static str,
    device: &'a str,
    /// The basis of the choice.
    basis: &'a str,
    m: usize,
    n: usize,
    k: usize,
    trans_a: bool,
    trans_b: bool,
    batch: usize,
    /// The number of groups; null if the rows are not grouped.
    group_count: Option<usize>,
    compute: &'static str,
    chosen: &'static str,
    #[serde(flatten)]
    division: Value,
    /// Operands that are copied first, by choice or because the kernel cannot read them.
    copies: Vec<Copied>,
    /// Whether rows of packed matrices are misaligned.
    #[serde(skip)]
    has_odd_rows: bool,
    /// The place of a measurement of this product, which comes before the costs; null without one.
    measured: Option<String>,
    /// The best by costs, fastest first; empty where there are none.
    candidates: Vec<CandidateLine>,
}

impl<'a> Chosen<'a> {
    fn new(
        gemm: &Gemm,
        device: &'a str,
        basis: &'a str,
        auto: &Auto,
        choice: &Configuration,
    ) -> Self {
        let Gemm { m, n, k, trans_a, trans_b, compute, .. } = *gemm;
        let [_, _, batch] = gemm.matrices();
        let [rows_a, rows_b, _] = gemm.rows_begin_on_16_bytes();
        let copies = ["A", "B"].into_iter().zip(Auto::copies(gemm, choice));
        // In 16 bits only misaligned rows are copied, which has a line of its own.
        let copies = copies.filter(|_| !compute.is_16_bits());
        let copies =
            copies.filter_map(|(operand, reason)| Some(Copied { operand, reason: reason? }));
        Self {
            kernel: select::NAME,
            device,
            basis,
            m,
            n,
            k,
            trans_a,
            trans_b,
            batch,
            group_count: gemm.is_grouped().then_some(gemm.batch),
            compute: compute.name(),
            chosen: choice.kernel.name(),
            division: division(choice),
            copies: copies.collect(),
            has_odd_rows: compute.is_16_bits() && !(rows_a && rows_b),
            measured: auto.measured_choice(gemm).map(|found| found.source.to_string()),
            candidates: predictions(auto, gemm),
        }
    }
}

/// The choice without its kernel, whose name is `chosen`.
fn division(choice: &Configuration) -> Value {
    let mut division = serde_json::to_value(choice).expect("plain data");
    division.as_object_mut().expect("a struct").remove("kernel");
    division
}

#[derive(Serialize)]
struct CandidateLine {
    #[serde(flatten)]
    configuration: Configuration,
    predicted_ms: f64,
    /// Whether memory is the limit.
    memory_bound: bool,
}

impl From<Prediction> for CandidateLine {
    fn from(Prediction { configuration, ns, memory_bound }: Prediction) -> Self {
        Self { configuration, predicted_ms: 1e-6 * ns, memory_bound }
    }
}

/// An operand that is copied first.
#[derive(Serialize)]
struct Copied {
    operand: &'static str,
    reason: &'static str,
}

/// Does what the options say.
pub fn run(args: &ExplainArgs) -> Result<Outcome, Error> {
    let (device, table) = match &args.gpu {
        Some(gpu) => {
            let table = tables::of_gpu(gpu)?;
            (table.stand_in()?, Some(table))
        }
        None => {
            let table = tables::read(args.table.as_deref())?;
            let device = device::open(args.device.unwrap_or_default().choice())?;
            tables::note_of_other(table.as_ref(), &device);
            match table {
                None if !device.is_soft() => (device.clone(), Some(Table::nearest(device.info())?)),
                table => (device, table),
            }
        }
    };
    tables::note_of_products(&device);
    let auto = table.as_ref().map_or_else(|| device.auto(), |table| device.auto_by(table))?;
    let compute = args.product.compute();
    let mut basis = auto.basis_for(compute);
    let is_f32 = compute == Compute::F32;
    if matches!(auto.basis(), Basis::Scaled(_)) {
        basis += " (`rungs tune` does)";
    }
    if let Some(table) = &table {
        let changed = table.changes().into_iter().map(|change| change.entry_point);
        let changed: Vec<_> = changed.filter(|name| matters(name, compute)).collect();
        // A kernel's second entry point goes without saying.
        let is_second = |name: &&str| {
            name.strip_suffix("_unaligned").is_some_and(|kernel| changed.contains(&kernel))
        };
        let named: Vec<_> = changed.iter().copied().filter(|name| !is_second(name)).collect();
        if !named.is_empty() {
            basis += &format!("; PTX that has changed since: {}", named.join(", "));
        }
    }
    let mut page = match args.format {
        Format::Json => String::new(),
        Format::Table => format!(
            "{}: {}\n\ndevice:  {}\nbasis:   {basis}\n",
            select::NAME,
            select::SUMMARY,
            device.info().name
        ),
    };
    let shapes = if args.sizes.is_empty() { &SHAPES[..] } else { &args.sizes };
    for shape in shapes {
        let shape = args.product.shape(*shape);
        let gemm = args.product.grouped(shape.gemm())?;
        let choice = auto.choose(&gemm)?;
        if !is_f32 {
            // Not every device runs kernels for tensor cores.
            device.kernel(choice.kernel)?;
        }
        let chosen = Chosen::new(&gemm, &device.info().name, &basis, &auto, &choice);
        page += &match args.format {
            Format::Json => json::line(&chosen),
            Format::Table => text(shape, &chosen, &choice),
        };
    }
    print(&page)?;
    Ok(Outcome::Right)
}

/// Whether choices in a precision may depend on an entry point.
fn matters(entry_point: &str, compute: Compute) -> bool {
    let is_of_16_bits = TENSOR_CORE.iter().any(|kernel| kernel.name() == entry_point);
    let is_tf32 = TF32.iter().any(|kernel| entry_point.starts_with(kernel.name()));
    match compute {
        Compute::F32 => !is_of_16_bits && !is_tf32,
        Compute::Tf32 | Compute::Tf32x3 => !is_of_16_bits,
        Compute::Bf16 | Compute::F16 => is_of_16_bits,
    }
}

/// The runners-up.
fn predictions(auto: &Auto, gemm: &Gemm) -> Vec<CandidateLine> {
    auto.predictions(gemm, SHOWN).into_iter().map(CandidateLine::from).collect()
}

fn text(shape: Shape, chosen: &Chosen<'_>, choice: &Configuration) -> String {
    let why = chosen.measured.as_ref().map_or_else(String::new, |place| {
        let costs = if chosen.candidates.is_empty() { "" } else { "; by the costs:" };
        format!(", as measured for this product {place}{costs}")
    });
    let groups = chosen.group_count.map(|count| format!(" in {count} group(s)"));
    let mut text = format!("\n{shape}{}: {choice}{why}\n", groups.unwrap_or_default());
    for Copied { operand, reason } in &chosen.copies {
        text += &format!("  copies {operand} first: {reason}\n");
    }
    if chosen.has_odd_rows {
        text += "  misaligned rows of A or B are copied first, unless the kernel reads them; \
                 `Layout::padded` aligns them\n";
    }
    let names = chosen.candidates.iter().map(|line| line.configuration.to_string());
    let names: Vec<_> = names.collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    for (name, line) in names.iter().zip(&chosen.candidates) {
        let limit = if line.memory_bound { "memory" } else { "the multiprocessors" };
        let predicted = milliseconds(line.predicted_ms);
        text += &format!("  {name:<width$}{predicted:>14} predicted, limited by {limit}\n");
    }
    text
}
