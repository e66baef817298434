//! Finds kernels by name.

use kernels_gpu::abi::KernelDescriptor;
use kernels_gpu::kernels;

use crate::error::Error;

/// Finds a kernel by name.
///
/// ```
/// use cuda_gemm::{Error, find_kernel};
///
/// assert_eq!(find_kernel("tile2d")?.threads(), 256);
/// assert_eq!(find_kernel("wgmma_persistent")?.tile().bn, 256);
/// let Err(Error::UnknownKernel { nearest, .. }) = find_kernel("tile2") else { panic!() };
/// assert_eq!(nearest[0], "tile2d");
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::UnknownKernel`], with the most similar names.
pub fn find_kernel(name: &str) -> Result<&'static KernelDescriptor, Error> {
    kernels().find(|kernel| kernel.name() == name).ok_or_else(|| {
        let known: Vec<_> = kernels().map(KernelDescriptor::name).collect();
        let nearest = nearest_names(name, &known);
        Error::UnknownKernel { name: name.to_owned(), nearest, known }
    })
}

/// The three names most similar to a misspelt one, best first.
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

/// A kernel in a file: its name.
pub(crate) mod by_name {
    use kernels_gpu::abi::KernelDescriptor;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::find_kernel;

    pub(crate) fn serialize<S: Serializer>(
        kernel: &&'static KernelDescriptor,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(kernel.name())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<&'static KernelDescriptor, D::Error> {
        let name = String::deserialize(deserializer)?;
        find_kernel(&name).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_name() {
        for kernel in kernels() {
            assert_eq!(find_kernel(kernel.name()).unwrap().name(), kernel.name());
        }
    }

    #[test]
    fn a_misspelt_name_gets_the_nearest() {
        for (typed, meant) in [("tile2", "tile2d"), ("Tile2D", "tile2d"), ("niave", "naive")] {
            let Err(Error::UnknownKernel { nearest, known, .. }) = find_kernel(typed) else {
                panic!("{typed}")
            };
            assert_eq!((nearest[0], nearest.len()), (meant, 3));
            assert_eq!(known.len(), kernels().count());
        }
        assert!(find_kernel("").is_err());
        let nearest = find_kernel("wgmma_persistant").err().map(|error| error.to_string());
        assert!(nearest.is_some_and(|error| error.contains("the nearest are `wgmma_persistent`,")));
    }
}
