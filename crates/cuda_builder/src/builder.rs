//! [`CudaBuilder`].

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use ptx_syntax::source::{with_callers, without_places};

use crate::cargo::{argument_file, cargo, emit, noop_linker, target_dir, workspace_dir};
use crate::depend::{crate_attributes, package_name};
use crate::rerun::{Outputs, rerun_if_changed};
use crate::rules::{LocalMemory, Panic, Rules};
use crate::run::{run, say};
use crate::{CudaArch, CudaBuilderError, diagnose, ptx, rust_src};

/// What the PTX says about the Rust source it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugInfo {
    /// Nothing.
    None,
    /// Lines, for profilers and for whoever reads what a launch did wrong (`.loc`).
    LineTables,
}

impl Default for DebugInfo {
    /// Lines, where a build script is run for a debug build.
    fn default() -> Self {
        match env::var_os("PROFILE").is_some_and(|profile| profile == "debug") {
            true => DebugInfo::LineTables,
            false => DebugInfo::None,
        }
    }
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
    jump_tables: bool,
    alloc: bool,
    separate_const_offset: bool,
    unroll_threshold: Option<u32>,
    rules: Rules,
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
            debug: DebugInfo::default(),
            fma_contraction: false,
            fast_sqrt: false,
            fast_div: false,
            jump_tables: false,
            alloc: false,
            separate_const_offset: false,
            unroll_threshold: None,
            rules: Rules::default(),
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

    /// Whether to build with cargo's release profile, rather than dev. Default: true. The dev
    /// profile checks for overflow, and keeps variables in local memory.
    pub fn release(mut self, release: bool) -> Self {
        self.release = release;
        self
    }

    /// The debug information to put into the PTX, which changes no instruction. Default: lines, if
    /// a build script builds for the host's debug profile, else none.
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

    /// Whether a `match` may become a table of labels (`brx.idx`). Default: false. A table costs
    /// what divergence costs, and hides the ways of the branch from the optimiser.
    pub fn jump_tables(mut self, tables: bool) -> Self {
        self.jump_tables = tables;
        self
    }

    /// Whether to build the crate `alloc` as well. Default: false.
    ///
    /// Kernels that use it need an allocator, such as the feature `alloc` of `cuda_std`.
    pub fn alloc(mut self, alloc: bool) -> Self {
        self.alloc = alloc;
        self
    }

    /// Whether LLVM's pass `separate-const-offset-from-gep` runs. Default: false.
    ///
    /// It makes addresses cheaper, but Rust 1.95's pass gives wrong code. In the offset of a
    /// pointer it replaces `-(!x as isize)` by `-(x as isize) - 1`, and `[T]::sort` fails. Use it
    /// for kernels whose every instruction counts and whose results are tested.
    pub fn separate_const_offset(mut self, separate: bool) -> Self {
        self.separate_const_offset = separate;
        self
    }

    /// How large a loop may become when LLVM unrolls it (`-unroll-threshold`). Default: LLVM's.
    /// A kernel that keeps a large array in registers needs a large threshold: a loop over it that
    /// is not unrolled keeps it in local memory.
    pub fn unroll_threshold(mut self, threshold: u32) -> Self {
        self.unroll_threshold = Some(threshold);
        self
    }

    /// Whether kernels may panic. Default: they may.
    pub fn panic(mut self, panic: Panic) -> Self {
        self.rules.panic = panic;
        self
    }

    /// Whether kernels may keep variables in local memory. Default: they may.
    pub fn local_memory(mut self, local_memory: LocalMemory) -> Self {
        self.rules.local_memory = local_memory;
        self
    }

    /// For kernels that keep everything in registers: refuses panics and local memory, and unrolls
    /// loops over large arrays, which would be kept there otherwise.
    pub fn strict(self) -> Self {
        self.panic(Panic::Refuse).local_memory(LocalMemory::Refuse).unroll_threshold(20_000)
    }

    /// Whether to leave LLVM's IR beside the PTX, as `.ll`. Default: false.
    pub fn emit_llvm_ir(mut self, emit: bool) -> Self {
        self.emit_llvm_ir = emit;
        self
    }

    /// Whether to ask rustup for `rust-src` if the toolchain lacks it. Default: true.
    ///
    /// The environment variable [`CUDA_BUILDER_INSTALL_RUST_SRC=0`](rust_src::INSTALL) also forbids
    /// it.
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
    /// Cargo runs the build script again after a change of one of these:
    ///
    /// - a source of the crate, or of one that it depends on by path
    /// - an environment variable that the sources name
    /// - a manifest, lock file or configuration that cargo reads for them
    ///
    /// # Errors
    /// See [`CudaBuilderError`]. Errors also go to stderr, before the compiler's own messages.
    pub fn build(self) -> Result<PathBuf, CudaBuilderError> {
        self.build_text().map(|(path, _)| path)
    }

    /// As [`build`](Self::build), with the PTX itself: another build may replace it in its file.
    pub(crate) fn build_text(self) -> Result<(PathBuf, String), CudaBuilderError> {
        if !self.crate_dir.join("Cargo.toml").is_file() {
            return Err(CudaBuilderError::NoCrate(self.crate_dir));
        }
        let target_dir = target_dir(&self.crate_dir)?;
        let library = rust_src::ensure(&self.crate_dir, self.install_rust_src)?;

        let device_dir = target_dir.join("cuda_builder").join(self.folder());
        // Crates of one workspace are built in one folder, and share what they depend on.
        let own_dir = device_dir.join(self.own_folder());
        fs::create_dir_all(&own_dir).map_err(CudaBuilderError::io(&own_dir))?;
        // cargo's own lock ends before the PTX is read.
        let lock = own_dir.join("lock");
        let lock = File::create(&lock).map_err(CudaBuilderError::io(&lock))?;
        // Where a folder cannot be locked, two builds at once may read each other's PTX.
        let _ = lock.lock();
        let raw = own_dir.join("rustc.ptx");
        self.compile(&device_dir, &raw, &library)?;
        let (device, host) = (&self.output_dir(&device_dir), &device_dir.join(self.profile()));
        rerun_if_changed(&self.crate_dir, &Outputs { device, host }, &own_dir);

        let text = fs::read_to_string(&raw).map_err(CudaBuilderError::io(&raw))?;
        let text = ptx::restore_orderings(&text, |file| fs::read_to_string(file).ok());
        let finished = match self.debug {
            DebugInfo::None => without_places(&ptx::finish(&text, self.rules)?),
            DebugInfo::LineTables => {
                let workspace = workspace_dir(&self.crate_dir)?;
                let text = with_callers(&text, |file| source_file(file, &workspace, &library));
                ptx::finish(&text, self.rules)?
            }
        };
        let path = own_dir.join("kernels.ptx");
        for path in [Some(&path), self.copy_to.as_ref()].into_iter().flatten() {
            fs::write(path, &finished).map_err(CudaBuilderError::io(path))?;
        }
        Ok((path, finished))
    }

    /// The folder to build in, one for each set of flags: builds must not evict each other.
    fn folder(&self) -> String {
        let flags = self.code_flags();
        if flags == CudaBuilder::new("").arch(self.arch).code_flags() {
            return self.arch.name().to_owned();
        }
        let mut hasher = DefaultHasher::new();
        flags.hash(&mut hasher);
        format!("{}-{:016x}", self.arch, hasher.finish())
    }

    /// The folder for the PTX, one for each way to build the crate.
    ///
    /// For a way that it has built before, cargo runs no rustc, so the PTX must still be there.
    fn own_folder(&self) -> String {
        let CudaBuilder { crate_dir, release, debug, alloc, build_args, emit_llvm_ir, .. } = self;
        let crate_dir = crate_dir.canonicalize().unwrap_or_else(|_| crate_dir.clone());
        let mut hasher = DefaultHasher::new();
        let lines = *debug == DebugInfo::LineTables;
        (crate_dir, release, lines, alloc, build_args, emit_llvm_ir).hash(&mut hasher);
        format!("{}-{:016x}", package_name(&self.crate_dir), hasher.finish())
    }

    /// Where cargo puts what it builds.
    fn output_dir(&self, device_dir: &Path) -> PathBuf {
        device_dir.join(TARGET).join(self.profile())
    }

    /// The folder that cargo has for the profile.
    fn profile(&self) -> &'static str {
        if self.release { "release" } else { "debug" }
    }

    /// Runs cargo, which leaves rustc's PTX in `output`.
    fn compile(
        &self,
        device_dir: &Path,
        output: &Path,
        library: &Path,
    ) -> Result<(), CudaBuilderError> {
        let run_error = |source| CudaBuilderError::Run { program: "cargo".into(), source };
        let mut cargo = self.command(device_dir)?;
        cargo.arg(emit("asm", output));
        if self.emit_llvm_ir {
            cargo.arg(emit("llvm-ir", &output.with_file_name("kernels.ll")));
        }
        let ended = run(&mut cargo).map_err(run_error)?;
        if ended.success {
            return Ok(());
        }
        let cause = match diagnose::llvm_error(&ended.errors) {
            Some(message) => {
                // rustc says where in the source, but its LLVM does not: once more, to look for it.
                let mut again = self.command(device_dir)?;
                again.arg(emit("asm", output)).arg("--emit=llvm-ir");
                again.output().map_err(run_error)?;
                let ir = diagnose::abandoned_ir(&self.output_dir(device_dir).join("deps"));
                diagnose::unsupported(message, &ir)
            }
            None => diagnose::cause(&ended.errors, &self.crate_dir, library).unwrap_or_else(|| {
                let (crate_dir, arch) = (self.crate_dir.clone(), self.arch.name());
                CudaBuilderError::Compile { crate_dir, arch }
            }),
        };
        say(&cause.to_string(), &ended.errors);
        Err(cause)
    }

    /// The command that compiles the crate, without its outputs.
    fn command(&self, device_dir: &Path) -> Result<Command, CudaBuilderError> {
        let mut cargo = cargo();
        cargo.current_dir(&self.crate_dir);
        cargo.args(["rustc", "--lib", "--crate-type=cdylib"]).arg(format!("--target={TARGET}"));
        cargo.arg(if self.alloc { "-Zbuild-std=core,alloc" } else { "-Zbuild-std=core" });
        cargo.arg(if self.release { "--release" } else { "--profile=dev" });
        cargo.args(&self.build_args);
        cargo.arg("--").args(crate_attributes(&self.crate_dir));
        if self.debug == DebugInfo::LineTables {
            // With each `.loc` a comment, which names the calls that were inlined. PTX has a
            // directive for them, which LLVM 22 does not write.
            cargo.arg("-Zverbose-asm");
        }

        let mut flags = self.code_flags();
        flags.push(format!("-Clinker={}", noop_linker(device_dir)?.display()));
        flags.push(format!("@{}", argument_file(device_dir, self.arch)?.display()));
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        cargo.env("CARGO_TARGET_DIR", device_dir);
        // Not elsewhere, as a configuration may say.
        cargo.env("CARGO_BUILD_BUILD_DIR", device_dir);
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
        Ok(cargo)
    }

    /// The flags that decide about the code.
    fn code_flags(&self) -> Vec<String> {
        let mut flags = vec![
            format!("-Ctarget-cpu={}", self.arch),
            format!("-Cjump-tables={}", if self.jump_tables { "yes" } else { "no" }),
            // The backend has no library to call for these.
            "-Cllvm-args=-expand-fp-convert-bits=64".into(),
            // Lines tell the ordering of an atomic instruction, and the place of a refused one.
            "-Cdebuginfo=line-directives-only".into(),
        ];
        let mut llvm_option = |on: bool, option: &str| {
            if on {
                flags.push(format!("-Cllvm-args={option}"));
            }
        };
        if let Some(threshold) = self.unroll_threshold {
            llvm_option(true, &format!("-unroll-threshold={threshold}"));
        }
        llvm_option(!self.separate_const_offset, "-disable-separate-const-offset-from-gep");
        llvm_option(self.fma_contraction, "-nvptx-fma-level=1");
        llvm_option(self.fast_sqrt, "-nvptx-prec-sqrtf32=0");
        llvm_option(self.fast_div, "-nvptx-prec-divf32=1");
        flags
    }
}

/// A source that rustc names relative to where it compiled a crate: the folder of the workspace, or
/// that of a crate of Rust's library.
fn source_file(file: &str, workspace: &Path, library: &Path) -> Option<String> {
    let crates = ["core", "alloc"].map(|name| library.join(name));
    let mut folders = [workspace].into_iter().chain(crates.iter().map(PathBuf::as_path));
    let path = folders.find_map(|folder| Some(folder.join(file)).filter(|path| path.is_file()))?;
    Some(path.display().to_string())
}

/// The target that rustc knows GPUs by.
const TARGET: &str = "nvptx64-nvidia-cuda";
