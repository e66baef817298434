//! Calls of functions, and branches by a table of labels.

use super::builtin::Builtin;
use super::compare::setp_fields;
use super::context::{Context, Result};
use super::index::CallSite;
use super::ir::{Callee, Class, Field, InstKind, Piece, Terminator};
use super::lowering::Lowering;
use super::scopes::Binding;
use super::ty::Ty;
use crate::error::LoadError;
use crate::exec::alu;
use crate::exec::lanes::SetP;
use crate::exec::machine::LOCAL_BASE;
use crate::exec::pick_compact;
use crate::exec::special::BranchIndex;
use crate::ptx::ast::{Function, Operand, Space};

impl<'m> Lowering<'m> {
    /// `call`: of a function by its name, or by its address in a register.
    pub(super) fn call(&mut self, at: &mut Context<'m>) -> Result<()> {
        at.take("uni");
        let Some(CallSite { returns, callee: name, rest }) = CallSite::of(at.inst) else {
            return Err(at.bad_operands("it takes the name of a function"));
        };
        let (arguments, prototype): (&[Operand], _) = match rest {
            [] => (&[], None),
            [Operand::List(list)] => (list, None),
            [Operand::List(list), Operand::Name(prototype)] => (list, Some(prototype)),
            [Operand::Name(prototype)] => (&[], Some(prototype)),
            _ => return Err(at.bad_operands("after the callee come arguments, and a prototype")),
        };
        let returns = self.pieces(at, returns)?;
        let arguments = self.pieces(at, arguments)?;
        let callee = match (self.index.function(name), prototype) {
            (Some(function), None) => {
                check_sizes(at, name, function, [&returns, &arguments])?;
                if function.body.is_none() {
                    return match Builtin::named(name) {
                        Some(builtin) => self.builtin(at, builtin, &arguments, &returns),
                        None => Err(at.unsupported(&format!(
                            "`{name}` has no body in this module; link it in, or do not call it"
                        ))),
                    };
                }
                Callee::Function(self.numbers[name])
            }
            (Some(_), Some(_)) => {
                return Err(at.bad_operands("only a call by an address takes a prototype"));
            }
            (None, Some(prototype)) => {
                let of_prototype = [returns.len(), arguments.len()];
                match self.find(prototype) {
                    Some(Binding::Prototype(counts)) if counts == of_prototype => {}
                    Some(Binding::Prototype(_)) => {
                        let help = format!("`{prototype}` takes another number of arguments");
                        return Err(at.bad_operands(&help));
                    }
                    _ => {
                        let (line, name) = (at.inst.line, prototype.clone());
                        return Err(LoadError::Undeclared { line, name });
                    }
                }
                Callee::Address(self.register_of(at, name, Class::Wide)?)
            }
            (None, None) => {
                return Err(LoadError::Undeclared { line: at.inst.line, name: name.to_owned() });
            }
        };
        let next = self.new_block();
        self.finish(Terminator::Call { callee, arguments, returns, next }, at.inst.line, true);
        self.current = next;
        Ok(())
    }

    /// The variables that a call names, in the frame of the caller.
    fn pieces(&self, at: &Context<'_>, operands: &[Operand]) -> Result<Vec<Piece>> {
        let piece = |operand: &Operand| {
            let binding = match operand {
                Operand::Name(name) => self.find(name),
                _ => None,
            };
            match binding {
                Some(Binding::Variable { space: Space::Local, address, bytes }) => Ok(Piece {
                    at: (address - u64::from(LOCAL_BASE)) as u32,
                    bytes: bytes.unwrap_or(0) as u32,
                }),
                _ => Err(at.bad_operands("arguments of calls are `.param` variables of the body")),
            }
        };
        operands.iter().map(piece).collect()
    }

    /// `brx.idx`: a comparison and a branch for each label, until one is the lane's.
    pub(super) fn brx(&mut self, at: &mut Context<'_>) -> Result<()> {
        at.take("uni");
        if !at.take("idx") {
            return Err(at.unsupported("only the `.idx` form exists"));
        }
        let [index, Operand::Name(list)] = at.operands()? else {
            return Err(at.bad_operands("it takes an index and a list of labels"));
        };
        let line = at.inst.line;
        let index = self.src(at, index, Ty::U32)?;
        let labels = match self.find(list) {
            Some(Binding::BranchTargets(targets)) => self.branch_targets[targets],
            _ => return Err(LoadError::Undeclared { line, name: list.clone() }),
        };
        let raw = Field::Raw;
        let fields = [raw(0), Field::Use(index), raw(0), raw(0), raw(labels.len() as u32), raw(0)];
        self.emit(at, pick_compact::<BranchIndex>(), fields).kind = InstKind::Check;
        for (number, label) in (0..).zip(labels) {
            let taken = match self.find(label) {
                Some(Binding::Label(target)) => target,
                _ => return Err(LoadError::Undeclared { line, name: label.clone() }),
            };
            if number as usize == labels.len() - 1 {
                self.finish(Terminator::Goto(taken), line, true);
                break;
            }
            let predicate = self.register(Class::Predicate);
            let number = self.narrow(number);
            let run = pick_compact::<SetP<alu::Eq<u32>>>();
            self.emit(at, run, setp_fields(predicate, index, number)).kind = InstKind::Check;
            let next = self.new_block();
            let end = Terminator::Branch { predicate, negated: false, taken, next };
            self.finish(end, line, false);
            self.current = next;
        }
        Ok(())
    }
}

/// Fails unless a function takes and returns variables of these sizes.
fn check_sizes(
    at: &Context<'_>,
    name: &str,
    function: &Function,
    given: [&[Piece]; 2],
) -> Result<()> {
    for (declared, given) in [&function.returns, &function.params].into_iter().zip(given) {
        if declared.len() != given.len() {
            return Err(at.bad_operands(&format!("`{name}` takes another number of arguments")));
        }
        let sizes = declared.iter().map(|variable| variable.element * variable.count.unwrap_or(0));
        if !sizes.eq(given.iter().map(|piece| u64::from(piece.bytes))) {
            return Err(at.bad_operands(&format!("`{name}` takes arguments of other sizes")));
        }
    }
    Ok(())
}
