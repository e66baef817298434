//! Launches that may begin before the one in front of them has ended, with checks of races.

use std::ffi::c_void;

use cuda_driver::soft;
use cuda_driver::soft_cuda::{Checks, Config};
use cuda_driver::sys::{self, CUfunction, CUresult, CUstream};
use cust::context::Context;
use cust::device::Device;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};

const KERNEL: &str = ".version 7.2
.target sm_80
.address_size 64
.visible .entry stores(.param .u64 p) {
  .reg .b64 %rd<2>; ld.param.b64 %rd1, [p]; st.global.b32 [%rd1], 1; ret;
}
";

/// Launches the kernel in a stream.
fn launch(function: CUfunction, stream: CUstream, mut out: u64, early: bool) {
    let mut value = [0; 64];
    value[0] = early.into();
    let id = sys::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    let mut attribute = sys::CUlaunchAttribute { id, pad: [0; 4], value };
    let config = sys::CUlaunchConfig {
        grid_dim_x: 1,
        grid_dim_y: 1,
        grid_dim_z: 1,
        block_dim_x: 1,
        block_dim_y: 1,
        block_dim_z: 1,
        shared_mem_bytes: 0,
        stream,
        attrs: &mut attribute,
        num_attrs: 1,
    };
    let mut params = [(&raw mut out).cast::<c_void>()];
    // SAFETY: the kernel takes one address, of a buffer that outlives its launches, and what is
    // pointed to outlives the call.
    let launched = unsafe {
        sys::cuLaunchKernelEx(&config, function, params.as_mut_ptr(), std::ptr::null_mut())
    };
    assert_eq!(launched, CUresult::CUDA_SUCCESS);
}

#[test]
fn an_early_launch_races_with_the_one_in_front_in_its_stream() {
    let checks = Checks { races: true, ..Checks::NONE };
    let config = Config { checks, max_findings: 10, ..soft::default_config() };
    soft::configure(config).unwrap();
    cust::init(cust::CudaFlags::empty()).unwrap();
    let device = Device::get_device(cuda_driver::soft_ordinal()).unwrap();
    let _context = Context::new(device).unwrap();
    let module = Module::from_ptx(KERNEL, &[]).unwrap();
    let function = module.get_function("stores").unwrap();
    let function = CUfunction::from(function.to_raw());
    let [first, second] = [(); 2].map(|()| Stream::new(StreamFlags::NON_BLOCKING, None).unwrap());
    let out = DeviceBuffer::<u32>::zeroed(1).unwrap();
    let out = out.as_device_ptr().as_raw();
    let run = |stream: &Stream, early| {
        launch(function, CUstream::from(stream.as_inner()), out, early);
        soft::take_findings().to_string()
    };
    assert_eq!(run(&first, true), "");
    assert_eq!(run(&first, false), "");
    assert!(run(&first, true).contains("of kernel `stores`, launched before,"));
    // Behind waits of the host.
    first.synchronize().unwrap();
    assert_eq!(run(&second, true), "");
    second.synchronize().unwrap();
    assert_eq!(run(&second, true), "");
    cust::context::CurrentContext::synchronize().unwrap();
    assert_eq!(run(&second, true), "");
    assert_ne!(run(&second, true), "");
}
