//! Building the fixture.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use cuda_builder::{CudaBuilder, CudaBuilderError};

/// cargo builds in one folder per architecture: one build at a time.
static BUILDING: Mutex<()> = Mutex::new(());

pub fn fixture() -> CudaBuilder {
    CudaBuilder::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture"))
}

/// Builds, and returns the text; `None` where `core` has no sources.
pub fn build(builder: CudaBuilder) -> Option<Result<String, CudaBuilderError>> {
    let _one = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    match builder.build() {
        Err(error @ CudaBuilderError::NoRustSrc { .. }) => {
            let required = std::env::var_os("REQUIRE_RUST_SRC").is_some_and(|value| value == "1");
            assert!(!required, "REQUIRE_RUST_SRC is set and {error}");
            eprintln!("skipped: {error}");
            None
        }
        result => Some(result.map(|path| std::fs::read_to_string(path).unwrap())),
    }
}
