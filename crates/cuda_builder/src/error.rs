//! What can go wrong, and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use ptx_syntax::source::Place;

/// Why there is no PTX.
#[derive(thiserror::Error)]
pub enum CudaBuilderError {
    /// The folder holds no crate.
    #[error("there is no crate of kernels in `{}`: no Cargo.toml found there", .0.display())]
    NoCrate(PathBuf),

    /// `core` cannot be built for the GPU, because its sources are not there.
    #[error(
        "the sources of Rust {version}'s `core` are needed to build kernels and are not \
         installed{}; type `rustup component add rust-src{}`, or without rustup install your \
         distribution's package of them",
        reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default(),
        toolchain.as_ref().map(|name| format!(" --toolchain {name}")).unwrap_or_default()
    )]
    NoRustSrc {
        /// The version of the toolchain.
        version: String,
        /// Its name, if it is one of rustup's.
        toolchain: Option<String>,
        /// Why they could not be installed, if that was tried.
        reason: Option<String>,
    },

    /// A crate uses a library that is not built for a GPU.
    #[error(
        "`{needed_by}` uses `{library}`, which is not built for a GPU: {}; `cargo tree -i \
         {needed_by} --target nvptx64-nvidia-cuda` says which dependency brings it",
        help(library)
    )]
    NeedsLibrary {
        /// The library: `std`, or `alloc`.
        library: String,
        /// The crate.
        needed_by: String,
    },

    /// Packages that the sources of Rust's library need are not there, and may not be fetched.
    #[error(
        "`core` is built from Rust's sources, which need the package `{package}`, and that is not \
         {}",
        match vendored {
            Some(folder) => format!(
                "in `{0}`; type `RUSTC_BOOTSTRAP=1 cargo vendor --sync {1} {0}` in `{2}`, where \
                 there is a network",
                folder.display(), manifest.display(), crate_dir.display(),
            ),
            None => format!(
                "fetched; type `RUSTC_BOOTSTRAP=1 cargo fetch --locked --manifest-path {}` where \
                 there is a network", manifest.display(),
            ),
        }
    )]
    NotFetched {
        /// The package.
        package: String,
        /// The manifest of Rust's library.
        manifest: PathBuf,
        /// The folder that stands for the registry (`cargo vendor`), if there is one.
        vendored: Option<PathBuf>,
        /// The crate of kernels.
        crate_dir: PathBuf,
    },

    /// cargo or rustc refused the crate; their messages are on stderr.
    #[error("building the kernels of `{}` for {arch} failed; the compiler's messages say why", .crate_dir.display())]
    Compile {
        /// The crate of kernels.
        crate_dir: PathBuf,
        /// The architecture.
        arch: &'static str,
    },

    /// The compiler's backend for GPUs does not have what a kernel does.
    #[error(
        "the compiler has no code for {what}{}{}; {help}",
        function.as_ref().map(|name| format!(", in `{name}`")).unwrap_or_default(),
        place.as_ref().map(|place| format!(", at {place}")).unwrap_or_default()
    )]
    Unsupported {
        /// What it does not have.
        what: String,
        /// The function it is in.
        function: Option<String>,
        /// Where it is.
        place: Option<Place>,
        /// What to do.
        help: String,
    },

    /// A program that is needed could not be started.
    #[error("`{program}` could not be run: {source}")]
    Run {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },

    /// The PTX has something that a kernel must not have.
    #[error(transparent)]
    Refused(#[from] crate::ptx::Refused),

    /// A file could not be read or written.
    #[error("`{}`: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl fmt::Debug for CudaBuilderError {
    /// The sentence: `unwrap` in a build script shows this to whoever builds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The advice for a missing library.
fn help(library: &str) -> &'static str {
    match library {
        "alloc" => "`CudaBuilder::alloc` builds it, for kernels with an allocator",
        _ => {
            "turn off its feature `std` (`default-features = false` in Cargo.toml), or use a crate \
             that is `no_std`"
        }
    }
}

impl CudaBuilderError {
    /// For `map_err` on operations on `path`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> CudaBuilderError + '_ {
        move |source| CudaBuilderError::Io { path: path.to_owned(), source }
    }
}
