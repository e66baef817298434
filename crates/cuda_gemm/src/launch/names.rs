//! Kernels by their names.

use kernels_gpu::abi::KernelDescriptor;
use kernels_gpu::abi::tensor_core::TensorCoreDescriptor;
use kernels_gpu::{TENSOR_CORE, f32_kernels};

use crate::error::Error;

/// Finds a kernel by its name: a rung of the ladder, a tile, or one for TF32.
///
/// ```
/// use cuda_gemm::{Error, find_kernel};
///
/// assert_eq!(find_kernel("tile2d")?.threads(), 256);
/// let Err(Error::UnknownKernel { nearest, .. }) = find_kernel("tile2") else { panic!() };
/// assert_eq!(nearest[0], "tile2d");
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::UnknownKernel`], with the names most like it; [`Error::Compute`] for a kernel of 16-bit
/// matrices.
pub fn find_kernel(name: &str) -> Result<&'static KernelDescriptor, Error> {
    if let Some(descriptor) = f32_kernels().find(|descriptor| descriptor.name() == name) {
        return Ok(descriptor);
    }
    if TENSOR_CORE.iter().any(|kernel| kernel.name() == name) {
        let reason = format!("{name} takes matrices in 16 bits: `find_tensor_core` finds it");
        return Err(Error::Compute { compute: "f32".to_owned(), reason });
    }
    Err(unknown(name, f32_kernels().map(|descriptor| descriptor.name()).collect()))
}

/// Finds a kernel for tensor cores and matrices in 16 bits by its name, for [`Device::tensor_core`](crate::Device::tensor_core).
///
/// ```
/// use cuda_gemm::{Error, find_tensor_core};
///
/// assert_eq!(find_tensor_core("wgmma_persistent")?.cols(), 256);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::UnknownKernel`], with the names most like it; [`Error::Compute`] for a kernel of f32
/// matrices.
pub fn find_tensor_core(name: &str) -> Result<&'static TensorCoreDescriptor, Error> {
    if let Some(descriptor) = TENSOR_CORE.iter().find(|descriptor| descriptor.name() == name) {
        return Ok(descriptor);
    }
    if f32_kernels().any(|descriptor| descriptor.name() == name) {
        let reason = format!("{name} takes matrices in f32: `find_kernel` finds it");
        return Err(Error::Compute { compute: "16 bits".to_owned(), reason });
    }
    Err(unknown(name, TENSOR_CORE.iter().map(|descriptor| descriptor.name()).collect()))
}

fn unknown(name: &str, known: Vec<&'static str>) -> Error {
    let nearest = nearest_names(name, &known);
    Error::UnknownKernel { name: name.to_owned(), nearest, known }
}

/// The three names most like a misspelt one, the best first.
///
/// ```
/// let known = ["naive", "tile2d", "tile1d", "vec4"];
/// assert_eq!(cuda_gemm::nearest_names("Tile2", &known)[..2], ["tile2d", "tile1d"]);
/// ```
pub fn nearest_names<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let lower = name.to_lowercase();
    let mut nearest: Vec<_> =
        known.iter().map(|known| (strsim::jaro_winkler(&lower, known), *known)).collect();
    nearest.sort_by(|a, b| b.0.total_cmp(&a.0));
    nearest.into_iter().take(3).map(|(_, known)| known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_name() {
        for descriptor in f32_kernels() {
            assert_eq!(find_kernel(descriptor.name()).unwrap().name(), descriptor.name());
            assert!(matches!(find_tensor_core(descriptor.name()), Err(Error::Compute { .. })));
        }
        for descriptor in TENSOR_CORE {
            assert_eq!(find_tensor_core(descriptor.name()).unwrap().name(), descriptor.name());
            assert!(matches!(find_kernel(descriptor.name()), Err(Error::Compute { .. })));
        }
    }

    #[test]
    fn a_misspelt_name_gets_the_nearest() {
        for (typed, meant) in [("tile2", "tile2d"), ("Tile2D", "tile2d"), ("niave", "naive")] {
            let Err(Error::UnknownKernel { nearest, known, .. }) = find_kernel(typed) else {
                panic!("{typed}")
            };
            assert_eq!((nearest[0], nearest.len()), (meant, 3));
            assert_eq!(known.len(), f32_kernels().count());
        }
        assert!(find_kernel("").is_err());
        let nearest = find_tensor_core("wgmma_persistant").err().map(|error| error.to_string());
        assert!(nearest.is_some_and(|error| error.contains("the nearest are `wgmma_persistent`,")));
    }
}
