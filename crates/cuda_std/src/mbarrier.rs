//! Barriers in shared memory that count arrivals and bytes (`mbarrier`, sm_80; bytes and
//! waiting by parity: sm_90).
//!
//! An [`Mbarrier`] goes through phases. A phase completes when as many arrivals have come as
//! the barrier was made for, and as many bytes as its arrivals said to expect; the next one
//! begins at once. A wait names the phase by its parity: 0 for the first, 1 for the second,
//! 0 for the third. What a thread did before it arrived is seen by those that waited.

use cuda_std_macros::gpu_only;

use crate::shared::SharedPtr;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// A barrier of 8 bytes in shared memory.
///
/// # Safety of its operations
///
/// For every operation the caller makes sure that
/// - the barrier lies in the block's shared memory, aligned to 8 bytes, and is used for
///   nothing else;
/// - it was made by [`init`](Self::init), and [`fence_init`] and a barrier of the block came
///   after that;
/// - no phase gets more arrivals or bytes than it waits for.
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

    /// Makes a barrier whose phases wait for `arrivals` (`mbarrier.init`).
    ///
    /// # Safety
    /// See [`Mbarrier`]. One thread does this, before any other operation.
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

    /// Arrives (`mbarrier.arrive`, with release semantics in the block).
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

    /// Arrives, and says how many more bytes this phase waits for
    /// (`mbarrier.arrive.expect_tx`).
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

    /// Waits until the phase of this parity is complete (`mbarrier.try_wait.parity`, in a
    /// loop). Of the phases with this parity it is the current one or the one just before: a
    /// barrier that has not been used yet counts as having completed one of parity 1.
    ///
    /// # Safety
    /// See [`Mbarrier`].
    #[gpu_only]
    #[inline(always)]
    pub unsafe fn wait_parity(self, parity: u32) {
        loop {
            let done: u32;
            // SAFETY: the caller's contract.
            unsafe {
                asm!(
                    "{{",
                    ".reg .pred p;",
                    "mbarrier.try_wait.parity.shared::cta.b64 p, [{barrier}], {parity};",
                    "selp.u32 {done}, 1, 0, p;",
                    "}}",
                    barrier = in(reg32) self.address(),
                    parity = in(reg32) parity,
                    done = out(reg32) done,
                    options(nostack),
                );
            }
            if done != 0 {
                break;
            }
        }
    }
}

/// Makes the barriers that this thread has made visible to bulk copies
/// (`fence.mbarrier_init.release.cluster`). A barrier of the block must follow, for the other
/// threads.
#[gpu_only]
#[inline(always)]
pub fn fence_init() {
    // SAFETY: a fence; `asm!` without `nomem` orders the compiler's accesses too.
    unsafe { asm!("fence.mbarrier_init.release.cluster;", options(nostack, preserves_flags)) }
}
