//! The thread's place in its warp.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

macro_rules! special_registers {
    ($($(#[$doc:meta])* $name:ident = $register:literal;)*) => {$(
        $(#[$doc])*
        #[gpu_only]
        #[inline(always)]
        #[must_use]
        pub fn $name() -> u32 {
            let value: u32;
            // SAFETY: reads a special register.
            unsafe {
                asm!(
                    concat!("mov.u32 {}, ", $register, ";"),
                    out(reg32) value,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
            value
        }
    )*};
}

special_registers! {
    /// The thread's lane in its warp, 0 to 31.
    lane_id = "%laneid";
    /// This lane alone, as a mask (`%lanemask_eq`).
    lanemask_eq = "%lanemask_eq";
    /// The lanes below this one, as a mask (`%lanemask_lt`).
    lanemask_lt = "%lanemask_lt";
    /// This lane and those below, as a mask (`%lanemask_le`).
    lanemask_le = "%lanemask_le";
    /// The lanes above this one, as a mask (`%lanemask_gt`).
    lanemask_gt = "%lanemask_gt";
    /// This lane and those above, as a mask (`%lanemask_ge`).
    lanemask_ge = "%lanemask_ge";
}
