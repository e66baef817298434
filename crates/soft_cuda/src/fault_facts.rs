//! What lists of faults show of each: its name, where in memory it is, and its line.

use std::fmt;

use crate::fault::{AddressSpace, Fault, FaultKind};

impl FaultKind {
    /// Its name, as in the source.
    pub fn name(&self) -> &'static str {
        match self {
            FaultKind::OutOfBounds { .. } => "OutOfBounds",
            FaultKind::UseAfterFree { .. } => "UseAfterFree",
            FaultKind::Misaligned { .. } => "Misaligned",
            FaultKind::ReadOnly { .. } => "ReadOnly",
            FaultKind::LocalAtomic { .. } => "LocalAtomic",
            FaultKind::BarrierDivergence { .. } => "BarrierDivergence",
            FaultKind::Deadlock { .. } => "Deadlock",
            FaultKind::Race { .. } => "Race",
            FaultKind::DataRace { .. } => "DataRace",
            FaultKind::Uninitialised { .. } => "Uninitialised",
            FaultKind::UninitialisedRegister { .. } => "UninitialisedRegister",
            FaultKind::NoVariable { .. } => "NoVariable",
            FaultKind::ReadOnlyCache { .. } => "ReadOnlyCache",
            FaultKind::MissingProxyFence { .. } => "MissingProxyFence",
            FaultKind::MissingWait { .. } => "MissingWait",
            FaultKind::BadMask { .. } => "BadMask",
            FaultKind::WarpgroupDivergence { .. } => "WarpgroupDivergence",
            FaultKind::BadMatrix { .. } => "BadMatrix",
            FaultKind::BadTensorMap { .. } => "BadTensorMap",
            FaultKind::TensorStart { .. } => "TensorStart",
            FaultKind::TensorReduction { .. } => "TensorReduction",
            FaultKind::BulkSize { .. } => "BulkSize",
            FaultKind::BulkToOwnBlock { .. } => "BulkToOwnBlock",
            FaultKind::BadBarrier { .. } => "BadBarrier",
            FaultKind::BudgetExceeded { .. } => "BudgetExceeded",
            FaultKind::Trap => "Trap",
            FaultKind::Panic { .. } => "Panic",
            FaultKind::Assert { .. } => "Assert",
            FaultKind::ExitedBlock { .. } => "ExitedBlock",
            FaultKind::BadRank { .. } => "BadRank",
            FaultKind::BadFree { .. } => "BadFree",
            FaultKind::BadCall { .. } => "BadCall",
            FaultKind::BadBranch { .. } => "BadBranch",
            FaultKind::StackOverflow { .. } => "StackOverflow",
        }
    }

    /// The address that was accessed, if it is about one.
    pub fn address(&self) -> Option<u64> {
        match *self {
            FaultKind::OutOfBounds { address, .. }
            | FaultKind::UseAfterFree { address, .. }
            | FaultKind::Misaligned { address, .. }
            | FaultKind::ReadOnly { address, .. }
            | FaultKind::LocalAtomic { address }
            | FaultKind::Race { address, .. }
            | FaultKind::DataRace { address, .. }
            | FaultKind::Uninitialised { address, .. }
            | FaultKind::NoVariable { address, .. }
            | FaultKind::ReadOnlyCache { address, .. }
            | FaultKind::MissingProxyFence { address, .. }
            | FaultKind::MissingWait { address }
            | FaultKind::BadTensorMap { address, .. }
            | FaultKind::BulkToOwnBlock { address }
            | FaultKind::ExitedBlock { address, .. }
            | FaultKind::BadFree { address }
            | FaultKind::BadCall { address } => Some(address),
            _ => None,
        }
    }

    /// The state space that it is about.
    pub fn space(&self) -> Option<AddressSpace> {
        match *self {
            FaultKind::OutOfBounds { space, .. }
            | FaultKind::Misaligned { space, .. }
            | FaultKind::ReadOnly { space, .. }
            | FaultKind::DataRace { space, .. }
            | FaultKind::Uninitialised { space, .. } => Some(space),
            FaultKind::UseAfterFree { .. } | FaultKind::ReadOnlyCache { .. } => {
                Some(AddressSpace::Global)
            }
            FaultKind::LocalAtomic { .. } => Some(AddressSpace::Local),
            FaultKind::ExitedBlock { .. } | FaultKind::BulkToOwnBlock { .. } => {
                Some(AddressSpace::SharedCluster)
            }
            FaultKind::Race { .. }
            | FaultKind::NoVariable { .. }
            | FaultKind::MissingWait { .. }
            | FaultKind::MissingProxyFence { .. } => Some(AddressSpace::Shared),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { kernel, line, instruction, source, block, thread, kind } = self;
        let ([bx, by, bz], [tx, ty, tz]) = (block, thread);
        write!(f, "kernel `{kernel}`, ")?;
        if let Some(source) = source {
            write!(f, "{source}, ")?;
        }
        write!(
            f,
            "PTX line {line} (`{instruction}`), block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz}): {kind}"
        )
    }
}

impl std::error::Error for Fault {}
