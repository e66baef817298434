//! Launches the kernel `k` of a PTX file, as the planted bugs of `soft_cuda` have it.
//!
//! usage: launch_ptx FILE BLOCKS THREADS
//!
//! Its parameters are two buffers: 4096 words that count up, and unwritten memory. A kernel with
//! `griddepcontrol` is launched twice, and the second launch may begin before the first has ended.
//!
//! The device is the first GPU, else the software device for `sm_90a`. The exit status is 0 if the
//! launch succeeds, 1 if it fails, 2 if the PTX does not load.

use std::error::Error;
use std::process::ExitCode;
use std::ptr;

use cuda_driver::sys::{self, CUfunction, CUstream};
use cust::context::Context;
use cust::device::Device;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use cust::{CudaFlags, launch};

const WORDS: u32 = 4096;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, blocks, threads] = arguments.as_slice() else {
        return Err("usage: launch_ptx FILE BLOCKS THREADS".into());
    };
    let (blocks, threads): (u32, u32) = (blocks.parse()?, threads.parse()?);
    let ptx = std::fs::read_to_string(file)?;
    cust::init(CudaFlags::empty())?;
    let ordinal = match cuda_driver::gpu_count() {
        Ok(_) => 0,
        Err(_) => cuda_driver::soft_sm90_ordinal(),
    };
    let _context = Context::new(Device::get_device(ordinal)?)?;
    let module = match Module::from_ptx(&ptx, &[]) {
        Ok(module) => module,
        Err(error) => {
            let text = cuda_driver::last_error().unwrap_or_else(|| error.to_string());
            println!("does not load: {text}");
            return Ok(ExitCode::from(2));
        }
    };
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let input = DeviceBuffer::from_slice(&(0..WORDS).collect::<Vec<u32>>())?;
    // SAFETY: the words are never read here.
    let output = unsafe { DeviceBuffer::<u32>::uninitialized(WORDS as usize) }?;
    // SAFETY: the kernel may do anything, which is what it is launched for: the process ends behind
    // it, and reads nothing that it wrote.
    let launched = unsafe {
        launch!(module.k<<<blocks, threads, 0, stream>>>(
            input.as_device_ptr(),
            output.as_device_ptr()
        ))
    };
    if ptx.contains("griddepcontrol") && launched.is_ok() {
        let mut value = [0; 64];
        value[0] = 1;
        let id = sys::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        let mut attribute = sys::CUlaunchAttribute { id, pad: [0; 4], value };
        let config = sys::CUlaunchConfig {
            grid_dim_x: blocks,
            grid_dim_y: 1,
            grid_dim_z: 1,
            block_dim_x: threads,
            block_dim_y: 1,
            block_dim_z: 1,
            shared_mem_bytes: 0,
            stream: CUstream::from(stream.as_inner()),
            attrs: &raw mut attribute,
            num_attrs: 1,
        };
        let function = CUfunction::from(module.get_function("k")?.to_raw());
        let mut buffers = [input.as_device_ptr(), output.as_device_ptr()];
        let mut params = buffers.each_mut().map(|buffer| ptr::from_mut(buffer).cast());
        // SAFETY: as above.
        let result = unsafe {
            sys::cuLaunchKernelEx(&raw const config, function, params.as_mut_ptr(), ptr::null_mut())
        };
        if result != sys::CUresult::CUDA_SUCCESS {
            println!("{}", cuda_driver::last_error().unwrap_or_else(|| format!("{result:?}")));
            return Ok(ExitCode::FAILURE);
        }
    }
    match launched.and_then(|()| stream.synchronize()) {
        Ok(()) => {
            println!("success");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            println!("{}", cuda_driver::soft::last_fault().unwrap_or_else(|| error.to_string()));
            Ok(ExitCode::FAILURE)
        }
    }
}
