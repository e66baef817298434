//! Why a module is refused, and what can go wrong with memory, said in one sentence each.

use std::fmt;

use ptx_syntax::source::{self, Place as SourcePlace};

use crate::earlier::Earlier;
use crate::space::Access;

/// The most characters of a PTX text that a message quotes.
const MAX_QUOTED: usize = 120;

/// PTX text as messages quote it: it may be as long as the whole module.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED) {
        None => text.to_owned(),
        Some(_) => text.chars().take(MAX_QUOTED - 1).chain(['…']).collect(),
    }
}

/// Why a module gives no kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// There is none of this name.
    #[error("the module has no kernel named {}", quoted(.name))]
    Unknown {
        /// The name.
        name: String,
    },
    /// There is something in the kernel, or in a function that it may call, that the device does
    /// not know.
    #[error("{error}{}", .place.as_ref().map(|place| format!(" (from {place})")).unwrap_or_default())]
    Refused {
        /// What it is.
        error: LoadError,
        /// The line of the source that it comes from, if the PTX says so (`.loc`).
        place: Option<SourcePlace>,
    },
}

/// Why a PTX module or a kernel was refused. Every variant names a line of the PTX text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The text is not PTX.
    #[error("PTX line {line}: cannot read `{}`: {help}", quoted(.text))]
    Syntax {
        /// Line, from 1.
        line: u32,
        /// The offending text.
        text: String,
        /// What to do.
        help: String,
    },
    /// An instruction, or one of its modifiers, that this device does not have.
    #[error("PTX line {line}: the software device has no `{}`: {help}", quoted(.opcode))]
    Unsupported {
        /// Line, from 1.
        line: u32,
        /// The whole opcode, modifiers included.
        opcode: String,
        /// What to do, or which part is unknown.
        help: String,
    },
    /// A register, label, variable or function that is not declared.
    #[error(
        "PTX line {line}: `{}` is not declared; declare it before this line or fix the name",
        quoted(.name)
    )]
    Undeclared {
        /// Line, from 1.
        line: u32,
        /// The name.
        name: String,
    },
    /// Operands that do not fit the instruction.
    #[error("PTX line {line}: `{}` cannot take these operands: {help}", quoted(.opcode))]
    Operands {
        /// Line, from 1.
        line: u32,
        /// The whole opcode, modifiers included.
        opcode: String,
        /// What does not fit.
        help: String,
    },
    /// The same name declared twice.
    #[error(
        "PTX line {line}: `{}` is declared a second time; rename or remove one of the two",
        quoted(.name)
    )]
    Redeclared {
        /// Line, from 1.
        line: u32,
        /// The name.
        name: String,
    },
    /// A module-scope variable for which there is no device memory.
    #[error("PTX line {line}: no memory for variable `{}`: {source}", quoted(.name))]
    Memory {
        /// Line, from 1.
        line: u32,
        /// The variable.
        name: String,
        /// Why.
        source: Box<MemoryError>,
    },
}

impl LoadError {
    /// The line of the PTX, from 1.
    pub fn line(&self) -> u32 {
        match *self {
            LoadError::Syntax { line, .. }
            | LoadError::Unsupported { line, .. }
            | LoadError::Undeclared { line, .. }
            | LoadError::Operands { line, .. }
            | LoadError::Redeclared { line, .. }
            | LoadError::Memory { line, .. } => line,
        }
    }

    /// The line of the source that it comes from, if the PTX says so (`.loc`).
    pub fn place(&self, ptx: &str) -> Option<SourcePlace> {
        let lines: Vec<&str> = ptx.lines().collect();
        source::place(&lines, self.line())
    }
}

impl From<ptx_syntax::SyntaxError> for LoadError {
    fn from(ptx_syntax::SyntaxError { line, text, help }: ptx_syntax::SyntaxError) -> Self {
        LoadError::Syntax { line, text, help }
    }
}

/// A failed allocation, or a host access that does not fit one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Zero bytes were asked for.
    #[error("an allocation of 0 bytes was asked for; ask for at least 1")]
    ZeroSize,
    /// More was asked for than is free.
    #[error(
        "{requested} bytes of device memory were asked for but only {free} are free; free some or use a smaller problem"
    )]
    OutOfMemory {
        /// Bytes asked for.
        requested: u64,
        /// Bytes free.
        free: u64,
    },
    /// The host has no memory for what the device has free.
    #[error(
        "the host gave no memory for {requested} bytes of device memory, whatever the device has \
         free; raise the limit on this process (ulimit -v) or use a smaller problem"
    )]
    HostMemory {
        /// Bytes asked for.
        requested: u64,
    },
    /// The allocation was freed already.
    #[error("{address:#x} was freed already, by {freed}; free an allocation once")]
    FreedTwice {
        /// The address.
        address: u64,
        /// The call that freed it.
        freed: MemoryCall,
    },
    /// The address is not the start of a live allocation.
    #[error(
        "{address:#x} is not the start of a live allocation; pass an address that `alloc` returned and that was not freed yet"
    )]
    NotAnAllocation {
        /// The address.
        address: u64,
    },
    /// The range is not inside one live allocation.
    #[error("the {bytes} bytes at {address:#x} are not device memory: {place}")]
    OutOfBounds {
        /// First byte.
        address: u64,
        /// Length of the range.
        bytes: u64,
        /// Where the range lies.
        place: Place,
    },
    /// A copy, fill, allocation or free in a stream runs beside work of another stream that accesses
    /// the same bytes.
    #[error(
        "race on global memory at {address:#x}: the {access} of this copy, fill, allocation or free and the {earlier} are not ordered{}",
        earlier.advice()
    )]
    Race {
        /// The first of the bytes, up to four, in which both meet.
        address: u64,
        /// Load or store.
        access: Access,
        /// The access by the other stream.
        earlier: Box<Earlier>,
    },
    /// The address is not a multiple of the element size.
    #[error("{address:#x} is not a multiple of {align}; align the address")]
    Misaligned {
        /// The address.
        address: u64,
        /// Bytes.
        align: u64,
    },
}

/// A call that allocated or freed device memory: which it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryCall {
    /// The function: `alloc`, `cuMemFree_v2`.
    pub name: &'static str,
    /// Its place among the device's calls that allocate or free, from 1.
    pub ordinal: u64,
    /// How many launches the device had begun before.
    pub launches: u64,
}

impl fmt::Display for MemoryCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryCall { name, ordinal, launches } = self;
        write!(f, "`{name}` (memory call {ordinal}, after ")?;
        match launches {
            1 => write!(f, "1 launch)"),
            _ => write!(f, "{launches} launches)"),
        }
    }
}

/// Where a bad address lies, seen from the nearest allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// After the end of a live allocation, or starting inside it and reaching over its end.
    After {
        /// Base address of the allocation.
        base: u64,
        /// Bytes of the allocation.
        size: u64,
        /// First byte of the access, counted from the end of the allocation (negative inside it).
        past_end: i64,
    },
    /// Before the start of a live allocation.
    Before {
        /// Base address of the allocation.
        base: u64,
        /// Bytes of the allocation.
        size: u64,
        /// How far before the base the access starts.
        distance: u64,
    },
    /// Inside an allocation that was freed.
    Freed {
        /// Base address the allocation had.
        base: u64,
        /// Bytes it had.
        size: u64,
        /// The call that allocated it.
        allocated: MemoryCall,
        /// The call that freed it.
        freed: MemoryCall,
    },
    /// Near no allocation, as a null or a host pointer is.
    Nowhere,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Place::After { base, size, past_end } if past_end < 0 => write!(
                f,
                "the access starts {} bytes before the end of the {size}-byte allocation at {base:#x} and runs over it",
                past_end.unsigned_abs()
            ),
            Place::After { base, size, past_end } => {
                write!(
                    f,
                    "{past_end} bytes past the end of the {size}-byte allocation at {base:#x}"
                )
            }
            Place::Before { base, size, distance } => {
                write!(f, "{distance} bytes before the {size}-byte allocation at {base:#x}")
            }
            Place::Freed { base, size, allocated, freed } => write!(
                f,
                "inside the {size}-byte allocation at {base:#x}, which was allocated by {allocated} and freed by {freed}"
            ),
            Place::Nowhere => write!(f, "no allocation is near"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_token_is_cut() {
        let (line, help) = (3, "fix it".to_owned());
        let message = |text: &str| {
            let text = text.to_owned();
            LoadError::Syntax { line, text, help: help.clone() }.to_string()
        };
        let whole = "é".repeat(MAX_QUOTED);
        assert_eq!(message(&whole), format!("PTX line 3: cannot read `{whole}`: fix it"));
        let cut = "é".repeat(MAX_QUOTED - 1) + "…";
        assert_eq!(message(&(whole + "é")), format!("PTX line 3: cannot read `{cut}`: fix it"));
        let name = "x".repeat(1 << 20);
        for error in [
            LoadError::Undeclared { line, name: name.clone() },
            LoadError::Redeclared { line, name: name.clone() },
            LoadError::Unsupported { line, opcode: name.clone(), help: help.clone() },
            LoadError::Operands { line, opcode: name.clone(), help },
            LoadError::Memory { line, name, source: MemoryError::ZeroSize.into() },
        ] {
            let message = error.to_string();
            assert!(message.len() < 300 && message.contains("x…`"), "{message}");
        }
    }
}
