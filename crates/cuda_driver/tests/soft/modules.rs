//! Modules: what loads, and what does not.

use super::*;

#[test]
fn bad_ptx_fills_the_log() {
    let (_device, _context) = soft();
    let bad = ".version 7.0\n.target sm_80\n.address_size 64\n\n.frobnicate k;\n";
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

/// A module of a kernel that the device runs, and two that it does not.
const SOME_RUN: &str = "
.version 7.0
.target sm_70
.address_size 64
.func unknown() {
  .loc 1 7 2
  frobnicate.b32;
  ret;
}
.visible .entry calls() { call unknown; ret; }
.visible .entry cannot_be_read() {
  mov.b32 {{a}}, b;
}
.visible .entry runs(.param .u64 out) {
  .reg .b64 a;
  ld.param.u64 a, [out];
  st.global.u32 [a], 7;
  ret;
}
.file 1 \"a.cu\"
";

#[test]
fn a_kernel_that_is_refused_takes_no_other_with_it() {
    let (_device, _context) = soft();
    let module = Module::from_ptx(SOME_RUN, &[]).unwrap();
    for (name, line, part) in [
        ("calls", 7, "no `frobnicate.b32`: this instruction is unknown (from a.cu:7:2)"),
        ("cannot_be_read", 12, "lists of operands do not nest"),
    ] {
        for _ in 0..2 {
            let refused = module.get_function(name).map(|_| ());
            assert_eq!(refused, Err(CudaError::InvalidPtx), "{name}");
            let text = cuda_driver::last_error().unwrap();
            assert!(text.contains(&format!("PTX line {line}: ")) && text.contains(part), "{text}");
        }
    }
    assert_eq!(module.get_function("nobody").map(|_| ()), Err(CudaError::NotFound));
    let out = DeviceBuffer::<u32>::zeroed(1).unwrap();
    let stream = stream();
    // SAFETY: the kernel writes one word of `out`.
    unsafe { launch!(module.runs<<<1, 1, 0, stream>>>(out.as_device_ptr())) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(out.as_host_vec().unwrap(), [7]);
}

#[test]
fn a_kernel_tells_what_it_is() {
    let (_device, _context) = soft();
    let module = Module::from_ptx(SOME_RUN, &[]).unwrap();
    let function = module.get_function("runs").unwrap();
    let attribute = |attribute| {
        let mut value = -1;
        // SAFETY: the module, and so the function, is alive.
        unsafe { sys::cuFuncGetAttribute(&mut value, attribute, raw(&function)) }.ok().unwrap();
        value
    };
    // What the PTX is for, and what runs it.
    assert_eq!(attribute(sys::CU_FUNC_ATTRIBUTE_PTX_VERSION), 70);
    assert_eq!(attribute(sys::CU_FUNC_ATTRIBUTE_BINARY_VERSION), 80);
    assert_eq!(attribute(sys::CU_FUNC_ATTRIBUTE_NUM_REGS), 16);
    assert_eq!(attribute(sys::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET), 0);
    assert_eq!(attribute(sys::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED), 0);
}

/// A kernel with these directives, in which more registers live than a thread may have.
fn many_registers(directives: &str) -> String {
    let load: String = (0..300).map(|i| format!("  ld.volatile.global.u32 r{i}, [a];\n")).collect();
    let store: String = (0..300).map(|i| format!("  st.global.u32 [a], r{i};\n")).collect();
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 out)
{directives}\n{{\n  .reg .b32 r<300>; .reg .b64 a;\n  ld.param.u64 a, [out];\n{load}{store}  ret;\n}}"
    )
}

#[test]
fn registers_limit_occupancy() {
    let (_device, _context) = soft();
    // Directives, threads of a block, registers, blocks that fit.
    for (directives, threads, registers, blocks) in [
        ("", 1024, 64, 1),
        ("", 256, 64, 4),
        (".maxntid 128", 128, 255, 2),
        (".maxntid 544", 544, 96, 1),
        (".maxntid 256\n.minnctapersm 4", 256, 64, 4),
        (".maxntid 128\n.maxnreg 40", 128, 40, 12),
    ] {
        let module = Module::from_ptx(many_registers(directives), &[]).unwrap();
        let function = module.get_function("k").unwrap();
        let mut found = 0;
        let attribute = sys::CU_FUNC_ATTRIBUTE_NUM_REGS;
        // SAFETY: the module, and so the function, is alive.
        unsafe { sys::cuFuncGetAttribute(&mut found, attribute, raw(&function)) }.ok().unwrap();
        assert_eq!(found, registers, "{directives}");
        let fit = function.max_active_blocks_per_multiprocessor(BlockSize::x(threads), 0);
        assert_eq!(fit, Ok(blocks), "{directives} {threads}");
    }
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
