//! Clusters of blocks, for sm_90a.

use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::prelude::*;
use cuda_std::tma::{self, TensorMap};
use cuda_std::{cluster, glam::UVec3};

/// Where each block is: twelve numbers.
///
/// # Safety
/// Blocks of one thread, and as many times 14 elements of `out`.
#[kernel(block = 1, cluster = (2, 3))]
pub unsafe fn places(out: *mut u32) {
    let block = thread::block_idx_y() * thread::grid_dim_x() + thread::block_idx_x();
    let (a, b) = (cluster::clusterid(), cluster::nclusterid());
    let (c, d) = (cluster::cluster_ctaid(), cluster::cluster_nctaid());
    for (i, UVec3 { x, y, z }) in [a, b, c, d].into_iter().enumerate() {
        for (j, value) in [x, y, z].into_iter().enumerate() {
            // SAFETY: as the launch promises.
            unsafe { *out.add(block as usize * 14 + i * 3 + j) = value };
        }
    }
    // SAFETY: as above.
    unsafe {
        *out.add(block as usize * 14 + 12) = cluster::cluster_ctarank();
        *out.add(block as usize * 14 + 13) = cluster::cluster_nctarank();
    }
}

/// Reads the next block's shared memory in all ways, writes to it, and counts in that of rank 0:
/// eight numbers for each thread.
///
/// # Safety
/// `out` has 8 elements for each thread.
#[kernel(block = 64, cluster = 4)]
pub unsafe fn neighbours(out: *mut u32) {
    let (tile, mail) = (shared_array![u32; 64], shared_array![u64; 64]);
    let (count, least, sum) = (shared_array![u32; 4], shared_array![i32; 2], shared_array![f32; 1]);
    let (i, rank) = (thread::thread_idx_x(), cluster::cluster_ctarank());
    let place = thread::index_1d();
    // SAFETY: `out` is as the launch promises. Barriers of the cluster lie between stores,
    // additions and loads, and behind the last access of another block's shared memory.
    unsafe {
        tile.store(i, place * 3);
        if i == 0 {
            for k in 0..4 {
                count.store(k, 100 * (k & 1));
            }
            least.store(0, 1000);
            least.store(1, 0);
            sum.store(0, 0.0);
        }
        cluster::sync();
        let next = (rank + 1) % cluster::cluster_nctarank();
        let there = cluster::mapa(*tile, next);
        let out = out.add(place as usize * 8);
        *out = there.read(i);
        *out.add(1) = *there.add(i).as_mut_ptr();
        let four: [u32; 4] = there.load_vec(i & !3);
        *out.add(2) = four[(i & 3) as usize];
        *out.add(3) = there.getctarank();
        cluster::mapa(*mail, next).write(i, u64::from(place) << 32 | 7);

        let count_there = cluster::mapa(*count, 0);
        count_there.fetch_add(0, 2);
        count_there.fetch_max(1, place);
        if i == rank {
            count_there.swap(2, 9);
        }
        let least_there = cluster::mapa(*least, 0);
        least_there.fetch_min(0, place as i32 - 700);
        least_there.fetch_add(1, -1);
        cluster::mapa(*sum, 0).fetch_add(0, 0.5);
        cluster::sync();
        *out.add(4) = (mail.load(i) >> 32) as u32;
        *out.add(5) = mail.load(i) as u32;
        if rank == 0 {
            let numbers = [
                count.load(0),
                count.load(1),
                count.load(2),
                least.load(0) as u32,
                least.load(1) as u32,
                sum.load(0) as u32,
            ];
            *out.add(6) = numbers.get(i as usize).copied().unwrap_or(0);
        } else {
            *out.add(6) = count.load(1);
        }
        *out.add(7) = cluster::mapa(*tile, rank).address() >> 24;
    }
}

/// Rounds of [`hands()`].
pub const ROUNDS: u32 = 5;

/// The first block of each cluster hands numbers to the second one, through two mbarriers: one in
/// the second block that says they are there, and one in the first that says they were read.
///
/// # Safety
/// `out` has 32 elements for each round and cluster.
#[kernel(block = 32, cluster = 2)]
pub unsafe fn hands(out: *mut u32) {
    let values = shared_array![u32; 32];
    let barriers = shared_array![u64; 2];
    let (full, empty) = (Mbarrier::at(*barriers), Mbarrier::at(*barriers).add(1));
    let (i, rank) = (thread::thread_idx_x(), cluster::cluster_ctarank());
    // SAFETY: all threads of the other block arrive once in each phase. The barriers are
    // initialised before that of the cluster, and no block exits before the last one.
    unsafe {
        if i == 0 {
            full.init(32);
            empty.init(32);
            mbarrier::fence_init();
        }
        cluster::arrive();
        let start = cluster::clusterid().x * 1000;
        cluster::wait();
        for round in 0..ROUNDS {
            if rank == 0 {
                if round > 0 {
                    empty.wait_parity_cluster((round - 1) % 2);
                }
                cluster::mapa(*values, 1).write(31 - i, start + round * 100 + i);
                full.arrive_cluster(1);
            } else {
                full.wait_parity_cluster(round % 2);
                let at = (cluster::clusterid().x * ROUNDS + round) * 32 + i;
                *out.add(at as usize) = values.load(i);
                empty.arrive_cluster(0);
            }
        }
        cluster::sync();
    }
}

/// Elements of a tile.
pub const TILE: u32 = 64;

/// Rank 0 loads a tile for both blocks by a map, and rank 1 another one without; then each block
/// copies its sum of the two to the other one, which stores it.
///
/// # Safety
/// The map is of `f32` in one dimension, and its box of 64 elements; `plain` has 64 elements, and
/// `out` as many for each block.
#[kernel(block = TILE, cluster = 2)]
pub unsafe fn multicast(
    #[grid_constant] map: &TensorMap,
    #[grid_constant] at: &[i32; 1],
    plain: *const f32,
    out: *mut f32,
) {
    let (first, second) = (shared_array![f32; 64], shared_array![f32; 64]);
    let (sum, theirs) = (shared_array![f32; 64], shared_array![f32; 64]);
    let barriers = shared_array![u64; 2];
    let (loaded, copied) = (Mbarrier::at(*barriers), Mbarrier::at(*barriers).add(1));
    let (i, rank) = (thread::thread_idx_x(), cluster::cluster_ctarank());
    const BYTES: u32 = TILE * 4;
    // SAFETY: each block initialises its barriers before that of the cluster, expects what the
    // copies bring, and stays until the other one has read what it copied.
    unsafe {
        if i == 0 {
            loaded.init(1);
            copied.init(1);
            mbarrier::fence_init();
        }
        cluster::sync();
        if i == 0 {
            loaded.arrive_expect_tx(2 * BYTES);
            copied.arrive_expect_tx(BYTES);
            match rank {
                0 => tma::load_multicast(*first, map, *at, loaded, 0b11),
                _ => tma::load_bulk_multicast(*second, plain, BYTES, loaded, 0b11),
            }
        }
        loaded.wait_parity(0);
        sum.store(i, first.load(i) + second.load(i) + rank as f32);
        tma::fence_proxy_async();
        thread::sync_threads();
        if i == 0 {
            let there = (cluster::mapa(*theirs, rank ^ 1), copied.mapa(rank ^ 1));
            tma::copy_to_cluster(there.0, *sum, BYTES, there.1);
        }
        copied.wait_parity(0);
        *out.add(thread::index_1d() as usize) = theirs.load(i);
        cluster::sync();
    }
}
