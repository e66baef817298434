//! The other access, where a fault is about two.

use std::fmt;

use ptx_syntax::source::Place as SourcePlace;

use crate::space::Access;

/// An earlier access of the same memory: how, where, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Earlier {
    /// The kernel, if it was another launch: the one in front of this one, or one in another stream.
    pub kernel: Option<String>,
    /// Whether it was in another stream, and nothing orders the two.
    pub is_beside: bool,
    /// Load, store, atomic or asynchronous copy.
    pub access: Access,
    /// Line of the PTX text, from 1; 0 for a copy or a fill.
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

impl Earlier {
    /// An access by a copy or a fill in another stream.
    pub(crate) fn of_copy(access: Access) -> Earlier {
        Earlier {
            kernel: None,
            is_beside: true,
            access,
            line: 0,
            instruction: String::new(),
            source: None,
            block: [0; 3],
            thread: [0; 3],
        }
    }

    /// What would order the two, if they are not of one launch.
    pub(crate) fn advice(&self) -> &'static str {
        match (self.is_beside, &self.kernel) {
            (true, _) => "; let this stream wait for an event behind that",
            (false, Some(_)) => "; let a `griddepcontrol.wait` come before this access",
            (false, None) => "",
        }
    }
}

impl fmt::Display for Earlier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Earlier { kernel, is_beside, access, line, instruction, source, block, thread } = self;
        if *is_beside && kernel.is_none() {
            return write!(f, "{access} of a copy, fill, allocation or free in another stream");
        }
        let ([bx, by, bz], [tx, ty, tz]) = (block, thread);
        let stream = if *is_beside { " in another stream" } else { "" };
        let of = kernel.as_ref();
        let of = of.map(|kernel| format!(" of kernel `{kernel}`, launched before{stream},"));
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
