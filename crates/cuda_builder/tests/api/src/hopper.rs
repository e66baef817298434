//! Bulk copies to and from tensors of one to five dimensions, for sm_90a.

use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::prelude::*;
use cuda_std::tma::{self, TensorMap};

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
            // SAFETY: thread 0 makes the barrier and asks for the copies; each thread doubles its
            // own element between the load and the store, with a fence and a barrier.
            unsafe {
                if i == 0 {
                    tma::prefetch(from);
                    barrier.init(1);
                    mbarrier::fence_init();
                    barrier.arrive_expect_tx(TILE * 4);
                    tma::load(*tile, from, *at, barrier);
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
