//! Loads and stores of any `Copy` type, in instructions as wide as alignment allows.
//!
//! [`load`] and [`store`] are written once. State spaces and cache operators differ only in the
//! instruction for a word, which `loads!` and `stores!` declare.

use core::mem::MaybeUninit;
use core::ptr;

/// Words of memory at an address, as one load instruction each.
pub(crate) trait Load: Copy {
    fn at(self, bytes: usize) -> Self;
    unsafe fn b8(self) -> u8;
    unsafe fn b16(self) -> u16;
    unsafe fn b32(self) -> u32;
    unsafe fn b64(self) -> u64;
    unsafe fn v2_b32(self) -> [u32; 2];
    unsafe fn v4_b32(self) -> [u32; 4];
}

/// Words of memory at an address, as one store instruction each. Padding may be undefined.
pub(crate) trait Store: Copy {
    fn at(self, bytes: usize) -> Self;
    unsafe fn b8(self, word: MaybeUninit<u8>);
    unsafe fn b16(self, word: MaybeUninit<u16>);
    unsafe fn b32(self, word: MaybeUninit<u32>);
    unsafe fn b64(self, word: MaybeUninit<u64>);
    unsafe fn v2_b32(self, words: [MaybeUninit<u32>; 2]);
    unsafe fn v4_b32(self, words: [MaybeUninit<u32>; 4]);
}

/// Bytes that one access moves, for a value of this size at this alignment.
///
/// A value of 8 or 16 bytes whose words are smaller moves as a vector.
const fn width(size: usize, align: usize) -> usize {
    let mut width = if align < 16 { align } else { 16 };
    while !size.is_multiple_of(width) {
        width /= 2;
    }
    width
}

/// Loads a `T` from an address that is a multiple of `align`, a power of two.
///
/// # Safety
/// A `T` lies there, which nothing writes at the same time.
#[inline(always)]
pub(crate) unsafe fn load<T: Copy>(from: impl Load, align: usize) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    let to = value.as_mut_ptr().cast::<u8>();
    let width = width(size_of::<T>(), align);
    let mut i = 0;
    while i < size_of::<T>() {
        // SAFETY: the caller's contract; the bytes from `i` on are inside the value.
        unsafe {
            let (from, to) = (from.at(i), to.add(i));
            match width {
                16 => ptr::write_unaligned(to.cast(), from.v4_b32()),
                // The registers are those of the value's words.
                8 if align_of::<T>() < 8 => ptr::write_unaligned(to.cast(), from.v2_b32()),
                8 => ptr::write_unaligned(to.cast(), from.b64()),
                4 => ptr::write_unaligned(to.cast(), from.b32()),
                2 => ptr::write_unaligned(to.cast(), from.b16()),
                _ => to.write(from.b8()),
            }
        }
        i += width;
    }
    // SAFETY: its bytes are those of a `T`.
    unsafe { value.assume_init() }
}

/// Stores a `T` to an address that is a multiple of `align`, a power of two.
///
/// # Safety
/// The memory is valid for that, and nothing else accesses it at the same time.
#[inline(always)]
pub(crate) unsafe fn store<T: Copy>(to: impl Store, align: usize, value: T) {
    let value = MaybeUninit::new(value);
    let from = value.as_ptr().cast::<u8>();
    let width = width(size_of::<T>(), align);
    let mut i = 0;
    while i < size_of::<T>() {
        // SAFETY: the caller's contract; the bytes from `i` on are inside the value.
        unsafe {
            let (to, from) = (to.at(i), from.add(i));
            match width {
                16 => to.v4_b32(ptr::read_unaligned(from.cast())),
                8 if align_of::<T>() < 8 => to.v2_b32(ptr::read_unaligned(from.cast())),
                8 => to.b64(ptr::read_unaligned(from.cast())),
                4 => to.b32(ptr::read_unaligned(from.cast())),
                2 => to.b16(ptr::read_unaligned(from.cast())),
                _ => to.b8(ptr::read_unaligned(from.cast())),
            }
        }
        i += width;
    }
}

/// Declares `Load` for a type of address.
macro_rules! loads {
    ($($place:ty, $register:ident = $op:literal;)*) => {$(
        impl $crate::access::Load for $place {
            #[inline(always)]
            fn at(mut self, bytes: usize) -> Self {
                self.0 = self.0.wrapping_add(bytes as _);
                self
            }
            $crate::access::loads_of_words! {
                $register, $op:
                b8 -> u8 = word => "u8 {}, [{}];" reg16 word,
                b16 -> u16 = word => "b16 {}, [{}];" reg16 word,
                b32 -> u32 = word => "b32 {}, [{}];" reg32 word,
                b64 -> u64 = word => "b64 {}, [{}];" reg64 word,
                v2_b32 -> [u32; 2] = [x, y] => "v2.b32 {{{}, {}}}, [{}];" reg32 x y,
                v4_b32 -> [u32; 4] = [x, y, z, w] => "v4.b32 {{{}, {}, {}, {}}}, [{}];"
                    reg32 x y z w
            }
        }
    )*};
}

/// The loads of a place.
macro_rules! loads_of_words {
    ($register:ident, $op:literal: $($name:ident -> $ty:ty = $words:expr => $suffix:literal
        $class:ident $($word:ident)+),*) => {$(
        #[cuda_std_macros::gpu_only]
        #[inline(always)]
        unsafe fn $name(self) -> $ty {
            $(let $word;)+
            // SAFETY: the caller's contract. Not `pure`: others store here too, so that a load
            // must not move across a barrier.
            unsafe {
                core::arch::asm!(
                    concat!($op, ".", $suffix),
                    $(out($class) $word,)+
                    in($register) self.0,
                    options(readonly, nostack, preserves_flags),
                );
            }
            $words
        }
    )*};
}

/// Declares `Store` for a type of address.
macro_rules! stores {
    ($($place:ty, $register:ident = $op:literal;)*) => {$(
        impl $crate::access::Store for $place {
            #[inline(always)]
            fn at(mut self, bytes: usize) -> Self {
                self.0 = self.0.wrapping_add(bytes as _);
                self
            }
            $crate::access::stores_of_words! {
                $register, $op: b8(word | MaybeUninit<u8>) "u8 [{}], {};" reg16 word,
                b16(word | MaybeUninit<u16>) "b16 [{}], {};" reg16 word,
                b32(word | MaybeUninit<u32>) "b32 [{}], {};" reg32 word,
                b64(word | MaybeUninit<u64>) "b64 [{}], {};" reg64 word,
                v2_b32([x, y] | [MaybeUninit<u32>; 2]) "v2.b32 [{}], {{{}, {}}};" reg32 x y,
                v4_b32([x, y, z, w] | [MaybeUninit<u32>; 4])
                    "v4.b32 [{}], {{{}, {}, {}, {}}};" reg32 x y z w
            }
        }
    )*};
}

/// The stores to a place.
macro_rules! stores_of_words {
    ($register:ident, $op:literal: $($name:ident($words:pat_param | $ty:ty)
        $suffix:literal $class:ident $($word:ident)+),*) => {$(
        #[cuda_std_macros::gpu_only]
        #[inline(always)]
        unsafe fn $name(self, $words: $ty) {
            // SAFETY: the caller's contract.
            unsafe {
                core::arch::asm!(
                    concat!($op, ".", $suffix),
                    in($register) self.0,
                    $(in($class) $word,)+
                    options(nostack, preserves_flags),
                );
            }
        }
    )*};
}

pub(crate) use {loads, loads_of_words, stores, stores_of_words};
