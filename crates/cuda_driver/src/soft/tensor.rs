//! Tensor maps of the software device.

use std::ffi::{c_uint, c_void};
use std::slice;

use soft_cuda::{Fill, Swizzle, TensorElement, TensorMap};

use super::device::Model;
use super::instance::unsupported;
use super::state;
use crate::arg::Out;
use crate::codes::Answer;
use crate::last_error::explain;
use crate::stack;
use crate::types::{CUresult, CUtensorMap};

/// `CU_TENSOR_MAP_DATA_TYPE_UINT32` and the other types, and one past the last.
const UINT32: c_uint = 2;
const INT32: c_uint = 3;
const UINT64: c_uint = 4;
const INT64: c_uint = 5;
const FLOAT16: c_uint = 6;
const FLOAT32: c_uint = 7;
const FLOAT64: c_uint = 8;
const BFLOAT16: c_uint = 9;
const TFLOAT32: c_uint = 11;
const DATA_TYPES: c_uint = 16;
/// The most dimensions of a tensor.
const MAX_RANK: c_uint = 5;
/// The largest element stride.
const MAX_ELEMENT_STRIDE: c_uint = 8;
/// `CU_TENSOR_MAP_INTERLEAVE_32B`, the last interleave.
const LAST_INTERLEAVE: c_uint = 2;
/// `CU_TENSOR_MAP_L2_PROMOTION_L2_256B`, the last promotion.
const LAST_PROMOTION: c_uint = 3;

/// Encodes the description of a tensor.
///
/// # Safety
///
/// The contract of `cuTensorMapEncodeTiled`: the lists have `rank` numbers, that of
/// strides one less.
#[expect(clippy::too_many_arguments, reason = "the parameters are C's")]
pub(crate) unsafe fn encode_tiled(
    tensor_map: Out<CUtensorMap>,
    data_type: c_uint,
    rank: c_uint,
    address: Out<c_void>,
    global_dim: *const u64,
    global_strides: *const u64,
    box_dim: *const c_uint,
    element_strides: *const c_uint,
    interleave: c_uint,
    swizzle: c_uint,
    l2_promotion: c_uint,
    oob_fill: c_uint,
) -> Answer {
    tensor_map.check()?;
    if let Ok(context) = stack::current_soft()
        && state::lock().context(context)?.device.model() == Model::Sm80
    {
        explain(
            "the software device of compute capability 8.0 has no tensor maps; use the one of 9.0"
                .into(),
        );
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    if !tensor_map.as_ptr().is_aligned() {
        return invalid("the tensor map's place is not aligned to 64 bytes; align it");
    }
    let lists = [global_dim.cast(), box_dim, element_strides];
    if lists.iter().any(|list| list.is_null()) || (rank > 1 && global_strides.is_null()) {
        return invalid("a list of dimensions or strides is null");
    }
    if !(1..=MAX_RANK).contains(&rank) {
        return invalid("a tensor has 1 to 5 dimensions");
    }
    // SAFETY: the caller's contract; none of them is null.
    let (dims, boxes, steps) = unsafe {
        let rank = rank as usize;
        (
            slice::from_raw_parts(global_dim, rank),
            slice::from_raw_parts(box_dim, rank),
            slice::from_raw_parts(element_strides, rank),
        )
    };
    let strides = match rank {
        1 => &[],
        // SAFETY: the caller's contract; with two dimensions or more it is not null.
        _ => unsafe { slice::from_raw_parts(global_strides, rank as usize - 1) },
    };
    if steps.iter().any(|step| !(1..=MAX_ELEMENT_STRIDE).contains(step)) {
        return invalid("an element stride is not between 1 and 8");
    }
    let swizzle = match swizzle {
        0 => Swizzle::None,
        1 => Swizzle::Bytes32,
        2 => Swizzle::Bytes64,
        3 => Swizzle::Bytes128,
        _ => return invalid("there is no swizzle of this number"),
    };
    let fill = match oob_fill {
        0 => Fill::Zeros,
        1 => Fill::Nan,
        _ => return invalid("there is no fill of this number"),
    };
    if data_type >= DATA_TYPES || interleave > LAST_INTERLEAVE || l2_promotion > LAST_PROMOTION {
        return invalid("there is no data type, interleave or promotion of this number");
    }
    let element = match data_type {
        UINT32 => Some(TensorElement::U32),
        INT32 => Some(TensorElement::S32),
        UINT64 => Some(TensorElement::U64),
        INT64 => Some(TensorElement::S64),
        FLOAT16 => Some(TensorElement::F16),
        FLOAT32 => Some(TensorElement::F32),
        FLOAT64 => Some(TensorElement::F64),
        BFLOAT16 => Some(TensorElement::Bf16),
        TFLOAT32 => Some(TensorElement::Tf32),
        _ => None,
    };
    let plain = interleave == 0 && steps.iter().all(|step| *step == 1);
    let Some(element) = element.filter(|_| plain) else {
        return unsupported(
            "cuTensorMapEncodeTiled for integers of 8 and 16 bits, packed types and types with \
             `_FTZ`, interleaved tensors, and element strides other than 1",
        );
    };
    let address = address.as_ptr() as u64;
    match TensorMap::of(element, address, dims, strides, boxes, (swizzle, fill)) {
        Ok(map) => {
            let mut opaque = [0; 16];
            for (to, word) in opaque.iter_mut().zip(map.to_bytes().as_chunks().0) {
                *to = u64::from_ne_bytes(*word);
            }
            tensor_map.set(CUtensorMap { opaque })
        }
        Err(error) => {
            explain(error.to_string());
            Err(match error {
                soft_cuda::TensorMapError::NarrowRow { .. } => CUresult::CUDA_ERROR_NOT_SUPPORTED,
                _ => CUresult::CUDA_ERROR_INVALID_VALUE,
            })
        }
    }
}

fn invalid(text: &str) -> Answer {
    explain(text.into());
    Err(CUresult::CUDA_ERROR_INVALID_VALUE)
}
