//! The NVIDIA driver: found once, on first use, and called by exact name.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::sync::OnceLock;

use libloading::Library;

use crate::codes::error_text;
use crate::last_error::explain;
use crate::types::CUresult;

/// The driver's library, by the name that every installation has.
const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// CUDA 11.4, whose headers `cust_raw` was generated from. Older drivers lack
/// functions, and newer ones hand out this version's forms on request.
const API_VERSION: c_int = 11040;

/// More GPUs than any machine has.
const MAX_DEVICES: c_int = 1 << 16;

/// Why there is no GPU to use, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuUnavailable {
    /// The driver's library is not there or cannot be loaded.
    #[error(
        "there is no NVIDIA driver: {library} could not be loaded ({reason}); \
         install the NVIDIA driver, or use the software device"
    )]
    LibraryNotFound {
        /// The library's name.
        library: &'static str,
        /// What the system's loader said.
        reason: String,
    },
    /// The library lacks a function that every driver has.
    #[error("{library} lacks {function}, so it is no NVIDIA driver; reinstall the driver")]
    NotADriver {
        /// The library's name.
        library: &'static str,
        /// The missing function.
        function: &'static str,
    },
    /// The library calls this program's own functions, so it is no driver.
    #[error(
        "{library} answers with the functions of this program, so it is no NVIDIA driver; \
         check LD_LIBRARY_PATH, and that no other library has this name"
    )]
    CallsBack {
        /// The library's name.
        library: &'static str,
    },
    /// The driver is older than this program can use.
    #[error(
        "the NVIDIA driver supports CUDA {}.{}, and {}.{} or newer is needed; update the driver",
        found / 1000, found % 1000 / 10, needed / 1000, needed % 1000 / 10
    )]
    DriverTooOld {
        /// The newest CUDA version of the driver, 1000 * major + 10 * minor.
        found: i32,
        /// The oldest version that is enough, in the same form.
        needed: i32,
    },
    /// The driver is there, and sees no GPU.
    #[error(
        "the NVIDIA driver sees no GPU; check nvidia-smi, and that CUDA_VISIBLE_DEVICES \
         does not hide it"
    )]
    NoDevice,
    /// The driver is there, and does not start.
    #[error(
        "the NVIDIA driver does not start: {function} answers error {code}, {description}; \
         check that nvidia-smi works"
    )]
    Init {
        /// The function that failed.
        function: &'static str,
        /// The driver's error code.
        code: u32,
        /// What the code means.
        description: &'static str,
    },
}

/// A driver that is loaded and initialised and has at least one GPU.
pub(crate) struct Driver {
    library: Library,
    /// The driver's own look-up, in its first form (since CUDA 11.3).
    get_proc_address: Option<GetProcAddress>,
    devices: c_int,
}

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> CUresult;

/// How far a thread is with loading the driver.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loading {
    No,
    Yes,
    /// What it loads has called this crate.
    CalledBack,
}

thread_local! {
    static LOADING: Cell<Loading> = const { Cell::new(Loading::No) };
}

/// The library that has the driver's name is this program, or calls it.
static CALLS_BACK: GpuUnavailable = GpuUnavailable::CallsBack { library: LIBRARY };

/// The driver, loaded and initialised by whoever asks first. A library of that name which asks
/// while it is loaded, as this program itself does under that name, is no driver.
pub(crate) fn driver() -> Result<&'static Driver, &'static GpuUnavailable> {
    static DRIVER: OnceLock<Result<Driver, GpuUnavailable>> = OnceLock::new();
    if LOADING.get() != Loading::No {
        LOADING.set(Loading::CalledBack);
        return Err(&CALLS_BACK);
    }
    let load = || {
        LOADING.set(Loading::Yes);
        let loaded = Driver::load();
        match LOADING.replace(Loading::No) {
            Loading::CalledBack => Err(CALLS_BACK.clone()),
            _ => loaded,
        }
    };
    DRIVER.get_or_init(load).as_ref()
}

/// Whether calls can be forwarded at all.
pub(crate) fn is_available() -> bool {
    driver().is_ok()
}

/// How many GPUs there are, which have the first ordinals.
pub(crate) fn device_count() -> c_int {
    driver().map_or(0, |driver| driver.devices)
}

impl Driver {
    fn load() -> Result<Self, GpuUnavailable> {
        // SAFETY: loading the driver runs its initialisers, which it is made for.
        // libloading opens it without RTLD_GLOBAL, so its symbols stay apart from
        // the ones of this program.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|error| {
            GpuUnavailable::LibraryNotFound { library: LIBRARY, reason: error.to_string() }
        })?;
        let find = |function: &'static str, name: &CStr| {
            exported(&library, name)
                .ok_or(GpuUnavailable::NotADriver { library: LIBRARY, function })
        };
        let init = find("cuInit", c"cuInit")?;
        let version = find("cuDriverGetVersion", c"cuDriverGetVersion")?;
        let count = find("cuDeviceGetCount", c"cuDeviceGetCount")?;

        let mut found = 0;
        // SAFETY: the driver exports `CUresult cuDriverGetVersion(int *)`, which may be
        // called before cuInit; `found` outlives the call.
        let code = unsafe {
            transmute::<*const (), unsafe extern "C" fn(*mut c_int) -> CUresult>(version)(
                &mut found,
            )
        };
        started("cuDriverGetVersion", code)?;
        if found < API_VERSION {
            return Err(GpuUnavailable::DriverTooOld { found, needed: API_VERSION });
        }
        // SAFETY: the driver exports `CUresult cuInit(unsigned)`.
        let code =
            unsafe { transmute::<*const (), unsafe extern "C" fn(c_uint) -> CUresult>(init)(0) };
        started("cuInit", code)?;
        let mut devices = 0;
        // SAFETY: the driver exports `CUresult cuDeviceGetCount(int *)`; `devices`
        // outlives the call.
        let code = unsafe {
            transmute::<*const (), unsafe extern "C" fn(*mut c_int) -> CUresult>(count)(
                &mut devices,
            )
        };
        started("cuDeviceGetCount", code)?;
        // The software device has ordinals after them.
        if !(1..=MAX_DEVICES).contains(&devices) {
            return Err(GpuUnavailable::NoDevice);
        }

        let get_proc_address = exported(&library, c"cuGetProcAddress").map(|entry| {
            // SAFETY: under this exact name the driver exports the form with four
            // parameters; the later form is `cuGetProcAddress_v2`.
            unsafe { transmute::<*const (), GetProcAddress>(entry) }
        });
        Ok(Self { library, get_proc_address, devices })
    }

    /// The address of a driver function: the symbol of exactly this name, else what
    /// the driver hands out for it as of [`API_VERSION`].
    fn find(&self, name: &'static CStr) -> Option<*const ()> {
        exported(&self.library, name).or_else(|| {
            let get_proc_address = self.get_proc_address?;
            // The look-up wants names without the version suffix.
            let bytes = name.to_bytes();
            let base = bytes.strip_suffix(b"_v2").unwrap_or(bytes);
            let base = std::ffi::CString::new(base).ok()?;
            let mut entry = std::ptr::null_mut();
            // SAFETY: `base` is a C string and `entry` a place for a pointer, both alive
            // for the call; flags 0 asks for the default behaviour.
            let code = unsafe { get_proc_address(base.as_ptr(), &mut entry, API_VERSION, 0) };
            (code == CUresult::CUDA_SUCCESS && !entry.is_null())
                .then_some(entry.cast_const().cast())
        })
    }
}

/// The address of a symbol in `library` itself.
///
/// The look-up is on the library's handle, so it never finds the functions of the
/// same name that this program defines.
fn exported(library: &Library, name: &CStr) -> Option<*const ()> {
    // SAFETY: the symbol is only taken as an address here; who calls it vouches for
    // its signature.
    let symbol = unsafe { library.get::<*const ()>(name.to_bytes_with_nul()) }.ok()?;
    (!symbol.is_null()).then_some(*symbol)
}

fn started(function: &'static str, code: CUresult) -> Result<(), GpuUnavailable> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        CUresult::CUDA_ERROR_NO_DEVICE => Err(GpuUnavailable::NoDevice),
        _ => Err(GpuUnavailable::Init { function, code: code.0, description: error_text(code).1 }),
    }
}

/// A function of the driver, looked up on its first call.
pub(crate) struct Entry {
    name: &'static str,
    address: OnceLock<Option<Address>>,
}

/// The address of a function.
#[derive(Clone, Copy)]
struct Address(*const ());

// SAFETY: functions can be called from any thread, and the driver is never unloaded.
unsafe impl Send for Address {}
// SAFETY: as above; the address itself is never written.
unsafe impl Sync for Address {}

impl Entry {
    /// `name` ends with a NUL.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, address: OnceLock::new() }
    }

    /// The function's address, or the code to answer where there is none.
    pub(crate) fn address(&self) -> Result<*const (), CUresult> {
        let found = self.address.get_or_init(|| {
            let name = CStr::from_bytes_with_nul(self.name.as_bytes()).ok()?;
            driver().ok()?.find(name).map(Address)
        });
        match found {
            Some(address) => Ok(address.0),
            None => {
                explain(format!(
                    "the NVIDIA driver has no {}; another driver version may have it",
                    self.name.trim_end_matches('\0')
                ));
                Err(CUresult::CUDA_ERROR_NOT_FOUND)
            }
        }
    }
}

/// Calls the driver's function of this name; codes that `cust_raw` does not know are
/// replaced.
///
/// Unsafe: the caller vouches for the signature and the arguments.
macro_rules! forward {
    ($name:ident($($arg:ident: $type:ty),*)) => {{
        static ENTRY: $crate::gpu::Entry =
            $crate::gpu::Entry::new(concat!(stringify!($name), "\0"));
        ENTRY.address().and_then(|address| {
            let function = std::mem::transmute::<
                *const (),
                unsafe extern "C" fn($($type),*) -> $crate::types::CUresult,
            >(address);
            $crate::last_error::checked(function($($arg),*))
        })
    }};
}
pub(crate) use forward;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_says_what_to_do() {
        let reasons = [
            GpuUnavailable::LibraryNotFound { library: LIBRARY, reason: "no such file".into() },
            GpuUnavailable::NotADriver { library: LIBRARY, function: "cuInit" },
            CALLS_BACK.clone(),
            GpuUnavailable::DriverTooOld { found: 10020, needed: API_VERSION },
            GpuUnavailable::NoDevice,
            started("cuInit", CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH).unwrap_err(),
        ];
        for reason in reasons {
            let text = reason.to_string();
            let advice = ["install", "update", "check", "reboot"];
            assert!(advice.iter().any(|verb| text.contains(verb)), "{text}");
            assert!(!text.contains("  "), "{text}");
        }
        let text = GpuUnavailable::DriverTooOld { found: 10020, needed: 11040 }.to_string();
        assert!(text.contains("CUDA 10.2, and 11.4"), "{text}");
    }

    #[test]
    fn symbols_come_from_the_library_alone() {
        unsafe extern "C" {
            fn cuInit(flags: c_uint) -> c_uint;
        }
        // The C library stands in for the driver: it has `strlen` and not `cuInit`,
        // which this test binary does define.
        let name = if cfg!(windows) { "msvcrt.dll" } else { "libc.so.6" };
        // SAFETY: the C library is loaded already.
        let Ok(library) = (unsafe { Library::new(name) }) else { return };
        assert!(exported(&library, c"strlen").is_some());
        assert_ne!(cuInit as *const (), std::ptr::null());
        assert!(exported(&library, c"cuInit").is_none());
    }
}
