//! Blocks of operations over virtual registers to decoded code.

use std::sync::Arc;

use super::graph::{self, Slots, TooIntricate};
use super::ir::{Block, Class, Field, Fixed, Inst, InstKind, Ir, Terminator};
use crate::exec::code::{
    Barrier, Code, Collective, Constant, End, Granule, NO_RECONVERGENCE, Segment, Wait,
};
use crate::exec::fma::FmaRun;
use crate::exec::{Guarded, NO_SLOT, Op, Path, pick, pick_compact};

/// Decodes `ir`.
pub(super) fn encode(
    ir: &Ir,
    local_bytes: u32,
    path: Path,
    text: Arc<[String]>,
) -> Result<Code, TooIntricate> {
    let slots = graph::allocate(ir)?;
    let reconvergence = graph::reconvergence(ir)?;
    let mut code = Code {
        segments: Vec::new(),
        ops: Vec::new(),
        lines: Vec::new(),
        guarded: Vec::new(),
        extra: Vec::new(),
        barriers: Vec::new(),
        collectives: Vec::new(),
        waits: Vec::new(),
        bulk: false,
        copies: false,
        register_bytes: slots.bytes as usize,
        // At least one, so that the pointer to a warp's predicates is never dangling.
        predicates: slots.predicates.max(1) as usize,
        constants: Vec::new(),
        specials: Vec::new(),
        zeroed: Vec::new(),
        zeroed_predicates: Vec::new(),
        local_bytes,
        text,
        variables: Vec::new(),
        granule: Granule::LARGEST,
        watched: Vec::new(),
        communicates: false,
    };
    for (register, &slot) in ir.registers.iter().zip(&slots.of) {
        match register.fixed {
            Some(Fixed::Constant(bits)) => {
                let wide = register.class == Class::Wide;
                code.constants.push(Constant { slot, wide, bits });
            }
            Some(Fixed::Special(special)) => code.specials.push((slot, special)),
            None => {}
        }
    }
    for &v in &slots.entry {
        let slot = slots.of[v as usize];
        match ir.registers[v as usize].class {
            Class::Predicate => code.zeroed_predicates.push(slot),
            class => code.zeroed.push((slot, class == Class::Wide)),
        }
    }
    let mut read = vec![false; ir.registers.len()];
    for block in &ir.blocks {
        let operands = block.insts.iter().flat_map(Inst::operands);
        for field in operands.chain(block.end.operands()) {
            if let Field::Use(v) | Field::Both(v) = field {
                read[v as usize] = true;
            }
        }
    }
    let mut encoder = Encoder { code, slots, path, read };
    for (b, block) in ir.blocks.iter().enumerate() {
        encoder.block(block, reconvergence[b].unwrap_or(NO_RECONVERGENCE));
    }
    Ok(encoder.code)
}

struct Encoder {
    code: Code,
    slots: Slots,
    path: Path,
    /// By register: whether anything reads it.
    read: Vec<bool>,
}

impl Encoder {
    fn field(&self, field: Field) -> u32 {
        match field {
            Field::Raw(value) => value,
            Field::Use(v) | Field::Def(v) | Field::Both(v) => self.slots.of[v as usize],
        }
    }

    fn op(&mut self, inst: &Inst) -> Op {
        let [d, a, b, c, mut x, y] = inst.fields.map(|field| self.field(field));
        if !inst.extra.is_empty() {
            x = self.code.extra.len() as u32;
            for &field in &inst.extra {
                let word = self.field(field);
                self.code.extra.push(word);
            }
        }
        let op = Op { run: inst.run, d, a, b, c, x, y };
        let Some((predicate, negated)) = inst.guard else { return op };
        self.code.guarded.push(op);
        Op {
            run: pick_compact::<Guarded>(),
            d: 0,
            a: self.slots.of[predicate as usize],
            b: negated.into(),
            c: 0,
            x: (self.code.guarded.len() - 1) as u32,
            y: 0,
        }
    }

    fn block(&mut self, block: &Block, reconverge: u32) {
        let first = self.code.ops.len() as u32;
        let plain_fma = |inst: &Inst| inst.kind == InstKind::Fma && inst.guard.is_none();
        let mut rest = block.insts.as_slice();
        while let Some(inst) = rest.first() {
            let run = rest.iter().take_while(|inst| plain_fma(inst)).count();
            let (op, taken) =
                if run >= 2 { (self.fma_run(&rest[..run]), run) } else { (self.op(inst), 1) };
            self.code.ops.push(op);
            self.code.lines.push(inst.line);
            rest = &rest[taken..];
        }
        let end = self.end(&block.end, reconverge);
        let instructions = block.insts.iter().filter(|inst| inst.kind != InstKind::Check).count();
        self.code.segments.push(Segment {
            first,
            last: self.code.ops.len() as u32,
            instructions: instructions as u32 + u32::from(block.counted),
            line: block.line,
            end,
        });
    }

    fn fma_run(&mut self, insts: &[Inst]) -> Op {
        let x = self.code.extra.len() as u32;
        for inst in insts {
            let words = [0, 1, 2, 3].map(|i| self.field(inst.fields[i]));
            self.code.extra.extend(words);
        }
        let c = insts.len() as u32;
        Op { run: pick::<FmaRun>(self.path), d: 0, a: 0, b: 0, c, x, y: 0 }
    }

    fn end(&mut self, end: &Terminator, reconverge: u32) -> End {
        let slot = |v: u32| self.slots.of[v as usize];
        match end {
            Terminator::Goto(target) => End::Goto(*target),
            Terminator::Exit => End::Exit,
            Terminator::Trap => End::Trap,
            &Terminator::Branch { predicate, negated, taken, next } => {
                End::Branch { predicate: slot(predicate), negated, taken, next, reconverge }
            }
            &Terminator::Barrier { kind, aligned, id, count, dst, src, next } => {
                let barrier = Barrier {
                    kind,
                    aligned,
                    id: slot(id),
                    count: count.map_or(NO_SLOT, slot),
                    dst: dst.map_or(NO_SLOT, slot),
                    src: src.map_or(0, |(v, _)| slot(v)),
                    negated: src.is_some_and(|(_, negated)| negated),
                    next,
                };
                self.code.barriers.push(barrier);
                End::Barrier((self.code.barriers.len() - 1) as u32)
            }
            &Terminator::Wait { address, phase, parity, acquire, dst, next } => {
                let (base, wide, offset, space) = address;
                self.code.waits.push(Wait {
                    address: (slot(base), wide, offset),
                    space,
                    phase: slot(phase),
                    parity,
                    acquire,
                    dst: slot(dst),
                    ignored: !self.read[dst as usize],
                    next,
                });
                End::Wait((self.code.waits.len() - 1) as u32)
            }
            Terminator::Collective { inst, members, anywhere, next } => {
                let members = slot(*members);
                let op = self.op(inst);
                let collective = Collective { op, members, anywhere: *anywhere, next: *next };
                self.code.collectives.push(collective);
                End::Collective((self.code.collectives.len() - 1) as u32)
            }
        }
    }
}
