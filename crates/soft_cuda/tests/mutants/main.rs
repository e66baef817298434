//! Mutants of the shipped kernels: each barrier, fence, wait, arrival and atomic is taken away or
//! weakened, one at a time, and a small product has to fail then, under all checks. CI tries a
//! share of those for tensor cores, and `.ci/planted` plants some of all that are listed.
//!
//! `cargo test -p soft_cuda --test mutants -- --include-ignored --nocapture` runs them all and
//! prints those that survive; with `MUTANTS=NAME` the tests take only the kernels whose name
//! contains it.

mod front;
mod product;
mod tensor;

use std::collections::HashMap;

use front::WAIT;
use kernels_gpu::abi::KernelDescriptor;
use kernels_gpu::f32_kernels;
use product::Product;
use ptx_archive::Archive;
use soft_cuda::{Checks, Config, Device, Schedule};

/// Instructions that are taken away, by how their opcodes begin.
const TAKEN: [&str; 14] = [
    "bar.sync",
    "bar.warp.sync",
    "barrier.cluster",
    "barrier.sync",
    "cp.async.commit_group",
    "cp.async.wait_group",
    "fence",
    WAIT,
    "mbarrier.arrive",
    "mbarrier.init",
    "membar",
    "wgmma.commit_group",
    "wgmma.fence",
    "wgmma.wait_group",
];

/// Mutants that survive: the kernel, or how its name begins before a `*`, how the instruction
/// begins, and why.
const SURVIVORS: [(&str, &str, &str); 19] = [
    (
        "tma",
        "fence.proxy.async",
        "behind the loads of a tile: each thread executes another one when it has transposed a later \
         tile, and the copy comes after that",
    ),
    (
        "warp_specialized",
        "fence.proxy.async",
        "behind the last raw tile: nothing is copied over it",
    ),
    (
        "tma",
        "mbarrier.try_wait",
        "in the first round the stages are empty; later on, that all threads have read a stage \
         follows from a wait for a later tile, at whose barrier they arrive as well",
    ),
    ("tma", "bar.warp.sync", "the last instruction: nothing comes after it"),
    ("warp_specialized", "bar.warp.sync", "the last instruction: nothing comes after it"),
    (
        "persistent",
        "mbarrier.try_wait",
        "before the end is announced: no block of these products takes as many tiles as there are \
         stages",
    ),
    ("skinny_m_4x128", "bar.sync", OVERLAP),
    ("skinny_m_4x128_unaligned", "bar.sync", OVERLAP),
    (
        "tf32*",
        "fence.mbarrier_init",
        "no bulk copy arrives at these barriers; for threads, the barrier of the block behind it is enough",
    ),
    (
        "tf32_split*",
        WAIT,
        "of batches of pointers, which these kernels do not take; or of consumers, which come after the producer's: they \
         wait for tiles that it has loaded",
    ),
    (
        "tf32x3_128x128*",
        "mbarrier.try_wait",
        "for the turn of a warpgroup, which is for speed alone",
    ),
    ("tf32_256x128", WAIT, EMPTY),
    ("tf32_192x128", WAIT, EMPTY),
    ("tf32_128x128", WAIT, EMPTY),
    ("tf32_64x128", WAIT, EMPTY),
    ("tf32_mma*", "bar.warp.sync", APART),
    ("tf32x3_mma*", "bar.warp.sync", APART),
    ("tf32x3*", "wgmma.fence", THREE),
    ("tf32x3*", "wgmma.commit_group", THREE),
];
const EMPTY: &str = "where K is 0, which no product here has";
const APART: &str =
    "before mma.sync, behind branches: the software device brings a warp together where they end";
const THREE: &str = "between the three products of a step: they have the same sums, so that a fence before the \
    first and a commit behind the last are enough";
/// Kernels that need no `fence.proxy.async` behind their loads: their consumer warps rest on the
/// order of machine instructions, which `build-ptx` checks.
const UNFENCED: [&str; 1] = ["persistent"];
const OVERLAP: &str =
    "in no product does a slice store its sums where another one has yet to read the last stage";

/// Whether a mutant of `kernel` without `line` is one of these survivors.
fn is_of((of, opcode, _): &(&str, &str, &str), kernel: &str, line: &str) -> bool {
    of.strip_suffix('*').map_or(*of == kernel, |begin| kernel.starts_with(begin))
        && line.contains(opcode)
}

/// What an instruction becomes, or `None` if it stays.
fn mutate(line: &str) -> Option<String> {
    let text = line.trim();
    let (guard, opcode) = match text.strip_prefix('@') {
        Some(guarded) => guarded.split_once(char::is_whitespace)?,
        None => ("", text),
    };
    if TAKEN.iter().any(|taken| opcode.starts_with(taken)) {
        return Some(String::new());
    }
    let guard = if guard.is_empty() { String::new() } else { format!("@{guard} ") };
    if opcode.starts_with("mbarrier.try_wait") {
        let predicate = opcode.split_ascii_whitespace().nth(1)?.trim_end_matches(',');
        return Some(format!("{guard}setp.eq.u32 {predicate}, 0, 0;"));
    }
    if opcode.starts_with("atom.acq_rel") {
        return Some(format!("{guard}{}", opcode.replacen(".acq_rel", ".relaxed", 1)));
    }
    None
}

/// The PTX of a kernel that is shipped for Hopper.
fn shipped(kernel: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels-gpu/ptx");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut archives = files.filter(|file| file.to_string_lossy().ends_with(".sm_90a.ptx.xz"));
    let in_archive = |file| {
        let bytes = std::fs::read(file).unwrap();
        Archive::read(&bytes).unwrap().kernel(kernel).unwrap()
    };
    archives.find_map(in_archive).expect("the kernel is shipped")
}

fn device(schedule: Schedule, entry: &str) -> Device {
    let checks = Checks { proxies: !UNFENCED.contains(&entry), ..Checks::ALL };
    let instruction_budget = Some(3_000_000);
    let host_threads = std::num::NonZero::new(1);
    let config = Config::default();
    Device::new(Config { checks, schedule, instruction_budget, host_threads, ..config })
}

/// Why `entry` of `ptx` fails, which may begin early if it `waits`; `None` if it does not.
fn failure(
    ptx: &str,
    spec: &KernelDescriptor,
    (entry, waits): (&str, bool),
    products: &[Product],
) -> Option<String> {
    [Schedule::InOrder, Schedule::Random(1)].into_iter().find_map(|schedule| {
        let device = device(schedule, entry);
        match device.load(ptx) {
            Ok(module) => {
                let kernel = module.kernel(entry).unwrap();
                products.iter().find_map(|product| product.run(&device, &kernel, spec, waits).err())
            }
            Err(error) => Some(error.to_string()),
        }
    })
}

/// The entry points of all kernels, with their PTX. That for `sm_90a` has all; what is in that for
/// `sm_80`, too, does not wait for the launch in front there, and is else the same.
fn entries() -> Vec<(&'static KernelDescriptor, &'static str, String)> {
    let mut all = Vec::new();
    for spec in f32_kernels() {
        let names = [Some(spec.name()), spec.unaligned().map(|other| other.name)];
        for name in names.into_iter().flatten() {
            all.push((spec, name, shipped(name)));
        }
    }
    all
}

/// Whether `MUTANTS` leaves this kernel in.
fn is_asked_for(kernel: &str) -> bool {
    std::env::var("MUTANTS").map_or(true, |only| kernel.contains(&only))
}

#[test]
fn shipped_kernels_pass_all_checks() {
    for (spec, name, ptx) in entries().into_iter().filter(|(_, name, _)| is_asked_for(name)) {
        let products = Product::all(spec, name != spec.name());
        // Two of the plain ones, and half of those that go other ways through the kernel.
        let (plain, others) = products.split_at(Product::PLAIN);
        let products: Vec<_> = plain[..2].iter().chain(others.iter().step_by(2)).cloned().collect();
        let entry = (name, ptx.contains(WAIT));
        assert_eq!(failure(&ptx, spec, entry, &products), None, "{name}");
    }
}

#[test]
#[ignore = "takes a minute: several hundred mutants"]
fn mutants_are_killed() {
    let (mut killed, mut survivors) = (0, Vec::new());
    let entries = entries();
    for (spec, name, ptx) in entries.iter().filter(|(_, name, _)| is_asked_for(name)) {
        let products = Product::all(spec, *name != spec.name());
        let (lines, waits): (Vec<&str>, _) = (ptx.lines().collect(), ptx.contains(WAIT));
        assert_eq!(failure(ptx, spec, (name, waits), &products), None, "{name} as it is");
        let mut waits_killed = 0;
        for (at, &line) in lines.iter().enumerate() {
            let Some(mutant) = mutate(line) else { continue };
            let mut lines = lines.clone();
            lines[at] = &mutant;
            match failure(&lines.join("\n"), spec, (name, waits), &products) {
                Some(_) => {
                    killed += 1;
                    waits_killed += usize::from(line.contains(WAIT));
                }
                None => survivors.push((*name, at + 1, line.trim())),
            }
        }
        assert!(!waits || waits_killed > 0, "{name}: no wait for the launch in front is missed");
    }
    println!("{killed} killed, {} survive:", survivors.len());
    let mut unexplained = 0;
    for (name, line, text) in survivors {
        let known = SURVIVORS.iter().find(|survivor| is_of(survivor, name, text));
        let why = known.map_or("NOT EXPLAINED", |(.., why)| why);
        println!("{name}, line {line}, `{text}`: {why}");
        unexplained += usize::from(known.is_none());
    }
    assert_eq!(unexplained, 0);
}

/// For each mutant, with tabs between them: the kernel, its entry point, how many lines of it that
/// are the same come before, the line, what becomes of it, and why it survives, if that is known.
#[test]
#[ignore = "it checks nothing: it lists the mutants for `.ci/planted`"]
fn mutants_are_listed() {
    let list = |kernel: &str, entry: &str, ptx: &str, survivors: &[(&str, &str, &str)]| {
        let mut seen = HashMap::new();
        for line in ptx.lines() {
            let before = seen.entry(line).or_insert(0);
            if let Some(mutant) = mutate(line) {
                let known = survivors.iter().find(|survivor| is_of(survivor, kernel, line));
                let why = known.map_or("", |(.., why)| why);
                let line = line.trim().replace('\t', " ");
                println!("mutant\t{kernel}\t{entry}\t{before}\t{line}\t{mutant}\t{why}");
            }
            *before += 1;
        }
    };
    for (_, name, ptx) in entries() {
        list(name, name, &ptx, &SURVIVORS);
    }
    for (spec, ptx) in tensor::entries() {
        list(spec.name(), spec.entry_points(false)[0], &ptx, &tensor::SURVIVORS);
    }
}
