//! A decoded kernel, ready to run.

use std::collections::HashMap;
use std::ops::Range;

use super::facts::Facts;
use super::op::Op;

/// Stands for "the lanes do not reconverge before they exit".
pub(crate) const NO_RECONVERGENCE: u32 = u32::MAX;

/// A decoded kernel. Program counters are indices into `segments`.
pub(crate) struct Code {
    pub segments: Vec<Segment>,
    pub ops: Vec<Op>,
    /// PTX line of each of `ops`.
    pub lines: Vec<u32>,
    /// Operations behind a guard, see [`super::op::Guarded`].
    pub guarded: Vec<Op>,
    /// Further operands, see [`super::op::Cx::extra`].
    pub extra: Vec<u32>,
    pub barriers: Vec<Barrier>,
    pub collectives: Vec<Collective>,
    pub waits: Vec<Wait>,
    pub calls: Vec<Call>,
    /// The kernel, and the functions that it may call.
    pub functions: Vec<Function>,
    /// Which of `functions` lies at an address.
    pub by_address: HashMap<u64, u32>,
    /// Whether there are bulk copies, which accesses must be ordered with.
    pub bulk: bool,
    /// Bytes of one warp's register file.
    pub register_bytes: usize,
    /// Predicate registers of one warp.
    pub predicates: usize,
    /// Bytes of local memory per thread, as far as they are known, and those of them that are the
    /// kernel's own.
    pub local_bytes: u32,
    pub own_local_bytes: u32,
    /// Whether calls may take more than that: functions call each other in a circle, or by their
    /// address.
    pub calls_deeper: bool,
    /// PTX text by line, for messages.
    pub text: std::sync::Arc<[String]>,
    pub facts: Facts,
    /// Whether blocks may tell each other something through device memory.
    pub communicates: bool,
    /// Whether it allocates by `malloc`.
    pub allocates: bool,
}

/// A register slot that holds a constant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Constant {
    pub slot: u32,
    pub wide: bool,
    pub bits: u64,
}

/// A special register that keeps its value for the life of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    ClusterId(u8),
    NClusterId(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterCtaRank,
    ClusterNctaRank,
    LaneId,
    WarpId,
    NWarpId,
    /// See [`super::special::lane_mask`].
    LaneMask(u8),
    SmId,
    NSmId,
    GridId,
    DynamicShared,
    TotalShared,
    AggregateShared,
}

/// Operations without branches, and what comes after them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub first: u32,
    pub last: u32,
    /// PTX instructions, the one in `end` included.
    pub instructions: u32,
    /// PTX line of the instruction in `end`.
    pub line: u32,
    pub end: End,
}

/// How a segment ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Goto(u32),
    Branch {
        predicate: u32,
        negated: bool,
        taken: u32,
        next: u32,
        reconverge: u32,
    },
    Exit,
    Trap,
    /// Index into [`Code::barriers`].
    Barrier(u32),
    /// Index into [`Code::collectives`].
    Collective(u32),
    /// Index into [`Code::waits`]. The segment has no operations.
    Wait(u32),
    /// Index into [`Code::calls`].
    Call(u32),
    /// From a function to its caller.
    Return,
}

/// A variable that passes an argument or a result of a call: its place in the frame of the
/// caller, and its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub at: u32,
    pub bytes: u32,
}

/// What the registers of a function hold at the beginning.
#[derive(Debug, Clone, Default)]
pub(crate) struct Initial {
    /// Register slots with the same value in all lanes of all warps.
    pub constants: Vec<Constant>,
    pub specials: Vec<(u32, Special)>,
    /// Registers that may be read before they are written, and whether they
    /// are wide: zeroed so that results do not depend on the block before.
    pub zeroed: Vec<(u32, bool)>,
    pub zeroed_predicates: Vec<u32>,
}

/// A function. Its local variables lie in a frame of the thread's stack, results and parameters
/// first; its registers are its own, and are saved where it is called while it runs.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub name: String,
    /// Its first segment.
    pub entry: u32,
    /// Bytes of its frame.
    pub frame: u32,
    /// What its registers hold at the beginning.
    pub initial: Initial,
    /// The slots of its registers that are written, and whether they are wide.
    pub slots: Vec<(u32, bool)>,
    /// Its predicates.
    pub predicates: Range<usize>,
    /// Bytes of each result and parameter.
    pub sizes: [Vec<u32>; 2],
}

/// What a call calls.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// Index into [`Code::functions`].
    Function(u32),
    /// Register slot of the address.
    Address(u32),
}

/// A `call` instruction.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub target: Target,
    /// Bytes of the caller's frame.
    pub frame: u32,
    pub returns: Vec<Piece>,
    pub arguments: Vec<Piece>,
    pub next: u32,
}

/// Where results and then parameters of these sizes lie in the frame of the function.
pub(crate) fn places(
    sizes: impl Iterator<Item = u32> + Clone,
) -> impl Iterator<Item = u32> + Clone {
    // As much as the largest access wants.
    const ALIGN: u32 = 16;
    sizes.scan(0, |at: &mut u32, bytes| {
        let place = *at;
        *at = (place + bytes).next_multiple_of(ALIGN);
        Some(place)
    })
}

/// What a barrier does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    /// Counts the true predicates into a register slot.
    Popc,
    /// Ands or ors the predicates into a predicate.
    And,
    Or,
    /// Waits for the other warps of the warpgroup.
    Warpgroup,
    /// Arrives at the barrier of the cluster, with or without release semantics.
    ClusterArrive,
    ClusterArriveRelaxed,
    /// Waits at the barrier of the cluster.
    ClusterWait,
}

impl BarrierKind {
    /// Whether it is of the cluster, not of the block.
    pub(crate) fn is_of_cluster(self) -> bool {
        use BarrierKind::{ClusterArrive, ClusterArriveRelaxed, ClusterWait};
        matches!(self, ClusterArrive | ClusterArriveRelaxed | ClusterWait)
    }
}

/// A `bar`, `barrier` or `barrier.cluster` instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Barrier {
    pub kind: BarrierKind,
    /// All lanes of a warp must execute it together.
    pub aligned: bool,
    /// Register slot of the barrier's number; 0 for that of the cluster.
    pub id: u32,
    /// Register slot of the thread count, or [`super::machine::NO_SLOT`].
    pub count: u32,
    /// Destination and source predicate of a reduction.
    pub dst: u32,
    pub src: u32,
    pub negated: bool,
    pub next: u32,
}

/// An instruction that the lanes of a member mask execute together.
#[derive(Clone, Copy)]
pub(crate) struct Collective {
    pub op: Op,
    /// Register slot of the member mask.
    pub members: u32,
    pub kind: CollectiveKind,
    pub next: u32,
}

/// Which collective it is, with its qualifiers, and a mode by its number: lanes execute different
/// instructions of one kind together if they give the same member mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CollectiveKind {
    /// `bar.warp.sync`: the masks may differ.
    Barrier,
    Shuffle(u32),
    Vote(u32),
    /// Whether it is `.all`, and whether values have 64 bits.
    Match(bool, bool),
    Redux(u32),
    Elect,
    /// In front of an instruction that all lanes of a warp execute together: they go on as one
    /// split. Whether lanes that went around it are an error at once.
    Whole {
        strict: bool,
    },
}

/// A `mbarrier.test_wait` or `mbarrier.try_wait` instruction.
///
/// Both may say "not yet", and both wait here as long as another thread of the
/// block can run: a loop around them takes no time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    /// Address slot, whether it has 64 bits, offset, and number of the space.
    pub address: (u32, bool, u32),
    pub space: u32,
    /// Slot of what to wait for, a phase's parity or, in 64 bits, a state.
    pub phase: u32,
    pub parity: bool,
    /// Whether what happened before the arrivals comes before what follows.
    pub acquire: bool,
    /// Predicate "the phase is complete".
    pub dst: u32,
    /// Nothing reads that predicate.
    pub ignored: bool,
    pub next: u32,
}
