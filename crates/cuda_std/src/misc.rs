//! Clocks, and hooks for debuggers and profilers.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// The multiprocessor's clock cycles (`%clock64`). Differences count, within one block.
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn clock() -> u64 {
    let cycles: u64;
    // SAFETY: reads a special register. Without `pure` and `nomem`, accesses stay on their side.
    unsafe { asm!("mov.u64 {}, %clock64;", out(reg64) cycles, options(nostack, preserves_flags)) }
    cycles
}

/// Nanoseconds of a clock that all multiprocessors share (`%globaltimer`).
///
/// The driver chooses how often the clock goes on, which may be once in a microsecond.
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn global_timer() -> u64 {
    let nanos: u64;
    // SAFETY: as above.
    unsafe {
        asm!("mov.u64 {}, %globaltimer;", out(reg64) nanos, options(nostack, preserves_flags))
    }
    nanos
}

/// Stops in a debugger (`brkpt`). Without one the launch fails.
#[gpu_only]
#[inline(always)]
pub fn breakpoint() {
    // SAFETY: changes nothing.
    unsafe { asm!("brkpt;", options(nostack, preserves_flags)) }
}

/// Adds one, for this warp, to the performance counter `COUNTER` (`pmevent`).
///
/// It is checked at compile time that `COUNTER` is 0 to 15.
#[gpu_only]
#[inline(always)]
pub fn profiler_counter<const COUNTER: u32>() {
    const { assert!(COUNTER < 16, "the counters are 0 to 15") };
    // SAFETY: changes nothing that a kernel sees.
    unsafe { asm!("pmevent {};", const COUNTER, options(nostack, preserves_flags)) }
}
