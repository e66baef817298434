//! Constant memory: up to 64 KiB that a launch only reads.
//!
//! It is fastest when all threads of a warp read the same element.
//!
//! [`constant_array!`](crate::constant_array) declares an array, which the host fills through
//! `Module::get_global`. A Rust `static` lies in global memory.

use core::marker::PhantomData;

use crate::access::{self, loads};

/// An array of `N` elements in constant memory; see [`constant_array!`](crate::constant_array).
pub struct ConstantArray<T, const N: usize> {
    address: u64,
    elements: PhantomData<[T; N]>,
}

#[derive(Clone, Copy)]
struct Address(u64);

loads! { Address, reg64 = "ld.const"; }

impl<T: Copy, const N: usize> ConstantArray<T, N> {
    /// For `constant_array!`.
    ///
    /// # Safety
    /// `N` elements of constant memory lie at `address`.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub unsafe fn from_address(address: u64) -> Self {
        ConstantArray { address, elements: PhantomData }
    }

    /// The number of elements.
    #[inline(always)]
    #[must_use]
    pub const fn len(&self) -> usize {
        N
    }

    /// Whether the array has no elements.
    #[inline(always)]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        N == 0
    }

    /// Loads element `index` (`ld.const`). All of its bytes are 0 until the host writes it.
    ///
    /// # Safety
    /// `index` is less than `N`, and the bytes there are those of a `T`.
    #[inline(always)]
    #[must_use]
    pub unsafe fn load(&self, index: usize) -> T {
        let address = self.address + (index * size_of::<T>()) as u64;
        // SAFETY: the caller's contract; nothing writes during a launch.
        unsafe { access::load(Address(address), align_of::<T>()) }
    }
}

/// Declares an array in constant memory, in a module: `constant_array!(pub TABLE: [f32; 64]);`.
///
/// `TABLE()` is then a [`ConstantArray`](crate::constant::ConstantArray) in a kernel, and
/// `module.get_global::<[f32; 64]>(c"TABLE")` its place for the host. The name is that of a symbol
/// in the PTX: no two arrays of a crate of kernels have the same.
#[macro_export]
macro_rules! constant_array {
    ($(#[$attribute:meta])* $vis:vis $name:ident: [$ty:ty; $length:expr]) => {
        #[cfg(target_arch = "nvptx64")]
        ::core::arch::global_asm!(
            ::core::concat!(".visible .const .align 16 .b8 ", $crate::__symbol!($name), "[{}];"),
            const ::core::mem::size_of::<[$ty; $length]>(),
        );

        $(#[$attribute])*
        #[allow(non_snake_case)]
        #[inline(always)]
        $vis fn $name() -> $crate::constant::ConstantArray<$ty, { $length }> {
            const { ::core::assert!(::core::mem::align_of::<$ty>() <= 16) };
            #[cfg(target_arch = "nvptx64")]
            {
                let address: ::core::primitive::u64;
                // SAFETY: reads the address of the array that is declared above.
                unsafe {
                    ::core::arch::asm!(
                        ::core::concat!("mov.u64 {}, ", $crate::__symbol!($name), ";"),
                        out(reg64) address,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                    $crate::constant::ConstantArray::from_address(address)
                }
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                ::core::unimplemented!("constant memory exists on the GPU only")
            }
        }
    };
}
