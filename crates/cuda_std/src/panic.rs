//! The panic handler of kernels.

use core::arch::nvptx;
use core::panic::PanicInfo;

use crate::{io, thread};

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    report(info)
}

/// Prints where and why, and ends the launch.
///
/// `cuda_builder` knows this function by its name: code that must not panic must not call it.
#[inline(never)]
fn report(info: &PanicInfo<'_>) -> ! {
    let [x, y, z] = [thread::thread_idx_x(), thread::thread_idx_y(), thread::thread_idx_z()];
    let [bx, by, bz] = [thread::block_idx_x(), thread::block_idx_y(), thread::block_idx_z()];
    let (file, line, column) = match info.location() {
        Some(location) => (location.file(), location.line(), location.column()),
        None => ("somewhere", 0, 0),
    };
    let message = info.message();
    io::print(format_args!(
        "thread ({x}, {y}, {z}) of block ({bx}, {by}, {bz}) panicked at \
         {file}:{line}:{column}:\n{message}\n"
    ));
    // SAFETY: ends the launch with an error.
    unsafe { nvptx::trap() }
}
