//! The driver API's types, ABI-compatible with `cuda.h` and with `cust_raw`.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::MaybeUninit;

use crate::route::{self, Side};

/// The result of a call; [`CUresult::CUDA_SUCCESS`] is 0.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a driver call can fail"]
pub struct CUresult(pub c_uint);

/// A device handle, as `cuDeviceGet` gives it. It is not an ordinal.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUdevice(pub c_int);

/// An address in device memory.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUdeviceptr(pub u64);

/// A callback for `cuLaunchHostFunc`.
pub type CUhostFn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Dynamic shared memory in bytes for a block of so many threads.
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
    /// The attribute, for example [`CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`](super::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).
    pub id: c_uint,
    /// Padding up to offset 8; leave it 0.
    pub pad: [u8; 4],
    /// The value's bytes: for a cluster dimension, x, y and z as three `u32`.
    pub value: [u8; 64],
}

/// A tensor map, `CUtensorMap` in `cuda.h`: opaque, 64-byte aligned.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct CUtensorMap {
    /// The encoded map.
    pub opaque: [u64; 16],
}

/// How an argument of a driver call tells where the call goes, and what the
/// software side receives for it.
pub(crate) trait Arg: Copy {
    type Soft;

    /// The device that the argument belongs to, if it tells.
    fn side(self) -> Side {
        Side::Any
    }

    /// The argument as the software side takes it.
    ///
    /// # Safety
    ///
    /// A non-null `*mut` argument is valid for a write of its type for the
    /// duration of the call, which is the driver API's own rule.
    unsafe fn soft(self) -> Self::Soft;
}

/// An output of the software side: a place to write one value.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes `value`; a null place is `CUDA_ERROR_INVALID_VALUE`, as in the driver.
    pub(crate) fn set(self, value: T) -> Result<(), CUresult> {
        self.check()?;
        // SAFETY: not null, and whoever made `self` vouched for it (`Arg::soft`).
        // The place may be uninitialised, so nothing is read or dropped.
        unsafe { self.0.cast::<MaybeUninit<T>>().write(MaybeUninit::new(value)) };
        Ok(())
    }

    /// Fails where [`set`](Self::set) would, for calls that must not act first.
    pub(crate) fn check(&self) -> Result<(), CUresult> {
        if self.0.is_null() { Err(CUresult::CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
    }

    /// Writes `value` unless the place is null.
    pub(crate) fn set_if_wanted(self, value: T) {
        // The only failure is the null place.
        let _ = self.set(value);
    }

    /// The pointer itself, for arguments that are more than one value.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0
    }
}

impl<T> Arg for *mut T {
    type Soft = Out<T>;

    fn side(self) -> Side {
        if route::is_soft(self as u64) { Side::Soft } else { Side::Any }
    }

    unsafe fn soft(self) -> Out<T> {
        Out(self)
    }
}

impl<T> Arg for *const T {
    type Soft = Self;

    fn side(self) -> Side {
        if route::is_soft(self as u64) { Side::Soft } else { Side::Any }
    }

    unsafe fn soft(self) -> Self {
        self
    }
}

impl Arg for CUdevice {
    type Soft = Self;

    fn side(self) -> Side {
        match self {
            CU_DEVICE_CPU => Side::Any,
            device if route::SOFT_DEVICES.contains(&device) => Side::Soft,
            _ => Side::Gpu,
        }
    }

    unsafe fn soft(self) -> Self {
        self
    }
}

impl Arg for CUdeviceptr {
    type Soft = Self;

    fn side(self) -> Side {
        Side::of(self.0)
    }

    unsafe fn soft(self) -> Self {
        self
    }
}

macro_rules! plain_arguments {
    ($($type:ty),*) => {$(
        impl Arg for $type {
            type Soft = Self;

            unsafe fn soft(self) -> Self {
                self
            }
        }
    )*};
}

plain_arguments!(CUresult, u8, u16, c_int, c_uint, u64, usize, CUhostFn, CUoccupancyB2DSize);

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

        impl Arg for $name {
            type Soft = Self;

            fn side(self) -> Side {
                Side::of(self.bits())
            }

            unsafe fn soft(self) -> Self {
                self
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
    /// A graph. The software device has none.
    CUgraph;
    /// A node of a graph. The software device has none.
    CUgraphNode;
}

impl CUstream {
    /// `CU_STREAM_PER_THREAD`, the last of the numbers that stand for the current
    /// context's default streams (null, `CU_STREAM_LEGACY` = 1, this one = 2).
    const LAST_DEFAULT: u64 = 2;

    /// Whether this is a default stream of whatever context is current.
    pub(crate) fn is_default(self) -> bool {
        self.bits() <= Self::LAST_DEFAULT
    }
}
