//! Modules: what loads, and what does not.

use super::*;

#[test]
fn bad_ptx_fills_the_log() {
    let (_device, _context) = soft();
    let bad = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n  frobnicate.b32;\n}\n";
    assert_eq!(Module::from_ptx(bad, &[]).map(|_| ()), Err(CudaError::InvalidPtx));
    assert!(cuda_driver::last_error().unwrap().contains("line 5"));

    let text = CString::new(bad).unwrap();
    for size in [4096_usize, 10, 0] {
        let mut log = vec![0xFF_u8; size];
        let mut options = [
            sys::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            sys::CU_JIT_ERROR_LOG_BUFFER,
            sys::CU_JIT_TARGET_FROM_CUCONTEXT,
        ];
        let mut values: [*mut c_void; 2] = [size as *mut c_void, log.as_mut_ptr().cast()];
        let mut module = sys::CUmodule::NULL;
        // SAFETY: the image ends with a NUL, and each log option has its value. The last
        // option has none, as cust would pass it.
        let code = unsafe {
            sys::cuModuleLoadDataEx(
                &mut module,
                text.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_PTX);
        let written = values[0] as usize;
        assert!(written < size.max(1), "{written} of {size}");
        if size > 0 {
            assert_eq!(log[written], 0);
            let log = std::str::from_utf8(&log[..written]).unwrap();
            assert!("PTX line 5".starts_with(&log[..log.len().min(9)]), "{log}");
        }
    }
    let module = Module::from_ptx(KERNELS, &[ModuleJitOption::DetermineTargetFromContext]);
    module.unwrap();
}

#[test]
fn binaries_are_refused() {
    let (_device, _context) = soft();
    let refused = Err(CudaError::NoBinaryForGpu);
    assert_eq!(Module::from_cubin(b"\x7fELF\x02\x01\x01", &[]).map(|_| ()), refused);
    assert_eq!(Module::from_fatbin([0x50, 0xED, 0x55, 0xBA], &[]).map(|_| ()), refused);
    assert!(cuda_driver::last_error().unwrap().contains("PTX text"));
    assert_eq!(Module::from_file("/no/such/file").map(|_| ()), Err(CudaError::FileNotFound));
}

#[test]
fn ptx_loads_from_a_file() {
    let (_device, _context) = soft();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx");
    Module::from_file(path).unwrap().get_function("vector_add").unwrap();
}
