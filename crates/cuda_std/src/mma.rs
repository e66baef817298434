//! Matrices in a warp's registers, and their products on tensor cores.
//!
//! The instructions are `ldmatrix` and `mma.sync` (sm_80), and `stmatrix` (sm_90); PTX ISA: "Warp
//! Level Matrix Multiply-Accumulate Instructions".
//!
//! The 32 threads of a warp hold a matrix together; each has its *fragment*. [`mma`] computes `D =
//! A * B + C`. A is 16 x K, B is K x 8, and C and D are 16 x 8. K follows from the type and the
//! number of registers:
//!
//! | A | B | K of [`Bf16`], [`F16`] | K of [`Tf32`] |
//! |---|---|---:|---:|
//! | [`FragmentA<_, 2>`](FragmentA) | [`FragmentB<_, 1>`](FragmentB) | 8 | 4 |
//! | [`FragmentA<_, 4>`](FragmentA) | [`FragmentB<_, 2>`](FragmentB) | 16 | 8 |
//!
//! # Which lane holds what
//!
//! All fragments are made of *core matrices*: 8 x 8 elements of 16 bits, or 8 x 4 of 32 bits. Lane
//! `l` holds one register of row `l / 4`. With 16 bits it has columns `l % 4 * 2` (in the low half)
//! and `l % 4 * 2 + 1`. With 32 bits it has column `l % 4`:
//!
//! ```text
//!            col 0  1   2  3   4  5   6  7
//!   row 0    lane 0    lane 1    lane 2    lane 3
//!   row 1    lane 4    lane 5    lane 6    lane 7
//!   ...
//!   row 7    lane 28   lane 29   lane 30   lane 31
//! ```
//!
//! The registers of a fragment are core matrices that lie like this:
//!
//! ```text
//!   A, 4 registers: | a0 a2 |    A, 2: | a0 |    B^T, 2 registers: | b0 b1 |    B^T, 1: | b0 |
//!                   | a1 a3 |          | a1 |
//! ```
//!
//! B is held by columns. Register 0 of lane `l` belongs to column `l / 4`: it has rows `l % 4 * 2`
//! and `l % 4 * 2 + 1`, or with 32 bits row `l % 4`. So B is loaded from rows of its transpose. A
//! row-major B of 16 bits is loaded by the transposing loads.
//!
//! C and D have four f32 in each lane. `c[0]` and `c[1]` are in row `l / 4`, columns `l % 4 * 2`
//! and `l % 4 * 2 + 1`; `c[2]` and `c[3]` are eight rows below. In f16, `c[0]` is the first pair
//! and `c[1]` the second.
//!
//! # Arithmetic
//!
//! Products are exact. Sums in f32 are truncated where f32 would round to nearest; PTX leaves their
//! order and rounding open. Nothing rounds an operand on its way: f32 is converted before, to
//! nearest, by [`Tf32::round`], `half::bf16x2::narrow` or `half::f16x2::narrow`.
//!
//! # Safety of all functions
//!
//! All 32 threads of the warp come to the same call together (`.sync.aligned`).

use core::fmt;
use core::marker::PhantomData;

use cuda_std_macros::gpu_only;

use crate::shared::SharedPtr;

#[cfg(target_arch = "nvptx64")]
use crate::intrinsics;

/// Elements of type `bf16`, two in a register.
#[derive(Clone, Copy, Debug)]
pub struct Bf16;

/// Elements of type `f16`, two in a register.
#[derive(Clone, Copy, Debug)]
pub struct F16;

/// Elements of type `tf32`, one in a register: an f32 whose low 13 bits `mma` ignores.
#[derive(Clone, Copy, Debug)]
pub struct Tf32;

impl Tf32 {
    /// The bits of the nearest tf32; ties go away from zero (`cvt.rna.tf32.f32`).
    ///
    /// The result has 11 significant bits, 10 of them stored, and its low 13 bits are zeros. A
    /// number that rounds to more than the largest becomes infinite.
    #[gpu_only]
    #[inline(always)]
    #[must_use]
    pub fn round(value: f32) -> u32 {
        let result: u32;
        // SAFETY: arithmetic on registers.
        unsafe {
            core::arch::asm!(
                "cvt.rna.tf32.f32 {}, {};",
                out(reg32) result,
                in(reg32) value,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        result
    }

    /// [`round`](Self::round) with ties to even (`cvt.rn.tf32.f32`), from compute capability 9.0.
    #[gpu_only]
    #[inline(always)]
    #[must_use]
    pub fn round_ties_even(value: f32) -> u32 {
        let result: u32;
        // SAFETY: arithmetic on registers.
        unsafe {
            core::arch::asm!(
                "cvt.rn.tf32.f32 {}, {};",
                out(reg32) result,
                in(reg32) value,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        result
    }
}

macro_rules! fragments {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// The [module](self) shows which lane holds what.
        #[repr(transparent)]
        pub struct $name<T, const REGISTERS: usize>([u32; REGISTERS], PhantomData<T>);

        impl<T, const REGISTERS: usize> $name<T, REGISTERS> {
            /// The fragment of these registers.
            #[inline(always)]
            #[must_use]
            pub const fn from_bits(registers: [u32; REGISTERS]) -> Self {
                $name(registers, PhantomData)
            }

            /// The registers.
            #[inline(always)]
            #[must_use]
            pub const fn to_bits(self) -> [u32; REGISTERS] {
                self.0
            }
        }

        impl<T, const REGISTERS: usize> Clone for $name<T, REGISTERS> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T, const REGISTERS: usize> Copy for $name<T, REGISTERS> {}

        impl<T, const REGISTERS: usize> fmt::Debug for $name<T, REGISTERS> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.0).finish()
            }
        }
    )*};
}

fragments! {
    /// A thread's part of A, 16 rows by K, of elements of type `T`.
    FragmentA;
    /// A thread's part of B, K rows by 8 columns, of elements of type `T`.
    FragmentB;
}

mod sealed {
    pub trait Sealed<const A: usize, const B: usize, C> {}
}

/// A type of elements that [`mma`] multiplies.
///
/// `A` and `B` are the numbers of registers of A and of B. The accumulators `C` are `[f32; 4]` or,
/// for [`F16`], also `[u32; 2]`, which are pairs of f16.
pub trait Multiply<const A: usize, const B: usize, C>: Sized + sealed::Sealed<A, B, C> {
    /// [`mma`].
    ///
    /// # Safety
    /// As for [`mma`].
    unsafe fn multiply(a: FragmentA<Self, A>, b: FragmentB<Self, B>, c: C) -> C;
}

/// `A * B + C` (`mma.sync.aligned.row.col`); the types give the shape.
///
/// # Safety
/// All threads of the warp come to the same call together.
#[inline(always)]
#[must_use]
pub unsafe fn mma<T: Multiply<A, B, C>, const A: usize, const B: usize, C>(
    a: FragmentA<T, A>,
    b: FragmentB<T, B>,
    c: C,
) -> C {
    // SAFETY: the caller's contract.
    unsafe { T::multiply(a, b, c) }
}

/// One statement of assembly, followed by a convergent intrinsic of LLVM.
///
/// LLVM does not make a convergent instruction depend on another condition, nor the rest of its
/// basic block. It may copy the whole block, for example to unroll a loop. (LLVM's own intrinsics
/// for these instructions are not convergent.) `cuda_builder` checks that the convergent
/// instruction is there. ptxas leaves it out, since nobody uses its result.
#[cfg(target_arch = "nvptx64")]
macro_rules! together {
    ($($assembly:tt)*) => {{
        core::arch::asm!($($assembly)*);
        intrinsics::activemask();
    }};
}

macro_rules! multiply {
    ($($ty:ident: $op:literal: $acc:ty, $a_list:literal [$($a:literal)*] $b_list:literal [$($b:literal)*]
        $c_list:literal [$($c:literal)*], $count_a:literal $count_b:literal;)*) => {$(
        impl sealed::Sealed<$count_a, $count_b, $acc> for $ty {}

        impl Multiply<$count_a, $count_b, $acc> for $ty {
            #[gpu_only]
            #[inline(always)]
            unsafe fn multiply(
                a: FragmentA<Self, $count_a>,
                b: FragmentB<Self, $count_b>,
                c: $acc,
            ) -> $acc {
                let mut c = c;
                // SAFETY: the caller's contract; arithmetic on registers.
                unsafe {
                    together!(
                        concat!($op, " ", $c_list, ", ", $a_list, ", ", $b_list, ", ", $c_list, ";"),
                        $(inout(reg32) c[$c],)*
                        $(in(reg32) a.0[$a],)*
                        $(in(reg32) b.0[$b],)*
                        options(nomem, nostack, preserves_flags),
                    );
                }
                c
            }
        }
    )*};
}

multiply! {
    Bf16: "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32": [f32; 4],
        "{{{4}, {5}}}" [0 1] "{{{6}}}" [0] "{{{0}, {1}, {2}, {3}}}" [0 1 2 3], 2 1;
    Bf16: "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": [f32; 4],
        "{{{4}, {5}, {6}, {7}}}" [0 1 2 3] "{{{8}, {9}}}" [0 1] "{{{0}, {1}, {2}, {3}}}" [0 1 2 3], 4 2;
    F16: "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32": [f32; 4],
        "{{{4}, {5}}}" [0 1] "{{{6}}}" [0] "{{{0}, {1}, {2}, {3}}}" [0 1 2 3], 2 1;
    F16: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": [f32; 4],
        "{{{4}, {5}, {6}, {7}}}" [0 1 2 3] "{{{8}, {9}}}" [0 1] "{{{0}, {1}, {2}, {3}}}" [0 1 2 3], 4 2;
    Tf32: "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32": [f32; 4],
        "{{{4}, {5}}}" [0 1] "{{{6}}}" [0] "{{{0}, {1}, {2}, {3}}}" [0 1 2 3], 2 1;
    Tf32: "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": [f32; 4],
        "{{{4}, {5}, {6}, {7}}}" [0 1 2 3] "{{{8}, {9}}}" [0 1] "{{{0}, {1}, {2}, {3}}}" [0 1 2 3], 4 2;
    F16: "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16": [u32; 2],
        "{{{2}, {3}}}" [0 1] "{{{4}}}" [0] "{{{0}, {1}}}" [0 1], 2 1;
    F16: "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16": [u32; 2],
        "{{{2}, {3}, {4}, {5}}}" [0 1 2 3] "{{{6}, {7}}}" [0 1] "{{{0}, {1}}}" [0 1], 4 2;
}

macro_rules! loads {
    ($($(#[$doc:meta])* $name:ident, $trans:ident -> $count:literal = $op:literal, $list:literal [$($i:literal)*];)*)
        => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// - All threads of the warp come to the same call together.
        /// - The rows lie in the block's shared memory, 16 bytes each, begin on 16 bytes, and were
        ///   written before: see [`SharedPtr`]. The pointers of the other lanes do not count.
        #[gpu_only]
        #[inline(always)]
        #[must_use]
        pub unsafe fn $name(row: SharedPtr<u16>) -> [u32; $count] {
            loads!(@one row, $count, concat!("ldmatrix.sync.aligned.m8n8.", $op, ".shared.b16 ", $list), $($i)*)
        }

        #[doc = concat!("[`", stringify!($name), "`], of matrices that are transposed on the way \
            (`.trans`): element (i, j) of what is held is element (j, i) in memory.")]
        ///
        /// # Safety
        #[doc = concat!("As for [`", stringify!($name), "`].")]
        #[gpu_only]
        #[inline(always)]
        #[must_use]
        pub unsafe fn $trans(row: SharedPtr<u16>) -> [u32; $count] {
            loads!(@one row, $count, concat!("ldmatrix.sync.aligned.m8n8.", $op, ".trans.shared.b16 ", $list), $($i)*)
        }
    )*};
    (@one $row:ident, $count:literal, $head:expr, $($i:literal)*) => {{
        let mut words = [0; $count];
        // SAFETY: the caller's contract. Not `pure`: other threads also store there, so a load must
        // not move across a barrier.
        unsafe {
            together!(
                concat!($head, ", [{}];"),
                $(out(reg32) words[$i],)*
                in(reg32) $row.address(),
                options(readonly, nostack, preserves_flags),
            );
        }
        words
    }};
}

loads! {
    /// Loads a core matrix (`ldmatrix.sync.aligned.m8n8.x1.b16`): `row` of lane `l` is the row `l`,
    /// for lanes 0 to 7.
    ldmatrix_x1, ldmatrix_x1_trans -> 1 = "x1", "{{{}}}" [0];
    /// Loads two core matrices (`.x2`): `row` of lane `l` is row `l % 8` of matrix `l / 8`, for
    /// lanes 0 to 15.
    ldmatrix_x2, ldmatrix_x2_trans -> 2 = "x2", "{{{}, {}}}" [0 1];
    /// Loads four core matrices (`.x4`): `row` of lane `l` is row `l % 8` of matrix `l / 8`.
    ldmatrix_x4, ldmatrix_x4_trans -> 4 = "x4", "{{{}, {}, {}, {}}}" [0 1 2 3];
}

macro_rules! stores {
    ($($(#[$doc:meta])* $name:ident, $trans:ident: $count:literal = $op:literal, $list:literal [$($i:literal)*];)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// - All threads of the warp come to the same call together.
        /// - The rows lie in the block's shared memory, 16 bytes each, and begin on 16 bytes;
        ///   nothing else touches them: see [`SharedPtr`]. The pointers of the other lanes do not
        ///   count.
        #[gpu_only]
        #[inline(always)]
        pub unsafe fn $name(row: SharedPtr<u16>, words: [u32; $count]) {
            stores!(@one row, words, concat!("stmatrix.sync.aligned.m8n8.", $op, ".shared.b16 [{}], ", $list), $($i)*);
        }

        #[doc = concat!("[`", stringify!($name), "`], of matrices that are transposed on the way \
            (`.trans`): element (i, j) of what is held becomes element (j, i) in memory.")]
        ///
        /// # Safety
        #[doc = concat!("As for [`", stringify!($name), "`].")]
        #[gpu_only]
        #[inline(always)]
        pub unsafe fn $trans(row: SharedPtr<u16>, words: [u32; $count]) {
            stores!(@one row, words, concat!("stmatrix.sync.aligned.m8n8.", $op, ".trans.shared.b16 [{}], ", $list), $($i)*);
        }
    )*};
    (@one $row:ident, $words:ident, $head:expr, $($i:literal)*) => {
        // SAFETY: the caller's contract.
        unsafe {
            together!(
                concat!($head, ";"),
                in(reg32) $row.address(),
                $(in(reg32) $words[$i],)*
                options(nostack, preserves_flags),
            );
        }
    };
}

stores! {
    /// Stores a core matrix (`stmatrix.sync.aligned.m8n8.x1.b16`, sm_90), as [`ldmatrix_x1`] loads
    /// it.
    stmatrix_x1, stmatrix_x1_trans: 1 = "x1", "{{{}}}" [0];
    /// Stores two core matrices (`.x2`), as [`ldmatrix_x2`] loads them.
    stmatrix_x2, stmatrix_x2_trans: 2 = "x2", "{{{}, {}}}" [0 1];
    /// Stores four core matrices (`.x4`), as [`ldmatrix_x4`] loads them.
    stmatrix_x4, stmatrix_x4_trans: 4 = "x4", "{{{}, {}, {}, {}}}" [0 1 2 3];
}
