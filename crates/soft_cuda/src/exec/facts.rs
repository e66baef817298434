//! What checks have to know of a kernel: its shared variables, and how small its accesses are.

/// A variable in shared memory.
#[derive(Debug, Clone)]
pub(crate) struct SharedVariable {
    pub name: String,
    /// Offset into shared memory.
    pub at: u32,
    /// All that there may be, if it is dynamic.
    pub bytes: u32,
}

/// Logarithms of the bytes that checks tell apart: no access is smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granule {
    pub shared: u32,
    /// Of writes to device memory, and of loads.
    pub writes: u32,
    pub loads: u32,
    /// Whether an atomic may be of some bytes of its word. If none is, a load overlaps with a
    /// write where their words are the same.
    pub partial: bool,
}

impl Granule {
    pub(crate) const LARGEST: Granule = Granule { shared: 2, writes: 2, loads: 2, partial: false };

    pub(crate) fn min(self, other: Granule) -> Granule {
        Granule {
            shared: self.shared.min(other.shared),
            writes: self.writes.min(other.writes),
            loads: self.loads.min(other.loads),
            partial: self.partial | other.partial,
        }
    }

    pub(crate) fn global(self) -> u32 {
        if self.partial { self.writes.min(self.loads) } else { self.writes }
    }

    /// Whether some of `bytes` bytes are told from the others.
    pub(crate) fn divides(self, bytes: u32) -> bool {
        1 << self.shared.min(self.global()) < bytes
    }
}

/// What checks have to know of a kernel.
#[derive(Debug)]
pub(crate) struct Facts {
    /// Variables in shared memory, by their place.
    pub variables: Vec<SharedVariable>,
    pub granule: Granule,
    /// Names of the registers that are watched, see [`super::check_register`].
    pub watched: Vec<String>,
    /// Whether there are asynchronous copies to shared memory.
    pub copies: bool,
}

impl Facts {
    /// Those of a kernel that is not checked.
    pub(crate) fn none() -> Facts {
        let granule = Granule::LARGEST;
        let (variables, watched) = (Vec::new(), Vec::new());
        Facts { variables, granule, watched, copies: false }
    }

    /// The bytes between the variables of shared memory: from, to.
    pub(crate) fn gaps(&self) -> Vec<(u32, u32)> {
        let ends = self.variables.iter().map(|variable| variable.at + variable.bytes);
        let starts = self.variables.iter().skip(1).map(|variable| variable.at);
        ends.zip(starts).filter(|(from, to)| from < to).collect()
    }

    /// Where `offset` into shared memory lies, in words.
    pub(crate) fn name_shared(&self, offset: u32) -> String {
        let after = self.variables.partition_point(|variable| variable.at <= offset);
        match after.checked_sub(1).map(|i| &self.variables[i]) {
            Some(SharedVariable { name, at, bytes }) if offset - at < *bytes => {
                format!("byte {} of `{name}`", offset - at)
            }
            Some(SharedVariable { name, at, bytes }) => {
                format!("{} bytes past the end of `{name}`", offset - at - bytes)
            }
            None => format!("byte {offset} of dynamic shared memory"),
        }
    }
}
