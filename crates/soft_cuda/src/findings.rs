//! What a device has found wrong, as a list: for tests, and for reports as text or, with the
//! feature `json`, as JSON.

use std::fmt;

use crate::error::MemoryCall;
use crate::fault::Fault;

#[cfg(feature = "json")]
mod json;

/// Something that a device has found wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// In a kernel.
    Kernel {
        /// What it did, the first time.
        fault: Box<Fault>,
        /// How often it did that at this place.
        count: u64,
        /// Whether that ended the launch.
        ended: bool,
    },
    /// An allocation that was not freed before its context ended.
    Leak {
        /// Its address.
        address: u64,
        /// Its bytes.
        bytes: u64,
        /// The call that allocated it.
        allocated: MemoryCall,
    },
}

impl Finding {
    /// What is found, in a word: the name of the [`FaultKind`](crate::FaultKind), or `Leak`.
    pub fn name(&self) -> &'static str {
        match self {
            Finding::Kernel { fault, .. } => fault.kind.name(),
            Finding::Leak { .. } => "Leak",
        }
    }

    /// Whether it ended a launch.
    pub fn ended(&self) -> bool {
        matches!(self, Finding::Kernel { ended: true, .. })
    }

    /// What the kernel did, if it is in one.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Finding::Kernel { fault, .. } => Some(fault),
            Finding::Leak { .. } => None,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Kernel { fault, count: 1, .. } => write!(f, "{fault}"),
            Finding::Kernel { fault, count, .. } => write!(f, "{fault} ({count} times here)"),
            Finding::Leak { address, bytes, allocated } => write!(
                f,
                "the {bytes}-byte allocation at {address:#x}, made by {allocated}, was not freed before its context ended"
            ),
        }
    }
}

/// What a device has found wrong, in the order in which it was found: each place of a kernel once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    all: Vec<Finding>,
}

impl Findings {
    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Finding> {
        self.all.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds what a kernel did, unless it is there: then it only counts.
    pub(crate) fn add(&mut self, new: Fault, times: u64, ends: bool) {
        for finding in &mut self.all {
            if let Finding::Kernel { fault, count, ended } = finding
                && place(fault) == place(&new)
            {
                *count += times;
                *ended |= ends;
                return;
            }
        }
        self.all.push(Finding::Kernel { fault: Box::new(new), count: times, ended: ends });
    }

    pub(crate) fn add_leak(&mut self, address: u64, bytes: u64, allocated: MemoryCall) {
        self.all.push(Finding::Leak { address, bytes, allocated });
    }
}

impl<'a> IntoIterator for &'a Findings {
    type Item = &'a Finding;
    type IntoIter = std::slice::Iter<'a, Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all.iter().try_for_each(|finding| writeln!(f, "{finding}"))
    }
}

/// What two findings have in common that are one.
fn place(fault: &Fault) -> (&str, u32, &str, Option<u32>) {
    let earlier = fault.kind.earlier().map(|earlier| earlier.line);
    (&fault.kernel, fault.line, fault.kind.name(), earlier)
}
