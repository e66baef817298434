//! cublasLt: products with a chosen layout, epilogue and algorithm.
//!
//! The types and numbers are those of `cublasLt.h`.

use std::ffi::{c_float, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use cuda_gemm::{Activation, Axis, Compute, Device, DeviceMatrix, Element, Gemm};
use libloading::Library;

use crate::cublas::{CublasStatus, Handle, OP_N, OP_T, check, functions};
use crate::error::Error;

/// `CUBLASLT_MATMUL_DESC_TRANSA`, `_TRANSB`, `_EPILOGUE` and `_BIAS_POINTER`.
const TRANS_A: c_int = 3;
const TRANS_B: c_int = 4;
const EPILOGUE: c_int = 7;
const BIAS_POINTER: c_int = 8;
/// `CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT` and `_STRIDED_BATCH_OFFSET`.
const BATCH_COUNT: c_int = 5;
const STRIDE: c_int = 6;
/// `CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`.
const MAX_WORKSPACE: c_int = 1;
/// `CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES`, `_B_BYTES`, `_C_BYTES` and `_D_BYTES`.
const MIN_ALIGNMENTS: [c_int; 4] = [5, 6, 7, 8];
/// `CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK` and two of its values.
///
/// `CUBLASLT_REDUCTION_SCHEME_MASK` allows all schemes. `CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE`
/// adds partial sums in f32.
const REDUCTION_SCHEMES: c_int = 3;
const ANY_SCHEME: u32 = 7;
const IN_COMPUTE_TYPE: u32 = 2;
/// Bytes of workspace, like cuBLAS's own on Hopper.
const WORKSPACE: usize = 32 << 20;
/// The most algorithms that are requested.
const MOST: usize = 64;

/// `CUDA_R_32F`.
pub(crate) const R_32F: c_int = 0;

/// The `cublasComputeType_t` of a product: `CUBLAS_COMPUTE_32F_FAST_TF32` or `CUBLAS_COMPUTE_32F`.
pub(crate) fn compute_type(gemm: &Gemm) -> c_int {
    if gemm.compute == Compute::Tf32 { 77 } else { 68 }
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Heuristic {
    algorithm: [u64; 8],
    workspace: usize,
    state: CublasStatus,
    waves: c_float,
    reserved: [c_int; 4],
}

type Opaque = *mut c_void;
type Create2 = unsafe extern "system" fn(*mut Opaque, c_int, c_int) -> CublasStatus;
type CreateLayout = unsafe extern "system" fn(*mut Opaque, c_int, u64, u64, i64) -> CublasStatus;
type Set = unsafe extern "system" fn(Opaque, c_int, *const c_void, usize) -> CublasStatus;
type Destroy = unsafe extern "system" fn(Opaque) -> CublasStatus;
type GetHeuristic = unsafe extern "system" fn(
    Handle,
    Opaque,
    Opaque,
    Opaque,
    Opaque,
    Opaque,
    Opaque,
    c_int,
    *mut Heuristic,
    *mut c_int,
) -> CublasStatus;
type Matmul = unsafe extern "system" fn(
    Handle,
    Opaque,
    *const c_void,
    *const c_void,
    Opaque,
    *const c_void,
    Opaque,
    *const c_void,
    *const c_void,
    Opaque,
    *mut c_void,
    Opaque,
    *const [u64; 8],
    *mut c_void,
    usize,
    *mut c_void,
) -> CublasStatus;

functions! {
    /// The functions of cublasLt, with the types of `cublasLt.h`.
    struct Functions {
        create_desc: Create2 = c"cublasLtMatmulDescCreate",
        destroy_desc: Destroy = c"cublasLtMatmulDescDestroy",
        set_desc: Set = c"cublasLtMatmulDescSetAttribute",
        create_layout: CreateLayout = c"cublasLtMatrixLayoutCreate",
        destroy_layout: Destroy = c"cublasLtMatrixLayoutDestroy",
        set_layout: Set = c"cublasLtMatrixLayoutSetAttribute",
        create_preference: unsafe extern "system" fn(*mut Opaque) -> CublasStatus
            = c"cublasLtMatmulPreferenceCreate",
        destroy_preference: Destroy = c"cublasLtMatmulPreferenceDestroy",
        set_preference: Set = c"cublasLtMatmulPreferenceSetAttribute",
        get_heuristic: GetHeuristic = c"cublasLtMatmulAlgoGetHeuristic",
        matmul: Matmul = c"cublasLtMatmul",
    }
}

impl Functions {
    /// Finds the functions of the cublasLt that a cuBLAS of this version has loaded.
    fn load(version: &str) -> Result<Self, Error> {
        let major = version.split('.').next().unwrap_or(version);
        let name = match cfg!(windows) {
            true => format!("cublasLt64_{major}.dll"),
            false => format!("libcublasLt.so.{major}"),
        };
        let missing = |error| Error::CublasUnsuited { reason: format!("{name}: {error}") };
        // SAFETY: NVIDIA's library, which is already loaded and never unloaded. The functions have
        // these types in all its versions.
        let loaded = unsafe {
            Library::new(&name).map(ManuallyDrop::new).and_then(|library| Self::of(&library))
        };
        loaded.map_err(missing)
    }
}

/// The layout of a stored matrix.
///
/// It has the `cudaDataType_t`, the row-major shape, the leading dimension, elements from one
/// product's matrix to the next, and the [`alignment`] of the address.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) kind: c_int,
    pub(crate) shape: [usize; 2],
    pub(crate) ld: usize,
    pub(crate) stride: usize,
    pub(crate) alignment: u32,
}

/// The alignment of an address, at most 256 bytes, which is cublasLt's default.
pub(crate) fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(8)
}

/// The function that sets attributes of a product.
const SET_DESC: &str = "cublasLtMatmulDescSetAttribute";

/// A descriptor, with the function that destroys it.
struct Owned(Opaque, Destroy);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it was made, and is not used again. After a failure nothing is left to do.
        unsafe { (self.1)(self.0) };
    }
}

/// Makes a descriptor.
fn create(
    call: &'static str,
    destroy: Destroy,
    make: impl FnOnce(*mut Opaque) -> CublasStatus,
) -> Result<Owned, Error> {
    let mut raw = ptr::null_mut();
    check(call, make(&raw mut raw))?;
    Ok(Owned(raw, destroy))
}

impl Owned {
    /// Sets an attribute.
    ///
    /// # Safety
    ///
    /// `set` is for such descriptors, and the attribute has this type.
    unsafe fn set<T>(
        &self,
        call: &'static str,
        set: Set,
        attribute: c_int,
        value: T,
    ) -> Result<(), Error> {
        // SAFETY: the caller's contract; the value is copied during the call.
        let status = unsafe { set(self.0, attribute, (&raw const value).cast(), size_of::<T>()) };
        check(call, status)
    }
}

/// cublasLt's number for a product's epilogue, if it has that epilogue.
///
/// It has a bias for each column, in the type of C, and ReLU or the tanh GELU.
pub(crate) fn epilogue(gemm: &Gemm) -> Option<c_int> {
    let epilogue = &gemm.epilogue;
    if epilogue.scale.is_some() || epilogue.residual {
        return None;
    }
    match (epilogue.bias, epilogue.activation) {
        (None, None) => Some(1),
        (None, Some(Activation::Relu)) => Some(2),
        (Some(Axis::Column), None) => Some(4),
        (Some(Axis::Column), Some(Activation::Relu)) => Some(6),
        (None, Some(Activation::GeluTanh)) => Some(32),
        (Some(Axis::Column), Some(Activation::GeluTanh)) => Some(36),
        _ => None,
    }
}

/// A product for cublasLt, with the algorithms of its heuristics.
pub(crate) struct LtProduct {
    functions: Functions,
    desc: Owned,
    layouts: [Owned; 3],
    heuristics: Vec<Heuristic>,
    workspace: DeviceMatrix<f32>,
}

impl LtProduct {
    /// Finds all algorithms for a product with these layouts.
    ///
    /// # Errors
    ///
    /// - [`Error::CublasUnsuited`] if there is no cublasLt, or it lacks this epilogue.
    /// - [`Error::Cublas`], or [`cuda_gemm::Error::Driver`] for the workspace.
    pub(crate) fn new(
        device: &Device,
        handle: Handle,
        version: &str,
        gemm: &Gemm,
        [a, b, c]: [Layout; 3],
    ) -> Result<Self, Error> {
        let no_epilogue =
            || Error::CublasUnsuited { reason: "cublasLt has no such epilogue".into() };
        let number = epilogue(gemm).ok_or_else(no_epilogue)?;
        let functions = Functions::load(version)?;
        let workspace = DeviceMatrix::zeros(device, [1, WORKSPACE / 4])?;
        let desc = create("cublasLtMatmulDescCreate", functions.destroy_desc, |raw| {
            // SAFETY: `raw` is valid for the write.
            unsafe { (functions.create_desc)(raw, compute_type(gemm), R_32F) }
        })?;
        let op = |trans| if trans { OP_T } else { OP_N };
        // cuBLAS is column-major, so it computes C^T = op(B)^T op(A)^T.
        let attributes =
            [(TRANS_A, op(gemm.trans_b)), (TRANS_B, op(gemm.trans_a)), (EPILOGUE, number)];
        for (attribute, value) in attributes {
            // SAFETY: these attributes are 32-bit numbers.
            unsafe { desc.set(SET_DESC, functions.set_desc, attribute, value)? };
        }
        let layout = |of: Layout| {
            let Layout { kind, shape, ld, stride, .. } = of;
            let [rows, cols] = shape.map(|size| size as u64);
            let layout = create("cublasLtMatrixLayoutCreate", functions.destroy_layout, |raw| {
                // SAFETY: `raw` is valid for the write.
                unsafe { (functions.create_layout)(raw, kind, cols, rows, ld.max(1) as i64) }
            })?;
            let (call, set) = ("cublasLtMatrixLayoutSetAttribute", functions.set_layout);
            // SAFETY: the attributes are numbers of 32 and 64 bits.
            unsafe {
                layout.set(call, set, BATCH_COUNT, gemm.batch as i32)?;
                layout.set(call, set, STRIDE, stride as i64)?;
            }
            Ok::<_, Error>(layout)
        };
        let layouts = [layout(b)?, layout(a)?, layout(c)?];
        let make = functions.create_preference;
        // SAFETY: `raw` is valid for the write.
        let preference =
            create("cublasLtMatmulPreferenceCreate", functions.destroy_preference, |raw| unsafe {
                make(raw)
            })?;
        let (call, set) = ("cublasLtMatmulPreferenceSetAttribute", functions.set_preference);
        // SAFETY: the attribute is a 64-bit number.
        unsafe { preference.set(call, set, MAX_WORKSPACE, WORKSPACE as u64)? };
        let alignments = [b, a, c, c].map(|matrix| matrix.alignment);
        // f32 sums, as in our kernels: 16-bit sums would be another product.
        let schemes = if gemm.output == Element::F32 { ANY_SCHEME } else { IN_COMPUTE_TYPE };
        let numbers = MIN_ALIGNMENTS.into_iter().zip(alignments);
        for (attribute, number) in numbers.chain([(REDUCTION_SCHEMES, schemes)]) {
            // SAFETY: these attributes are 32-bit numbers.
            unsafe { preference.set(call, set, attribute, number)? };
        }
        let mut heuristics = vec![Heuristic::default(); MOST];
        let mut count = 0;
        let [first, second, out] = layouts.each_ref().map(|layout| layout.0);
        // SAFETY: all were made, and the results have room. A handle of cuBLAS is also one of
        // cublasLt.
        let status = unsafe {
            (functions.get_heuristic)(
                handle,
                desc.0,
                first,
                second,
                out,
                out,
                preference.0,
                MOST as c_int,
                heuristics.as_mut_ptr(),
                &raw mut count,
            )
        };
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        heuristics.truncate(usize::try_from(count).unwrap_or(0));
        heuristics.retain(|one| one.state == 0 && one.workspace <= WORKSPACE);
        Ok(Self { functions, desc, layouts, heuristics, workspace })
    }

    /// The number of algorithms.
    pub(crate) fn len(&self) -> usize {
        self.heuristics.len()
    }

    /// Enqueues the product with one of the algorithms.
    ///
    /// # Errors
    ///
    /// [`Error::Cublas`].
    ///
    /// # Safety
    ///
    /// - Matrices with the given layouts are at these addresses on the handle's device.
    /// - A bias for each column, in the type of C, is at its address, if the product has one.
    /// - All stay until the work is done, and nothing else accesses C.
    pub(crate) unsafe fn enqueue(
        &self,
        algorithm: usize,
        (handle, stream): (Handle, *mut c_void),
        [alpha, beta]: [f32; 2],
        [a, b, c]: [u64; 3],
        bias: Option<u64>,
    ) -> Result<(), Error> {
        let Self { functions, desc, layouts, heuristics, workspace } = self;
        if let Some(bias) = bias {
            // SAFETY: the attribute is an address.
            unsafe { desc.set(SET_DESC, functions.set_desc, BIAS_POINTER, bias)? };
        }
        let [first, second, out] = layouts.each_ref().map(|layout| layout.0);
        // SAFETY: the caller's contract; the factors are read during the call, and the workspace
        // has the size that was set.
        let status = unsafe {
            (functions.matmul)(
                handle,
                desc.0,
                (&raw const alpha).cast(),
                b as *const c_void,
                first,
                a as *const c_void,
                second,
                (&raw const beta).cast(),
                c as *const c_void,
                out,
                c as *mut c_void,
                out,
                &raw const heuristics[algorithm].algorithm,
                workspace.as_device_ptr().as_raw() as *mut c_void,
                WORKSPACE,
                stream,
            )
        };
        check("cublasLtMatmul", status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alignment_is_a_power_of_two_up_to_256() {
        let addresses = [0x7f00_0000_0000, 0x7f00_0000_0300, 0x7f00_0000_0110, 0x7f00_0000_0102];
        assert_eq!(addresses.map(alignment), [256, 256, 16, 2]);
    }
}
