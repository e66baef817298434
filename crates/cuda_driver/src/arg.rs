//! What an argument of a driver call tells about where the call goes.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::MaybeUninit;

use crate::gpu;
use crate::types::{
    CU_DEVICE_CPU, CUarray, CUcontext, CUdevice, CUdeviceptr, CUevent, CUexternalMemory,
    CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUhostFn, CUlinkState, CUmodule,
    CUoccupancyB2DSize, CUresult, CUstream,
};

/// The upper 16 bits of every handle and address of the software device, chosen by
/// `soft_cuda` for its addresses. Real pointers have 47 bits, and more only for a
/// process that asks for them.
const SOFT_TAG: u64 = 0x0050;

/// Whether a handle or an address belongs to the software device.
pub(crate) const fn is_soft(bits: u64) -> bool {
    bits >> 48 == SOFT_TAG
}

/// The handle of the software device's object number `id`, which has at most 48 bits.
pub(crate) const fn soft_handle(id: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(((SOFT_TAG << 48) | id) as usize)
}

/// What one argument tells about where a call goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// Nothing.
    Any,
    Soft,
    Gpu,
}

impl Side {
    /// The side of a handle or a device address. Null and the numbers 1 and 2, which
    /// stand for default streams, belong to no device.
    pub(crate) fn of(bits: u64) -> Self {
        match bits {
            0..=2 => Self::Any,
            _ if is_soft(bits) => Self::Soft,
            _ => Self::Gpu,
        }
    }
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
        if is_soft(self as u64) { Side::Soft } else { Side::Any }
    }

    unsafe fn soft(self) -> Out<T> {
        Out(self)
    }
}

impl<T> Arg for *const T {
    type Soft = Self;

    fn side(self) -> Side {
        if is_soft(self as u64) { Side::Soft } else { Side::Any }
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
            CUdevice(ordinal) if ordinal >= gpu::device_count() => Side::Soft,
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

macro_rules! handle_arguments {
    ($($type:ty),*) => {$(
        impl Arg for $type {
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

handle_arguments!(
    CUcontext,
    CUmodule,
    CUfunction,
    CUstream,
    CUevent,
    CUarray,
    CUlinkState,
    CUexternalMemory,
    CUgraph,
    CUgraphExec,
    CUgraphNode
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_tell_their_device() {
        assert_eq!(Side::of(0), Side::Any);
        assert_eq!(Side::of(2), Side::Any);
        assert_eq!(Side::of(0x7f00_0000_0000), Side::Gpu);
        assert_eq!(Side::of(soft_handle(0) as u64), Side::Soft);
        assert_eq!(Side::of(soft_handle((1 << 48) - 1) as u64), Side::Soft);
        assert_eq!(Side::of(u64::MAX), Side::Gpu);
    }
}
