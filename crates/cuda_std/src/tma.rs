//! Hopper's tensor memory accelerator: bulk copies of tiles (`cp.async.bulk.tensor`, sm_90).
//!
//! One thread asks for a whole tile. The host describes the matrix and the tile in a [`TensorMap`].
//! The copy names only the map and the tile's first element. It fills elements outside the matrix
//! with zeros, and reports its bytes to an [`Mbarrier`].
//!
//! All of this needs PTX 8.0. rustc writes that for `sm_90a`, `sm_100` and later, not for `sm_90`.
//!
//! # A pipeline
//!
//! One warp moves tiles, another adds their rows. Each of the four buffers has two barriers. `full`
//! completes a phase when a tile has arrived, `empty` when it has been read. Both warps go through
//! the buffers in turn, and the parity they wait for flips with each round.
//!
//! ```no_run
//! use cuda_std::mbarrier::{self, Mbarrier};
//! use cuda_std::prelude::*;
//! use cuda_std::tma::{self, TensorMap};
//!
//! const COLS: u32 = 32;
//! const ROWS: u32 = 8;
//! const TILE: u32 = COLS * ROWS;
//! const STAGES: u32 = 4;
//!
//! /// `sums[j]` is the sum of column `j` of a matrix, 32 columns per block.
//! ///
//! /// # Safety
//! /// The map is of a matrix of `rows` rows and its tiles of 32 columns by 8 rows; `sums` has 32
//! /// elements per block, and nothing else touches it.
//! #[kernel(block = 64)]
//! pub unsafe fn column_sums(#[grid_constant] map: &TensorMap, rows: u32, sums: *mut f32) {
//!     let (warp, lane) = (thread::thread_idx_x() / 32, warp::lane_id());
//!     let col = thread::block_idx_x() * COLS;
//!     let tiles = rows.div_ceil(ROWS);
//!     let buffers = shared_array![f32; (STAGES * TILE) as usize]; // (STAGES, ROWS, COLS)
//!     let barriers = shared_array![u64; 2 * STAGES as usize];
//!     let full = Mbarrier::at(*barriers);
//!     let empty = full.add(STAGES);
//!
//!     // One thread makes the barriers; after that all may use them.
//!     if thread::thread_idx_x() == 0 {
//!         // SAFETY: a grid constant.
//!         unsafe { tma::prefetch(map) };
//!         for stage in 0..STAGES {
//!             // SAFETY: in the block's shared memory, and nobody uses them yet.
//!             unsafe {
//!                 full.add(stage).init(1); // the thread that asks for the tile, and its bytes
//!                 empty.add(stage).init(32); // all lanes that read it
//!             }
//!         }
//!         mbarrier::fence_init();
//!     }
//!     thread::sync_threads();
//!
//!     if warp == 1 {
//!         if lane == 0 {
//!             for tile in 0..tiles {
//!                 let (stage, parity) = (tile % STAGES, tile / STAGES % 2);
//!                 let full = full.add(stage);
//!                 // SAFETY: the buffer is empty, at once in the first round, and `full` expects
//!                 // what the copy brings.
//!                 unsafe {
//!                     empty.add(stage).wait_parity(parity ^ 1);
//!                     full.arrive_expect_tx(TILE * 4);
//!                     tma::load_2d(buffers.add(stage * TILE), map, col, tile * ROWS, full);
//!                 }
//!             }
//!         }
//!     } else {
//!         let mut sum = 0.0;
//!         for tile in 0..tiles {
//!             let (stage, parity) = (tile % STAGES, tile / STAGES % 2);
//!             // SAFETY: the tile is there when `full` says so, and stays until all lanes have
//!             // arrived at `empty`.
//!             unsafe {
//!                 full.add(stage).wait_parity(parity);
//!                 for row in 0..ROWS {
//!                     sum += buffers.load(stage * TILE + row * COLS + lane);
//!                 }
//!                 tma::fence_proxy_async(); // read before it is copied over
//!                 empty.add(stage).arrive();
//!             }
//!         }
//!         // SAFETY: the element is this thread's alone.
//!         unsafe { *sums.add((col + lane) as usize) = sum };
//!     }
//! }
//! ```

use cuda_std_macros::gpu_only;

use crate::cluster::ClusterPtr;
use crate::mbarrier::Mbarrier;
use crate::shared::SharedPtr;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// A `CUtensorMap`, as the driver's `cuTensorMapEncodeTiled` makes it (PTX ISA: "Tensors").
///
/// A kernel takes it as `#[grid_constant] map: &TensorMap`, and the host passes the 128 bytes; see
/// [`kernel`](macro@crate::kernel). The instructions read a map in place. It is a
/// `#[grid_constant]` of the kernel, or lies in global or constant memory on 64 bytes, where
/// nothing changes it. A copy of it in a local variable is no tensor map to them.
///
/// For [`load_2d`] the host encodes two dimensions of `FLOAT32`:
///
/// - the matrix as `[columns, rows]`, and the bytes from one row to the next, a multiple of 16;
/// - the tile as `[columns, rows]`, up to 256 of each, with a row of whole 16 bytes;
/// - element strides of 1.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
pub struct TensorMap([u64; 16]);

impl TensorMap {
    /// The 128 bytes of a `CUtensorMap`, for a typed launch.
    #[must_use]
    pub const fn from_raw(words: [u64; 16]) -> Self {
        TensorMap(words)
    }
}

/// Asks for a tile of a matrix (`cp.async.bulk.tensor.2d`, sm_90).
///
/// The tile's first element is in column `col` and row `row`, both below 2^31. Its bytes, all of
/// them even at the edge, are reported to `barrier`. (PTX ISA: "Data Movement and Conversion
/// Instructions: cp.async.bulk.tensor".)
///
/// One thread calls this for a tile. Threads that wait for the phase of the barrier see the tile,
/// as the map's box: rows of the tile without gaps, unless the map swizzles.
///
/// # Safety
/// - The map lies where [`TensorMap`] says. It describes a matrix of two dimensions, whose
///   dimension 0 walks along a row. Nothing writes the matrix before the copy is done.
/// - `col` is a multiple of 16 bytes.
/// - `to` is aligned to 128 bytes, or to 1024 if the map swizzles by 128. It has room for the map's
///   tile in shared memory, which nothing else reads or writes before the copy is done.
/// - A thread that wrote to that memory before has called [`fence_proxy_async`], and then met this
///   thread at a barrier.
/// - A thread that read it by ordinary loads has done the same. Or it has met this thread at a
///   barrier behind machine instructions that use all that was read. The latter is Hopper's promise
///   rather than PTX's (PTX ISA: "Async proxy"): see [`fence_proxy_async`].
/// - A thread that read it by `wgmma` has waited for its group
///   ([`wgmma::wait_group`](crate::sm_90a::wgmma::wait_group)), and then met this thread at a
///   barrier. It needs no fence, since the completion of an asynchronous operation is one (PTX ISA:
///   "Async proxy").
/// - `barrier` expects the bytes, or will before the copy can complete its phase: see
///   [`Mbarrier::arrive_expect_tx`].
#[gpu_only]
#[inline(always)]
pub unsafe fn load_2d(to: SharedPtr<f32>, map: &TensorMap, col: u32, row: u32, barrier: Mbarrier) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes \
             [{to}], [{map}, {{{col}, {row}}}], [{barrier}];",
            to = in(reg32) to.address(),
            map = in(reg64) &raw const *map,
            col = in(reg32) col,
            row = in(reg32) row,
            barrier = in(reg32) barrier.address(),
            options(nostack, preserves_flags),
        );
    }
}

/// Calls the macro `$copy` for the number of dimensions.
///
/// It passes what is given in brackets, the name of the `RANK` dimensions, and their coordinates as
/// operands.
#[cfg(target_arch = "nvptx64")]
macro_rules! for_rank {
    ($rank:expr, $at:expr, $copy:ident $(, $with:tt)?) => {{
        // Coordinates past the rank are only in arms that are not taken.
        let at = |i: usize| $at.get(i).copied().unwrap_or(0);
        match $rank {
            1 => $copy!($($with)? "1d", "{}", at(0)),
            2 => $copy!($($with)? "2d", "{}, {}", at(0), at(1)),
            3 => $copy!($($with)? "3d", "{}, {}, {}", at(0), at(1), at(2)),
            4 => $copy!($($with)? "4d", "{}, {}, {}, {}", at(0), at(1), at(2), at(3)),
            _ => $copy!($($with)? "5d", "{}, {}, {}, {}, {}", at(0), at(1), at(2), at(3), at(4)),
        }
    }};
}

/// A load of a tile, for [`for_rank`], with a modifier of the instruction and its operand, if any.
#[cfg(target_arch = "nvptx64")]
macro_rules! load_tile {
    (
        [$to:ident, $map:ident, $barrier:ident, $modifier:literal, $operand:literal $(, $($value:tt)+)?]
        $rank:literal, $operands:literal, $($at:expr),+
    ) => {
        // SAFETY: the caller's contract.
        unsafe {
            asm!(
                concat!(
                    "cp.async.bulk.tensor.", $rank,
                    ".shared::cluster.global.tile.mbarrier::complete_tx::bytes",
                    $modifier, " [{}], [{}, {{", $operands, "}}], [{}]", $operand, ";"
                ),
                in(reg32) $to.address(),
                in(reg64) &raw const *$map,
                $(in(reg32) $at,)+
                in(reg32) $barrier.address(),
                $($($value)+,)?
                options(nostack, preserves_flags),
            );
        }
    };
}

/// When the L2 cache is to evict the copied data: a hint (`createpolicy`, sm_80).
///
/// See PTX ISA: "Data Movement and Conversion Instructions: createpolicy".
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "nvptx64"), expect(dead_code, reason = "only a GPU copies"))]
pub struct CachePolicy(u64);

impl CachePolicy {
    /// First (`.L2::evict_first`): for data that is read once.
    #[gpu_only]
    #[inline(always)]
    #[must_use]
    pub fn evict_first() -> Self {
        let policy: u64;
        // SAFETY: it makes a number.
        unsafe {
            asm!(
                "createpolicy.fractional.L2::evict_first.b64 {}, 1.0;",
                out(reg64) policy,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        Self(policy)
    }
}

/// Asks for a tile of a tensor of one to five dimensions (`cp.async.bulk.tensor`, sm_90).
///
/// This is [`load_2d`] for the tile whose first element is `at`; the dimension without gaps comes
/// first. Elements outside the tensor, also before its beginning, are filled as the map says.
///
/// To the GPU a first coordinate that is not a multiple of 16 bytes is an illegal instruction,
/// which PTX does not say. On an H200, so is a negative first coordinate of a [`store`].
///
/// # Safety
/// As for [`load_2d`]; the map is of `RANK` dimensions. The first coordinate is a multiple of 16
/// bytes.
#[gpu_only]
#[inline(always)]
pub unsafe fn load<T, const RANK: usize>(
    to: SharedPtr<T>,
    map: &TensorMap,
    at: [i32; RANK],
    barrier: Mbarrier,
) {
    const { assert!(RANK >= 1 && RANK <= 5, "a tensor has one to five dimensions") };
    for_rank!(RANK, at, load_tile, [to, map, barrier, "", ""]);
}

/// [`load`] with a hint for the L2 cache (`.L2::cache_hint`).
///
/// # Safety
/// As for [`load`].
#[gpu_only]
#[inline(always)]
pub unsafe fn load_with_policy<T, const RANK: usize>(
    to: SharedPtr<T>,
    map: &TensorMap,
    at: [i32; RANK],
    barrier: Mbarrier,
    policy: CachePolicy,
) {
    const { assert!(RANK >= 1 && RANK <= 5, "a tensor has one to five dimensions") };
    for_rank!(RANK, at, load_tile, [to, map, barrier, ".L2::cache_hint", ", {}", in(reg64) policy.0]);
}

/// [`load`] for several blocks of a cluster at once (`.multicast::cluster`).
///
/// The tile goes to the same place in the shared memory of each block whose rank is set in `ranks`.
/// Its bytes are reported to the same barrier of each block. Device memory is read once.
///
/// # Safety
/// - As for [`load`], in each of those blocks.
/// - `ranks` are of the cluster, and not 0.
/// - Each block has initialised its barrier before a [`cluster::sync`](crate::cluster::sync) of
///   both, and does not exit before its tile is there.
#[gpu_only]
#[inline(always)]
pub unsafe fn load_multicast<T, const RANK: usize>(
    to: SharedPtr<T>,
    map: &TensorMap,
    at: [i32; RANK],
    barrier: Mbarrier,
    ranks: u16,
) {
    const { assert!(RANK >= 1 && RANK <= 5, "a tensor has one to five dimensions") };
    for_rank!(RANK, at, load_tile, [to, map, barrier, ".multicast::cluster", ", {}", in(reg16) ranks]);
}

/// Asks for a tile of shared memory to be stored to a tensor (`cp.async.bulk.tensor`, sm_90).
///
/// Elements outside the tensor are not stored. [`commit_group`] closes a group of such stores, and
/// [`wait_group`] waits for it.
///
/// # Safety
/// - The map lies where [`TensorMap`] says, and is of `RANK` dimensions. Nothing else reads or
///   writes that part of the tensor before the store is done.
/// - The first coordinate is a multiple of 16 bytes, and no coordinate is negative.
/// - `from` is aligned as for [`load_2d`], and has the map's tile. Nothing writes the tile before
///   [`wait_group_read`] or [`wait_group`].
/// - The thread that wrote the tile has called [`fence_proxy_async`], and then met this thread at a
///   barrier.
#[gpu_only]
#[inline(always)]
pub unsafe fn store<T, const RANK: usize>(map: &TensorMap, at: [i32; RANK], from: SharedPtr<T>) {
    const { assert!(RANK >= 1 && RANK <= 5, "a tensor has one to five dimensions") };
    macro_rules! copy {
        ($rank:literal, $operands:literal, $($at:expr),+) => {
            // SAFETY: the caller's contract.
            unsafe {
                asm!(
                    concat!(
                        "cp.async.bulk.tensor.", $rank,
                        ".global.shared::cta.tile.bulk_group [{}, {{", $operands, "}}], [{}];"
                    ),
                    in(reg64) &raw const *map,
                    $(in(reg32) $at,)+
                    in(reg32) from.address(),
                    options(nostack, preserves_flags),
                );
            }
        };
    }
    for_rank!(RANK, at, copy);
}

/// Asks for `bytes` of global memory (`cp.async.bulk`, sm_90), which are reported to `barrier`.
///
/// # Safety
/// - `from` is in global memory, and `from`, `to` and `bytes` are multiples of 16. Nothing writes
///   what is read before the copy is done.
/// - For `to` and `barrier`, as for [`load_2d`].
#[gpu_only]
#[inline(always)]
pub unsafe fn load_bulk<T>(to: SharedPtr<T>, from: *const T, bytes: u32, barrier: Mbarrier) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes \
             [{}], [{}], {}, [{}];",
            in(reg32) to.address(),
            in(reg64) from,
            in(reg32) bytes,
            in(reg32) barrier.address(),
            options(nostack, preserves_flags),
        );
    }
}

/// [`load_bulk`] for several blocks of a cluster at once (`.multicast::cluster`): see
/// [`load_multicast`].
///
/// # Safety
/// As for [`load_bulk`] and [`load_multicast`].
#[gpu_only]
#[inline(always)]
pub unsafe fn load_bulk_multicast<T>(
    to: SharedPtr<T>,
    from: *const T,
    bytes: u32,
    barrier: Mbarrier,
    ranks: u16,
) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster \
             [{}], [{}], {}, [{}], {};",
            in(reg32) to.address(),
            in(reg64) from,
            in(reg32) bytes,
            in(reg32) barrier.address(),
            in(reg16) ranks,
            options(nostack, preserves_flags),
        );
    }
}

/// Asks for `bytes` of this block's shared memory to be copied to another block of the cluster.
///
/// The instruction is `cp.async.bulk.shared::cluster.shared::cta` (sm_90). The bytes are reported
/// to `barrier`, a barrier of that block ([`Mbarrier::mapa`]).
///
/// # Safety
/// - `to`, `from` and `bytes` are multiples of 16. `from` is as for [`store`], until `barrier` has
///   got the bytes.
/// - For `to` and `barrier`, as for [`load_2d`], in their block; and as for
///   [`ClusterPtr`].
#[gpu_only]
#[inline(always)]
pub unsafe fn copy_to_cluster<T>(
    to: ClusterPtr<T>,
    from: SharedPtr<T>,
    bytes: u32,
    barrier: ClusterPtr<u64>,
) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes \
             [{}], [{}], {}, [{}];",
            in(reg32) to.address(),
            in(reg32) from.address(),
            in(reg32) bytes,
            in(reg32) barrier.address(),
            options(nostack, preserves_flags),
        );
    }
}

/// Asks for `bytes` of shared memory to be stored (`cp.async.bulk`, sm_90), in a group like that of
/// [`store`].
///
/// # Safety
/// - `to` is in global memory, and `to`, `from` and `bytes` are multiples of 16. Nothing else reads
///   or writes what is written before the copy is done.
/// - For `from`, as for [`store`].
#[gpu_only]
#[inline(always)]
pub unsafe fn store_bulk<T>(to: *mut T, from: SharedPtr<T>, bytes: u32) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "cp.async.bulk.global.shared::cta.bulk_group [{}], [{}], {};",
            in(reg64) to,
            in(reg32) from.address(),
            in(reg32) bytes,
            options(nostack, preserves_flags),
        );
    }
}

/// Makes a group of this thread's bulk stores since the last one (`cp.async.bulk.commit_group`).
#[gpu_only]
#[inline(always)]
pub fn commit_group() {
    // SAFETY: moves no memory by itself; without `nomem` it stays after the stores.
    unsafe { asm!("cp.async.bulk.commit_group;", options(nostack, preserves_flags)) }
}

/// Waits until at most the latest `PENDING` groups of this thread are in flight.
///
/// The other groups are then stored (`cp.async.bulk.wait_group`).
#[gpu_only]
#[inline(always)]
pub fn wait_group<const PENDING: u32>() {
    // SAFETY: waits; without `nomem` no access moves before it.
    unsafe {
        asm!("cp.async.bulk.wait_group {};", const PENDING, options(nostack, preserves_flags));
    }
}

/// [`wait_group`] that waits only until the other groups have been read.
///
/// Their shared memory may then be written again (`cp.async.bulk.wait_group.read`).
#[gpu_only]
#[inline(always)]
pub fn wait_group_read<const PENDING: u32>() {
    // SAFETY: as above.
    unsafe {
        asm!("cp.async.bulk.wait_group.read {};", const PENDING, options(nostack, preserves_flags));
    }
}

/// Asks for a tile to be brought to the L2 cache (`cp.async.bulk.prefetch.tensor`): a hint.
///
/// It is the tile that a [`load`] at the same place would copy. Writes to the tensor meanwhile do
/// no harm, since a later load sees what L2 has.
///
/// # Safety
/// The map is as for [`prefetch`], of `RANK` dimensions, and its tensor is in memory. The first
/// coordinate is a multiple of 16 bytes.
#[gpu_only]
#[inline(always)]
pub unsafe fn prefetch_tile<const RANK: usize>(map: &TensorMap, at: [i32; RANK]) {
    const { assert!(RANK >= 1 && RANK <= 5, "a tensor has one to five dimensions") };
    macro_rules! copy {
        ($rank:literal, $operands:literal, $($at:expr),+) => {
            // SAFETY: the caller's contract.
            unsafe {
                asm!(
                    concat!(
                        "cp.async.bulk.prefetch.tensor.", $rank,
                        ".L2.global.tile [{}, {{", $operands, "}}];"
                    ),
                    in(reg64) &raw const *map,
                    $(in(reg32) $at,)+
                    options(nostack, preserves_flags),
                );
            }
        };
    }
    for_rank!(RANK, at, copy);
}

/// Fetches the map itself, so that the first copy need not wait for it (`prefetch.tensormap`,
/// sm_90).
///
/// This is a hint, which one thread of a block gives at the beginning. (PTX ISA: "Data Movement and
/// Conversion Instructions: prefetch".)
///
/// # Safety
/// The map lies where [`TensorMap`] says.
#[gpu_only]
#[inline(always)]
pub unsafe fn prefetch(map: &TensorMap) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "prefetch.tensormap [{}];",
            in(reg64) &raw const *map,
            options(nostack, preserves_flags),
        );
    }
}

/// Orders this thread's accesses to shared memory before bulk copies issued after a barrier.
///
/// The instruction is `fence.proxy.async.shared::cta` (sm_90; PTX ISA: "Parallel Synchronization
/// and Communication Instructions: membar / fence"). A copy may only overwrite a tile when the
/// reads of the tile are done, and a barrier alone does not tell the copy that.
///
/// Every thread that has read or written a buffer calls this before it says, by an arrival or at a
/// barrier, that the buffer may be overwritten. The fence waits for the loads in flight.
///
/// On Hopper a load is also done when an instruction that uses its value has been issued. But PTX
/// does not promise that: code that relies on it has to check the order in the disassembly.
#[gpu_only]
#[inline(always)]
pub fn fence_proxy_async() {
    // SAFETY: a fence; `asm!` without `nomem` orders the compiler's accesses too.
    unsafe { asm!("fence.proxy.async.shared::cta;", options(nostack, preserves_flags)) }
}

/// [`fence_proxy_async`] for all memory, also for accesses by other blocks (`fence.proxy.async`,
/// sm_90).
///
/// It includes what other blocks of the cluster have read and written in this block's shared
/// memory. The thread that asks for copies over it calls this behind the
/// [`cluster::sync`](crate::cluster::sync) with those blocks.
#[gpu_only]
#[inline(always)]
pub fn fence_proxy_async_all() {
    // SAFETY: a fence; `asm!` without `nomem` orders the compiler's accesses too.
    unsafe { asm!("fence.proxy.async;", options(nostack, preserves_flags)) }
}
