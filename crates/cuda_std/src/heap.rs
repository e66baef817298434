//! The device's heap, as an allocator for the crate `alloc` (the feature `alloc`).
//!
//! Kernels then have `Box`, `Vec`, `String` and `format!`. They need `extern crate alloc;` and
//! `CudaBuilder::alloc(true)`. Allocations are in global memory, and any thread may free them, in
//! this launch or a later one. They are slow. The heap has 8 MiB, unless the host sets
//! `CU_LIMIT_MALLOC_HEAP_SIZE`. A failed allocation is a panic.
//!
//! Collections and formatting call functions by address, so the driver cannot compute their stack.
//! A thread has 1 KiB then, unless the host sets `CU_LIMIT_STACK_SIZE`. A stack overflow is an
//! illegal access on a GPU, and a fault on the software device.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::nvptx::{free, malloc};
use core::ptr;

/// `malloc` and `free` of the device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceHeap;

#[global_allocator]
static HEAP: DeviceHeap = DeviceHeap;

/// The alignment of every result of `malloc` (CUDA Programming Guide: "Dynamic Global Memory
/// Allocation and Operations").
const ALIGN: usize = 16;

// SAFETY: `malloc` gives memory that nobody else has until it is freed. For a greater alignment the
// place is inside a larger piece, whose address is stored just before it.
unsafe impl GlobalAlloc for DeviceHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN {
            // SAFETY: no condition.
            return unsafe { malloc(layout.size()) }.cast();
        }
        let Some(bytes) = layout.size().checked_add(layout.align()) else { return ptr::null_mut() };
        // SAFETY: no condition. The aligned place is `ALIGN` to `layout.align()` bytes further.
        // Behind it the piece still has room for the layout's size, and before it for a pointer.
        unsafe {
            let piece: *mut u8 = malloc(bytes).cast();
            if piece.is_null() {
                return piece;
            }
            let aligned = piece.add(layout.align() - piece.addr() % layout.align());
            aligned.cast::<*mut u8>().sub(1).write(piece);
            aligned
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `alloc` returned the pointer for this layout.
        unsafe {
            let piece = match layout.align() <= ALIGN {
                true => pointer,
                false => pointer.cast::<*mut u8>().sub(1).read(),
            };
            free(piece.cast());
        }
    }
}
