//! [Tensor maps](kernels_gpu::abi::KernelAbi::TensorMap) for A and B, or for their copies.
//!
//! Copies replace operands whose rows are misaligned for bulk copies.

use std::ffi::{c_uint, c_void};

use cuda_driver::sys;
use kernels_gpu::abi::tensor_core::{BK, PANEL, equal_part, even_part};
use kernels_gpu::abi::{KernelAbi, Reads, Tile};

use super::staging::Operand;
use crate::device::Device;
use crate::error::Error;
use crate::plan::{Configuration, Launch};
use crate::problem::{Compute, Gemm};

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
/// `CU_TENSOR_MAP_L2_PROMOTION_L2_128B`: L2 fetches whole lines.
const PROMOTE_128B: c_uint = 2;
/// `CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE`: zeros outside the matrix.
const FILL_ZEROS: c_uint = 0;

/// An element type, and the swizzle of its boxes.
#[derive(Clone, Copy)]
struct Format {
    data_type: c_uint,
    swizzle: c_uint,
}

impl Format {
    /// The format of 16-bit elements, for boxes with rows of 64, 32 or 16 elements.
    const fn of_16_bits(is_f16: bool, box_cols: u32) -> Self {
        let data_type = if is_f16 { FLOAT16 } else { BFLOAT16 };
        let swizzle = match box_cols {
            16 => SWIZZLE_32B,
            32 => SWIZZLE_64B,
            _ => SWIZZLE_128B,
        };
        Self { data_type, swizzle }
    }
}

/// Describes a tensor to bulk copies of boxes.
///
/// `dims` begins with the contiguous dimension. `strides` are the bytes between elements of the
/// other dimensions.
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
    // SAFETY: all lists have `RANK` numbers; the driver reads one stride less. They and the map
    // outlive the call. The address is only stored.
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

/// Describes the part of a matrix that begins at an element, for one or several products.
fn encode_part(
    device: &Device,
    products: Option<u32>,
    matrix: Operand,
    offset: u64,
    [rows, cols]: [u32; 2],
    [box_rows, box_cols]: [u32; 2],
    format: Format,
) -> Result<sys::CUtensorMap, Error> {
    let (address, bytes) = (matrix.at(offset), u64::from(matrix.bytes));
    // Within the driver's limits, 2^32 elements and 2^40 bytes: see `MAX_DIMENSION`.
    let (row_bytes, boxes) = (bytes * u64::from(matrix.ld), [box_cols, box_rows]);
    let Some(products) = products else {
        return encode(device, address, [cols, rows].map(u64::from), [row_bytes, 0], boxes, format);
    };
    // A shared matrix exists once, and one matrix needs no stride.
    let (products, stride) = match (products, matrix.stride) {
        (1, _) | (_, 0) => (1, row_bytes),
        (products, stride) => (products, bytes * stride),
    };
    let (dims, [box_cols, box_rows]) = ([cols, rows, products].map(u64::from), boxes);
    encode(device, address, dims, [row_bytes, stride, 0], [box_cols, box_rows, 1], format)
}

/// The tensor maps of a launch's parts of A and B, for `products` products.
pub(super) fn part_maps(
    device: &Device,
    configuration: &Configuration,
    gemm: &Gemm,
    launch: &Launch,
    operands: [Operand; 2],
    products: u32,
) -> Result<[sys::CUtensorMap; 2], Error> {
    let kernel = configuration.kernel;
    let (abi, tile) = (kernel.abi(), kernel.tile());
    let products_of_map = abi.has_batches().then_some(products);
    match abi {
        KernelAbi::Tf32TensorMap => tf32_maps(device, tile, gemm, launch, operands, products),
        KernelAbi::Tf32SplitK => {
            // Boxes have no more rows than the matrix: out-of-bounds rows cost the copy engine
            // time.
            let tile = Tile { bm: tile.bm.min(launch.m), ..tile };
            tf32_maps(device, tile, gemm, launch, operands, products)
        }
        KernelAbi::Wgmma | KernelAbi::WgmmaBatched | KernelAbi::WgmmaClusters => {
            maps_of_16_bits(device, configuration, gemm, operands, products_of_map)
        }
        _ => maps(device, tile, gemm, launch, operands, products_of_map),
    }
}

/// The maps for [`KernelAbi::TensorMap`], with one product, or [`KernelAbi::StreamK`].
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
    // Fits 32 bits: `Gemm::validate` accepted it.
    let k = gemm.depth() as u32;
    // A panel begins with a whole tile, so it is aligned to 16 bytes like the matrix.
    let [first_a, first_b] = [a.offset(launch.row as u64, 0), b.offset(0, launch.col as u64)];
    let map_a = match a.transposed {
        true => map(a, first_a, [k, launch.m], [tile.bk, tile.bm], NO_SWIZZLE)?,
        false => map(a, first_a, [launch.m, k], [tile.bm, tile.bk], SWIZZLE_64B)?,
    };
    Ok([map_a, map(b, first_b, [k, launch.n], [tile.bk, tile.bn], NO_SWIZZLE)?])
}

/// The rounding maps for [`KernelAbi::Tf32TensorMap`] and [`KernelAbi::Tf32SplitK`].
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
    // Fits 32 bits: `Gemm::validate` accepted it.
    let k = gemm.depth() as u32;
    let map_a = map(a, a.offset(launch.row as u64, 0), [launch.m, k], tile.bm)?;
    let first_b = b.offset(0, launch.col as u64);
    let map_b = match b.transposed {
        true => map(b, first_b, [launch.n, k], tile.bn)?,
        false => map(b, first_b, [k, launch.n], tile.bk)?,
    };
    Ok([map_a, map_b])
}

/// The maps for a kernel of 16-bit operands.
fn maps_of_16_bits(
    device: &Device,
    configuration: &Configuration,
    gemm: &Gemm,
    [a, b]: [Operand; 2],
    products: Option<u32>,
) -> Result<[sys::CUtensorMap; 2], Error> {
    let (Configuration { kernel, .. }, Tile { bm, bn, .. }) =
        (*configuration, configuration.tile());
    // All fit 32 bits: `Gemm::validate` accepted them.
    let [shape_a, shape_b, _] = gemm.shapes().map(|shape| shape.map(|size| size as u32));
    // Boxes have no rows that need not be copied if the kernel supports it: out-of-bounds rows cost
    // the copy engine time.
    let [bm, cols] = match kernel.abi() {
        KernelAbi::WgmmaClusters => [even_part(gemm.m as u32, PANEL), even_part(gemm.n as u32, bn)],
        KernelAbi::WgmmaBatched => {
            let rows = if gemm.is_grouped() { bm } else { equal_part(gemm.m as u32, bm) };
            [rows, even_part(gemm.n as u32, bn)]
        }
        _ => [bm, bn],
    };
    let box_a = if a.transposed { [BK, PANEL] } else { [bm, BK] };
    let box_b = if b.transposed { [cols, BK] } else { [BK, PANEL.min(bn)] };
    let map = |matrix, shape, boxes: [u32; 2]| {
        let format = Format::of_16_bits(gemm.compute == Compute::F16, boxes[1]);
        encode_part(device, products, matrix, 0, shape, boxes, format)
    };
    let map_a = match kernel.reads(false, a.transposed) {
        // Threads load it, without a map.
        Reads::Anywhere => Default::default(),
        _ => map(a, shape_a, box_a)?,
    };
    Ok([map_a, map(b, shape_b, box_b)?])
}
