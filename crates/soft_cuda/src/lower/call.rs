//! Calls of functions, and branches by a table of labels.

use super::builtin::Builtin;
use super::compare::setp_fields;
use super::context::{Context, Result};
use super::index::CallSite;
use super::ir::{Callee, Class, Field, InstKind, Piece, Terminator};
use super::layout::bytes_of;
use super::lowering::Lowering;
use super::scopes::Binding;
use super::ty::{Kind, Ty};
use crate::error::LoadError;
use crate::exec::alu;
use crate::exec::code::places;
use crate::exec::lanes::SetP;
use crate::exec::machine::LOCAL_BASE;
use crate::exec::pick_compact;
use crate::exec::special::BranchIndex;
use crate::ptx::ast::{Function, Instruction, Operand, Space, Variable};

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
        let undeclared =
            |name: &str| Err(LoadError::Undeclared { line: at.inst.line, name: name.to_owned() });
        let function = self.index.function(name);
        let (named, formals) = match (function, prototype) {
            (Some(function), None) => (name, [&*function.returns, &*function.params]),
            (Some(_), Some(_)) => {
                return Err(at.bad_operands("only a call by an address takes a prototype"));
            }
            (None, Some(prototype)) => match self.find(prototype) {
                Some(Binding::Prototype(place)) => (prototype.as_str(), self.prototypes[place]),
                _ => return undeclared(prototype),
            },
            (None, None) => return undeclared(name),
        };
        if formals[0].len() != returns.len() || formals[1].len() != arguments.len() {
            return Err(at.bad_operands(&format!("`{named}` takes another number of arguments")));
        }
        let (mut given, mut taken, mut results) = (Vec::new(), Vec::new(), Vec::new());
        for (actual, formal) in arguments.iter().zip(formals[1]) {
            let (piece, is_variable) = self.piece(at, named, (actual, formal))?;
            if !is_variable {
                let value = self.src(at, actual, register_type(formal))?;
                self.transfer_piece(at, piece, Field::Use(value));
            }
            given.push(piece);
        }
        for (actual, formal) in returns.iter().zip(formals[0]) {
            let (piece, is_variable) = self.piece(at, named, (actual, formal))?;
            if !is_variable {
                results.push((piece, self.dst(at, actual, register_type(formal))?));
            }
            taken.push(piece);
        }
        if let Some(declared) = function.filter(|function| function.body.is_none()) {
            let Some(builtin) = Builtin::named(&declared.name) else {
                return Err(at.unsupported(&format!(
                    "`{name}` has no body in this module; link it in, or do not call it"
                )));
            };
            self.builtin(at, builtin, &given, &taken)?;
        } else {
            let callee = match function {
                Some(_) => Callee::Function(self.numbers[name]),
                None => Callee::Address(self.register_of(at, name, Class::Wide)?),
            };
            let next = self.new_block();
            let call = Terminator::Call { callee, arguments: given, returns: taken, next };
            self.finish(call, at.inst.line, true);
            self.current = next;
        }
        for (piece, register) in results {
            self.transfer_piece(at, piece, Field::Def(register));
        }
        Ok(())
    }

    /// Where in the caller's frame what a call gives or takes for `formal` lies, and whether that
    /// is the variable which the call names: registers and constants get a place of their own.
    fn piece(
        &mut self,
        at: &Context<'_>,
        callee: &str,
        (actual, formal): (&Operand, &Variable),
    ) -> Result<(Piece, bool)> {
        let found = match actual {
            Operand::Name(name) => self.find(name),
            _ => None,
        };
        let is_scalar = formal.count == Some(1) && formal.element <= 8;
        let (binding, is_variable) = match found {
            Some(Binding::Variable { space: Space::Local, .. }) => (found, true),
            Some(Binding::Variable { .. }) => (None, true),
            _ if is_scalar => (Some(self.place_local(formal)?), false),
            _ => (None, false),
        };
        let Some(Binding::Variable { address, bytes, .. }) = binding else {
            return Err(at.bad_operands(
                "arguments of calls are `.param` variables of the body; scalars may be registers",
            ));
        };
        let bytes = bytes.unwrap_or(0) as u32;
        if bytes != bytes_of(formal) {
            return Err(at.bad_operands(&format!("`{callee}` takes arguments of other sizes")));
        }
        Ok((Piece { at: (address - u64::from(LOCAL_BASE)) as u32, bytes }, is_variable))
    }

    /// Declares the results and parameters of `function` that are registers, and loads the
    /// parameters from its frame, when it `enters`. When it returns, stores the results there.
    pub(super) fn registers_of(&mut self, function: &'m Function, enters: bool) -> Result<()> {
        let line = function.line;
        let opcode = function.name.clone();
        let inst = Instruction { guard: None, opcode, operands: Vec::new(), line };
        let at = Context { inst: &inst, mods: Vec::new(), guard: None };
        let all = || function.returns.iter().chain(&function.params);
        for (i, (variable, place)) in all().zip(places(all().map(bytes_of))).enumerate() {
            if !variable.register {
                continue;
            }
            let (ty, name) = (register_type(variable), variable.name.as_str());
            if enters && !self.scopes.declare_registers(name, (None, 1), ty) {
                return Err(LoadError::Redeclared { line, name: name.to_owned() });
            }
            let is_result = i < function.returns.len();
            if is_result != enters {
                let v = self.register_of(&at, name, ty.class())?;
                let register = if enters { Field::Def(v) } else { Field::Use(v) };
                self.transfer_piece(&at, Piece { at: place, bytes: bytes_of(variable) }, register);
            }
        }
        Ok(())
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

/// The type of a register that a scalar parameter is passed in.
fn register_type(formal: &Variable) -> Ty {
    Ty { kind: Kind::Bits, bits: 8 * formal.element as u32 }
}
