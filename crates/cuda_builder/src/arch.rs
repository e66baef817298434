//! The architectures that PTX can be built for.

use std::fmt;
use std::str::FromStr;

macro_rules! architectures {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// An NVIDIA architecture. PTX for one runs on it and on every later one, except
        /// that an `a` stands for this architecture alone.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum CudaArch {
            $($(#[$doc])* $variant,)*
        }

        impl CudaArch {
            /// Every architecture, oldest first.
            pub const ALL: &[CudaArch] = &[$(CudaArch::$variant,)*];

            /// The name that rustc, LLVM and ptxas use, such as `sm_80`.
            pub const fn name(self) -> &'static str {
                match self { $(CudaArch::$variant => $name,)* }
            }
        }
    };
}

architectures! {
    /// Volta.
    Sm70 = "sm_70",
    /// Turing.
    Sm75 = "sm_75",
    /// Ampere, A100.
    Sm80 = "sm_80",
    /// Ampere, consumer.
    Sm86 = "sm_86",
    /// Ampere, Jetson.
    Sm87 = "sm_87",
    /// Ada.
    Sm89 = "sm_89",
    /// Hopper.
    Sm90 = "sm_90",
    /// Hopper with its own instructions (`wgmma`, `setmaxnreg`).
    Sm90a = "sm_90a",
    /// Blackwell, data centre.
    Sm100 = "sm_100",
    /// Blackwell, data centre, with its own instructions.
    Sm100a = "sm_100a",
    /// Blackwell, consumer.
    Sm120 = "sm_120",
    /// Blackwell, consumer, with its own instructions.
    Sm120a = "sm_120a",
}

/// The compute capabilities that Rust-CUDA knows, and those of a family.
const CAPABILITIES: [u32; 21] =
    [35, 37, 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 120, 121];
const FIRST_FAMILY: u32 = 100;

impl CudaArch {
    /// The values of `cfg(target_feature)` that Rust-CUDA gives to code for this architecture: its
    /// compute capability and all earlier ones, as `compute_80`; for `sm_100a` also `compute_100f`
    /// and `compute_100a`.
    pub fn compute_features(self) -> impl Iterator<Item = String> {
        let number = self.name().trim_start_matches("sm_");
        let (number, own) = match number.strip_suffix('a') {
            Some(base) => (base, Some(number)),
            None => (number, None),
        };
        let number = number.parse().unwrap_or(0);
        let family = (own.is_some() && number >= FIRST_FAMILY).then(|| format!("{number}f"));
        let earlier = CAPABILITIES.into_iter().filter(move |one| *one <= number);
        let names = earlier.map(|one| one.to_string()).chain(family).chain(own.map(str::to_owned));
        names.map(|name| format!("compute_{name}"))
    }

    /// Flags with which rustc takes these values for `cfg(target_feature)`.
    pub(crate) fn cfg_flags(self) -> impl Iterator<Item = String> {
        let known: Vec<String> =
            CudaArch::known_compute_features().map(|name| format!("{name:?}")).collect();
        // rustc would rather give such values itself, and knows `sm_80` alone.
        let allow = "-Aexplicit_builtin_cfgs_in_flags".to_owned();
        let check = format!("--check-cfg=cfg(target_feature, values({}))", known.join(","));
        let given = self.compute_features().map(|name| format!("--cfg=target_feature={name:?}"));
        [allow, check].into_iter().chain(given)
    }

    /// All values that [`compute_features`](Self::compute_features) gives for any architecture of
    /// Rust-CUDA's.
    fn known_compute_features() -> impl Iterator<Item = String> {
        CAPABILITIES.into_iter().flat_map(|number| {
            let suffixes: &[&str] = match number {
                FIRST_FAMILY.. => &["", "f", "a"],
                90 => &["", "a"],
                _ => &[""],
            };
            suffixes.iter().map(move |suffix| format!("compute_{number}{suffix}"))
        })
    }
}

impl fmt::Display for CudaArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CudaArch {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        CudaArch::ALL.iter().copied().find(|arch| arch.name() == name).ok_or_else(|| {
            let names: Vec<_> = CudaArch::ALL.iter().map(|arch| arch.name()).collect();
            format!("unknown architecture `{name}`; known are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_architecture_has_the_features_of_those_before_it() {
        let features = |arch: CudaArch| arch.compute_features().collect::<Vec<_>>().join(" ");
        let earlier = "compute_35 compute_37 compute_50 compute_52 compute_53 compute_60 compute_61 \
                       compute_62 compute_70";
        assert_eq!(features(CudaArch::Sm70), earlier);
        assert!(features(CudaArch::Sm90a).ends_with(" compute_89 compute_90 compute_90a"));
        let last = " compute_90 compute_100 compute_100f compute_100a";
        assert!(features(CudaArch::Sm100a).ends_with(last));
        let known: Vec<String> = CudaArch::known_compute_features().collect();
        for arch in CudaArch::ALL {
            assert!(arch.compute_features().all(|feature| known.contains(&feature)), "{arch}");
        }
    }
}
