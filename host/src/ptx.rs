//! The PTX of every kernel, built into the program.

/// For compute capability 8.0, and by JIT for everything newer.
pub const SM_80: &str = include_str!(env!("KERNELS_PTX_SM_80"));

/// For compute capability 9.0 and nothing else: it may use what only Hopper has.
pub const SM_90A: &str = include_str!(env!("KERNELS_PTX_SM_90A"));

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_built_for_what_it_says() {
        assert_eq!(target(for_capability((8, 6))), Some("sm_80"));
        assert_eq!(target(for_capability((9, 0))), Some("sm_90a"));
        assert_eq!(target(for_capability((12, 0))), Some("sm_80"));
        assert_eq!(target("nonsense"), None);
    }
}
