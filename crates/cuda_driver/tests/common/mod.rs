//! Stand-ins for `libcuda.so.1`, and child processes that load them in its place.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds a library named `libcuda.so.1` from `source`; gives its folder.
pub fn build(name: &str, source: &Path) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let status = Command::new(rustc)
        .args(["--edition=2024", "--crate-type=cdylib", "--crate-name=fake_driver", "-o"])
        .arg(folder.join("libcuda.so.1"))
        .arg(source)
        .status()
        .unwrap();
    assert!(status.success());
    folder
}

pub fn fake_driver() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake_driver.rs");
        std::fs::write(&source, include_str!("../fake_driver/lib.rs")).unwrap();
        build("fake_driver", &source)
    })
}

/// Runs one of the ignored tests of this program in a process that finds its driver in `folder`.
pub fn child(test: &str, folder: &Path, settings: &[(&str, &str)]) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env("LD_LIBRARY_PATH", folder)
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
