//! `cargo xtask build-ptx`: the kernels, as PTX that is committed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::{self, ScopedJoinHandle};

use comfy_table::{CellAlignment, Table, presets};
use cuda_builder::sources::{ARCHITECTURES, Family, SourceDigests, Stale, with_feature};
use cuda_builder::{CudaArch, ptx, sources, target_dir};
use ptx_archive::Archive;

use crate::ptxas::{self, Ptxas, Resources};
use crate::{archives, sass, stdio};

/// The crate of kernels.
const KERNELS: &str = "kernels-gpu";

/// Everything else that decides what PTX comes out of it.
const SHARED: [&str; 8] = [
    "Cargo.lock",
    "Cargo.toml",
    "crates/cuda_builder",
    "crates/cuda_std",
    "crates/cuda_std_macros",
    "crates/ptx_archive",
    "crates/ptx_syntax",
    "rust-toolchain.toml",
];

/// Build the kernels whose sources changed to PTX, into kernels-gpu/ptx/
///
/// Each file has the kernels of a family for one architecture. They are compressed; target/ptx/ has
/// the text of each kernel. Prints a table of the kernels that were built, with instructions and
/// shared memory.
///
/// A ptxas is used if $PTXAS, the PATH or a CUDA toolkit has one. Then the table also has registers
/// and spills, and a kernel that spills or has a stack is an error. With cuobjdump beside ptxas,
/// `persistent` must also release each stage after its values were used.
#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail if a kernel of the committed PTX is stale
    #[arg(long)]
    check: bool,

    /// Build all kernels, also those whose sources did not change
    #[arg(long)]
    all: bool,

    /// Fail if rust-src is missing, instead of asking rustup for it
    #[arg(long)]
    no_install: bool,
}

/// Builds, and writes or checks.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let root = crate::root();
    let crate_dir = root.join(KERNELS);
    let ptxas = Ptxas::find()?;
    let record_file = crate_dir.join(sources::FOLDER).join(sources::RECORD);
    let names = Family::names(&crate_dir).map_err(|error| error.to_string())?;
    let sources = || {
        let own = names.iter().map(|family| with_feature(KERNELS, family));
        let paths: Vec<String> = SHARED.map(str::to_owned).into_iter().chain(own).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        SourceDigests::of(&root, &paths).map_err(|error| error.to_string())
    };
    let sources_before = sources()?;
    // Without a record, nothing is known of what is there.
    let record = SourceDigests::read(&record_file).ok();
    let stale = record.as_ref().map(|record| Stale::of(record, &root, KERNELS));
    let is_stale = |family: &str| match &stale {
        Some(stale) if !args.all => stale.reason(family).is_some(),
        _ => true,
    };
    let families: Vec<&String> = names.iter().filter(|family| is_stale(family)).collect();

    let built = thread::scope(|scope| {
        let (families, crate_dir, ptxas) = (&families, &crate_dir, ptxas.as_ref());
        // Those of an architecture share a folder, in which one is built at a time.
        let build_all = move |arch| {
            let builds = families.iter().map(|name| {
                let family = Family { crate_dir, name, arch };
                stdio::say(format_args!("building {} for {arch}", with_feature(KERNELS, name)));
                let text = family.build(!args.no_install).map_err(|error| error.to_string())?;
                // While the next one is built.
                Ok(scope.spawn(move || Built::new(family, text, ptxas)))
            });
            let checks = builds.collect::<Result<Vec<_>, String>>()?;
            checks.into_iter().map(join).collect::<Result<Vec<Built>, String>>()
        };
        ARCHITECTURES.map(|arch| scope.spawn(move || build_all(arch))).map(join)
    });
    let mut table = new_table(ptxas.is_some());
    let (mut spilling, mut wrong, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    for built in built.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
        let Built { arch, text, usage, archive, committed } = built;
        spilling.extend(add_rows(&mut table, arch, &text, usage.as_deref())?);
        let before = fs::read(&committed).unwrap_or_default();
        if before != archive {
            let file = in_repository(&committed, &root);
            let differences = differences(&before, &archive)?;
            stdio::say(format_args!("{file}: {}", differences.join("; ")));
            wrong.push(file);
            changed.push((committed, archive));
        }
    }
    if !families.is_empty() {
        stdio::print(&format!("{}\n", table.trim_fmt()))?;
        match &ptxas {
            None => {
                stdio::say(format_args!("not checked: registers and spills; {}", ptxas::MISSING));
            }
            Some(ptxas) if !ptxas.can_disassemble() => stdio::say(
                "not checked: the loop of `persistent`, since there is no cuobjdump beside ptxas",
            ),
            Some(_) => {}
        }
    }
    if !spilling.is_empty() {
        let kernels = spilling.join(", ");
        return Err(format!("these kernels spill registers or have a stack: {kernels}"));
    }
    if !families.is_empty() && sources()? != sources_before {
        return Err("the sources changed while they were built; build them again".to_owned());
    }
    let folder = crate_dir.join(sources::FOLDER);
    let archives: Vec<PathBuf> = names
        .iter()
        .flat_map(|name| {
            ARCHITECTURES.map(|arch| Family { crate_dir: &crate_dir, name, arch }.committed())
        })
        .collect();
    let strangers = archives_in(&folder)?.into_iter().filter(|file| !archives.contains(file));
    let strangers: Vec<PathBuf> = strangers.collect();
    let record_now = || {
        let files = archives.iter().map(|file| in_repository(file, &root));
        let files: Vec<String> = files.collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let digests = SourceDigests::of(&root, &files);
        digests.map(|digests| sources_before.joined(digests)).map_err(|error| error.to_string())
    };
    if !args.check {
        for (file, archive) in changed {
            write(&file, &archive)?;
        }
        for file in strangers {
            stdio::say(format_args!("{} is of no family: deleted", in_repository(&file, &root)));
            fs::remove_file(&file).map_err(|error| format!("`{}`: {error}", file.display()))?;
        }
        let digests = record_now()?;
        if record.as_ref() != Some(&digests) {
            digests.write(&record_file).map_err(|error| error.to_string())?;
        }
        let readable = unpack(&crate_dir, &root)?;
        let what = if families.is_empty() { "no kernel's sources changed; " } else { "" };
        stdio::say(format_args!("{what}the PTX can be read in {}", readable.display()));
        return Ok(ExitCode::SUCCESS);
    }
    wrong.extend(strangers.iter().map(|file| in_repository(file, &root)));
    // A file that is missing has no digest.
    if !record_now().is_ok_and(|digests| record == Some(digests)) {
        wrong.push(in_repository(&record_file, &root));
    }
    if wrong.is_empty() {
        stdio::say("the committed PTX is what its sources give");
        return Ok(ExitCode::SUCCESS);
    }
    let wrong = wrong.join(", ");
    stdio::say(format_args!("stale: {wrong}; type `cargo xtask build-ptx` and commit the result"));
    Ok(ExitCode::FAILURE)
}

/// A family for one architecture.
struct Built {
    arch: CudaArch,
    text: String,
    /// What ptxas says of the kernels.
    usage: Option<Vec<Resources>>,
    archive: Vec<u8>,
    /// Where the archive is committed.
    committed: PathBuf,
}

impl Built {
    fn new(family: Family<'_>, text: String, ptxas: Option<&Ptxas>) -> Result<Self, String> {
        let arch = family.arch;
        let usage = ptxas.map(|ptxas| ptxas.resources(&text, arch)).transpose()?;
        if let Some(ptxas) = ptxas.filter(|ptxas| ptxas.can_disassemble()) {
            sass::check_release(ptxas, &text, arch)?;
        }
        let archive = family.archive(&text).map_err(|error| error.to_string())?;
        Ok(Built { arch, text, usage, archive, committed: family.committed() })
    }
}

/// What a thread made.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The kernels in which two archives differ; what cannot be read has none.
fn differences(committed: &[u8], built: &[u8]) -> Result<Vec<String>, String> {
    let before = Archive::read(committed).unwrap_or_default();
    let after = Archive::read(built).map_err(|error| error.to_string())?;
    let names: BTreeSet<&str> = before.names().chain(after.names()).collect();
    let difference = |name| match (before.digest(name), after.digest(name)) {
        (None, _) => Some(format!("`{name}` is added")),
        (_, None) => Some(format!("`{name}` is removed")),
        (before, after) => (before != after).then(|| format!("`{name}` differs")),
    };
    let differences: Vec<_> = names.into_iter().filter_map(difference).collect();
    Ok(match differences.is_empty() {
        true => vec!["the bytes differ".to_owned()],
        false => differences,
    })
}

/// The path of a file from the repository's root, as the record has it.
fn in_repository(file: &Path, root: &Path) -> String {
    let parts = file.strip_prefix(root).unwrap_or(file).iter();
    parts.map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// The archives in a folder.
fn archives_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("`{}`: {error}", folder.display());
    let files = fs::read_dir(folder).map_err(failed)?.map(|file| file.map(|file| file.path()));
    let files = files.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    Ok(files.into_iter().filter(|file| file.to_string_lossy().ends_with(".ptx.xz")).collect())
}

/// Writes the text of each committed kernel to a file of its own; their folder.
fn unpack(crate_dir: &Path, root: &Path) -> Result<PathBuf, String> {
    let folder = target_dir(root).map_err(|error| error.to_string())?.join(sources::FOLDER);
    for arch in ARCHITECTURES {
        let folder = folder.join(arch.name());
        let failed = |error| format!("`{}`: {error}", folder.display());
        // Kernels that are gone leave nothing.
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(failed)?;
        }
        fs::create_dir_all(&folder).map_err(failed)?;
        let archives = archives::read(crate_dir, arch)?;
        let all = archives::joined(&archives)?;
        for name in all.names() {
            let text = all.kernel(name).map_err(|error| error.to_string())?;
            let file = folder.join(format!("{name}.ptx"));
            fs::write(&file, text.unwrap_or_default()).map_err(failed)?;
        }
    }
    Ok(folder)
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

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let folder = path.parent().ok_or("a file has a folder")?;
    // Whoever reads it meanwhile gets the old one or the new one whole.
    let beside = path.with_added_extension("new");
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&beside, bytes))
        .and_then(|()| fs::rename(&beside, path))
        .map_err(|error| format!("`{}`: {error}", path.display()))
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn entries_that_differ_are_named() {
        let entry = |name: &str, body: &str| format!(".visible .entry {name}()\n{{\n{body}\n}}\n");
        let archive = |kernels: &[(&str, &str)]| {
            let kernels = kernels.iter().map(|(name, body)| entry(name, body));
            let text = kernels.fold(".version 7.0\n".to_owned(), |text, kernel| text + &kernel);
            ptx_archive::pack(&text, &Archive::default()).unwrap()
        };
        let before = archive(&[("a", "ret;"), ("b", "ret;"), ("c", "ret;")]);
        let after = archive(&[("d", "ret;"), ("c", "exit;"), ("a", "ret; // b")]);
        let expected = ["`b` is removed", "`c` differs", "`d` is added"];
        assert_eq!(differences(&before, &after).unwrap(), expected);
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
