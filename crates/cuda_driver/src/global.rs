//! Calls that belong to no device, and those whose handles are inside a structure.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::arg::{Arg, Out, Side, is_soft};
use crate::codes::{self, Answer};
use crate::gpu::{self, forward};
use crate::init;
use crate::route::{self, Target};
use crate::soft;
use crate::types::{
    CU_JIT_TARGET_FROM_CUCONTEXT, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED, CUDA_MEMCPY2D,
    CUdeviceptr, CUfunction, CUlaunchConfig, CUmodule, CUresult,
};

pub(crate) fn init(flags: c_uint) -> Answer {
    soft::check_environment()?;
    init::init(flags)
}

pub(crate) fn driver_version(out: Out<c_int>) -> Answer {
    if !gpu::is_available() {
        return out.set(soft::context::API_VERSION as c_int);
    }
    let version = out.as_ptr();
    // SAFETY: `version` is the caller's place for the number.
    unsafe { forward!(cuDriverGetVersion(version: *mut c_int)) }
}

pub(crate) fn error_string(error: CUresult, out: Out<*const c_char>) -> Answer {
    text_of(codes::find(error).map(|code| code.description.as_ptr()), out)
}

pub(crate) fn error_name(error: CUresult, out: Out<*const c_char>) -> Answer {
    text_of(codes::find(error).map(|code| code.name.as_ptr()), out)
}

fn text_of(text: Option<*const c_char>, out: Out<*const c_char>) -> Answer {
    out.set(text.unwrap_or(std::ptr::null()))?;
    text.map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// Loads a module into the current context.
///
/// # Safety
///
/// The contract of `cuModuleLoadDataEx`.
pub(crate) unsafe fn load_module(
    out: Out<CUmodule>,
    image: *const c_void,
    mut num_options: c_uint,
    options: Out<c_uint>,
    option_values: Out<*mut c_void>,
) -> Answer {
    let (module, options, option_values) = (out.as_ptr(), options.as_ptr(), option_values.as_ptr());
    // `cust` passes this option without a value. It asks for the default, so at the
    // end of the list it can be left out whether it has a value or not.
    while num_options > 0 && !options.is_null() {
        // SAFETY: the caller passes an array of `num_options` options.
        let last = unsafe { options.add(num_options as usize - 1).read() };
        if last != CU_JIT_TARGET_FROM_CUCONTEXT {
            break;
        }
        num_options -= 1;
    }
    match route::target(&[image.side()])? {
        // SAFETY: the caller's contract; fewer options need no more than more did.
        Target::Gpu => unsafe {
            forward!(cuModuleLoadDataEx(
                module: *mut CUmodule,
                image: *const c_void,
                num_options: c_uint,
                options: *mut c_uint,
                option_values: *mut *mut c_void
            ))
        },
        Target::Soft => {
            // SAFETY: the caller's contract.
            unsafe { soft::module::load_data_ex(out, image, num_options, options, option_values) }
        }
    }
}

/// Launches a kernel with attributes.
///
/// # Safety
///
/// The contract of `cuLaunchKernelEx`.
pub(crate) unsafe fn launch_kernel_ex(
    config: *const CUlaunchConfig,
    function: CUfunction,
    kernel_params: Out<*mut c_void>,
    extra: Out<*mut c_void>,
) -> Answer {
    if config.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so it is the caller's structure.
    let launch = unsafe { &*config };
    match route::target(&[function.side(), launch.stream.side()])? {
        Target::Gpu => {
            let (kernel_params, extra) = (kernel_params.as_ptr(), extra.as_ptr());
            // SAFETY: the caller's contract.
            unsafe {
                forward!(cuLaunchKernelEx(
                    config: *const CUlaunchConfig,
                    function: CUfunction,
                    kernel_params: *mut *mut c_void,
                    extra: *mut *mut c_void
                ))
            }
        }
        // SAFETY: the caller's contract.
        Target::Soft => unsafe { soft::launch::kernel_ex(launch, function, kernel_params, extra) },
    }
}

/// Frees host memory; the address alone tells whose it is.
///
/// # Safety
///
/// The contract of `cuMemFreeHost`.
pub(crate) unsafe fn free_host(memory: Out<c_void>) -> Answer {
    let memory = memory.as_ptr();
    if soft::memory::free_host(memory) {
        return Ok(());
    }
    if !gpu::is_available() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's contract.
    unsafe { forward!(cuMemFreeHost(memory: *mut c_void)) }
}

/// Copies a pitched rectangle.
///
/// # Safety
///
/// The contract of `cuMemcpy2D`.
pub(crate) unsafe fn copy_2d(copy: *const CUDA_MEMCPY2D) -> Answer {
    if copy.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so it is the caller's structure.
    let rectangle = unsafe { &*copy };
    let src = side_of_end(rectangle.src_memory_type, rectangle.src_device);
    let dst = side_of_end(rectangle.dst_memory_type, rectangle.dst_device);
    match route::target(&[src, dst])? {
        // SAFETY: the caller's contract.
        Target::Gpu => unsafe { forward!(cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D)) },
        // SAFETY: the caller's contract.
        Target::Soft => unsafe { soft::memory::copy_2d(rectangle) },
    }
}

/// The side of one end of a pitched copy. A unified address may be host memory,
/// which belongs to neither device, so only the tag counts there.
fn side_of_end(memory_type: c_uint, device: CUdeviceptr) -> Side {
    match memory_type {
        CU_MEMORYTYPE_DEVICE => device.side(),
        CU_MEMORYTYPE_UNIFIED if is_soft(device.0) => Side::Soft,
        _ => Side::Any,
    }
}
