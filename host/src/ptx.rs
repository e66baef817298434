//! The PTX of every kernel, built into the program.

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

/// The part of a PTX text that this kernel needs: the head, with the shared arrays, and its
/// own entry point. A driver compiles it in a fraction of the time that all of them take.
pub(crate) fn only(text: &str, kernel: &str) -> Option<String> {
    const ENTRY: &str = ".visible .entry ";
    let (head, _) = text.split_once(ENTRY)?;
    let start = text.find(&format!("{ENTRY}{kernel}("))?;
    // Up to where the braces close that the body opens.
    let mut depth = 0;
    let (end, _) = text[start..].match_indices(['{', '}']).find(|(_, brace)| {
        depth += if *brace == "{" { 1 } else { -1 };
        depth == 0
    })?;
    Some(format!("{head}{}\n", &text[start..=start + end]))
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
        let text = ".version 7.0\n.shared .b8 x[4];\n.visible .entry ab(\n)\n{\nst {%r1, %r2};\n\
                    \t{ bra X;\n}\nret;\n}\n.visible .entry a(\n)\n{\nret;\n}\n";
        let head = ".version 7.0\n.shared .b8 x[4];\n";
        let ab = ".visible .entry ab(\n)\n{\nst {%r1, %r2};\n\t{ bra X;\n}\nret;\n}\n";
        assert_eq!(only(text, "ab").unwrap(), format!("{head}{ab}"));
        let a = ".visible .entry a(\n)\n{\nret;\n}\n";
        assert_eq!(only(text, "a").unwrap(), format!("{head}{a}"));
        assert_eq!(only(text, "b"), None);
        for spec in LADDER.iter().chain(TILES) {
            let one = only(SM_90A, spec.name()).unwrap();
            assert_eq!(one.matches(".entry").count(), 1, "{}", spec.name());
        }
    }
}
