//! Memory, copies and module variables.

use super::*;

#[test]
fn memory_round_trips() {
    let (_device, _context) = soft();
    let data: Vec<u32> = (0..10_000).collect();
    let mut a = DeviceBuffer::from_slice(&data).unwrap();
    // Routing depends on it: soft_cuda's addresses carry the tag.
    assert_eq!(a.as_device_ptr().as_raw() >> 48, 0x0050);
    assert_eq!(a.as_host_vec().unwrap(), data);

    let mut part = vec![0; 10];
    a.index(100..110).copy_to(&mut part).unwrap();
    assert_eq!(part, data[100..110]);

    let stream = stream();
    let mut b = DeviceBuffer::<u32>::zeroed(10_000).unwrap();
    // SAFETY: work on the software device is complete when the call returns.
    unsafe {
        b.async_copy_from(&a, &stream).unwrap();
        let mut back = LockedBuffer::new(&0, 10_000).unwrap();
        b.async_copy_to(&mut back, &stream).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(*back, data[..]);
    }
    a.set_8(0xAB).unwrap();
    assert_eq!(a.as_host_vec().unwrap(), [0xABAB_ABAB; 10_000]);
    a.set_16(0x1234).unwrap();
    assert_eq!(a.as_host_vec().unwrap(), [0x1234_1234; 10_000]);
    a.set_32(7).unwrap();
    assert_eq!(a.as_host_vec().unwrap(), [7; 10_000]);
}

#[test]
fn memory_is_counted_and_its_end_is_guarded() {
    let (_device, _context) = soft();
    let (free, total) = cust::memory::mem_get_info().unwrap();
    assert!(0 < free && free <= total);
    let too_much = DeviceBuffer::<u8>::zeroed(total + 1).map(|_| ());
    assert_eq!(too_much, Err(CudaError::OutOfMemory));
    assert!(cuda_driver::last_error().unwrap().contains("bytes of device memory"));
    // SAFETY: null is refused.
    let code = unsafe { sys::cuMemAlloc_v2(std::ptr::null_mut(), 1) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cuda_driver::last_error(), None, "no text outlives the next failure");

    let buffer = DeviceBuffer::<u8>::zeroed(16).unwrap();
    let address = buffer.as_device_ptr().as_raw();
    let mut host = [0_u8; 17];
    // SAFETY: the host buffer has 17 bytes.
    let code =
        unsafe { sys::cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), CUdeviceptr(address), host.len()) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    assert!(cuda_driver::last_error().unwrap().contains("16-byte allocation"));

    // SAFETY: not the start of an allocation, which is what is tested.
    let code = unsafe { sys::cuMemFree_v2(CUdeviceptr(address + 1)) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn a_soft_address_is_no_host_pointer() {
    let (_device, _context) = soft();
    let buffer = DeviceBuffer::<u8>::zeroed(16).unwrap();
    let address = CUdeviceptr(buffer.as_device_ptr().as_raw());
    // SAFETY: refused before anything is read.
    let code = unsafe { sys::cuMemcpyHtoD_v2(address, address.0 as *const c_void, 16) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn pitched_copies() {
    let (_device, _context) = soft();
    // 3 rows of 4 bytes out of rows of 10, from column 2 of row 1.
    let host: Vec<u8> = (0..50).collect();
    let mut device = DeviceBuffer::<u8>::zeroed(24).unwrap();
    let mut copy = sys::CUDA_MEMCPY2D {
        src_x_in_bytes: 2,
        src_y: 1,
        src_memory_type: sys::CU_MEMORYTYPE_HOST,
        src_host: host.as_ptr().cast(),
        src_device: CUdeviceptr(0),
        src_array: sys::CUarray::NULL,
        src_pitch: 10,
        dst_x_in_bytes: 0,
        dst_y: 0,
        dst_memory_type: sys::CU_MEMORYTYPE_DEVICE,
        dst_host: std::ptr::null_mut(),
        dst_device: CUdeviceptr(device.as_device_ptr().as_raw()),
        dst_array: sys::CUarray::NULL,
        dst_pitch: 8,
        width_in_bytes: 4,
        height: 3,
    };
    // SAFETY: rows 1 to 3 of 10 bytes lie in `host`, 3 rows of 8 bytes in `device`.
    unsafe { sys::cuMemcpy2D_v2(&copy) }.ok().unwrap();
    let expected =
        [12, 13, 14, 15, 0, 0, 0, 0, 22, 23, 24, 25, 0, 0, 0, 0, 32, 33, 34, 35, 0, 0, 0, 0];
    assert_eq!(device.as_host_vec().unwrap(), expected);

    copy.src_pitch = 5;
    // SAFETY: refused, since the rows would reach into each other.
    let code = unsafe { sys::cuMemcpy2D_v2(&copy) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    device.set_8(0).unwrap();
}

#[test]
fn module_variables() {
    let (_device, _context) = soft();
    let module = Module::from_ptx(KERNELS, &[]).unwrap();
    let mut symbol = module.get_global::<u32>(&CString::new("answer").unwrap()).unwrap();
    let mut value = 0;
    symbol.copy_to(&mut value).unwrap();
    assert_eq!(value, 42);
    symbol.copy_from(&43).unwrap();
    symbol.copy_to(&mut value).unwrap();
    assert_eq!(value, 43);
    let missing = module.get_global::<u32>(&CString::new("nothing").unwrap()).map(|_| ());
    assert_eq!(missing, Err(CudaError::NotFound));
}
