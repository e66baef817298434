//! Where variables and parameters lie.

use super::context::Result;
use super::index::Reach;
use super::lowering::Lowering;
use super::scopes::Binding;
use crate::error::LoadError;
use crate::exec::code::SharedVariable;
use crate::exec::machine::{LOCAL_BASE, SHARED_BASE};
use crate::ptx::ast::{Space, Variable};

/// Bytes between shared variables where accesses of them are checked.
const ROOM: u64 = 256;

/// Bytes of local memory per thread, the limit of every GPU.
const MAX_LOCAL: u64 = 512 << 10;
/// Bytes of a kernel's parameters, the limit since PTX 8.1 for sm_70 and newer.
const MAX_PARAMETERS: u64 = 32_764;
/// The limit before.
const MAX_PARAMETERS_BEFORE: u64 = 4352;

/// How a kernel's shared memory is laid out.
pub(super) struct Layout {
    /// Bytes of the static variables.
    pub static_shared: u32,
    /// Bytes between them, which only checks need.
    pub padding: u32,
    /// Where dynamic shared memory starts, but for the padding.
    pub dynamic_shared_at: Option<u32>,
}

impl<'m> Lowering<'m> {
    /// Lays out the shared variables that the kernel uses: static ones first,
    /// then the dynamic part. Returns the bytes of the former and the place of
    /// the latter.
    pub(super) fn place_shared(&mut self, reach: &Reach<'m>) -> Result<Layout> {
        let outer = reach.shared.iter().map(|&variable| (variable, true));
        let inner = reach.inner_shared().map(|variable| (variable, false));
        let all: Vec<(&'m Variable, bool)> = outer.chain(inner).collect();
        // What the kernel needs, and what it gets: with checks, there is room between variables.
        let (mut bytes, mut padded, mut dynamic) = (0u64, 0u64, None);
        let room = if self.checks.memory { ROOM } else { 0 };
        for &(variable, outer) in all.iter().filter(|(v, _)| v.count.is_some()) {
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
            self.place_at(variable, outer, (at, size))?;
        }
        let open = || all.iter().filter(|(v, _)| v.count.is_none());
        if let Some(align) = open().map(|(v, _)| v.align).max() {
            let align = align.min(u64::from(SHARED_BASE));
            dynamic = Some(bytes.next_multiple_of(align) as u32);
            padded = padded.next_multiple_of(align);
            for &(variable, outer) in open() {
                self.place_at(variable, outer, (padded, u64::from(u32::MAX) - padded))?;
            }
        }
        let start = u64::from(dynamic.unwrap_or(bytes as u32));
        let padding = padded.saturating_sub(start) as u32;
        Ok(Layout { static_shared: bytes as u32, padding, dynamic_shared_at: dynamic })
    }

    /// Places a shared variable at byte `at`, with `size` bytes. Those of the module are declared at once,
    /// those of a function where it declares them.
    pub(super) fn place_at(
        &mut self,
        variable: &'m Variable,
        outer: bool,
        (at, size): (u64, u64),
    ) -> Result<()> {
        let (name, bytes) = (variable.name.clone(), size as u32);
        self.variables.push(SharedVariable { name, at: at as u32, bytes });
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
