//! Building crates of kernels.

use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use cuda_builder::{CudaArch, CudaBuilder, CudaBuilderError};

/// cargo builds in one folder per architecture: one build at a time.
static BUILDING: Mutex<()> = Mutex::new(());

#[allow(dead_code, reason = "each test takes what it needs")]
pub fn fixture() -> CudaBuilder {
    CudaBuilder::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture"))
}

#[allow(dead_code, reason = "each test takes what it needs")]
pub fn api() -> CudaBuilder {
    CudaBuilder::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api"))
}

/// The PTX of the crate `name` for an architecture; none where it cannot be built. A machine with a
/// GPU and without Rust takes PTX that was built elsewhere: `KERNELS_PTX` names a folder that is as
/// `target/cuda_builder` there.
#[allow(dead_code, reason = "each test takes what it needs")]
pub fn ptx(name: &str, builder: CudaBuilder, arch: CudaArch) -> Option<String> {
    match std::env::var_os("KERNELS_PTX") {
        Some(folder) => {
            let file = Path::new(&folder).join(format!("{arch}/{name}/kernels.ptx"));
            let text = std::fs::read_to_string(&file);
            Some(text.unwrap_or_else(|error| panic!("{}: {error}", file.display())))
        }
        None => build(builder.arch(arch)).map(Result::unwrap),
    }
}

/// Builds, and returns the text; `None` where `core` has no sources.
pub fn build(builder: CudaBuilder) -> Option<Result<String, CudaBuilderError>> {
    let _one = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    match builder.build() {
        Err(error @ CudaBuilderError::NoRustSrc { .. }) => {
            let required = std::env::var_os("REQUIRE_RUST_SRC").is_some_and(|value| value == "1");
            assert!(!required, "REQUIRE_RUST_SRC is set and {error}");
            // Past the test harness, which swallows what a test prints if it passes.
            let thread = std::thread::current();
            let name = thread.name().filter(|name| *name != "main").unwrap_or("this test");
            let line =
                format!("skipped: {name}: {error} (REQUIRE_RUST_SRC=1 makes this a failure)\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            None
        }
        result => Some(result.map(|path| std::fs::read_to_string(path).unwrap())),
    }
}

/// Has the assembler take PTX, where `$PTXAS` names one.
#[allow(dead_code, reason = "each test takes what it needs")]
pub fn assemble(text: &str, arch: CudaArch) {
    let Some(ptxas) = std::env::var_os("PTXAS") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernels.ptx");
    std::fs::write(&path, text).unwrap();
    let mut assemble = std::process::Command::new(ptxas);
    assemble.arg(format!("-arch={arch}")).arg("-o").arg(path.with_extension("cubin"));
    let output = assemble.arg(&path).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arch}: {stderr}\n{text}");
}
