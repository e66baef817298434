//! The committed PTX of an architecture.

use std::fs;
use std::path::Path;

use cuda_builder::CudaArch;
use cuda_builder::sources::Family;
use ptx_archive::Archive;

/// The archive of each family of a crate of kernels.
pub fn read(crate_dir: &Path, arch: CudaArch) -> Result<Vec<Vec<u8>>, String> {
    let names = Family::names(crate_dir).map_err(|error| error.to_string())?;
    let files = names.iter().map(|name| Family { crate_dir, name, arch }.committed());
    files
        .map(|file| fs::read(&file).map_err(|error| format!("`{}`: {error}", file.display())))
        .collect()
}

/// The kernels of all these archives.
pub fn joined(archives: &[Vec<u8>]) -> Result<Archive<'_>, String> {
    Archive::joined(archives.iter().map(Vec::as_slice)).map_err(|error| error.to_string())
}
