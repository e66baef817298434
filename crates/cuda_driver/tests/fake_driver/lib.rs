//! A stand-in for `libcuda.so.1`, built by the test `forward`: contexts are
//! numbers, device memory is host memory, and what a real driver may lack is missing.
//!
//! Safety of all unsafe blocks here: the pointers come from the test through `cust`,
//! and are valid for the one value or the bytes that the driver API says.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

const SUCCESS: c_uint = 0;
const INVALID_CONTEXT: c_uint = 201;

/// A number that the test sets for this process.
fn setting(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn stack<R>(f: impl FnOnce(&mut Vec<usize>) -> R) -> R {
    STACK.with(|stack| f(&mut stack.borrow_mut()))
}

/// What answers how many devices there are in place of this library, if anything does.
static COUNT: OnceLock<unsafe extern "C" fn(*mut c_int) -> c_uint> = OnceLock::new();

/// Has `count` answer for this library.
#[unsafe(no_mangle)]
extern "C" fn forward_to(count: unsafe extern "C" fn(*mut c_int) -> c_uint) {
    let _ = COUNT.set(count);
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> c_uint {
    setting("FAKE_INIT", SUCCESS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_uint {
    unsafe { *version = setting("FAKE_VERSION", 12040) as c_int };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_uint {
    if let Some(other) = COUNT.get() {
        return unsafe { other(count) };
    }
    unsafe { *count = setting("FAKE_DEVICES", 2) as c_int };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_uint {
    unsafe { *device = ordinal };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) -> c_uint {
    let text = format!("Fake GPU {device}\0");
    assert!(text.len() <= len as usize);
    unsafe { name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(ctx: *mut usize, device: c_int) -> c_uint {
    unsafe { *ctx = 0x5555_0000 + 16 * device as usize };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> c_uint {
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxCreate_v2(ctx: *mut usize, flags: c_uint, device: c_int) -> c_uint {
    let new = 0x6666_0000 + 16 * (flags as usize + 100 * device as usize);
    unsafe { *ctx = new };
    stack(|stack| stack.push(new));
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDestroy_v2(ctx: usize) -> c_uint {
    stack(|stack| {
        if stack.last() == Some(&ctx) {
            stack.pop();
        }
    });
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(ctx: *mut usize) -> c_uint {
    unsafe { *ctx = stack(|stack| stack.last().copied().unwrap_or(0)) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(ctx: usize) -> c_uint {
    stack(|stack| {
        stack.pop();
        if ctx != 0 {
            stack.push(ctx);
        }
    });
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(ctx: usize) -> c_uint {
    stack(|stack| stack.push(ctx));
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPopCurrent_v2(ctx: *mut usize) -> c_uint {
    match stack(Vec::pop) {
        Some(top) => {
            unsafe { *ctx = top };
            SUCCESS
        }
        None => INVALID_CONTEXT,
    }
}

/// Contexts have their device's number in them.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> c_uint {
    match stack(|stack| stack.last().copied()) {
        Some(top) if top < 0x6666_0000 => unsafe { *device = (top - 0x5555_0000) as c_int / 16 },
        Some(top) => unsafe { *device = (top - 0x6666_0000) as c_int / 1600 },
        None => return INVALID_CONTEXT,
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> c_uint {
    if stack(|stack| stack.is_empty()) { INVALID_CONTEXT } else { SUCCESS }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_uint {
    if stack(|stack| stack.is_empty()) {
        return INVALID_CONTEXT;
    }
    // Freed never: the process ends soon.
    let memory = Box::leak(vec![0_u64; bytes.div_ceil(8)].into_boxed_slice());
    unsafe { *address = memory.as_mut_ptr() as u64 };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(_address: u64) -> c_uint {
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoD_v2(dst: u64, src: *const c_void, bytes: usize) -> c_uint {
    unsafe { (dst as *mut u8).copy_from_nonoverlapping(src.cast(), bytes) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(dst: *mut c_void, src: u64, bytes: usize) -> c_uint {
    unsafe { dst.cast::<u8>().copy_from_nonoverlapping(src as *const u8, bytes) };
    SUCCESS
}

/// Answers how many options it got.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut usize,
    _image: *const c_void,
    num_options: c_uint,
    _options: *mut c_uint,
    _values: *mut *mut c_void,
) -> c_uint {
    unsafe { *module = 0x7777_0000 + num_options as usize };
    SUCCESS
}

/// CUDA_ERROR_INVALID_CLUSTER_SIZE, which is newer than cust.
#[unsafe(no_mangle)]
extern "C" fn cuStreamCreateWithPriority(
    _stream: *mut usize,
    _flags: c_uint,
    _priority: c_int,
) -> c_uint {
    912
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut usize, _flags: c_uint) -> c_uint {
    unsafe { *event = 0x8888_0000 };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(_event: usize) -> c_uint {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(exec: usize, _stream: usize) -> c_uint {
    if exec == 0x9999_0000 { SUCCESS } else { 1 }
}

unsafe extern "C" fn elapsed_time(milliseconds: *mut f32, _start: usize, _end: usize) -> c_uint {
    unsafe { *milliseconds = 1.5 };
    SUCCESS
}

/// Has what is exported under no name.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    _flags: u64,
) -> c_uint {
    if version == 11040 && unsafe { CStr::from_ptr(name) } == c"cuEventElapsedTime" {
        unsafe { *address = elapsed_time as *mut c_void };
        return SUCCESS;
    }
    500
}
