//! The driver API's functions and types under their C names.
//!
//! They are the 103 functions that `cust` 0.3.2 references, and a few more, such as stream capture.
//!
//! Parameters are those of `cuda.h`; NVIDIA's CUDA Driver API manual describes
//! them. [The crate's documentation](crate) says where a call goes. `cust`'s raw
//! handles convert with `From`: `CUfunction::from(function.to_raw())`.
//!
//! # Safety of every function
//!
//! As in C: pointers are null or valid for what the manual says the function
//! reads or writes, and buffers outlive the asynchronous work that uses them.
//! A handle of the software device is checked, so a stale one is an error there;
//! on a GPU it is undefined behaviour.
#![allow(non_snake_case, reason = "the names are C's")]
#![allow(clippy::too_many_arguments, reason = "the parameters are C's")]

pub use crate::types::*;

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::arg::Arg;
use crate::route::{self, Target};
use crate::{contexts, global, gpu, last_error, ordinals, soft};

/// The instruction that goes on at `target`.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
macro_rules! jump {
    () => {
        "jmp {target}"
    };
}

/// The instruction that goes on at `target`.
#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
macro_rules! jump {
    () => {
        "b {target}"
    };
}

/// Defines one C function. Every function of the API is made here, so none lets a panic
/// out into C, which would end the process.
///
/// On Linux its C name is a hidden symbol, a jump to the function. With `no_mangle` a shared
/// library would export the name, and the dynamic linker could mix this driver API with `libcuda`.
macro_rules! export {
    ($doc:expr, $name:ident($($arg:ident: $type:ty),*) => $answer:expr) => {
        #[doc = $doc]
        ///
        /// # Safety
        ///
        /// See the [module's documentation](self#safety-of-every-function).
        #[cfg_attr(
            not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
            unsafe(no_mangle)
        )]
        #[allow(unused_unsafe, reason = "some handlers are safe and take no pointer")]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> CUresult {
            last_error::answer(stringify!($name), || $answer)
        }

        #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
        std::arch::global_asm!(
            concat!(".pushsection .text.", stringify!($name), ",\"ax\""),
            concat!(".globl ", stringify!($name)),
            concat!(".hidden ", stringify!($name)),
            concat!(".type ", stringify!($name), ", STT_FUNC"),
            ".p2align 4",
            concat!(stringify!($name), ":"),
            jump!(),
            concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            ".popsection",
            target = sym $name,
        );

        #[cfg(test)]
        mod $name {
            #[allow(unused_imports, reason = "some functions take numbers alone")]
            use super::*;

            #[test]
            fn answers_a_panic() {
                $(
                    // SAFETY: the parameters are numbers, handles and pointers, and may be 0.
                    let $arg: $type = unsafe { std::mem::zeroed() };
                )*
                // SAFETY: nothing is read or written: the call panics first.
                last_error::tests::answers_a_panic(stringify!($name), || unsafe {
                    super::$name($($arg),*)
                });
            }
        }
    };
}

/// Defines C functions whose handler decides by itself where the call goes.
macro_rules! own {
    ($($name:ident($($arg:ident: $type:ty),* $(,)?) => $handler:path;)*) => {$(
        export! {
            concat!("`", stringify!($name), "` of the CUDA driver API."),
            $name($($arg: $type),*) => {
                // SAFETY: the caller keeps the driver API's contract, which is all that
                // the handlers and the outputs ask for.
                unsafe { $handler($(Arg::soft($arg)),*) }
            }
        }
    )*};
}

/// Defines C functions that go where their arguments say: to the function of the
/// same name in the driver, or to a handler of the software device.
macro_rules! routed {
    ($($name:ident($($arg:ident: $type:ty),* $(,)?) => $handler:path;)*) => {$(
        export! {
            concat!("`", stringify!($name), "` of the CUDA driver API."),
            $name($($arg: $type),*) => match route::target(&[$(Arg::side($arg)),*])? {
                // SAFETY: the driver's function of this name has this signature, and
                // the caller keeps the driver API's contract for the arguments.
                Target::Gpu => unsafe { gpu::forward!($name($($arg: $type),*)) },
                // SAFETY: as above: the contract is all that the handlers and the
                // outputs ask for.
                Target::Soft => unsafe { $handler($(Arg::soft($arg)),*) },
            }
        }
    )*};
}

/// Defines C functions that the software device does not support.
macro_rules! gpu_only {
    ($($name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {$(
        export! {
            concat!("`", stringify!($name), "` of the CUDA driver API; GPUs only."),
            $name($($arg: $type),*) => match route::target(&[$(Arg::side($arg)),*])? {
                // SAFETY: the driver's function of this name has this signature, and
                // the caller keeps the driver API's contract for the arguments.
                Target::Gpu => unsafe { gpu::forward!($name($($arg: $type),*)) },
                Target::Soft => soft::unsupported(stringify!($name)),
            }
        }
    )*};
}

// Initialisation, errors, ordinals, the thread's stack of contexts, and what takes its
// handles in structures.
own! {
    cuInit(flags: c_uint) => global::init;
    cuDriverGetVersion(version: *mut c_int) => global::driver_version;
    cuGetErrorString(error: CUresult, out: *mut *const c_char) => global::error_string;
    cuGetErrorName(error: CUresult, out: *mut *const c_char) => global::error_name;
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int) => ordinals::device;
    cuDeviceGetCount(count: *mut c_int) => ordinals::device_count;
    cuCtxCreate_v2(ctx: *mut CUcontext, flags: c_uint, device: CUdevice) => contexts::create;
    cuCtxDestroy_v2(ctx: CUcontext) => contexts::destroy;
    cuCtxGetCurrent(ctx: *mut CUcontext) => contexts::current;
    cuCtxPopCurrent_v2(ctx: *mut CUcontext) => contexts::pop;
    cuCtxPushCurrent_v2(ctx: CUcontext) => contexts::push;
    cuCtxSetCurrent(ctx: CUcontext) => contexts::set_current;
    cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        num_options: c_uint,
        options: *mut c_uint,
        option_values: *mut *mut c_void,
    ) => global::load_module;
    cuLaunchKernelEx(
        config: *const CUlaunchConfig, function: CUfunction, kernel_params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) => global::launch_kernel_ex;
    cuMemFreeHost(memory: *mut c_void) => global::free_host;
    cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D) => global::copy_2d;
}

// Devices and contexts.
routed! {
    cuDeviceGetAttribute(
        value: *mut c_int, attribute: c_int, device: CUdevice,
    ) => soft::device::attribute;
    cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice) => soft::device::name;
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) => soft::device::total_memory;
    cuDevicePrimaryCtxRetain(
        ctx: *mut CUcontext, device: CUdevice,
    ) => soft::context::retain_primary;
    cuDevicePrimaryCtxRelease_v2(device: CUdevice) => soft::context::release_primary;
    cuDevicePrimaryCtxReset_v2(device: CUdevice) => soft::context::reset_primary;
    cuDevicePrimaryCtxSetFlags_v2(
        device: CUdevice, flags: c_uint,
    ) => soft::context::set_primary_flags;
    cuCtxGetApiVersion(ctx: CUcontext, version: *mut c_uint) => soft::context::api_version;
    cuCtxGetCacheConfig(config: *mut c_uint) => soft::context::cache_config;
    cuCtxGetDevice(device: *mut CUdevice) => soft::context::device;
    cuCtxGetFlags(flags: *mut c_uint) => soft::context::flags;
    cuCtxGetLimit(value: *mut usize, limit: c_uint) => soft::context::limit;
    cuCtxGetSharedMemConfig(config: *mut c_uint) => soft::context::shared_config;
    cuCtxGetStreamPriorityRange(
        least_priority: *mut c_int, greatest_priority: *mut c_int,
    ) => soft::context::stream_priority_range;
    cuCtxSetCacheConfig(config: c_uint) => soft::context::set_cache_config;
    cuCtxSetLimit(limit: c_uint, value: usize) => soft::context::set_limit;
    cuCtxSetSharedMemConfig(config: c_uint) => soft::context::set_shared_config;
    cuCtxSynchronize() => soft::context::synchronize;
}

// Peers: devices that access each other's memory. On a GPU only GPUs are peers, and a copy of
// memory between a GPU and a software device is an error: it goes through the host.
routed! {
    cuDeviceCanAccessPeer(
        can: *mut c_int, device: CUdevice, peer: CUdevice,
    ) => soft::peer::can_access;
    cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) => soft::peer::enable;
    cuCtxDisablePeerAccess(peer: CUcontext) => soft::peer::disable;
    cuMemcpyPeer(
        dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext,
        bytes: usize,
    ) => soft::peer::copy;
    cuMemcpyPeerAsync(
        dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext,
        bytes: usize, stream: CUstream,
    ) => soft::peer::copy_async;
}

// Modules and functions.
routed! {
    cuModuleGetFunction(
        function: *mut CUfunction, module: CUmodule, name: *const c_char,
    ) => soft::module::function;
    cuModuleGetGlobal_v2(
        address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char,
    ) => soft::module::global;
    cuModuleLoad(module: *mut CUmodule, path: *const c_char) => soft::module::load_file;
    cuModuleLoadData(module: *mut CUmodule, image: *const c_void) => soft::module::load_data;
    cuModuleUnload(module: CUmodule) => soft::module::unload;
    cuFuncGetAttribute(
        value: *mut c_int, attribute: c_int, function: CUfunction,
    ) => soft::function::attribute;
    cuFuncSetCacheConfig(function: CUfunction, config: c_uint) => soft::function::set_cache_config;
    cuFuncSetSharedMemConfig(
        function: CUfunction, config: c_uint,
    ) => soft::function::set_shared_config;
    cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: *mut usize, function: CUfunction, blocks: c_int, block_size: c_int,
    ) => soft::function::available_dynamic_shared;
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: CUfunction, block_size: c_int, dynamic_shared: usize,
    ) => soft::function::max_active_blocks;
    cuOccupancyMaxActiveClusters(
        clusters: *mut c_int, function: CUfunction, config: *const CUlaunchConfig,
    ) => soft::function::max_active_clusters;
    cuOccupancyMaxPotentialBlockSize(
        min_grid_size: *mut c_int, block_size: *mut c_int, function: CUfunction,
        dynamic_shared_of: CUoccupancyB2DSize, dynamic_shared: usize, block_size_limit: c_int,
    ) => soft::function::max_potential_block_size;
    cuLaunchKernel(
        function: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint,
        block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, dynamic_shared: c_uint,
        stream: CUstream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void,
    ) => soft::launch::kernel;
    cuLaunchHostFunc(
        stream: CUstream, function: CUhostFn, user_data: *mut c_void,
    ) => soft::launch::host_function;
    cuFuncSetAttribute(
        function: CUfunction, attribute: c_int, value: c_int,
    ) => soft::function::set_attribute;
}

// Streams and events.
routed! {
    cuStreamCreateWithPriority(
        stream: *mut CUstream, flags: c_uint, priority: c_int,
    ) => soft::stream::create;
    cuStreamDestroy_v2(stream: CUstream) => soft::stream::destroy;
    cuStreamGetFlags(stream: CUstream, flags: *mut c_uint) => soft::stream::flags;
    cuStreamGetPriority(stream: CUstream, priority: *mut c_int) => soft::stream::priority;
    cuStreamSynchronize(stream: CUstream) => soft::stream::synchronize;
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) => soft::stream::wait_event;
    cuEventCreate(event: *mut CUevent, flags: c_uint) => soft::event::create;
    cuEventDestroy_v2(event: CUevent) => soft::event::destroy;
    cuEventElapsedTime(
        milliseconds: *mut f32, start: CUevent, end: CUevent,
    ) => soft::event::elapsed;
    cuEventQuery(event: CUevent) => soft::event::finished;
    cuEventRecord(event: CUevent, stream: CUstream) => soft::event::record;
    cuEventSynchronize(event: CUevent) => soft::event::finished;
}

// Stream capture and graphs.
routed! {
    cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint) => soft::graph::begin_capture;
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) => soft::graph::end_capture;
    cuStreamIsCapturing(stream: CUstream, status: *mut c_uint) => soft::graph::is_capturing;
    cuGraphInstantiateWithFlags(
        exec: *mut CUgraphExec, graph: CUgraph, flags: u64,
    ) => soft::graph::instantiate;
    cuGraphLaunch(exec: CUgraphExec, stream: CUstream) => soft::graph::launch;
    cuGraphExecDestroy(exec: CUgraphExec) => soft::graph::destroy_exec;
    cuGraphDestroy(graph: CUgraph) => soft::graph::destroy;
}

// Memory.
routed! {
    cuMemAllocAsync(
        address: *mut CUdeviceptr, bytes: usize, stream: CUstream,
    ) => soft::memory::alloc_async;
    cuMemAllocHost_v2(out: *mut *mut c_void, bytes: usize) => soft::memory::alloc_host;
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) => soft::memory::alloc;
    cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) => soft::memory::free_async;
    cuMemFree_v2(address: CUdeviceptr) => soft::memory::free;
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) => soft::memory::info;
    cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) => soft::memory::copy;
    cuMemcpyDtoDAsync_v2(
        dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream,
    ) => soft::memory::copy_async;
    cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize) => soft::memory::read;
    cuMemcpyDtoHAsync_v2(
        dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream,
    ) => soft::memory::read_async;
    cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize) => soft::memory::write;
    cuMemcpyHtoDAsync_v2(
        dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream,
    ) => soft::memory::write_async;
    cuMemsetD8_v2(dst: CUdeviceptr, value: u8, count: usize) => soft::memory::fill_u8;
    cuMemsetD8Async(
        dst: CUdeviceptr, value: u8, count: usize, stream: CUstream,
    ) => soft::memory::fill_u8_async;
    cuMemsetD16_v2(dst: CUdeviceptr, value: u16, count: usize) => soft::memory::fill_u16;
    cuMemsetD16Async(
        dst: CUdeviceptr, value: u16, count: usize, stream: CUstream,
    ) => soft::memory::fill_u16_async;
    cuMemsetD32_v2(dst: CUdeviceptr, value: c_uint, count: usize) => soft::memory::fill_u32;
    cuMemsetD32Async(
        dst: CUdeviceptr, value: c_uint, count: usize, stream: CUstream,
    ) => soft::memory::fill_u32_async;
}

// Tensor maps.
routed! {
    cuTensorMapEncodeTiled(
        tensor_map: *mut CUtensorMap, data_type: c_uint, rank: c_uint, address: *mut c_void,
        global_dim: *const u64, global_strides: *const u64, box_dim: *const c_uint,
        element_strides: *const c_uint, interleave: c_uint, swizzle: c_uint, l2_promotion: c_uint,
        oob_fill: c_uint,
    ) => soft::tensor::encode_tiled;
}

// What only a GPU has. Structures that this crate has no use for are `c_void`.
gpu_only! {
    cuLinkAddData_v2(
        state: CUlinkState, kind: c_uint, data: *mut c_void, size: usize, name: *const c_char,
        num_options: c_uint, options: *mut c_uint, option_values: *mut *mut c_void,
    );
    cuLinkComplete(state: CUlinkState, cubin_out: *mut *mut c_void, size_out: *mut usize);
    cuLinkCreate_v2(
        num_options: c_uint, options: *mut c_uint, option_values: *mut *mut c_void,
        state: *mut CUlinkState,
    );
    cuLinkDestroy(state: CUlinkState);
    cuMemAdvise(address: CUdeviceptr, count: usize, advice: c_uint, device: CUdevice);
    cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint);
    cuMemPrefetchAsync(address: CUdeviceptr, count: usize, destination: CUdevice, stream: CUstream);
    cuMemcpyAtoH_v2(dst: *mut c_void, src_array: CUarray, src_offset: usize, bytes: usize);
    cuMemcpyHtoA_v2(dst_array: CUarray, dst_offset: usize, src: *const c_void, bytes: usize);
    cuArray3DCreate_v2(array: *mut CUarray, descriptor: *const c_void);
    cuArray3DGetDescriptor_v2(descriptor: *mut c_void, array: CUarray);
    cuArrayDestroy(array: CUarray);
    cuTexObjectCreate(
        texture: *mut u64, resource: *const c_void, description: *const c_void,
        view: *const c_void,
    );
    cuTexObjectDestroy(texture: u64);
    cuTexObjectGetResourceDesc(resource: *mut c_void, texture: u64);
    cuSurfObjectCreate(surface: *mut u64, resource: *const c_void);
    cuSurfObjectDestroy(surface: u64);
    cuSurfObjectGetResourceDesc(resource: *mut c_void, surface: u64);
    cuImportExternalMemory(memory: *mut CUexternalMemory, descriptor: *const c_void);
    cuDestroyExternalMemory(memory: CUexternalMemory);
    cuExternalMemoryGetMappedBuffer(
        address: *mut CUdeviceptr, memory: CUexternalMemory, descriptor: *const c_void,
    );
    cuGraphAddKernelNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode,
        num_dependencies: usize, node_params: *const c_void,
    );
    cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
    cuGraphGetEdges(
        graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, num_edges: *mut usize,
    );
    cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, num_nodes: *mut usize);
    cuGraphKernelNodeGetParams(node: CUgraphNode, node_params: *mut c_void);
    cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_uint);
    cuDeviceGetPCIBusId(name: *mut c_char, len: c_int, device: CUdevice);
}
