//! Every driver function that `cust` 0.3.2 references is the one of this crate.

macro_rules! check {
    ($count:literal: $($name:ident),*) => {
        let functions = [$((
            stringify!($name),
            cust::sys::$name as *const (),
            cuda_driver::sys::$name as *const (),
        )),*];
        assert_eq!(functions.len(), $count);
        for (name, declared, defined) in functions {
            assert_eq!(behind(declared), defined, "{name}");
        }
    };
}

/// The function that a C name is a jump to.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn behind(name: *const ()) -> *const () {
    // SAFETY: the code of a function of this program: `jmp` with an offset of 32 bits.
    let (code, offset) = unsafe { (*name.cast::<u8>(), name.byte_add(1).cast::<i32>()) };
    assert_eq!(code, 0xE9);
    // SAFETY: as above.
    name.wrapping_byte_offset(5 + unsafe { offset.read_unaligned() } as isize)
}

/// The function that a C name is a jump to.
#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
fn behind(name: *const ()) -> *const () {
    // SAFETY: the code of a function of this program: `b` with an offset of 26 bits.
    let code = unsafe { *name.cast::<i32>() };
    assert_eq!(code >> 26 & 0x3F, 5);
    name.wrapping_byte_offset((code << 6 >> 4) as isize)
}

/// The function that a C name is.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn behind(name: *const ()) -> *const () {
    name
}

#[rustfmt::skip]
#[test]
fn cust_calls_this_crate() {
    check! { 103:
        cuInit, cuDriverGetVersion, cuGetErrorString, cuDeviceGet, cuDeviceGetAttribute,
        cuDeviceGetCount, cuDeviceGetName, cuDeviceTotalMem_v2, cuDevicePrimaryCtxRetain,
        cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxSetFlags_v2,
        cuCtxCreate_v2, cuCtxDestroy_v2, cuCtxGetApiVersion, cuCtxGetCacheConfig, cuCtxGetCurrent,
        cuCtxGetDevice, cuCtxGetFlags, cuCtxGetLimit, cuCtxGetSharedMemConfig,
        cuCtxGetStreamPriorityRange, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuCtxSetCacheConfig,
        cuCtxSetCurrent, cuCtxSetLimit, cuCtxSetSharedMemConfig, cuCtxSynchronize,
        cuModuleGetFunction, cuModuleGetGlobal_v2, cuModuleLoad, cuModuleLoadData,
        cuModuleLoadDataEx, cuModuleUnload, cuLinkAddData_v2, cuLinkComplete, cuLinkCreate_v2,
        cuLinkDestroy, cuFuncGetAttribute, cuFuncSetCacheConfig, cuFuncSetSharedMemConfig,
        cuOccupancyAvailableDynamicSMemPerBlock, cuOccupancyMaxActiveBlocksPerMultiprocessor,
        cuOccupancyMaxPotentialBlockSize, cuLaunchKernel, cuLaunchHostFunc,
        cuStreamCreateWithPriority, cuStreamDestroy_v2, cuStreamGetFlags, cuStreamGetPriority,
        cuStreamSynchronize, cuStreamWaitEvent, cuEventCreate, cuEventDestroy_v2,
        cuEventElapsedTime, cuEventQuery, cuEventRecord, cuEventSynchronize, cuMemAdvise,
        cuMemAllocAsync, cuMemAllocHost_v2, cuMemAllocManaged, cuMemAlloc_v2, cuMemFreeAsync,
        cuMemFreeHost, cuMemFree_v2, cuMemGetInfo_v2, cuMemPrefetchAsync, cuMemcpyDtoD_v2,
        cuMemcpyDtoDAsync_v2, cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, cuMemcpyHtoD_v2,
        cuMemcpyHtoDAsync_v2, cuMemcpy2D_v2, cuMemcpyAtoH_v2, cuMemcpyHtoA_v2, cuMemsetD8_v2,
        cuMemsetD8Async, cuMemsetD16_v2, cuMemsetD16Async, cuMemsetD32_v2, cuMemsetD32Async,
        cuArray3DCreate_v2, cuArray3DGetDescriptor_v2, cuArrayDestroy, cuTexObjectCreate,
        cuTexObjectDestroy, cuTexObjectGetResourceDesc, cuSurfObjectCreate, cuSurfObjectDestroy,
        cuSurfObjectGetResourceDesc, cuImportExternalMemory, cuDestroyExternalMemory,
        cuExternalMemoryGetMappedBuffer, cuGraphAddKernelNode, cuGraphCreate, cuGraphDestroy,
        cuGraphGetEdges, cuGraphGetNodes, cuGraphKernelNodeGetParams, cuGraphNodeGetType
    }
    // Not used by cust itself, and declared by cust_raw for its users.
    check! { 8:
        cuFuncSetAttribute, cuStreamBeginCapture_v2, cuStreamEndCapture, cuStreamIsCapturing,
        cuGraphInstantiateWithFlags, cuGraphLaunch, cuGraphExecDestroy, cuDeviceGetPCIBusId
    }
}
