//! The PTX of every kernel, built into the program.
//!
//! ```
//! use cuda_gemm::ptx;
//!
//! assert_eq!(ptx::target(ptx::for_capability((8, 6))), Some("sm_80"));
//! assert_eq!(ptx::target(ptx::for_capability((9, 0))), Some("sm_90a"));
//! assert!(ptx::SM_90A.contains(".entry persistent("));
//! ```

use std::collections::HashMap;
use std::sync::LazyLock;

pub(crate) use ptx_syntax::digest;
use ptx_syntax::extract;
pub use ptx_syntax::outline::target;

/// For compute capability 8.0, and by JIT for everything newer.
pub static SM_80: &str = include_str!(env!("KERNELS_PTX_SM_80"));

/// For compute capability 9.0 and nothing else: it may use what only Hopper has.
pub static SM_90A: &str = include_str!(env!("KERNELS_PTX_SM_90A"));

/// The PTX for a device of this compute capability (major, minor), which must be
/// at least 8.0.
pub const fn for_capability(capability: (u32, u32)) -> &'static str {
    match capability {
        (9, 0) => SM_90A,
        _ => SM_80,
    }
}

/// As [`extract`], from the PTX for a device of this compute capability: a search of all of it takes longer than
/// many a module takes to load.
pub(crate) fn kernel(capability: (u32, u32), name: &str) -> Option<String> {
    static OF_SM_80: LazyLock<Index> = LazyLock::new(|| Index::of(SM_80));
    static OF_SM_90A: LazyLock<Index> = LazyLock::new(|| Index::of(SM_90A));
    let index =
        if std::ptr::eq(for_capability(capability), SM_90A) { &OF_SM_90A } else { &OF_SM_80 };
    index.extract(name)
}

/// Where the kernels of a text are.
struct Index {
    /// What is in front of them all.
    head: &'static str,
    /// From the beginning of a kernel to that of the next, by its name.
    kernels: HashMap<&'static str, &'static str>,
}

impl Index {
    fn of(text: &'static str) -> Index {
        const BEGINS: &str = "\n.visible .entry ";
        let starts: Vec<usize> = text.match_indices(BEGINS).map(|(at, _)| at + 1).collect();
        let ends = starts.iter().skip(1).copied().chain([text.len()]);
        let kernels = starts.iter().zip(ends).filter_map(|(&start, end)| {
            let kernel = &text[start..end];
            let (name, _) = kernel[BEGINS.len() - 1..].split_once('(')?;
            Some((name, kernel))
        });
        Index {
            head: &text[..starts.first().copied().unwrap_or(text.len())],
            kernels: kernels.collect(),
        }
    }

    fn extract(&self, name: &str) -> Option<String> {
        extract(&[self.head, self.kernels.get(name)?].concat(), name)
    }
}

#[cfg(test)]
mod tests {
    use kernels_gpu::{LADDER, TILES, f32_kernels};
    use ptx_syntax::outline::declarations;

    use super::*;

    #[test]
    fn each_is_built_for_what_it_says() {
        assert_eq!(target(for_capability((8, 6))), Some("sm_80"));
        assert_eq!(target(for_capability((9, 0))), Some("sm_90a"));
        assert_eq!(target(for_capability((12, 0))), Some("sm_80"));
        assert_eq!(target("nonsense"), None);
    }

    #[test]
    fn the_index_has_what_a_search_finds() {
        for (capability, text) in [((8, 0), SM_80), ((9, 0), SM_90A)] {
            let named = text.matches(".visible .entry ").count();
            let index = Index::of(text);
            assert_eq!(index.kernels.len(), named);
            // What kernels share is in front of all of them.
            for kernel in index.kernels.values() {
                let lines = || kernel.lines().skip(1);
                assert!(
                    !lines().any(|line| line.starts_with(".func") || line.starts_with(".shared"))
                );
            }
            for name in ["naive", "tile2d", "mma_bf16", "none"] {
                assert_eq!(kernel(capability, name), extract(text, name), "{name}");
            }
        }
    }

    #[test]
    fn a_kernel_is_cut_out_with_its_own_arrays() {
        for descriptor in f32_kernels() {
            let one = extract(SM_90A, descriptor.name()).unwrap();
            let declarations: Vec<_> = declarations(&one).collect();
            let entries = declarations.iter().filter(|declaration| declaration.is_entry());
            assert_eq!(entries.count(), 1, "{}", descriptor.name());
            let shared = declarations.iter().filter_map(|one| one.shared_array()).count();
            assert!(shared <= 2, "{}: {shared} shared arrays", descriptor.name());
        }
    }

    /// Layouts, epilogues and batches are chosen at run time, so that there are few kernels.
    #[test]
    fn the_kernels_for_fmas_are_few() {
        const MAX_BYTES: usize = 14_800_000;
        let size = |name| {
            let texts = [SM_80, SM_90A].map(|text| extract(text, name).map_or(0, |one| one.len()));
            texts.into_iter().sum::<usize>()
        };
        let names = LADDER.iter().chain(TILES).flat_map(|descriptor| {
            [Some(descriptor.name()), descriptor.unaligned().map(|other| other.name)]
        });
        let bytes: usize = names.flatten().map(size).sum();
        assert!((1_000_000..=MAX_BYTES).contains(&bytes), "{bytes} bytes");
    }

    /// Another kernel, and its arrays, may change as they like.
    #[test]
    fn a_digest_is_of_one_kernel() {
        let digests = |text: &str| ["naive", "tile2d"].map(|kernel| digest(text, kernel).unwrap());
        let [naive, tile2d] = digests(SM_80);
        let longer = SM_80.replace("tile2d_shared_0[", "tile2d_shared_0[1");
        assert_ne!(longer, SM_80);
        let [same, other] = digests(&longer);
        assert!(naive == same && tile2d != other);
        let others = SM_80.replace("tile2d_shared_", "shared_tile2d_");
        assert_eq!(digests(&others), [naive, tile2d]);
    }
}
