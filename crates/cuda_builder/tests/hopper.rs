//! Bulk copies of tensors of all ranks, and products by tensor cores, for sm_90a.

use std::ffi::c_void;

use api::cluster;
use api::hopper::{
    LINES, TILE, doubles_1d, doubles_2d, doubles_3d, doubles_4d, doubles_5d, doubles_bulk,
    wgmma_tf32_tiles, wgmma_tiles,
};
use cuda_builder::CudaArch;
use cuda_driver::sys;
use cuda_std::half::f16;
use cuda_std::tma::TensorMap;
use cust::memory::DeviceBuffer;

mod common;
#[path = "common/device.rs"]
mod device;

use device::{Api, buffer};

/// `CU_TENSOR_MAP_DATA_TYPE_FLOAT32`.
const FLOAT32: u32 = 7;

/// The map of a tensor of f32 without gaps.
fn encode<const RANK: usize>(
    tensor: &DeviceBuffer<f32>,
    dims: [u64; RANK],
    tile: [u32; RANK],
) -> TensorMap {
    let mut map = sys::CUtensorMap::default();
    let mut strides = Vec::new();
    for dim in &dims[..RANK - 1] {
        strides.push(strides.last().unwrap_or(&4) * dim);
    }
    let address = tensor.as_device_ptr().as_raw() as *mut c_void;
    let steps = [1; RANK];
    // SAFETY: the lists have as many numbers as the rank says, strides one less.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut map,
            FLOAT32,
            RANK as u32,
            address,
            dims.as_ptr(),
            strides.as_ptr(),
            tile.as_ptr(),
            steps.as_ptr(),
            0,
            0,
            0,
            0,
        )
    };
    assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
    // SAFETY: 128 bytes, which the driver wrote.
    TensorMap::from_raw(unsafe { std::mem::transmute::<sys::CUtensorMap, [u64; 16]>(map) })
}

/// What is twice as large in the end: the tile that begins at `at`, where it is inside.
fn expected<const RANK: usize>(
    values: &[f32],
    dims: [u64; RANK],
    tile: [u32; RANK],
    at: [i32; RANK],
) -> Vec<f32> {
    let mut expected = vec![0.0; values.len()];
    for (i, expected) in expected.iter_mut().enumerate() {
        let mut rest = i as u64;
        let inside = (0..RANK).all(|axis| {
            let place = (rest % dims[axis]) as i64;
            rest /= dims[axis];
            (i64::from(at[axis])..i64::from(at[axis]) + i64::from(tile[axis])).contains(&place)
        });
        if inside {
            *expected = values[i] * 2.0;
        }
    }
    expected
}

/// A test for each rank: a fault on a GPU is the end of what comes after it in the process.
macro_rules! tiles {
    ($($test:ident, $kernel:ident: $dims:expr, $tile:expr, $at:expr;)*) => {$(
        #[test]
        fn $test() {
            let Some(api) = Api::of(common::api(), CudaArch::Sm90a) else { return };
            assert_eq!($tile.iter().product::<u32>(), TILE);
            let values: Vec<f32> =
                (0..$dims.iter().product::<u64>()).map(|i| i as f32 + 1.0).collect();
            let (from, to) = (buffer(&values), buffer(&vec![0.0f32; values.len()]));
            let maps = [encode(&from, $dims, $tile), encode(&to, $dims, $tile)];
            // SAFETY: the module was built from these kernels.
            let kernel = unsafe { $kernel::load(&api.module) }.unwrap();
            // SAFETY: maps of tensors that exist until `read` has waited.
            unsafe { kernel.launch(&api.stream, (1, TILE), maps[0], maps[1], $at) }.unwrap();
            assert_eq!(api.read(&to), expected(&values, $dims, $tile, $at));
        }
    )*};
}

tiles! {
    tiles_of_one_dimension, doubles_1d: [100], [64], [60];
    tiles_of_two_dimensions, doubles_2d: [20, 12], [16, 4], [8, 9];
    tiles_of_three_dimensions, doubles_3d: [12, 6, 5], [8, 4, 2], [8, 3, 2];
    tiles_of_four_dimensions, doubles_4d: [8, 5, 4, 3], [4, 4, 2, 2], [4, 2, 1, 2];
    tiles_of_five_dimensions, doubles_5d: [8, 4, 3, 3, 2], [4, 2, 2, 2, 2], [4, 1, 2, 2, 0];
}

#[test]
fn bulk_copies_need_no_map() {
    let Some(api) = Api::of(common::api(), CudaArch::Sm90a) else { return };
    let values: Vec<f32> = (0..TILE).map(|i| i as f32).collect();
    let (x, mut y) = (buffer(&values), buffer(&vec![0.0f32; values.len()]));
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { doubles_bulk::load(&api.module) }.unwrap();
    // SAFETY: as many elements as the kernel says, and `read` waits.
    unsafe { kernel.launch(&api.stream, (1, TILE), &x, &mut y) }.unwrap();
    let expected: Vec<f32> = values.iter().map(|x| x * 2.0).collect();
    assert_eq!(api.read(&y), expected);
}

/// A tile of 64 lines of 64, swizzled by 128 bytes.
fn swizzled(element: impl Fn(u32, u32) -> f32) -> impl Iterator<Item = u16> {
    (0..LINES).map(move |at| {
        let (line, chunk) = (at / 64, at % 64 / 8);
        f16::from_f32(element(line, (chunk ^ (line % 8)) * 8 + at % 8)).to_bits()
    })
}

#[test]
fn wgmma_multiplies_tiles_that_lie_either_way() {
    let Some(api) = Api::of(common::api(), CudaArch::Sm90a) else { return };
    // Small integers, whose sums are exact.
    let a = |row: u32, k: u32| (row * 5 + k * 3) as f32 % 13.0 - 6.0;
    let b = |k: u32, col: u32| (k * 7 + col * 11) as f32 % 17.0 - 8.0;
    let tiles: Vec<u16> =
        swizzled(a).chain(swizzled(|col, k| b(k, col))).chain(swizzled(b)).collect();
    let (tiles, c) = (buffer(&tiles), buffer(&[f32::NAN; LINES as usize]));
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { wgmma_tiles::load(&api.module) }.unwrap();
    // SAFETY: as many elements as the kernel says, and `read` waits.
    unsafe { kernel.launch(&api.stream, (1, 128), tiles.as_device_ptr(), c.as_device_ptr()) }
        .unwrap();
    for (at, found) in (0..).zip(api.read(&c)) {
        let dot: f32 = (0..64).map(|k| a(at / 64, k) * b(k, at % 64)).sum();
        assert_eq!(found, 2.0 * dot, "{at}");
    }
}

/// A tile of 64 lines of 32, swizzled by 128 bytes.
fn swizzled_tf32(element: impl Fn(u32, u32) -> f32) -> impl Iterator<Item = u32> {
    (0..64 * 32).map(move |at| {
        let (line, chunk) = (at / 32, at % 32 / 4);
        element(line, (chunk ^ (line % 8)) * 4 + at % 4).to_bits()
    })
}

#[test]
fn wgmma_takes_tf32_from_registers_and_from_shared_memory() {
    let Some(api) = Api::of(common::api(), CudaArch::Sm90a) else { return };
    // Small integers, whose sums are exact.
    let a = |row: u32, k: u32| (row * 5 + k * 3) as f32 % 13.0 - 6.0;
    let b = |k: u32, col: u32| (k * 7 + col * 11) as f32 % 17.0 - 8.0;
    let tiles: Vec<u32> = swizzled_tf32(a).chain(swizzled_tf32(|col, k| b(k, col))).collect();
    let rows: Vec<u32> = (0..64 * 32).map(|at| a(at / 32, at % 32).to_bits()).collect();
    let (tiles, rows, c) = (buffer(&tiles), buffer(&rows), buffer(&[f32::NAN; LINES as usize]));
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { wgmma_tf32_tiles::load(&api.module) }.unwrap();
    let [tiles, rows] = [&tiles, &rows].map(|buffer| buffer.as_device_ptr());
    // SAFETY: as many elements as the kernel says, and `read` waits.
    unsafe { kernel.launch(&api.stream, (1, 128), tiles, rows, c.as_device_ptr()) }.unwrap();
    for (at, found) in (0..).zip(api.read(&c)) {
        let dot: f32 = (0..32).map(|k| a(at / 64, k) * b(k, at % 64)).sum();
        assert_eq!(found, 2.0 * dot, "{at}");
    }
}

#[test]
fn blocks_know_their_place_in_a_cluster() {
    let Some(api) = Api::of(common::api(), CudaArch::Sm90a) else { return };
    let out = buffer(&[u32::MAX; 4 * 6 * 14]);
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { cluster::places::load(&api.module) }.unwrap();
    // SAFETY: as many elements as the kernel says, and `read` waits.
    unsafe { kernel.launch(&api.stream, ((4, 6), 1), out.as_device_ptr()) }.unwrap();
    for (block, found) in (0..).zip(api.read(&out).chunks_exact(14)) {
        let (x, y): (u32, u32) = (block % 4, block / 4);
        let (inner_x, inner_y) = (x % 2, y % 3);
        let rank = inner_y * 2 + inner_x;
        let expected = [x / 2, y / 3, 0, 2, 2, 1, inner_x, inner_y, 0, 2, 3, 1, rank, 6];
        assert_eq!(found, expected, "{block}");
    }
    // SAFETY: the launch is refused.
    let refused = unsafe { kernel.launch(&api.stream, ((4, 5), 1), out.as_device_ptr()) };
    assert!(refused.is_err());
}

#[test]
fn blocks_of_a_cluster_share_memory() {
    let Some(api) = Api::of(common::api(), CudaArch::Sm90a) else { return };
    const BLOCKS: u32 = 8;
    let out = buffer(&vec![u32::MAX; BLOCKS as usize * 64 * 8]);
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { cluster::neighbours::load(&api.module) }.unwrap();
    // SAFETY: as many elements as the kernel says, and `read` waits.
    unsafe { kernel.launch(&api.stream, (BLOCKS, 64), out.as_device_ptr()) }.unwrap();
    for (place, found) in (0..).zip(api.read(&out).chunks_exact(8)) {
        let (block, i): (u32, u32) = (place / 64, place % 64);
        let (rank, first) = (block % 4, block / 4 * 256);
        let (next, before) = ((rank + 1) % 4, (rank + 3) % 4);
        let value = (first + next * 64 + i) * 3;
        let counts = [512, first + 255, 9, first.wrapping_sub(700), 256u32.wrapping_neg(), 128];
        let count = match rank {
            0 => counts.get(i as usize).copied().unwrap_or(0),
            _ => 100,
        };
        let expected = [value, value, value, next, first + before * 64 + i, 7, count];
        assert_eq!(found[..7], expected, "{place}");
    }
}

#[test]
fn blocks_of_a_cluster_wait_for_each_other() {
    let Some(api) = Api::of(common::api(), CudaArch::Sm90a) else { return };
    const CLUSTERS: u32 = 3;
    let out = buffer(&vec![0u32; (CLUSTERS * cluster::ROUNDS * 32) as usize]);
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { cluster::hands::load(&api.module) }.unwrap();
    // SAFETY: as many elements as the kernel says, and `read` waits.
    unsafe { kernel.launch(&api.stream, (CLUSTERS * 2, 32), out.as_device_ptr()) }.unwrap();
    let rounds = (0..CLUSTERS).flat_map(|c| (0..cluster::ROUNDS).map(move |r| c * 1000 + r * 100));
    let expected: Vec<u32> =
        rounds.flat_map(|start| (0..32).map(move |i| start + 31 - i)).collect();
    assert_eq!(api.read(&out), expected);
}

#[test]
fn one_copy_fills_the_memory_of_two_blocks() {
    let Some(api) = Api::of(common::api(), CudaArch::Sm90a) else { return };
    let values: Vec<f32> = (0..100).map(|i| i as f32).collect();
    let plain: Vec<f32> = (0..TILE).map(|i| 1000.0 * i as f32).collect();
    let (from, plain_from) = (buffer(&values), buffer(&plain));
    let out = buffer(&[0.0f32; 4 * TILE as usize]);
    let map = encode(&from, [100], [TILE]);
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { cluster::multicast::load(&api.module) }.unwrap();
    let (plain, stored) = (plain_from.as_device_ptr(), out.as_device_ptr());
    // SAFETY: buffers of the sizes that the kernel says, until `read` has waited.
    unsafe { kernel.launch(&api.stream, (4, TILE), map, [20], plain, stored) }.unwrap();
    for (i, found) in (0..).zip(api.read(&out)) {
        let (block, at) = (i / TILE, i % TILE);
        assert_eq!(found, 20.0 + 1001.0 * at as f32 + (1 - block % 2) as f32, "{i}");
    }
}
