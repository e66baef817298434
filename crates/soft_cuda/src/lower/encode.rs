//! Blocks of operations over virtual registers to decoded code.

use std::collections::HashMap;
use std::sync::Arc;

use super::graph::{self, Slots, TooIntricate};
use super::ir::{Block, Callee, Class, Field, Fixed, Inst, Ir, Terminator};
use crate::exec::code::{
    Barrier, Call, Code, Collective, Constant, End, Function, Initial, NO_RECONVERGENCE, Segment,
    Target, Wait,
};
use crate::exec::facts::Facts;
use crate::exec::machine::{FRAME_ALIGN, MAX_LOCAL};
use crate::exec::{Guarded, NO_SLOT, Op, pick_compact};

/// A kernel, or a function that it may call, over virtual registers.
pub(super) struct Body {
    pub name: String,
    /// Bytes of local memory that its variables take, and what they are aligned to.
    pub frame: u32,
    pub align: u32,
    /// Bytes of each result and parameter.
    pub sizes: [Vec<u32>; 2],
    pub ir: Ir,
}

/// Decodes bodies, the kernel's first.
pub(super) struct Encoder {
    code: Code,
    /// Of the body that is being decoded.
    slots: Slots,
    /// By register: whether anything reads it.
    read: Vec<bool>,
    first_block: u32,
    frame: u32,
    /// What frames are aligned to.
    align: u32,
    /// Which functions each function calls; `None` for one by its address.
    callees: Vec<Vec<Option<u32>>>,
}

impl Encoder {
    pub(super) fn new(text: Arc<[String]>, bodies: &[Body]) -> Encoder {
        let code = Code {
            segments: Vec::new(),
            ops: Vec::new(),
            lines: Vec::new(),
            guarded: Vec::new(),
            extra: Vec::new(),
            barriers: Vec::new(),
            collectives: Vec::new(),
            waits: Vec::new(),
            calls: Vec::new(),
            functions: Vec::new(),
            by_address: HashMap::new(),
            bulk: false,
            facts: Facts::none(),
            communicates: false,
            allocates: false,
            register_bytes: 0,
            predicates: 0,
            local_bytes: 0,
            own_local_bytes: 0,
            calls_deeper: false,
            text,
        };
        let slots = Slots { of: Vec::new(), bytes: 0, predicates: 0, entry: Vec::new() };
        let align = bodies.iter().map(|body| body.align).fold(FRAME_ALIGN, u32::max);
        let read = Vec::new();
        Encoder { code, slots, read, first_block: 0, frame: 0, align, callees: Vec::new() }
    }

    /// Decodes a body that lies at `address`.
    pub(super) fn function(&mut self, body: &Body, address: u64) -> Result<(), TooIntricate> {
        let ir = &body.ir;
        self.slots = graph::allocate(ir)?;
        let reconvergence = graph::reconvergence(ir)?;
        let (registers, predicates) = (self.code.register_bytes, self.code.predicates);
        let (all, all_predicates) =
            (registers + self.slots.bytes as usize, predicates + self.slots.predicates as usize);
        // Places are 32-bit offsets.
        if all > u32::MAX as usize {
            return Err(TooIntricate);
        }
        for (register, slot) in ir.registers.iter().zip(&mut self.slots.of) {
            *slot += match register.class {
                Class::Predicate => predicates as u32,
                _ => registers as u32,
            };
        }
        let mut initial = Initial::default();
        for (register, &slot) in ir.registers.iter().zip(&self.slots.of) {
            match register.fixed {
                Some(Fixed::Constant(bits)) => {
                    let wide = register.class == Class::Wide;
                    initial.constants.push(Constant { slot, wide, bits });
                }
                Some(Fixed::Special(special)) => initial.specials.push((slot, special)),
                None => {}
            }
        }
        for &v in &self.slots.entry {
            let slot = self.slots.of[v as usize];
            match ir.registers[v as usize].class {
                Class::Predicate => initial.zeroed_predicates.push(slot),
                class => initial.zeroed.push((slot, class == Class::Wide)),
            }
        }
        let written =
            ir.registers.iter().zip(&self.slots.of).filter(|(register, _)| {
                register.fixed.is_none() && register.class != Class::Predicate
            });
        let mut slots: Vec<(u32, bool)> =
            written.map(|(register, &slot)| (slot, register.class == Class::Wide)).collect();
        slots.sort_unstable();
        slots.dedup();
        let code = &mut self.code;
        self.first_block = code.segments.len() as u32;
        // Not empty, so that no function calls itself without end.
        self.frame = body.frame.max(1).next_multiple_of(self.align);
        code.by_address.insert(address, code.functions.len() as u32);
        code.functions.push(Function {
            name: body.name.clone(),
            entry: self.first_block,
            frame: body.frame.next_multiple_of(16),
            initial,
            slots,
            predicates: predicates..all_predicates,
            sizes: body.sizes.clone(),
        });
        (code.register_bytes, code.predicates) = (all, all_predicates);
        self.read = vec![false; ir.registers.len()];
        for block in &ir.blocks {
            let operands = block.insts.iter().flat_map(Inst::operands);
            for field in operands.chain(block.end.operands()) {
                if let Field::Use(v) | Field::Both(v) = field {
                    self.read[v as usize] = true;
                }
            }
        }
        self.callees.push(Vec::new());
        for (b, block) in ir.blocks.iter().enumerate() {
            let reconverge = reconvergence[b].map_or(NO_RECONVERGENCE, |at| self.pc(at));
            self.block(block, reconverge);
        }
        Ok(())
    }

    /// The code of all bodies.
    pub(super) fn finish(mut self) -> Code {
        // At least one, so that the pointer to a warp's predicates is never dangling.
        self.code.predicates = self.code.predicates.max(1);
        let own = self.code.functions.first().map_or(0, |kernel| kernel.frame);
        self.code.own_local_bytes = own;
        self.code.local_bytes = own;
        if self.code.functions.len() > 1 {
            (self.code.local_bytes, self.code.calls_deeper) = self.deepest();
        }
        self.code
    }

    /// Bytes of local memory that the kernel and those that it calls take, each of which once and
    /// by its name, and whether that is not all that it may call.
    fn deepest(&self) -> (u32, bool) {
        /// How far the search is with a function.
        #[derive(Clone, Copy, PartialEq)]
        enum Visit {
            New,
            Open,
            Done,
        }
        let mut states = vec![Visit::New; self.callees.len()];
        // With all that a function calls; while it is open, what its calls take so far.
        let mut bytes = vec![0u32; self.callees.len()];
        let mut open = vec![(0, 0)];
        let mut calls_deeper = false;
        while let Some((function, next)) = open.last_mut() {
            let function = *function;
            states[function] = Visit::Open;
            let own = self.code.functions[function].frame;
            let Some(callee) = self.callees[function].get(*next) else {
                let own = match self.callees[function].is_empty() {
                    true => own,
                    false => own.max(1).next_multiple_of(self.align),
                };
                bytes[function] = bytes[function].saturating_add(own);
                states[function] = Visit::Done;
                open.pop();
                continue;
            };
            let known = callee.map(|callee| callee as usize);
            match known.map(|callee| (callee, states[callee])) {
                Some((callee, Visit::New)) => open.push((callee, 0)),
                Some((callee, Visit::Done)) => {
                    *next += 1;
                    bytes[function] = bytes[function].max(bytes[callee]);
                }
                // By its address, or it calls itself.
                None | Some((_, Visit::Open)) => {
                    *next += 1;
                    calls_deeper = true;
                }
            }
        }
        (bytes[0].min(MAX_LOCAL), calls_deeper)
    }

    /// The segment of a block of this body.
    fn pc(&self, block: u32) -> u32 {
        self.first_block + block
    }
}

impl Encoder {
    fn field(&self, field: Field) -> u32 {
        match field {
            Field::Raw(value) => value,
            Field::Use(v) | Field::Def(v) | Field::Both(v) => self.slots.of[v as usize],
        }
    }

    fn op(&mut self, inst: &Inst) -> Op {
        let [mut d, a, b, c, mut x, y] = inst.fields.map(|field| self.field(field));
        if !inst.extra.is_empty() {
            x = self.code.extra.len() as u32;
            for &field in &inst.extra {
                let word = self.field(field);
                self.code.extra.push(word);
            }
        }
        if !inst.parts.is_empty() {
            let parts: Vec<Op> = inst.parts.iter().map(|part| self.op(part)).collect();
            d = self.code.guarded.len() as u32;
            self.code.guarded.extend(parts);
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
        for inst in &block.insts {
            let op = self.op(inst);
            self.code.ops.push(op);
            self.code.lines.push(inst.line);
        }
        let end = self.end(&block.end, reconverge);
        let instructions = block.insts.iter().map(Inst::instructions).sum::<u32>();
        self.code.segments.push(Segment {
            first,
            last: self.code.ops.len() as u32,
            instructions: instructions + block.dropped + u32::from(block.counted),
            line: block.line,
            end,
        });
    }

    fn end(&mut self, end: &Terminator, reconverge: u32) -> End {
        let slot = |v: u32| self.slots.of[v as usize];
        match end {
            Terminator::Goto(target) => End::Goto(self.pc(*target)),
            Terminator::Exit => End::Exit,
            Terminator::Trap => End::Trap,
            Terminator::Return => End::Return,
            &Terminator::Branch { predicate, negated, taken, next } => {
                let (taken, next) = (self.pc(taken), self.pc(next));
                End::Branch { predicate: slot(predicate), negated, taken, next, reconverge }
            }
            Terminator::Call { callee, arguments, returns, next } => {
                let (target, number) = match *callee {
                    Callee::Function(number) => (Target::Function(number), Some(number)),
                    Callee::Address(v) => (Target::Address(slot(v)), None),
                };
                if let Some(callees) = self.callees.last_mut() {
                    callees.push(number);
                }
                let (arguments, returns) = (arguments.clone(), returns.clone());
                let (frame, next) = (self.frame, self.pc(*next));
                self.code.calls.push(Call { target, frame, returns, arguments, next });
                End::Call((self.code.calls.len() - 1) as u32)
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
                    next: self.pc(next),
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
                    next: self.pc(next),
                });
                End::Wait((self.code.waits.len() - 1) as u32)
            }
            &Terminator::Collective { ref inst, members, kind, next } => {
                let members = slot(members);
                let collective =
                    Collective { op: self.op(inst), members, kind, next: self.pc(next) };
                self.code.collectives.push(collective);
                End::Collective((self.code.collectives.len() - 1) as u32)
            }
        }
    }
}
