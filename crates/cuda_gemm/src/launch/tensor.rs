//! [Tensor maps](kernels_gpu::KernelAbi::TensorMap) for A and B, or for copies of them where bulk
//! copies do not reach their rows.

use std::ffi::{c_uint, c_void};

use cuda_driver::sys;
use kernels_gpu::tensor_core::{BK, PANEL};
use kernels_gpu::{InputType, TensorCoreDescriptor, Tile};

use super::staging::Operand;
use crate::device::{Device, DeviceInfo};
use crate::error::Error;
use crate::gemm::{Gemm, Launch};

/// `CU_TENSOR_MAP_DATA_TYPE_FLOAT16`, `_FLOAT32` and `_BFLOAT16`.
const FLOAT16: c_uint = 6;
const FLOAT32: c_uint = 7;
const BFLOAT16: c_uint = 9;
/// `CU_TENSOR_MAP_INTERLEAVE_NONE`.
const NO_INTERLEAVE: c_uint = 0;
/// `CU_TENSOR_MAP_SWIZZLE_NONE`, `_64B` and `_128B`.
const NO_SWIZZLE: c_uint = 0;
const SWIZZLE_64B: c_uint = 2;
const SWIZZLE_128B: c_uint = 3;
/// `CU_TENSOR_MAP_L2_PROMOTION_L2_128B`: a whole line for each part of one.
const PROMOTE_128B: c_uint = 2;
/// `CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE`: zeros outside the matrix.
const FILL_ZEROS: c_uint = 0;

/// Refuses a device that cannot run such a kernel, whose PTX is for Hopper alone.
pub(super) fn require_maps(kernel: &'static str, info: &DeviceInfo) -> Result<(), Error> {
    let device = info.name.clone();
    match (info.capability, info.tensor_maps) {
        ((9, 0), true) => Ok(()),
        ((9, 0), false) => Err(Error::NeedsTensorMaps { kernel, device }),
        ((major, minor), _) => Err(Error::NeedsHopper { kernel, device, major, minor }),
    }
}

/// What elements are, and how boxes of them are swizzled.
#[derive(Clone, Copy)]
struct Format {
    data_type: c_uint,
    bytes: u64,
    swizzle: c_uint,
}

impl Format {
    const fn f32(swizzle: c_uint) -> Self {
        Self { data_type: FLOAT32, bytes: 4, swizzle }
    }

    const fn half(input: InputType) -> Self {
        let data_type = match input {
            InputType::Bf16 => BFLOAT16,
            InputType::F16 => FLOAT16,
        };
        Self { data_type, bytes: 2, swizzle: SWIZZLE_128B }
    }
}

/// Describes the part of a matrix that begins at an element, to bulk copies of boxes.
fn encode(
    device: &Device,
    matrix: Operand,
    offset: usize,
    [rows, cols]: [u32; 2],
    [box_rows, box_cols]: [u32; 2],
    format: Format,
) -> Result<sys::CUtensorMap, Error> {
    let mut map = sys::CUtensorMap::default();
    let Format { data_type, bytes, swizzle } = format;
    let address = matrix.address.wrapping_add(bytes * offset as u64);
    // No more than the driver takes, 2^32 elements and 2^40 bytes: see `MAX_DIMENSION`.
    let dims = [cols, rows].map(u64::from);
    let strides = [bytes * u64::from(matrix.ld)];
    let boxes = [box_cols, box_rows];
    let steps = [1; 2];
    // SAFETY: all lists have two numbers, or one for strides; they and the map outlive the
    // call. The address is only stored.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut map,
            data_type,
            2,
            address as *mut c_void,
            dims.as_ptr(),
            strides.as_ptr(),
            boxes.as_ptr(),
            steps.as_ptr(),
            NO_INTERLEAVE,
            swizzle,
            PROMOTE_128B,
            FILL_ZEROS,
        )
    };
    device.check("cuTensorMapEncodeTiled", result)?;
    Ok(map)
}

/// The tensor maps of a launch's parts of A and B.
pub(super) fn maps(
    device: &Device,
    tile: Tile,
    gemm: &Gemm,
    launch: &Launch,
    [a, b]: [Operand; 2],
) -> Result<[sys::CUtensorMap; 2], Error> {
    // It fits 32 bits: `Gemm::validate` accepted it.
    let k = gemm.depth() as u32;
    // A panel begins with a whole tile, so on 16 bytes like the matrix.
    let [row, col] = [launch.row, launch.col];
    let map_a = if a.transposed {
        let box_a = [tile.bk, tile.bm];
        encode(device, a, row, [k, launch.m], box_a, Format::f32(NO_SWIZZLE))?
    } else {
        let box_a = [tile.bm, tile.bk];
        encode(device, a, row * a.ld as usize, [launch.m, k], box_a, Format::f32(SWIZZLE_64B))?
    };
    let box_b = [tile.bk, tile.bn];
    Ok([map_a, encode(device, b, col, [k, launch.n], box_b, Format::f32(NO_SWIZZLE))?])
}

/// The tensor maps of A and B in 16 bits, for a kernel for tensor cores.
pub(super) fn half_maps(
    device: &Device,
    descriptor: &TensorCoreDescriptor,
    input: InputType,
    [m, n, k]: [u32; 3],
    [a, b]: [Operand; 2],
) -> Result<[sys::CUtensorMap; 2], Error> {
    let (box_a, box_b) = ([descriptor.rows(), BK], [BK, PANEL]);
    Ok([
        encode(device, a, 0, [m, k], box_a, Format::half(input))?,
        encode(device, b, 0, [k, n], box_b, Format::half(input))?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceChoice;

    #[test]
    fn only_hopper_with_a_new_driver_will_do() {
        let mut info = Device::open(DeviceChoice::SoftSm90).unwrap().info().clone();
        require_maps("persistent", &info).unwrap();
        info.tensor_maps = false;
        let error = require_maps("persistent", &info).unwrap_err().to_string();
        assert!(error.contains("cuTensorMapEncodeTiled") && error.contains(&info.name), "{error}");
        for capability in [(8, 0), (8, 9), (10, 0), (12, 0)] {
            let info = DeviceInfo { capability, name: "A100".to_owned(), ..info.clone() };
            let error = require_maps("persistent", &info).unwrap_err().to_string();
            let (major, minor) = capability;
            assert!(
                error.contains("`persistent` needs compute capability 9.0 (sm_90a)")
                    && error.contains(&format!("A100 has {major}.{minor}")),
                "{error}"
            );
        }
    }
}
