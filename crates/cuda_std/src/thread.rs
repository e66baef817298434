//! The thread's place in the grid, and barriers and fences.
//!
//! A grid is made of blocks, and a block of threads; both have up to three dimensions.

use cuda_std_macros::gpu_only;
use glam::{UVec2, UVec3};

#[cfg(target_arch = "nvptx64")]
use core::arch::{asm, nvptx};

#[cfg(target_arch = "nvptx64")]
use crate::intrinsics;

macro_rules! special_registers {
    ($($(#[$doc:meta])* $name:ident = $intrinsic:ident;)*) => {$(
        $(#[$doc])*
        #[gpu_only]
        #[inline(always)]
        #[must_use]
        pub fn $name() -> u32 {
            // SAFETY: reads a special register.
            unsafe { nvptx::$intrinsic() as u32 }
        }
    )*};
}

special_registers! {
    /// The thread's index in its block, along x.
    thread_idx_x = _thread_idx_x;
    /// The thread's index in its block, along y.
    thread_idx_y = _thread_idx_y;
    /// The thread's index in its block, along z.
    thread_idx_z = _thread_idx_z;
    /// The block's index in the grid, along x.
    block_idx_x = _block_idx_x;
    /// The block's index in the grid, along y.
    block_idx_y = _block_idx_y;
    /// The block's index in the grid, along z.
    block_idx_z = _block_idx_z;
    /// Threads per block, along x.
    block_dim_x = _block_dim_x;
    /// Threads per block, along y.
    block_dim_y = _block_dim_y;
    /// Threads per block, along z.
    block_dim_z = _block_dim_z;
    /// Blocks in the grid, along x.
    grid_dim_x = _grid_dim_x;
    /// Blocks in the grid, along y.
    grid_dim_y = _grid_dim_y;
    /// Blocks in the grid, along z.
    grid_dim_z = _grid_dim_z;
}

macro_rules! vectors {
    ($($(#[$doc:meta])* $name:ident = $x:ident, $y:ident, $z:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        #[must_use]
        pub fn $name() -> UVec3 {
            UVec3::new($x(), $y(), $z())
        }
    )*};
}

vectors! {
    /// The thread's index in its block (`%tid`).
    thread_idx = thread_idx_x, thread_idx_y, thread_idx_z;
    /// The block's index in the grid (`%ctaid`).
    block_idx = block_idx_x, block_idx_y, block_idx_z;
    /// Threads per block (`%ntid`).
    block_dim = block_dim_x, block_dim_y, block_dim_z;
    /// Blocks in the grid (`%nctaid`).
    grid_dim = grid_dim_x, grid_dim_y, grid_dim_z;
}

/// The thread's number in the grid, for any dimensions of grid and block.
///
/// No two threads of a launch of up to 2^32 threads have the same number. Blocks are counted along
/// x, then y, then z, and so are the threads of each block.
#[inline(always)]
#[must_use]
pub fn index() -> u32 {
    let (grid, dim) = (grid_dim(), block_dim());
    let (block, thread) = (block_idx(), thread_idx());
    let block = (block.z * grid.y + block.y) * grid.x + block.x;
    ((block * dim.z + thread.z) * dim.y + thread.y) * dim.x + thread.x
}

/// The thread's index in a one-dimensional grid.
#[inline(always)]
#[must_use]
pub fn index_1d() -> u32 {
    block_idx_x() * block_dim_x() + thread_idx_x()
}

/// The thread's index in a two-dimensional grid.
#[inline(always)]
#[must_use]
pub fn index_2d() -> UVec2 {
    UVec2::new(index_1d(), block_idx_y() * block_dim_y() + thread_idx_y())
}

/// The thread's index in a three-dimensional grid.
#[inline(always)]
#[must_use]
pub fn index_3d() -> UVec3 {
    index_2d().extend(block_idx_z() * block_dim_z() + thread_idx_z())
}

/// Whether this is thread 0 of block 0: true in one thread of a launch.
#[inline(always)]
#[must_use]
pub fn first() -> bool {
    block_idx() == UVec3::ZERO && thread_idx() == UVec3::ZERO
}

/// The thread's indices into `len` elements that all threads of the grid share out.
///
/// They are its [`index`], and from there on every further index by the number of threads in the
/// grid (a grid-stride loop).
#[inline(always)]
pub fn grid_stride(len: usize) -> impl Iterator<Item = usize> {
    let stride = threads_in_grid();
    let first = thread_of_grid();
    let mut next = (first < len).then_some(first);
    core::iter::from_fn(move || {
        let index = next?;
        next = index.checked_add(stride).filter(|next| *next < len);
        Some(index)
    })
}

/// [`index`], for grids of any size.
#[inline(always)]
pub(crate) fn thread_of_grid() -> usize {
    let (grid, block) = (grid_dim(), block_idx());
    let (dim, own) = (block_dim(), thread_idx());
    let block = (block.z as usize * grid.y as usize + block.y as usize) * grid.x as usize
        + block.x as usize;
    let own = (own.z * dim.y + own.y) * dim.x + own.x;
    block * dim.element_product() as usize + own as usize
}

/// The number of threads in the grid.
#[inline(always)]
fn threads_in_grid() -> usize {
    let (grid, dim) = (grid_dim(), block_dim());
    grid.x as usize * grid.y as usize * grid.z as usize * dim.element_product() as usize
}

/// Threads in a warp: 32 on every NVIDIA GPU.
#[inline(always)]
#[must_use]
pub const fn warp_size() -> u32 {
    32
}

/// Waits until every thread of the block that has not returned is here (`barrier.sync 0`, sm_70).
///
/// All threads may then read what each wrote to shared and global memory before. (PTX ISA:
/// "Parallel Synchronization and Communication Instructions: barrier".)
///
/// Never put it where only some threads go. Other threads that go on would be waited for: without
/// end if they never come, and in vain if they return. It may stand where a warp has diverged, like
/// the `sync` of CUDA's cooperative groups. CUDA C++'s `__syncthreads` may not: that is
/// [`sync_threads_aligned`].
#[gpu_only]
#[inline(always)]
pub fn sync_threads() {
    // SAFETY: a barrier that orders memory, for whole warps or parts of them.
    unsafe { intrinsics::barrier_sync_all(0) }
}

/// [`sync_threads`] for whole warps: CUDA C++'s `__syncthreads`.
///
/// The instruction is `bar.sync 0`, which is `barrier.sync.aligned 0`. The assembler may then
/// schedule otherwise, which is worth a per cent in some loops.
///
/// # Safety
/// All threads of a warp that have not returned execute this same call: no condition around it
/// differs within a warp. Otherwise what happens is undefined (PTX ISA: "barrier").
#[gpu_only]
#[inline(always)]
pub unsafe fn sync_threads_aligned() {
    // SAFETY: the caller's contract.
    unsafe { intrinsics::barrier_sync_aligned_all(0) }
}

/// Waits until `THREADS` threads of the block are at the barrier `ID` (`barrier.sync`, sm_70).
///
/// This is [`sync_threads`] for a part of the block. A block has 16 barriers: `ID` is 1 to 15, and
/// 0 is that of [`sync_threads`]. It is checked at compile time that `ID` is one of them, and
/// `THREADS` a multiple of 32 up to 1024.
///
/// # Safety
/// - The same `THREADS` threads, whole warps of them, come to the barrier each time, and no others.
/// - Each thread that waits there waits for the same number.
///
/// Otherwise the behaviour is undefined: the barrier may let threads go before what they wait for
/// is written.
#[gpu_only]
#[inline(always)]
pub unsafe fn named_barrier_sync<const ID: u32, const THREADS: u32>() {
    const {
        assert!(ID >= 1 && ID <= 15, "the barriers are 1 to 15");
        assert!(
            THREADS >= 32 && THREADS <= 1024 && THREADS.is_multiple_of(32),
            "whole warps of a block wait at a barrier",
        );
    }
    // SAFETY: the caller's contract.
    unsafe { intrinsics::barrier_sync_count(ID, THREADS) }
}

/// Raises the registers of each thread of this warpgroup to `REGISTERS` (`setmaxnreg.inc`).
///
/// A warpgroup is four warps, and `REGISTERS` is at least the number before. The instruction exists
/// on sm_90a and later targets of that kind (PTX ISA: "Miscellaneous Instructions: setmaxnreg"). It
/// waits until the block has enough registers left. Other warpgroups give registers back with
/// [`warpgroup_reg_dealloc`].
///
/// A kernel with `#[kernel(block = 384, min_blocks = 1)]` has 168 registers per thread: 65536 /
/// 384, rounded down to a multiple of 8. That is enough for one warpgroup with 56 and two with 224.
/// Without the launch bounds the assembler does not know the number, and ignores the instruction.
///
/// `REGISTERS` is a multiple of 8 between 24 and 256, which is checked at compile time.
///
/// # Safety
/// - All threads of the warpgroup come to the same call together: warps 0 to 3 of the block are
///   one, 4 to 7 the next. Otherwise what happens is undefined.
/// - Between two such calls of a warpgroup lies a barrier for it.
/// - The warpgroups do not want more together than the block was launched with, or they wait
///   without end.
#[gpu_only]
#[inline(always)]
pub unsafe fn warpgroup_reg_alloc<const REGISTERS: u32>() {
    const { assert!(is_register_count(REGISTERS), "24 to 256 registers, a multiple of 8") };
    // SAFETY: the caller's contract; registers in use stay as they are.
    unsafe { intrinsics::setmaxnreg_inc(REGISTERS) }
}

/// Gives registers back, down to `REGISTERS` per thread of this warpgroup (`setmaxnreg.dec`).
///
/// See [`warpgroup_reg_alloc`].
///
/// # Safety
/// Who comes here, and with what, is as for [`warpgroup_reg_alloc`]. The warpgroup has at least
/// `REGISTERS` before.
#[gpu_only]
#[inline(always)]
pub unsafe fn warpgroup_reg_dealloc<const REGISTERS: u32>() {
    const { assert!(is_register_count(REGISTERS), "24 to 256 registers, a multiple of 8") };
    // SAFETY: the caller's contract; the assembler keeps what follows within them.
    unsafe { intrinsics::setmaxnreg_dec(REGISTERS) }
}

/// Whether `setmaxnreg` accepts this number.
#[cfg(target_arch = "nvptx64")]
const fn is_register_count(registers: u32) -> bool {
    registers.is_multiple_of(8) && registers >= 24 && registers <= 256
}

macro_rules! reducing_barriers {
    ($($(#[$doc:meta])* $name:ident = $intrinsic:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// The predicate is a `bool`, or a `u32` that is not 0.
        ///
        /// # Safety
        /// - Every thread of the block that has not returned comes to a call of this function.
        /// - None comes to another barrier of the block meanwhile: mixed results of different
        ///   barriers are undefined (PTX ISA: "barrier").
        #[gpu_only]
        #[inline(always)]
        pub unsafe fn $name(predicate: impl Into<u32>) -> u32 {
            // SAFETY: the caller's contract.
            unsafe { u32::from(intrinsics::$intrinsic(0, predicate.into() != 0)) }
        }
    )*};
}

reducing_barriers! {
    /// [`sync_threads`], and the number of threads whose `predicate` holds (`barrier.red.popc`).
    sync_threads_count = barrier_red_popc;
    /// [`sync_threads`], and 1 if `predicate` holds in every thread, else 0 (`barrier.red.and`).
    sync_threads_and = barrier_red_and;
    /// [`sync_threads`], and 1 if `predicate` holds in some thread, else 0 (`barrier.red.or`).
    sync_threads_or = barrier_red_or;
}

macro_rules! fences {
    ($($(#[$doc:meta])* $name:ident = $op:literal;)*) => {$(
        $(#[$doc])*
        #[gpu_only]
        #[inline(always)]
        pub fn $name() {
            // SAFETY: a fence; `asm!` without `nomem` orders the compiler's accesses too.
            unsafe { asm!($op, options(nostack, preserves_flags)) }
        }
    )*};
}

fences! {
    /// Orders this thread's memory accesses as seen by its block (`membar.cta`).
    block_fence = "membar.cta;";
    /// Orders this thread's memory accesses as seen by the grid and the device
    /// (`membar.gl`). Rust-CUDA's name for [`device_fence`].
    grid_fence = "membar.gl;";
    /// Orders this thread's memory accesses as seen by the whole device (`membar.gl`).
    device_fence = "membar.gl;";
    /// Orders this thread's memory accesses as seen by all devices and the host
    /// (`membar.sys`).
    system_fence = "membar.sys;";
}

/// Suspends the thread for about `nanos` nanoseconds, between 0 and twice that
/// (`nanosleep.u32`).
#[gpu_only]
#[inline(always)]
pub fn nanosleep(nanos: u32) {
    // SAFETY: touches no memory.
    unsafe { asm!("nanosleep.u32 {};", in(reg32) nanos, options(nomem, nostack, preserves_flags)) }
}
