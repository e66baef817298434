//! Clusters of blocks (sm_90): their indices, their barrier, and the shared memory of other blocks.
//!
//! The blocks of a cluster run at the same time, and access each other's shared memory
//! ("distributed shared memory" in the CUDA C++ Programming Guide). `#[kernel(cluster = 2)]` says
//! how many blocks a cluster has, up to 8; the grid of a launch is whole clusters. Without it each
//! block is a cluster of its own.
//!
//! A block may access the memory of another one only while that block runs. So call [`sync`] before
//! the first such access, and again after the last.
//!
//! ```no_run
//! use cuda_std::cluster;
//! use cuda_std::prelude::*;
//!
//! /// Adds up `x`, 512 elements for each cluster: `sums[i]` is the sum of cluster `i`.
//! ///
//! /// # Safety
//! /// As many clusters as the launch has elements of `sums`, and as many times 512 of `x`.
//! #[kernel(block = 128, cluster = 4)]
//! pub unsafe fn cluster_sums(x: &[u32], sums: *mut u32) {
//!     let total = shared_array![u32; 1];
//!     let i = thread::thread_idx_x();
//!     // SAFETY: the total is zero when the first barrier is passed, all add to that of rank 0
//!     // atomically before the second one, and no block exits earlier.
//!     unsafe {
//!         if i == 0 {
//!             total.store(0, 0);
//!         }
//!         cluster::sync();
//!         cluster::mapa(*total, 0).fetch_add(0, x[thread::index_1d() as usize]);
//!         cluster::sync();
//!         if i == 0 && cluster::cluster_ctarank() == 0 {
//!             *sums.add(cluster::clusterid().x as usize) = total.load(0);
//!         }
//!     }
//! }
//! ```
//!
//! Copies of one tile to several blocks: [`tma::load_multicast`](crate::tma::load_multicast).
//! Arrivals at the [`Mbarrier`](crate::mbarrier::Mbarrier) of another block:
//! [`arrive_cluster`](crate::mbarrier::Mbarrier::arrive_cluster).

use core::marker::PhantomData;
use core::mem::MaybeUninit;

use cuda_std_macros::gpu_only;
use glam::UVec3;

use crate::access::{self, loads, stores};
use crate::shared::SharedPtr;
use crate::vec;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

#[cfg(target_arch = "nvptx64")]
use crate::intrinsics;

macro_rules! special_registers {
    ($($(#[$doc:meta])* $name:ident -> $ty:ty = $($register:literal)+;)*) => {$(
        $(#[$doc])*
        #[gpu_only]
        #[inline(always)]
        #[must_use]
        pub fn $name() -> $ty {
            special_registers!(@ $($register)+)
        }
    )*};
    (@ $register:literal) => {{
        let value: u32;
        // SAFETY: reads a special register.
        unsafe {
            asm!(
                concat!("mov.u32 {}, %", $register, ";"),
                out(reg32) value,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        value
    }};
    (@ $x:literal $y:literal $z:literal) => {
        UVec3::new(special_registers!(@ $x), special_registers!(@ $y), special_registers!(@ $z))
    };
}

special_registers! {
    /// The block's index in its cluster (`%cluster_ctaid`).
    cluster_ctaid -> UVec3 = "cluster_ctaid.x" "cluster_ctaid.y" "cluster_ctaid.z";
    /// Blocks of a cluster (`%cluster_nctaid`).
    cluster_nctaid -> UVec3 = "cluster_nctaid.x" "cluster_nctaid.y" "cluster_nctaid.z";
    /// The cluster's index in the grid (`%clusterid`).
    clusterid -> UVec3 = "clusterid.x" "clusterid.y" "clusterid.z";
    /// Clusters in the grid (`%nclusterid`).
    nclusterid -> UVec3 = "nclusterid.x" "nclusterid.y" "nclusterid.z";
    /// The block's number in its cluster, from 0 (`%cluster_ctarank`): along x, then y, then z.
    cluster_ctarank -> u32 = "cluster_ctarank";
    /// Blocks of a cluster, in all dimensions (`%cluster_nctarank`).
    cluster_nctarank -> u32 = "cluster_nctarank";
}

/// Arrives at the barrier of the cluster (`barrier.cluster.arrive`), and does not wait.
///
/// Behind their [`wait`], all threads of the cluster see what this thread did before (release
/// semantics).
///
/// # Safety
/// The thread has waited since it arrived the last time, and [`wait`]s before it arrives again.
#[gpu_only]
#[inline(always)]
pub unsafe fn arrive() {
    // SAFETY: the caller's contract.
    unsafe { intrinsics::barrier_cluster_arrive() }
}

/// [`arrive`] that makes nothing visible that this thread did before
/// (`barrier.cluster.arrive.relaxed`).
///
/// # Safety
/// As for [`arrive`].
#[gpu_only]
#[inline(always)]
pub unsafe fn arrive_relaxed() {
    // SAFETY: the caller's contract.
    unsafe { intrinsics::barrier_cluster_arrive_relaxed() }
}

/// Waits until all threads of the cluster that have not returned have arrived
/// (`barrier.cluster.wait`), and sees what they did before (acquire semantics).
///
/// # Safety
/// The thread has arrived once since it waited the last time.
#[gpu_only]
#[inline(always)]
pub unsafe fn wait() {
    // SAFETY: the caller's contract.
    unsafe { intrinsics::barrier_cluster_wait() }
}

/// Waits for all threads of the cluster, and orders their accesses: [`arrive`] and [`wait`].
#[gpu_only]
#[inline(always)]
pub fn sync() {
    // SAFETY: each arrival has its wait. Whoever has arrived before by `arrive` has promised to
    // have waited.
    unsafe {
        intrinsics::barrier_cluster_arrive();
        intrinsics::barrier_cluster_wait();
    }
}

/// Orders this thread's accesses for the threads of its cluster (`fence.acq_rel.cluster`).
#[gpu_only]
#[inline(always)]
pub fn fence() {
    // SAFETY: a fence; `asm!` without `nomem` orders the compiler's accesses too.
    unsafe { asm!("fence.acq_rel.cluster;", options(nostack, preserves_flags)) }
}

/// A pointer to elements of type `T` in the shared memory of a block of the cluster.
///
/// It is an address of `.shared::cluster`, of 32 bits. [`mapa`] makes it.
///
/// # Safety of accesses
///
/// As for [`SharedPtr`], where barriers are those of the cluster, and
/// - the block has started, and does not exit before the access is done: a [`sync`] of all its
///   threads comes before and after it.
pub struct ClusterPtr<T> {
    address: u32,
    element: PhantomData<*mut T>,
}

impl<T> Clone for ClusterPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ClusterPtr<T> {}

/// The counterpart of `pointer` in the shared memory of the block with rank `rank`.
///
/// That block may be this one. The instruction is `mapa.shared::cluster`.
///
/// # Safety
/// `rank` is below [`cluster_nctarank`].
#[gpu_only]
#[inline(always)]
#[must_use]
pub unsafe fn mapa<T>(pointer: SharedPtr<T>, rank: u32) -> ClusterPtr<T> {
    let address: u32;
    // SAFETY: computes an address; touches no memory.
    unsafe {
        asm!(
            "mapa.shared::cluster.u32 {}, {}, {};",
            out(reg32) address,
            in(reg32) pointer.address(),
            in(reg32) rank,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    ClusterPtr { address, element: PhantomData }
}

impl<T> ClusterPtr<T> {
    /// The address in the `.shared::cluster` address space, in bytes.
    #[inline(always)]
    #[must_use]
    pub fn address(self) -> u32 {
        self.address
    }

    /// The pointer `count` elements further.
    #[allow(clippy::should_implement_trait, reason = "named as on Rust's own pointers")]
    #[inline(always)]
    #[must_use]
    pub fn add(self, count: u32) -> Self {
        let bytes = count.wrapping_mul(size_of::<T>() as u32);
        ClusterPtr { address: self.address.wrapping_add(bytes), element: PhantomData }
    }

    /// This address, for elements of another type.
    #[inline(always)]
    #[must_use]
    pub fn cast<U>(self) -> ClusterPtr<U> {
        ClusterPtr { address: self.address, element: PhantomData }
    }

    /// The rank of the block in whose shared memory it points (`getctarank.shared::cluster`).
    ///
    /// # Safety
    /// It points into the shared memory of a block of the cluster: PTX says nothing about other
    /// addresses.
    #[gpu_only]
    #[inline(always)]
    #[must_use]
    pub unsafe fn getctarank(self) -> u32 {
        let rank: u32;
        // SAFETY: computes with an address; touches no memory.
        unsafe {
            asm!(
                "getctarank.shared::cluster.u32 {}, {};",
                out(reg32) rank,
                in(reg32) self.address,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        rank
    }

    /// The generic pointer to the same place (`cvta.shared::cluster`), for code that needs a `*mut
    /// T`.
    ///
    /// # Safety
    /// As for [`getctarank`](Self::getctarank).
    #[gpu_only]
    #[inline(always)]
    #[must_use]
    pub unsafe fn as_mut_ptr(self) -> *mut T {
        let pointer: *mut T;
        // SAFETY: computes an address; touches no memory.
        unsafe {
            asm!(
                "cvta.shared::cluster.u64 {}, {};",
                out(reg64) pointer,
                in(reg64) u64::from(self.address),
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        pointer
    }
}

/// An address in the `.shared::cluster` state space.
#[derive(Clone, Copy)]
struct Address(u32);

loads! { Address, reg32 = "ld.shared::cluster"; }
stores! { Address, reg32 = "st.shared::cluster"; }

impl<T: Copy> ClusterPtr<T> {
    /// Loads element `index`, of any type (`ld.shared::cluster`).
    ///
    /// The instructions are as wide as the type is aligned: a number takes one.
    ///
    /// # Safety
    /// See [`ClusterPtr`].
    #[inline(always)]
    #[must_use]
    pub unsafe fn read(self, index: u32) -> T {
        // SAFETY: the caller's contract.
        unsafe { access::load(Address(self.add(index).address), align_of::<T>()) }
    }

    /// Stores element `index` (`st.shared::cluster`), as [`read`](Self::read) loads it.
    ///
    /// # Safety
    /// See [`ClusterPtr`].
    #[inline(always)]
    pub unsafe fn write(self, index: u32, value: T) {
        // SAFETY: the caller's contract.
        unsafe { access::store(Address(self.add(index).address), align_of::<T>(), value) }
    }

    /// Loads the `N` elements from `index` on, which make 2, 4, 8 or 16 bytes, with one access
    /// (`ld.shared::cluster.v4.b32` for 16 bytes).
    ///
    /// # Safety
    /// See [`ClusterPtr`]; the address of element `index` is a multiple of the bytes loaded.
    #[inline(always)]
    #[must_use]
    pub unsafe fn load_vec<const N: usize>(self, index: u32) -> [T; N] {
        const { assert!(vec::is_one_access::<T, N>(), "one access moves 2, 4, 8 or 16 bytes") };
        // SAFETY: the caller's contract.
        unsafe { access::load(Address(self.add(index).address), size_of::<[T; N]>()) }
    }

    /// Stores `N` elements from `index` on, which make 2, 4, 8 or 16 bytes, with one access
    /// (`st.shared::cluster.v4.b32` for 16 bytes).
    ///
    /// # Safety
    /// See [`ClusterPtr`]; the address of element `index` is a multiple of the bytes stored.
    #[inline(always)]
    pub unsafe fn store_vec<const N: usize>(self, index: u32, value: [T; N]) {
        const { assert!(vec::is_one_access::<T, N>(), "one access moves 2, 4, 8 or 16 bytes") };
        // SAFETY: the caller's contract.
        unsafe { access::store(Address(self.add(index).address), size_of::<[T; N]>(), value) }
    }
}

/// One `atom.shared::cluster` for each operation.
macro_rules! atomics {
    ($($ty:ty, $class:ident { $($(#[$doc:meta])* $name:ident = $op:literal;)* })*) => {$(
        impl ClusterPtr<$ty> {$(
            $(#[$doc])*
            /// Returns the value before.
            ///
            /// # Safety
            /// See [`ClusterPtr`]; but other threads of the cluster may access the element
            /// atomically at the same time, in the scope of the cluster.
            #[gpu_only]
            #[inline(always)]
            pub unsafe fn $name(self, index: u32, value: $ty) -> $ty {
                let before: $ty;
                // SAFETY: the caller's contract.
                unsafe {
                    asm!(
                        concat!("atom.relaxed.cluster.shared::cluster.", $op, " {}, [{}], {};"),
                        out($class) before,
                        in(reg32) self.add(index).address,
                        in($class) value,
                        options(nostack, preserves_flags),
                    );
                }
                before
            }
        )*}
    )*};
}

atomics! {
    u32, reg32 {
        /// Adds to element `index`, wrapping (`atom.shared::cluster.add.u32`).
        fetch_add = "add.u32";
        /// Takes the smaller value for element `index` (`atom.shared::cluster.min.u32`).
        fetch_min = "min.u32";
        /// Takes the larger value for element `index` (`atom.shared::cluster.max.u32`).
        fetch_max = "max.u32";
        /// Exchanges element `index` (`atom.shared::cluster.exch.b32`).
        swap = "exch.b32";
    }
    i32, reg32 {
        /// Adds to element `index`, wrapping (`atom.shared::cluster.add.s32`).
        fetch_add = "add.s32";
        /// Takes the smaller value for element `index` (`atom.shared::cluster.min.s32`).
        fetch_min = "min.s32";
        /// Takes the larger value for element `index` (`atom.shared::cluster.max.s32`).
        fetch_max = "max.s32";
    }
    u64, reg64 {
        /// Adds to element `index`, wrapping (`atom.shared::cluster.add.u64`).
        fetch_add = "add.u64";
    }
    f32, reg32 {
        /// Adds to element `index` (`atom.shared::cluster.add.f32`). The order of additions is not
        /// fixed, nor are the last bits.
        fetch_add = "add.f32";
    }
}
