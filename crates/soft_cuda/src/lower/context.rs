//! The instruction being lowered.

use super::ir::V;
use super::ty::Ty;
use crate::error::LoadError;
use crate::ptx::ast::{Instruction, Operand};

pub(super) type Result<T, E = LoadError> = std::result::Result<T, E>;

/// The instruction being lowered, and its modifiers that nobody has claimed
/// yet. Whatever is left at the end is an unknown modifier.
pub(super) struct Context<'a> {
    pub(super) inst: &'a Instruction,
    pub(super) mods: Vec<&'a str>,
    pub(super) guard: Option<(V, bool)>,
}

impl<'a> Context<'a> {
    /// Claims a modifier if it is there.
    pub(super) fn take(&mut self, modifier: &str) -> bool {
        match self.mods.iter().position(|&m| m == modifier) {
            Some(at) => {
                self.mods.remove(at);
                true
            }
            None => false,
        }
    }

    /// Claims the first of `modifiers` that is there, and says which.
    pub(super) fn take_one(&mut self, modifiers: &[&str]) -> Option<usize> {
        modifiers.iter().position(|m| !m.is_empty() && self.take(m))
    }

    /// Whether its scope, which nothing has claimed yet, is larger than the cluster.
    pub(super) fn wide(&self) -> bool {
        !self.mods.iter().any(|m| ["cta", "cluster"].contains(m))
    }

    /// Claims all modifiers that `f` accepts.
    pub(super) fn take_all(&mut self, f: impl Fn(&str) -> bool) {
        self.mods.retain(|m| !f(m));
    }

    /// Claims the last modifier as a type.
    pub(super) fn ty(&mut self) -> Result<Ty> {
        match self.mods.last().and_then(|m| Ty::parse(m)) {
            Some(ty) => {
                self.mods.pop();
                Ok(ty)
            }
            None => Err(self.unsupported("its last modifier is not a type")),
        }
    }

    pub(super) fn unsupported(&self, help: &str) -> LoadError {
        LoadError::Unsupported {
            line: self.inst.line,
            opcode: self.inst.opcode.clone(),
            help: help.to_owned(),
        }
    }

    pub(super) fn bad_operands(&self, help: &str) -> LoadError {
        LoadError::Operands {
            line: self.inst.line,
            opcode: self.inst.opcode.clone(),
            help: help.to_owned(),
        }
    }

    /// Exactly `N` operands.
    pub(super) fn operands<const N: usize>(&self) -> Result<&'a [Operand; N]> {
        self.inst.operands.as_slice().try_into().map_err(|_| {
            let got = self.inst.operands.len();
            self.bad_operands(&format!("it takes {N}, but {got} are given"))
        })
    }

    /// Operand `i`.
    pub(super) fn operand(&self, i: usize) -> Result<&'a Operand> {
        self.inst
            .operands
            .get(i)
            .ok_or_else(|| self.bad_operands(&format!("it takes at least {}", i + 1)))
    }
}
