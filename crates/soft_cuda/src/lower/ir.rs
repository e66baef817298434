//! The form of a kernel between PTX and decoded operations: operations over
//! virtual registers, in basic blocks.

use crate::exec::OpFn;
pub(crate) use crate::exec::code::Piece;
use crate::exec::code::{BarrierKind, CollectiveKind, Special};

/// A virtual register: an index into [`Ir::registers`].
pub(crate) type V = u32;
/// A basic block: an index into [`Ir::blocks`].
pub(crate) type B = u32;

/// What a register holds, by the size of its lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// Up to 32 bits.
    Narrow,
    /// 64 bits.
    Wide,
    Predicate,
}

/// A virtual register.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Register {
    pub class: Class,
    pub fixed: Option<Fixed>,
}

/// A register that is never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fixed {
    Constant(u64),
    Special(Special),
}

/// One field of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Raw(u32),
    Use(V),
    Def(V),
    /// Read and written.
    Both(V),
}

/// An operation.
#[derive(Debug, Clone)]
pub(crate) struct Inst {
    pub run: OpFn,
    /// `d`, `a`, `b`, `c`, `x`, `y`.
    pub fields: [Field; 6],
    /// Further operands; if there are any, `x` becomes their place.
    pub extra: Vec<Field>,
    /// The operations that it stands for, one by one.
    pub parts: Vec<Inst>,
    pub line: u32,
    /// Runs only where the predicate is true (or false, if negated).
    pub guard: Option<(V, bool)>,
    pub kind: InstKind,
}

/// What is special about an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstKind {
    Plain,
    /// A plain `fma.rn.f32`, which may become part of a tile.
    Fma,
    /// A sum of 32-bit integers, of which one may be a constant.
    Add,
    /// A copy of a 32-bit register.
    Copy,
    /// A load of 32-bit elements from shared memory by a 32-bit address.
    LoadShared,
    /// A store to local memory, whose values are `extra`.
    StoreLocal,
    /// A check that stands for no PTX instruction.
    Check,
    /// That of a load from shared memory by a 32-bit address.
    CheckSharedLoad,
    /// So many instructions at once.
    Fused(u32),
    /// A `wgmma.mma_async`.
    Product,
    /// A `wgmma.wait_group`: the registers of all products live until there.
    ProductWait,
}

impl Inst {
    /// All fields that name registers.
    pub(crate) fn operands(&self) -> impl Iterator<Item = Field> {
        let guard = self.guard.map(|(v, _)| Field::Use(v));
        // A guarded write keeps the old value in the other lanes.
        let guarded = self.guard.is_some();
        let fields = self.fields.iter().chain(&self.extra).map(move |&field| match field {
            Field::Def(v) if guarded => Field::Both(v),
            field => field,
        });
        fields.chain(guard)
    }

    /// How many PTX instructions it stands for.
    pub(crate) fn instructions(&self) -> u32 {
        match self.kind {
            InstKind::Check | InstKind::CheckSharedLoad => 0,
            InstKind::Fused(all) => all,
            _ => 1,
        }
    }
}

/// What a call calls.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Callee {
    /// A function of the kernel, by its number.
    Function(u32),
    /// The function whose address a register holds.
    Address(V),
}

/// How a block ends.
#[derive(Debug, Clone)]
pub(crate) enum Terminator {
    Goto(B),
    Branch {
        predicate: V,
        negated: bool,
        taken: B,
        next: B,
    },
    Exit,
    Trap,
    /// From a function to its caller.
    Return,
    /// Of a function, with copies of the variables that pass arguments and results.
    Call {
        callee: Callee,
        arguments: Vec<Piece>,
        returns: Vec<Piece>,
        next: B,
    },
    Barrier {
        kind: BarrierKind,
        aligned: bool,
        id: V,
        count: Option<V>,
        dst: Option<V>,
        src: Option<(V, bool)>,
        next: B,
    },
    Collective {
        inst: Inst,
        members: V,
        kind: CollectiveKind,
        next: B,
    },
    /// `mbarrier.test_wait` and `mbarrier.try_wait`; the block has no operations.
    Wait {
        /// Register, whether it has 64 bits, offset, number of the space.
        address: (V, bool, u32, u32),
        phase: V,
        parity: bool,
        acquire: bool,
        dst: V,
        next: B,
    },
}

impl Terminator {
    pub(crate) fn successors(&self) -> impl Iterator<Item = B> {
        let (first, second) = match *self {
            Terminator::Goto(next)
            | Terminator::Barrier { next, .. }
            | Terminator::Collective { next, .. }
            | Terminator::Call { next, .. }
            | Terminator::Wait { next, .. } => (Some(next), None),
            Terminator::Branch { taken, next, .. } => (Some(taken), Some(next)),
            Terminator::Exit | Terminator::Trap | Terminator::Return => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// All registers it reads or writes.
    pub(crate) fn operands(&self) -> Vec<Field> {
        match self {
            Terminator::Branch { predicate, .. } => vec![Field::Use(*predicate)],
            Terminator::Barrier { id, count, dst, src, .. } => {
                let uses = [Some(*id), *count, src.map(|(v, _)| v)].into_iter().flatten();
                uses.map(Field::Use).chain(dst.map(Field::Def)).collect()
            }
            Terminator::Collective { inst, members, .. } => {
                inst.operands().chain([Field::Use(*members)]).collect()
            }
            Terminator::Wait { address, phase, dst, .. } => {
                vec![Field::Use(address.0), Field::Use(*phase), Field::Def(*dst)]
            }
            Terminator::Call { callee: Callee::Address(v), .. } => vec![Field::Use(*v)],
            Terminator::Goto(_)
            | Terminator::Exit
            | Terminator::Trap
            | Terminator::Return
            | Terminator::Call { .. } => Vec::new(),
        }
    }
}

/// A basic block.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub insts: Vec<Inst>,
    pub end: Terminator,
    /// PTX line of the terminator.
    pub line: u32,
    /// Whether the terminator stands for a PTX instruction.
    pub counted: bool,
    /// How many PTX instructions are not in `insts`, since nothing needs them.
    pub dropped: u32,
}

/// A kernel, or a function. Block 0 is the entry.
#[derive(Debug, Default)]
pub(crate) struct Ir {
    pub registers: Vec<Register>,
    pub blocks: Vec<Block>,
}
