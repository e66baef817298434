//! What the inner loop of a register tile repeats, as few operations: loads from shared memory at
//! constant distances, and the FMAs that use them.
//!
//! Straight code of loads and FMAs alone becomes its loads and then its FMAs. The loads with one
//! address register become a [`SharedLoads`]. The FMAs become [`FmaTiles`]: chains, each of which
//! adds to one accumulator, and tiles of chains that share their factors as an outer product does.

use std::collections::{HashMap, HashSet};

use super::graph::{self, TooIntricate};
use super::ir::{Field, Fixed, Inst, InstKind, Ir, V};
use super::tiles::Chains;
use crate::exec::shared_loads::SharedLoads;
use crate::exec::{Path, pick};

/// The most loads that come before the FMAs that use them: each has a register of its own.
const LOADS: usize = 128;
/// The most FMAs of one operation.
const FMAS: usize = 1024;

/// Fuses the operations of a function.
pub(super) fn fuse(ir: &mut Ir, path: Path) -> Result<(), TooIntricate> {
    let of_interest = |inst: &Inst| matches!(inst.kind, InstKind::Fma | InstKind::LoadShared);
    if !ir.blocks.iter().flat_map(|block| &block.insts).any(of_interest) {
        return Ok(());
    }
    let facts = Registers::of(ir)?;
    for block in &mut ir.blocks {
        let mut straight = Straight::new(&facts, path);
        for mut inst in std::mem::take(&mut block.insts) {
            if inst.guard.is_none() {
                if matches!(inst.kind, InstKind::LoadShared | InstKind::CheckSharedLoad) {
                    facts.rebase(&mut inst);
                }
                if straight.takes(&inst) {
                    straight.push(inst);
                    continue;
                }
            }
            straight.finish(&mut block.insts);
            match inst.guard.is_none() && straight.takes(&inst) {
                true => straight.push(inst),
                false => block.insts.push(inst),
            }
        }
        straight.finish(&mut block.insts);
    }
    Ok(())
}

/// What is known of the registers of a function.
struct Registers {
    /// How often each is read, and how often it is written.
    uses: Vec<u32>,
    defs: Vec<u32>,
    /// The register that each is a constant more than.
    sums: Vec<Option<(V, u32)>>,
}

impl Registers {
    fn of(ir: &Ir) -> Result<Registers, TooIntricate> {
        let n = ir.registers.len();
        let mut all = Registers { uses: vec![0; n], defs: vec![0; n], sums: vec![None; n] };
        for block in &ir.blocks {
            let operands = block.insts.iter().flat_map(Inst::operands);
            for field in operands.chain(block.end.operands()) {
                match field {
                    Field::Use(v) => all.uses[v as usize] += 1,
                    Field::Def(v) => all.defs[v as usize] += 1,
                    Field::Both(v) => {
                        all.uses[v as usize] += 1;
                        all.defs[v as usize] += 1;
                    }
                    Field::Raw(_) => {}
                }
            }
        }
        // A register that is written in one place, which comes before all that reads it, is what
        // that place says wherever it is read, if the same holds of what it was computed from.
        let mut once: Vec<bool> = all.defs.iter().map(|&defs| defs == 1).collect();
        graph::allocate(ir)?.entry.iter().for_each(|&v| once[v as usize] = false);
        let fixed = |v: V| ir.registers[v as usize].fixed;
        let constant = |v: V| match fixed(v) {
            Some(Fixed::Constant(bits)) => Some(bits as u32),
            _ => None,
        };
        let stays = |v: V| once[v as usize] || fixed(v).is_some();
        for inst in ir.blocks.iter().flat_map(|block| &block.insts) {
            let sum = match (inst.kind, inst.fields) {
                (InstKind::Copy, [Field::Def(d), Field::Use(a), ..]) => Some((d, a, 0)),
                (InstKind::Add, [Field::Def(d), Field::Use(a), Field::Use(b), ..]) => {
                    let sum = |of: V, with: V| constant(with).map(|with| (d, of, with));
                    sum(a, b).or_else(|| sum(b, a))
                }
                _ => None,
            };
            if let Some((d, of, more)) = sum
                && inst.guard.is_none()
                && once[d as usize]
                && stays(of)
            {
                all.sums[d as usize] = Some((of, more));
            }
        }
        Ok(all)
    }

    /// Whether a register is written once and read once.
    fn passed_on(&self, v: V) -> bool {
        self.uses[v as usize] == 1 && self.defs[v as usize] == 1
    }

    /// Makes the address of a load a constant more than a register that is no such sum itself.
    fn rebase(&self, inst: &mut Inst) {
        let [_, Field::Use(mut base), _, _, Field::Raw(mut offset), _] = inst.fields else {
            return;
        };
        while let Some((of, more)) = self.sums[base as usize] {
            (base, offset) = (of, offset.wrapping_add(more));
        }
        (inst.fields[1], inst.fields[4]) = (Field::Use(base), Field::Raw(offset));
    }
}

/// Loads and FMAs without anything between them.
struct Straight<'r> {
    registers: &'r Registers,
    path: Path,
    /// Loads, with their checks in front of them.
    loads: Vec<Inst>,
    fmas: Vec<Inst>,
    /// What the loads write, what the FMAs write, and what either read.
    loaded: HashSet<V>,
    computed: HashSet<V>,
    bases: HashSet<V>,
    read: HashSet<V>,
}

impl<'r> Straight<'r> {
    fn new(registers: &'r Registers, path: Path) -> Straight<'r> {
        Straight {
            registers,
            path,
            loads: Vec::new(),
            fmas: Vec::new(),
            loaded: HashSet::new(),
            computed: HashSet::new(),
            bases: HashSet::new(),
            read: HashSet::new(),
        }
    }

    /// Whether an operation can be added: all loads may come before all FMAs, in any order.
    fn takes(&self, inst: &Inst) -> bool {
        let free = |v: V| !self.loaded.contains(&v) && !self.computed.contains(&v);
        match inst.kind {
            InstKind::Fma => {
                let [Field::Def(d), ..] = inst.fields else { return false };
                // A load that comes later in the text must not find it overwritten.
                !self.bases.contains(&d) && !self.loaded.contains(&d)
            }
            InstKind::CheckSharedLoad | InstKind::LoadShared => {
                let Field::Use(base) = inst.fields[1] else { return false };
                free(base)
                    && self.loads.len() < 2 * LOADS
                    && destinations(inst).all(|d| {
                        free(d) && d != base && !self.read.contains(&d) && !self.bases.contains(&d)
                    })
            }
            _ => false,
        }
    }

    fn push(&mut self, inst: Inst) {
        if inst.kind == InstKind::Fma {
            for field in inst.fields {
                match field {
                    Field::Def(v) => self.computed.insert(v),
                    Field::Use(v) => self.read.insert(v),
                    _ => continue,
                };
            }
            self.fmas.push(inst);
            return;
        }
        if let Field::Use(base) = inst.fields[1] {
            self.bases.insert(base);
        }
        self.loaded.extend(destinations(&inst));
        self.loads.push(inst);
    }

    /// Appends all operations to `to`, and forgets them.
    fn finish(&mut self, to: &mut Vec<Inst>) {
        self.fuse_loads(to);
        let mut rest = std::mem::take(&mut self.fmas);
        while !rest.is_empty() {
            let passed_on = |v: V| self.registers.passed_on(v);
            let chains = Chains::of(&rest[..rest.len().min(FMAS)], passed_on);
            let after = rest.split_off(chains.taken.max(1));
            match rest.len() {
                1 => to.append(&mut rest),
                _ => to.push(chains.fused(self.path, &rest)),
            }
            rest = after;
        }
        let sets = [&mut self.loaded, &mut self.computed, &mut self.bases, &mut self.read];
        sets.into_iter().for_each(HashSet::clear);
    }

    fn fuse_loads(&mut self, to: &mut Vec<Inst>) {
        // By address register, shape and alignment, in the order in which they come first.
        let mut numbers = HashMap::new();
        let mut groups: Vec<Vec<Inst>> = Vec::new();
        let mut check = None;
        for inst in std::mem::take(&mut self.loads) {
            if inst.kind == InstKind::CheckSharedLoad {
                // It belongs to the load behind it.
                to.extend(check.replace(inst));
                continue;
            }
            let count = destinations(&inst).count();
            let (Field::Use(base), Field::Raw(offset)) = (inst.fields[1], inst.fields[4]) else {
                to.extend(check.take());
                to.push(inst);
                continue;
            };
            let key = (base, count, offset % (4 * count as u32), check.is_some());
            let number = *numbers.entry(key).or_insert(groups.len());
            if number == groups.len() {
                groups.push(Vec::new());
            }
            groups[number].extend(check.take());
            groups[number].push(inst);
        }
        to.extend(check);
        for group in groups {
            let loads = || group.iter().filter(|inst| inst.kind == InstKind::LoadShared);
            if loads().count() < 2 {
                to.extend(group);
                continue;
            }
            to.push(self.shared_loads(group));
        }
    }

    /// Loads with one address register as one operation.
    fn shared_loads(&self, parts: Vec<Inst>) -> Inst {
        let loads: Vec<&Inst> =
            parts.iter().filter(|inst| inst.kind == InstKind::LoadShared).collect();
        let [first, ..] = loads[..] else { unreachable!("a group has two loads") };
        let count = destinations(first).count();
        let run = match count {
            1 => pick::<SharedLoads<1>>(self.path),
            2 => pick::<SharedLoads<2>>(self.path),
            _ => pick::<SharedLoads<4>>(self.path),
        };
        let raw = Field::Raw;
        let offset = |inst: &Inst| match inst.fields[4] {
            Field::Raw(offset) => offset as i32,
            _ => 0,
        };
        let least = loads.iter().map(|inst| offset(inst)).min().unwrap_or(0);
        let mut extra = Vec::new();
        for load in &loads {
            extra.push(raw(offset(load).wrapping_sub(least) as u32));
            extra.push(raw(load.line));
            extra.extend(destinations(load).map(Field::Def));
        }
        // Its lanes are read until all loads are done.
        let base = match first.fields[1] {
            Field::Use(base) => Field::Both(base),
            other => other,
        };
        let checked = parts.len() > loads.len();
        let (all, line) = (loads.len() as u32, first.line);
        let fields = [raw(0), base, raw(checked.into()), raw(all), raw(0), raw(least as u32)];
        let kind = InstKind::Fused(all);
        Inst { run, fields, extra, parts, line, guard: None, kind }
    }
}

/// The registers that a load writes.
fn destinations(inst: &Inst) -> impl Iterator<Item = V> + Clone + use<> {
    inst.fields.into_iter().filter_map(|field| match field {
        Field::Def(v) => Some(v),
        _ => None,
    })
}
