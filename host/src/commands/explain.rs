//! `explain`: the idea of a rung, and the arithmetic of its geometry.

pub mod args;
mod others;

use cuda_gemm::Error as GemmError;
use cuda_gemm::error::no_gpu;
use host::candidate::{ALL, CUBLAS};
use host::explain::{Arithmetic, Loads, Ratio, accesses_without_sharing};
use host::kernels::abi::{GridOrder, KernelAbi, KernelDescriptor, Shared, Tile, Unaligned};
use host::kernels::{LADDER, kernels};
use host::limit::profile::Profile;
use host::{Device, DeviceChoice, nearest_names, select};
use serde::Serialize;

use super::choices;
use super::outcome::Outcome;
use crate::error::Error;
use crate::io::stdio::print;
use crate::report::format::Format;
use crate::report::{json, page};
use args::ExplainArgs;

/// FP32 lanes of a multiprocessor of the GPU on which kernels were profiled.
const H200_LANES: u32 = 128;

/// The example of the tutorial on thread tiles: 16 results of a product of 7 x 7 matrices.
const EXAMPLE_RESULTS: u64 = 16;
const EXAMPLE_K: u64 = 7;

/// Does what the options say.
pub fn run(args: &ExplainArgs) -> Result<Outcome, Error> {
    let Some(name) = &args.name else {
        args.expect_none_for_auto()?;
        page::list(args.format, "The ladder, in f32:", LADDER.iter().copied())?;
        if args.format == Format::Table {
            print(
                "`explain NAME` says more about one of them, or about any other kernel of `list`.\n",
            )?;
        }
        return Ok(Outcome::Right);
    };
    if name == select::NAME {
        return choices::run(args);
    }
    args.expect_none_for_auto()?;
    let text = if let Some(descriptor) = LADDER.iter().find(|one| one.name() == name) {
        match args.format {
            Format::Json => json::line(&Explanation::of(descriptor)),
            Format::Table => text(descriptor),
        }
    } else if let Some(descriptor) = kernels().find(|one| one.name() == name) {
        others::explained(descriptor, args.format)
    } else {
        return Err(no_kernel(name));
    };
    print(&text)?;
    Ok(Outcome::Right)
}

/// The error for a name that is no kernel, or is explained elsewhere.
fn no_kernel(name: &str) -> Error {
    let instead = match name {
        CUBLAS => {
            "it is NVIDIA's library, the baseline: `--kernel cublas` runs it, and `bench` compares with it"
        }
        ALL => "it stands for all that `--kernel all` compares; `list` shows the kernels",
        _ => {
            let known = kernels().map(KernelDescriptor::name);
            let known: Vec<_> = known.chain([select::NAME]).collect();
            let nearest = nearest_names(name, &known);
            return GemmError::UnknownKernel { name: name.to_owned(), nearest, known }.into();
        }
    };
    Error::NoKernel { name: name.to_owned(), instead }
}

/// The place in the ladder, from 0.
fn place(descriptor: &KernelDescriptor) -> usize {
    LADDER.iter().position(|other| other.name() == descriptor.name()).unwrap_or_default()
}

fn text(descriptor: &KernelDescriptor) -> String {
    let peak = match peak() {
        Ok(peak) => format!("  {peak}\n"),
        Err(reason) => format!("  no GPU here: {reason}\n"),
    };
    [
        plain(descriptor.header()),
        title("Geometry"),
        geometry(descriptor),
        format!(
            "  rebuilds        {}\n",
            descriptor.origin().unwrap_or("no document: the ladder goes beyond them")
        ),
        title("Arithmetic"),
        "For one result, with K for the inner dimension and aligned matrices: values follow from\n\
         the geometry, instructions are counted in the PTX, and no time is measured.\n\n"
            .to_owned(),
        arithmetic(descriptor),
        title("Peak of the GPU"),
        peak,
    ]
    .concat()
}

fn title(text: &str) -> String {
    format!("\n{text}\n{}\n\n", "-".repeat(text.len()))
}

/// The header of a rung's file, without the marks of Markdown.
fn plain<'a>(markdown: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    let mut in_picture = false;
    for line in markdown {
        if line.starts_with("```") {
            in_picture = !in_picture;
        } else if in_picture {
            text += line;
            text.push('\n');
        } else if let Some(heading) = line.strip_prefix("# ") {
            // The empty line in front of a heading is there already.
            text += title(heading).trim_start_matches('\n').trim_end();
            text.push('\n');
        } else {
            text += &without_links(line);
            text.push('\n');
        }
    }
    text
}

/// `[text](target)` becomes `text`.
fn without_links(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((text, after)) =
            link.split_once("](").and_then(|(text, after)| Some((text, after.split_once(')')?.1)))
        else {
            break;
        };
        out += before;
        out += text;
        rest = after;
    }
    out + rest
}

fn geometry(descriptor: &KernelDescriptor) -> String {
    let Tile { bm, bn, bk, tm, tn } = descriptor.tile();
    let [x, y] = descriptor.block();
    let shared = match (descriptor.shared_bytes(), descriptor.shared()) {
        (Some(0), _) => "none".to_owned(),
        (None, Shared::Dynamic(bytes)) => {
            format!("{} bytes per block for each step of K: {} at K = 100", bytes(1), bytes(100))
        }
        (bytes, _) => format!("{} bytes per block", bytes.unwrap_or_default()),
    };
    let grid = match (descriptor.abi(), descriptor.grid()) {
        (KernelAbi::StreamK, _) => {
            "persistent blocks, one for each multiprocessor; the tiles of the last wave are\n\
             \u{20}                 shared along K (stream-K)"
        }
        (_, GridOrder::Persistent) => {
            "persistent blocks, one for each multiprocessor, which take tiles in turn"
        }
        (_, GridOrder::Linear) => "x walks the tiles of C",
        (_, GridOrder::RowsAlongX) => "x walks the rows of C, y the columns",
        (_, GridOrder::ColumnsAlongX) => "x walks the columns of C, y the rows",
    };
    let along_z = match descriptor.abi() {
        KernelAbi::SplitK | KernelAbi::Tf32SplitK => {
            ", z the products of a batch and their splits of K"
        }
        KernelAbi::Batched => ", z the products of a batch",
        _ => "",
    };
    let entries = match (descriptor.abi(), descriptor.unaligned()) {
        (abi, _) if abi.has_tensor_maps() => format!(
            "{}, for any matrices; an A or a B whose rows do not begin on\n{:18}16 bytes \
             is copied first, by stage_operands",
            descriptor.name(),
            ""
        ),
        (_, None) => format!("{}, for any matrices", descriptor.name()),
        (_, Some(Unaligned { name, .. })) => format!(
            "{} where pointers are multiples of 16 bytes and rows multiples of 4\n{:18}elements, \
             {name} for all other matrices",
            descriptor.name(),
            ""
        ),
    };
    format!(
        "  block's tile    BM = {bm}, BN = {bn}, BK = {bk}\n\
         \u{20} thread's tile   TM = {tm}, TN = {tn}\n\
         \u{20} threads         {x} x {y} = {} per block\n\
         \u{20} shared memory   {shared}\n\
         \u{20} grid            {grid}{along_z}\n\
         \u{20} entry points    {entries}\n",
        descriptor.threads(),
    )
}

fn arithmetic(descriptor: &KernelDescriptor) -> String {
    let Tile { bm, bn, tm, tn, .. } = descriptor.tile();
    let found = Arithmetic::of(descriptor);
    let from_global = match found.shared {
        Some(_) => format!("(BM + BN) / (BM BN) = ({bm} + {bn}) / ({bm} x {bn})"),
        None => format!("(TM + TN) / (TM TN) = ({tm} + {tn}) / ({tm} x {tn})"),
    };
    let mut text = format!(
        "  global loads    {}\n\
         \u{20}                 {from_global} = {} for each step\n",
        loads(found.global),
        found.global.values,
    );
    if let Some(shared) = found.shared {
        text += &format!(
            "  shared loads    {}\n\
             \u{20}                 (TM + TN) / (TM TN) = ({tm} + {tn}) / ({tm} x {tn}) = {} for \
             each step\n",
            loads(shared),
            shared.values,
        );
    }
    text += &format!(
        "  intensity       {} multiply-adds per value that a thread loads\n\
         \u{20}                 TM TN / (TM + TN), N/2 for a tile of N x N\n",
        decimal(found.intensity),
    );
    let example = accesses_without_sharing(descriptor.tile(), EXAMPLE_K, EXAMPLE_RESULTS);
    text += &format!(
        "  accesses        {} to global memory for {EXAMPLE_RESULTS} results with K = {EXAMPLE_K}, \
         if no thread shared\n\
         \u{20}                 {EXAMPLE_RESULTS} (TM K + TN K + 2 TM TN) / (TM TN): A, B, the old \
         C and the new\n",
        decimal(example),
    );
    if let Some(profile) = Profile::of(descriptor) {
        let Profile { instructions, l1_cycles, uses_shared } = profile;
        let cache = if uses_shared { "shared memory" } else { "L1 cache" };
        text += &format!(
            "  machine code    for each FMA of a warp {instructions} instructions and {l1_cycles} cycles \
             of the {cache},\n\
             \u{20}                 as counted on an H200: at most {:.0} % of its peak of FMAs\n",
            profile.bound(H200_LANES),
        );
    }
    let place = place(descriptor);
    let earlier = match place {
        0 => vec![],
        1 => vec![LADDER[0]],
        _ => vec![LADDER[0], LADDER[place - 1]],
    };
    for other in earlier {
        let before = Arithmetic::of(other).global.instructions;
        text += &format!(
            "  against         {}: {} global load instructions\n",
            other.name(),
            change(found.global.instructions, before),
        );
    }
    text
}

fn loads(Loads { values, instructions }: Loads) -> String {
    let values = values.times_k();
    match instructions.times_k() {
        same if same == values => format!("{values} values, one by one"),
        instructions => format!("{values} values in {instructions} instructions"),
    }
}

fn decimal(ratio: Ratio) -> String {
    match ratio.under {
        1 => ratio.to_string(),
        _ => format!("{:.2}", ratio.value()),
    }
}

fn change(now: Ratio, before: Ratio) -> String {
    match now.percent_less_than(before) {
        0.0 => "as many".to_owned(),
        // What would be rounded to all of them.
        less if less >= 99.95 => format!("{:.0} times fewer", before.value() / now.value()),
        less if less > 0.0 => format!("{less:.1} % fewer"),
        _ => format!("{:.1} times as many", now.value() / before.value()),
    }
}

/// The formula of the first GPU's peak.
fn peak() -> Result<String, String> {
    cuda_driver::gpu_count().map_err(|reason| no_gpu(&reason))?;
    let device = Device::open(DeviceChoice::Gpu).map_err(|error| Error::from(error).to_string())?;
    let info = device.info();
    // A GPU has one: only the software device does not.
    let peak = info.peak.map(|peak| peak.to_string()).unwrap_or_default();
    Ok(format!("{}: {peak}", info.name))
}

/// An explanation in JSON. Loads are per result and step along K.
#[derive(Serialize)]
struct Explanation {
    kernel: &'static str,
    /// The place in the ladder, from 1.
    rung: usize,
    summary: &'static str,
    /// The document and the kernel in it that the rung rebuilds; null where it goes beyond them.
    origin: Option<&'static str>,
    text: String,
    block_tile: [u32; 3],
    thread_tile: [u32; 2],
    threads: u32,
    /// Null where it depends on K.
    shared_bytes: Option<u64>,
    global_values: f64,
    global_instructions: f64,
    /// Null without shared memory.
    shared_values: Option<f64>,
    shared_instructions: Option<f64>,
    intensity: f64,
    /// Instructions for each FMA of a warp, counted on an H200; null where that was not done.
    instructions_per_fma: Option<f64>,
    /// Cycles of shared memory and L1 cache for each FMA of a warp; null like the field above.
    l1_cycles_per_fma: Option<f64>,
    /// For 16 results of a product of 7 x 7 matrices, if no thread shared.
    example_accesses: f64,
}

impl Explanation {
    fn of(descriptor: &KernelDescriptor) -> Self {
        let Arithmetic { global, shared, intensity } = Arithmetic::of(descriptor);
        let Tile { bm, bn, bk, tm, tn } = descriptor.tile();
        let profile = Profile::of(descriptor);
        Self {
            kernel: descriptor.name(),
            rung: place(descriptor) + 1,
            summary: descriptor.summary(),
            origin: descriptor.origin(),
            text: plain(descriptor.header()),
            block_tile: [bm, bn, bk],
            thread_tile: [tm, tn],
            threads: descriptor.threads(),
            shared_bytes: descriptor.shared_bytes(),
            global_values: global.values.value(),
            global_instructions: global.instructions.value(),
            shared_values: shared.map(|shared| shared.values.value()),
            shared_instructions: shared.map(|shared| shared.instructions.value()),
            intensity: intensity.value(),
            instructions_per_fma: profile.map(|profile| profile.instructions),
            l1_cycles_per_fma: profile.map(|profile| profile.l1_cycles),
            example_accesses: accesses_without_sharing(
                descriptor.tile(),
                EXAMPLE_K,
                EXAMPLE_RESULTS,
            )
            .value(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_text() {
        let lines =
            ["Rung.", "", "# The idea", "", "See [`x`](crate::x) [1].", "```text", "[a](b)", "```"];
        assert_eq!(
            plain(lines.into_iter()),
            "Rung.\n\nThe idea\n--------\n\nSee `x` [1].\n[a](b)\n"
        );
    }

    #[test]
    fn every_rung_is_explained() {
        for descriptor in LADDER {
            let text = text(descriptor);
            assert!(text.contains(descriptor.name()) && text.contains("The idea"), "{text}");
            assert!(!text.contains("```") && !text.contains("]("), "{text}");
            // The last section is as long as the driver's words.
            let (explanation, _) = text.split_once("Peak of the GPU").unwrap();
            assert!(explanation.lines().all(|line| line.len() <= 100), "{text}");
        }
    }

    #[test]
    fn changes() {
        let ratio = |over| Ratio::new(over, 100);
        assert_eq!(change(ratio(50), ratio(50)), "as many");
        assert_eq!(change(ratio(10), ratio(40)), "75.0 % fewer");
        assert_eq!(change(ratio(40), ratio(10)), "4.0 times as many");
        assert_eq!(change(Ratio::new(1, 3000), ratio(100)), "3000 times fewer");
    }
}
