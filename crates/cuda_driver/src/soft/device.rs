//! The software devices, and the attributes of their two models.
//!
//! Compute capability 8.0 has the opt-in shared memory of 9.0, so that larger tiles can run. The
//! other model has 9.0 and runs PTX for `sm_90a`.

use std::ffi::{c_char, c_int};

use soft_cuda::{
    MAX_BLOCK, MAX_GRID, MAX_SHARED, MAX_STATIC_SHARED, MAX_THREADS_PER_BLOCK, REGISTERS_PER_SM,
};

use super::instance::device as the_device;
use crate::arg::Out;
use crate::codes::Answer;
use crate::init;
use crate::ordinals::{soft_count, soft_ordinal};
use crate::types::{
    CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH as CLUSTER_LAUNCH,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as CAPABILITY_MAJOR,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as CAPABILITY_MINOR,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as MULTIPROCESSOR_COUNT,
    CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED as TENSOR_MAP_ACCESS_SUPPORTED, CUdevice,
    CUresult,
};

/// A software device, by its place among them. Their models take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SoftDevice(u32);

impl SoftDevice {
    /// The software device that a `CUdevice` is.
    pub(super) fn of(device: CUdevice) -> Result<Self, CUresult> {
        init::initialised()?;
        let index = device.0.checked_sub(soft_ordinal().cast_signed());
        let index = index.and_then(|index| u32::try_from(index).ok());
        let found = index.filter(|index| *index < soft_count()).map(Self);
        found.ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }

    /// Its place among the software devices.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    pub(super) fn device(self) -> CUdevice {
        CUdevice((soft_ordinal() + self.0).cast_signed())
    }

    pub(super) fn model(self) -> Model {
        if self.0.is_multiple_of(2) { Model::Sm80 } else { Model::Sm90 }
    }
}

/// A model of the software device. They differ in what they say they can do, and so
/// in the PTX they load; memory and interpreter are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Model {
    Sm80,
    Sm90,
}

impl Model {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Sm80 => b"Software CUDA device",
            Self::Sm90 => b"Software CUDA device (sm_90a)",
        }
    }

    /// 10 * major + minor of the compute capability.
    pub(super) fn capability(self) -> c_int {
        match self {
            Self::Sm80 => 80,
            Self::Sm90 => 90,
        }
    }

    /// Whether PTX for `target`, such as `sm_90a`, runs on this model: if it is for
    /// this capability or an older one, and, with a letter, for no other.
    pub(super) fn runs(self, target: &str) -> bool {
        let Some(number) = target.strip_prefix("sm_") else { return true };
        let digits = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        match digits.parse::<c_int>() {
            Ok(number) if digits.len() < target.len() - 3 => number == self.capability(),
            Ok(number) => number <= self.capability(),
            Err(_) => true,
        }
    }
}

/// Threads in a warp.
pub(super) const WARP_SIZE: u32 = 32;
/// Threads and blocks that a multiprocessor holds at a time.
pub(super) const MAX_THREADS_PER_SM: u32 = 2048;
pub(super) const MAX_BLOCKS_PER_SM: u32 = 32;
/// Shared memory of a multiprocessor, and the part of it that each block costs on
/// top of its own, in bytes.
pub(super) const SHARED_PER_SM: u32 = 228 << 10;
pub(super) const SHARED_RESERVED_PER_BLOCK: u32 = 1 << 10;

/// Attributes by their number in `cuda.h`. Clocks, in kHz, and widths are those of
/// a device of this capability: they are nominal and time nothing.
const ATTRIBUTES: &[(c_int, c_int)] = &[
    (1, MAX_THREADS_PER_BLOCK as c_int),
    (2, MAX_BLOCK[0] as c_int), // MAX_BLOCK_DIM_X
    (3, MAX_BLOCK[1] as c_int), // MAX_BLOCK_DIM_Y
    (4, MAX_BLOCK[2] as c_int), // MAX_BLOCK_DIM_Z
    (5, MAX_GRID[0] as c_int),  // MAX_GRID_DIM_X
    (6, MAX_GRID[1] as c_int),  // MAX_GRID_DIM_Y
    (7, MAX_GRID[2] as c_int),  // MAX_GRID_DIM_Z
    (8, MAX_STATIC_SHARED as c_int),
    (9, 64 << 10), // TOTAL_CONSTANT_MEMORY
    (10, WARP_SIZE as c_int),
    (11, c_int::MAX),                // MAX_PITCH
    (12, REGISTERS_PER_SM as c_int), // MAX_REGISTERS_PER_BLOCK
    (13, 1_410_000),                 // CLOCK_RATE
    (14, 512),                       // TEXTURE_ALIGNMENT
    (18, 1),                         // INTEGRATED: it lives in the host's memory
    (36, 1_215_000),                 // MEMORY_CLOCK_RATE
    (37, 5120),                      // GLOBAL_MEMORY_BUS_WIDTH, bits
    (38, 40 << 20),                  // L2_CACHE_SIZE
    (39, MAX_THREADS_PER_SM as c_int),
    (41, 1), // UNIFIED_ADDRESSING
    (79, 1), // GLOBAL_L1_CACHE_SUPPORTED
    (80, 1), // LOCAL_L1_CACHE_SUPPORTED
    (81, SHARED_PER_SM as c_int),
    (82, REGISTERS_PER_SM as c_int), // MAX_REGISTERS_PER_MULTIPROCESSOR
    (87, 2),                         // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
    (97, MAX_SHARED as c_int),
    (106, MAX_BLOCKS_PER_SM as c_int),
    (111, SHARED_RESERVED_PER_BLOCK as c_int),
];

/// One past the last attribute of CUDA 13.
///
/// Attributes that the table lacks are 0: this device lacks their features.
/// `MEMORY_POOLS_SUPPORTED` is one of them: `cuMemAllocAsync` works, but without a pool.
const END_OF_ATTRIBUTES: c_int = 150;

/// The number of multiprocessors.
pub(super) fn sm_count() -> c_int {
    c_int::try_from(the_device().config().sm_count).unwrap_or(c_int::MAX)
}

pub(crate) fn attribute(value: Out<c_int>, attribute: c_int, device: CUdevice) -> Answer {
    let model = SoftDevice::of(device)?.model();
    let of_model = match attribute {
        MULTIPROCESSOR_COUNT => Some(sm_count()),
        CAPABILITY_MAJOR => Some(model.capability() / 10),
        CAPABILITY_MINOR => Some(model.capability() % 10),
        TENSOR_MAP_ACCESS_SUPPORTED | CLUSTER_LAUNCH => Some((model == Model::Sm90).into()),
        _ => None,
    };
    if let Some(of_model) = of_model {
        return value.set(of_model);
    }
    if !(1..END_OF_ATTRIBUTES).contains(&attribute) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let found = ATTRIBUTES.iter().find(|(number, _)| *number == attribute);
    value.set(found.map_or(0, |(_, value)| *value))
}

/// Writes the name with its NUL, cut to `len` bytes.
///
/// # Safety
///
/// `name` is null or valid for writes of `len` bytes.
pub(crate) unsafe fn name(name: Out<c_char>, len: c_int, device: CUdevice) -> Answer {
    let model = SoftDevice::of(device)?.model();
    let room = match usize::try_from(len) {
        Ok(len) if len > 0 && !name.as_ptr().is_null() => len,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    let text = &model.name()[..model.name().len().min(room - 1)];
    // SAFETY: text and NUL are at most `room` bytes, which the caller vouches for.
    unsafe {
        name.as_ptr().cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        name.as_ptr().add(text.len()).write(0);
    }
    Ok(())
}

pub(crate) fn total_memory(bytes: Out<usize>, device: CUdevice) -> Answer {
    SoftDevice::of(device)?;
    bytes.set(the_device().memory_info().1 as usize)
}
