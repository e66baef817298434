//! The option `--l2`.

use clap::ValueEnum;
use host::L2;

/// The L2 cache when a product starts.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum L2Arg {
    /// Without its matrices: launches take turns on several sets.
    #[default]
    Cold,
    /// With what fits of them: every launch uses one set.
    Warm,
}

impl L2Arg {
    pub fn policy(self) -> L2 {
        match self {
            Self::Cold => L2::Cold,
            Self::Warm => L2::Warm,
        }
    }
}
