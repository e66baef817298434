//! Embeds kernels and tuned tables into the library.
//!
//! A family whose sources are unchanged uses its committed archive. The other families are built
//! now, so that no run uses stale kernels.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, thread};

use cuda_builder::sources::{ARCHITECTURES, Archive, FOLDER, Family, RECORD, SourceDigests, Stale};

const KERNELS: &str = "kernels-gpu";

fn main() {
    if let Err(message) = embed().and_then(|()| embed_tables()) {
        println!("cargo::error={message}");
    }
}

/// Lists the kernel archives as Rust source: the architecture and the bytes of each.
fn embed() -> Result<(), String> {
    // Read at run time, not when this script was compiled: checkouts may share a target folder.
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets CARGO_MANIFEST_DIR")?;
    let root = Path::new(&manifest_dir).join("../..");
    let record = root.join(KERNELS).join(FOLDER).join(RECORD);
    println!("cargo::rerun-if-changed={}", record.display());
    let digests = SourceDigests::read(&record).map_err(|error| error.to_string())?;
    for file in digests.files(&root) {
        println!("cargo::rerun-if-changed={}", file.display());
    }

    let stale = Stale::of(&digests, &root, KERNELS);
    let crate_dir = &root.join(KERNELS);
    let families = &Family::names(crate_dir).map_err(|error| error.to_string())?;
    let chosen = &|arch| {
        let archives = families.iter().map(|name| {
            let family = Family { crate_dir, name, arch };
            match stale.reason(name) {
                None => Ok(family.committed()),
                Some(reason) => build(family).map_err(|error| {
                    format!("the PTX must be rebuilt, since {reason} changed: {error}")
                }),
            }
        });
        archives.collect::<Result<Vec<PathBuf>, String>>()
    };
    // Families of one architecture share a build folder, so they are built one after the other.
    let archives = thread::scope(|scope| {
        let threads = ARCHITECTURES.map(|arch| scope.spawn(move || chosen(arch)));
        threads.map(|thread| thread.join().map_err(|_| "a build panicked".to_owned()))
    });
    let mut list = String::new();
    for (arch, archives) in ARCHITECTURES.into_iter().zip(archives) {
        let archives = archives??;
        check(&archives)?;
        for file in archives {
            let _ = writeln!(list, "(\"{arch}\", include_bytes!({file:?})),");
        }
    }
    embed_list("KERNELS", &list)
}

/// Fails unless the library can read the embedded archives.
fn check(files: &[PathBuf]) -> Result<(), String> {
    let failed = |file: &Path, error| format!("`{}`: {error}", file.display());
    let read = |file: &PathBuf| fs::read(file).map_err(|error| failed(file, error));
    let archives = files.iter().map(read).collect::<Result<Vec<_>, String>>()?;
    for (file, bytes) in files.iter().zip(&archives) {
        Archive::read(bytes).map_err(|error| failed(file, error))?;
    }
    Archive::joined(archives.iter().map(Vec::as_slice)).map_err(|error| error.to_string())?;
    Ok(())
}

/// Builds a family's archive in this script's output folder.
fn build(family: Family<'_>) -> Result<PathBuf, String> {
    let text = family.build(true).map_err(|error| error.to_string())?;
    let archive = family.archive(&text).map_err(|error| error.to_string())?;
    let file = out(&family.archive_name());
    fs::write(&file, archive).map_err(|error| format!("`{}`: {error}", file.display()))?;
    Ok(file)
}

/// Lists the tables in `tuned/` as Rust source: file name and text.
fn embed_tables() -> Result<(), String> {
    let folder = Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("tuned");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|error| format!("tuned: {error}"))? {
        let path = entry.map_err(|error| format!("tuned: {error}"))?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            println!("cargo::rerun-if-changed={}", path.display());
            files.push(path);
        }
    }
    files.sort();
    let tables = files.iter().map(|path| {
        let name = path.file_name().unwrap_or_default();
        format!("(\"{}\", include_str!({path:?})),\n", name.display())
    });
    embed_list("TUNED_TABLES", &tables.collect::<String>())
}

/// Writes a slice of the elements to a file, whose path the library reads from `variable`.
fn embed_list(variable: &str, elements: &str) -> Result<(), String> {
    let file = out(&format!("{}.rs", variable.to_lowercase()));
    fs::write(&file, format!("&[{elements}]")).map_err(|error| error.to_string())?;
    println!("cargo::rustc-env={variable}={}", file.display());
    Ok(())
}

fn out(name: &str) -> PathBuf {
    Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join(name)
}
