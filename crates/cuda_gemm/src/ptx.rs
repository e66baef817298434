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

use ptx_syntax::extract;
pub use ptx_syntax::outline::target;
use sha2::{Digest, Sha256};

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

/// The SHA-256 of what [`extract`] cuts out, without the kernel's name and with virtual registers
/// numbered in the order in which they appear: the assembler makes the same of a kernel that is
/// renamed or renumbered.
pub(crate) fn sha256(text: &str, kernel: &str) -> Option<String> {
    let only = extract(text, kernel)?;
    let nameless = only.replacen(&format!(".entry {kernel}("), ".entry (", 1);
    let nameless = nameless.replace(&format!("{kernel}_param_"), "param_");
    let digest = Sha256::digest(renumbered(&nameless));
    Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A PTX text with the registers of each kind, as in `%rd12`, numbered in order.
fn renumbered(text: &str) -> String {
    let mut numbers = HashMap::new();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut parts = text.split('%');
    let mut renumbered = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let kind = part.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(part.len());
        let (kind, rest) = part.split_at(kind);
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, rest) = rest.split_at(digits);
        renumbered += &format!("%{kind}");
        if !digits.is_empty() {
            let count = counts.entry(kind).or_default();
            let number = *numbers.entry((kind, digits)).or_insert_with(|| {
                *count += 1;
                *count
            });
            renumbered += &number.to_string();
        }
        renumbered += rest;
    }
    renumbered
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
        let digests = |text: &str| ["naive", "tile2d"].map(|kernel| sha256(text, kernel).unwrap());
        let [naive, tile2d] = digests(SM_80);
        let others = SM_80.replace("shared_kernels_gpu_tile2d_", "shared_kernels_gpu_tile2d_1");
        assert_ne!(others, SM_80);
        let [same, other] = digests(&others);
        assert!(naive == same && tile2d != other);
        // More kernels in front: the others get other numbers.
        assert_eq!(digests(&SM_80.replace("$L__BB", "$L__BB1")), [naive, tile2d.clone()]);
        for (from, to) in [(".version 7", ".version 8"), ("[tile2d_param_3]", "[tile2d_param_8]")] {
            let changed = SM_80.replace(from, to);
            assert_ne!(digests(&changed)[1], tile2d, "{from}");
        }
        let renamed = SM_80.replace("tile2d(", "flat(").replace("tile2d_param_", "flat_param_");
        assert_eq!(sha256(&renamed, "flat"), Some(tile2d));
        assert_eq!(renumbered("%r7, %rd9, %r3, %r7; %tid.x"), "%r1, %rd1, %r2, %r1; %tid.x");
        assert_eq!(sha256(SM_80, "none"), None);
    }
}
