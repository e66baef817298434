//! The other access, where a fault is about two.

use std::fmt;

use ptx_syntax::source::Place as SourcePlace;

use crate::space::Access;

/// An earlier access of the same memory: how, where, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Earlier {
    /// The kernel, if it was another launch: the one in front of this one.
    pub kernel: Option<String>,
    /// Load, store, atomic or asynchronous copy.
    pub access: Access,
    /// Line of the PTX text, from 1.
    pub line: u32,
    /// That line, as in [`Fault::instruction`](crate::Fault::instruction).
    pub instruction: String,
    /// As in [`Fault::source`](crate::Fault::source).
    pub source: Option<SourcePlace>,
    /// Block index: x, y, z.
    pub block: [u32; 3],
    /// Thread index in the block: x, y, z.
    pub thread: [u32; 3],
}

impl fmt::Display for Earlier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Earlier { kernel, access, line, instruction, source, block, thread } = self;
        let ([bx, by, bz], [tx, ty, tz]) = (block, thread);
        let of = kernel.as_ref().map(|kernel| format!(" of kernel `{kernel}`, launched before,"));
        let of = of.unwrap_or_default();
        write!(
            f,
            "{access}{of} by block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz}) at PTX line {line} (`{instruction}`"
        )?;
        match source {
            Some(source) => write!(f, ", {source})"),
            None => write!(f, ")"),
        }
    }
}
