//! The statements of a function body, one after the other.

use super::context::{Context, Result};
use super::ir::B;
use super::lowering::Lowering;
use super::scopes::Binding;
use super::ty::Ty;
use super::words::Words;
use crate::error::LoadError;
use crate::ptx::ast::{Function, Instruction, Space, Statement};

impl<'m> Lowering<'m> {
    /// Lowers the statements of a function's body; `exit` is where `ret` goes.
    pub(super) fn body(&mut self, function: &'m Function, exit: B) -> Result<()> {
        let statements = function.body.as_deref().unwrap_or_default();
        self.words = Words::of(statements);
        let mut labels = labels(statements).into_iter();
        self.declare_labels(labels.next())?;
        for (place, statement) in statements.iter().enumerate() {
            match statement {
                Statement::Open => {
                    self.scopes.push();
                    self.declare_labels(labels.next())?;
                }
                Statement::Close => {
                    self.scopes.pop();
                }
                Statement::Label(name, line) => {
                    let Some(Binding::Label(block)) = self.find(name) else {
                        return Err(LoadError::Undeclared { line: *line, name: name.clone() });
                    };
                    self.start(block, *line);
                }
                Statement::Register { name, ty, count, lanes, line } => {
                    self.declare_registers(name, ty, (*count, *lanes), *line)?;
                }
                Statement::Variable(variable) => match variable.space {
                    Space::Local | Space::Param => {
                        let binding = self.place_local(variable)?;
                        self.declare(&variable.name, binding, variable.line)?;
                    }
                    space => {
                        let declared = (function.name.as_str(), place);
                        let shared = self.shared.get(&declared).copied();
                        let address = shared.or_else(|| self.index.inner_address(declared));
                        let Some(address) = address else {
                            let (line, name) = (variable.line, variable.name.clone());
                            return Err(LoadError::Undeclared { line, name });
                        };
                        let binding = Binding::Variable { space, address, bytes: None };
                        self.declare(&variable.name, binding, variable.line)?;
                    }
                },
                Statement::BranchTargets { name, labels, line } => {
                    self.branch_targets.push(labels);
                    let list = Binding::BranchTargets(self.branch_targets.len() - 1);
                    self.declare(name, list, *line)?;
                }
                Statement::Prototype { name, returns, params, line } => {
                    self.prototypes.push([returns, params]);
                    let prototype = Binding::Prototype(self.prototypes.len() - 1);
                    self.declare(name, prototype, *line)?;
                }
                Statement::Instruction(inst) => self.instruction(inst, exit)?,
            }
        }
        Ok(())
    }

    /// Declares the labels of a scope when it opens, so that jumps forward find them.
    fn declare_labels(&mut self, labels: Option<Vec<(&'m str, u32)>>) -> Result<()> {
        for (name, line) in labels.into_iter().flatten() {
            let block = self.new_block();
            self.declare(name, Binding::Label(block), line)?;
        }
        Ok(())
    }

    fn declare_registers(
        &mut self,
        name: &'m str,
        ty: &str,
        (count, lanes): (Option<u32>, u32),
        line: u32,
    ) -> Result<()> {
        let Some(ty) = Ty::parse(ty).filter(|ty| ty.bits != 8) else {
            return Err(LoadError::Syntax {
                line,
                text: ty.to_owned(),
                help: "the software device has no registers of this type".to_owned(),
            });
        };
        match self.scopes.declare_registers(name, (count, lanes), ty) {
            true => Ok(()),
            false => Err(LoadError::Redeclared { line, name: name.to_owned() }),
        }
    }

    fn instruction(&mut self, inst: &'m Instruction, exit: B) -> Result<()> {
        let mut parts = inst.opcode.split('.');
        let base = parts.next().unwrap_or_default();
        let mut at = Context { inst, mods: parts.collect(), guard: None };
        if let Some((name, negated)) = &inst.guard {
            let predicate = self.predicate_register(&at, name)?;
            at.guard = Some((predicate, *negated));
        }
        let known = self.control(base, &mut at, exit)?
            || self.memory(base, &mut at)?
            || self.half(base, &mut at)?
            || self.matrix(base, &mut at)?
            || self.arithmetic(base, &mut at)?;
        if !known {
            return Err(at.unsupported("this instruction is unknown"));
        }
        match at.mods.first() {
            None => Ok(()),
            Some(unknown) => Err(at.unsupported(&format!("the modifier `.{unknown}` is unknown"))),
        }
    }
}

/// The labels of every scope of a body and their lines, in the order that the scopes open.
fn labels(statements: &[Statement]) -> Vec<Vec<(&str, u32)>> {
    let (mut all, mut open) = (vec![Vec::new()], vec![0]);
    for statement in statements {
        match statement {
            Statement::Open => {
                open.push(all.len());
                all.push(Vec::new());
            }
            Statement::Close => {
                open.pop();
            }
            Statement::Label(name, line) => {
                if let Some(&scope) = open.last() {
                    all[scope].push((name.as_str(), *line));
                }
            }
            _ => {}
        }
    }
    all
}
