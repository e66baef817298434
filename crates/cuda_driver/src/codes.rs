//! The result codes: their names and descriptions.

use std::ffi::CStr;
use std::fmt;

use crate::types::CUresult;

/// One result code of the driver API.
pub(crate) struct Code {
    code: u32,
    pub(crate) name: &'static CStr,
    pub(crate) description: &'static CStr,
}

macro_rules! codes {
    ($($code:literal $name:ident $description:literal;)*) => {
        impl CUresult {
            $(
                #[doc = concat!("`", stringify!($name), "`: ", $description, ".")]
                pub const $name: CUresult = CUresult($code);
            )*
        }

        /// Every code of `cust_raw`'s enum, in increasing order.
        const CODES: &[Code] = &[$(
            Code {
                code: $code,
                name: c_text(concat!(stringify!($name), "\0")),
                description: c_text(concat!($description, "\0")),
            },
        )*];
    };
}

const fn c_text(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("one NUL, at the end"),
    }
}

codes! {
    0 CUDA_SUCCESS "no error";
    1 CUDA_ERROR_INVALID_VALUE "a parameter is outside the range of acceptable values";
    2 CUDA_ERROR_OUT_OF_MEMORY "the device has too little free memory for this request";
    3 CUDA_ERROR_NOT_INITIALIZED "the driver has not been initialised; call cuInit first";
    4 CUDA_ERROR_DEINITIALIZED "the driver is shutting down";
    5 CUDA_ERROR_PROFILER_DISABLED "the profiler is disabled";
    6 CUDA_ERROR_PROFILER_NOT_INITIALIZED "the profiler has not been initialised";
    7 CUDA_ERROR_PROFILER_ALREADY_STARTED "the profiler is already started";
    8 CUDA_ERROR_PROFILER_ALREADY_STOPPED "the profiler is already stopped";
    34 CUDA_ERROR_STUB_LIBRARY "the driver library is a stub for linking; install the real NVIDIA driver";
    100 CUDA_ERROR_NO_DEVICE "no CUDA-capable device is visible";
    101 CUDA_ERROR_INVALID_DEVICE "there is no device with this ordinal";
    102 CUDA_ERROR_DEVICE_NOT_LICENSED "the device has no licence for this use";
    200 CUDA_ERROR_INVALID_IMAGE "the module image is not valid";
    201 CUDA_ERROR_INVALID_CONTEXT "the thread has no current context, or the context is not valid";
    202 CUDA_ERROR_CONTEXT_ALREADY_CURRENT "the context is already current";
    205 CUDA_ERROR_MAP_FAILED "mapping failed";
    206 CUDA_ERROR_UNMAP_FAILED "unmapping failed";
    207 CUDA_ERROR_ARRAY_IS_MAPPED "the array is mapped and cannot be destroyed";
    208 CUDA_ERROR_ALREADY_MAPPED "the resource is already mapped";
    209 CUDA_ERROR_NO_BINARY_FOR_GPU "the module has no code that this device can run";
    210 CUDA_ERROR_ALREADY_ACQUIRED "the resource is already acquired";
    211 CUDA_ERROR_NOT_MAPPED "the resource is not mapped";
    212 CUDA_ERROR_NOT_MAPPED_AS_ARRAY "the resource is not mapped as an array";
    213 CUDA_ERROR_NOT_MAPPED_AS_POINTER "the resource is not mapped as a pointer";
    214 CUDA_ERROR_ECC_UNCORRECTABLE "an uncorrectable memory error was found";
    215 CUDA_ERROR_UNSUPPORTED_LIMIT "the device does not support this limit";
    216 CUDA_ERROR_CONTEXT_ALREADY_IN_USE "the context is in use by another thread";
    217 CUDA_ERROR_PEER_ACCESS_UNSUPPORTED "peer access is not supported between these devices";
    218 CUDA_ERROR_INVALID_PTX "the PTX does not compile";
    219 CUDA_ERROR_INVALID_GRAPHICS_CONTEXT "the graphics context is not valid";
    220 CUDA_ERROR_NVLINK_UNCORRECTABLE "an uncorrectable NVLink error was found";
    221 CUDA_ERROR_JIT_COMPILER_NOT_FOUND "the driver's PTX compiler library was not found";
    222 CUDA_ERROR_UNSUPPORTED_PTX_VERSION "the PTX version is newer than the driver; update the NVIDIA driver";
    223 CUDA_ERROR_JIT_COMPILATION_DISABLED "compilation of PTX is disabled in the driver";
    224 CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY "the device does not support this execution affinity";
    300 CUDA_ERROR_INVALID_SOURCE "the device kernel source is not valid";
    301 CUDA_ERROR_FILE_NOT_FOUND "the file was not found";
    302 CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND "a shared object lacks a symbol";
    303 CUDA_ERROR_SHARED_OBJECT_INIT_FAILED "a shared object failed to initialise";
    304 CUDA_ERROR_OPERATING_SYSTEM "an operating system call failed";
    400 CUDA_ERROR_INVALID_HANDLE "the handle is not valid";
    401 CUDA_ERROR_ILLEGAL_STATE "the resource is not in the state that this operation needs";
    500 CUDA_ERROR_NOT_FOUND "the name was not found";
    600 CUDA_ERROR_NOT_READY "earlier work has not finished yet";
    700 CUDA_ERROR_ILLEGAL_ADDRESS "a kernel accessed an illegal memory address";
    701 CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES "the launch needs more resources than the device has";
    702 CUDA_ERROR_LAUNCH_TIMEOUT "a kernel ran for too long and was stopped";
    703 CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING "the launch uses an incompatible texturing mode";
    704 CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED "peer access is already enabled";
    705 CUDA_ERROR_PEER_ACCESS_NOT_ENABLED "peer access is not enabled";
    708 CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE "the primary context is already active";
    709 CUDA_ERROR_CONTEXT_IS_DESTROYED "the current context has been destroyed";
    710 CUDA_ERROR_ASSERT "an assertion failed or a trap was hit in a kernel";
    711 CUDA_ERROR_TOO_MANY_PEERS "there are too many peer devices";
    712 CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED "the host memory is already registered";
    713 CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED "the host memory is not registered";
    714 CUDA_ERROR_HARDWARE_STACK_ERROR "a kernel overflowed or corrupted its call stack";
    715 CUDA_ERROR_ILLEGAL_INSTRUCTION "a kernel ran an illegal instruction";
    716 CUDA_ERROR_MISALIGNED_ADDRESS "a kernel accessed a misaligned address";
    717 CUDA_ERROR_INVALID_ADDRESS_SPACE "a kernel used an address of the wrong memory space";
    718 CUDA_ERROR_INVALID_PC "a kernel's program counter left its code";
    719 CUDA_ERROR_LAUNCH_FAILED "a kernel failed while it ran";
    720 CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE "the cooperative launch has more blocks than fit at once";
    800 CUDA_ERROR_NOT_PERMITTED "the operation is not permitted";
    801 CUDA_ERROR_NOT_SUPPORTED "the device does not support this operation";
    802 CUDA_ERROR_SYSTEM_NOT_READY "the system is not ready for CUDA work; check that its NVIDIA services run";
    803 CUDA_ERROR_SYSTEM_DRIVER_MISMATCH "the driver library and the kernel module differ in version; reboot, or reinstall the NVIDIA driver";
    804 CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE "this GPU does not support the forward-compatible driver library";
    805 CUDA_ERROR_MPS_CONNECTION_FAILED "no connection to the MPS control daemon";
    806 CUDA_ERROR_MPS_RPC_FAILURE "a remote call to the MPS server failed";
    807 CUDA_ERROR_MPS_SERVER_NOT_READY "the MPS server is not ready";
    808 CUDA_ERROR_MPS_MAX_CLIENTS_REACHED "the MPS server has no room for another client";
    809 CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED "the MPS server has no room for another connection";
    900 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED "the operation is not permitted while the stream is capturing";
    901 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED "an earlier error invalidated the stream capture";
    902 CUDA_ERROR_STREAM_CAPTURE_MERGE "the operation would merge two stream captures";
    903 CUDA_ERROR_STREAM_CAPTURE_UNMATCHED "the capture was not begun in this stream";
    904 CUDA_ERROR_STREAM_CAPTURE_UNJOINED "the capture has work that was not joined to its first stream";
    905 CUDA_ERROR_STREAM_CAPTURE_ISOLATION "a dependency would cross the boundary of the capture";
    906 CUDA_ERROR_STREAM_CAPTURE_IMPLICIT "the operation would depend on the legacy stream while it captures";
    907 CUDA_ERROR_CAPTURED_EVENT "the operation is not permitted on an event of a capturing stream";
    908 CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD "the capture was begun in another thread";
    909 CUDA_ERROR_TIMEOUT "the wait timed out";
    910 CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE "the graph update breaks the limits on what may change";
    911 CUDA_ERROR_EXTERNAL_DEVICE "a device outside CUDA's control failed";
    999 CUDA_ERROR_UNKNOWN "an unknown error";
}

/// The result of a call, in Rust's form.
pub(crate) type Answer = Result<(), CUresult>;

impl CUresult {
    /// `Ok` for [`CUDA_SUCCESS`](Self::CUDA_SUCCESS).
    ///
    /// # Errors
    ///
    /// Every other code.
    pub fn ok(self) -> Result<(), CUresult> {
        match self {
            Self::CUDA_SUCCESS => Ok(()),
            code => Err(code),
        }
    }
}

impl fmt::Display for CUresult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, description) = error_text(*self);
        write!(f, "{description} ({name}, {})", self.0)
    }
}

impl std::error::Error for CUresult {}

/// The table's entry for `code`; `None` for a code that `cust_raw` does not know.
pub(crate) fn find(code: CUresult) -> Option<&'static Code> {
    CODES.binary_search_by_key(&code.0, |entry| entry.code).ok().map(|i| &CODES[i])
}

/// The texts in the table are ASCII.
fn text(text: &'static CStr) -> &'static str {
    text.to_str().unwrap_or_default()
}

/// The name and the description of a result code, for example
/// `("CUDA_ERROR_INVALID_PTX", "the PTX does not compile")`.
pub fn error_text(code: CUresult) -> (&'static str, &'static str) {
    match find(code) {
        Some(entry) => (text(entry.name), text(entry.description)),
        None => ("CUDA_ERROR_UNKNOWN", "an error code that this program does not know"),
    }
}
