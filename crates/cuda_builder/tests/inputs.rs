//! What a build depends on, and what is said where it fails: in a folder of its own, by this very
//! program, run again as a build script is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use cuda_builder::CudaBuilder;

mod common;

/// What says to this program which crate to build.
const BUILDS: &str = "CUDA_BUILDER_TEST_BUILDS";

/// Stores 7000 and `TILE`, what `helper` says, and 9001 if there are debug assertions.
const KERNELS: &str = "\
#![no_std]
const TILE: u32 = match option_env!(\"TILE\") { Some(tile) => tile.as_bytes()[0] as u32 - 48, None => 0 };
#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn tell(out: *mut u32) {
    unsafe {
        *out = 7000 + TILE;
        *out.add(1) = helper::factor();
        *out.add(2) = 9000 + cfg!(debug_assertions) as u32;
    }
}
#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
";
const HELPER: &str = "\
#![no_std]
pub fn factor() -> u32 { if cfg!(feature = \"double\") { 8002 } else { 8001 } }
";
const USES_STD: &str = "pub fn factor() -> u32 { std::env::args().count() as u32 }\n";

/// All build in one folder.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A workspace of kernels and a helper, below the target folder.
struct Workspace(PathBuf);

impl Workspace {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let workspace = Workspace(folder);
        let _ = fs::remove_dir_all(workspace.0.join(".cargo"));
        // All share a target folder, where cargo tells packages of one name apart by their
        // versions.
        let version = name.replace('_', "-");
        let package = format!("version = \"0.1.0-{version}\"\nedition = \"2024\"\n");
        let kernels = format!(
            "[package]\nname = \"kernels\"\n{package}[dependencies]\nhelper.workspace = true\n"
        );
        let helper = format!("[package]\nname = \"helper\"\n{package}[features]\ndouble = []\n");
        workspace.write("kernels/Cargo.toml", &kernels);
        workspace.write("kernels/src/lib.rs", KERNELS);
        workspace.write("helper/Cargo.toml", &helper);
        workspace.write("helper/src/lib.rs", HELPER);
        workspace.manifest("", "");
        workspace
    }

    /// Writes a file, unless that is what it has.
    fn write(&self, file: &str, text: &str) {
        let file = self.0.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        if fs::read_to_string(&file).ok().as_deref() != Some(text) {
            fs::write(file, text).unwrap();
        }
    }

    fn manifest(&self, feature: &str, profile: &str) {
        let text = format!(
            "[workspace]\nresolver = \"3\"\nmembers = [\"kernels\", \"helper\"]\n[workspace.dependencies]\n\
             helper = {{ path = \"helper\", features = [{feature}] }}\n{profile}"
        );
        self.write("Cargo.toml", &text);
    }

    /// Builds as a build script does; none where there are no sources of `core`.
    fn build(&self, variables: &[(&str, &str)]) -> Option<Output> {
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["builds_as_it_is_told", "--exact", "--nocapture"]);
        again.env(BUILDS, self.0.join("kernels")).env_remove("TILE");
        // The target folder of all, where `core` is compiled already.
        again.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap());
        for name in ["OUT_DIR", "HOST", "TARGET"] {
            again.env(name, "of a build script");
        }
        let output = again.envs(variables.iter().copied()).output().unwrap();
        if String::from_utf8_lossy(&output.stderr).contains("skipped: ") {
            return None;
        }
        Some(output)
    }

    /// The numbers in the PTX, and what is said to cargo.
    fn numbers(&self, variables: &[(&str, &str)]) -> Option<([u32; 3], String)> {
        let output = self.build(variables)?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let stdout = String::from_utf8(output.stdout).unwrap();
        let path = stdout.lines().find_map(|line| line.strip_prefix("built ")).unwrap();
        let text = fs::read_to_string(path).unwrap();
        let number = |thousands: u32| {
            let mut all = thousands * 1000..thousands * 1000 + 10;
            all.find(|number| text.contains(&format!(", {number};"))).unwrap_or_default()
        };
        Some(([7, 8, 9].map(number), stdout))
    }
}

/// No test of its own: [`Workspace::build`] runs it.
#[test]
fn builds_as_it_is_told() {
    let Some(crate_dir) = std::env::var_os(BUILDS) else { return };
    let builder =
        CudaBuilder::new(&crate_dir).copy_to(Path::new(&crate_dir).join("../kernels.ptx"));
    match common::build(builder) {
        None => {}
        Some(Ok(_)) => println!("built {}", Path::new(&crate_dir).join("../kernels.ptx").display()),
        Some(Err(error)) => panic!("{error}"),
    }
}

#[test]
fn the_ptx_is_that_of_what_cargo_reads_now() {
    let workspace = Workspace::new("inputs");
    let numbers =
        |variables: &[(&str, &str)]| workspace.numbers(variables).map(|(numbers, _)| numbers);
    let Some(first) = numbers(&[]) else { return };
    assert_eq!(first, [7000, 8001, 9000]);
    assert_eq!(numbers(&[("TILE", "4")]).unwrap(), [7004, 8001, 9000]);
    // Back again: what cargo has built before.
    assert_eq!(numbers(&[]).unwrap(), first);
    workspace.write(
        ".cargo/config.toml",
        "[env]\nTILE = \"6\"\n[profile.release.package.kernels]\ndebug-assertions = true\n",
    );
    assert_eq!(numbers(&[]).unwrap(), [7006, 8001, 9001]);
    fs::remove_dir_all(workspace.0.join(".cargo")).unwrap();
    assert_eq!(numbers(&[]).unwrap(), first);
    workspace.manifest("\"double\"", "");
    assert_eq!(numbers(&[]).unwrap(), [7000, 8002, 9000]);
    workspace
        .manifest("\"double\"", "[profile.release.package.kernels]\ndebug-assertions = true\n");
    assert_eq!(numbers(&[]).unwrap(), [7000, 8002, 9001]);
    workspace.manifest("", "");
    assert_eq!(numbers(&[]).unwrap(), first);
}

#[test]
fn cargo_is_told_all_that_a_build_reads() {
    let workspace = Workspace::new("told");
    workspace.write("helper/.cargo/config.toml", "");
    workspace.write("kernels/.cargo/config.toml", "");
    let Some((_, said)) = workspace.numbers(&[]) else { return };
    let root = workspace.0.canonicalize().unwrap();
    let said: Vec<&str> = said.lines().collect();
    for file in [
        "Cargo.toml",
        "Cargo.lock",
        "kernels/Cargo.toml",
        "kernels/src/lib.rs",
        "kernels/.cargo/config.toml",
        "helper/Cargo.toml",
        "helper/src/lib.rs",
    ] {
        let line = format!("cargo::rerun-if-changed={}", root.join(file).display());
        assert!(said.contains(&&*line), "{line}: {said:?}");
    }
    assert!(said.contains(&"cargo::rerun-if-env-changed=TILE"), "{said:?}");
    // A file that is not there would have cargo run the build script each time.
    let paths = said.iter().filter_map(|line| line.strip_prefix("cargo::rerun-if-changed="));
    let paths: Vec<&Path> = paths.map(Path::new).collect();
    assert!(paths.iter().all(|path| path.exists()), "{paths:?}");
    // It is in a folder of links.
    let links = paths.iter().find(|path| path.is_dir()).unwrap();
    let links =
        fs::read_dir(links).unwrap().map(|link| fs::read_link(link.unwrap().path()).unwrap());
    assert!(links.collect::<Vec<_>>().contains(&root.join(".cargo/config.toml")));
}

#[test]
fn a_dependency_that_uses_std_is_named_first() {
    let workspace = Workspace::new("uses_std");
    workspace.write("helper/src/lib.rs", USES_STD);
    let Some(output) = workspace.build(&[]) else { return };
    let stderr = String::from_utf8_lossy(&output.stderr);
    let mut errors = stderr.lines().filter(|line| line.starts_with("error"));
    let first = errors.next().unwrap_or_default();
    assert!(
        first.starts_with("error: `helper` uses `std`, which is not built for a GPU: "),
        "{stderr}"
    );
    assert!(errors.next().unwrap_or_default().starts_with("error[E0463]"), "{stderr}");
    assert!(!output.status.success());
}

#[test]
fn what_to_type_before_building_offline_is_said_first() {
    let workspace = Workspace::new("offline");
    let home = workspace.0.join("home");
    let variables = [("CARGO_HOME", home.to_str().unwrap()), ("CARGO_NET_OFFLINE", "true")];
    let Some(output) = workspace.build(&variables) else { return };
    let stderr = String::from_utf8_lossy(&output.stderr);
    let first = stderr.lines().find(|line| line.starts_with("error")).unwrap_or_default();
    let says = "type `RUSTC_BOOTSTRAP=1 cargo fetch --locked --manifest-path ";
    assert!(first.contains("which need the package `") && first.contains(says), "{stderr}");
    assert!(!output.status.success());
}
