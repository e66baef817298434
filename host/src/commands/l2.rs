//! What `--l2` asks for.

use clap::ValueEnum;
use host::L2;

/// What the L2 cache holds when a product starts.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum L2Arg {
    /// Nothing of its matrices: each launch takes other ones, in turn.
    #[default]
    Cold,
    /// What fits of them: every launch takes the same ones.
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
