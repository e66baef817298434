//! The words of which a function's atomics access parts, as its text shows them.

use std::collections::{HashMap, HashSet};

use super::ir::V;
use crate::ptx::ast::{Instruction, Operand, Statement};

/// An address operand as it stands in the text.
type Place<'m> = (Option<&'m str>, i64);

/// What is known of the words of a function before its instructions are lowered.
#[derive(Default)]
pub(super) struct Words<'m> {
    /// Registers that always hold an address rounded down, which atomics of words use.
    pub(super) rounded: HashSet<&'m str>,
    /// Where there is an `atom.cas`.
    pub(super) compared: HashSet<Place<'m>>,
    /// By such a register: another one, with what was taken from the address.
    pub(super) low: HashMap<V, V>,
}

/// The operation of an `atom` or `red` that may leave bytes of a word as they are.
fn operation(inst: &Instruction) -> Option<&str> {
    let mut parts = inst.opcode.split('.');
    let atomic = matches!(parts.next(), Some("atom" | "red"));
    parts.find(|part| atomic && ["cas", "and", "or", "xor"].contains(part))
}

/// The bits that `and` takes from an address of `bits` bits to round it down to a word, if it does.
pub(super) fn taken(inst: &Instruction, bits: u32) -> Option<u64> {
    let [Operand::Name(_), _, Operand::Int(mask)] = inst.operands.as_slice() else { return None };
    let taken = !(*mask as u64) & (u64::MAX >> (64 - bits));
    (inst.opcode == format!("and.b{bits}") && (1..=3).contains(&taken)).then_some(taken)
}

fn place(inst: &Instruction) -> Option<Place<'_>> {
    inst.operands.iter().find_map(|operand| match operand {
        Operand::Address(base, offset) => Some((base.as_deref(), *offset)),
        _ => None,
    })
}

/// Calls `f` with each register that an operand names.
fn each_name<'m>(operand: &'m Operand, f: &mut impl FnMut(&'m str)) {
    match operand {
        Operand::Name(name) => f(name),
        Operand::Vector(all) => all.iter().for_each(|one| each_name(one, f)),
        Operand::Pair(one, other) => [one, other].into_iter().for_each(|one| each_name(one, f)),
        _ => {}
    }
}

impl<'m> Words<'m> {
    /// Those of a function body.
    pub(super) fn of(statements: &'m [Statement]) -> Words<'m> {
        let instructions = || {
            statements.iter().filter_map(|statement| match statement {
                Statement::Instruction(inst) => Some(inst),
                _ => None,
            })
        };
        let mut words = Words::default();
        for inst in instructions() {
            let (Some(operation), Some(place)) = (operation(inst), place(inst)) else { continue };
            words.rounded.extend(place.0);
            if operation == "cas" {
                words.compared.insert(place);
            }
        }
        if words.rounded.is_empty() {
            return words;
        }
        let mut defined = HashSet::new();
        for inst in instructions() {
            let rounds = [32, 64].into_iter().any(|bits| taken(inst, bits).is_some());
            if let Some(first) = inst.operands.first() {
                each_name(first, &mut |name| {
                    match rounds {
                        true => defined.insert(name),
                        false => words.rounded.remove(name),
                    };
                });
            }
        }
        words.rounded.retain(|name| defined.contains(name));
        words
    }
}
