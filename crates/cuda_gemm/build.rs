//! Chooses the PTX that the host embeds: what is committed, decompressed, as long as its sources
//! are unchanged, and else what a build gives now, so that no run uses stale kernels. Embeds the
//! tables of `tuned/`, too.

use std::path::Path;
use std::{env, fs, thread};

use cuda_builder::sources::{FOLDER, RECORD, SourceDigests, committed, ptx_name};
use cuda_builder::{CudaArch, CudaBuilder, DebugInfo};

const ARCHITECTURES: [CudaArch; 2] = [CudaArch::Sm80, CudaArch::Sm90a];

fn main() {
    if let Err(message) = embed().and_then(|()| embed_tables()) {
        println!("cargo::error={message}");
    }
}

fn embed() -> Result<(), String> {
    // Asked for now, not when this script was compiled: checkouts may share a target folder.
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets CARGO_MANIFEST_DIR")?;
    let root = Path::new(&manifest_dir).join("../..");
    let kernels = root.join("kernels-gpu");
    let folder = kernels.join(FOLDER);
    let record = folder.join(RECORD);
    println!("cargo::rerun-if-changed={}", record.display());
    let digests = SourceDigests::read(&record).map_err(|error| error.to_string())?;
    for file in digests.files(&root) {
        println!("cargo::rerun-if-changed={}", file.display());
    }

    let changed = digests.changed(&root);
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    let ptx_of = |arch| Path::new(&out).join(ptx_name(arch));
    let embed_one = |arch| {
        let ptx = ptx_of(arch);
        if changed.is_empty() {
            let text = committed(&folder, arch).map_err(|error| error.to_string())?;
            return fs::write(&ptx, text).map_err(|error| format!("`{}`: {error}", ptx.display()));
        }
        let built = CudaBuilder::new(&kernels)
            .arch(arch)
            .strict()
            // As `cargo xtask build-ptx`, which says why.
            .separate_const_offset(true)
            .debug(DebugInfo::None)
            .copy_to(&ptx)
            .build();
        built.map(|_| ()).map_err(|error| {
            format!("the PTX must be rebuilt, since {} changed: {error}", changed.join(", "))
        })
    };
    // Either build takes a minute of one core.
    let done = thread::scope(|scope| {
        let threads = ARCHITECTURES.map(|arch| scope.spawn(move || embed_one(arch)));
        threads.map(|thread| thread.join().map_err(|_| "a build panicked".to_owned()))
    });
    for (arch, done) in ARCHITECTURES.into_iter().zip(done) {
        done??;
        let ptx = ptx_of(arch);
        let variable = format!("KERNELS_PTX_{}", arch.name().to_uppercase());
        println!("cargo::rustc-env={variable}={}", ptx.display());
    }
    Ok(())
}

/// Lists the tables in `tuned/` as Rust source: a file name and a text for each.
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
    let list = Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join("tables.rs");
    fs::write(&list, format!("&[{}]", tables.collect::<String>()))
        .map_err(|error| error.to_string())?;
    println!("cargo::rustc-env=TUNED_TABLES={}", list.display());
    Ok(())
}
