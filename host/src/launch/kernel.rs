//! Kernels, loaded on a device.

use std::ffi::c_int;

use cuda_driver::sys;
use cust::function::Function;
use kernels_gpu::{KernelAbi, KernelDescriptor};

use super::tensor;
use crate::device::Device;
use crate::error::Error;

impl Device {
    /// A rung's kernel on this device. The first call loads the kernels.
    ///
    /// # Errors
    ///
    /// [`Error::Jit`] if the driver refuses the PTX, [`Error::NotInPtx`] if the PTX for
    /// this device lacks the kernel, [`Error::NeedsHopper`] or [`Error::NeedsTensorMaps`] if
    /// the kernel needs what the device or its driver lacks, [`Error::Driver`].
    pub fn kernel(&self, spec: &'static KernelDescriptor) -> Result<Kernel<'_>, Error> {
        if spec.abi().has_tensor_maps() {
            tensor::require_maps(spec.name(), self.info())?;
        }
        let stage_operands = match spec.abi() {
            KernelAbi::Gemm => None,
            KernelAbi::SplitK | KernelAbi::TensorMap | KernelAbi::StreamK => {
                Some(self.entry_point("stage_operands")?)
            }
        };
        let function = self.entry_point(spec.name())?;
        let unaligned = spec.unaligned().map(|other| self.entry_point(other.name)).transpose()?;
        Ok(Kernel { device: self, spec, function, unaligned, stage_operands })
    }
}

/// A rung's kernel, loaded on a device.
pub struct Kernel<'d> {
    pub(super) device: &'d Device,
    pub(super) spec: &'static KernelDescriptor,
    pub(super) function: Function<'d>,
    /// For matrices that 128-bit accesses cannot reach, if `function` makes such.
    pub(super) unaligned: Option<Function<'d>>,
    /// Copies matrices that `function` cannot reach, if it can do with copies.
    pub(super) stage_operands: Option<Function<'d>>,
}

impl<'d> Kernel<'d> {
    /// Where it is loaded.
    pub fn device(&self) -> &'d Device {
        self.device
    }

    /// The rung.
    pub fn spec(&self) -> &'static KernelDescriptor {
        self.spec
    }

    /// Opts in to more dynamic shared memory than every kernel may use; `cust` does
    /// not know the attribute. Never takes any back, which another product may need.
    pub(super) fn allow_shared(&self, function: &Function<'_>, bytes: u32) -> Result<(), Error> {
        const ATTRIBUTE: c_int = sys::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        self.device.make_current()?;
        let function: sys::CUfunction = function.to_raw().into();
        // No more than the device's limit, which the driver counts in an i32.
        let bytes = bytes.cast_signed();
        let mut allowed = 0;
        // SAFETY: `allowed` is valid for the write. The function is loaded, and belongs to the
        // context just made current.
        let result = unsafe { sys::cuFuncGetAttribute(&raw mut allowed, ATTRIBUTE, function) };
        self.device.check("cuFuncGetAttribute", result)?;
        if bytes <= allowed {
            return Ok(());
        }
        // SAFETY: as above.
        let result = unsafe { sys::cuFuncSetAttribute(function, ATTRIBUTE, bytes) };
        self.device.check("cuFuncSetAttribute", result)
    }
}
