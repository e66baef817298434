//! Where variables and parameters lie.

use super::context::Result;
use super::lowering::Lowering;
use super::scopes::Binding;
use super::shared::Shared;
use crate::error::LoadError;
use crate::exec::code::places;
use crate::exec::machine::{LOCAL_BASE, MAX_LOCAL};
use crate::ptx::ast::{Function, Space, Variable};

/// Bytes of a kernel's parameters, the limit since PTX 8.1 for sm_70 and newer.
const MAX_PARAMETERS: u64 = 32_764;
/// The limit before.
const MAX_PARAMETERS_BEFORE: u64 = 4352;

impl<'m> Lowering<'m> {
    /// Declares the shared variables of the module, and, in a function, its results and
    /// parameters, which lie in its frame.
    pub(super) fn place_outer(&mut self, shared: &'m Shared<'m>) -> Result<()> {
        for &(variable, address) in &shared.outer {
            let binding = Binding::Variable { space: Space::Shared, address, bytes: None };
            self.declare(&variable.name, binding, variable.line)?;
        }
        Ok(())
    }

    /// Places the results and parameters of a function in its frame, whence
    /// [`registers_of`](Lowering::registers_of) loads those that are registers.
    pub(super) fn place_arguments(&mut self, function: &'m Function) -> Result<()> {
        let all = || function.returns.iter().chain(&function.params);
        for (variable, at) in all().zip(places(all().map(bytes_of))) {
            let bytes = bytes_of(variable);
            self.local = u64::from(at + bytes);
            self.check_local(variable)?;
            if variable.register {
                continue;
            }
            let (space, address) = (Space::Local, u64::from(LOCAL_BASE + at));
            let binding = Binding::Variable { space, address, bytes: Some(bytes.into()) };
            self.declare(&variable.name, binding, variable.line)?;
        }
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
        self.local_align = self.local_align.max(variable.align);
        self.check_local(variable)?;
        let address = u64::from(LOCAL_BASE) + at;
        Ok(Binding::Variable { space: Space::Local, address, bytes: Some(bytes) })
    }

    fn check_local(&self, variable: &Variable) -> Result<()> {
        if self.local > MAX_LOCAL.into() {
            return Err(LoadError::Syntax {
                line: variable.line,
                text: variable.name.clone(),
                help: format!(
                    "with it the kernel needs {} bytes of local memory per thread, but {MAX_LOCAL} is the limit; shrink its arrays",
                    self.local
                ),
            });
        }
        Ok(())
    }
}

/// The bytes of a variable; more than fit are as many as too many.
pub(super) fn bytes_of(variable: &Variable) -> u32 {
    let bytes = variable.element * variable.count.unwrap_or(0);
    u32::try_from(bytes).unwrap_or(u32::MAX).min(MAX_LOCAL + 1)
}

/// Offsets of parameters in the parameter bytes.
pub(crate) fn parameter_offsets(params: &[Variable]) -> impl Iterator<Item = u64> {
    params.iter().scan(0, |at: &mut u64, param| {
        let offset = at.next_multiple_of(param.align);
        *at = offset + param.element * param.count.unwrap_or(0);
        Some(offset)
    })
}
