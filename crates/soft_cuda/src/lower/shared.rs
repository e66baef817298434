//! Where the shared variables of a kernel lie.

use std::collections::HashMap;

use super::context::Result;
use super::index::Reach;
use crate::checks::Checks;
use crate::error::LoadError;
use crate::exec::facts::SharedVariable;
use crate::exec::machine::{RESERVED_BYTES, SHARED_BASE};
use crate::globals::Declaration;
use crate::ptx::ast::Variable;

/// The shared variables that a kernel uses: static ones first, then the dynamic part.
pub(super) struct Shared<'m> {
    /// Those of the module, and their addresses.
    pub outer: Vec<(&'m Variable, u64)>,
    /// Addresses of those that functions declare.
    pub inner: HashMap<Declaration<'m>, u64>,
    /// Bytes of the static ones.
    pub bytes: u32,
    /// Bytes in front of them and between them, which the kernel does not ask for.
    pub padding: u32,
    /// Where the dynamic part begins, if there is one, but for the padding.
    pub dynamic: Option<u32>,
    /// All of them, by their place.
    pub variables: Vec<SharedVariable>,
}

/// Bytes of it that the system's code, such as cooperative groups, may use: as an H200 says.
pub(super) const RESERVED_USABLE: u32 = 288;

/// Bytes between shared variables where accesses of them are checked.
const ROOM: u64 = 256;

impl<'m> Shared<'m> {
    pub(super) fn place(reach: &Reach<'m>, checks: Checks) -> Result<Shared<'m>> {
        let outer = reach.shared.iter().map(|&variable| (variable, None));
        let inner = reach.inner_shared().map(|(declared, variable)| (variable, Some(declared)));
        let all: Vec<(&'m Variable, Option<Declaration<'m>>)> = outer.chain(inner).collect();
        let mut shared = Shared {
            outer: Vec::new(),
            inner: HashMap::new(),
            bytes: 0,
            padding: 0,
            dynamic: None,
            variables: Vec::new(),
        };
        // What the kernel needs, and what it gets: with checks, there is room between variables.
        let (mut bytes, mut padded) = (0u64, 0u64);
        if reach.reserved_shared {
            let variable = SharedVariable {
                name: "the memory reserved for the system".to_owned(),
                at: 0,
                bytes: RESERVED_USABLE,
            };
            shared.variables.push(variable);
            padded = RESERVED_BYTES.into();
        }
        let room = if checks.memory { ROOM } else { 0 };
        for &(variable, declared) in all.iter().filter(|(v, _)| v.count.is_some()) {
            let at = padded.next_multiple_of(variable.align);
            let size = variable.element.saturating_mul(variable.count.unwrap_or(0));
            bytes = bytes.next_multiple_of(variable.align).saturating_add(size);
            padded = at.saturating_add(size).saturating_add(room);
            if bytes > 1 << 24 {
                return Err(LoadError::Syntax {
                    line: variable.line,
                    text: variable.name.clone(),
                    help: "the kernel's shared variables exceed any device's memory".to_owned(),
                });
            }
            shared.add(variable, declared, (at, size));
        }
        shared.bytes = bytes as u32;
        let open = || all.iter().filter(|(v, _)| v.count.is_none());
        if let Some(align) = open().map(|(v, _)| v.align).max() {
            let align = align.min(u64::from(SHARED_BASE));
            shared.dynamic = Some(bytes.next_multiple_of(align) as u32);
            padded = padded.next_multiple_of(align);
            for &(variable, declared) in open() {
                shared.add(variable, declared, (padded, u64::from(u32::MAX) - padded));
            }
        }
        let start = shared.dynamic.unwrap_or(shared.bytes);
        shared.padding = padded.saturating_sub(start.into()) as u32;
        Ok(shared)
    }

    /// Places a variable, which a function has `declared` or else the module, at byte `at`, with
    /// `size` bytes.
    fn add(
        &mut self,
        variable: &'m Variable,
        declared: Option<Declaration<'m>>,
        (at, size): (u64, u64),
    ) {
        let (name, bytes) = (variable.name.clone(), size as u32);
        self.variables.push(SharedVariable { name, at: at as u32, bytes });
        let address = u64::from(SHARED_BASE) + at;
        match declared {
            None => self.outer.push((variable, address)),
            Some(declared) => _ = self.inner.insert(declared, address),
        }
    }
}
