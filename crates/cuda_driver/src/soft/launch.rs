//! Launches on the software device.

use std::ffi::{c_uint, c_void};
use std::slice;
use std::sync::Arc;

use soft_cuda::{Kernel, LaunchConfig};

use super::attributes::{attributes, cluster_dimension};
use super::capture::{context_outside, submit};
use super::function;
use super::instance::unsupported;
use super::state;
use super::work::Work;
use crate::arg::Out;
use crate::codes::Answer;
use crate::last_error::explain;
use crate::types::{
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, CU_LAUNCH_ATTRIBUTE_IGNORE,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, CUfunction, CUhostFn, CUlaunchConfig,
    CUresult, CUstream,
};

/// Names of the entries in the `extra` array of a launch.
const EXTRA_END: usize = 0;
const EXTRA_BUFFER_POINTER: usize = 1;
const EXTRA_BUFFER_SIZE: usize = 2;

/// Launches a kernel.
///
/// # Safety
///
/// The contract of `cuLaunchKernel`.
#[expect(clippy::too_many_arguments, reason = "the parameters are C's")]
pub(crate) unsafe fn kernel(
    function: CUfunction,
    grid_dim_x: c_uint,
    grid_dim_y: c_uint,
    grid_dim_z: c_uint,
    block_dim_x: c_uint,
    block_dim_y: c_uint,
    block_dim_z: c_uint,
    dynamic_shared: c_uint,
    stream: CUstream,
    kernel_params: Out<*mut c_void>,
    extra: Out<*mut c_void>,
) -> Answer {
    let grid = [grid_dim_x, grid_dim_y, grid_dim_z];
    let block = [block_dim_x, block_dim_y, block_dim_z];
    let config = LaunchConfig { grid, block, dynamic_shared };
    // SAFETY: the caller's contract.
    unsafe {
        launch(function, config, (None, false), stream, kernel_params.as_ptr(), extra.as_ptr())
    }
}

/// Launches a kernel with attributes.
///
/// Clusters are supported: the one that the PTX requires, or any if it requires none.
///
/// # Safety
///
/// The contract of `cuLaunchKernelEx`.
pub(crate) unsafe fn kernel_ex(
    launch_config: &CUlaunchConfig,
    function: CUfunction,
    kernel_params: Out<*mut c_void>,
    extra: Out<*mut c_void>,
) -> Answer {
    let (mut clusters, mut early) = (None, false);
    // SAFETY: the caller's contract.
    for attribute in unsafe { attributes(launch_config) }? {
        let (dimensions, _) = attribute.value.as_chunks::<4>();
        let cluster = cluster_dimension(attribute).unwrap_or([1; 3]);
        let is_taken = {
            let mut state = state::lock();
            let kernel = &function::find(&mut state, function)?.kernel;
            kernel.takes_clusters() || cluster == kernel.required_cluster().unwrap_or([1; 3])
        };
        match attribute.id {
            // There are no multiprocessors to spread blocks over.
            CU_LAUNCH_ATTRIBUTE_IGNORE
            | CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => {}
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION => {
                early = dimensions[0] != [0; 4]
            }
            CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION if is_taken => clusters = Some(cluster),
            id => return unsupported(&format!("launch attribute {id}")),
        }
    }
    let config = LaunchConfig {
        grid: [launch_config.grid_dim_x, launch_config.grid_dim_y, launch_config.grid_dim_z],
        block: [launch_config.block_dim_x, launch_config.block_dim_y, launch_config.block_dim_z],
        dynamic_shared: launch_config.shared_mem_bytes,
    };
    let stream = launch_config.stream;
    // SAFETY: the caller's contract.
    unsafe {
        launch(function, config, (clusters, early), stream, kernel_params.as_ptr(), extra.as_ptr())
    }
}

/// Launches a kernel in `clusters`, or in the ones that it requires.
///
/// If `early`, it may begin before the launch in front of it has ended.
///
/// # Safety
///
/// One of `kernel_params` and `extra` describes the kernel's parameters as
/// `cuLaunchKernel` says.
unsafe fn launch(
    function: CUfunction,
    config: LaunchConfig,
    (clusters, early): (Option<[u32; 3]>, bool),
    stream: CUstream,
    kernel_params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    let (kernel, cluster) = {
        let mut state = state::lock();
        let stream_context = state.context_of(stream)?;
        let function = function::find(&mut state, function)?;
        if function.context != stream_context {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let limit = function.max_dynamic_shared;
        if config.dynamic_shared > limit {
            explain(format!(
                "kernel {} may have {limit} bytes of dynamic shared memory and the launch asks \
                 for {}; raise CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES first",
                function.kernel.name(),
                config.dynamic_shared
            ));
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        (function.kernel.clone(), function.cluster_for(clusters)?)
    };
    // SAFETY: the caller's contract.
    let params = unsafe { packed_params(&kernel, kernel_params, extra) }?;
    submit(stream, &[Work::Launch { kernel, config, cluster, early, params }])
}

/// The parameters as one block of bytes in the kernel's own layout.
///
/// # Safety
///
/// As [`launch`].
unsafe fn packed_params(
    kernel: &Arc<Kernel>,
    kernel_params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<Vec<u8>, CUresult> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    if !extra.is_null() {
        if !kernel_params.is_null() {
            return Err(invalid);
        }
        // SAFETY: the caller's contract.
        let mut packed = unsafe { packed_extra(extra) }.ok_or(invalid)?;
        // A C structure may end in padding.
        packed.truncate(kernel.params_size());
        return Ok(packed);
    }
    let mut packed = vec![0; kernel.params_size()];
    if !packed.is_empty() && kernel_params.is_null() {
        explain(format!("kernel {} has parameters and got none", kernel.name()));
        return Err(invalid);
    }
    for (index, param) in kernel.params().iter().enumerate() {
        // SAFETY: the array has a pointer for each parameter of the kernel.
        let value = unsafe { kernel_params.add(index).read() }.cast_const().cast::<u8>();
        if value.is_null() {
            explain(format!("parameter {index} of kernel {} is null", kernel.name()));
            return Err(invalid);
        }
        let at = param.offset..param.offset + param.size;
        // SAFETY: the pointer is to a value of the parameter's size; `packed` has room
        // for the last byte of every parameter.
        unsafe { packed[at].as_mut_ptr().copy_from_nonoverlapping(value, param.size) };
    }
    Ok(packed)
}

/// The buffer that an `extra` array describes.
///
/// # Safety
///
/// `extra` is an array of names and values that ends as `cuLaunchKernel` says.
unsafe fn packed_extra(extra: *mut *mut c_void) -> Option<Vec<u8>> {
    let (mut buffer, mut size) = (std::ptr::null::<u8>(), 0);
    let mut at = extra;
    loop {
        // SAFETY: the array goes on until its end marker, which was not seen yet.
        let name = unsafe { at.read() }.addr();
        if name == EXTRA_END {
            break;
        }
        // SAFETY: a name that is not the end marker has a value.
        let value = unsafe { at.add(1).read() };
        match name {
            EXTRA_BUFFER_POINTER => buffer = value.cast_const().cast(),
            EXTRA_BUFFER_SIZE if !value.is_null() => {
                // SAFETY: the value of this name is a pointer to a `size_t`.
                size = unsafe { value.cast::<usize>().read() };
            }
            _ => return None,
        }
        // SAFETY: the next name, or the end marker, follows the value.
        at = unsafe { at.add(2) };
    }
    match (buffer.is_null(), size) {
        (_, 0) => Some(Vec::new()),
        (true, _) => None,
        // SAFETY: the caller's buffer has this many bytes.
        (false, _) => Some(unsafe { slice::from_raw_parts(buffer, size) }.to_vec()),
    }
}

/// Calls `function` at once: all earlier work in the stream is complete.
///
/// # Safety
///
/// The contract of `cuLaunchHostFunc`.
pub(crate) unsafe fn host_function(
    stream: CUstream,
    function: CUhostFn,
    user_data: Out<c_void>,
) -> Answer {
    let order = {
        let mut state = state::lock();
        let context = context_outside(&mut state, stream)?;
        state.order(stream, context)
    };
    let Some(function) = function else { return Err(CUresult::CUDA_ERROR_INVALID_VALUE) };
    // What it tells the host comes after the stream's work.
    order.synchronize();
    // SAFETY: the caller passes the function together with its data.
    unsafe { function(user_data.as_ptr()) };
    Ok(())
}
