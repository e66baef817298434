//! The driver API's types and constants, ABI-compatible with `cuda.h` and with `cust_raw`.
#![allow(non_camel_case_types, reason = "the names are C's")]

use std::ffi::{c_int, c_uint, c_void};

macro_rules! constants {
    ($type:ty: $($name:ident = $value:literal,)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of `cuda.h`.")]
        pub const $name: $type = $value;
    )*};
}

constants! { c_int:
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
    CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK = 111,
    CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH = 120,
    CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED = 127,
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
    CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
    CU_FUNC_ATTRIBUTE_CACHE_MODE_CA = 7,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
    CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET = 10,
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH = 11,
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT = 12,
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH = 13,
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
    CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE = 15,
}

constants! { c_uint:
    CU_JIT_INFO_LOG_BUFFER = 3,
    CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
    CU_JIT_ERROR_LOG_BUFFER = 5,
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
    CU_JIT_TARGET_FROM_CUCONTEXT = 8,
    CU_JIT_TARGET = 9,
    CU_MEMORYTYPE_HOST = 1,
    CU_MEMORYTYPE_DEVICE = 2,
    CU_MEMORYTYPE_ARRAY = 3,
    CU_MEMORYTYPE_UNIFIED = 4,
    CU_LAUNCH_ATTRIBUTE_IGNORE = 0,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE = 5,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
}

/// The result of a call; [`CUresult::CUDA_SUCCESS`] is 0.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a driver call can fail"]
pub struct CUresult(pub c_uint);

/// A device, as `cuDeviceGet` gives it: its ordinal.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUdevice(pub c_int);

/// An address in device memory.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUdeviceptr(pub u64);

/// A callback for `cuLaunchHostFunc`.
pub type CUhostFn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Dynamic shared memory in bytes for a block of `block_size` threads.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(block_size: c_int) -> usize>;

/// The `CUdevice` that stands for the host in prefetches and advice.
pub const CU_DEVICE_CPU: CUdevice = CUdevice(-1);

/// Parameters of a pitched copy, `CUDA_MEMCPY2D` in `cuda.h`. Sizes and
/// positions are in bytes, except the rows `src_y`, `dst_y` and `height`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "cuda.h's fields, under Rust's naming rules")]
pub struct CUDA_MEMCPY2D {
    pub src_x_in_bytes: usize,
    pub src_y: usize,
    pub src_memory_type: c_uint,
    pub src_host: *const c_void,
    pub src_device: CUdeviceptr,
    pub src_array: CUarray,
    pub src_pitch: usize,
    pub dst_x_in_bytes: usize,
    pub dst_y: usize,
    pub dst_memory_type: c_uint,
    pub dst_host: *mut c_void,
    pub dst_device: CUdeviceptr,
    pub dst_array: CUarray,
    pub dst_pitch: usize,
    pub width_in_bytes: usize,
    pub height: usize,
}

/// A launch with attributes, `CUlaunchConfig` in `cuda.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "cuda.h's fields, under Rust's naming rules")]
pub struct CUlaunchConfig {
    pub grid_dim_x: c_uint,
    pub grid_dim_y: c_uint,
    pub grid_dim_z: c_uint,
    pub block_dim_x: c_uint,
    pub block_dim_y: c_uint,
    pub block_dim_z: c_uint,
    pub shared_mem_bytes: c_uint,
    pub stream: CUstream,
    pub attrs: *mut CUlaunchAttribute,
    pub num_attrs: c_uint,
}

/// One attribute of a launch, `CUlaunchAttribute` in `cuda.h`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct CUlaunchAttribute {
    /// The attribute, for example [`CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`].
    pub id: c_uint,
    /// Padding up to offset 8; leave it 0.
    pub pad: [u8; 4],
    /// The value's bytes.
    ///
    /// A cluster dimension has x, y and z as three `u32`. Programmatic stream serialization has an
    /// `int`, 1 to allow it. Cluster scheduling has an `int`, 1 to spread the blocks of a cluster
    /// over multiprocessors.
    pub value: [u8; 64],
}

/// A tensor map, `CUtensorMap` in `cuda.h`: opaque, 64-byte aligned.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct CUtensorMap {
    /// The encoded map.
    pub opaque: [u64; 16],
}

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub *mut c_void);

        impl $name {
            /// The null handle.
            pub const NULL: Self = Self(std::ptr::null_mut());

            /// The number that the handle is.
            pub(crate) fn bits(self) -> u64 {
                self.0 as u64
            }
        }

        // SAFETY: a handle is a name: nothing here reads through it, and the driver API
        // takes any handle on any thread.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl<T> From<*mut T> for $name {
            fn from(raw: *mut T) -> Self {
                Self(raw.cast())
            }
        }
    )*};
}

handles! {
    /// A context.
    CUcontext;
    /// A loaded module.
    CUmodule;
    /// A kernel of a module.
    CUfunction;
    /// A stream; null is the default stream of the current context.
    CUstream;
    /// An event.
    CUevent;
    /// An array. The software device has none.
    CUarray;
    /// A state of the JIT linker. The software device has none.
    CUlinkState;
    /// Imported external memory. The software device has none.
    CUexternalMemory;
    /// A graph.
    CUgraph;
    /// A graph that can be launched.
    CUgraphExec;
    /// A node of a graph. The software device gives none out.
    CUgraphNode;
}

impl CUstream {
    /// `CU_STREAM_PER_THREAD`, the last of the numbers that stand for the current
    /// context's default streams (null, `CU_STREAM_LEGACY` = 1, this one = 2).
    const LAST_DEFAULT: u64 = 2;

    /// Whether this is the legacy default stream.
    pub(crate) fn is_legacy(self) -> bool {
        self.bits() < Self::LAST_DEFAULT
    }

    /// Whether this is a default stream of whatever context is current.
    pub(crate) fn is_default(self) -> bool {
        self.bits() <= Self::LAST_DEFAULT
    }
}
