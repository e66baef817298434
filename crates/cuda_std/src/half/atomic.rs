//! Atomic additions of 16-bit floats and of pairs of them.

use cuda_std_macros::gpu_only;

use super::pair::{bf16x2, f16x2};
use super::{bf16, f16};
use crate::shared::SharedPtr;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// A type with an atomic addition: [`struct@f16`] (sm_70), [`f16x2`] (sm_60), [`bf16`] and
/// [`bf16x2`] (sm_90).
///
/// Each half of a pair is added atomically, but not both together.
pub trait AtomicAdd: Copy {
    #[doc(hidden)]
    unsafe fn add_global(pointer: *mut Self, value: Self) -> Self;
}

/// Adds, device-wide (`atom.add.noftz`), and returns the value before. It is relaxed. The order of
/// additions is not fixed, nor are the last bits.
///
/// # Safety
/// `pointer` is in global memory, aligned, and valid for reads and writes; other accesses at the
/// same time are atomic too.
#[inline(always)]
pub unsafe fn atomic_add_device<T: AtomicAdd>(pointer: *mut T, value: T) -> T {
    // SAFETY: the caller's contract.
    unsafe { T::add_global(pointer, value) }
}

macro_rules! atomics {
    ($($ty:ident, $class:ident $bits:ty;)*) => {$(
        impl AtomicAdd for $ty {
            #[gpu_only]
            #[inline(always)]
            unsafe fn add_global(pointer: *mut Self, value: Self) -> Self {
                let before: $bits;
                // SAFETY: the caller's contract.
                unsafe {
                    asm!(
                        concat!(
                            "atom.relaxed.gpu.global.add.noftz.", stringify!($ty), " {}, [{}], {};"
                        ),
                        out($class) before,
                        in(reg64) pointer,
                        in($class) value.to_bits(),
                        options(nostack, preserves_flags),
                    );
                }
                $ty::from_bits(before)
            }
        }

        impl SharedPtr<$ty> {
            /// Adds to element `index`, and returns the value before (`atom.shared.add.noftz`); see
            /// [`AtomicAdd`].
            ///
            /// # Safety
            /// See [`SharedPtr`]; but other threads may access the element atomically at the same
            /// time.
            #[gpu_only]
            #[inline(always)]
            pub unsafe fn fetch_add(self, index: u32, value: $ty) -> $ty {
                let before: $bits;
                // SAFETY: the caller's contract.
                unsafe {
                    asm!(
                        concat!(
                            "atom.relaxed.cta.shared.add.noftz.", stringify!($ty), " {}, [{}], {};"
                        ),
                        out($class) before,
                        in(reg32) self.add(index).address(),
                        in($class) value.to_bits(),
                        options(nostack, preserves_flags),
                    );
                }
                $ty::from_bits(before)
            }
        }
    )*};
}

atomics! {
    f16, reg16 u16;
    f16x2, reg32 u32;
    bf16, reg16 u16;
    bf16x2, reg32 u32;
}
