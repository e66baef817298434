//! Memory of the software device, and page-locked host memory.

use std::alloc::{self, Layout};
use std::ffi::{c_uint, c_void};
use std::ptr::NonNull;
use std::slice;

use soft_cuda::{InStream, MemoryError};

use super::capture::{allow_legacy, allow_unsafe, context_outside, submit};
use super::instance::{device, unsupported};
use super::state::{self, Order, State};
use super::work::{Work, memory_failed};
use crate::arg::{Out, is_soft};
use crate::codes::Answer;
use crate::stack;
use crate::types::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED, CUDA_MEMCPY2D, CUcontext,
    CUdeviceptr, CUresult, CUstream,
};

/// Page-locked memory is aligned to pages.
const PAGE: usize = 4096;

/// The context that owns `address`; memory that no call allocated (a module's
/// variables) goes by the current context.
fn owner(state: &State, address: u64) -> Result<CUcontext, CUresult> {
    let base = device().allocation_of(address).map(|(base, _)| base);
    match base.and_then(|base| state.allocations.get(&base)) {
        Some(context) => Ok(*context),
        None => stack::current_soft(),
    }
}

/// Memory calls work by address, and still need some current context, as on a GPU.
fn check(state: &State, address: CUdeviceptr) -> Result<CUcontext, CUresult> {
    stack::has_context()?;
    let context = owner(state, address.0)?;
    state.healthy(context)?;
    Ok(context)
}

/// A synchronous copy or fill of some addresses: a call in the legacy stream of the current context.
/// Those of the addresses' own contexts take part.
fn in_legacy<const N: usize>(
    addresses: [CUdeviceptr; N],
    work: impl FnOnce(InStream<'_>) -> Result<(), MemoryError>,
) -> Result<Order, CUresult> {
    let mut state = state::lock();
    let mut owners = Vec::new();
    for address in addresses {
        let owner = check(&state, address)?;
        allow_legacy(&mut state, owner)?;
        owners.push(owner);
    }
    // A GPU's context may be the current one.
    let current = stack::current_soft().or_else(|error| owners.first().copied().ok_or(error))?;
    allow_legacy(&mut state, current)?;
    let mut order = state.order(CUstream::NULL, current);
    for owner in owners.into_iter().filter(|owner| *owner != current) {
        let of_owner = state.order(CUstream::NULL, owner);
        order.behind.extend(of_owner.behind.into_iter().chain([of_owner.number]));
    }
    drop(state);
    work(device().in_stream(order.get())).map_err(memory_failed)?;
    Ok(order)
}

/// The order of `stream`, for a copy between the host and `address`, which no capture holds.
fn check_stream(stream: CUstream, address: CUdeviceptr) -> Result<Order, CUresult> {
    let mut state = state::lock();
    let context = context_outside(&mut state, stream)?;
    check(&state, address)?;
    Ok(state.order(stream, context))
}

/// The allocation of an address begins or ends its life in a stream.
fn claim(address: u64, stream: CUstream, context: CUcontext) -> Answer {
    let order = state::lock().order(stream, context);
    device().in_stream(order.get()).claim(address).map_err(memory_failed)
}

/// Work on `addresses` in `stream`.
fn submit_at(addresses: &[CUdeviceptr], stream: CUstream, work: Work) -> Answer {
    let state = state::lock();
    state.context_of(stream)?;
    for address in addresses {
        check(&state, *address)?;
    }
    drop(state);
    submit(stream, &[work])
}

pub(crate) fn alloc(out: Out<CUdeviceptr>, bytes: usize) -> Answer {
    let (context, mut state) = state::current()?;
    allow_unsafe(&mut state)?;
    drop(state);
    alloc_in(context, ("cuMemAlloc_v2", bytes), out).map(|_| ())
}

pub(crate) fn alloc_async(out: Out<CUdeviceptr>, bytes: usize, stream: CUstream) -> Answer {
    let context = context_outside(&mut state::lock(), stream)?;
    let address = alloc_in(context, ("cuMemAllocAsync", bytes), out)?;
    claim(address, stream, context)
}

fn alloc_in(
    context: CUcontext,
    (name, bytes): (&'static str, usize),
    out: Out<CUdeviceptr>,
) -> Result<u64, CUresult> {
    out.check()?;
    let address = device().alloc_for(name, bytes as u64).map_err(memory_failed)?;
    state::lock().allocations.insert(address, context);
    out.set(CUdeviceptr(address))?;
    Ok(address)
}

pub(crate) fn free(address: CUdeviceptr) -> Answer {
    if address.0 == 0 {
        return Ok(());
    }
    allow_unsafe(&mut state::lock())?;
    device().synchronize();
    free_now("cuMemFree_v2", address)
}

pub(crate) fn free_async(address: CUdeviceptr, stream: CUstream) -> Answer {
    let context = context_outside(&mut state::lock(), stream)?;
    if address.0 == 0 {
        return Ok(());
    }
    claim(address.0, stream, context)?;
    free_now("cuMemFreeAsync", address)
}

fn free_now(name: &'static str, address: CUdeviceptr) -> Answer {
    let mut state = state::lock();
    check(&state, address)?;
    // Only what `alloc` gave out: a module's variables go with the module.
    let is_module = |base| device().allocation_of(address.0).is_some_and(|(at, _)| at == base);
    if state.allocations.remove(&address.0).is_none() && is_module(address.0) {
        return Err(memory_failed(MemoryError::NotAnAllocation { address: address.0 }));
    }
    drop(state);
    device().free_for(name, address.0).map_err(memory_failed)
}

pub(crate) fn info(free: Out<usize>, total: Out<usize>) -> Answer {
    state::current_context()?;
    let (free_bytes, total_bytes) = device().memory_info();
    free.set_if_wanted(free_bytes as usize);
    total.set_if_wanted(total_bytes as usize);
    Ok(())
}

pub(crate) fn alloc_host(out: Out<*mut c_void>, bytes: usize) -> Answer {
    let (_context, mut state) = state::current()?;
    allow_unsafe(&mut state)?;
    drop(state);
    out.check()?;
    let layout = Layout::from_size_align(bytes, PAGE)
        .ok()
        .filter(|layout| layout.size() > 0)
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the size is not zero.
    let memory = unsafe { alloc::alloc_zeroed(layout) };
    if memory.is_null() {
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    state::lock().host_memory.insert(memory.addr(), layout);
    out.set(memory.cast())
}

/// Frees memory of [`alloc_host`]; false if it is none.
pub(crate) fn free_host(memory: *mut c_void) -> bool {
    let Some(layout) = state::lock().host_memory.remove(&memory.addr()) else { return false };
    // SAFETY: `alloc_host` allocated it with this layout, and the entry that was just
    // removed says that it was not freed since.
    unsafe { alloc::dealloc(memory.cast(), layout) };
    true
}

pub(crate) fn copy(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) -> Answer {
    in_legacy([dst, src], |memory| memory.copy(dst.0, src.0, bytes as u64)).map(|_| ())
}

pub(crate) fn copy_async(
    dst: CUdeviceptr,
    src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    let work = Work::Copy { dst: dst.0, src: src.0, bytes: bytes as u64 };
    submit_at(&[dst, src], stream, work)
}

/// Copies device memory to the host.
///
/// # Safety
///
/// `dst` is null or valid for writes of `bytes` bytes.
pub(crate) unsafe fn read(dst: Out<c_void>, src: CUdeviceptr, bytes: usize) -> Answer {
    // SAFETY: the caller's contract.
    unsafe { read_bytes(dst.as_ptr(), src, bytes) }
}

/// [`read`] in a stream.
///
/// # Safety
///
/// As [`read`].
pub(crate) unsafe fn read_async(
    dst: Out<c_void>,
    src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    let order = check_stream(stream, src)?;
    // SAFETY: the caller's contract.
    let to = unsafe { host_bytes_mut(dst.as_ptr(), bytes) }?;
    let memory = device().in_stream(order.get());
    unless_empty(bytes, || memory.read(src.0, to)).map_err(memory_failed)?;
    if !state::lock().is_page_locked(dst.as_ptr().addr()) {
        // The driver waits for the copy.
        order.synchronize();
    }
    Ok(())
}

/// Copies host memory to the device.
///
/// # Safety
///
/// `src` is null or valid for reads of `bytes` bytes.
pub(crate) unsafe fn write(dst: CUdeviceptr, src: *const c_void, bytes: usize) -> Answer {
    // SAFETY: the caller's contract.
    unsafe { write_bytes(dst, src, bytes) }
}

/// [`write()`] in a stream.
///
/// # Safety
///
/// As [`write()`].
pub(crate) unsafe fn write_async(
    dst: CUdeviceptr,
    src: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    let order = check_stream(stream, dst)?;
    // SAFETY: the caller's contract.
    let from = unsafe { host_bytes(src, bytes) }?;
    let memory = device().in_stream(order.get());
    unless_empty(bytes, || memory.write(dst.0, from)).map_err(memory_failed)
}

/// # Safety
///
/// `dst` is null or valid for writes of `bytes` bytes.
unsafe fn read_bytes(dst: *mut c_void, src: CUdeviceptr, bytes: usize) -> Answer {
    // SAFETY: the caller's contract.
    let dst = unsafe { host_bytes_mut(dst, bytes) }?;
    let order = in_legacy([src], |memory| unless_empty(bytes, || memory.read(src.0, dst)))?;
    order.synchronize();
    Ok(())
}

/// # Safety
///
/// `src` is null or valid for reads of `bytes` bytes.
unsafe fn write_bytes(dst: CUdeviceptr, src: *const c_void, bytes: usize) -> Answer {
    // SAFETY: the caller's contract.
    let src = unsafe { host_bytes(src, bytes) }?;
    let order = in_legacy([dst], |memory| unless_empty(bytes, || memory.write(dst.0, src)))?;
    order.synchronize();
    Ok(())
}

/// A copy of no bytes succeeds, wherever it goes.
fn unless_empty(
    bytes: usize,
    copy: impl FnOnce() -> Result<(), MemoryError>,
) -> Result<(), MemoryError> {
    if bytes == 0 { Ok(()) } else { copy() }
}

/// The host's side of a copy, which is written.
///
/// # Safety
///
/// `memory` is null or valid for writes of `bytes` bytes, and the caller's own during the copy.
unsafe fn host_bytes_mut<'m>(memory: *mut c_void, bytes: usize) -> Result<&'m mut [u8], CUresult> {
    check_host(memory, bytes)?;
    let memory = if bytes == 0 { NonNull::dangling().as_ptr() } else { memory.cast() };
    // SAFETY: of no bytes, or not null and in no device's address space, so that the caller vouches
    // for it.
    Ok(unsafe { slice::from_raw_parts_mut(memory, bytes) })
}

/// The host's side of a copy, which is read.
///
/// # Safety
///
/// `memory` is null or valid for reads of `bytes` bytes.
unsafe fn host_bytes<'m>(memory: *const c_void, bytes: usize) -> Result<&'m [u8], CUresult> {
    check_host(memory, bytes)?;
    let memory: *const u8 = if bytes == 0 { NonNull::dangling().as_ptr() } else { memory.cast() };
    // SAFETY: as in `host_bytes_mut`.
    Ok(unsafe { slice::from_raw_parts(memory, bytes) })
}

/// `pointer` can be the host's side of a copy.
fn check_host(pointer: *const c_void, bytes: usize) -> Answer {
    let wrong = bytes > 0 && pointer.is_null() || is_soft(pointer.addr() as u64);
    if wrong || bytes > isize::MAX as usize {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}

/// Defines the handlers of one fill, in its two forms.
macro_rules! fills {
    ($($fill:ident, $fill_async:ident, $work:ident: $type:ty;)*) => {$(
        pub(crate) fn $fill(dst: CUdeviceptr, value: $type, count: usize) -> Answer {
            in_legacy([dst], |memory| memory.fill(dst.0, value.to_ne_bytes(), count as u64))
                .map(|_| ())
        }

        pub(crate) fn $fill_async(
            dst: CUdeviceptr,
            value: $type,
            count: usize,
            stream: CUstream,
        ) -> Answer {
            let work = Work::$work { dst: dst.0, value, count: count as u64 };
            submit_at(&[dst], stream, work)
        }
    )*};
}

fills! {
    fill_u8, fill_u8_async, FillU8: u8;
    fill_u16, fill_u16_async, FillU16: u16;
    fill_u32, fill_u32_async, FillU32: u32;
}

/// One end of a pitched copy.
#[derive(Clone, Copy)]
enum End {
    Host(*mut c_void),
    Device(u64),
}

impl End {
    fn new(memory_type: c_uint, host: *mut c_void, device: CUdeviceptr) -> Result<Self, CUresult> {
        match memory_type {
            CU_MEMORYTYPE_HOST => Ok(Self::Host(host)),
            CU_MEMORYTYPE_DEVICE => Ok(Self::Device(device.0)),
            CU_MEMORYTYPE_UNIFIED if is_soft(device.0) => Ok(Self::Device(device.0)),
            CU_MEMORYTYPE_UNIFIED => {
                Ok(Self::Host(std::ptr::with_exposed_provenance_mut(device.0 as usize)))
            }
            _ => unsupported("arrays").map(|()| Self::Device(0)),
        }
    }

    fn row(self, offset: usize) -> Self {
        match self {
            Self::Host(base) => Self::Host(base.wrapping_byte_add(offset)),
            Self::Device(base) => Self::Device(base.wrapping_add(offset as u64)),
        }
    }
}

/// Copies a pitched rectangle row by row.
///
/// # Safety
///
/// Every row of a host end is valid for the read or write of it.
pub(crate) unsafe fn copy_2d(copy: &CUDA_MEMCPY2D) -> Answer {
    let src = End::new(copy.src_memory_type, copy.src_host.cast_mut(), copy.src_device)?;
    let dst = End::new(copy.dst_memory_type, copy.dst_host, copy.dst_device)?;
    for end in [src, dst] {
        if let End::Device(address) = end {
            in_legacy([CUdeviceptr(address)], |_| Ok(()))?;
        }
    }
    // Where row `row` of an end starts; rows must not reach into each other.
    let offset = |x: usize, y: usize, pitch: usize, row: usize| {
        let fits = copy.height == 1 || x.checked_add(copy.width_in_bytes)? <= pitch;
        y.checked_add(row)?.checked_mul(pitch)?.checked_add(x).filter(|_| fits)
    };
    for row in 0..copy.height {
        let from = offset(copy.src_x_in_bytes, copy.src_y, copy.src_pitch, row);
        let to = offset(copy.dst_x_in_bytes, copy.dst_y, copy.dst_pitch, row);
        let (Some(from), Some(to)) = (from, to) else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        let bytes = copy.width_in_bytes;
        match (src.row(from), dst.row(to)) {
            (End::Device(src), End::Device(dst)) => {
                self::copy(CUdeviceptr(dst), CUdeviceptr(src), bytes)?
            }
            (End::Device(src), End::Host(dst)) => {
                // SAFETY: the caller's contract for this row.
                unsafe { read_bytes(dst, CUdeviceptr(src), bytes) }?
            }
            (End::Host(src), End::Device(dst)) => {
                // SAFETY: the caller's contract for this row.
                unsafe { write_bytes(CUdeviceptr(dst), src, bytes) }?
            }
            (End::Host(src), End::Host(dst)) => {
                check_host(src, bytes)?;
                check_host(dst, bytes)?;
                // SAFETY: the caller's contract for this row; rows may overlap.
                unsafe { std::ptr::copy(src.cast::<u8>(), dst.cast::<u8>(), bytes) };
            }
        }
    }
    Ok(())
}
