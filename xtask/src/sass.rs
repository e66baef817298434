//! `cargo xtask sass`: the machine code of the inner loops.
//!
//! Two things in the disassembly cost a GEMM most, and neither shows in the PTX; what they are
//! worth is in `kernels-gpu/NOTES.md`.
//!
//! - *Conflicts*: the register file has two banks, told apart by the lowest bit of a register's
//!   number, and each gives one register per cycle. A multiply-add that needs two registers of
//!   one bank takes a cycle more, unless the reuse cache has one of them. It holds a register for
//!   each place of an instruction and each bank: the last one that was read there, if that was
//!   marked `.reuse`. Every 128 bytes of code the scheduler turns to another warp, and what the
//!   cache holds is lost.
//! - *Late loads*: a load of shared memory that stands less than 48 instructions before the first
//!   use of what it loads. They are counted by how many instructions are missing.
//!
//! And one thing decides whether a kernel is right: see [`check_release`].

use std::process::ExitCode;

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use cuda_builder::CudaArch;
use kernels_gpu::ladder::f32::sm_90a::persistent::{self, ARRIVALS_TO_RELEASE};
use kernels_gpu::{LADDER, TILES};

use crate::ptxas::{self, Ptxas};
use crate::{archives, stdio};

/// Instructions between a load and its use that hide how long it takes.
const EARLY: usize = 48;

/// Bytes of code after which another warp has its turn.
const LINE: u64 = 128;

/// Multiply-adds that a loop has at least.
const LEAST: usize = 32;

/// Count what slows the inner loops of kernels down, in the disassembly
///
/// The loop with the largest share of multiply-adds counts. Prints its instructions, multiply-adds
/// and shared loads, and per 1024 multiply-adds register conflicts and the delay of late loads.
/// Needs ptxas with cuobjdump beside it, in $PTXAS, on the PATH, or in a CUDA toolkit, but no GPU.
#[derive(clap::Args)]
pub struct Args {
    /// Kernels: rungs of the ladder, tiles, or any other entry point [default: the last rungs,
    /// and all tiles]
    kernels: Vec<String>,

    /// The architecture
    #[arg(long, default_value = "sm_90a")]
    arch: Arch,
}

#[derive(Clone, Copy, ValueEnum)]
enum Arch {
    #[value(name = "sm_80")]
    Sm80,
    #[value(name = "sm_90a")]
    Sm90a,
}

/// Disassembles and counts.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let ptxas = Ptxas::find()?.ok_or(ptxas::MISSING)?;
    let arch = match args.arch {
        Arch::Sm80 => CudaArch::Sm80,
        Arch::Sm90a => CudaArch::Sm90a,
    };
    let archives = archives::read(&crate::root().join("kernels-gpu"), arch)?;
    let committed = archives::joined(&archives)?;
    let kernels = if args.kernels.is_empty() { usual(arch) } else { args.kernels.clone() };

    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "kernel",
        "loop",
        "multiply-adds",
        "shared loads",
        "conflicts / 1024",
        "late / 1024",
    ]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for kernel in kernels {
        let text = committed.kernel(&kernel).map_err(|error| error.to_string())?;
        let text = text.ok_or_else(|| format!("no kernel for {arch} is called `{kernel}`"))?;
        let listing = ptxas.disassemble(&text, arch, &kernel)?;
        let row = match inner_loop(&instructions(&listing)).map(Counts::of) {
            None => vec!["-".to_owned(); 5],
            Some(counts) => counts.row(),
        };
        table.add_row([kernel].into_iter().chain(row));
    }
    stdio::print(&format!("{}\n", table.trim_fmt()))?;
    Ok(ExitCode::SUCCESS)
}

/// The default kernels.
fn usual(arch: CudaArch) -> Vec<String> {
    let rungs = LADDER.iter().skip_while(|descriptor| descriptor.name() != "warptile");
    let all = rungs.chain(TILES);
    let there =
        all.filter(|descriptor| arch == CudaArch::Sm90a || !descriptor.abi().has_tensor_maps());
    there.map(|descriptor| descriptor.name().to_owned()).collect()
}

/// A machine instruction.
struct Instruction<'a> {
    address: u64,
    /// Without its predicate: `FFMA R1, R2.reuse, R3, R1`.
    text: &'a str,
}

impl Instruction<'_> {
    fn is(&self, name: &str) -> bool {
        self.text.split([' ', '.']).next() == Some(name)
    }

    /// The operands in order: a register and whether it is marked `.reuse`, or none.
    fn operands(&self) -> impl Iterator<Item = Option<(u32, bool)>> {
        let operands = self.text.split_once(' ').map_or("", |(_, operands)| operands);
        operands.split(',').map(|operand| {
            let operand = operand.trim().trim_start_matches(['-', '|', '[', '!']);
            let digits = operand.strip_prefix('R')?;
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            Some((digits[..end].parse().ok()?, digits[end..].starts_with(".reuse")))
        })
    }

    /// Where it jumps to.
    fn target(&self) -> Option<u64> {
        let (_, address) = self.is("BRA").then(|| self.text.rsplit_once("0x"))??;
        u64::from_str_radix(address.trim(), 16).ok()
    }

    /// The registers that a load of shared memory fills: the first one, and how many.
    fn loads(&self) -> Option<(u32, u32)> {
        let (first, _) = self.is("LDS").then(|| self.operands().next())???;
        let name = self.text.split(' ').next().unwrap_or_default();
        let count = if name.ends_with(".128") { 4 } else { 1 + u32::from(name.ends_with(".64")) };
        Some((first, count))
    }
}

/// The instructions of a listing.
fn instructions(listing: &str) -> Vec<Instruction<'_>> {
    let instruction = |line| {
        let (address, rest) = str::trim(line).strip_prefix("/*")?.split_once("*/")?;
        let (text, _) = rest.split_once(';')?;
        let text = text.trim();
        let text = match text.strip_prefix('@') {
            Some(predicated) => predicated.split_once(' ')?.1,
            None => text,
        };
        Some(Instruction { address: u64::from_str_radix(address, 16).ok()?, text })
    };
    listing.lines().filter_map(instruction).collect()
}

/// The loop with the largest share of multiply-adds.
fn inner_loop<'i, 'a>(all: &'i [Instruction<'a>]) -> Option<&'i [Instruction<'a>]> {
    let loops = all.iter().enumerate().filter_map(|(end, instruction)| {
        let target = instruction.target().filter(|target| *target < instruction.address)?;
        let start = all.iter().position(|other| other.address == target)?;
        let body = &all[start..=end];
        let count = body.iter().filter(|instruction| instruction.is("FFMA")).count();
        (count >= LEAST).then(|| (count as f64 / body.len() as f64, body))
    });
    loops.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, body)| body)
}

/// Checks that the loop of `persistent` releases a stage after its values were used.
///
/// [`ARRIVALS_TO_RELEASE`] counts the arrivals that release one, and says why the check is needed.
/// Fewer arrivals must stand between a load and the first use of its value.
///
/// # Errors
/// What is wrong.
pub fn check_release(ptxas: &Ptxas, ptx: &str, arch: CudaArch) -> Result<(), String> {
    let kernel = persistent::DESCRIPTOR.name();
    let Some(ptx) = ptx_syntax::extract(ptx, kernel) else { return Ok(()) };
    let listing = ptxas.disassemble(&ptx, arch, kernel)?;
    let wrong = |what: &str| format!("the loop of `{kernel}` for {arch}, as ptxas made it: {what}");
    let all = instructions(&listing);
    let body = inner_loop(&all).ok_or_else(|| wrong("there is none"))?;
    match arrivals_before_use(body) {
        None => Err(wrong("it has no loads of shared memory, or no arrivals at a barrier")),
        Some(count) if count >= ARRIVALS_TO_RELEASE as usize => Err(wrong(
            "a stage of shared memory may be overwritten before a value that was loaded from it is \
             used; put `tma::fence_proxy_async` before the arrival",
        )),
        Some(_) => Ok(()),
    }
}

/// The most arrivals at a barrier between a load of shared memory and the first use of what it
/// loads, in a loop that goes round. A load that nothing uses counts as one that is never done.
fn arrivals_before_use(body: &[Instruction<'_>]) -> Option<usize> {
    let is_arrival = |other: &Instruction<'_>| other.text.starts_with("SYNCS.ARRIVE");
    let loads = body.iter().enumerate().filter_map(|(at, load)| Some((at, load.loads()?)));
    let counts = loads.map(|(at, (first, count))| {
        let filled = first..first + count;
        let uses = |other: &&Instruction<'_>| {
            !other.operands().skip(1).flatten().any(|(register, _)| filled.contains(&register))
        };
        let round = body[at + 1..].iter().chain(&body[..=at]);
        let before: Vec<_> = round.take_while(uses).collect();
        let never = before.len() == body.len();
        if never { usize::MAX } else { before.into_iter().filter(|o| is_arrival(o)).count() }
    });
    body.iter().any(is_arrival).then(|| counts.max())?
}

/// What was counted in a loop.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    instructions: usize,
    multiply_adds: usize,
    loads: usize,
    conflicts: usize,
    late: usize,
}

impl Counts {
    fn of(body: &[Instruction<'_>]) -> Self {
        let count = |name: &str| body.iter().filter(|instruction| instruction.is(name)).count();
        Self {
            instructions: body.len(),
            multiply_adds: count("FFMA"),
            loads: count("LDS"),
            conflicts: conflicts(body),
            late: late(body),
        }
    }

    fn row(self) -> Vec<String> {
        let scaled = |count: usize| (count * 1024).div_ceil(self.multiply_adds).to_string();
        vec![
            self.instructions.to_string(),
            self.multiply_adds.to_string(),
            self.loads.to_string(),
            scaled(self.conflicts),
            scaled(self.late),
        ]
    }
}

/// Cycles that multiply-adds wait for a second register of the same bank.
fn conflicts(body: &[Instruction<'_>]) -> usize {
    let mut kept = [[None; 2]; 3];
    let mut conflicts = 0;
    for instruction in body {
        if instruction.address.is_multiple_of(LINE) {
            kept = [[None; 2]; 3];
        }
        if !instruction.is("FFMA") {
            continue;
        }
        let mut needed: Vec<u32> = Vec::new();
        for (operand, kept) in instruction.operands().skip(1).zip(&mut kept) {
            let Some((register, reuse)) = operand else { continue };
            let kept = &mut kept[register as usize % 2];
            if *kept != Some(register) && !needed.contains(&register) {
                needed.push(register);
            }
            *kept = reuse.then_some(register);
        }
        let odd = needed.iter().filter(|register| *register % 2 == 1).count();
        conflicts += odd.max(needed.len() - odd).saturating_sub(1);
    }
    conflicts
}

/// Instructions that loads stand too close before what uses them, which may be in the next round.
fn late(body: &[Instruction<'_>]) -> usize {
    let mut late = 0;
    for (at, instruction) in body.iter().enumerate() {
        let Some((first, count)) = instruction.loads() else { continue };
        let uses = |other: &Instruction<'_>| {
            let filled = first..first + count;
            other.operands().skip(1).flatten().any(|(register, _)| filled.contains(&register))
        };
        let later = body[at + 1..].iter().chain(&body[..at]);
        let distance = later.take(EARLY).position(uses).map(|before| before + 1);
        late += distance.map_or(0, |distance| EARLY.saturating_sub(distance));
    }
    late
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(lines: &[&str]) -> String {
        let line = |(i, line): (usize, &&str)| {
            format!("        /*{:04x}*/  {line} ;  /* 0x0 */\n", 16 * i)
        };
        lines.iter().enumerate().map(line).collect()
    }

    #[test]
    fn instructions_are_read() {
        let text =
            listing(&["@!P0 BRA 0x10", "FFMA R1, -R2.reuse, UR3, R4", "LDS.128 R8, [R5+0x80]"]);
        let all = instructions(&text);
        assert_eq!(all[0].target(), Some(16));
        let operands: Vec<_> = all[1].operands().collect();
        assert_eq!(operands, [Some((1, false)), Some((2, true)), None, Some((4, false))]);
        assert_eq!((all[2].loads(), all[1].loads()), (Some((8, 4)), None));
        assert_eq!(all[2].address, 32);
    }

    #[test]
    fn conflicts_are_of_what_the_reuse_cache_lacks() {
        let count = |lines: &[&str]| conflicts(&instructions(&listing(lines)));
        assert_eq!(count(&["FFMA R1, R2, R3, R1"]), 1, "R3 and R1");
        assert_eq!(count(&["FFMA R4, R2, R3, R4"]), 1, "R2 and R4");
        assert_eq!(count(&["FFMA R6, R2, R4, R6"]), 2);
        assert_eq!(count(&["FFMA R1, R2, R2, R1"]), 0, "the same register twice");
        assert_eq!(count(&["FFMA R1, R2, UR4, R1"]), 0);
        // One for the first; the second has R2 from the cache, in the same place only.
        assert_eq!(count(&["FFMA R4, R2.reuse, R3, R4", "FFMA R6, R2, R5, R6"]), 1);
        assert_eq!(count(&["FFMA R4, R2.reuse, R3, R4", "FFMA R6, R5, R2, R6"]), 2);
        // One of the other bank in between leaves it there; one of the same bank does not.
        let across = |between| ["FFMA R4, R2.reuse, R3, R4", between, "FFMA R6, R2, R9, R6"];
        assert_eq!(count(&across("FFMA R8, R5, RZ, R8")), 1);
        assert_eq!(count(&across("FFMA R8, R4, RZ, R8")), 3);
        // The eighth instruction is the last of a line.
        let mut line = vec!["FFMA R4, R2.reuse, R3, R4"; 8];
        assert_eq!(count(&line), 1);
        line.push("FFMA R4, R2.reuse, R3, R4");
        assert_eq!(count(&line), 2);
    }

    #[test]
    fn late_loads_are_counted_round_the_loop() {
        let mut lines = vec!["FADD R0, R9, R1"; 1];
        lines.extend(["FADD R0, R1, R1"; 30]);
        lines.push("LDS.64 R8, [R5]");
        lines.extend(["FADD R0, R1, R1"; 9]);
        let text = listing(&lines);
        // R9 is used ten instructions later, at the top.
        assert_eq!(late(&instructions(&text)), EARLY - 10);
        let text = listing(&lines[1..]);
        assert_eq!(late(&instructions(&text)), 0, "nobody uses it");
    }

    #[test]
    fn arrivals_between_a_load_and_its_use_are_counted_round_the_loop() {
        let count = |lines: &[&str]| arrivals_before_use(&instructions(&listing(lines)));
        let (load, arrive) = ("LDS.128 R8, [R5]", "SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R2+URZ], RZ");
        let (uses, other) = ("FFMA R1, R2, R11, R1", "FFMA R1, R2, R12, R1");
        assert_eq!(count(&[load, uses, arrive]), Some(0));
        assert_eq!(count(&[load, other, arrive, uses]), Some(1));
        assert_eq!(count(&[uses, load, arrive, other, arrive, arrive]), Some(3), "round");
        assert_eq!(count(&[load, uses, "LDS R20, [R5]", arrive, "FADD R1, R20, R1"]), Some(1));
        assert_eq!(count(&[load, other, arrive]), Some(usize::MAX), "never used");
        assert_eq!(count(&[load, uses]), None, "no arrivals");
        assert_eq!(count(&[uses, arrive]), None, "no loads");
    }

    #[test]
    fn the_inner_loop_is_found() {
        let mut lines = vec!["MOV R1, R2"; 8];
        lines.extend(["FFMA R1, R2, R3, R1"; 40]);
        lines.extend(["@P0 BRA 0x80", "MOV R1, R2", "@P1 BRA 0x10", "EXIT"]);
        let text = listing(&lines);
        let all = instructions(&text);
        let counts = Counts::of(inner_loop(&all).unwrap());
        assert_eq!((counts.instructions, counts.multiply_adds, counts.conflicts), (41, 40, 40));
        assert!(inner_loop(&all[..20]).is_none());
    }
}
