//! Kernels that are no rungs of the ladder in f32: the header of their file, and their geometry.

use host::Compute;
use host::kernels::TENSOR_CORE_LADDER;
use host::kernels::abi::{Arithmetic, KernelDescriptor, Target, Tile};
use serde::Serialize;

use super::{geometry, plain, title};
use crate::report::format::Format;
use crate::report::json;

/// A kernel for f32 matrices, in JSON.
#[derive(Serialize)]
struct Explanation {
    kernel: &'static str,
    summary: &'static str,
    /// What `--compute` says for it.
    compute: &'static str,
    text: String,
    block_tile: [u32; 3],
    thread_tile: [u32; 2],
    threads: u32,
    /// Null where it depends on K.
    shared_bytes: Option<u64>,
    /// Whether `--splits` can split K.
    splits: bool,
}

/// Explains a kernel.
pub fn explained(descriptor: &KernelDescriptor, format: Format) -> String {
    match descriptor.arithmetic() {
        Arithmetic::Bits16 => in_16_bits(descriptor, format),
        _ => in_f32(descriptor, format),
    }
}

/// Explains a tile, or a kernel for tensor cores on f32 matrices.
fn in_f32(descriptor: &KernelDescriptor, format: Format) -> String {
    let header = plain(descriptor.header());
    let compute = Compute::of_kernel(descriptor);
    let Tile { bm, bn, bk, tm, tn } = descriptor.tile();
    match format {
        Format::Json => json::line(&Explanation {
            kernel: descriptor.name(),
            summary: descriptor.summary(),
            compute: compute.name(),
            text: header,
            block_tile: [bm, bn, bk],
            thread_tile: [tm, tn],
            threads: descriptor.threads(),
            shared_bytes: descriptor.shared_bytes(),
            splits: descriptor.abi().splits_k(),
        }),
        Format::Table => {
            let runs = match compute {
                Compute::F32 => String::new(),
                compute => format!(" --compute {}", compute.name()),
            };
            format!(
                "{}{header}{}{}",
                preface(descriptor, &runs),
                title("Geometry"),
                geometry(descriptor)
            )
        }
    }
}

/// What is above the header of a file that has several kernels.
fn preface(descriptor: &KernelDescriptor, options: &str) -> String {
    let (name, summary) = (descriptor.name(), descriptor.summary());
    let needs = match descriptor.target() {
        Target::Sm90a => " It needs compute capability 9.0: a Hopper GPU, or `--device soft-sm90`.",
        Target::Sm80 => "",
    };
    format!(
        "`{name}`: {summary}.\nNo rung of the ladder: `auto` takes it where it should be the fastest, and `--kernel \
         {name}{options}` runs it.{needs}\nIts file says of it and its relatives:\n\n"
    )
}

/// A kernel of 16-bit operands, in JSON.
#[derive(Serialize)]
struct ExplanationIn16Bits {
    kernel: &'static str,
    /// The place in the ladder of tensor cores, from 1; null for what is not in it.
    rung: Option<usize>,
    summary: &'static str,
    text: String,
    block_tile: [u32; 3],
    threads: u32,
    shared_bytes: u64,
    /// Whether the blocks of a cluster can split K.
    splits: bool,
    /// Multiply-adds for each element of A and B that a block reads.
    multiply_adds_per_element: f64,
}

/// Explains a kernel of 16-bit operands.
fn in_16_bits(descriptor: &KernelDescriptor, format: Format) -> String {
    let Tile { bm, bn, bk, .. } = descriptor.tile();
    let mut ladder = TENSOR_CORE_LADDER.iter();
    let rung = ladder.position(|one| one.name() == descriptor.name()).map(|place| place + 1);
    let explanation = ExplanationIn16Bits {
        kernel: descriptor.name(),
        rung,
        summary: descriptor.summary(),
        text: plain(descriptor.header()),
        block_tile: [bm, bn, bk],
        threads: descriptor.threads(),
        shared_bytes: descriptor.shared_bytes().unwrap_or_default(),
        splits: descriptor.abi().splits_k(),
        multiply_adds_per_element: f64::from(bm) * f64::from(bn) / f64::from(bm + bn),
    };
    let preface = match rung {
        Some(_) => String::new(),
        None => preface(descriptor, " --compute bf16"),
    };
    match format {
        Format::Json => json::line(&explanation),
        Format::Table => format!(
            "{preface}{}{}  tile of C:      {bm} x {bn}, in steps of {bk} along K\n  threads:        {} \
             per block\n  shared memory:  {} bytes per block\n  splits of K:    {}\n  \
             reuse:          {:.1} multiply-adds for each element of A and B that a block reads\n",
            explanation.text,
            title("Geometry"),
            explanation.threads,
            explanation.shared_bytes,
            if explanation.splits { "by the blocks of a cluster" } else { "none" },
            explanation.multiply_adds_per_element,
        ),
    }
}
