//! Programs: of Rust, and of a CUDA toolkit.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host_system::program::{Failure, ask, version};
use host_system::toolkit;

use super::finding::Finding;

/// No program takes that long to say which version it is.
const LIMIT: Duration = Duration::from_secs(5);

/// What to do for a toolkit's program.
const TOOLKIT: &str = "install NVIDIA's CUDA toolkit, or set CUDA_PATH to its folder";
/// And for its assembler.
const ASSEMBLER: &str =
    "install the CUDA toolkit, or set PTXAS to a ptxas, such as that of the wheel nvidia-cuda-nvcc";

/// Programs of a toolkit.
const PTXAS: &str = "ptxas";
const PROGRAMS: [&str; 4] = [PTXAS, "cuobjdump", "compute-sanitizer", "ncu"];

/// All of them.
pub fn findings() -> Vec<Finding> {
    rust().into_iter().chain(PROGRAMS.map(program)).collect()
}

/// The first of the places where a program may be that has one.
fn program(name: &str) -> Finding {
    // What `xtask` takes first.
    let beside = env::var_os("PTXAS").map(PathBuf::from);
    let chosen = beside.filter(|_| [PTXAS, "cuobjdump"].contains(&name));
    let chosen = chosen.map(|path| if name == PTXAS { path } else { path.with_file_name(name) });
    for path in chosen.into_iter().chain(toolkit::programs(name)) {
        let place =
            if path == Path::new(name) { String::new() } else { format!(", {}", path.display()) };
        match ask(&path, &["--version"], LIMIT) {
            Ok(text) => {
                let version = version(&text).unwrap_or("of an unknown version");
                return Finding::ok(name, format!("{version}{place}"));
            }
            Err(Failure::NotFound) => {}
            Err(failure) => {
                let remedy = "reinstall NVIDIA's CUDA toolkit";
                return Finding::broken(name, format!("it {failure}{place}"), remedy);
            }
        }
    }
    let remedy = if name == PTXAS { ASSEMBLER } else { TOOLKIT };
    Finding::missing(name, "not found", remedy)
}

/// The compiler, and the sources of its library.
fn rust() -> Vec<Finding> {
    let rustc = PathBuf::from("rustc");
    let needed = env!("CARGO_PKG_RUST_VERSION");
    let compiler = match ask(&rustc, &["--version"], LIMIT) {
        Ok(text) => match version(&text) {
            Some(found) if numbers(found) >= numbers(needed) => Finding::ok("rustc", found),
            Some(found) => {
                let value = format!("{found}, and {needed} is needed");
                Finding::broken("rustc", value, "rustup update stable")
            }
            None => Finding::broken("rustc", "it does not say its version", "rustup update stable"),
        },
        Err(Failure::NotFound) => {
            let remedy = "install Rust from https://rustup.rs";
            Finding::missing("rustc", "not found", remedy)
        }
        Err(failure) => Finding::broken("rustc", format!("it {failure}"), "rustup update stable"),
    };
    let sysroot = ask(&rustc, &["--print", "sysroot"], LIMIT).ok();
    let sources =
        sysroot.map(|path| Path::new(path.trim()).join("lib/rustlib/src/rust/library/core"));
    let sources = match sources.filter(|sources| sources.is_dir()) {
        Some(_) => Finding::ok("rust-src", "installed"),
        None => Finding::missing("rust-src", "not installed", "rustup component add rust-src"),
    };
    vec![compiler, sources]
}

/// A version, to be compared.
fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(numbers("1.100.0") >= numbers("1.95"));
        assert!(numbers("1.95.0") >= numbers("1.95"));
        assert!(numbers("1.9.3") < numbers("1.95"));
    }
}
