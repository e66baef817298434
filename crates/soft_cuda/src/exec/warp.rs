//! One warp: which lanes are where, and when they reconverge.
//!
//! Lanes that diverge at a branch become separate *splits*, each
//! with its own program counter. A *node* remembers such a branch: its lanes
//! reconverge at the branch's immediate post-dominator, where each waits until the
//! others have come too or have exited. Any split that does not wait may run,
//! and they take turns at backward branches, so that lanes may wait for each
//! other in loops. Lanes that loop for long stop being waited for, and so do
//! those that cannot go on before the lanes that wait for them do.

use super::code::{Code, CollectiveKind, End, NO_RECONVERGENCE};
use super::machine::bits;
use super::mbarrier::{self, Waited};
use super::members::{Site, execute, member_masks};
use super::op::{Cx, Op};
use super::recorder::WarpFault;
use super::split::{Node, ROOT, Release, Split, State};
use crate::fault::FaultKind;

/// Backward branches after which other splits of the warp run.
const SPLIT_TURN: u32 = 16;
/// Backward branches, or runs of single splits, after which other warps of the block run.
const WARP_TURN: u32 = 2048;

/// Why a warp stopped running.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// All lanes have exited.
    Exited,
    /// Every split waits.
    Blocked,
    /// Its turn is over, or interrupted.
    Turn,
    /// It broke a rule.
    Fault(WarpFault),
}

/// Instructions executed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Executed {
    pub warp: u64,
    pub thread: u64,
}

/// What is left of a warp's turn.
#[derive(Debug)]
struct Turn {
    /// Backward branches.
    rounds: u32,
    /// Runs of single splits.
    runs: u32,
    /// The split to try next.
    at: usize,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn { rounds: WARP_TURN, runs: WARP_TURN, at: 0 }
    }
}

/// The lanes of one warp.
#[derive(Debug, Default)]
pub(crate) struct Warp {
    /// Lanes that have not exited.
    pub live: u32,
    pub splits: Vec<Split>,
    pub(super) nodes: Vec<Option<Node>>,
    /// By function: whether its registers hold in this block what they should at the beginning.
    pub(super) prepared: Vec<bool>,
    /// A whole turn, or the rest of one that was interrupted.
    turn: Turn,
}

impl Warp {
    /// Starts the warp at the kernel's entry.
    pub(crate) fn start(&mut self, mask: u32, code: &Code) {
        self.live = mask;
        self.splits.clear();
        self.nodes.clear();
        self.prepared.clear();
        self.prepared.resize(code.functions.len(), false);
        self.turn = Turn::default();
        self.splits.push(Split::new(0, mask, ROOT, 0));
    }

    /// Whether a split can run.
    pub(crate) fn ready(&self) -> bool {
        self.splits.iter().any(|s| s.state.can_run())
    }

    /// Gives splits that wait for an mbarrier another state. Returns whether
    /// there were any.
    pub(crate) fn end_waits(&mut self, state: State) -> bool {
        let mut any = false;
        for split in &mut self.splits {
            if matches!(split.state, State::Mbarrier(_)) {
                split.state = state;
                any = true;
            }
        }
        any
    }

    /// Runs until nothing can run or the turn is over, or interrupted after `slice` warp
    /// instructions: at the end of a loop's iteration, or, if `FINE`, at any branch.
    pub(crate) fn run<const FINE: bool>(
        &mut self,
        code: &Code,
        cx: &mut Cx<'_>,
        count: &mut Executed,
        slice: u64,
    ) -> Stop {
        let mut turn = std::mem::take(&mut self.turn);
        let end = count.warp + slice;
        // Lanes that diverge and reconverge in every iteration of a loop take no
        // backward branch together: the number of runs is bounded as well.
        while turn.runs > 0 {
            turn.runs -= 1;
            if self.splits.is_empty() {
                return Stop::Exited;
            }
            // The next ready split, in rotation.
            let n = self.splits.len();
            let Some(next) =
                (0..n).map(|i| (turn.at + i) % n).find(|&i| self.splits[i].state.can_run())
            else {
                match self.stand_still(code, cx) {
                    Ok(true) => continue,
                    Ok(false) => return Stop::Blocked,
                    Err(fault) => return Stop::Fault(fault),
                }
            };
            turn.at = next + 1;
            if let Err(fault) = self.run_split::<FINE>(next, code, cx, count, end, &mut turn.rounds)
            {
                return Stop::Fault(fault);
            }
            if turn.rounds == 0 {
                // Lanes that loop this long may wait for one that waits for
                // them to reconverge, as with a lock: let it go ahead.
                return match self.give_way(code, cx, Release::First) {
                    Ok(_) => Stop::Turn,
                    Err(fault) => Stop::Fault(fault),
                };
            }
            if count.warp >= end && self.ready() {
                self.turn = turn;
                return Stop::Turn;
            }
        }
        Stop::Turn
    }

    /// Runs split `at` until it stops, splits, exits, or its turn is over, or until an iteration of
    /// a loop ends behind warp instruction `end`, or, if `FINE`, until any branch there.
    fn run_split<const FINE: bool>(
        &mut self,
        at: usize,
        code: &Code,
        cx: &mut Cx<'_>,
        count: &mut Executed,
        end: u64,
        rounds: &mut u32,
    ) -> Result<(), WarpFault> {
        let Split { mut pc, mask, node, state, frame, .. } = self.splits[at];
        let mut expired = state == State::Expired;
        self.splits[at].state = State::Ready;
        let lanes = u64::from(mask.count_ones());
        let reconvergence = self.reconvergence(node);
        let mut split_turn = SPLIT_TURN;
        let alone = self.splits.len() == 1;
        (cx.mask, cx.frame) = (mask, frame);
        loop {
            let segment = &code.segments[pc as usize];
            for op in &code.ops[segment.first as usize..segment.last as usize] {
                // SAFETY: the operation was decoded for this kernel, whose
                // warp `cx` describes.
                if unsafe { (op.run)(cx, op) } {
                    return Err(operation_fault(code, cx, op));
                }
            }
            count.warp += u64::from(segment.instructions);
            count.thread += u64::from(segment.instructions) * lanes;
            let target = match segment.end {
                End::Goto(target) => target,
                End::Branch { predicate, negated, taken, next, reconverge } => {
                    // SAFETY: `predicate` is a predicate of this kernel.
                    let value = unsafe { cx.pred(predicate) };
                    let goes = mask & if negated { !value } else { value };
                    if goes == mask {
                        taken
                    } else if goes == 0 {
                        next
                    } else {
                        let paths = [(next, mask & !goes), (taken, goes)];
                        self.diverge(at, paths, reconverge, code);
                        return Ok(());
                    }
                }
                End::Exit => {
                    self.splits.swap_remove(at);
                    self.exit(mask, node);
                    return Ok(());
                }
                End::Trap => {
                    let lane = mask.trailing_zeros();
                    let kind = cx.printed.panic(cx.warp, lane).unwrap_or(FaultKind::Trap);
                    return Err(WarpFault { lane, line: segment.line, kind });
                }
                End::Call(index) => {
                    let line = segment.line;
                    let called = self.call(at, index, code, cx);
                    return called.map_err(|(lane, kind)| WarpFault { lane, line, kind });
                }
                End::Return => {
                    self.ret(at, code, cx);
                    return Ok(());
                }
                End::Barrier(index) => {
                    let split = &mut self.splits[at];
                    (split.pc, split.state) = (pc, State::Barrier(index));
                    return Ok(());
                }
                End::Collective(index) => {
                    let collective = &code.collectives[index as usize];
                    let whole = matches!(collective.kind, CollectiveKind::Whole { .. });
                    if whole && mask == self.live {
                        pc = collective.next;
                        continue;
                    }
                    let masks = member_masks(cx, collective);
                    if bits(mask).any(|lane| masks[lane] & self.live & !mask != 0) {
                        let split = &mut self.splits[at];
                        (split.pc, split.state) = (pc, State::Collective);
                        return Ok(());
                    }
                    let site = Site { collective, lanes: mask, line: segment.line };
                    execute(cx, &[site], &masks, self.live)?;
                    cx.mask = mask;
                    collective.next
                }
                End::Wait(index) => {
                    let wait = &code.waits[index as usize];
                    let give_up = std::mem::take(&mut expired);
                    // SAFETY: the wait was decoded for this kernel.
                    match unsafe { mbarrier::wait(cx, wait, give_up) } {
                        Ok(Waited::Over) => {
                            self.splits[at].tried = give_up;
                            wait.next
                        }
                        Ok(Waited::Blocked(barrier)) => {
                            let split = &mut self.splits[at];
                            if cx.checks.sync && !split.tried {
                                // A wait may say "not yet" whenever it likes.
                                expired = true;
                                continue;
                            }
                            (split.pc, split.state) = (pc, State::Mbarrier(barrier));
                            return Ok(());
                        }
                        Err((lane, kind)) => {
                            return Err(WarpFault { lane, line: segment.line, kind });
                        }
                    }
                }
            };
            if target == reconvergence {
                self.splits.swap_remove(at);
                self.arrive(node, mask);
                return Ok(());
            }
            if target <= pc {
                *rounds -= 1;
                split_turn -= 1;
                if *rounds == 0 || count.warp >= end || (split_turn == 0 && !alone) {
                    self.splits[at].pc = target;
                    return Ok(());
                }
                split_turn = split_turn.max(1);
            } else if FINE && count.warp >= end {
                self.splits[at].pc = target;
                return Ok(());
            }
            pc = target;
        }
    }

    fn reconvergence(&self, node: usize) -> u32 {
        self.nodes.get(node).and_then(Option::as_ref).map_or(NO_RECONVERGENCE, |n| n.reconverge)
    }

    /// Whether a node is a call: what comes to its place in other ways than by returning is in
    /// another activation of the same function.
    fn is_call(&self, node: usize) -> bool {
        self.nodes.get(node).and_then(Option::as_ref).is_some_and(|n| n.activation.is_some())
    }

    /// Replaces split `at` by one for each path.
    fn diverge(&mut self, at: usize, paths: [(u32, u32); 2], reconverge: u32, code: &Code) {
        let Split { mask, node: parent, frame, .. } = self.splits.swap_remove(at);
        let mut node = parent;
        if reconverge != NO_RECONVERGENCE && reconverge != self.reconvergence(parent) {
            node = self.add_node(Node::new(reconverge, parent, mask, frame));
        }
        for (pc, mask) in paths {
            let segment = &code.segments[pc as usize];
            if segment.end == End::Exit && segment.first == segment.last {
                self.exit(mask, node);
            } else if pc == self.reconvergence(node) {
                self.arrive(node, mask);
            } else {
                self.splits.push(Split::new(pc, mask, node, frame));
            }
        }
    }

    pub(super) fn add_node(&mut self, new: Node) -> usize {
        let node = self.nodes.iter().position(Option::is_none).unwrap_or(self.nodes.len());
        if node == self.nodes.len() {
            self.nodes.push(None);
        }
        self.nodes[node] = Some(new);
        node
    }

    /// Lanes have come to the place where the node's lanes reconverge.
    pub(super) fn arrive(&mut self, node: usize, mask: u32) {
        if let Some(Some(n)) = self.nodes.get_mut(node) {
            n.pending &= !mask;
            n.arrived |= mask;
            self.release(node);
        }
    }

    /// Lanes have exited: nobody waits for them any longer.
    fn exit(&mut self, mask: u32, mut node: usize) {
        self.live &= !mask;
        while let Some(Some(n)) = self.nodes.get_mut(node) {
            n.pending &= !mask;
            let parent = n.parent;
            self.release(node);
            node = parent;
        }
    }

    /// Lets a node's lanes go on if none is missing.
    pub(super) fn release(&mut self, node: usize) {
        let Some(Some(n)) = self.nodes.get(node) else { return };
        if n.pending != 0 {
            return;
        }
        let &Node { reconverge, parent, arrived, frame, .. } = n;
        self.nodes[node] = None;
        if arrived == 0 {
            return;
        }
        if self.reconvergence(parent) == reconverge && !self.is_call(parent) {
            self.arrive(parent, arrived);
        } else {
            self.splits.push(Split::new(reconverge, arrived, parent, frame));
        }
    }

    /// Lets a split that waited at a barrier go on.
    pub(crate) fn resume(&mut self, at: usize, next: u32) {
        let Split { mask, node, .. } = self.splits[at];
        if next == self.reconvergence(node) {
            self.splits.swap_remove(at);
            self.arrive(node, mask);
        } else {
            let split = &mut self.splits[at];
            (split.pc, split.state) = (next, State::Ready);
        }
    }
}

#[cold]
fn operation_fault(code: &Code, cx: &mut Cx<'_>, op: &Op) -> WarpFault {
    // `op` is an element of `code.ops`: subtract to get its index.
    let offset = std::ptr::from_ref(op) as usize - code.ops.as_ptr() as usize;
    let line = code.lines[offset / size_of::<Op>()];
    match cx.fault.take() {
        Some(fault) => {
            WarpFault { lane: fault.lane, line: fault.line.unwrap_or(line), kind: fault.kind }
        }
        None => WarpFault { lane: cx.mask.trailing_zeros(), line, kind: FaultKind::Trap },
    }
}
