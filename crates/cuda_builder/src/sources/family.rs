//! Kernels whose PTX is committed, in families: features of their crate, each built by itself.

use std::fs;
use std::path::{Path, PathBuf};

use ptx_syntax::archive::{Archive, pack};

use super::{FOLDER, SourceDigests, with_feature};
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
    /// The name of the archive of these kernels.
    pub fn archive_name(&self) -> String {
        format!("{}.{}.ptx.xz", self.name, self.arch)
    }

    /// Where that archive is committed.
    pub fn committed(&self) -> PathBuf {
        self.crate_dir.join(FOLDER).join(self.archive_name())
    }

    /// Builds the kernels: without places in the source, in registers alone, and with the cheaper
    /// addresses of LLVM's pass. No offset of theirs is the complement of an index, which the pass
    /// gets wrong, and tests compare every kernel's results.
    ///
    /// # Errors
    /// As [`CudaBuilder::build`], or if the PTX cannot be read.
    pub fn build(&self, install_rust_src: bool) -> Result<String, CudaBuilderError> {
        let ptx = CudaBuilder::new(self.crate_dir)
            .arch(self.arch)
            .strict()
            .separate_const_offset(true)
            .debug(DebugInfo::None)
            .install_rust_src(install_rust_src)
            .build_args(["--no-default-features", "--features", self.name])
            .build()?;
        fs::read_to_string(&ptx).map_err(CudaBuilderError::io(&ptx))
    }

    /// An archive of the kernels of a PTX text. Those of the committed archive that are the same keep
    /// their bytes.
    ///
    /// # Errors
    /// None that writing to memory can have.
    pub fn archive(&self, text: &str) -> Result<Vec<u8>, CudaBuilderError> {
        let committed = self.committed();
        let bytes = fs::read(&committed).unwrap_or_default();
        let before = Archive::read(&bytes).unwrap_or_default();
        pack(text, &before).map_err(CudaBuilderError::io(&committed))
    }
}

/// What of a record no longer has its digest.
#[derive(Clone, Debug)]
pub struct Stale<'a> {
    /// The path of the crate of kernels.
    kernels: &'a str,
    changed: Vec<&'a str>,
}

impl<'a> Stale<'a> {
    /// What changed below `root` since the record was written. `kernels` is the path of a crate of
    /// kernels.
    pub fn of(record: &'a SourceDigests, root: &Path, kernels: &'a str) -> Self {
        Stale { kernels, changed: record.changed(root) }
    }

    /// A path whose change makes the PTX of a family stale, if there is one: what all families share,
    /// the family's own items, or an archive of its kernels.
    pub fn reason(&self, family: &str) -> Option<&'a str> {
        let own = with_feature(self.kernels, family);
        let others = with_feature(self.kernels, "");
        let folder = format!("{}/{FOLDER}/", self.kernels);
        let is_reason = |path: &str| match path.strip_prefix(&folder) {
            Some(archive) => archive.split('.').next() == Some(family),
            None => path == own || !path.starts_with(&others),
        };
        self.changed.iter().copied().find(|path| is_reason(path))
    }
}
