//! [Tensor maps](kernels_gpu::abi::KernelAbi::TensorMap) for A and B, or for copies of them where bulk
//! copies do not reach their rows.

use std::ffi::{c_uint, c_void};

use cuda_driver::sys;
use kernels_gpu::abi::tensor_core::{BK, InputType, PANEL, TensorCoreDescriptor};
use kernels_gpu::abi::{KernelAbi, KernelDescriptor, Tile};

use super::staging::Operand;
use crate::device::{Device, DeviceInfo};
use crate::error::Error;
use crate::gemm::{Gemm, Launch};
use crate::matrix::OperandLayout;

/// `CU_TENSOR_MAP_DATA_TYPE_FLOAT16`, `_FLOAT32`, `_BFLOAT16` and `_TFLOAT32`, which rounds f32.
const FLOAT16: c_uint = 6;
const FLOAT32: c_uint = 7;
const BFLOAT16: c_uint = 9;
const TFLOAT32: c_uint = 11;
/// `CU_TENSOR_MAP_INTERLEAVE_NONE`.
const NO_INTERLEAVE: c_uint = 0;
/// `CU_TENSOR_MAP_SWIZZLE_NONE`, `_32B`, `_64B` and `_128B`.
const NO_SWIZZLE: c_uint = 0;
const SWIZZLE_32B: c_uint = 1;
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

/// Whether a device runs the kernels for Hopper, those that take tensor maps as well.
pub(crate) fn has_hopper(info: &DeviceInfo) -> bool {
    require_maps("", info).is_ok()
}

/// What elements are, and how boxes of them are swizzled.
#[derive(Clone, Copy)]
struct Format {
    data_type: c_uint,
    swizzle: c_uint,
}

impl Format {
    /// That of 16 bits, with so many elements in a row of a box: 64, 32 or 16.
    const fn half(input: InputType, box_cols: u32) -> Self {
        let data_type = match input {
            InputType::Bf16 => BFLOAT16,
            InputType::F16 => FLOAT16,
        };
        let swizzle = match box_cols {
            16 => SWIZZLE_32B,
            32 => SWIZZLE_64B,
            _ => SWIZZLE_128B,
        };
        Self { data_type, swizzle }
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
    let _current = device.enter()?;
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

/// Describes the part of a matrix of elements of 32 bits that begins at one, or those of so many products.
fn encode_part(
    device: &Device,
    products: Option<u32>,
    matrix: Operand,
    offset: u64,
    [rows, cols]: [u32; 2],
    [box_rows, box_cols]: [u32; 2],
    format: Format,
) -> Result<sys::CUtensorMap, Error> {
    let address = matrix.address.wrapping_add(4 * offset);
    // No more than the driver takes, 2^32 elements and 2^40 bytes: see `MAX_DIMENSION`.
    let (row_bytes, boxes) = (4 * u64::from(matrix.ld), [box_cols, box_rows]);
    let Some(products) = products else {
        return encode(device, address, [cols, rows].map(u64::from), [row_bytes, 0], boxes, format);
    };
    // What all products share is there once, and where there is one, no stride is used.
    let (products, stride) = match (products, matrix.stride) {
        (1, _) | (_, 0) => (1, row_bytes),
        (products, stride) => (products, 4 * stride),
    };
    let (dims, [box_cols, box_rows]) = ([cols, rows, products].map(u64::from), boxes);
    encode(device, address, dims, [row_bytes, stride, 0], [box_cols, box_rows, 1], format)
}

/// Where the launch's part of C begins, the operands, and how many products there are.
pub(super) type PartKey = ([usize; 2], [Operand; 2], u32);

/// The operands, and how many products there are.
pub(super) type HalfKey = ([OperandLayout; 2], u64);

/// The tensor maps of a launch's parts of A and B of so many products.
pub(super) fn part_maps(
    device: &Device,
    descriptor: &KernelDescriptor,
    gemm: &Gemm,
    launch: &Launch,
    operands: [Operand; 2],
    products: u32,
) -> Result<[sys::CUtensorMap; 2], Error> {
    match descriptor.abi() {
        KernelAbi::Tf32TensorMap => {
            tf32_maps(device, descriptor.tile(), gemm, launch, operands, products)
        }
        KernelAbi::Tf32SplitK => {
            // No more rows than there are: those outside take the copy engine longer.
            let tile = descriptor.tile();
            let tile = Tile { bm: tile.bm.min(launch.m), ..tile };
            tf32_maps(device, tile, gemm, launch, operands, products)
        }
        abi => {
            let products = abi.has_batches().then_some(products);
            maps(device, descriptor.tile(), gemm, launch, operands, products)
        }
    }
}

/// Those of a kernel with [`KernelAbi::TensorMap`], of one product, or [`KernelAbi::StreamK`].
fn maps(
    device: &Device,
    tile: Tile,
    gemm: &Gemm,
    launch: &Launch,
    [a, b]: [Operand; 2],
    products: Option<u32>,
) -> Result<[sys::CUtensorMap; 2], Error> {
    let map = |operand, offset, size, boxes, swizzle| {
        let format = Format { data_type: FLOAT32, swizzle };
        encode_part(device, products, operand, offset, size, boxes, format)
    };
    // It fits 32 bits: `Gemm::validate` accepted it.
    let k = gemm.depth() as u32;
    // A panel begins with a whole tile, so on 16 bytes like the matrix.
    let [first_a, first_b] = [a.offset(launch.row as u64, 0), b.offset(0, launch.col as u64)];
    let map_a = match a.transposed {
        true => map(a, first_a, [k, launch.m], [tile.bk, tile.bm], NO_SWIZZLE)?,
        false => map(a, first_a, [launch.m, k], [tile.bm, tile.bk], SWIZZLE_64B)?,
    };
    Ok([map_a, map(b, first_b, [k, launch.n], [tile.bk, tile.bn], NO_SWIZZLE)?])
}

/// Those of a kernel with [`KernelAbi::Tf32TensorMap`] or [`KernelAbi::Tf32SplitK`], which round.
fn tf32_maps(
    device: &Device,
    tile: Tile,
    gemm: &Gemm,
    launch: &Launch,
    [a, b]: [Operand; 2],
    products: u32,
) -> Result<[sys::CUtensorMap; 2], Error> {
    let format = Format { data_type: TFLOAT32, swizzle: SWIZZLE_128B };
    let map = |operand, offset, size, box_rows| {
        encode_part(device, Some(products), operand, offset, size, [box_rows, tile.bk], format)
    };
    // It fits 32 bits: `Gemm::validate` accepted it.
    let k = gemm.depth() as u32;
    let map_a = map(a, a.offset(launch.row as u64, 0), [launch.m, k], tile.bm)?;
    let first_b = b.offset(0, launch.col as u64);
    let map_b = match b.transposed {
        true => map(b, first_b, [launch.n, k], tile.bn)?,
        false => map(b, first_b, [k, launch.n], tile.bk)?,
    };
    Ok([map_a, map_b])
}

/// Bytes that a stride of a tensor map stays below.
const MAX_STRIDE: u64 = 1 << 40;

/// Whether matrices of a shape are read as their transposes, of one row, if there are no gaps: see [`as_row`].
pub(super) fn may_be_row([rows, cols]: [usize; 2]) -> bool {
    cols == 1 && rows > 1
}

/// A matrix of one column without gaps is its transpose, of one row, which bulk copies reach; and of one row no other
/// is reached by the leading dimension. As which of them it is to be read, and whether that is the transpose.
pub(super) fn as_row(matrices: OperandLayout) -> (OperandLayout, bool) {
    let OperandLayout { shape: [rows, cols], ld, .. } = matrices;
    let is_column = may_be_row([rows, cols]) && ld == 1;
    let cols = if is_column { rows } else { cols };
    match is_column || rows == 1 {
        true => (
            OperandLayout { shape: [1, cols], ld: cols.next_multiple_of(8), ..matrices },
            is_column,
        ),
        false => (matrices, false),
    }
}

/// Whether bulk copies reach the rows of matrices of 16-bit elements.
pub(super) fn reaches_halves(matrices: &OperandLayout) -> bool {
    let stride = 2 * matrices.stride as u64;
    matrices.address.is_multiple_of(16)
        && matrices.ld.is_multiple_of(8)
        && (matrices.count == 1 || stride.is_multiple_of(16) && stride < MAX_STRIDE)
}

/// The tensor maps of so many products' A and B in 16 bits, for a kernel for tensor cores that takes them in this
/// order, or their transposes.
pub(super) fn half_maps(
    device: &Device,
    descriptor: &TensorCoreDescriptor,
    input: InputType,
    [trans_a, trans_b]: [bool; 2],
    [a, b]: [OperandLayout; 2],
    products: u64,
) -> Result<[sys::CUtensorMap; 2], Error> {
    let box_a = if trans_a { [BK, PANEL] } else { [descriptor.rows(), BK] };
    // No more rows than there are, for a kernel that knows: those outside take the copy engine longer.
    let rows_b = if descriptor.splits() { b.shape[0].max(1) as u32 } else { u32::MAX };
    let cols = descriptor.cols();
    let box_b = if trans_b { [cols.min(rows_b), BK] } else { [BK, PANEL.min(cols)] };
    let map = |matrices: OperandLayout, [box_rows, box_cols]: [u32; 2]| {
        let [rows, cols] = matrices.shape.map(|size| size as u64);
        let row_bytes = 2 * matrices.ld as u64;
        let format = Format::half(input, box_cols);
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
    let map_a = if descriptor.takes_unaligned()[0] { Default::default() } else { map(a, box_a)? };
    Ok([map_a, map(b, box_b)?])
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
