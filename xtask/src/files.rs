//! Files of the checkout.

use std::fs;
use std::path::{Path, PathBuf};

/// The text of a file.
pub fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("`{}`: {error}", path.display()))
}

/// The files below `folder` whose names end on `.EXTENSION`, sorted. Build outputs and hidden
/// folders, but `.github`, are left out.
pub fn with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("`{}`: {error}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type().map_err(failed)?.is_dir() {
            let hidden = name.to_string_lossy().starts_with('.') && name != ".github";
            if !hidden && name != "target" {
                found.extend(with_extension(&path, extension)?);
            }
        } else if path.extension().is_some_and(|of_file| of_file == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
