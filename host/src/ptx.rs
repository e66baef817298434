//! The PTX of every kernel, built into the program.

use std::collections::{HashMap, HashSet};

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

/// The architecture that PTX was built for, as in `sm_80`.
pub fn target(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix(".target ")).map(str::trim)
}

/// The part of a PTX text that this kernel needs: what the head says, the shared arrays that are
/// its own, and its entry point. A driver compiles it in a fraction of the time that all of them
/// take. It changes only where the kernel does, whatever becomes of the others: labels have the
/// number 0 in place of the entry point's.
pub(crate) fn only(text: &str, kernel: &str) -> Option<String> {
    const ENTRY: &str = ".visible .entry ";
    const LABEL: &str = "$L__BB";
    let (head, _) = text.split_once(ENTRY)?;
    let start = text.find(&format!("{ENTRY}{kernel}("))?;
    // Up to where the braces close that the body opens.
    let mut depth = 0;
    let (end, _) = text[start..].match_indices(['{', '}']).find(|(_, brace)| {
        depth += if *brace == "{" { 1 } else { -1 };
        depth == 0
    })?;
    let entry = &text[start..=start + end];
    let words: HashSet<&str> = entry.split(|c| !is_of_identifier(c)).collect();
    let is_needed = |line: &&str| match array(line) {
        Some(name) => words.contains(name),
        None => !line.is_empty() && !line.trim_start().starts_with("//"),
    };
    let head: String = head.lines().filter(is_needed).flat_map(|line| [line, "\n"]).collect();
    let number = entry.split_once(LABEL).and_then(|(_, label)| label.split('_').next());
    let entry = match number {
        Some(number) => entry.replace(&format!("{LABEL}{number}_"), &format!("{LABEL}0_")),
        None => entry.to_owned(),
    };
    Some(format!("{head}{entry}\n"))
}

/// The shared array that a line of the head declares, as in `.shared .align 128 .b8 NAME[16];`.
fn array(line: &str) -> Option<&str> {
    let (declaration, _) = line.split_once('[')?;
    declaration.contains(".shared ").then(|| declaration.rsplit(' ').next())?
}

/// Whether an identifier of PTX may have this in it.
fn is_of_identifier(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%')
}

/// The SHA-256 of what [`only`] cuts out, without the kernel's name and with virtual registers
/// numbered in the order in which they appear: the assembler makes the same of a kernel that is
/// renamed or renumbered.
pub(crate) fn sha256(text: &str, kernel: &str) -> Option<String> {
    let only = only(text, kernel)?;
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
    use kernels_gpu::{LADDER, TILES};

    use super::*;

    #[test]
    fn each_is_built_for_what_it_says() {
        assert_eq!(target(for_capability((8, 6))), Some("sm_80"));
        assert_eq!(target(for_capability((9, 0))), Some("sm_90a"));
        assert_eq!(target(for_capability((12, 0))), Some("sm_80"));
        assert_eq!(target("nonsense"), None);
    }

    #[test]
    fn a_kernel_is_cut_out_whole() {
        let text = "//\n// By a compiler\n\n.version 7.0\n.shared .b8 xa[4];\n.shared .b8 xb[4];\n\
                    \t// .globl ab\n.visible .entry ab(\n)\n{\nst {%r1, %r2}, xb;\n\
                    \t{ bra $L__BB17_4;\n}\nret;\n}\n.visible .entry a(\n)\n{\nret;\n}\n";
        let head = ".version 7.0\n.shared .b8 xb[4];\n";
        let ab = ".visible .entry ab(\n)\n{\nst {%r1, %r2}, xb;\n\t{ bra $L__BB0_4;\n}\nret;\n}\n";
        assert_eq!(only(text, "ab").unwrap(), format!("{head}{ab}"));
        let a = ".visible .entry a(\n)\n{\nret;\n}\n";
        assert_eq!(only(text, "a").unwrap(), format!(".version 7.0\n{a}"));
        assert_eq!(only(text, "b"), None);
        let longer = ".shared .b8 x_1_2[4];\n.shared .b8 x_1_20[4];\n\
                      .visible .entry a(\n)\n{\nst [x_1_20+4], %r1;\n}\n";
        assert!(!only(longer, "a").unwrap().contains("x_1_2["), "another kernel's");
        for spec in LADDER.iter().chain(TILES) {
            let one = only(SM_90A, spec.name()).unwrap();
            assert_eq!(one.matches(".entry").count(), 1, "{}", spec.name());
            let shared = one.lines().filter(|line| array(line).is_some()).count();
            assert!(shared <= 2, "{}: {shared} shared arrays", spec.name());
        }
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
