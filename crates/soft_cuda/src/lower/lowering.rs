//! The state of lowering one kernel: blocks, registers and names so far.

use std::collections::{HashMap, HashSet};

use super::context::{Context, Result};
use super::index::Index;
use super::ir::{B, Block, Class, Field, Fixed, Inst, InstKind, Ir, Register, Terminator, V};
use super::scopes::{Binding, Scopes};
use super::shared::Shared;
use super::ty::Ty;
use super::words::Words;
use crate::checks::Checks;
use crate::error::LoadError;
use crate::exec::facts::Granule;
use crate::exec::{OpFn, Path};
use crate::globals::Declaration;
use crate::ptx::ast::{Module, Variable};

/// A block under construction.
#[derive(Default)]
pub(super) struct Open {
    pub(super) insts: Vec<Inst>,
    pub(super) end: Option<(Terminator, u32, bool)>,
}

/// The state of lowering one kernel, or one function of it.
pub(super) struct Lowering<'m> {
    pub(super) module: &'m Module,
    pub(super) index: Index<'m>,
    pub(super) path: Path,
    pub(super) registers: Vec<Register>,
    pub(super) fixed: HashMap<(Class, Fixed), V>,
    pub(super) blocks: Vec<Open>,
    pub(super) current: B,
    /// The block, if any, at whose beginning all lanes of a warp are together.
    pub(super) together: Option<B>,
    pub(super) scopes: Scopes<'m>,
    /// Registers of ranges, by the range's number and their own.
    pub(super) members: HashMap<(u32, u32), V>,
    /// Addresses of the shared variables that functions declare.
    pub(super) shared: &'m HashMap<Declaration<'m>, u64>,
    /// Bytes of local memory so far, and the largest alignment in it.
    pub(super) local: u64,
    pub(super) local_align: u64,
    /// The carry flag of `add.cc` and friends.
    pub(super) carry: Option<V>,
    /// The functions that the kernel may call, by name: their numbers.
    pub(super) numbers: &'m HashMap<&'m str, u32>,
    /// Whether this is the kernel itself.
    pub(super) entry: bool,
    /// The lists of `.branchtargets`.
    pub(super) branch_targets: Vec<&'m [String]>,
    /// The results and parameters of each `.callprototype`.
    pub(super) prototypes: Vec<[&'m [Variable]; 2]>,
    /// Whether there are bulk copies, which accesses must be ordered with.
    pub(super) bulk: bool,
    pub(super) checks: Checks,
    /// How many plain loads are checked.
    pub(super) checked_loads: u32,
    pub(super) granule: Granule,
    /// Names of registers, where reads of those that were not written are looked for.
    pub(super) names: HashMap<V, String>,
    /// Whether blocks may tell each other something through device memory.
    pub(super) communicates: bool,
    /// Whether there is a `malloc`.
    pub(super) allocates: bool,
    /// The registers of all `wgmma.mma_async`.
    pub(super) products: HashSet<V>,
    pub(super) words: Words<'m>,
}

impl<'m> Lowering<'m> {
    pub(super) fn new(
        index: Index<'m>,
        numbers: &'m HashMap<&'m str, u32>,
        shared: &'m Shared<'m>,
        (path, checks): (Path, Checks),
    ) -> Lowering<'m> {
        Lowering {
            module: index.module,
            index,
            path,
            registers: Vec::new(),
            fixed: HashMap::new(),
            blocks: vec![Open::default()],
            current: 0,
            together: None,
            scopes: Scopes::new(),
            members: HashMap::new(),
            shared: &shared.inner,
            local: 0,
            local_align: 0,
            carry: None,
            numbers,
            entry: true,
            branch_targets: Vec::new(),
            prototypes: Vec::new(),
            bulk: false,
            checks,
            checked_loads: 0,
            granule: Granule::LARGEST,
            names: HashMap::new(),
            communicates: false,
            allocates: false,
            products: HashSet::new(),
            words: Words::default(),
        }
    }

    pub(super) fn into_ir(self) -> Ir {
        let mut products: Vec<V> = self.products.into_iter().collect();
        products.sort_unstable();
        let blocks = self.blocks.into_iter().map(|block| {
            // A label at the very end of a body is followed by nothing.
            let (end, line, counted) = block.end.unwrap_or((Terminator::Exit, 0, false));
            let mut insts = block.insts;
            for wait in insts.iter_mut().filter(|inst| inst.kind == InstKind::ProductWait) {
                wait.extra = products.iter().map(|&v| Field::Use(v)).collect();
            }
            Block { insts, end, line, counted, dropped: 0 }
        });
        Ir { blocks: blocks.collect(), registers: self.registers }
    }

    pub(super) fn new_block(&mut self) -> B {
        self.blocks.push(Open::default());
        (self.blocks.len() - 1) as B
    }

    /// Ends the current block, if it has not ended yet.
    pub(super) fn finish(&mut self, end: Terminator, line: u32, counted: bool) {
        let block = &mut self.blocks[self.current as usize];
        if block.end.is_none() {
            block.end = Some((end, line, counted));
        }
    }

    /// Ends the current block and starts `next`.
    pub(super) fn start(&mut self, next: B, line: u32) {
        self.finish(Terminator::Goto(next), line, false);
        self.current = next;
    }

    pub(super) fn register(&mut self, class: Class) -> V {
        self.registers.push(Register { class, fixed: None });
        (self.registers.len() - 1) as V
    }

    pub(super) fn fixed(&mut self, class: Class, fixed: Fixed) -> V {
        let registers = &mut self.registers;
        *self.fixed.entry((class, fixed)).or_insert_with(|| {
            registers.push(Register { class, fixed: Some(fixed) });
            (registers.len() - 1) as V
        })
    }

    pub(super) fn constant(&mut self, ty: Ty, bits: u64) -> V {
        let (class, bits) = match ty.bits {
            64 => (Class::Wide, bits),
            width => (Class::Narrow, bits & (u64::MAX >> (64 - width))),
        };
        self.fixed(class, Fixed::Constant(bits))
    }

    pub(super) fn narrow(&mut self, bits: u32) -> V {
        self.fixed(Class::Narrow, Fixed::Constant(bits.into()))
    }

    /// Appends an operation to the current block.
    pub(super) fn emit(&mut self, at: &Context<'_>, run: OpFn, fields: [Field; 6]) -> &mut Inst {
        self.emit_extra(at, run, fields, Vec::new())
    }

    pub(super) fn emit_extra(
        &mut self,
        at: &Context<'_>,
        run: OpFn,
        fields: [Field; 6],
        extra: Vec<Field>,
    ) -> &mut Inst {
        if self.blocks[self.current as usize].end.is_some() {
            // Code after a jump that no label leads to.
            self.current = self.new_block();
        }
        let line = at.inst.line;
        let (parts, kind) = (Vec::new(), InstKind::Plain);
        let inst = Inst { run, fields, extra, parts, line, guard: at.guard, kind };
        let insts = &mut self.blocks[self.current as usize].insts;
        insts.push(inst);
        let last = insts.len() - 1;
        &mut insts[last]
    }

    /// Says what is special about the operation that was appended last.
    pub(super) fn mark(&mut self, kind: InstKind) {
        if let Some(inst) = self.blocks[self.current as usize].insts.last_mut() {
            inst.kind = kind;
        }
    }

    pub(super) fn declare(&mut self, name: &'m str, binding: Binding, line: u32) -> Result<()> {
        match self.scopes.declare(name, binding) {
            true => Ok(()),
            false => Err(LoadError::Redeclared { line, name: name.to_owned() }),
        }
    }
}
