//! [`CudaBuilder`].

use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{CudaArch, CudaBuilderError, convergence, ptx, rust_src};

/// What the PTX says about the Rust source it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugInfo {
    /// Nothing.
    None,
    /// Lines, for profilers (`.loc`).
    LineTables,
}

/// Builds one crate of kernels to PTX.
///
/// The setters are those of Rust-CUDA's `CudaBuilder` that still mean something without
/// its compiler backend.
#[derive(Clone, Debug)]
#[must_use = "nothing is built before `build`"]
pub struct CudaBuilder {
    crate_dir: PathBuf,
    arch: CudaArch,
    release: bool,
    debug: DebugInfo,
    fma_contraction: bool,
    fast_sqrt: bool,
    fast_div: bool,
    emit_llvm_ir: bool,
    install_rust_src: bool,
    copy_to: Option<PathBuf>,
    build_args: Vec<OsString>,
}

impl CudaBuilder {
    /// A builder for the crate in the folder `crate_dir`, with the defaults that each
    /// setter names.
    pub fn new(crate_dir: impl AsRef<Path>) -> Self {
        CudaBuilder {
            crate_dir: crate_dir.as_ref().to_owned(),
            arch: CudaArch::Sm80,
            release: true,
            debug: DebugInfo::None,
            fma_contraction: false,
            fast_sqrt: false,
            fast_div: false,
            emit_llvm_ir: false,
            install_rust_src: true,
            copy_to: None,
            build_args: Vec::new(),
        }
    }

    /// The architecture to build for. Default: `sm_80`.
    pub fn arch(mut self, arch: CudaArch) -> Self {
        self.arch = arch;
        self
    }

    /// Whether to build with cargo's release profile, rather than dev. Default: true. What the
    /// dev profile makes of a kernel is mostly refused: it checks for overflow, which can panic,
    /// and keeps variables in local memory.
    pub fn release(mut self, release: bool) -> Self {
        self.release = release;
        self
    }

    /// The debug information to put into the PTX. Default: none.
    pub fn debug(mut self, debug: DebugInfo) -> Self {
        self.debug = debug;
        self
    }

    /// [`debug`](Self::debug) with lines, or with nothing.
    pub fn generate_line_info(self, lines: bool) -> Self {
        self.debug(if lines { DebugInfo::LineTables } else { DebugInfo::None })
    }

    /// Whether `a * b + c` may become one `fma`, rounded once. Default: false, as Rust
    /// has it everywhere else; kernels ask for `cuda_std::fma`. (Rust-CUDA: true.)
    pub fn fma_contraction(mut self, contract: bool) -> Self {
        self.fma_contraction = contract;
        self
    }

    /// Whether square roots may be approximate (`sqrt.approx.f32`). Default: false.
    pub fn fast_sqrt(mut self, fast: bool) -> Self {
        self.fast_sqrt = fast;
        self
    }

    /// Whether divisions may be approximate (`div.full.f32`). Default: false.
    pub fn fast_div(mut self, fast: bool) -> Self {
        self.fast_div = fast;
        self
    }

    /// Whether to leave LLVM's IR beside the PTX, as `.ll`. Default: false.
    pub fn emit_llvm_ir(mut self, emit: bool) -> Self {
        self.emit_llvm_ir = emit;
        self
    }

    /// Whether to ask rustup for the component `rust-src` where the toolchain lacks it
    /// ([`rust_src`]). Default: true. The environment variable
    /// [`CUDA_BUILDER_INSTALL_RUST_SRC=0`](rust_src::INSTALL) forbids it, too.
    pub fn install_rust_src(mut self, install: bool) -> Self {
        self.install_rust_src = install;
        self
    }

    /// A further place to put the PTX.
    pub fn copy_to(mut self, path: impl AsRef<Path>) -> Self {
        self.copy_to = Some(path.as_ref().to_owned());
        self
    }

    /// Further arguments for `cargo rustc`, such as `--features`.
    pub fn build_args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.build_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Builds the crate, and returns the path of the PTX.
    ///
    /// # Errors
    /// See [`CudaBuilderError`]. The compiler's own messages go to stderr.
    pub fn build(self) -> Result<PathBuf, CudaBuilderError> {
        if !self.crate_dir.join("Cargo.toml").is_file() {
            return Err(CudaBuilderError::NoCrate(self.crate_dir));
        }
        let target_dir = target_dir(&self.crate_dir)?;
        rust_src::ensure(&self.crate_dir, self.install_rust_src)?;

        // An architecture's flags are part of every crate's, `core` included: a folder
        // each keeps one build from evicting the other.
        let device_dir = target_dir.join("cuda_builder").join(self.arch.name());
        fs::create_dir_all(&device_dir).map_err(CudaBuilderError::io(&device_dir))?;
        let raw = device_dir.join("rustc.ptx");
        self.compile(&device_dir, &raw)?;

        let text = fs::read_to_string(&raw).map_err(CudaBuilderError::io(&raw))?;
        let finished = ptx::finish(&text)?;
        let path = device_dir.join("kernels.ptx");
        for path in [Some(&path), self.copy_to.as_ref()].into_iter().flatten() {
            fs::write(path, &finished).map_err(CudaBuilderError::io(path))?;
        }
        Ok(path)
    }

    /// Runs cargo, which leaves rustc's PTX in `output`.
    fn compile(&self, device_dir: &Path, output: &Path) -> Result<(), CudaBuilderError> {
        let mut cargo = cargo();
        cargo.current_dir(&self.crate_dir);
        cargo.args(["rustc", "--lib", "--crate-type=cdylib", "--target=nvptx64-nvidia-cuda"]);
        cargo.args(["-Zbuild-std=core", if self.release { "--release" } else { "--profile=dev" }]);
        cargo.args(&self.build_args);
        cargo.arg("--").arg(emit("asm", output));
        if self.emit_llvm_ir {
            cargo.arg(emit("llvm-ir", &output.with_file_name("kernels.ll")));
        }

        let flags = self.rustflags(&noop_linker(device_dir)?, &convergence_flags(device_dir)?);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        cargo.env("CARGO_TARGET_DIR", device_dir);
        // `-Zbuild-std` and the NVPTX features are unstable. This lets the stable compiler
        // use them, for this build alone.
        cargo.env("RUSTC_BOOTSTRAP", "1");
        for profile in ["RELEASE", "DEV"] {
            // One unit of optimisation with everything in it: `core` inlines into the
            // kernels, and the PTX is one file.
            cargo.env(format!("CARGO_PROFILE_{profile}_LTO"), "fat");
            cargo.env(format!("CARGO_PROFILE_{profile}_CODEGEN_UNITS"), "1");
            cargo.env(format!("CARGO_PROFILE_{profile}_PANIC"), "abort");
            cargo.env(format!("CARGO_PROFILE_{profile}_INCREMENTAL"), "false");
        }
        cargo.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3");

        let status = cargo.stdout(Stdio::null()).status();
        let status =
            status.map_err(|source| CudaBuilderError::Run { program: "cargo".into(), source })?;
        if status.success() {
            Ok(())
        } else {
            let (crate_dir, arch) = (self.crate_dir.clone(), self.arch.name());
            Err(CudaBuilderError::Compile { crate_dir, arch })
        }
    }

    fn rustflags(&self, linker: &Path, convergence: &Path) -> Vec<String> {
        let mut flags = vec![
            format!("-Ctarget-cpu={}", self.arch),
            format!("-Clinker={}", linker.display()),
            // LLVM gives up on unrolling the loops over a big register tile, which then
            // lives in local memory.
            "-Cllvm-args=-unroll-threshold=20000".into(),
            format!("@{}", convergence.display()),
        ];
        let mut llvm_option = |on: bool, option: &str| {
            if on {
                flags.push(format!("-Cllvm-args={option}"));
            }
        };
        llvm_option(self.fma_contraction, "-nvptx-fma-level=1");
        llvm_option(self.fast_sqrt, "-nvptx-prec-sqrtf32=0");
        llvm_option(self.fast_div, "-nvptx-prec-divf32=1");
        if self.debug == DebugInfo::LineTables {
            flags.push("-Cdebuginfo=line-tables-only".into());
        }
        flags
    }
}

/// `--emit=kind=path`.
fn emit(kind: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(format!("--emit={kind}="));
    argument.push(path);
    argument
}

/// The cargo that runs us, or the one on the PATH, free of what an outer cargo set for its
/// own build.
fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let of_outer_build = ["CARGO_PROFILE_", "CARGO_BUILD_", "CARGO_FEATURE_", "CARGO_CFG_"]
            .iter()
            .any(|prefix| text.starts_with(prefix));
        let wrapper_or_flags = [
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTFLAGS",
            "CARGO_INCREMENTAL",
            "CARGO_MAKEFLAGS",
            "TARGET",
        ]
        .contains(&&*text);
        if of_outer_build || wrapper_or_flags {
            cargo.env_remove(&name);
        }
    }
    cargo
}

/// A linker that does nothing. rustc has written the PTX before it links, and the linker
/// that the target asks for, `llvm-bitcode-linker`, is not part of the stable toolchain.
fn noop_linker(device_dir: &Path) -> Result<PathBuf, CudaBuilderError> {
    let (name, script) = if cfg!(windows) {
        ("no-linker.bat", "@exit /b 0\r\n")
    } else {
        ("no-linker.sh", "#!/bin/sh\nexit 0\n")
    };
    let path = device_dir.join(name);
    write_once(&path, script)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .map_err(CudaBuilderError::io(&path))?;
    }
    Ok(path)
}

/// A file of arguments for rustc, which are too many for a command line that people may see. cargo
/// knows the file by its name alone, so that other arguments need another name.
fn convergence_flags(device_dir: &Path) -> Result<PathBuf, CudaBuilderError> {
    let flags: Vec<String> = convergence::rustflags().collect();
    let text = flags.join("\n");
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let path = device_dir.join(format!("convergence-{:016x}.args", hasher.finish()));
    write_once(&path, &text)?;
    Ok(path)
}

/// Writes a file unless it is there: everything that was built with it is stale when it changes.
fn write_once(path: &Path, text: &str) -> Result<(), CudaBuilderError> {
    if fs::read_to_string(path).ok().as_deref() != Some(text) {
        fs::write(path, text).map_err(CudaBuilderError::io(path))?;
    }
    Ok(())
}

/// The target folder of the workspace that the crate in `crate_dir` belongs to.
///
/// # Errors
/// If cargo cannot be run, or finds no workspace.
pub fn target_dir(crate_dir: &Path) -> Result<PathBuf, CudaBuilderError> {
    if let Some(dir) = env::var_os("CARGO_TARGET_DIR") {
        return std::path::absolute(&dir).map_err(CudaBuilderError::io(Path::new(&dir)));
    }
    let mut locate = cargo();
    locate.current_dir(crate_dir);
    locate.args(["locate-project", "--workspace", "--message-format=plain"]);
    let output = locate
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| CudaBuilderError::Run { program: "cargo".into(), source })?;
    let manifest = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end());
    match manifest.parent() {
        Some(root) if output.status.success() => Ok(root.join("target")),
        _ => Err(CudaBuilderError::NoCrate(crate_dir.to_owned())),
    }
}
