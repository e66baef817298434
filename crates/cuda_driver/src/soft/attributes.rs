//! What the attributes of a launch say.

use std::slice;

use crate::types::{
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CUlaunchAttribute, CUlaunchConfig, CUresult,
};

/// The attributes of a launch.
///
/// # Safety
///
/// The configuration has as many attributes as it says, or a null pointer.
pub(super) unsafe fn attributes(config: &CUlaunchConfig) -> Result<&[CUlaunchAttribute], CUresult> {
    match (config.num_attrs, config.attrs.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        // SAFETY: the caller's contract.
        (count, false) => Ok(unsafe { slice::from_raw_parts(config.attrs, count as usize) }),
    }
}

/// The blocks of a cluster along each axis, if that is what the attribute says.
pub(super) fn cluster_dimension(attribute: &CUlaunchAttribute) -> Option<[u32; 3]> {
    let (dimensions, _) = attribute.value.as_chunks::<4>();
    let cluster = [0, 1, 2].map(|axis| u32::from_ne_bytes(dimensions[axis]).max(1));
    (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).then_some(cluster)
}
