//! `cargo xtask build-ptx`: the kernels, as PTX that is committed.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use comfy_table::{CellAlignment, Table, presets};
use cuda_builder::sources::{self, SourceDigests};
use cuda_builder::{CudaArch, CudaBuilder, DebugInfo, ptx, target_dir};
use lzma_rust2::{XzOptions, XzWriter};

use crate::ptxas::{self, Ptxas, Resources};
use crate::{sass, stdio};

/// The architectures that PTX is committed for: the oldest that is supported, and Hopper
/// with its own instructions.
const ARCHITECTURES: [CudaArch; 2] = [CudaArch::Sm80, CudaArch::Sm90a];

/// The crate of kernels, and everything else that decides what PTX comes out of it.
const KERNELS: &str = "kernels-gpu";
const SOURCES: [&str; 8] = [
    "Cargo.lock",
    "Cargo.toml",
    "crates/cuda_builder",
    "crates/cuda_std",
    "crates/cuda_std_macros",
    "crates/ptx_syntax",
    "kernels-gpu",
    "rust-toolchain.toml",
];

/// Build every kernel to PTX, into kernels-gpu/ptx/
///
/// These files are compressed; target/ptx/ has the text. Prints a table of the kernels with
/// instructions and shared memory.
///
/// A ptxas is used if $PTXAS, the PATH or a CUDA toolkit has one. Then the table also has registers
/// and spills, and a kernel that spills or has a stack is an error. With cuobjdump beside ptxas,
/// `persistent` must also release each stage after its values were used.
#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail if an entry of the committed PTX is stale
    #[arg(long)]
    check: bool,

    /// Fail if rust-src is missing, instead of asking rustup for it
    #[arg(long)]
    no_install: bool,
}

/// Builds, and writes or checks.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let root = crate::root();
    let ptxas = Ptxas::find()?;
    let mut table = new_table(ptxas.is_some());
    let mut stale = Vec::new();
    let mut files: Vec<String> = Vec::new();
    // A committed file with the right entries stays as it is, in any order.
    let mut changed = Vec::new();
    let folder = root.join(KERNELS).join(sources::FOLDER);
    let readable = target_dir(&root).map_err(|error| error.to_string())?.join(sources::FOLDER);
    fs::create_dir_all(&readable).map_err(|error| format!("`{}`: {error}", readable.display()))?;
    let mut spilling = Vec::new();
    // Either takes a minute of one core.
    let built = thread::scope(|scope| {
        let (readable, ptxas) = (readable.as_path(), ptxas.as_ref());
        let builds = ARCHITECTURES
            .map(|arch| scope.spawn(move || build(arch, readable, ptxas, !args.no_install)));
        builds.map(|build| build.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    for (arch, built) in ARCHITECTURES.into_iter().zip(built) {
        let Built { text, usage } = built?;
        spilling.extend(add_rows(&mut table, arch, &text, usage.as_deref())?);

        let name = sources::ptx_name(arch);
        let file = format!("{KERNELS}/{}/{name}", sources::FOLDER);
        let committed = sources::committed(&folder, arch).unwrap_or_default();
        let differences = differences(&committed, &text);
        if !differences.is_empty() {
            stdio::say(format_args!("{file}: {}", differences.join("; ")));
            if args.check {
                stale.push(file.clone());
            }
            changed.push((file.clone(), text));
        }
        files.push(file);
    }
    stdio::print(&format!("{}\n", table.trim_fmt()))?;
    stdio::say(format_args!("the PTX can be read in {}", readable.display()));
    match &ptxas {
        None => stdio::say(format_args!("not checked: registers and spills; {}", ptxas::MISSING)),
        Some(ptxas) if !ptxas.can_disassemble() => stdio::say(
            "not checked: the loop of `persistent`, since there is no cuobjdump beside ptxas",
        ),
        Some(_) => {}
    }
    if !spilling.is_empty() {
        let kernels = spilling.join(", ");
        return Err(format!("these kernels spill registers or have a stack: {kernels}"));
    }

    if !args.check {
        for (file, text) in &changed {
            write(&sources::stored(&root.join(file)), &compressed(text)?)?;
        }
    }
    let record = folder.join(sources::RECORD);
    let all: Vec<&str> = SOURCES.iter().copied().chain(files.iter().map(String::as_str)).collect();
    let digests = SourceDigests::of(&root, &all);
    if !args.check {
        digests.and_then(|digests| digests.write(&record)).map_err(|error| error.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    // A file that cannot be decompressed has no digest.
    if !digests.is_ok_and(|digests| SourceDigests::read(&record).ok() == Some(digests)) {
        stale.push(format!("{KERNELS}/{}/{}", sources::FOLDER, sources::RECORD));
    }
    if stale.is_empty() {
        stdio::say("the committed PTX is what its sources give");
        return Ok(ExitCode::SUCCESS);
    }
    let stale = stale.join(", ");
    stdio::say(format_args!("stale: {stale}; type `cargo xtask build-ptx` and commit the result"));
    Ok(ExitCode::FAILURE)
}

/// The kernels for one architecture.
struct Built {
    text: String,
    /// What ptxas says of them.
    usage: Option<Vec<Resources>>,
}

/// Builds the kernels for `arch`, with a copy in the folder `readable`.
fn build(
    arch: CudaArch,
    readable: &Path,
    ptxas: Option<&Ptxas>,
    install_rust_src: bool,
) -> Result<Built, String> {
    stdio::say(format_args!("building {KERNELS} for {arch}"));
    let built = CudaBuilder::new(crate::root().join(KERNELS))
        .arch(arch)
        .strict()
        // Faster addresses; no offset here is the complement of an index, which the pass gets
        // wrong, and the contract test compares every kernel's results.
        .separate_const_offset(true)
        .debug(DebugInfo::None)
        .copy_to(readable.join(sources::ptx_name(arch)))
        .install_rust_src(install_rust_src)
        .build()
        .map_err(|error| error.to_string())?;
    let text = read(&built)?;
    let usage = ptxas.map(|ptxas| ptxas.resources(&text, arch)).transpose()?;
    if arch == CudaArch::Sm90a
        && let Some(ptxas) = ptxas.filter(|ptxas| ptxas.can_disassemble())
    {
        sass::check_release(ptxas, &built)?;
    }
    Ok(Built { text, usage })
}

/// The entries in which two texts differ.
fn differences(committed: &str, built: &str) -> Vec<String> {
    let (before, after) = (ptx_syntax::digests(committed), ptx_syntax::digests(built));
    let names: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    let difference = |name| match (before.get(name), after.get(name)) {
        (None, _) => Some(format!("`{name}` is added")),
        (_, None) => Some(format!("`{name}` is removed")),
        (before, after) => (before != after).then(|| format!("`{name}` differs")),
    };
    names.into_iter().filter_map(difference).collect()
}

fn new_table(with_ptxas: bool) -> Table {
    let mut header = vec!["kernel", "arch", "PTX instructions", "shared bytes"];
    if with_ptxas {
        header.extend(["registers", "spill bytes"]);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Adds the kernels of a text; those that spill.
fn add_rows(
    table: &mut Table,
    arch: CudaArch,
    text: &str,
    usage: Option<&[Resources]>,
) -> Result<Vec<String>, String> {
    let mut spilling = Vec::new();
    for kernel in ptx::kernels(text) {
        let mut row = vec![
            kernel.name.clone(),
            arch.to_string(),
            kernel.instructions.to_string(),
            kernel.shared_bytes.to_string(),
        ];
        if let Some(usage) = usage {
            let of_kernel = usage.iter().find(|usage| usage.kernel == kernel.name);
            let of_kernel =
                of_kernel.ok_or_else(|| format!("ptxas said nothing of `{}`", kernel.name))?;
            row.push(of_kernel.registers.to_string());
            row.push(of_kernel.spill_bytes.to_string());
            if of_kernel.spill_bytes > 0 {
                spilling.push(format!("`{}` for {arch}", kernel.name));
            }
        }
        table.add_row(row);
    }
    Ok(spilling)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("`{}`: {error}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let folder = path.parent().ok_or("a file has a folder")?;
    // Whoever reads it meanwhile gets the old one or the new one whole.
    let beside = path.with_added_extension("new");
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&beside, bytes))
        .and_then(|()| fs::rename(&beside, path))
        .map_err(|error| format!("`{}`: {error}", path.display()))
}

/// A text in the format of `xz`.
fn compressed(text: &str) -> Result<Vec<u8>, String> {
    let compress = || {
        let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(6))?;
        writer.write_all(text.as_bytes())?;
        writer.finish()
    };
    compress().map_err(|error| error.to_string())
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn entries_that_differ_are_named() {
        let entry = |name: &str, body| format!(".visible .entry {name}()\n{{\n{body}\n}}\n");
        let head = ".version 7.0\n";
        let before = [head, &entry("a", "ret;"), &entry("b", "ret;"), &entry("c", "ret;")].concat();
        let after = [head, &entry("d", "ret;"), &entry("c", "exit;"), &entry("a", "ret; // b")];
        let expected = ["`b` is removed", "`c` differs", "`d` is added"];
        assert_eq!(differences(&before, &after.concat()), expected);
    }

    #[test]
    fn a_kernel_that_spills_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("ptxas");
        let with = |memory: &str| {
            let report =
                format!("Compiling entry function 'k' for 'sm_80'\n{memory}\nUsed 255 registers\n");
            // By another process: one that a test beside this starts meanwhile would inherit the
            // open file, and Linux runs no file that is open for writing.
            let write = "printf '%s' \"$1\" > \"$0\" && chmod 755 \"$0\"";
            let text = format!("#!/bin/sh\ncat >&2 <<END\n{report}END\n");
            let status = Command::new("sh").args(["-c", write]).arg(&script).arg(text).status();
            assert!(status.unwrap().success());
            let text = ".visible .entry k(\n)\n{\n\tret;\n}\n";
            let ptxas = Ptxas::at(script.clone());
            let usage = ptxas.resources(text, CudaArch::Sm80).unwrap();
            add_rows(&mut new_table(true), CudaArch::Sm80, text, Some(&usage)).unwrap()
        };
        let none = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
        assert_eq!(with(none), [""; 0]);
        for (memory, of) in
            [("0 bytes stack", "8 bytes stack"), ("0 bytes spill l", "4 bytes spill l")]
        {
            assert_eq!(with(&none.replace(memory, of)), ["`k` for sm_80"]);
        }
    }
}
