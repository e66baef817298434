//! The roles of a block's warpgroups, producer and consumers, and each role's registers.

use cuda_std::prelude::*;

/// Rows of the sums of a `wgmma`.
pub const WM: u32 = 64;
/// Threads of a warpgroup.
pub const WARPGROUP: u32 = 128;

/// Registers per thread of the producer warpgroup, and of each of `consumers` warpgroups.
///
/// With one consumer, a thread has all the registers that it can name from the launch on.
const fn registers(consumers: u32) -> [u32; 2] {
    let registers = match consumers {
        2 => [40, 232],
        _ => [24, 160],
    };
    let launched = 65536 / ((consumers + 1) * WARPGROUP) / 8 * 8;
    assert!(
        !moves_registers(consumers)
            || registers[0] <= launched
                && launched <= registers[1]
                && registers[0] + consumers * registers[1] <= (consumers + 1) * launched,
        "the producer gives back what the consumers take, and nobody's count is lowered"
    );
    registers
}

/// Whether registers move from the producer to the `consumers` warpgroups, of a block that has its
/// multiprocessor to itself.
pub const fn moves_registers(consumers: u32) -> bool {
    consumers > 1
}

/// Gives registers back to the block, as its producer warpgroup.
///
/// # Safety
/// The whole warpgroup calls this once, in a block for which [`moves_registers`].
#[inline(always)]
pub unsafe fn give_registers<const CONSUMERS: u32>() {
    // SAFETY: it has more registers than that.
    unsafe {
        match const { registers(CONSUMERS)[0] } {
            40 => thread::warpgroup_reg_dealloc::<40>(),
            _ => thread::warpgroup_reg_dealloc::<24>(),
        }
    }
}

/// Takes what [`give_registers`] gives, as one of the consumer warpgroups.
///
/// # Safety
/// As for [`give_registers`].
#[inline(always)]
pub unsafe fn take_registers<const CONSUMERS: u32>() {
    // SAFETY: it has fewer registers than that. Together they want no more than the block was
    // launched with.
    unsafe {
        match const { registers(CONSUMERS)[1] } {
            232 => thread::warpgroup_reg_alloc::<232>(),
            _ => thread::warpgroup_reg_alloc::<160>(),
        }
    }
}
