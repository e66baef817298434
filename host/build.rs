//! Chooses the PTX that the host embeds: what is committed as long as its sources are
//! unchanged, and else what a build gives now, so that no run uses stale kernels.

use std::env;
use std::path::{Path, PathBuf};

use cuda_builder::sources::{FOLDER, RECORD, SourceDigests};
use cuda_builder::{CudaArch, CudaBuilder, CudaBuilderError};

const ARCHITECTURES: [CudaArch; 2] = [CudaArch::Sm80, CudaArch::Sm90a];

fn main() {
    if let Err(message) = embed() {
        println!("cargo::error={message}");
    }
}

fn embed() -> Result<(), String> {
    // Asked for now, not when this script was compiled: checkouts may share a target folder.
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets CARGO_MANIFEST_DIR")?;
    let root = Path::new(&manifest_dir).join("..");
    let kernels = root.join("kernels-gpu");
    let folder = kernels.join(FOLDER);
    let record = folder.join(RECORD);
    println!("cargo::rerun-if-changed={}", record.display());
    println!("cargo::rerun-if-changed={}", kernels.join("src").display());
    let digests = SourceDigests::read(&record).map_err(|error| error.to_string())?;
    for path in digests.paths() {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }

    let changed = digests.changed(&root);
    for arch in ARCHITECTURES {
        let file = format!("{arch}.ptx");
        let ptx = if changed.is_empty() {
            folder.join(file)
        } else {
            build(&kernels, arch, &file).map_err(|error| {
                format!("the PTX must be rebuilt, since {} changed: {error}", changed.join(", "))
            })?
        };
        let variable = format!("KERNELS_PTX_{}", arch.name().to_uppercase());
        println!("cargo::rustc-env={variable}={}", ptx.display());
    }
    Ok(())
}

fn build(kernels: &Path, arch: CudaArch, file: &str) -> Result<PathBuf, CudaBuilderError> {
    // cargo sets OUT_DIR for every build script.
    let out_dir = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let ptx = out_dir.join(file);
    CudaBuilder::new(kernels).arch(arch).copy_to(&ptx).build()?;
    Ok(ptx)
}
