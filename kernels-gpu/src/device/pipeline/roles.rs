//! The roles of a block's warpgroups, producer and consumers, and each role's registers.

use cuda_std::prelude::*;

/// Rows of the sums of a `wgmma`.
pub const WM: u32 = 64;
/// Threads of a warpgroup.
pub const WARPGROUP: u32 = 128;
/// Registers per thread of the producer warpgroup and of two consumer warpgroups.
const PRODUCER_REGISTERS: u32 = 40;
const CONSUMER_REGISTERS: u32 = 232;

/// Registers per thread of a block of `warpgroups` at launch, with one block per multiprocessor.
const fn launched_registers(warpgroups: u32) -> u32 {
    65536 / (warpgroups * WARPGROUP) / 8 * 8
}

/// Gives registers back to the block, as its producer warpgroup.
///
/// # Safety
/// The whole warpgroup calls this once, in a block for which [`moves_registers`].
#[inline(always)]
pub unsafe fn give_registers() {
    // SAFETY: it has more registers than that.
    unsafe { thread::warpgroup_reg_dealloc::<PRODUCER_REGISTERS>() };
}

/// Takes what [`give_registers`] gives, as one of the consumer warpgroups.
///
/// # Safety
/// As for [`give_registers`].
#[inline(always)]
pub unsafe fn take_registers() {
    // SAFETY: it has fewer registers than that. Together they want no more than the block was
    // launched with.
    unsafe { thread::warpgroup_reg_alloc::<CONSUMER_REGISTERS>() };
}

/// Whether registers move from the producer to the `consumers` warpgroups.
///
/// With one consumer, a thread has all the registers that it can name from the launch on.
/// `setmaxnreg.inc` must not lower that.
pub const fn moves_registers(consumers: u32) -> bool {
    let launched = launched_registers(consumers + 1);
    let moves = launched < CONSUMER_REGISTERS;
    assert!(
        !moves
            || PRODUCER_REGISTERS <= launched
                && PRODUCER_REGISTERS + consumers * CONSUMER_REGISTERS
                    <= (consumers + 1) * launched,
        "the consumers wait without end for more registers than the producer gives back"
    );
    moves
}
