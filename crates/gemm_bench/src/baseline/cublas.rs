//! cuBLAS, the baseline: loaded at run time if present, and called with a rung's matrices.
//!
//! The interface is that of a rung: [`Cublas::prepare`] checks a product once, and
//! [`CublasProduct::enqueue`](crate::CublasProduct::enqueue) is safe.
//!
//! # What is compared
//!
//! The baseline is `cublasSgemm`, or `cublasSgemmStridedBatched` for a batch, in the default math
//! mode, which computes in f32 and not in TF32. Environment variables can lower this precision
//! without the program's knowledge. cuBLAS is then refused: results in another precision are no
//! measure for these kernels.

use std::env;
use std::error::Error as _;
use std::ffi::{c_int, c_longlong, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr;
use std::rc::Rc;

use cuda_gemm::{Device, Stream};
use host_system::toolkit;
use libloading::Library;

use crate::error::Error;

/// The major versions with the functions used here, newest first.
const VERSIONS: [u32; 3] = [13, 12, 11];

/// The folders of libraries in a toolkit.
const LIBRARY_FOLDERS: &[&str] = if cfg!(windows) {
    &["bin", "bin/x64"]
} else {
    &["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"]
};

/// Variables that make cuBLAS compute f32 products in TF32, or in bf16 pieces.
const PRECISION_VARIABLES: [&str; 2] = ["NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION"];

/// `cublasHandle_t`.
pub(crate) type Handle = *mut c_void;
/// `cublasStatus_t`; 0 is success.
pub(crate) type CublasStatus = c_int;

/// `CUBLAS_OP_N` and `CUBLAS_OP_T`: the matrix unchanged, or its transpose.
pub(crate) const OP_N: c_int = 0;
pub(crate) const OP_T: c_int = 1;
/// `CUBLAS_DEFAULT_MATH` with `CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`.
///
/// The first computes f32 products in f32. The second adds partial sums in f32, also for a 16-bit
/// C.
const MATH_MODE: c_int = 16;

/// `cublasSgemm_v2`: handle, two transpositions, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc.
pub(crate) type Sgemm = unsafe extern "system" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const f32,
    *const f32,
    c_int,
    *const f32,
    c_int,
    *const f32,
    *mut f32,
    c_int,
) -> CublasStatus;

/// `cublasSgemmStridedBatched`: `cublasSgemm` with strides.
///
/// A stride follows each leading dimension, and the number of products comes last.
pub(crate) type SgemmStridedBatched = unsafe extern "system" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const f32,
    *const f32,
    c_int,
    c_longlong,
    *const f32,
    c_int,
    c_longlong,
    *const f32,
    *mut f32,
    c_int,
    c_longlong,
    c_int,
) -> CublasStatus;

/// `cublasGemmEx`: `cublasSgemm` with types.
///
/// A type follows each matrix. The type of the computation and an algorithm come last.
pub(crate) type GemmEx = unsafe extern "system" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    *const c_void,
    c_int,
    c_int,
    *const c_void,
    c_int,
    c_int,
    *const c_void,
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
) -> CublasStatus;

/// `cublasGemmStridedBatchedEx`: `cublasGemmEx` with strides.
///
/// A stride follows each leading dimension, and the number of products is added.
pub(crate) type GemmStridedBatchedEx = unsafe extern "system" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    *const c_void,
    c_int,
    c_int,
    c_longlong,
    *const c_void,
    c_int,
    c_int,
    c_longlong,
    *const c_void,
    *mut c_void,
    c_int,
    c_int,
    c_longlong,
    c_int,
    c_int,
    c_int,
) -> CublasStatus;

/// Declares the functions of a library, with their types and names there.
macro_rules! functions {
    ($(#[$doc:meta])* struct $name:ident { $($field:ident: $type:ty = $symbol:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name {
            $(pub(super) $field: $type,)+
        }

        impl $name {
            /// # Safety
            ///
            /// The functions have these types, and the library is never unloaded.
            unsafe fn of(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the caller's contract.
                unsafe { Ok(Self { $($field: *library.get($symbol)?,)+ }) }
            }
        }
    };
}
pub(super) use functions;

functions! {
    /// The functions of cuBLAS, with the types of `cublas_api.h`.
    ///
    /// They stay valid as long as the process runs: see [`Functions::load`].
    struct Functions {
        create: unsafe extern "system" fn(*mut Handle) -> CublasStatus = c"cublasCreate_v2",
        destroy: unsafe extern "system" fn(Handle) -> CublasStatus = c"cublasDestroy_v2",
        set_stream: unsafe extern "system" fn(Handle, *mut c_void) -> CublasStatus
            = c"cublasSetStream_v2",
        set_math_mode: unsafe extern "system" fn(Handle, c_int) -> CublasStatus
            = c"cublasSetMathMode",
        get_property: unsafe extern "system" fn(c_int, *mut c_int) -> CublasStatus
            = c"cublasGetProperty",
        sgemm: Sgemm = c"cublasSgemm_v2",
        sgemm_strided_batched: SgemmStridedBatched = c"cublasSgemmStridedBatched",
        gemm_ex: GemmEx = c"cublasGemmEx",
        gemm_strided_batched_ex: GemmStridedBatchedEx = c"cublasGemmStridedBatchedEx",
    }
}

impl Functions {
    /// Loads cuBLAS from a file, or from a name that the loader resolves.
    fn load(path: &Path) -> Result<Self, libloading::Error> {
        // cuBLAS needs cublasLt, which lies beside it, and the loader may not look there. Loading
        // it first makes it available. If it is missing, cuBLAS itself reports that.
        let lt = path.parent().filter(|folder| !folder.as_os_str().is_empty()).and_then(|_| {
            let name = path.file_name()?.to_str()?.replacen("cublas", "cublasLt", 1);
            // SAFETY: NVIDIA's library, which any program may load.
            unsafe { Library::new(path.with_file_name(name)) }.ok()
        });
        // SAFETY: as above.
        let library = unsafe { Library::new(path) }?;
        // Never unloaded: both keep state of their own in the driver.
        let (library, _) = (ManuallyDrop::new(library), ManuallyDrop::new(lt));
        // SAFETY: the functions have these types in all supported versions.
        unsafe { Self::of(&library) }
    }

    /// The version, as in `12.8.5`.
    fn version(&self) -> Result<String, Error> {
        // MAJOR_VERSION, MINOR_VERSION and PATCH_LEVEL of `libraryPropertyType`.
        let mut numbers = [0; 3];
        for (property, number) in (0..).zip(&mut numbers) {
            // SAFETY: `number` is valid for the write.
            check("cublasGetProperty", unsafe { (self.get_property)(property, number) })?;
        }
        Ok(numbers.map(|number| number.to_string()).join("."))
    }
}

/// cuBLAS on one GPU, on its own stream; clones are the same handle.
///
/// ```no_run
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm};
/// use gemm_bench::Cublas;
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Gpu)?;
/// let cublas = Cublas::open(&device)?;
/// let product = cublas.prepare(Gemm::new(512, 512, 512))?;
/// let a = DeviceMatrix::<f32>::zeros(&device, [512, 512])?;
/// let b = DeviceMatrix::<f32>::zeros(&device, [512, 512])?;
/// let mut c = DeviceMatrix::<f32>::zeros(&device, [512, 512])?;
/// product.enqueue(&a, &b, &mut c)?;
/// println!("cuBLAS {}: {}", cublas.version(), c.download()?.at(0, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cublas(pub(crate) Rc<Started>);

/// A started cuBLAS, for one thread.
pub(crate) struct Started {
    pub(crate) stream: Stream,
    pub(super) functions: Functions,
    pub(crate) handle: Handle,
    version: String,
}

impl Cublas {
    /// Finds cuBLAS and starts it on a GPU.
    ///
    /// The loader's own path comes first, then the installed toolkits. Of several versions, the
    /// newest one that starts is used.
    ///
    /// # Errors
    ///
    /// - [`Error::CublasNeedsGpu`] on the software device.
    /// - [`Error::CublasPrecision`] if the environment lowers the precision below f32.
    /// - [`Error::CublasNotFound`] if there is none.
    /// - [`Error::CublasBroken`] or [`Error::Cublas`] if the library that was found does not start.
    pub fn open(device: &Device) -> Result<Self, Error> {
        if device.is_soft() {
            return Err(Error::CublasNeedsGpu);
        }
        for variable in PRECISION_VARIABLES {
            if let Ok(value) = env::var(variable)
                && lowers_precision(&value)
            {
                return Err(Error::CublasPrecision { variable, value });
            }
        }
        let _current = device.enter()?;
        // A library that does not start says more than all missing ones.
        let mut failure = None;
        for path in candidates() {
            let error = match Functions::load(&path) {
                Ok(functions) => match Self::start(device, functions) {
                    Ok(cublas) => return Ok(cublas),
                    Err(error) => error,
                },
                // The loader does not say whether a bare name has a file.
                Err(_) if !path.is_file() => continue,
                Err(error) => broken(path, &error),
            };
            failure = failure.or(Some(error));
        }
        Err(failure.unwrap_or_else(|| Error::CublasNotFound {
            files: VERSIONS.map(file_name).join(", "),
            variables: toolkit::VARIABLES.join(", "),
        }))
    }

    fn start(device: &Device, functions: Functions) -> Result<Self, Error> {
        let version = functions.version()?;
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is valid for the write, and the device's context is current.
        check("cublasCreate", unsafe { (functions.create)(&raw mut handle) })?;
        let started = Started { stream: device.stream(), functions, handle, version };
        let stream = started.stream.as_raw().0;
        // SAFETY: the handle was just made, and lives on the context of this stream, which it
        // keeps.
        unsafe {
            check("cublasSetStream", (functions.set_stream)(handle, stream))?;
            check("cublasSetMathMode", (functions.set_math_mode)(handle, MATH_MODE))?;
        }
        Ok(Self(Rc::new(started)))
    }

    /// The version, as in `12.8.5`.
    pub fn version(&self) -> &str {
        &self.0.version
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Ok(_current) = self.stream.device().enter() {
            // SAFETY: the handle is not used again. After a failure nothing is left to do.
            unsafe { (self.functions.destroy)(self.handle) };
        }
    }
}

fn broken(path: PathBuf, error: &libloading::Error) -> Error {
    // The cause has the details.
    let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    Error::CublasBroken { path, reason }
}

pub(crate) fn check(call: &'static str, status: CublasStatus) -> Result<(), Error> {
    let name = match status {
        0 => return Ok(()),
        1 => "CUBLAS_STATUS_NOT_INITIALIZED",
        3 => "CUBLAS_STATUS_ALLOC_FAILED",
        7 => "CUBLAS_STATUS_INVALID_VALUE",
        8 => "CUBLAS_STATUS_ARCH_MISMATCH",
        11 => "CUBLAS_STATUS_MAPPING_ERROR",
        13 => "CUBLAS_STATUS_EXECUTION_FAILED",
        14 => "CUBLAS_STATUS_INTERNAL_ERROR",
        15 => "CUBLAS_STATUS_NOT_SUPPORTED",
        16 => "CUBLAS_STATUS_LICENSE_ERROR",
        _ => "an unknown status",
    };
    Err(Error::Cublas { call, name, status })
}

/// Whether a variable's value switches on its feature.
fn lowers_precision(value: &str) -> bool {
    !matches!(value.trim(), "" | "0")
}

fn file_name(version: u32) -> String {
    if cfg!(windows) {
        format!("cublas64_{version}.dll")
    } else {
        format!("libcublas.so.{version}")
    }
}

/// The libraries to try, in order: bare names for the loader, then files.
fn candidates() -> Vec<PathBuf> {
    candidates_in(&toolkit::folders())
        .filter(|path| path.components().count() == 1 || path.is_file())
        .collect()
}

fn candidates_in(roots: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    let folders = roots.iter().flat_map(|root| LIBRARY_FOLDERS.iter().map(|at| root.join(at)));
    let files = folders.flat_map(|folder| VERSIONS.map(|version| folder.join(file_name(version))));
    VERSIONS.map(|version| file_name(version).into()).into_iter().chain(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::DeviceChoice;

    #[test]
    fn the_loader_is_asked_first_and_the_newest_comes_first() {
        let root = PathBuf::from("toolkit");
        let all: Vec<_> = candidates_in(std::slice::from_ref(&root)).collect();
        assert_eq!(all.len(), VERSIONS.len() * (1 + LIBRARY_FOLDERS.len()));
        assert_eq!(all[0], PathBuf::from(file_name(13)));
        assert_eq!(all[2], PathBuf::from(file_name(11)));
        assert_eq!(all[3], root.join(LIBRARY_FOLDERS[0]).join(file_name(13)));
    }

    #[test]
    fn a_value_that_is_not_zero_lowers_precision() {
        for off in ["", "0", " 0 "] {
            assert!(!lowers_precision(off));
        }
        for on in ["1", "2", "true"] {
            assert!(lowers_precision(on));
        }
    }

    #[test]
    fn a_status_has_a_name() {
        assert!(check("cublasSgemm", 0).is_ok());
        let error = check("cublasSgemm", 13).unwrap_err().to_string();
        assert!(error.contains("cublasSgemm") && error.contains("EXECUTION_FAILED"), "{error}");
        assert!(check("cublasSgemm", 99).unwrap_err().to_string().contains("99"));
    }

    #[test]
    fn a_file_that_is_not_cublas_is_named() {
        let file = tempfile::Builder::new().suffix("libcublas.so.13").tempfile().unwrap();
        let Err(error) = Functions::load(file.path()) else { panic!("an empty file loads") };
        let text = broken(file.path().to_owned(), &error).to_string();
        assert!(
            text.contains(&*file.path().to_string_lossy()) && text.contains("reinstall"),
            "{text}"
        );
    }

    #[test]
    fn the_software_device_has_no_cublas() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        assert!(matches!(Cublas::open(&device), Err(Error::CublasNeedsGpu)));
    }
}
