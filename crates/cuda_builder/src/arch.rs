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
