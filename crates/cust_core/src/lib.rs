//! Stands in for the published `cust_core` (see `[patch.crates-io]` in the workspace's
//! `Cargo.toml`), which compiles three vector libraries and what they need, whether or not anyone
//! uses them. Here is the trait that `cust` takes from it, for the types of the language.

#![no_std]

/// Where `cust` looks for the trait.
#[doc(hidden)]
pub mod _hidden {
    pub use crate::DeviceCopy;
}

use core::marker::PhantomData;
use core::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize, NonZeroU8,
    NonZeroU16, NonZeroU32, NonZeroU64, NonZeroU128, NonZeroUsize, Wrapping,
};

/// Types whose values mean the same on a device after their bytes were copied there.
///
/// # Safety
///
/// A value has no pointer or reference to the host's memory, and its layout is the same on the
/// device.
pub unsafe trait DeviceCopy: Copy {}

macro_rules! plain {
    ($($type:ty)*) => {
        $(
            // SAFETY: a plain number, or nothing, with the same layout on both sides.
            unsafe impl DeviceCopy for $type {}
        )*
    };
}

plain! {
    () bool char f32 f64
    u8 u16 u32 u64 u128 usize
    i8 i16 i32 i64 i128 isize
    NonZeroU8 NonZeroU16 NonZeroU32 NonZeroU64 NonZeroU128 NonZeroUsize
    NonZeroI8 NonZeroI16 NonZeroI32 NonZeroI64 NonZeroI128 NonZeroIsize
}

#[cfg(feature = "half")]
plain! { half::f16 half::bf16 }

macro_rules! composed {
    ($([$($of:ident)+] $type:ty;)*) => {
        $(
            // SAFETY: it consists of such values, and perhaps a number that says which.
            unsafe impl<$($of: DeviceCopy),+> DeviceCopy for $type {}
        )*
    };
}

composed! {
    [T] Option<T>;
    [T E] Result<T, E>;
    [T] Wrapping<T>;
    [A B] (A, B);
    [A B C] (A, B, C);
    [A B C D] (A, B, C, D);
    [A B C D E] (A, B, C, D, E);
    [A B C D E F] (A, B, C, D, E, F);
    [A B C D E F G] (A, B, C, D, E, F, G);
    [A B C D E F G H] (A, B, C, D, E, F, G, H);
}

// SAFETY: elements one after the other.
unsafe impl<T: DeviceCopy, const N: usize> DeviceCopy for [T; N] {}

// SAFETY: it has no bytes.
unsafe impl<T: DeviceCopy> DeviceCopy for PhantomData<T> {}
