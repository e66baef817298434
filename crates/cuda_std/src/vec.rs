//! 128-bit accesses to global memory.
//!
//! A 128-bit access moves four f32 with one instruction, and a warp's 512 bytes with four
//! full 128-byte lines. Addresses must be multiples of 16.
//!
//! The four values are passed as a plain array: a struct aligned to 16 bytes would often take
//! a detour through local memory.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// Four f32 that one access moves.
pub type F32x4 = [f32; 4];

macro_rules! loads {
    ($($(#[$doc:meta])* $name:ident = $op:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `pointer` is in global memory, a multiple of 16, and valid for reading four f32;
        /// nothing writes them at the same time.
        #[gpu_only]
        #[inline(always)]
        #[must_use]
        pub unsafe fn $name(pointer: *const f32) -> F32x4 {
            let (x, y, z, w): (f32, f32, f32, f32);
            // SAFETY: the caller's contract.
            unsafe {
                asm!(
                    concat!($op, " {{{}, {}, {}, {}}}, [{}];"),
                    out(reg32) x,
                    out(reg32) y,
                    out(reg32) z,
                    out(reg32) w,
                    in(reg64) pointer,
                    options(readonly, nostack, preserves_flags),
                );
            }
            [x, y, z, w]
        }
    )*};
}

loads! {
    /// Loads four f32 from global memory (`ld.global.v4.b32`).
    load4 = "ld.global.v4.b32";
    /// Loads four f32 from the L2 cache (`ld.global.cg.v4.b32`), past the L1 cache, which
    /// other multiprocessors do not write: for what another block has stored.
    load4_cg = "ld.global.cg.v4.b32";
}

macro_rules! stores {
    ($($(#[$doc:meta])* $name:ident = $op:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `pointer` is in global memory, a multiple of 16, and valid for writing four f32;
        /// nothing else accesses them at the same time.
        #[gpu_only]
        #[inline(always)]
        pub unsafe fn $name(pointer: *mut f32, value: F32x4) {
            let [x, y, z, w] = value;
            // SAFETY: the caller's contract.
            unsafe {
                asm!(
                    concat!($op, " [{}], {{{}, {}, {}, {}}};"),
                    in(reg64) pointer,
                    in(reg32) x,
                    in(reg32) y,
                    in(reg32) z,
                    in(reg32) w,
                    options(nostack, preserves_flags),
                );
            }
        }
    )*};
}

stores! {
    /// Stores four f32 to global memory (`st.global.v4.b32`).
    store4 = "st.global.v4.b32";
    /// Stores four f32 to the L2 cache (`st.global.cg.v4.b32`): for what another block loads.
    store4_cg = "st.global.cg.v4.b32";
}
