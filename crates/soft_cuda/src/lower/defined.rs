//! Reads of registers that were not written: operations that watch them.

use std::collections::HashMap;

use super::ir::{B, Block, Class, Field, Inst, InstKind, Ir, Register, Terminator, V};
use crate::exec::check_register::CheckRegister;
use crate::exec::lanes::PredLogic;
use crate::exec::pick_compact;

/// Watches `registers`, which may be read before they are written: each gets a predicate that
/// says in which lanes it was. Adds their names, which are in `names`, to `found`.
pub(super) fn watch(
    ir: &mut Ir,
    registers: &[V],
    names: &HashMap<V, String>,
    found: &mut Vec<String>,
) {
    let mut watched = HashMap::new();
    for &v in registers {
        // Registers without a name are not the kernel's own.
        let Some(name) = names.get(&v) else { continue };
        ir.registers.push(Register { class: Class::Predicate, fixed: None });
        watched.insert(v, (found.len() as u32, (ir.registers.len() - 1) as V));
        found.push(name.clone());
    }
    if watched.is_empty() {
        return;
    }
    let mut results: Vec<(B, Vec<Inst>)> = Vec::new();
    for block in &mut ir.blocks {
        let Block { insts, end, line, .. } = block;
        for inst in std::mem::take(insts) {
            // A value that is moved to local memory may hold nothing, as a part of an `enum` does.
            let extra = if inst.kind == InstKind::StoreLocal { &[][..] } else { &inst.extra };
            let (before, after) = around(&watched, inst.fields.iter().chain(extra), &inst);
            insts.extend(before);
            insts.push(inst);
            insts.extend(after);
        }
        let plain = blank(*line);
        let (before, after) = match &*end {
            Terminator::Collective { inst, members, .. } => {
                let all = inst.fields.iter().chain(&inst.extra);
                around(&watched, all.chain([&Field::Use(*members)]), inst)
            }
            other => around(&watched, other.operands().iter(), &plain),
        };
        insts.extend(before);
        // What a terminator writes is there in the block behind it, which has no other way in.
        let next = end.successors().next().filter(|_| !after.is_empty());
        results.extend(next.map(|next| (next, after)));
    }
    for (block, marks) in results {
        ir.blocks[block as usize].insts.splice(0..0, marks);
    }
}

/// The checks in front of an operation with the fields `all`, and the notes behind it.
fn around<'a>(
    watched: &HashMap<V, (u32, V)>,
    all: impl Iterator<Item = &'a Field>,
    like: &Inst,
) -> (Vec<Inst>, Vec<Inst>) {
    let raw = Field::Raw;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let guard = like.guard.map(|(guard, _)| Field::Use(guard));
    // What it keeps alive it does not read.
    let reads = like.kind != InstKind::ProductWait;
    for field in all.copied().chain(guard) {
        if let Field::Use(v) | Field::Both(v) = field
            && let Some(&(name, written)) = watched.get(&v)
            && reads
        {
            let line = raw(like.line);
            let fields = [line, Field::Use(written), raw(0), raw(0), raw(name), raw(0)];
            let guard = match (like.kind, field, like.fields[3]) {
                // Accumulators are read where the product is added to them.
                (InstKind::Product, Field::Both(_), Field::Use(adds)) => Some((adds, false)),
                // A guard is read in all lanes.
                _ => like.guard.filter(|_| Some(field) != guard),
            };
            before.push(Inst {
                run: pick_compact::<CheckRegister>(),
                fields,
                guard,
                ..blank(like.line)
            });
        }
        if let Field::Def(v) | Field::Both(v) = field
            && let Some(&(_, written)) = watched.get(&v)
        {
            let fields = [Field::Def(written), raw(0), raw(0), raw(0), raw(6), raw(0)];
            let run = pick_compact::<PredLogic>();
            after.push(Inst { run, fields, guard: like.guard, ..blank(like.line) });
        }
    }
    (before, after)
}

/// A check at `line` that checks nothing yet.
fn blank(line: u32) -> Inst {
    let run = pick_compact::<CheckRegister>();
    let fields = [Field::Raw(0); 6];
    Inst {
        run,
        fields,
        extra: Vec::new(),
        parts: Vec::new(),
        line,
        guard: None,
        kind: InstKind::Check,
    }
}
