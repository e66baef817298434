//! The variables of a module in device memory.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::LoadError;
use crate::memory::Memory;
use crate::ptx::ast::{Init, Space, Variable};

/// The module-scope variables, freed when nobody uses them any longer.
#[derive(Debug)]
pub(crate) struct Globals {
    memory: Arc<Memory>,
    /// Address and bytes.
    variables: HashMap<String, (u64, u64)>,
}

impl Globals {
    /// Allocates and initialises those of `variables` that lie in device memory.
    /// `functions` are the addresses of functions, which initial values may name.
    pub(crate) fn place(
        memory: Arc<Memory>,
        variables: &[Variable],
        functions: &HashMap<&str, u64>,
    ) -> Result<Globals, LoadError> {
        let mut globals = Globals { memory, variables: HashMap::new() };
        globals.fill(variables, functions)?;
        Ok(globals)
    }

    /// Address and bytes of the variable of this name.
    pub(crate) fn get(&self, name: &str) -> Option<(u64, u64)> {
        self.variables.get(name).copied()
    }

    fn fill(
        &mut self,
        variables: &[Variable],
        functions: &HashMap<&str, u64>,
    ) -> Result<(), LoadError> {
        let in_memory = |v: &&Variable| matches!(v.space, Space::Global | Space::Const);
        for variable in variables.iter().filter(in_memory) {
            let (line, name) = (variable.line, variable.name.clone());
            if variable.external {
                return Err(LoadError::Undeclared { line, name });
            }
            let bytes = variable.element * variable.count.unwrap_or(0);
            let address = self.memory.alloc("load", bytes.max(1)).map_err(|source| {
                LoadError::Memory { line, name: name.clone(), source: source.into() }
            })?;
            // What has no initial value is zero.
            if let Some(allocation) = self.memory.find(address) {
                allocation.mark(address, bytes.max(1));
            }
            if self.variables.insert(name.clone(), (address, bytes)).is_some() {
                return Err(LoadError::Redeclared { line, name });
            }
        }
        for variable in variables.iter().filter(in_memory).filter(|v| !v.init.is_empty()) {
            let (line, name) = (variable.line, variable.name.clone());
            let mut bytes = Vec::new();
            for init in &variable.init {
                match init {
                    Init::Bits(bits, size) => {
                        bytes.extend_from_slice(&bits.to_le_bytes()[..usize::from(*size)]);
                    }
                    Init::Address(name, offset) => {
                        let variable = self.variables.get(name).map(|&(address, _)| address);
                        let address = variable.or_else(|| functions.get(name.as_str()).copied());
                        let Some(address) = address else {
                            return Err(LoadError::Undeclared { line, name: name.clone() });
                        };
                        bytes.extend(address.wrapping_add_signed(*offset).to_le_bytes());
                    }
                }
            }
            let Some(&(address, _)) = self.variables.get(&name) else { continue };
            self.memory.write(address, &bytes).map_err(|source| LoadError::Memory {
                line,
                name,
                source: source.into(),
            })?;
        }
        Ok(())
    }
}

impl Drop for Globals {
    fn drop(&mut self) {
        for &(address, _) in self.variables.values() {
            // Someone may have freed it by its address already.
            let _ = self.memory.free("unload", address);
        }
    }
}
