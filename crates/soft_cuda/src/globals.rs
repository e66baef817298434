//! The variables of a module in device memory.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::LoadError;
use crate::memory::Memory;
use crate::ptx::ast::{Function, Init, Module, Space, Statement, Variable};

/// The variables of a module in device memory, freed when nobody uses them any longer.
#[derive(Debug)]
pub(crate) struct Globals {
    memory: Arc<Memory>,
    /// Address and bytes of those that the module declares.
    variables: HashMap<String, (u64, u64)>,
    /// Addresses of those that functions declare, by the function's name and the statement.
    inner: HashMap<String, HashMap<usize, u64>>,
}

impl Globals {
    /// Allocates and initialises the variables of `module` that lie in device memory.
    /// `functions` has the addresses of functions, which initial values may name.
    pub(crate) fn place(
        memory: Arc<Memory>,
        module: &Module,
        functions: impl Fn(&str) -> Option<u64>,
    ) -> Result<Globals, LoadError> {
        let mut globals = Globals { memory, variables: HashMap::new(), inner: HashMap::new() };
        let outer = || module.variables.iter().filter(|variable| in_memory(variable));
        for variable in outer() {
            let at = globals.allocate(variable)?;
            globals.variables.insert(variable.name.clone(), at);
        }
        for function in &module.functions {
            for ((name, place), variable) in declared_in(function).filter(|(_, v)| in_memory(v)) {
                let (address, _) = globals.allocate(variable)?;
                globals.inner.entry(name.to_owned()).or_default().insert(place, address);
            }
        }
        let known =
            |name: &str| globals.get(name).map(|(address, _)| address).or_else(|| functions(name));
        for variable in outer() {
            globals.fill(variable, globals.get(&variable.name).map(|(at, _)| at), known)?;
        }
        for function in &module.functions {
            let mut own = HashMap::new();
            for (declared, variable) in declared_in(function).filter(|(_, v)| in_memory(v)) {
                let address = globals.inner(declared);
                own.extend(address.map(|address| (variable.name.as_str(), address)));
                let own = |name: &str| own.get(name).copied().or_else(|| known(name));
                globals.fill(variable, address, own)?;
            }
        }
        Ok(globals)
    }

    /// Address and bytes of the variable of this name.
    pub(crate) fn get(&self, name: &str) -> Option<(u64, u64)> {
        self.variables.get(name).copied()
    }

    /// The address of a variable that a function declares.
    pub(crate) fn inner(&self, (function, place): Declaration<'_>) -> Option<u64> {
        self.inner.get(function)?.get(&place).copied()
    }

    /// Address and bytes of new memory for a variable.
    fn allocate(&self, variable: &Variable) -> Result<(u64, u64), LoadError> {
        let (line, name) = (variable.line, variable.name.clone());
        if variable.external {
            return Err(LoadError::Undeclared { line, name });
        }
        let bytes = variable.element * variable.count.unwrap_or(0);
        let address = self
            .memory
            .alloc("load", bytes.max(1))
            .map_err(|source| LoadError::Memory { line, name, source: source.into() })?;
        // What has no initial value is zero.
        if let Some(allocation) = self.memory.find(address) {
            allocation.mark(address, bytes.max(1));
        }
        Ok((address, bytes))
    }

    /// Writes the initial values of a variable. `known` has the addresses that they may name.
    fn fill(
        &self,
        variable: &Variable,
        address: Option<u64>,
        known: impl Fn(&str) -> Option<u64>,
    ) -> Result<(), LoadError> {
        let Some(address) = address.filter(|_| !variable.init.is_empty()) else { return Ok(()) };
        let (line, name) = (variable.line, variable.name.clone());
        let mut bytes = Vec::new();
        for init in &variable.init {
            match init {
                Init::Bits(bits, size) => {
                    bytes.extend_from_slice(&bits.to_le_bytes()[..usize::from(*size)]);
                }
                Init::Address(named, offset) => {
                    let Some(address) = known(named) else {
                        return Err(LoadError::Undeclared { line, name: named.clone() });
                    };
                    bytes.extend(address.wrapping_add_signed(*offset).to_le_bytes());
                }
            }
        }
        self.memory.write(address, &bytes).map_err(|source| LoadError::Memory {
            line,
            name,
            source: source.into(),
        })
    }
}

fn in_memory(variable: &Variable) -> bool {
    matches!(variable.space, Space::Global | Space::Const)
}

/// Where a function declares a variable: the function's name, and the number of the statement in
/// its body.
pub(crate) type Declaration<'m> = (&'m str, usize);

/// The variables that a function declares.
pub(crate) fn declared_in(
    function: &Function,
) -> impl Iterator<Item = (Declaration<'_>, &Variable)> {
    let statements = function.body.iter().flatten().enumerate();
    statements.filter_map(|(place, statement)| match statement {
        Statement::Variable(variable) => Some(((function.name.as_str(), place), variable)),
        _ => None,
    })
}

impl Drop for Globals {
    fn drop(&mut self) {
        let outer = self.variables.values().map(|(address, _)| address);
        for &address in outer.chain(self.inner.values().flat_map(HashMap::values)) {
            // Someone may have freed it by its address already.
            let _ = self.memory.free("unload", address);
        }
    }
}
