//! Limits of a context: the stack of a thread, and what kernels print and allocate.

use std::ffi::c_uint;
use std::sync::Arc;

use soft_cuda::Heap;

use super::instance::device as the_device;
use crate::last_error::explain;
use crate::types::CUresult;

/// `CUlimit`s.
const STACK_SIZE: c_uint = 0;
const PRINTF_FIFO_SIZE: c_uint = 1;
const MALLOC_HEAP_SIZE: c_uint = 2;

/// Bytes of local memory of a thread, the limit of every GPU.
const MAX_STACK: usize = 512 << 10;

/// The limits of a context. What kernels print has room in any case, so that one is only kept to be
/// read back.
pub(super) struct Limits {
    stack_bytes: u32,
    printf_bytes: usize,
    heap: Arc<Heap>,
}

/// What launches need of them.
pub(super) struct InForce {
    pub stack_bytes: u32,
    pub heap: Arc<Heap>,
}

impl Default for Limits {
    /// A GPU's.
    fn default() -> Self {
        Self { stack_bytes: 1 << 10, printf_bytes: 1 << 20, heap: Arc::default() }
    }
}

impl Limits {
    pub fn get(&self, limit: c_uint) -> Result<usize, CUresult> {
        match limit {
            STACK_SIZE => Ok(self.stack_bytes as usize),
            PRINTF_FIFO_SIZE => Ok(self.printf_bytes),
            // It was set, or is the default: it fits.
            MALLOC_HEAP_SIZE => Ok(self.heap.bytes() as usize),
            _ => Err(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT),
        }
    }

    pub fn set(&mut self, limit: c_uint, value: usize) -> Result<(), CUresult> {
        match limit {
            STACK_SIZE if value > MAX_STACK => {
                explain(format!(
                    "a thread has a stack of {MAX_STACK} bytes at most, and {value} are asked for"
                ));
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            STACK_SIZE => self.stack_bytes = value as u32,
            PRINTF_FIFO_SIZE => self.printf_bytes = value,
            MALLOC_HEAP_SIZE => self.set_heap(value as u64)?,
            _ => return Err(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT),
        }
        Ok(())
    }

    fn set_heap(&mut self, bytes: u64) -> Result<(), CUresult> {
        if self.heap.is_used() {
            explain(
                "a kernel that calls `malloc` or `free` has been launched; set the size of the \
                 heap before"
                    .into(),
            );
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let (free, _) = the_device().memory_info();
        if bytes > free {
            explain(format!(
                "a heap of {bytes} bytes does not fit in the {free} that the device has free"
            ));
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        self.heap = Arc::new(Heap::new(bytes));
        Ok(())
    }

    pub fn in_force(&self) -> InForce {
        InForce { stack_bytes: self.stack_bytes, heap: Arc::clone(&self.heap) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use soft_cuda::{LaunchConfig, LaunchOptions};

    const PTX: &str = ".version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b64 r) malloc (.param .b64 n);
.visible .entry k()
{ .reg .b64 %rd<2>; .param .b64 n; .param .b64 r; mov.b64 %rd1, 8; st.param.b64 [n], %rd1;
  call.uni (r), malloc, (n); ret; }";

    #[test]
    fn a_launch_with_the_heap_that_a_limit_replaces_leaks_nothing() {
        let device = the_device();
        let kernel = device.load(PTX).unwrap().kernel("k").unwrap();
        let (before, mut limits) = (device.memory_info().0, Limits::default());
        // A launch on another thread has taken the heap, and has not begun.
        let taken = limits.in_force();
        limits.set(MALLOC_HEAP_SIZE, 1 << 20).unwrap();
        let config = LaunchConfig { grid: [1; 3], block: [1; 3], dynamic_shared: 0 };
        let options = LaunchOptions { heap: Some(&taken.heap), ..LaunchOptions::default() };
        device.launch_with(&kernel, config, [1; 3], &[], options).unwrap();
        assert_eq!(device.memory_info().0, before - taken.heap.bytes());
        drop((taken, kernel));
        assert_eq!(device.memory_info().0, before);
    }
}
