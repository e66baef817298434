//! Kernels whose PTX is committed, in families: features of their crate, each built by itself.

use std::path::{Path, PathBuf};
use std::{fs, io};

use ptx_archive::pack;

use super::{Archive, FOLDER, MANIFEST, RECORD, SourceDigests, settings, with_feature};
use crate::{CudaArch, CudaBuilder, CudaBuilderError, DebugInfo};

/// The architectures that PTX is committed for: the oldest that is supported, and Hopper with its
/// own instructions.
pub const ARCHITECTURES: [CudaArch; 2] = [CudaArch::Sm80, CudaArch::Sm90a];

/// The kernels of a crate with one of its features, for an architecture.
#[derive(Clone, Copy, Debug)]
pub struct Family<'a> {
    /// The folder of the crate.
    pub crate_dir: &'a Path,
    /// The feature.
    pub name: &'a str,
    /// What they are built for.
    pub arch: CudaArch,
}

impl Family<'_> {
    /// The families of the crate in this folder: the features in its `Cargo.toml`.
    ///
    /// # Errors
    /// If the file cannot be read, or a feature turns others on: then an edit of one family could
    /// change another.
    pub fn names(crate_dir: &Path) -> Result<Vec<String>, CudaBuilderError> {
        let manifest = crate_dir.join(MANIFEST);
        let text = fs::read_to_string(&manifest).map_err(CudaBuilderError::io(&manifest))?;
        let text = settings(&text);
        let lines = text.lines().skip_while(|line| *line != "[features]").skip(1);
        let lines = lines.take_while(|line| !line.starts_with('['));
        let mut names = Vec::new();
        for (name, others) in lines.filter_map(|line| line.split_once('=')) {
            match (name.trim(), others.trim()) {
                ("default", _) => {}
                (name, "[]") => names.push(name.to_owned()),
                (name, _) => {
                    let message = format!("the feature `{name}` must turn no others on: `= []`");
                    return Err(CudaBuilderError::io(&manifest)(io::Error::other(message)));
                }
            }
        }
        Ok(names)
    }

    /// The name of the archive of these kernels.
    pub fn archive_name(&self) -> String {
        archive_name(self.name, self.arch)
    }

    /// Where that archive is committed.
    pub fn committed(&self) -> PathBuf {
        self.crate_dir.join(FOLDER).join(self.archive_name())
    }

    /// Builds the kernels: without places in the source, in registers alone, and with the cheaper
    /// addresses of LLVM's pass. The pass miscompiles offsets `!index`. No kernel has one, and
    /// tests compare every kernel's results.
    ///
    /// # Errors
    /// As [`CudaBuilder::build`].
    pub fn build(&self, install_rust_src: bool) -> Result<String, CudaBuilderError> {
        CudaBuilder::new(self.crate_dir)
            .arch(self.arch)
            .strict()
            .separate_const_offset(true)
            .debug(DebugInfo::None)
            .install_rust_src(install_rust_src)
            .build_args(["--no-default-features", "--features", self.name])
            .build_text()
            .map(|(_, text)| text)
    }

    /// An archive of the kernels of a PTX text. Those of the committed archive that are the same
    /// keep their bytes.
    ///
    /// # Errors
    /// Never in practice: it writes to memory.
    pub fn archive(&self, text: &str) -> Result<Vec<u8>, CudaBuilderError> {
        let committed = self.committed();
        let bytes = fs::read(&committed).unwrap_or_default();
        let before = Archive::read(&bytes).unwrap_or_default();
        pack(text, &before).map_err(CudaBuilderError::io(&committed))
    }
}

fn archive_name(family: &str, arch: CudaArch) -> String {
    format!("{family}.{arch}.ptx.xz")
}

/// What of a record no longer has its digest.
#[derive(Clone, Debug)]
pub struct Stale<'a> {
    record: &'a SourceDigests,
    /// The path of the crate of kernels.
    kernels: &'a str,
    changed: Vec<&'a str>,
}

impl<'a> Stale<'a> {
    /// What changed below `root` since the record was written. `kernels` is the path of a crate of
    /// kernels.
    pub fn of(record: &'a SourceDigests, root: &Path, kernels: &'a str) -> Self {
        Stale { record, kernels, changed: record.changed(root) }
    }

    /// A path whose change makes the PTX of a family stale, if there is one: what all families
    /// share, the family's own items, or an archive of its kernels. The record's own name stands
    /// for a family that it does not have.
    pub fn reason(&self, family: &str) -> Option<&'a str> {
        let own = with_feature(self.kernels, family);
        let archives = ARCHITECTURES.map(|arch| archive_name(family, arch));
        let has = |path: &str| self.record.0.iter().any(|(one, _)| one == path);
        let folder = format!("{}/{FOLDER}/", self.kernels);
        if !has(&own) || !archives.iter().all(|name| has(&format!("{folder}{name}"))) {
            return Some(RECORD);
        }
        let others = with_feature(self.kernels, "");
        let is_reason = |path: &str| match path.strip_prefix(&folder) {
            Some(archive) => archive.split('.').next() == Some(family),
            None => path == own || !path.starts_with(&others),
        };
        self.changed.iter().copied().find(|path| is_reason(path))
    }
}
