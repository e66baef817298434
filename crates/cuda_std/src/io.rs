//! Printing: [`print!`](crate::print) and [`println!`](crate::println), as `std` has them.
//!
//! A thread formats in local memory and passes lines of at most [`LINE`] bytes to `vprintf`, so
//! lines of threads do not mix. The driver buffers them (`CU_LIMIT_PRINTF_FIFO_SIZE`, 1 MiB by
//! default) and writes them to the host's stdout when the host waits for the device. If the buffer
//! overflows, the oldest lines are lost. A text ends at a character `\0`.

use core::fmt::{self, Write};

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use core::arch::nvptx::vprintf;

/// The most bytes that are printed together.
pub const LINE: usize = 512;

/// Prints to the host's stdout, with the formatting of Rust's own `print!`; see [`io`](crate::io).
#[macro_export]
macro_rules! print {
    ($($arguments:tt)*) => {
        $crate::io::print(::core::format_args!($($arguments)*))
    };
}

/// As [`print!`](crate::print), with a new line at the end.
#[macro_export]
macro_rules! println {
    () => {
        $crate::io::print(::core::format_args!("\n"))
    };
    ($($arguments:tt)*) => {
        $crate::io::print(::core::format_args!("{}\n", ::core::format_args!($($arguments)*)))
    };
}

/// Prints what [`format_args!`] has made.
#[gpu_only]
#[inline(never)]
pub fn print(arguments: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; LINE + 1], length: 0 };
    // The line itself does not fail, and a `Display` that does has said so.
    let _ = line.write_fmt(arguments);
    line.flush();
}

/// Bytes that are printed together, and room for the zero behind them.
#[cfg_attr(not(target_arch = "nvptx64"), expect(dead_code, reason = "only a GPU prints"))]
struct Line {
    bytes: [u8; LINE + 1],
    length: usize,
}

impl Line {
    #[gpu_only]
    fn flush(&mut self) {
        if self.length == 0 {
            return;
        }
        if let Some(end) = self.bytes.get_mut(self.length) {
            *end = 0;
        }
        let text = self.bytes.as_ptr();
        // SAFETY: the format takes the address of a text that ends with a zero, which `&text` is.
        unsafe { vprintf(c"%s".as_ptr().cast(), (&raw const text).cast()) };
        self.length = 0;
    }
}

impl Write for Line {
    // By bytes, and without anything that could panic: this is part of every panic.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.length == LINE {
                self.flush();
            }
            if let Some(place) = self.bytes.get_mut(self.length) {
                *place = byte;
            }
            self.length += 1;
        }
        Ok(())
    }
}
