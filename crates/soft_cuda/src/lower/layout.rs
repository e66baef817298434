//! Where variables and parameters lie.

use super::context::Result;
use super::index::Reach;
use super::lowering::Lowering;
use super::scopes::Binding;
use crate::error::LoadError;
use crate::exec::machine::{LOCAL_BASE, SHARED_BASE};
use crate::ptx::ast::{Space, Variable};

/// Bytes of local memory per thread, the limit of every GPU.
const MAX_LOCAL: u64 = 512 << 10;
/// Bytes of a kernel's parameters, the limit since PTX 8.1 for sm_70 and newer.
const MAX_PARAMETERS: u64 = 32_764;
/// The limit before.
const MAX_PARAMETERS_BEFORE: u64 = 4352;

impl<'m> Lowering<'m> {
    /// Lays out the shared variables that the kernel uses: static ones first,
    /// then the dynamic part. Returns the bytes of the former and the place of
    /// the latter.
    pub(super) fn place_shared(&mut self, reach: &Reach<'m>) -> Result<(u32, Option<u32>)> {
        let outer = reach.shared.iter().map(|&variable| (variable, true));
        let inner = reach.inner_shared().map(|variable| (variable, false));
        let all: Vec<(&'m Variable, bool)> = outer.chain(inner).collect();
        let (mut bytes, mut dynamic) = (0u64, None);
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
            self.place_at(variable, outer, at)?;
        }
        let open = || all.iter().filter(|(v, _)| v.count.is_none());
        if let Some(align) = open().map(|(v, _)| v.align).max() {
            let at = bytes.next_multiple_of(align.min(u64::from(SHARED_BASE)));
            dynamic = Some(at as u32);
            for &(variable, outer) in open() {
                self.place_at(variable, outer, at)?;
            }
        }
        Ok((bytes as u32, dynamic))
    }

    /// Places a shared variable at byte `at`. Those of the module are declared at once,
    /// those of a function where it declares them.
    pub(super) fn place_at(&mut self, variable: &'m Variable, outer: bool, at: u64) -> Result<()> {
        let address = u64::from(SHARED_BASE) + at;
        if outer {
            let binding = Binding::Variable { space: Space::Shared, address, bytes: None };
            return self.declare(&variable.name, binding, variable.line);
        }
        self.shared.insert(variable, address);
        Ok(())
    }

    pub(super) fn place_parameters(&mut self, params: &'m [Variable]) -> Result<()> {
        let (limit, way_out) = if self.module.version >= 8.1 && self.module.targets(70) {
            (MAX_PARAMETERS, "")
        } else {
            (MAX_PARAMETERS_BEFORE, ", or write it for `.version 8.1` and `.target sm_70` or newer")
        };
        for (variable, address) in params.iter().zip(parameter_offsets(params)) {
            let bytes = variable.element * variable.count.unwrap_or(0);
            if address + bytes > limit {
                return Err(LoadError::Syntax {
                    line: variable.line,
                    text: variable.name.clone(),
                    help: format!(
                        "with it the kernel has more than {limit} bytes of parameters; pass a pointer{way_out}"
                    ),
                });
            }
            let bytes = Some(bytes);
            let binding = Binding::Variable { space: Space::Param, address, bytes };
            self.declare(&variable.name, binding, variable.line)?;
        }
        Ok(())
    }

    /// Reserves local memory for a variable, or for a parameter of a call.
    pub(super) fn place_local(&mut self, variable: &Variable) -> Result<Binding> {
        let at = self.local.next_multiple_of(variable.align.max(variable.element));
        let bytes = variable.element * variable.count.unwrap_or(0);
        self.local = at + bytes;
        if self.local > MAX_LOCAL {
            return Err(LoadError::Syntax {
                line: variable.line,
                text: variable.name.clone(),
                help: format!(
                    "with it the kernel needs {} bytes of local memory per thread, but {MAX_LOCAL} is the limit; shrink its arrays",
                    self.local
                ),
            });
        }
        let address = u64::from(LOCAL_BASE) + at;
        Ok(Binding::Variable { space: Space::Local, address, bytes: Some(bytes) })
    }
}

/// Offsets of parameters in the parameter bytes.
pub(crate) fn parameter_offsets(params: &[Variable]) -> impl Iterator<Item = u64> {
    params.iter().scan(0, |at: &mut u64, param| {
        let offset = at.next_multiple_of(param.align);
        *at = offset + param.element * param.count.unwrap_or(0);
        Some(offset)
    })
}
