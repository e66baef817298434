//! What a module has, by name.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::context::Result;
use super::scopes::{Binding, Scopes};
use super::ty::Ty;
use crate::error::LoadError;
use crate::globals::{Declaration, Globals, declared_in};
use crate::ptx::ast::{Function, Init, Instruction, Module, Operand, Space, Statement, Variable};

/// The address of the first function of a module, and how far it is to the next. They are no
/// addresses of any memory.
const FUNCTION_BASE: u64 = 0x0054_0000_0000_0000;
const FUNCTION_STEP: u64 = 16;

/// How the special registers begin that say where the memory lies that is reserved for the system.
pub(super) const RESERVED_SHARED: &str = "%reserved_smem_offset_";

/// The names of a module's variables and functions.
#[derive(Debug)]
pub(crate) struct Names {
    /// Places among the module's variables.
    variables: HashMap<String, usize>,
    /// Places among the module's functions, of the definition if there is one, and addresses.
    functions: HashMap<String, (usize, u64)>,
}

impl Names {
    /// Those of `module`.
    pub(crate) fn new(module: &Module) -> Result<Names> {
        let redeclared = |line, name: &String| LoadError::Redeclared { line, name: name.clone() };
        let mut variables = HashMap::new();
        for (place, variable) in module.variables.iter().enumerate() {
            let name = &variable.name;
            if let Some(other) = variables.insert(name.clone(), place) {
                let other: &Variable = &module.variables[other];
                if !(other.external && variable.external && variable.space == Space::Shared) {
                    return Err(redeclared(variable.line, name));
                }
            }
        }
        let mut functions = HashMap::new();
        for (place, function) in module.functions.iter().enumerate().filter(|(_, f)| !f.entry) {
            let next = (place, FUNCTION_BASE + FUNCTION_STEP * functions.len() as u64);
            let known: &mut (usize, u64) = functions.entry(function.name.clone()).or_insert(next);
            if known.0 == place {
                continue;
            }
            let is_defined =
                |function: &Function| function.body.is_some() || function.error.is_some();
            match (is_defined(&module.functions[known.0]), is_defined(function)) {
                (true, true) => return Err(redeclared(function.line, &function.name)),
                (false, _) => known.0 = place,
                (true, false) => {}
            }
        }
        Ok(Names { variables, functions })
    }

    /// The address of this function.
    pub(crate) fn function_address(&self, name: &str) -> Option<u64> {
        self.functions.get(name).map(|&(_, address)| address)
    }
}

/// The variables and functions of a module.
#[derive(Clone, Copy)]
pub(crate) struct Index<'m> {
    pub(crate) module: &'m Module,
    pub(crate) names: &'m Names,
    pub(crate) globals: &'m Globals,
}

impl<'m> Index<'m> {
    /// The global or constant variable, or the function, of this name.
    pub(super) fn variable(&self, name: &str) -> Option<Binding> {
        let (space, address) = match self.names.function_address(name) {
            Some(address) => (Space::Global, address),
            None => (self.declared(name)?.space, self.globals.get(name)?.0),
        };
        Some(Binding::Variable { space, address, bytes: None })
    }

    /// The declaration of a variable of the module.
    fn declared(&self, name: &str) -> Option<&'m Variable> {
        Some(&self.module.variables[*self.names.variables.get(name)?])
    }

    /// The address of a global or constant variable that a function declares.
    pub(super) fn inner_address(&self, declared: Declaration<'_>) -> Option<u64> {
        self.globals.inner(declared)
    }

    /// The function of this name, with its body if it has one.
    pub(super) fn function(&self, name: &str) -> Option<&'m Function> {
        Some(&self.module.functions[self.names.functions.get(name)?.0])
    }

    /// Where the code of this function begins, as its address.
    pub(super) fn address(&self, function: &str) -> u64 {
        self.names.function_address(function).unwrap_or(0)
    }

    /// What the code of `function` refers to, through calls, addresses of functions, and the
    /// initial values of variables as well. Fails if one of these functions cannot be read.
    pub(super) fn reach(&self, function: &'m Function) -> Result<Reach<'m>> {
        let mut known = HashSet::new();
        let mut functions = vec![function];
        let mut shared = BTreeMap::new();
        let mut reserved_shared = false;
        let mut at = 0;
        while let Some(&function) = functions.get(at) {
            at += 1;
            if let Some(error) = &function.error {
                return Err(error.clone().into());
            }
            let mut names = self.names_in(function);
            while let Some(name) = names.pop() {
                reserved_shared |= name.starts_with(RESERVED_SHARED);
                if !known.insert(name) {
                    continue;
                }
                if let Some(variable) = self.declared(name) {
                    if variable.space == Space::Shared {
                        shared.insert(self.names.variables[name], variable);
                    }
                    names.extend(named_by(variable));
                }
                let is_code = |f: &&Function| f.body.is_some() || f.error.is_some();
                functions.extend(self.function(name).filter(is_code));
            }
        }
        Ok(Reach { functions, shared: shared.into_values().collect(), reserved_shared })
    }

    /// The names of variables and functions of the module in the code of `function`: those that
    /// no declaration of its own hides, and what its calls name.
    fn names_in(&self, function: &'m Function) -> Vec<&'m str> {
        // What a name of the function stands for does not matter here.
        let hides = Binding::Label(0);
        let mut found = Vec::new();
        let mut scopes = Scopes::new();
        for variable in function.returns.iter().chain(&function.params) {
            scopes.declare(&variable.name, hides);
        }
        scopes.push();
        for statement in function.body.iter().flatten() {
            match statement {
                Statement::Open => scopes.push(),
                Statement::Close => scopes.pop(),
                Statement::Register { name, count, lanes, .. } => {
                    scopes.declare_registers(name, (*count, *lanes), Ty::B32);
                }
                Statement::Variable(variable) => {
                    scopes.declare(&variable.name, hides);
                    found.extend(named_by(variable).filter(|name| scopes.find(name).is_none()));
                }
                // Labels hide, too, but only branches take them.
                Statement::Label(..)
                | Statement::BranchTargets { .. }
                | Statement::Prototype { .. } => {}
                Statement::Instruction(inst) if matches!(opcode(inst), "bra" | "brx") => {}
                Statement::Instruction(inst) => {
                    let (first, rest) = match CallSite::of(inst) {
                        Some(call) => {
                            found.push(call.callee);
                            (call.returns, call.rest)
                        }
                        None => (inst.operands.as_slice(), &[][..]),
                    };
                    let names = first.iter().chain(rest).flat_map(operand_names);
                    found.extend(names.filter(|name| scopes.find(name).is_none()));
                }
            }
        }
        found
    }
}

/// The operands of a `call`: `(returns), callee, (arguments)`.
pub(super) struct CallSite<'m> {
    pub returns: &'m [Operand],
    pub callee: &'m str,
    /// What follows the callee.
    pub rest: &'m [Operand],
}

impl<'m> CallSite<'m> {
    /// `None` if the instruction is no call, or names no function.
    pub(super) fn of(inst: &'m Instruction) -> Option<CallSite<'m>> {
        if opcode(inst) != "call" {
            return None;
        }
        match inst.operands.as_slice() {
            [Operand::List(returns), Operand::Name(callee), rest @ ..] => {
                Some(CallSite { returns, callee, rest })
            }
            [Operand::Name(callee), rest @ ..] => Some(CallSite { returns: &[], callee, rest }),
            _ => None,
        }
    }
}

/// The opcode without its modifiers.
fn opcode(inst: &Instruction) -> &str {
    inst.opcode.split('.').next().unwrap_or_default()
}

/// What the code of a kernel refers to, through calls as well.
pub(super) struct Reach<'m> {
    /// The kernel, and the functions with a body that it may call.
    pub functions: Vec<&'m Function>,
    /// Shared variables of the module, in the order of the text.
    pub shared: Vec<&'m Variable>,
    /// Whether the code asks where the shared memory lies that is reserved for the system.
    pub reserved_shared: bool,
}

impl<'m> Reach<'m> {
    /// Whether there are bulk copies.
    pub(super) fn has_bulk_copies(&self) -> bool {
        let mut all = self.functions.iter().flat_map(|function| instructions(function));
        all.any(|inst| {
            let copies = ["cp.async.bulk.", "cp.reduce.async.bulk."];
            copies.iter().any(|of| inst.opcode.starts_with(of))
        })
    }

    /// Whether there are asynchronous copies of any kind.
    pub(super) fn has_copies(&self) -> bool {
        let mut all = self.functions.iter().flat_map(|function| instructions(function));
        self.has_bulk_copies() || all.any(|inst| inst.opcode.starts_with("cp.async."))
    }

    /// Shared variables declared in functions, in the order of the text.
    pub(super) fn inner_shared(&self) -> impl Iterator<Item = (Declaration<'m>, &'m Variable)> {
        let all = self.functions.iter().flat_map(|&function| declared_in(function));
        all.filter(|(_, variable)| variable.space == Space::Shared)
    }
}

fn instructions(function: &Function) -> impl Iterator<Item = &Instruction> {
    function.body.iter().flatten().filter_map(|statement| match statement {
        Statement::Instruction(inst) => Some(inst),
        _ => None,
    })
}

/// What the initial values of a variable name.
fn named_by(variable: &Variable) -> impl Iterator<Item = &str> {
    variable.init.iter().filter_map(|init| match init {
        Init::Address(name, _) => Some(name.as_str()),
        Init::Bits(..) => None,
    })
}

fn operand_names(operand: &Operand) -> Vec<&str> {
    match operand {
        Operand::Name(name) | Operand::Not(name) | Operand::Offset(name, _) => vec![name],
        Operand::Address(Some(name), _) => vec![name],
        Operand::Tensor(name, _, all) => {
            all.iter().flat_map(operand_names).chain([name.as_str()]).collect()
        }
        Operand::Vector(all) | Operand::List(all) => all.iter().flat_map(operand_names).collect(),
        Operand::Pair(a, b) => [a, b].into_iter().flat_map(|o| operand_names(o)).collect(),
        Operand::Address(None, _) | Operand::Int(_) | Operand::F32(_) | Operand::F64(_) => {
            Vec::new()
        }
    }
}
