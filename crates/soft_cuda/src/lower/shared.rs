//! Where the shared variables of a kernel lie.

use std::collections::HashMap;

use super::context::Result;
use super::index::Reach;
use crate::error::LoadError;
use crate::exec::machine::SHARED_BASE;
use crate::ptx::ast::Variable;

/// The shared variables that a kernel uses: static ones first, then the dynamic part.
pub(super) struct Shared<'m> {
    /// Those of the module, and their addresses.
    pub outer: Vec<(&'m Variable, u64)>,
    /// Addresses of those that functions declare.
    pub inner: HashMap<*const Variable, u64>,
    /// Bytes of the static ones.
    pub bytes: u32,
    /// Where the dynamic part begins, if there is one.
    pub dynamic: Option<u32>,
}

impl<'m> Shared<'m> {
    pub(super) fn place(reach: &Reach<'m>) -> Result<Shared<'m>> {
        let outer = reach.shared.iter().map(|&variable| (variable, true));
        let inner = reach.inner_shared().map(|variable| (variable, false));
        let all: Vec<(&'m Variable, bool)> = outer.chain(inner).collect();
        let mut shared =
            Shared { outer: Vec::new(), inner: HashMap::new(), bytes: 0, dynamic: None };
        let mut bytes = 0u64;
        for &(variable, outer) in all.iter().filter(|(v, _)| v.count.is_some()) {
            let at = bytes.next_multiple_of(variable.align);
            bytes = at + variable.element * variable.count.unwrap_or(0);
            if bytes > 1 << 24 {
                return Err(LoadError::Syntax {
                    line: variable.line,
                    text: variable.name.clone(),
                    help: "the kernel's shared variables exceed any device's memory".to_owned(),
                });
            }
            shared.add(variable, outer, at);
        }
        shared.bytes = bytes as u32;
        let open = || all.iter().filter(|(v, _)| v.count.is_none());
        if let Some(align) = open().map(|(v, _)| v.align).max() {
            let at = bytes.next_multiple_of(align.min(u64::from(SHARED_BASE)));
            shared.dynamic = Some(at as u32);
            for &(variable, outer) in open() {
                shared.add(variable, outer, at);
            }
        }
        Ok(shared)
    }

    fn add(&mut self, variable: &'m Variable, outer: bool, at: u64) {
        let address = u64::from(SHARED_BASE) + at;
        if outer {
            self.outer.push((variable, address));
        } else {
            self.inner.insert(variable, address);
        }
    }
}
