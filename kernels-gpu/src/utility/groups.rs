//! Lists the tiles of a grouped product: see [`abi::groups`](crate::abi::groups).

use cuda_std::prelude::*;
use cuda_std::vec;

use crate::abi::groups::GroupTile;
use crate::device::pipeline::dependent_launch;

/// Threads per block of [`group_tiles()`]. Each thread has a group.
pub const THREADS: u32 = 32;

/// Writes the table of a grouped product's tiles.
///
/// Group `g` has the rows of C from `ends[g - 1]` to `ends[g]`. Ends that decrease, or lie behind all
/// `rows`, are read as the nearest that do not. So no end leads out of C, and no row belongs to two
/// groups.
///
/// # Safety
/// - The grid has a thread for each of the `groups`, and no more blocks than that takes.
/// - `ends` has as many elements. Nothing writes them during the launch.
/// - `table` has room for one entry more than
///   [`most_tiles`](crate::abi::groups::most_tiles) of `size`, and nothing else touches it.
#[kernel(block = THREADS)]
pub unsafe fn group_tiles(
    ends: *const u32,
    groups: u32,
    rows: u32,
    size: u32,
    table: *mut GroupTile,
) {
    dependent_launch::begin();
    let group = thread::block_idx_x() * THREADS + thread::thread_idx_x();
    if group >= groups {
        return;
    }
    let tiles = |begin: u32, end: u32| (end - begin).div_ceil(size.max(1));
    let (mut begin, mut first) = (0, 0);
    for before in 0..group {
        // SAFETY: as the launch promises.
        let end = unsafe { *ends.add(before as usize) }.min(rows).max(begin);
        first += tiles(begin, end);
        begin = end;
    }
    // SAFETY: as above.
    let end = unsafe { *ends.add(group as usize) }.min(rows).max(begin);
    let behind = first + tiles(begin, end);
    let store = |at: u32, entry: [u32; 4]| {
        // SAFETY: inside, and this thread's alone; on 16 bytes.
        unsafe { vec::store(table.add(at as usize).cast(), entry) };
    };
    for tile in first..behind {
        store(1 + tile, [group, first, begin, end]);
    }
    if group + 1 == groups {
        store(0, [0, behind, 0, 0]);
    }
}
