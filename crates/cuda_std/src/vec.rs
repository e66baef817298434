//! Accesses to global memory of up to 128 bits, with cache operators.
//!
//! A 128-bit access moves four f32 with one instruction, and a warp's 512 bytes with four full
//! 128-byte lines. Addresses must be multiples of the bytes moved.
//!
//! The values are passed as a plain array: a struct aligned to 16 bytes would often take a detour
//! through local memory.

use core::mem::MaybeUninit;

use cuda_std_macros::gpu_only;

use crate::access::{self, loads, stores};

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// Four f32 that one access moves.
pub type F32x4 = [f32; 4];

/// A value on a multiple of 16 bytes, in memory that kernels share with the host.
///
/// Accesses to an `Aligned<[f32; 4]>` behind a reference are one `ld.global.v4` or `st.global.v4`
/// each, without `unsafe`. The size is also a multiple of 16, so a smaller value has padding.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aligned<T>(pub T);

impl<T: Copy, const N: usize> Aligned<[T; N]> {
    /// The values, `N` at a time, between those before the first multiple of 16 bytes and those
    /// left over.
    ///
    /// A buffer of the host's begins on such a multiple, so none are before it.
    ///
    /// That `N` values make a multiple of 16 bytes is checked at compile time.
    #[inline(always)]
    #[must_use]
    pub fn split(values: &[T]) -> (&[T], &[Self], &[T]) {
        const { assert!(size_of::<Self>() == size_of::<[T; N]>(), "a multiple of 16 bytes") };
        // SAFETY: there is no padding: its bytes are those of `N` values side by side.
        unsafe { values.align_to() }
    }
}

/// Whether `N` elements have the size of one access.
pub(crate) const fn is_one_access<T, const N: usize>() -> bool {
    matches!(size_of::<[T; N]>(), 1 | 2 | 4 | 8 | 16)
}

macro_rules! global_loads {
    ($($(#[$doc:meta])* $name:ident, $place:ident = $op:literal;)*) => {$(
        #[derive(Clone, Copy)]
        struct $place(u64);

        loads! { $place, reg64 = $op; }

        $(#[$doc])*
        ///
        /// Two or four elements, or one: `[T; N]` makes 1, 2, 4, 8 or 16 bytes, which is checked
        /// at compile time.
        ///
        /// # Safety
        /// - `pointer` is in global memory, a multiple of the bytes loaded, and valid for reading
        ///   them.
        /// - Nothing writes them at the same time, nor, for [`load_nc`], at any time during the
        ///   launch.
        #[inline(always)]
        #[must_use]
        pub unsafe fn $name<T: Copy, const N: usize>(pointer: *const T) -> [T; N] {
            const { assert!(is_one_access::<T, N>(), "one access moves 1, 2, 4, 8 or 16 bytes") };
            // SAFETY: the caller's contract.
            unsafe { access::load($place(pointer.expose_provenance() as u64), size_of::<[T; N]>()) }
        }
    )*};
}

global_loads! {
    /// Loads from global memory (`ld.global`).
    load, Load = "ld.global";
    /// Loads through the read-only cache (`ld.global.nc`): for data that nothing writes during the
    /// whole launch.
    load_nc, LoadNc = "ld.global.nc";
    /// Loads from the L2 cache (`ld.global.cg`): for data that another block has stored. It
    /// bypasses the L1 cache, which other multiprocessors do not write.
    load_cg, LoadCg = "ld.global.cg";
    /// Loads into all caches (`ld.global.ca`).
    load_ca, LoadCa = "ld.global.ca";
    /// Loads data that is used once (`ld.global.cs`): the first to be evicted.
    load_cs, LoadCs = "ld.global.cs";
    /// Loads for the last time (`ld.global.lu`).
    load_lu, LoadLu = "ld.global.lu";
    /// Loads again, whatever is in a cache (`ld.global.cv`).
    load_cv, LoadCv = "ld.global.cv";
}

macro_rules! global_stores {
    ($($(#[$doc:meta])* $name:ident, $place:ident = $op:literal;)*) => {$(
        #[derive(Clone, Copy)]
        struct $place(u64);

        stores! { $place, reg64 = $op; }

        $(#[$doc])*
        ///
        /// Two or four elements, or one: `[T; N]` makes 1, 2, 4, 8 or 16 bytes, which is checked
        /// at compile time.
        ///
        /// # Safety
        /// - `pointer` is in global memory, a multiple of the bytes stored, and valid for writing
        ///   them.
        /// - Nothing else accesses them at the same time.
        #[inline(always)]
        pub unsafe fn $name<T: Copy, const N: usize>(pointer: *mut T, value: [T; N]) {
            const { assert!(is_one_access::<T, N>(), "one access moves 1, 2, 4, 8 or 16 bytes") };
            let place = $place(pointer.expose_provenance() as u64);
            // SAFETY: the caller's contract.
            unsafe { access::store(place, size_of::<[T; N]>(), value) }
        }
    )*};
}

global_stores! {
    /// Stores to global memory (`st.global`).
    store, Store = "st.global";
    /// Stores to the L2 cache (`st.global.cg`): for data that another block loads.
    store_cg, StoreCg = "st.global.cg";
    /// Stores data that is not used again soon (`st.global.cs`): the first to be evicted.
    store_cs, StoreCs = "st.global.cs";
    /// Stores through the L2 cache (`st.global.wt`), to system memory.
    store_wt, StoreWt = "st.global.wt";
}

macro_rules! f32x4_loads {
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

f32x4_loads! {
    /// Loads four f32 from global memory (`ld.global.v4.b32`).
    load4 = "ld.global.v4.b32";
    /// Loads four f32 from the L2 cache (`ld.global.cg.v4.b32`): for data that another block has
    /// stored. It bypasses the L1 cache, which other multiprocessors do not write.
    load4_cg = "ld.global.cg.v4.b32";
}

macro_rules! f32x4_stores {
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

f32x4_stores! {
    /// Stores four f32 to global memory (`st.global.v4.b32`).
    store4 = "st.global.v4.b32";
    /// Stores four f32 to the L2 cache (`st.global.cg.v4.b32`): for data that another block loads.
    store4_cg = "st.global.cg.v4.b32";
}
