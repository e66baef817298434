//! What a module has, by name.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use super::context::Result;
use super::scopes::{Binding, Scopes};
use super::ty::Ty;
use crate::error::LoadError;
use crate::ptx::ast::{Function, Init, Instruction, Module, Operand, Space, Statement, Variable};

/// The most statements of functions that the kernels of a module may come to: a function is
/// decoded for each kernel that may call it. The kernels themselves are not limited.
pub(super) const MAX_STATEMENTS: usize = 1 << 22;

/// The variables and functions of a module.
pub(crate) struct Index<'m> {
    /// Global and constant variables, and functions: what they are, and their address.
    addresses: HashMap<&'m str, (Space, u64)>,
    /// What the initial values of variables name.
    initial: HashMap<&'m str, Vec<&'m str>>,
    /// Shared variables, and their places in the text's order.
    shared: HashMap<&'m str, (usize, &'m Variable)>,
    /// How many places there are.
    places: usize,
    functions: HashMap<&'m str, &'m Function>,
    statements: Cell<usize>,
}

impl<'m> Index<'m> {
    /// Indexes `module`, whose global and constant variables and functions lie at `addresses`.
    pub(crate) fn new(
        module: &'m Module,
        addresses: impl Fn(&str) -> Option<u64>,
    ) -> Result<Index<'m>> {
        let redeclared =
            |line, name: &str| Err(LoadError::Redeclared { line, name: name.to_owned() });
        let (mut all, mut shared) = (HashMap::new(), HashMap::new());
        let mut initial: HashMap<&str, Vec<&str>> = HashMap::new();
        for (i, variable) in module.variables.iter().enumerate() {
            let name = variable.name.as_str();
            if let Some(address) = addresses(name) {
                all.insert(name, (variable.space, address));
                let named = variable.init.iter().filter_map(|init| match init {
                    Init::Address(other, _) => Some(other.as_str()),
                    Init::Bits(..) => None,
                });
                initial.entry(name).or_default().extend(named);
            } else if let Some((_, other)) = shared.insert(name, (i, variable)) {
                let other: &Variable = other;
                if !(other.external && variable.external) {
                    return redeclared(variable.line, name);
                }
            }
        }
        let mut functions: HashMap<&str, &Function> = HashMap::new();
        for function in module.functions.iter().filter(|f| !f.entry) {
            if let Some(address) = addresses(&function.name) {
                all.insert(&function.name, (Space::Global, address));
            }
            let known = functions.entry(&function.name).or_insert(function);
            if std::ptr::eq(*known, function) {
                continue;
            }
            if known.body.is_some() && function.body.is_some() {
                return redeclared(function.line, &function.name);
            }
            if known.body.is_none() {
                *known = function;
            }
        }
        let places = module.variables.len();
        let statements = Cell::new(0);
        Ok(Index { addresses: all, initial, shared, places, functions, statements })
    }

    /// The global or constant variable, or the function, of this name.
    pub(super) fn variable(&self, name: &str) -> Option<Binding> {
        let &(space, address) = self.addresses.get(name)?;
        Some(Binding::Variable { space, address, bytes: None })
    }

    /// The function of this name, with its body if it has one.
    pub(super) fn function(&self, name: &str) -> Option<&'m Function> {
        self.functions.get(name).copied()
    }

    /// Where the code of this function begins, as its address.
    pub(super) fn address(&self, function: &str) -> u64 {
        self.addresses.get(function).map_or(0, |&(_, address)| address)
    }

    /// Counts the statements of a function that is decoded for a kernel; `false` if there are
    /// too many of them.
    pub(super) fn count(&self, function: &Function) -> bool {
        let body = function.body.as_ref().map_or(0, Vec::len);
        self.statements.set(self.statements.get() + body + function.params.len() + 1);
        self.statements.get() <= MAX_STATEMENTS
    }

    /// What the code of `function` refers to, through calls, addresses of functions, and the
    /// initial values of variables as well.
    pub(super) fn reach(&self, function: &'m Function) -> Reach<'m> {
        let mut known = HashSet::new();
        let mut functions = vec![function];
        let mut shared = vec![None; self.places];
        let mut at = 0;
        while let Some(&function) = functions.get(at) {
            at += 1;
            let mut names = self.names_in(function);
            while let Some(name) = names.pop() {
                if let Some(&(place, variable)) = self.shared.get(name) {
                    shared[place] = Some(variable);
                }
                if !(self.functions.contains_key(name) || self.initial.contains_key(name))
                    || !known.insert(name)
                {
                    continue;
                }
                functions.extend(self.function(name).filter(|function| function.body.is_some()));
                names.extend(self.initial.get(name).into_iter().flatten());
            }
        }
        Reach { functions, shared: shared.into_iter().flatten().collect() }
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
                Statement::Register { name, count: None, .. } => {
                    scopes.declare(name, hides);
                }
                Statement::Register { name, count: Some(count), .. } => {
                    scopes.declare_range(name, *count, Ty::B32);
                }
                Statement::Variable(variable) => {
                    scopes.declare(&variable.name, hides);
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
}

impl<'m> Reach<'m> {
    /// Whether there are bulk copies.
    pub(super) fn has_bulk_copies(&self) -> bool {
        let mut all = self.functions.iter().flat_map(|function| instructions(function));
        all.any(|inst| inst.opcode.starts_with("cp.async.bulk."))
    }

    /// Whether there are asynchronous copies of any kind.
    pub(super) fn has_copies(&self) -> bool {
        let mut all = self.functions.iter().flat_map(|function| instructions(function));
        all.any(|inst| inst.opcode.starts_with("cp.async."))
    }

    /// Shared variables declared in functions, in the order of the text.
    pub(super) fn inner_shared(&self) -> impl Iterator<Item = &'m Variable> {
        let all = self.functions.iter().flat_map(|function| function.body.iter().flatten());
        all.filter_map(|statement| match statement {
            Statement::Variable(variable) if variable.space == Space::Shared => Some(variable),
            _ => None,
        })
    }
}

fn instructions(function: &Function) -> impl Iterator<Item = &Instruction> {
    function.body.iter().flatten().filter_map(|statement| match statement {
        Statement::Instruction(inst) => Some(inst),
        _ => None,
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
