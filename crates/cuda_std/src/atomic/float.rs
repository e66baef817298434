//! Atomic floats.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(target_arch = "nvptx64")]
use crate::ptr::{AddressSpace, is_in_address_space};

/// The order of a read-modify-write operation that is also the load of a failure.
fn merged(success: Ordering, failure: Ordering) -> Ordering {
    match (success, failure) {
        (Ordering::SeqCst, _) | (_, Ordering::SeqCst) => Ordering::SeqCst,
        (Ordering::Relaxed, Ordering::Acquire) => Ordering::Acquire,
        (Ordering::Release, Ordering::Acquire) => Ordering::AcqRel,
        (success, _) => success,
    }
}

/// Declares an atomic float. On other targets than the GPU it is emulated with `core`'s integers.
///
/// What PTX does with a scope is undefined in local memory, which only the calling thread has: an
/// atomic that lies there is accessed as any other value.
macro_rules! atomic_float {
    (
        $(#[$doc:meta])*
        $name:ident = $float:ident, $core:ident, $suffix:literal, $class:ident, $scope:literal,
        [$($unsafe:ident)?] $(#[$safety:meta])*
    ) => {
        $(#[$doc])*
        ///
        /// It lies in memory as the float does. A kernel takes it as `&[Atomic...]`, or makes one
        /// of a pointer in global or shared memory.
        #[repr(transparent)]
        #[derive(Debug)]
        pub struct $name($core);

        impl $name {
            /// An atomic with this value.
            #[inline(always)]
            #[must_use]
            pub const fn new(value: $float) -> Self {
                $name($core::new(value.to_bits()))
            }

            /// The value, when nobody else has the atomic any longer.
            #[inline(always)]
            #[must_use]
            pub const fn into_inner(self) -> $float {
                $float::from_bits(self.0.into_inner())
            }

            /// Where the value lies.
            #[inline(always)]
            #[must_use]
            pub const fn as_ptr(&self) -> *mut $float {
                self.0.as_ptr().cast()
            }

            /// The value now.
            ///
            /// # Panics
            /// If `order` is `Release` or `AcqRel`.
            $(#[$safety])*
            #[inline(always)]
            pub $($unsafe)? fn load(&self, order: Ordering) -> $float {
                #[cfg(target_arch = "nvptx64")]
                // SAFETY: the place is that of `self`, which all access atomically, and in local
                // memory nobody else does.
                unsafe {
                    let place = self.as_ptr();
                    if is_in_address_space(place, AddressSpace::Local) {
                        return place.read();
                    }
                    let value: $float;
                    macro_rules! load {
                        ($semantics:literal) => {
                            core::arch::asm!(
                                concat!("ld.", $semantics, ".", $scope, ".b", $suffix, " {}, [{}];"),
                                out($class) value,
                                in(reg64) place,
                                options(nostack, preserves_flags),
                            )
                        };
                    }
                    match order {
                        Ordering::Relaxed => load!("relaxed"),
                        Ordering::Acquire => load!("acquire"),
                        Ordering::SeqCst => {
                            fence_sc!($scope);
                            load!("acquire");
                        }
                        _ => panic!("a load cannot release"),
                    }
                    value
                }
                #[cfg(not(target_arch = "nvptx64"))]
                $float::from_bits(self.0.load(order))
            }

            /// Stores a value.
            ///
            /// # Panics
            /// If `order` is `Acquire` or `AcqRel`.
            $(#[$safety])*
            #[inline(always)]
            pub $($unsafe)? fn store(&self, value: $float, order: Ordering) {
                #[cfg(target_arch = "nvptx64")]
                // SAFETY: as for `load`.
                unsafe {
                    let place = self.as_ptr();
                    if is_in_address_space(place, AddressSpace::Local) {
                        return place.write(value);
                    }
                    macro_rules! store {
                        ($semantics:literal) => {
                            core::arch::asm!(
                                concat!("st.", $semantics, ".", $scope, ".b", $suffix, " [{}], {};"),
                                in(reg64) place,
                                in($class) value,
                                options(nostack, preserves_flags),
                            )
                        };
                    }
                    match order {
                        Ordering::Relaxed => store!("relaxed"),
                        Ordering::Release => store!("release"),
                        Ordering::SeqCst => {
                            fence_sc!($scope);
                            store!("relaxed");
                        }
                        _ => panic!("a store cannot acquire"),
                    }
                }
                #[cfg(not(target_arch = "nvptx64"))]
                self.0.store(value.to_bits(), order);
            }

            read_modify_write! {
                $float, $class, $scope, [$($unsafe)?] [$(#[$safety])*]:
                /// Stores `value`, and returns what was there before (`atom.exch`).
                swap = concat!("exch.b", $suffix), |_old, value| value;
                /// Adds (`atom.add`), and returns the value before. The order of additions by
                /// several threads is not fixed, nor are the last bits.
                fetch_add = concat!("add.f", $suffix), |old, value| old + value;
                /// And of the bits (`atom.and`). Returns the value before.
                fetch_and = concat!("and.b", $suffix),
                    |old, value| $float::from_bits(old.to_bits() & value.to_bits());
                /// Or of the bits (`atom.or`). Returns the value before.
                fetch_or = concat!("or.b", $suffix),
                    |old, value| $float::from_bits(old.to_bits() | value.to_bits());
                /// Exclusive or of the bits (`atom.xor`). Returns the value before.
                fetch_xor = concat!("xor.b", $suffix),
                    |old, value| $float::from_bits(old.to_bits() ^ value.to_bits());
            }

            /// Subtracts, as the addition of `-value`, and returns the value before.
            $(#[$safety])*
            #[inline(always)]
            pub $($unsafe)? fn fetch_sub(&self, value: $float, order: Ordering) -> $float {
                // SAFETY: the caller's contract, where there is one.
                $($unsafe)? { self.fetch_add(-value, order) }
            }

            /// Stores `new` if the value has the bits of `current` (`atom.cas`). Returns the value
            /// before, as `Ok` if it was `current`.
            ///
            /// # Errors
            /// If it was another one.
            $(#[$safety])*
            #[inline(always)]
            pub $($unsafe)? fn compare_exchange(
                &self,
                current: $float,
                new: $float,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$float, $float> {
                let order = merged(success, failure);
                #[cfg(target_arch = "nvptx64")]
                let before = atom!(
                    $float, $class, $scope, order, self.as_ptr(),
                    concat!("cas.b", $suffix, " {}, [{}], {}, {}"), (current, new),
                    |old| if old.to_bits() == current.to_bits() { new } else { old }
                );
                #[cfg(not(target_arch = "nvptx64"))]
                let before = {
                    let (current, new) = (current.to_bits(), new.to_bits());
                    let result = self.0.compare_exchange(current, new, order, failure);
                    $float::from_bits(result.unwrap_or_else(|before| before))
                };
                if before.to_bits() == current.to_bits() { Ok(before) } else { Err(before) }
            }
        }
    };
}

/// Declares the operations that take one value.
macro_rules! read_modify_write {
    (
        $float:ident, $class:ident, $scope:literal, [$($unsafe:ident)?] [$(#[$safety:meta])*]:
    ) => {};
    (
        $float:ident, $class:ident, $scope:literal, [$($unsafe:ident)?] [$(#[$safety:meta])*]:
        $(#[$doc:meta])*
        $name:ident = $op:expr, |$old:ident, $value:ident| $new:expr;
        $($rest:tt)*
    ) => {
        $(#[$doc])*
        $(#[$safety])*
        #[inline(always)]
        pub $($unsafe)? fn $name(&self, $value: $float, order: Ordering) -> $float {
            #[cfg(target_arch = "nvptx64")]
            {
                atom!(
                    $float, $class, $scope, order, self.as_ptr(),
                    concat!($op, " {}, [{}], {}"), ($value), |$old| $new
                )
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                let update = |bits| {
                    let $old = $float::from_bits(bits);
                    Some(($new).to_bits())
                };
                let load = match order {
                    Ordering::Release => Ordering::Relaxed,
                    Ordering::AcqRel => Ordering::Acquire,
                    other => other,
                };
                let (Ok(before) | Err(before)) = self.0.fetch_update(order, load, update);
                $float::from_bits(before)
            }
        }

        read_modify_write! {
            $float, $class, $scope, [$($unsafe)?] [$(#[$safety])*]: $($rest)*
        }
    };
}

/// One `atom`, or its meaning for one thread.
#[cfg(target_arch = "nvptx64")]
macro_rules! atom {
    (
        $float:ident, $class:ident, $scope:literal, $order:expr, $place:expr, $op:expr,
        ($($value:expr),+), |$old:ident| $new:expr
    ) => {
        // SAFETY: the place is that of an atomic, which all access atomically, and in local memory
        // nobody else does.
        unsafe {
            let place = $place;
            if is_in_address_space(place, AddressSpace::Local) {
                let $old = place.read();
                place.write($new);
                $old
            } else {
                let before: $float;
                macro_rules! ordered {
                    ($semantics:literal) => {
                        core::arch::asm!(
                            concat!("atom.", $semantics, ".", $scope, ".", $op, ";"),
                            out($class) before,
                            in(reg64) place,
                            $(in($class) $value,)+
                            options(nostack, preserves_flags),
                        )
                    };
                }
                match $order {
                    Ordering::Relaxed => ordered!("relaxed"),
                    Ordering::Acquire => ordered!("acquire"),
                    Ordering::Release => ordered!("release"),
                    Ordering::AcqRel => ordered!("acq_rel"),
                    _ => {
                        fence_sc!($scope);
                        ordered!("acq_rel");
                    }
                }
                before
            }
        }
    };
}

#[cfg(target_arch = "nvptx64")]
macro_rules! fence_sc {
    ($scope:literal) => {
        core::arch::asm!(concat!("fence.sc.", $scope, ";"), options(nostack, preserves_flags))
    };
}

atomic_float! {
    /// An f32 that the threads of a device share.
    AtomicF32 = f32, AtomicU32, "32", reg32, "gpu", []
}
atomic_float! {
    /// An f64 that the threads of a device share.
    AtomicF64 = f64, AtomicU64, "64", reg64, "gpu", []
}
atomic_float! {
    /// An f32 that the threads of a block share.
    BlockAtomicF32 = f32, AtomicU32, "32", reg32, "cta", [unsafe]
    #[doc = "\n# Safety\nOnly threads of one block access the value."]
}
atomic_float! {
    /// An f64 that the threads of a block share.
    BlockAtomicF64 = f64, AtomicU64, "64", reg64, "cta", [unsafe]
    #[doc = "\n# Safety\nOnly threads of one block access the value."]
}
atomic_float! {
    /// An f32 that all devices and the host share.
    SystemAtomicF32 = f32, AtomicU32, "32", reg32, "sys", []
}
atomic_float! {
    /// An f64 that all devices and the host share.
    SystemAtomicF64 = f64, AtomicU64, "64", reg64, "sys", []
}
