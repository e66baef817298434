//! What happens when a kernel panics.

use core::arch::nvptx;
use core::panic::PanicInfo;

use crate::{io, thread};

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    report(info)
}

/// Prints where and why, and ends the launch. `cuda_builder` knows this function by its name: what
/// must not panic must not call it.
#[inline(never)]
fn report(info: &PanicInfo<'_>) -> ! {
    let thread = (thread::thread_idx_x(), thread::thread_idx_y(), thread::thread_idx_z());
    let block = (thread::block_idx_x(), thread::block_idx_y(), thread::block_idx_z());
    // `info` begins with "panicked at" and the place.
    io::print(format_args!("thread {thread:?} of block {block:?} {info}\n"));
    // SAFETY: ends the launch with an error.
    unsafe { nvptx::trap() }
}
