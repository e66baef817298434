//! Atomic floats and integers of a scope: a block, the device, or the system.

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// The order of a read-modify-write operation that is also the load of a failure.
fn merged(success: Ordering, failure: Ordering) -> Ordering {
    match (success, failure) {
        (Ordering::SeqCst, _) | (_, Ordering::SeqCst) => Ordering::SeqCst,
        (Ordering::Relaxed, Ordering::Acquire) => Ordering::Acquire,
        (Ordering::Release, Ordering::Acquire) => Ordering::AcqRel,
        (success, _) => success,
    }
}

/// The bits of a value, as `core`'s atomic of that size has them.
macro_rules! bits {
    (float $value:expr) => {
        $value.to_bits()
    };
    (int $value:expr) => {
        $value
    };
}

/// The value of such bits.
macro_rules! value {
    (float $ty:ident, $bits:expr) => {
        $ty::from_bits($bits)
    };
    (int $ty:ident, $bits:expr) => {
        $bits
    };
}

/// Declares an atomic number. On other targets than the GPU it is emulated with `core`'s integers.
///
/// PTX defines none of its operations in local memory, where a thread's own variables lie:
/// `cuda_builder` accesses an atomic there as any other value.
macro_rules! atomic {
    (
        $(#[$doc:meta])*
        $name:ident = $kind:ident $ty:ident, $core:ident, $suffix:literal, $class:ident,
        $scope:literal, $signed:literal,
        [$($unsafe:ident)?] $(#[$safety:meta])*
    ) => {
        $(#[$doc])*
        ///
        /// It lies in memory as the number does. A kernel takes it as `&[Atomic...]`, or makes one
        /// of a pointer in global or shared memory.
        #[repr(transparent)]
        #[derive(Debug)]
        pub struct $name($core);

        impl $name {
            /// An atomic with this value.
            #[inline(always)]
            #[must_use]
            pub const fn new(value: $ty) -> Self {
                $name($core::new(bits!($kind value)))
            }

            /// The value, when nobody else has the atomic any longer.
            #[inline(always)]
            #[must_use]
            pub const fn into_inner(self) -> $ty {
                value!($kind $ty, self.0.into_inner())
            }

            /// Where the value lies.
            #[inline(always)]
            #[must_use]
            pub const fn as_ptr(&self) -> *mut $ty {
                self.0.as_ptr().cast()
            }

            /// The value now.
            ///
            /// # Panics
            /// If `order` is `Release` or `AcqRel`.
            $(#[$safety])*
            #[inline(always)]
            pub $($unsafe)? fn load(&self, order: Ordering) -> $ty {
                #[cfg(target_arch = "nvptx64")]
                // SAFETY: the place is that of `self`, which all access atomically.
                unsafe {
                    let place = self.as_ptr();
                    let value: $ty;
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
                value!($kind $ty, self.0.load(order))
            }

            /// Stores a value.
            ///
            /// # Panics
            /// If `order` is `Acquire` or `AcqRel`.
            $(#[$safety])*
            #[inline(always)]
            pub $($unsafe)? fn store(&self, value: $ty, order: Ordering) {
                #[cfg(target_arch = "nvptx64")]
                // SAFETY: as for `load`.
                unsafe {
                    let place = self.as_ptr();
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
                self.0.store(bits!($kind value), order);
            }

            operations! {
                $kind $ty, $class, $scope, $suffix, $signed, [$($unsafe)?] [$(#[$safety])*]
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
                current: $ty,
                new: $ty,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$ty, $ty> {
                let order = merged(success, failure);
                #[cfg(target_arch = "nvptx64")]
                let before = atom!(
                    $ty, $class, $scope, order, self.as_ptr(),
                    concat!("cas.b", $suffix, " {}, [{}], {}, {}"), (current, new)
                );
                #[cfg(not(target_arch = "nvptx64"))]
                let before = {
                    let (current, new) = (bits!($kind current), bits!($kind new));
                    let result = self.0.compare_exchange(current, new, order, failure);
                    value!($kind $ty, result.unwrap_or_else(|before| before))
                };
                match bits!($kind before) == bits!($kind current) {
                    true => Ok(before),
                    false => Err(before),
                }
            }
        }
    };
}

/// Declares the operations that floats have, and those that integers have.
macro_rules! operations {
    (
        float $ty:ident, $class:ident, $scope:literal, $suffix:literal, $signed:literal,
        [$($unsafe:ident)?] [$(#[$safety:meta])*]
    ) => {
        read_modify_write! {
            float $ty, $class, $scope, [$($unsafe)?] [$(#[$safety])*]:
            /// Stores `value`, and returns what was there before (`atom.exch`).
            swap = concat!("exch.b", $suffix), |_old, value| value;
            /// Adds (`atom.add`), and returns the value before. The order of additions by
            /// several threads is not fixed, nor are the last bits.
            fetch_add = concat!("add.f", $suffix), |old, value| old + value;
            /// And of the bits (`atom.and`). Returns the value before.
            fetch_and = concat!("and.b", $suffix),
                |old, value| $ty::from_bits(old.to_bits() & value.to_bits());
            /// Or of the bits (`atom.or`). Returns the value before.
            fetch_or = concat!("or.b", $suffix),
                |old, value| $ty::from_bits(old.to_bits() | value.to_bits());
            /// Exclusive or of the bits (`atom.xor`). Returns the value before.
            fetch_xor = concat!("xor.b", $suffix),
                |old, value| $ty::from_bits(old.to_bits() ^ value.to_bits());
        }

        /// Subtracts, as the addition of `-value`, and returns the value before.
        $(#[$safety])*
        #[inline(always)]
        pub $($unsafe)? fn fetch_sub(&self, value: $ty, order: Ordering) -> $ty {
            // SAFETY: the caller's contract, where there is one.
            $($unsafe)? { self.fetch_add(-value, order) }
        }
    };
    (
        int $int:ident, $class:ident, $scope:literal, $suffix:literal, $signed:literal,
        [$($unsafe:ident)?] [$(#[$safety:meta])*]
    ) => {
        read_modify_write! {
            int $int, $class, $scope, [$($unsafe)?] [$(#[$safety])*]:
            /// Stores `value`, and returns what was there before (`atom.exch`).
            swap = concat!("exch.b", $suffix), |_old, value| value;
            /// Adds, wrapping (`atom.add`). Returns the value before.
            fetch_add = concat!("add.u", $suffix), |old, value| old.wrapping_add(value);
            /// Takes the smaller value (`atom.min`). Returns the one before.
            fetch_min = concat!("min.", $signed, $suffix), |old, value| old.min(value);
            /// Takes the larger value (`atom.max`). Returns the one before.
            fetch_max = concat!("max.", $signed, $suffix), |old, value| old.max(value);
            /// And of the bits (`atom.and`). Returns the value before.
            fetch_and = concat!("and.b", $suffix), |old, value| old & value;
            /// Or of the bits (`atom.or`). Returns the value before.
            fetch_or = concat!("or.b", $suffix), |old, value| old | value;
            /// Exclusive or of the bits (`atom.xor`). Returns the value before.
            fetch_xor = concat!("xor.b", $suffix), |old, value| old ^ value;
        }

        /// Subtracts, wrapping, as the addition of `-value`. Returns the value before.
        $(#[$safety])*
        #[inline(always)]
        pub $($unsafe)? fn fetch_sub(&self, value: $int, order: Ordering) -> $int {
            // SAFETY: the caller's contract, where there is one.
            $($unsafe)? { self.fetch_add(value.wrapping_neg(), order) }
        }
    };
}

/// Declares the operations that take one value.
macro_rules! read_modify_write {
    (
        $kind:ident $ty:ident, $class:ident, $scope:literal, [$($unsafe:ident)?] [$(#[$safety:meta])*]:
    ) => {};
    (
        $kind:ident $ty:ident, $class:ident, $scope:literal,
        [$($unsafe:ident)?] [$(#[$safety:meta])*]:
        $(#[$doc:meta])*
        $name:ident = $op:expr, |$old:ident, $value:ident| $new:expr;
        $($rest:tt)*
    ) => {
        $(#[$doc])*
        $(#[$safety])*
        #[inline(always)]
        pub $($unsafe)? fn $name(&self, $value: $ty, order: Ordering) -> $ty {
            #[cfg(target_arch = "nvptx64")]
            {
                atom!(
                    $ty, $class, $scope, order, self.as_ptr(),
                    concat!($op, " {}, [{}], {}"), ($value)
                )
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                let update = |bits| {
                    let $old: $ty = value!($kind $ty, bits);
                    Some(bits!($kind ($new)))
                };
                let load = match order {
                    Ordering::Release => Ordering::Relaxed,
                    Ordering::AcqRel => Ordering::Acquire,
                    other => other,
                };
                let (Ok(before) | Err(before)) = self.0.fetch_update(order, load, update);
                value!($kind $ty, before)
            }
        }

        read_modify_write! {
            $kind $ty, $class, $scope, [$($unsafe)?] [$(#[$safety])*]: $($rest)*
        }
    };
}

/// One `atom`.
#[cfg(target_arch = "nvptx64")]
macro_rules! atom {
    (
        $ty:ident, $class:ident, $scope:literal, $order:expr, $place:expr, $op:expr,
        ($($value:expr),+)
    ) => {
        // SAFETY: the place is that of an atomic, which all access atomically.
        unsafe {
            let place = $place;
            let before: $ty;
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
    };
}

#[cfg(target_arch = "nvptx64")]
macro_rules! fence_sc {
    ($scope:literal) => {
        core::arch::asm!(concat!("fence.sc.", $scope, ";"), options(nostack, preserves_flags))
    };
}

/// Declares the three scopes of a number.
macro_rules! scopes {
    ($($kind:ident $ty:ident, $core:ident, $suffix:literal, $class:ident, $signed:literal:
        $device:ident $block:ident $system:ident;)*) => {$(
        atomic! {
            #[doc = concat!("A `", stringify!($ty), "` that the threads of a device share.")]
            $device = $kind $ty, $core, $suffix, $class, "gpu", $signed, []
        }
        atomic! {
            #[doc = concat!("A `", stringify!($ty), "` that the threads of a block share.")]
            $block = $kind $ty, $core, $suffix, $class, "cta", $signed, [unsafe]
            #[doc = "\n# Safety\nOnly threads of one block access the value."]
        }
        atomic! {
            #[doc = concat!("A `", stringify!($ty), "` that all devices and the host share.")]
            $system = $kind $ty, $core, $suffix, $class, "sys", $signed, []
        }
    )*};
}

scopes! {
    float f32, AtomicU32, "32", reg32, "": AtomicF32 BlockAtomicF32 SystemAtomicF32;
    float f64, AtomicU64, "64", reg64, "": AtomicF64 BlockAtomicF64 SystemAtomicF64;
    int u32, AtomicU32, "32", reg32, "u": DeviceAtomicU32 BlockAtomicU32 SystemAtomicU32;
    int i32, AtomicI32, "32", reg32, "s": DeviceAtomicI32 BlockAtomicI32 SystemAtomicI32;
    int u64, AtomicU64, "64", reg64, "u": DeviceAtomicU64 BlockAtomicU64 SystemAtomicU64;
    int i64, AtomicI64, "64", reg64, "s": DeviceAtomicI64 BlockAtomicI64 SystemAtomicI64;
}
