//! Knowing whether committed PTX still matches the sources it came from.
//!
//! The record is a text file in the format of `sha256sum`: one line per file, its digest and its
//! path from the workspace's root. The PTX is listed beside its sources, so that PTX that was
//! edited by hand is as stale as PTX whose sources changed. A source file that is not listed
//! cannot matter: to be compiled it must be named in one that is.
//!
//! PTX is committed compressed, a tenth of its size: what is listed as `sm_80.ptx` lies in
//! `sm_80.ptx.xz`. The digest is of the text; `sha256sum -c` checks it after `xz -dk`.

use std::fmt::Write;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use lzma_rust2::XzReader;
use sha2::{Digest, Sha256};

use crate::{CudaArch, CudaBuilderError};

/// The folder of a crate of kernels that its committed PTX lies in.
pub const FOLDER: &str = "ptx";

/// The record's name in that folder.
pub const RECORD: &str = "SOURCES.sha256";

/// The digests of files, by their path from a common root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceDigests(Vec<(String, String)>);

impl SourceDigests {
    /// Digests `paths` below `root`. A folder stands for all files in it and below it.
    ///
    /// # Errors
    /// If a file or folder cannot be read.
    pub fn of(root: &Path, paths: &[&str]) -> Result<Self, CudaBuilderError> {
        let mut files = Vec::new();
        for path in paths {
            collect(&root.join(path), &mut files)?;
        }
        let mut digests = Vec::new();
        for file in files {
            let relative = file.strip_prefix(root).unwrap_or(&file);
            let name = relative.to_string_lossy().replace('\\', "/");
            digests.push((name, digest(&file)?));
        }
        digests.sort();
        Ok(SourceDigests(digests))
    }

    /// Reads a record that [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(file: &Path) -> Result<Self, CudaBuilderError> {
        let text = fs::read_to_string(file).map_err(CudaBuilderError::io(file))?;
        let lines = text.lines().filter_map(|line| line.split_once("  "));
        Ok(SourceDigests(lines.map(|(digest, path)| (path.into(), digest.into())).collect()))
    }

    /// Writes the record to `file`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), CudaBuilderError> {
        let mut text = String::new();
        for (path, digest) in &self.0 {
            let _ = writeln!(text, "{digest}  {path}");
        }
        fs::write(file, text).map_err(CudaBuilderError::io(file))
    }

    /// The files below `root` that the digests are of.
    pub fn files(&self, root: &Path) -> impl Iterator<Item = PathBuf> {
        self.0.iter().map(|(path, _)| stored(&root.join(path)))
    }

    /// The files below `root` that are gone or no longer have their digest.
    pub fn changed(&self, root: &Path) -> Vec<&str> {
        self.0
            .iter()
            .filter(|(path, recorded)| digest(&root.join(path)).ok().as_ref() != Some(recorded))
            .map(|(path, _)| path.as_str())
            .collect()
    }
}

/// The name of the PTX for an architecture.
pub fn ptx_name(arch: CudaArch) -> String {
    format!("{arch}.ptx")
}

/// Where PTX is committed, compressed; any other file is where it is.
pub fn stored(file: &Path) -> PathBuf {
    let is_ptx = file.extension().is_some_and(|extension| extension == "ptx");
    if is_ptx { file.with_added_extension("xz") } else { file.to_owned() }
}

/// The PTX that is committed in a folder for an architecture.
///
/// # Errors
/// If there is none, or it cannot be read.
pub fn committed(folder: &Path, arch: CudaArch) -> Result<String, CudaBuilderError> {
    let file = folder.join(ptx_name(arch));
    let text = String::from_utf8(contents(&file)?);
    text.map_err(|error| CudaBuilderError::io(&stored(&file))(io::Error::other(error)))
}

/// What a file holds, decompressed.
fn contents(file: &Path) -> Result<Vec<u8>, CudaBuilderError> {
    let stored = stored(file);
    let bytes = fs::read(&stored).map_err(CudaBuilderError::io(&stored))?;
    if stored == file {
        return Ok(bytes);
    }
    let mut text = Vec::new();
    XzReader::new(&bytes[..], false)
        .read_to_end(&mut text)
        .map_err(CudaBuilderError::io(&stored))?;
    Ok(text)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), CudaBuilderError> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(CudaBuilderError::io(path))? {
        collect(&entry.map_err(CudaBuilderError::io(path))?.path(), files)?;
    }
    Ok(())
}

fn digest(file: &Path) -> Result<String, CudaBuilderError> {
    let mut text = String::new();
    for byte in Sha256::digest(contents(file)?) {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `.target sm_80` and the end of a line, as `xz --check=crc32` compresses it.
    const COMPRESSED: [u8; 68] = *b"\xfd7zXZ\0\0\x01i\"\xde6\x02\0!\x01\x1c\0\0\0\x10\xcfX\xcc\
        \x01\0\r.target sm_80\n\0\0\0nLI\x10\0\x01\"\x0e\x0c\xde\x8c`\x90B\x99\r\x01\0\0\0\0\x01YZ";

    #[test]
    fn committed_ptx_is_read_and_digested_as_text() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let file = root.join("sm_80.ptx.xz");
        fs::write(&file, COMPRESSED).unwrap();
        assert_eq!(committed(root, CudaArch::Sm80).unwrap(), ".target sm_80\n");
        let digests = SourceDigests::of(root, &["sm_80.ptx"]).unwrap();
        // What `printf '.target sm_80\n' | sha256sum` says.
        let of_text = "a554bdf6d273c818c4b4e40d373d405d5c85d74c2d0a6c24255234c55ca643b5";
        assert_eq!(digests.0, [("sm_80.ptx".to_owned(), of_text.to_owned())]);
        assert!(digests.files(root).eq([root.join("sm_80.ptx.xz")]));
        assert_eq!(digests.changed(root), [""; 0]);

        let mut damaged = COMPRESSED;
        damaged[30] ^= 1;
        fs::write(&file, damaged).unwrap();
        assert_eq!(digests.changed(root), ["sm_80.ptx"]);
        let error = committed(root, CudaArch::Sm80).unwrap_err().to_string();
        assert!(error.contains("sm_80.ptx.xz`: "), "{error}");
        let error = committed(root, CudaArch::Sm90a).unwrap_err().to_string();
        assert!(error.contains("sm_90a.ptx.xz`: "), "{error}");
    }
}
