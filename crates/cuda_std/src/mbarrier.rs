//! Barriers in shared memory that count arrivals and bytes.
//!
//! The instructions are `mbarrier.*` (PTX ISA: "Parallel Synchronization and Communication
//! Instructions: mbarrier").
//!
//! An [`Mbarrier`] goes through phases. A phase completes when two counts are reached: the arrivals
//! that the barrier was initialised with, and the bytes that its arrivals expect. The next phase
//! begins at once. A wait names a phase by its parity: 0 for the first, 1 for the second, and so
//! on. Threads that waited see the memory operations before each arrival.
//!
//! Unlike [`sync_threads`](crate::thread::sync_threads), arriving and waiting are separate. A
//! pipeline has two barriers for each stage, full and empty; [`tma`](crate::tma) has an example.
//!
//! [`init`](Mbarrier::init) and [`arrive`](Mbarrier::arrive) exist since sm_80, the rest since
//! sm_90. As they are written here, all need PTX 8.0. rustc writes that for `sm_90a`, `sm_100` and
//! later, not for `sm_90`.

use cuda_std_macros::gpu_only;

use crate::cluster::{self, ClusterPtr};
use crate::shared::SharedPtr;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// `mbarrier.try_wait.parity` of an [`Mbarrier`], with modifiers, until it is successful.
#[cfg(target_arch = "nvptx64")]
macro_rules! wait_loop {
    ($barrier:ident, $parity:ident, $modifiers:literal) => {
        loop {
            let done: u32;
            // SAFETY: the caller's contract.
            unsafe {
                asm!(
                    "{{",
                    ".reg .pred p;",
                    concat!(
                        "mbarrier.try_wait.parity.", $modifiers,
                        "shared::cta.b64 p, [{barrier}], {parity};"
                    ),
                    "selp.u32 {done}, 1, 0, p; }}",
                    barrier = in(reg32) $barrier.address(),
                    parity = in(reg32) $parity,
                    done = out(reg32) done,
                    options(nostack),
                );
            }
            if done != 0 {
                break;
            }
        }
    };
}

/// A barrier of 8 bytes in shared memory.
///
/// # Safety of its operations
///
/// For every operation the caller makes sure that
/// - the barrier lies in the block's shared memory, aligned to 8 bytes, and is used for
///   nothing else;
/// - it was made by [`init`](Self::init), and [`fence_init`] and a barrier of the block came
///   after that;
/// - no phase gets more arrivals than it waits for, nor more bytes than it expects, and at most
///   2^20 - 1 of either.
#[derive(Clone, Copy)]
pub struct Mbarrier(SharedPtr<u64>);

impl Mbarrier {
    /// The barrier at an address in shared memory.
    #[inline(always)]
    #[must_use]
    pub fn at(address: SharedPtr<u64>) -> Self {
        Mbarrier(address)
    }

    /// The barrier `count` places further.
    #[allow(clippy::should_implement_trait, reason = "named as on Rust's own pointers")]
    #[inline(always)]
    #[must_use]
    pub fn add(self, count: u32) -> Self {
        Mbarrier(self.0.add(count))
    }

    /// The address in the shared address space, in bytes.
    #[inline(always)]
    #[must_use]
    pub fn address(self) -> u32 {
        self.0.address()
    }

    /// Makes a barrier whose phases wait for `arrivals` (`mbarrier.init`, sm_80).
    ///
    /// `arrivals` is from 1 to 2^20 - 1.
    ///
    /// # Safety
    /// See [`Mbarrier`]. One thread does this once, before any other operation.
    #[gpu_only]
    #[inline(always)]
    pub unsafe fn init(self, arrivals: u32) {
        // SAFETY: the caller's contract.
        unsafe {
            asm!(
                "mbarrier.init.shared::cta.b64 [{}], {};",
                in(reg32) self.address(),
                in(reg32) arrivals,
                options(nostack, preserves_flags),
            );
        }
    }

    /// Arrives (`mbarrier.arrive`, sm_80), and does not wait.
    ///
    /// Each call is one arrival of one thread. Threads that wait for the phase see what this thread
    /// did before (release semantics in the block). If one thread arrives for its warp,
    /// [`sync_warp`](crate::warp::sync_warp) comes before.
    ///
    /// # Safety
    /// See [`Mbarrier`].
    #[gpu_only]
    #[inline(always)]
    pub unsafe fn arrive(self) {
        // SAFETY: the caller's contract.
        unsafe {
            asm!(
                "mbarrier.arrive.shared::cta.b64 _, [{}];",
                in(reg32) self.address(),
                options(nostack, preserves_flags),
            );
        }
    }

    /// [`arrive`](Self::arrive) if a condition holds, without a branch.
    ///
    /// # Safety
    /// See [`Mbarrier`].
    #[gpu_only]
    #[inline(always)]
    pub unsafe fn arrive_if(self, condition: bool) {
        // SAFETY: the caller's contract.
        unsafe {
            asm!(
                "{{ .reg .pred p;",
                "setp.ne.u32 p, {}, 0;",
                "@p mbarrier.arrive.shared::cta.b64 _, [{}]; }}",
                in(reg32) u32::from(condition),
                in(reg32) self.address(),
                options(nostack, preserves_flags),
            );
        }
    }

    /// Arrives, and says how many more bytes this phase waits for (`mbarrier.arrive.expect_tx`,
    /// sm_90).
    ///
    /// The bytes are those of the copies that report to the barrier, such as
    /// [`tma::load_2d`](crate::tma::load_2d). The thread that asks for the copies calls this before
    /// them, once for all copies of a phase. Other threads just [`arrive`](Self::arrive).
    ///
    /// # Safety
    /// See [`Mbarrier`].
    #[gpu_only]
    #[inline(always)]
    pub unsafe fn arrive_expect_tx(self, bytes: u32) {
        // SAFETY: the caller's contract.
        unsafe {
            asm!(
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{}], {};",
                in(reg32) self.address(),
                in(reg32) bytes,
                options(nostack, preserves_flags),
            );
        }
    }

    /// This barrier's counterpart in the block with rank `rank` of the cluster, for
    /// [`tma::copy_to_cluster`](crate::tma::copy_to_cluster).
    ///
    /// # Safety
    /// As for [`cluster::mapa`].
    #[inline(always)]
    #[must_use]
    pub unsafe fn mapa(self, rank: u32) -> ClusterPtr<u64> {
        // SAFETY: the caller's contract.
        unsafe { cluster::mapa(self.0, rank) }
    }

    /// Arrives at this barrier's counterpart in the block with rank `rank`, and does not wait.
    ///
    /// The instruction is `mbarrier.arrive.release.cluster.shared::cluster` (sm_90). Threads of
    /// that block that [`wait_parity_cluster`](Self::wait_parity_cluster) see what this thread did
    /// before.
    ///
    /// # Safety
    /// - See [`Mbarrier`], for the other block.
    /// - That block has initialised the barrier before a [`cluster::sync`] of both.
    /// - It does not exit before the arrival is there: another sync comes behind it, or that block
    ///   waits for the arrival.
    #[gpu_only]
    #[inline(always)]
    pub unsafe fn arrive_cluster(self, rank: u32) {
        // SAFETY: the caller's contract.
        unsafe {
            asm!(
                "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{}];",
                in(reg32) self.mapa(rank).address(),
                options(nostack, preserves_flags),
            );
        }
    }

    /// [`wait_parity`](Self::wait_parity) that also sees what was done before arrivals from other
    /// blocks.
    ///
    /// Those are blocks of the cluster (acquire semantics in the cluster).
    ///
    /// # Safety
    /// See [`Mbarrier`].
    #[gpu_only]
    #[inline(always)]
    pub unsafe fn wait_parity_cluster(self, parity: u32) {
        wait_loop!(self, parity, "acquire.cluster.")
    }

    /// Waits until the phase of this parity is complete (`mbarrier.try_wait.parity`, sm_90, in a
    /// loop).
    ///
    /// Then the thread sees what was done before the arrivals, and the bytes that were copied
    /// (acquire semantics in the block). Every thread that reads them waits itself.
    ///
    /// Of the phases with this parity, the one meant is the current one or the one just before. A
    /// barrier that has not been used yet counts as having completed a phase of parity 1. So a wait
    /// for an empty buffer begins with parity 1, and passes at once the first time. A thread that
    /// falls two phases behind mistakes one phase for the other.
    ///
    /// # Safety
    /// See [`Mbarrier`].
    #[gpu_only]
    #[inline(always)]
    pub unsafe fn wait_parity(self, parity: u32) {
        wait_loop!(self, parity, "")
    }
}

/// Arrives at a barrier in a block of the cluster, from [`Mbarrier::mapa`], and does not wait.
///
/// That block learns nothing but the count: `mbarrier.arrive.shared::cluster` (sm_90) has release
/// semantics within this block only. So it says that this thread has read what a bulk copy of that
/// block will overwrite. [`Mbarrier::arrive_cluster`] also says that this thread's writes are
/// there, and compiles to a fence of the whole GPU, which waits for all of them.
///
/// # Safety
/// As for [`Mbarrier::arrive_cluster`].
#[gpu_only]
#[inline(always)]
pub unsafe fn arrive_remote(barrier: ClusterPtr<u64>) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "mbarrier.arrive.shared::cluster.b64 _, [{}];",
            in(reg32) barrier.address(),
            options(nostack, preserves_flags),
        );
    }
}

/// Makes the barriers that this thread has initialised visible to bulk copies.
///
/// The instruction is `fence.mbarrier_init.release.cluster` (sm_90; PTX ISA: "Parallel
/// Synchronization and Communication Instructions: membar / fence"). The thread that called
/// [`init`](Mbarrier::init) calls this once, after the last of them. A barrier of the block must
/// follow, for the other threads.
#[gpu_only]
#[inline(always)]
pub fn fence_init() {
    // SAFETY: a fence; `asm!` without `nomem` orders the compiler's accesses too.
    unsafe { asm!("fence.mbarrier_init.release.cluster;", options(nostack, preserves_flags)) }
}
