//! Bulk copies to and from tensors of one to five dimensions, and products by tensor cores, for
//! sm_90a.

use cuda_std::dependent_launch;
use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::prelude::*;
use cuda_std::sm_90a::wgmma::{Accumulator, Tile};
use cuda_std::tma::{self, CachePolicy, TensorMap};

/// Elements of a tile.
pub const TILE: u32 = 64;

/// The tile, and a barrier: one place in the source for all kernels.
fn shared() -> (SharedArray<f32, { TILE as usize }>, Mbarrier) {
    (shared_array![f32; TILE as usize], Mbarrier::at(*shared_array![u64; 1]))
}

macro_rules! doubles {
    ($($name:ident: $rank:literal;)*) => {$(
        /// Doubles a tile of a tensor of so many dimensions.
        ///
        /// # Safety
        /// One block of as many threads as the tile has elements; the maps are of its dimensions,
        /// and of tensors that nothing else touches.
        #[kernel(block = TILE)]
        pub unsafe fn $name(
            #[grid_constant] from: &TensorMap,
            #[grid_constant] to: &TensorMap,
            #[grid_constant] at: &[i32; $rank],
        ) {
            let i = thread::thread_idx_x();
            let (tile, barrier) = shared();
            dependent_launch::launch_dependents();
            // SAFETY: thread 0 makes the barrier and asks for the copies; each thread doubles its
            // own element between the load and the store, with a fence and a barrier.
            unsafe {
                if i == 0 {
                    tma::prefetch(from);
                    tma::prefetch_tile(from, *at);
                    barrier.init(1);
                    mbarrier::fence_init();
                    dependent_launch::wait();
                    barrier.arrive_expect_tx(TILE * 4);
                    match at.len() {
                        2 => tma::load_with_policy(*tile, from, *at, barrier, CachePolicy::evict_first()),
                        _ => tma::load(*tile, from, *at, barrier),
                    }
                }
                thread::sync_threads();
                barrier.wait_parity(0);
                tile.store(i, tile.load(i) * 2.0);
                tma::fence_proxy_async();
                thread::sync_threads();
                if i == 0 {
                    tma::store(to, *at, *tile);
                    tma::commit_group();
                    tma::wait_group::<0>();
                }
            }
        }
    )*};
}

doubles! {
    doubles_1d: 1;
    doubles_2d: 2;
    doubles_3d: 3;
    doubles_4d: 4;
    doubles_5d: 5;
}

/// Doubles 64 elements, with bulk copies that need no map.
///
/// # Safety
/// One block of 64 threads; `x` and `y` have as many elements, aligned to 16 bytes.
#[kernel(block = TILE)]
pub unsafe fn doubles_bulk(x: *const f32, y: *mut f32) {
    let i = thread::thread_idx_x();
    let (tile, barrier) = shared();
    // SAFETY: as above.
    unsafe {
        if i == 0 {
            barrier.init(1);
            mbarrier::fence_init();
            barrier.arrive_expect_tx(TILE * 4);
            tma::load_bulk(*tile, x, TILE * 4, barrier);
        }
        thread::sync_threads();
        barrier.wait_parity(0);
        tile.store(i, tile.load(i) * 2.0);
        tma::fence_proxy_async();
        thread::sync_threads();
        if i == 0 {
            tma::store_bulk(y, *tile, TILE * 4);
            tma::commit_group();
            tma::wait_group_read::<0>();
        }
    }
}

/// Elements of 16 bits of a tile of 64 lines of 128 bytes.
pub const LINES: u32 = 64 * 64;

/// `c = 2 * a * b`, 64 x 64 x 64 in f16, by two products: one with B K-major, one with it MN-major.
///
/// # Safety
/// One block of 128 threads. `tiles` has A, B K-major and B MN-major, as they lie in shared memory
/// ([`cuda_std::sm_90a::wgmma`]), aligned to 16 bytes; `c` has 64 x 64 elements.
#[kernel(block = 128)]
pub unsafe fn wgmma_tiles(tiles: *const u16, c: *mut f32) {
    const BYTES: u32 = 3 * LINES * 2;
    let tid = thread::thread_idx_x();
    let memory = shared_array![u16; 3 * LINES as usize + 512];
    let first = memory.add(memory.address().wrapping_neg() % 1024 / 2);
    let barrier = Mbarrier::at(*shared_array![u64; 1]);
    let mut acc = [0.0f32; 32];
    // SAFETY: thread 0 makes the barrier and asks for the tiles, which begin on 1024 bytes; the
    // whole warpgroup multiplies them when they are there, and waits before it reads the sums.
    unsafe {
        if tid == 0 {
            barrier.init(1);
            mbarrier::fence_init();
            barrier.arrive_expect_tx(BYTES);
            tma::load_bulk(first, tiles, BYTES, barrier);
        }
        thread::sync_threads();
        barrier.wait_parity(0);
        let a = Tile::k_major(first);
        acc.multiply_f16(a, Tile::k_major(first.add(LINES)), false);
        acc.multiply_f16(a, Tile::mn_major(first.add(2 * LINES)), true);
        acc.wait();
    }
    // SAFETY: C has room.
    unsafe { store(acc, c) };
}

/// Stores a warpgroup's sums, 64 x 64 of them.
///
/// # Safety
/// One block of 128 threads; `c` has as many elements.
unsafe fn store(acc: [f32; 32], c: *mut f32) {
    let lane = warp::lane_id();
    let (row, col) = (thread::thread_idx_x() / 32 * 16 + lane / 4, lane % 4 * 2);
    for (i, sum) in (0..).zip(acc) {
        let at = (row + i / 2 % 2 * 8) * 64 + col + i / 4 * 8 + i % 2;
        // SAFETY: each element is one thread's.
        unsafe { *c.add(at as usize) = sum };
    }
}

/// `c = 2 * a * b`, 64 x 64 x 32 in TF32, by two products: one with A in registers, one with it in
/// shared memory.
///
/// # Safety
/// One block of 128 threads. `tiles` has A and B K-major, as they lie in shared memory
/// ([`cuda_std::sm_90a::wgmma`]), aligned to 16 bytes; `a` has A, 64 x 32 elements, and `c` has 64
/// x 64.
#[kernel(block = 128)]
pub unsafe fn wgmma_tf32_tiles(tiles: *const u32, a: *const u32, c: *mut f32) {
    const BYTES: u32 = 2 * LINES * 2;
    let tid = thread::thread_idx_x();
    let memory = shared_array![u16; 2 * LINES as usize + 512];
    let first = memory.add(memory.address().wrapping_neg() % 1024 / 2);
    let barrier = Mbarrier::at(*shared_array![u64; 1]);
    let lane = warp::lane_id();
    let frag_a: [u32; 16] = core::array::from_fn(|i| {
        let i = i as u32;
        let row = tid / 32 * 16 + lane / 4 + i % 2 * 8;
        // SAFETY: inside A.
        unsafe { *a.add((row * 32 + i / 4 * 8 + i / 2 % 2 * 4 + lane % 4) as usize) }
    });
    let mut acc = [0.0f32; 32];
    // SAFETY: thread 0 makes the barrier and asks for the tiles, which begin on 1024 bytes; the
    // whole warpgroup multiplies them when they are there, and waits before it reads the sums.
    unsafe {
        if tid == 0 {
            barrier.init(1);
            mbarrier::fence_init();
            barrier.arrive_expect_tx(BYTES);
            tma::load_bulk(first.cast(), tiles, BYTES, barrier);
        }
        thread::sync_threads();
        barrier.wait_parity(0);
        let b = Tile::k_major(first.add(LINES));
        acc.multiply_tf32_registers(frag_a, b, false);
        acc.multiply_tf32(Tile::k_major(first), b, true);
        acc.wait();
    }
    // SAFETY: C has room.
    unsafe { store(acc, c) };
}
