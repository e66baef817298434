//! State spaces of pointers.
//!
//! Rust's pointers are generic addresses: windows of one address space show shared, local and
//! constant memory beside global memory.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// A state space that a generic address can lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressSpace {
    /// The device's memory.
    Global,
    /// The block's shared memory.
    Shared,
    /// Constant memory.
    Constant,
    /// The thread's local memory: its stack.
    Local,
}

#[cfg(target_arch = "nvptx64")]
macro_rules! is_space {
    ($pointer:expr, $space:literal) => {{
        let is: u32;
        // SAFETY: looks at an address, and touches no memory.
        unsafe {
            asm!(
                "{{",
                ".reg .pred p;",
                concat!("isspacep.", $space, " p, {pointer};"),
                "selp.u32 {is}, 1, 0, p; }}",
                pointer = in(reg64) $pointer,
                is = out(reg32) is,
                options(pure, nomem, nostack),
            );
        }
        is != 0
    }};
}

/// Whether a pointer is in that state space (`isspacep`).
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn is_in_address_space<T>(pointer: *const T, space: AddressSpace) -> bool {
    match space {
        AddressSpace::Global => is_space!(pointer, "global"),
        AddressSpace::Shared => is_space!(pointer, "shared"),
        AddressSpace::Constant => is_space!(pointer, "const"),
        AddressSpace::Local => is_space!(pointer, "local"),
    }
}

macro_rules! conversions {
    ($($(#[$doc:meta])* $name:ident = $op:literal;)*) => {$(
        $(#[$doc])*
        #[gpu_only]
        #[inline(always)]
        #[must_use]
        pub unsafe fn $name<T>(pointer: *const T, space: AddressSpace) -> *const T {
            macro_rules! convert {
                ($space:literal) => {{
                    let converted: *const T;
                    // SAFETY: computes an address, and touches no memory.
                    unsafe {
                        asm!(
                            concat!($op, ".", $space, ".u64 {}, {};"),
                            out(reg64) converted,
                            in(reg64) pointer,
                            options(pure, nomem, nostack, preserves_flags),
                        );
                    }
                    converted
                }};
            }
            match space {
                AddressSpace::Global => convert!("global"),
                AddressSpace::Shared => convert!("shared"),
                AddressSpace::Constant => convert!("const"),
                AddressSpace::Local => convert!("local"),
            }
        }
    )*};
}

conversions! {
    /// A generic pointer as an address in a state space (`cvta.to`). Only instructions of that
    /// space take it: Rust must not read or write through it.
    ///
    /// # Safety
    /// The pointer is in that space.
    convert_generic_to_specific_address_space = "cvta.to";
    /// An address in a state space as a generic pointer (`cvta`).
    ///
    /// # Safety
    /// The address is one of that space.
    convert_specific_address_space_to_generic = "cvta";
}
