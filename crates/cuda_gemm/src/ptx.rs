//! The embedded PTX of every kernel.
//!
//! ```
//! use cuda_gemm::ptx;
//!
//! assert_eq!(ptx::for_capability((8, 6)).target(), "sm_80");
//! assert_eq!(ptx::for_capability((9, 0)).target(), "sm_90a");
//! let text = ptx::SM_90A.kernel("persistent").expect("it is there");
//! assert!(text.contains(".entry persistent("));
//! ```

use std::sync::LazyLock;

use ptx_archive::Archive;

/// The kernels for one architecture, each compressed by itself and decompressed on demand.
#[derive(Debug)]
pub struct Kernels {
    target: &'static str,
    archive: Archive<'static>,
}

/// Kernels for compute capability 8.0, and with JIT for everything newer.
pub static SM_80: LazyLock<Kernels> = LazyLock::new(|| Kernels::embedded("sm_80"));

/// Kernels for compute capability 9.0 alone: they may use features that only Hopper has.
pub static SM_90A: LazyLock<Kernels> = LazyLock::new(|| Kernels::embedded("sm_90a"));

/// The kernels for a device of this compute capability (major, minor), at least 8.0.
pub fn for_capability(capability: (u32, u32)) -> &'static Kernels {
    match capability {
        (9, 0) => &SM_90A,
        _ => &SM_80,
    }
}

/// The archive of each family of kernels, with its architecture.
const EMBEDDED: &[(&str, &[u8])] = include!(env!("KERNELS"));

impl Kernels {
    fn embedded(target: &'static str) -> Self {
        let families = EMBEDDED.iter().filter(|(arch, _)| *arch == target);
        let archive = Archive::joined(families.map(|(_, bytes)| *bytes));
        Kernels { target, archive: archive.expect("the build has joined them") }
    }

    /// The architecture's name in PTX: `sm_80` or `sm_90a`.
    pub fn target(&self) -> &'static str {
        self.target
    }

    /// The names of the kernels, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.archive.names()
    }

    /// The PTX of one kernel with everything it needs; `None` for an unknown name.
    pub fn kernel(&self, name: &str) -> Option<String> {
        self.archive.kernel(name).expect("the build has compared its digest")
    }

    /// The digest of a kernel, to compare two builds of it; `None` for an unknown name.
    pub fn digest(&self, name: &str) -> Option<&str> {
        self.archive.digest(name)
    }
}

#[cfg(test)]
mod tests {
    use kernels_gpu::{LADDER, TILES, f32_kernels};
    use ptx_syntax::outline::declarations;

    use super::*;

    #[test]
    fn each_is_built_for_what_it_says() {
        for (capability, target) in [((8, 6), "sm_80"), ((9, 0), "sm_90a"), ((12, 0), "sm_80")] {
            let kernels = for_capability(capability);
            assert_eq!(kernels.target(), target);
            let text = kernels.kernel("naive").unwrap();
            assert_eq!(ptx_syntax::outline::target(&text), Some(target));
        }
    }

    #[test]
    fn every_kernel_is_there_and_has_its_digest() {
        for kernels in [&*SM_80, &*SM_90A] {
            for name in kernels.names() {
                let text = kernels.kernel(name).unwrap();
                let digest = ptx_archive::digest(&text, name);
                assert_eq!(digest.as_deref(), kernels.digest(name), "{name}");
            }
            assert_eq!(kernels.kernel("none"), None);
        }
    }

    #[test]
    fn a_kernel_is_cut_out_with_its_own_arrays() {
        for descriptor in f32_kernels() {
            let one = SM_90A.kernel(descriptor.name()).unwrap();
            let declarations: Vec<_> = declarations(&one).collect();
            let entries = declarations.iter().filter(|declaration| declaration.is_entry());
            assert_eq!(entries.count(), 1, "{}", descriptor.name());
            let shared = declarations.iter().filter_map(|one| one.shared_array()).count();
            assert!(shared <= 2, "{}: {shared} shared arrays", descriptor.name());
        }
    }

    /// Layouts, epilogues and batches are run-time choices, which keeps the number of kernels
    /// small.
    #[test]
    fn the_kernels_for_fmas_are_few() {
        const MAX_BYTES: usize = 14_800_000;
        let size = |name: &str| {
            let texts = [&SM_80, &SM_90A].map(|all| all.kernel(name).map_or(0, |one| one.len()));
            texts.into_iter().sum::<usize>()
        };
        let names = LADDER.iter().chain(TILES).flat_map(|descriptor| {
            [Some(descriptor.name()), descriptor.unaligned().map(|other| other.name)]
        });
        let bytes: usize = names.flatten().map(size).sum();
        assert!((1_000_000..=MAX_BYTES).contains(&bytes), "{bytes} bytes");
    }
}
