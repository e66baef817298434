//! [Tensor maps](kernels_gpu::KernelAbi::TensorMap) for A and B, or for copies of them where bulk
//! copies do not reach their rows.

use std::ffi::{c_uint, c_void};
use std::sync::{Mutex, PoisonError};

use cuda_driver::sys;
use kernels_gpu::tensor_core::{BK, PANEL};
use kernels_gpu::{InputType, TensorCoreDescriptor, Tile};

use super::staging::Operand;
use crate::device::{Device, DeviceInfo};
use crate::error::Error;
use crate::gemm::{Gemm, Launch};
use crate::matrix::OperandLayout;

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

/// Refuses a device that cannot run a kernel whose PTX is for Hopper alone.
pub(super) fn require_hopper(kernel: &'static str, info: &DeviceInfo) -> Result<(), Error> {
    match info.capability {
        (9, 0) => Ok(()),
        (major, minor) => {
            Err(Error::NeedsHopper { kernel, device: info.name.clone(), major, minor })
        }
    }
}

/// The same, of one that takes tensor maps.
pub(super) fn require_maps(kernel: &'static str, info: &DeviceInfo) -> Result<(), Error> {
    require_hopper(kernel, info)?;
    if info.tensor_maps {
        return Ok(());
    }
    Err(Error::NeedsTensorMaps { kernel, device: info.name.clone() })
}

/// What elements are, and how boxes of them are swizzled.
#[derive(Clone, Copy)]
struct Format {
    data_type: c_uint,
    swizzle: c_uint,
}

impl Format {
    const fn half(input: InputType) -> Self {
        let data_type = match input {
            InputType::Bf16 => BFLOAT16,
            InputType::F16 => FLOAT16,
        };
        Self { data_type, swizzle: SWIZZLE_128B }
    }
}

/// Describes a tensor to bulk copies of boxes: sizes, of which the first is that without gaps, and the
/// bytes from one to the next in each of the other dimensions.
fn encode<const RANK: usize>(
    device: &Device,
    address: u64,
    dims: [u64; RANK],
    strides: [u64; RANK],
    boxes: [u32; RANK],
    format: Format,
) -> Result<sys::CUtensorMap, Error> {
    let mut map = sys::CUtensorMap::default();
    let steps = [1; RANK];
    // SAFETY: all lists have as many numbers, and that of strides one more than is read; they and the
    // map outlive the call. The address is only stored.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut map,
            format.data_type,
            RANK as c_uint,
            address as *mut c_void,
            dims.as_ptr(),
            strides.as_ptr(),
            boxes.as_ptr(),
            steps.as_ptr(),
            NO_INTERLEAVE,
            format.swizzle,
            PROMOTE_128B,
            FILL_ZEROS,
        )
    };
    device.check("cuTensorMapEncodeTiled", result)?;
    Ok(map)
}

/// Describes the part of a matrix of f32 that begins at an element.
fn encode_part(
    device: &Device,
    matrix: Operand,
    offset: usize,
    [rows, cols]: [u32; 2],
    [box_rows, box_cols]: [u32; 2],
    swizzle: c_uint,
) -> Result<sys::CUtensorMap, Error> {
    let format = Format { data_type: FLOAT32, swizzle };
    let address = matrix.address.wrapping_add(4 * offset as u64);
    // No more than the driver takes, 2^32 elements and 2^40 bytes: see `MAX_DIMENSION`.
    let dims = [cols, rows].map(u64::from);
    encode(device, address, dims, [4 * u64::from(matrix.ld), 0], [box_cols, box_rows], format)
}

/// The tensor maps of a plan's last launch: who calls again with the same matrices gets the same ones,
/// and the driver need not make them anew.
#[derive(Default)]
pub(super) struct LastMaps(Mutex<Option<(MapKey, [sys::CUtensorMap; 2])>>);

/// What a plan's maps depend on: where the launch's part of C begins, and the operands.
type MapKey = ([usize; 2], [Operand; 2]);

impl LastMaps {
    /// The tensor maps of a launch's parts of A and B.
    pub(super) fn get(
        &self,
        device: &Device,
        tile: Tile,
        gemm: &Gemm,
        launch: &Launch,
        operands: [Operand; 2],
    ) -> Result<[sys::CUtensorMap; 2], Error> {
        let key = ([launch.row, launch.col], operands);
        // Whole, whoever panicked with it.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, maps)) = &*last
            && *of == key
        {
            return Ok(*maps);
        }
        let maps = maps(device, tile, gemm, launch, operands)?;
        *last = Some((key, maps));
        Ok(maps)
    }
}

/// The tensor maps of a launch's parts of A and B.
fn maps(
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
    let map_a = match a.transposed {
        true => encode_part(device, a, row, [k, launch.m], [tile.bk, tile.bm], NO_SWIZZLE)?,
        false => {
            let box_a = [tile.bm, tile.bk];
            encode_part(device, a, row * a.ld as usize, [launch.m, k], box_a, SWIZZLE_64B)?
        }
    };
    Ok([map_a, encode_part(device, b, col, [k, launch.n], [tile.bk, tile.bn], NO_SWIZZLE)?])
}

/// Bytes that a stride of a tensor map stays below.
const MAX_STRIDE: u64 = 1 << 40;

/// Whether bulk copies reach the rows of matrices of 16-bit elements.
pub(super) fn reaches_halves(matrices: &OperandLayout) -> bool {
    let stride = 2 * matrices.stride as u64;
    matrices.address.is_multiple_of(16)
        && matrices.ld.is_multiple_of(8)
        && (matrices.count == 1 || stride.is_multiple_of(16) && stride < MAX_STRIDE)
}

/// The tensor maps of so many products' A and B in 16 bits, for a kernel for tensor cores.
pub(super) fn half_maps(
    device: &Device,
    descriptor: &TensorCoreDescriptor,
    input: InputType,
    gemm: &Gemm,
    [a, b]: [OperandLayout; 2],
    products: u64,
) -> Result<[sys::CUtensorMap; 2], Error> {
    let box_a = if gemm.trans_a { [BK, PANEL] } else { [descriptor.rows(), BK] };
    let box_b = if gemm.trans_b { [descriptor.cols(), BK] } else { [BK, PANEL] };
    let format = Format::half(input);
    let map = |matrices: OperandLayout, [box_rows, box_cols]: [u32; 2]| {
        let [rows, cols] = matrices.shape.map(|size| size as u64);
        let row_bytes = 2 * matrices.ld as u64;
        if descriptor.layouts(input).is_none() {
            let (dims, boxes) = ([cols, rows], [box_cols, box_rows]);
            return encode(device, matrices.address, dims, [row_bytes, 0], boxes, format);
        }
        // What all products share is there once, and where there is one, no stride is used.
        let (products, stride) = match (matrices.count, matrices.stride) {
            (1, _) | (_, 0) => (1, row_bytes),
            (_, stride) => (products, 2 * stride as u64),
        };
        let (dims, boxes) = ([cols, rows, products], [box_cols, box_rows, 1]);
        encode(device, matrices.address, dims, [row_bytes, stride, 0], boxes, format)
    };
    Ok([map(a, box_a)?, map(b, box_b)?])
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
