//! Bulk copies of tensors of all ranks, for sm_90a.

use std::ffi::c_void;

use api::hopper::{TILE, doubles_1d, doubles_2d, doubles_3d, doubles_4d, doubles_5d, doubles_bulk};
use cuda_builder::CudaArch;
use cuda_driver::sys;
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

#[test]
fn tiles_of_all_ranks_come_and_go() {
    let Some(api) = Api::of(common::api(), CudaArch::Sm90a) else { return };
    macro_rules! check {
        ($($kernel:ident: $dims:expr, $tile:expr, $at:expr;)*) => {$(
            assert_eq!($tile.iter().product::<u32>(), TILE);
            let values: Vec<f32> =
                (0..$dims.iter().product::<u64>()).map(|i| i as f32 + 1.0).collect();
            let (from, to) = (buffer(&values), buffer(&vec![0.0f32; values.len()]));
            let maps = [encode(&from, $dims, $tile), encode(&to, $dims, $tile)];
            // SAFETY: the module was built from these kernels.
            let kernel = unsafe { $kernel::load(&api.module) }.unwrap();
            // SAFETY: maps of tensors that exist until `read` has waited.
            unsafe { kernel.launch(&api.stream, (1, TILE), maps[0], maps[1], $at) }.unwrap();
            let found = api.read(&to);
            assert!(found == expected(&values, $dims, $tile, $at), "{}", stringify!($kernel));
        )*};
    }
    check! {
        doubles_1d: [100], [64], [-20];
        doubles_2d: [20, 12], [16, 4], [8, 9];
        doubles_3d: [12, 6, 5], [8, 4, 2], [-1, 3, 2];
        doubles_4d: [8, 5, 4, 3], [4, 4, 2, 2], [2, -1, 1, 2];
        doubles_5d: [8, 4, 3, 3, 2], [4, 2, 2, 2, 2], [1, 1, 2, -1, 0];
    }
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
