//! The block's shared memory.
//!
//! Shared memory has an address space of its own, with 32-bit addresses. Rust's pointers cannot say
//! so, and a generic pointer to shared memory compiles to a slower generic access. So an array here
//! is a handle that holds a shared address. Each access is one `ld.shared` or `st.shared`, of up to
//! 128 bits. If a raw pointer is needed, [`SharedPtr::as_mut_ptr`] gives one; so does
//! [`SharedPtr::add`] with a `usize`.
//!
//! - [`shared_array!`](crate::shared_array) declares an array of fixed size.
//! - [`dynamic_shared_mem`] is the memory that the launch asked for.
//!
//! No access checks bounds: that would put a panic into the kernel. All are `unsafe`, with
//! one contract, stated at [`SharedPtr`].

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Deref;

use cuda_std_macros::gpu_only;

use crate::access::{self, loads, stores};
use crate::vec::{self, F32x4};

#[cfg(target_arch = "nvptx64")]
use core::arch::{asm, global_asm};

/// A pointer to elements of type `T` in the block's shared memory.
///
/// # Safety of accesses
///
/// For every load and store through it, the caller makes sure that
/// - the element lies inside the array, and is aligned to the size of the access;
/// - what is loaded was stored before, by this thread or before a barrier;
/// - no other thread stores to the element between the same two barriers.
pub struct SharedPtr<T> {
    address: u32,
    element: PhantomData<*mut T>,
}

/// An array of `N` elements in the block's shared memory; see
/// [`shared_array!`](crate::shared_array). Dereferences to a [`SharedPtr`] to its first
/// element.
pub struct SharedArray<T, const N: usize>(SharedPtr<T>);

impl<T> Clone for SharedPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedPtr<T> {}

impl<T, const N: usize> Clone for SharedArray<T, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const N: usize> Copy for SharedArray<T, N> {}

impl<T, const N: usize> Deref for SharedArray<T, N> {
    type Target = SharedPtr<T>;

    fn deref(&self) -> &SharedPtr<T> {
        &self.0
    }
}

impl<T, const N: usize> SharedArray<T, N> {
    /// For `shared_array!`.
    ///
    /// # Safety
    /// `N` elements of shared memory lie at `address`.
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn from_address(address: u32) -> Self {
        SharedArray(SharedPtr { address, element: PhantomData })
    }

    /// For `shared_array!`, where there is no shared memory.
    #[doc(hidden)]
    pub fn on_gpu_only() -> Self {
        unimplemented!("shared memory exists on the GPU only")
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
}

impl<T> SharedPtr<T> {
    /// The address in the shared address space, in bytes.
    #[inline(always)]
    #[must_use]
    pub fn address(self) -> u32 {
        self.address
    }

    /// The pointer `count` elements further.
    ///
    /// It is a `SharedPtr` for a `u32`, and a `*mut T` for a `usize`, as in Rust-CUDA.
    #[allow(clippy::should_implement_trait, reason = "named as on Rust's own pointers")]
    #[inline(always)]
    #[must_use]
    pub fn add<I: SharedIndex>(self, count: I) -> I::Pointer<T> {
        count.add(self)
    }

    /// The generic pointer to the same place (`cvta.shared`), for code that needs a `*mut T`.
    ///
    /// An access through it is a generic `ld` or `st`, which is slower than one through the handle.
    #[gpu_only]
    #[inline(always)]
    #[must_use]
    pub fn as_mut_ptr(self) -> *mut T {
        let pointer: *mut T;
        // SAFETY: computes an address; touches no memory.
        unsafe {
            asm!(
                "cvta.shared.u64 {}, {};",
                out(reg64) pointer,
                in(reg64) u64::from(self.address),
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        pointer
    }

    /// This address, for elements of another type.
    #[inline(always)]
    #[must_use]
    pub fn cast<U>(self) -> SharedPtr<U> {
        SharedPtr { address: self.address, element: PhantomData }
    }
}

/// A type that [`SharedPtr::add`] counts by, and the resulting pointer.
#[diagnostic::on_unimplemented(
    message = "shared memory is indexed by `u32` or `usize`, not by `{Self}`",
    label = "write `u32` for a handle of 32 bits, `usize` for a raw pointer"
)]
pub trait SharedIndex {
    /// A [`SharedPtr`] for `u32`, a `*mut T` for `usize`.
    type Pointer<T>;

    /// `pointer`, advanced by a number of elements.
    fn add<T>(self, pointer: SharedPtr<T>) -> Self::Pointer<T>;
}

impl SharedIndex for u32 {
    type Pointer<T> = SharedPtr<T>;

    #[inline(always)]
    fn add<T>(self, pointer: SharedPtr<T>) -> SharedPtr<T> {
        let address = pointer.address.wrapping_add(self.wrapping_mul(size_of::<T>() as u32));
        SharedPtr { address, element: PhantomData }
    }
}

impl SharedIndex for usize {
    type Pointer<T> = *mut T;

    #[inline(always)]
    fn add<T>(self, pointer: SharedPtr<T>) -> *mut T {
        pointer.as_mut_ptr().wrapping_add(self)
    }
}

/// An address in the shared state space.
#[derive(Clone, Copy)]
struct Address(u32);

loads! { Address, reg32 = "ld.shared"; }
stores! { Address, reg32 = "st.shared"; }

impl<T: Copy> SharedPtr<T> {
    /// Loads element `index`, of any type (`ld.shared`).
    ///
    /// The instructions are as wide as the type is aligned. Numbers also have [`load`](Self::load),
    /// which is one instruction.
    ///
    /// # Safety
    /// See [`SharedPtr`].
    #[inline(always)]
    #[must_use]
    pub unsafe fn read(self, index: u32) -> T {
        // SAFETY: the caller's contract.
        unsafe { access::load(Address(self.add(index).address), align_of::<T>()) }
    }

    /// Stores element `index` (`st.shared`), as [`read`](Self::read) loads it.
    ///
    /// # Safety
    /// See [`SharedPtr`].
    #[inline(always)]
    pub unsafe fn write(self, index: u32, value: T) {
        // SAFETY: the caller's contract.
        unsafe { access::store(Address(self.add(index).address), align_of::<T>(), value) }
    }

    /// Loads the `N` elements from `index` on, which make 1, 2, 4, 8 or 16 bytes, with one access
    /// (`ld.shared.v4.b32` for 16 bytes).
    ///
    /// # Safety
    /// See [`SharedPtr`]; the address of element `index` is a multiple of the bytes loaded.
    #[inline(always)]
    #[must_use]
    pub unsafe fn load_vec<const N: usize>(self, index: u32) -> [T; N] {
        const { assert!(vec::is_one_access::<T, N>(), "one access moves 1, 2, 4, 8 or 16 bytes") };
        // SAFETY: the caller's contract.
        unsafe { access::load(Address(self.add(index).address), size_of::<[T; N]>()) }
    }

    /// Stores `N` elements from `index` on, which make 1, 2, 4, 8 or 16 bytes, with one access
    /// (`st.shared.v4.b32` for 16 bytes).
    ///
    /// # Safety
    /// See [`SharedPtr`]; the address of element `index` is a multiple of the bytes stored.
    #[inline(always)]
    pub unsafe fn store_vec<const N: usize>(self, index: u32, value: [T; N]) {
        const { assert!(vec::is_one_access::<T, N>(), "one access moves 1, 2, 4, 8 or 16 bytes") };
        // SAFETY: the caller's contract.
        unsafe { access::store(Address(self.add(index).address), size_of::<[T; N]>(), value) }
    }
}

/// One `ld.shared` or `st.shared` for a number.
macro_rules! scalar_access {
    ($($ty:ty, $class:ident, $suffix:literal;)*) => {$(
        impl SharedPtr<$ty> {
            /// Loads element `index` (`ld.shared`).
            ///
            /// # Safety
            /// See [`SharedPtr`].
            #[gpu_only]
            #[inline(always)]
            #[must_use]
            pub unsafe fn load(self, index: u32) -> $ty {
                let value: $ty;
                // SAFETY: the caller's contract. Not `pure`: other threads store here too,
                // so that a load must not move across a barrier.
                unsafe {
                    asm!(
                        concat!("ld.shared.", $suffix, " {}, [{}];"),
                        out($class) value,
                        in(reg32) self.add(index).address,
                        options(readonly, nostack, preserves_flags),
                    );
                }
                value
            }

            /// Stores element `index` (`st.shared`).
            ///
            /// # Safety
            /// See [`SharedPtr`].
            #[gpu_only]
            #[inline(always)]
            pub unsafe fn store(self, index: u32, value: $ty) {
                // SAFETY: the caller's contract.
                unsafe {
                    asm!(
                        concat!("st.shared.", $suffix, " [{}], {};"),
                        in(reg32) self.add(index).address,
                        in($class) value,
                        options(nostack, preserves_flags),
                    );
                }
            }
        }
    )*};
}

scalar_access! {
    f32, reg32, "b32";
    u32, reg32, "b32";
    i32, reg32, "b32";
    f64, reg64, "b64";
    u64, reg64, "b64";
    i64, reg64, "b64";
    u16, reg16, "b16";
    i16, reg16, "b16";
}

/// One `atom.shared` for each operation of counters.
macro_rules! atomic_access {
    ($($ty:ty, $suffix:literal;)*) => {$(
        impl SharedPtr<$ty> {
            atomic_access! { $ty: $suffix:
                /// Adds to element `index`, wrapping, and returns the value before
                /// (`atom.shared.add`).
                fetch_add = "add.";
                /// Takes the smaller value for element `index`, and returns the one before
                /// (`atom.shared.min`).
                fetch_min = "min.";
                /// Takes the larger value for element `index`, and returns the one before
                /// (`atom.shared.max`).
                fetch_max = "max.";
            }
        }
    )*};
    ($ty:ty: $suffix:literal: $($(#[$doc:meta])* $name:ident = $op:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// See [`SharedPtr`]; but other threads may access the element atomically at the same time.
        #[gpu_only]
        #[inline(always)]
        pub unsafe fn $name(self, index: u32, value: $ty) -> $ty {
            let before: $ty;
            // SAFETY: the caller's contract.
            unsafe {
                asm!(
                    concat!("atom.relaxed.cta.shared.", $op, $suffix, " {}, [{}], {};"),
                    out(reg32) before,
                    in(reg32) self.add(index).address,
                    in(reg32) value,
                    options(nostack, preserves_flags),
                );
            }
            before
        }
    )*};
}

atomic_access! {
    u32, "u32";
    i32, "s32";
}

impl SharedPtr<f32> {
    /// Loads the four elements from `index` on with one access (`ld.shared.v4.b32`).
    ///
    /// # Safety
    /// See [`SharedPtr`]; the address of element `index` is a multiple of 16.
    #[gpu_only]
    #[inline(always)]
    #[must_use]
    pub unsafe fn load4(self, index: u32) -> F32x4 {
        let (x, y, z, w): (f32, f32, f32, f32);
        // SAFETY: the caller's contract. Not `pure`, as for `load`.
        unsafe {
            asm!(
                "ld.shared.v4.b32 {{{}, {}, {}, {}}}, [{}];",
                out(reg32) x,
                out(reg32) y,
                out(reg32) z,
                out(reg32) w,
                in(reg32) self.add(index).address,
                options(readonly, nostack, preserves_flags),
            );
        }
        [x, y, z, w]
    }

    /// Stores four elements from `index` on with one access (`st.shared.v4.b32`).
    ///
    /// # Safety
    /// See [`SharedPtr`]; the address of element `index` is a multiple of 16.
    #[gpu_only]
    #[inline(always)]
    pub unsafe fn store4(self, index: u32, value: F32x4) {
        let [x, y, z, w] = value;
        // SAFETY: the caller's contract.
        unsafe {
            asm!(
                "st.shared.v4.b32 [{}], {{{}, {}, {}, {}}};",
                in(reg32) self.add(index).address,
                in(reg32) x,
                in(reg32) y,
                in(reg32) z,
                in(reg32) w,
                options(nostack, preserves_flags),
            );
        }
    }
}

// One array of unknown size stands for all of the dynamic shared memory, as CUDA C++'s
// `extern __shared__` does. 128 bytes is the alignment that the bulk copies want.
#[cfg(target_arch = "nvptx64")]
global_asm!(".extern .shared .align 128 .b8 cuda_std_dynamic_shared[];");

/// The dynamic shared memory of the block, which the launch asked for.
///
/// It is aligned to 128 bytes; see [`dynamic_smem_size`](crate::mem::dynamic_smem_size) for its
/// size. Every call gives the same address.
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn dynamic_shared_mem<T>() -> SharedPtr<T> {
    let address: u32;
    // SAFETY: reads an address; touches no memory.
    unsafe {
        asm!(
            "mov.u32 {}, cuda_std_dynamic_shared;",
            out(reg32) address,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    SharedPtr { address, element: PhantomData }
}
