//! Registers of products in flight: operations that look at who accesses them.

use std::collections::HashSet;

use super::ir::{Block, Field, Inst, InstKind, Ir, Terminator, V};
use crate::exec::check_product::CheckProductRegister;
use crate::exec::pick_compact;

/// Watches the registers `products` of `wgmma.mma_async` in all other instructions.
pub(super) fn watch(ir: &mut Ir, products: &[V]) {
    let products: HashSet<V> = products.iter().copied().collect();
    for Block { insts, end, .. } in &mut ir.blocks {
        for inst in std::mem::take(insts) {
            let (before, after) = match inst.kind {
                InstKind::Check
                | InstKind::CheckSharedLoad
                | InstKind::Product
                | InstKind::ProductWait => Default::default(),
                _ => around(&products, &inst),
            };
            insts.extend(before);
            insts.push(inst);
            insts.extend(after);
        }
        if let Terminator::Collective { inst, .. } = end {
            insts.extend(around(&products, inst).0);
        }
    }
}

/// The checks in front of an instruction, of what it reads, and behind it, of what it writes: there
/// the register has its slot already.
fn around(products: &HashSet<V>, inst: &Inst) -> (Vec<Inst>, Vec<Inst>) {
    let raw = Field::Raw;
    let check = |v: V| Inst {
        run: pick_compact::<CheckProductRegister>(),
        fields: [raw(0), Field::Use(v), raw(0), raw(0), raw(inst.line), raw(0)],
        extra: Vec::new(),
        parts: Vec::new(),
        line: inst.line,
        guard: inst.guard,
        kind: InstKind::Check,
    };
    let fields = inst.fields.iter().chain(&inst.extra).copied();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for field in fields {
        match field {
            Field::Use(v) | Field::Both(v) if products.contains(&v) => before.push(check(v)),
            Field::Def(v) if products.contains(&v) => after.push(check(v)),
            _ => {}
        }
    }
    (before, after)
}
