//! What a kernel did wrong, said in one sentence each.

use std::fmt;

use ptx_syntax::source::Place as SourcePlace;

pub use crate::earlier::Earlier;
use crate::error::{MemoryCall, Place};
pub use crate::space::{Access, AddressSpace};
use crate::tensor::TensorElement;

/// A kernel that broke a rule: where, who, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kernel.
    pub kernel: String,
    /// Line of the PTX text, from 1.
    pub line: u32,
    /// That line of the text, trimmed, and cut with an ellipsis where it is long.
    pub instruction: String,
    /// The line of the source that it comes from, if the PTX says so (`.loc`).
    pub source: Option<SourcePlace>,
    /// Block index: x, y, z.
    pub block: [u32; 3],
    /// Thread index in the block: x, y, z. For a fault of several threads, the first of them.
    pub thread: [u32; 3],
    /// What happened.
    pub kind: FaultKind,
}

/// What a kernel did wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside of every live allocation.
    OutOfBounds {
        /// Address as the thread used it.
        address: u64,
        /// Bytes accessed.
        bytes: u32,
        /// Load, store or atomic.
        access: Access,
        /// The state space named by the instruction.
        space: AddressSpace,
        /// Where the address lies.
        place: Place,
    },
    /// An access inside an allocation that was freed.
    UseAfterFree {
        /// Address as the thread used it.
        address: u64,
        /// Bytes accessed.
        bytes: u32,
        /// Load, store or atomic.
        access: Access,
        /// Base address the allocation had.
        base: u64,
        /// Bytes it had.
        size: u64,
        /// The call that allocated it.
        allocated: MemoryCall,
        /// The call that freed it.
        freed: MemoryCall,
    },
    /// An address that is not a multiple of the access size.
    Misaligned {
        /// Address as the thread used it.
        address: u64,
        /// Bytes accessed, which is also the alignment needed.
        bytes: u32,
        /// Load, store or atomic.
        access: Access,
        /// The state space named by the instruction.
        space: AddressSpace,
    },
    /// A store to read-only memory, such as kernel parameters.
    ReadOnly {
        /// Address as the thread used it.
        address: u64,
        /// The state space named by the instruction.
        space: AddressSpace,
    },
    /// An atomic whose generic address lies in local memory, which PTX leaves undefined.
    LocalAtomic {
        /// The generic address.
        address: u64,
    },
    /// Threads of one warp that must execute the same barrier or warp-wide
    /// instruction together did not.
    BarrierDivergence {
        /// Where each group of threads of the warp stands.
        waiting: Vec<Waiting>,
    },
    /// No thread of the block can go on.
    Deadlock {
        /// Where each group of threads of the block stands.
        waiting: Vec<Waiting>,
    },
    /// Two accesses of the same shared memory, at least one of them a bulk copy,
    /// that nothing orders. The GPU may do either first, or both at once.
    Race {
        /// Where, as an address of shared memory.
        address: u64,
        /// How this thread accessed it.
        access: Access,
        /// The earlier access.
        other: Access,
        /// The warp it was made by, by index in the block.
        other_warp: u32,
        /// Its PTX line.
        other_line: u32,
    },
    /// Two accesses of the same memory, at least one of them a write, that nothing orders.
    DataRace {
        /// The state space.
        space: AddressSpace,
        /// Where, as an address of that space.
        address: u64,
        /// The same place as a variable or an allocation, and the byte in it.
        place: String,
        /// How this thread accessed it.
        access: Access,
        /// The other access, which came earlier here.
        earlier: Box<Earlier>,
    },
    /// A read of memory that nobody wrote.
    Uninitialised {
        /// The state space.
        space: AddressSpace,
        /// Where, as an address of that space.
        address: u64,
        /// Bytes read.
        bytes: u32,
        /// As in [`FaultKind::DataRace`].
        place: String,
    },
    /// A read of a register that the thread did not write.
    UninitialisedRegister {
        /// Its name.
        register: String,
    },
    /// A write to shared memory that belongs to no variable.
    NoVariable {
        /// Where, as an address of shared memory.
        address: u64,
        /// Bytes accessed.
        bytes: u32,
        /// Store, atomic or copy.
        access: Access,
        /// As in [`FaultKind::DataRace`].
        place: String,
    },
    /// A load through the read-only cache (`ld.global.nc`), and a write of the same bytes in the
    /// same launch.
    ReadOnlyCache {
        /// Where.
        address: u64,
        /// As in [`FaultKind::DataRace`].
        place: String,
        /// How this thread accessed it.
        access: Access,
        /// The other access, which came earlier here.
        earlier: Box<Earlier>,
    },
    /// An asynchronous access of shared memory, by a bulk copy or `wgmma`, and an access of the
    /// same bytes by a thread before it, without a `fence.proxy.async` between the two.
    MissingProxyFence {
        /// Where, as an address of shared memory.
        address: u64,
        /// As in [`FaultKind::DataRace`].
        place: String,
        /// How this instruction accesses it.
        access: Access,
        /// The other access.
        earlier: Box<Earlier>,
    },
    /// A bulk copy from shared memory whose thread did not wait until it had read that: the block
    /// may end before. The copy happened.
    MissingWait {
        /// What it reads, as an address of shared memory.
        address: u64,
    },
    /// A member mask with which the instruction is undefined.
    BadMask {
        /// The mask.
        mask: u32,
        /// What is wrong with it.
        reason: String,
    },
    /// An instruction that all warps of a warpgroup must execute, and that one did not.
    WarpgroupDivergence {
        /// The warp, by index in the block.
        warp: u32,
    },
    /// A matrix instruction used wrongly.
    BadMatrix {
        /// What is wrong.
        reason: String,
    },
    /// A tensor map that the software device did not encode, or one of another rank.
    BadTensorMap {
        /// Where it lies.
        address: u64,
        /// Dimensions of the tensor; `None` if there is no tensor map.
        rank: Option<u32>,
    },
    /// A tensor copy that begins where a GPU refuses it as an illegal instruction.
    TensorStart {
        /// The first coordinate.
        start: i32,
        /// Whether it is a store.
        store: bool,
    },
    /// A reduction of a tensor by an operation that PTX lacks for the type of the elements.
    TensorReduction {
        /// The operation's name in PTX.
        operation: &'static str,
        /// The type of the elements.
        element: TensorElement,
    },
    /// A bulk copy of a number of bytes that is not a multiple of 16.
    BulkSize {
        /// The bytes.
        bytes: u32,
    },
    /// A bulk copy from shared memory to shared memory of the same block, which an H200 refuses as
    /// an illegal instruction.
    BulkToOwnBlock {
        /// The destination.
        address: u64,
    },
    /// A barrier operand out of range, or an mbarrier used wrongly.
    BadBarrier {
        /// What is wrong.
        reason: String,
    },
    /// The launch executed more warp instructions than allowed.
    BudgetExceeded {
        /// The budget, in warp instructions.
        budget: u64,
    },
    /// The kernel executed `trap`.
    Trap,
    /// The kernel panicked: it executed `trap` after it had printed why, as the panic handler of
    /// `cuda_std` does.
    Panic {
        /// What it printed from the place on: `src/lib.rs:12:5:`, a new line, and the message.
        message: String,
    },
    /// The kernel called `__assertfail`.
    Assert {
        /// The assertion.
        message: String,
        /// Where it is.
        file: String,
        /// Its line there.
        line: u32,
        /// The function it is in.
        function: String,
    },
    /// An access of the shared memory of another block of the cluster, which has exited by then, or
    /// may have.
    ExitedBlock {
        /// Where, as an address of `.shared::cluster`.
        address: u64,
        /// How this thread accessed it.
        access: Access,
        /// The rank of the other block.
        rank: u32,
    },
    /// The rank of a block that the cluster does not have.
    BadRank {
        /// The rank.
        rank: u32,
        /// Blocks of the cluster.
        blocks: u32,
    },
    /// A `free` of an address that `malloc` did not return, or that was freed before.
    BadFree {
        /// The address.
        address: u64,
    },
    /// A call of an address that is no function, or one with other parameters.
    BadCall {
        /// The address.
        address: u64,
    },
    /// An index of `brx.idx` that is none of its labels'.
    BadBranch {
        /// The index.
        index: u32,
        /// How many labels there are.
        labels: u32,
    },
    /// A call for which the thread's stack has no room.
    StackOverflow {
        /// The function that was called.
        function: String,
        /// Bytes of the stack.
        bytes: u32,
    },
}

impl FaultKind {
    /// The other access, where there are two.
    pub fn earlier(&self) -> Option<&Earlier> {
        match self {
            FaultKind::DataRace { earlier, .. }
            | FaultKind::ReadOnlyCache { earlier, .. }
            | FaultKind::MissingProxyFence { earlier, .. } => Some(earlier),
            _ => None,
        }
    }
}

/// A group of threads of one warp, and the instruction it waits at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Warp index in the block.
    pub warp: u32,
    /// Bit i stands for lane i.
    pub lanes: u32,
    /// Line of the PTX text, from 1.
    pub line: u32,
    /// What the group waits for, in words.
    pub reason: String,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Waiting { warp, lanes, line, reason } = self;
        write!(f, "warp {warp} lanes {lanes:#010x} {reason} at line {line}")
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::OutOfBounds { address, bytes, access, space, place } => {
                write!(f, "{bytes}-byte {space} {access} out of bounds at {address:#x}: {place}")
            }
            &FaultKind::UseAfterFree { address, bytes, access, base, size, allocated, freed } => {
                let place = Place::Freed { base, size, allocated, freed };
                write!(f, "{bytes}-byte {access} after free at {address:#x}: {place}")
            }
            FaultKind::Misaligned { address, bytes, access, space } => write!(
                f,
                "{bytes}-byte {space} {access} at {address:#x}, which is not a multiple of {bytes}"
            ),
            FaultKind::ReadOnly { address, space } => {
                write!(f, "store to read-only {space} memory at {address:#x}")
            }
            FaultKind::LocalAtomic { address } => write!(
                f,
                "atomic on the thread's own local memory at {address:#x}: PTX defines atomics on global and shared memory alone; load and store instead where `isspacep.local` holds"
            ),
            FaultKind::BarrierDivergence { waiting } => {
                write!(f, "the threads of a warp must execute this instruction together: ")?;
                list(f, waiting)
            }
            FaultKind::Deadlock { waiting } => {
                write!(f, "deadlock, no thread of the block can go on: ")?;
                list(f, waiting)
            }
            FaultKind::Race { address, access, other, other_warp, other_line } => {
                let advice = match (access, other) {
                    (_, Access::Copy) => "wait for that copy's mbarrier first",
                    _ => "let that warp arrive at an mbarrier, and wait for it before the copy",
                };
                write!(
                    f,
                    "race on shared memory at {address:#x}: this {access} and the {other} by warp {other_warp} at line {other_line} are not ordered; {advice}"
                )
            }
            FaultKind::DataRace { space, address, place, access, earlier } => {
                let advice = earlier.advice();
                write!(
                    f,
                    "race on {space} memory at {address:#x} ({place}): this {access} and the {earlier} are not ordered{advice}"
                )
            }
            FaultKind::Uninitialised { space, address, bytes, place } => write!(
                f,
                "{bytes}-byte read of {space} memory at {address:#x} ({place}) that nothing has written"
            ),
            FaultKind::UninitialisedRegister { register } => {
                write!(f, "the thread has not written register `{register}`, which this reads")
            }
            FaultKind::NoVariable { address, bytes, access, place } => write!(
                f,
                "{bytes}-byte shared {access} at {address:#x}, where no variable is ({place})"
            ),
            FaultKind::ReadOnlyCache { address, place, access, earlier } => write!(
                f,
                "memory at {address:#x} ({place}) is read with `ld.global.nc` and written in the same launch: this {access} comes after the {earlier}"
            ),
            FaultKind::MissingProxyFence { address, place, access, earlier } => write!(
                f,
                "shared memory at {address:#x} ({place}): no `fence.proxy.async` comes between this asynchronous {} and the {earlier}",
                if *access == Access::Load { "load" } else { "store" }
            ),
            FaultKind::MissingWait { address } => write!(
                f,
                "the block may end while this bulk copy still reads its shared memory at {address:#x}; let the thread execute `cp.async.bulk.wait_group.read 0` before it exits"
            ),
            FaultKind::BadMask { mask, reason } => {
                write!(f, "bad member mask {mask:#010x}: {reason}")
            }
            FaultKind::WarpgroupDivergence { warp } => write!(
                f,
                "all warps of a warpgroup must execute this instruction, and warp {warp} did not"
            ),
            FaultKind::BadMatrix { reason } => write!(f, "bad matrix instruction: {reason}"),
            FaultKind::BadTensorMap { address, rank: None } => write!(
                f,
                "there is no tensor map of the software device at {address:#x}; encode one with cuTensorMapEncodeTiled for this device"
            ),
            FaultKind::BadTensorMap { address, rank: Some(rank) } => {
                write!(f, "the tensor map at {address:#x} has {rank} dimensions")
            }
            FaultKind::TensorStart { start, store: true } if *start < 0 => write!(
                f,
                "a tensor copy to device memory that begins {} elements before the rows of the tensor",
                start.unsigned_abs()
            ),
            FaultKind::TensorStart { start, .. } => write!(
                f,
                "a tensor copy that begins at element {start} of the rows, which is not a multiple of 16 bytes"
            ),
            FaultKind::TensorReduction { operation, element } => write!(
                f,
                "a reduction by `.{operation}` of a tensor whose elements are {}; `cp.reduce.async.bulk` has none for them",
                element.types()[0]
            ),
            FaultKind::BulkSize { bytes } => {
                write!(f, "a bulk copy of {bytes} bytes, which is not a multiple of 16")
            }
            FaultKind::BulkToOwnBlock { address } => write!(
                f,
                "a bulk copy from shared memory to {address:#x}, which is shared memory of the same block: an H200 stops here; take the destination from `mapa` for another block of the cluster, or copy by loads and stores"
            ),
            FaultKind::BadBarrier { reason } => write!(f, "bad barrier: {reason}"),
            FaultKind::BudgetExceeded { budget } => write!(
                f,
                "the launch ran more than {budget} warp instructions; the kernel may loop for ever, or the instruction budget is too small"
            ),
            FaultKind::Trap => write!(f, "the kernel executed a trap"),
            FaultKind::Panic { message } => write!(f, "panicked at {message}"),
            FaultKind::Assert { message, file, line, function } => {
                write!(f, "{file}:{line}: {function}: assertion `{message}` failed")
            }
            FaultKind::ExitedBlock { address, access, rank } => write!(
                f,
                "shared::cluster {access} at {address:#x}, which is shared memory of block {rank} of the cluster: that block may have exited by then; let a barrier of the cluster come after the access"
            ),
            FaultKind::BadRank { rank, blocks } => {
                write!(f, "block {rank} of a cluster that has {blocks}")
            }
            FaultKind::BadFree { address } => write!(
                f,
                "free of {address:#x}, which `malloc` did not return, or which was freed before"
            ),
            FaultKind::BadCall { address } => write!(
                f,
                "indirect call of {address:#x}, where no function with these parameters is"
            ),
            FaultKind::BadBranch { index, labels } => {
                write!(f, "indirect branch to label {index} of a list of {labels}")
            }
            FaultKind::StackOverflow { function, bytes } => write!(
                f,
                "stack overflow: calling `{function}` needs more than the {bytes} bytes of local memory of a thread; check its recursion, or raise CU_LIMIT_STACK_SIZE"
            ),
        }
    }
}

/// Writes the first few of `waiting`, and how many more there are.
fn list(f: &mut fmt::Formatter<'_>, waiting: &[Waiting]) -> fmt::Result {
    const SHOWN: usize = 8;
    for (i, one) in waiting.iter().take(SHOWN).enumerate() {
        write!(f, "{}{one}", if i == 0 { "" } else { ", " })?;
    }
    match waiting.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}
