//! The driver API inside a shared library, as in an extension of Python: nobody else finds it, and
//! it finds nobody else.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

use std::ffi::c_int;
use std::path::{Path, PathBuf};

// `shared`, so that cargo builds the library; the driver API, which this program calls.
use cuda_driver as _;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use shared as _;

#[path = "../../common/mod.rs"]
mod common;

use common::{child, fake_driver};

/// This package's library, which cargo builds beside this program.
fn extension() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libshared.so")
}

/// Loads a library for all: what it exports, libraries that are loaded later find.
fn load(path: impl AsRef<Path>) -> Library {
    // SAFETY: the libraries of these tests have no initialisers that do anything.
    unsafe { Library::open(Some(path.as_ref()), RTLD_NOW | RTLD_GLOBAL) }.unwrap()
}

/// How many devices the extension sees.
fn devices(extension: &Library) -> c_int {
    // SAFETY: its function has this signature.
    unsafe { extension.get::<unsafe extern "C" fn() -> c_int>(b"devices\0").unwrap()() }
}

#[test]
fn a_shared_library_exports_none_of_the_symbols() {
    let library = load(extension());
    for name in ["cuInit", "cuDeviceGetCount", "cuMemAlloc_v2", "cuLaunchKernel"] {
        // SAFETY: the symbol is not used.
        assert!(unsafe { library.get::<*const ()>(name.as_bytes()) }.is_err(), "{name}");
    }
}

#[test]
fn a_driver_that_is_loaded_for_all_does_not_answer() {
    let driver = fake_driver().join("libcuda.so.1");
    let settings = [("EXTENSION", &extension()), ("DRIVER", &driver)];
    let settings = settings.map(|(name, path)| (name, path.to_str().unwrap()));
    child(
        "child_beside_a_driver",
        Path::new("/"),
        &[&settings[..], &[("FAKE_DEVICES", "77")]].concat(),
    );
}

#[test]
#[ignore = "runs in a child process"]
fn child_beside_a_driver() {
    let [driver, extension] =
        ["DRIVER", "EXTENSION"].map(|name| load(std::env::var(name).unwrap()));
    let mut count = 0;
    // SAFETY: the stand-in's function has this signature.
    unsafe {
        let get = driver.get::<unsafe extern "C" fn(*mut c_int)>(b"cuDeviceGetCount\0").unwrap();
        get(&mut count);
    }
    assert_eq!(count, 77);
    cust::init(cust::CudaFlags::empty()).unwrap();
    let own = cust::device::Device::num_devices().unwrap();
    assert_eq!(devices(&extension), own as c_int);
    assert_ne!(own, 77);
}

/// A shared library that is `libcuda.so.1` itself does not take itself for the driver.
#[test]
fn a_library_that_finds_itself_has_no_gpu() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("finds_itself");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(extension(), folder.join("libcuda.so.1")).unwrap();
    child("child_that_is_the_driver", &folder, &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_is_the_driver() {
    // The two models of the software device.
    assert_eq!(devices(&load("libcuda.so.1")), 2);
}
