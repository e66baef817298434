//! What the control-flow graph says: where divergent lanes reconverge, which
//! registers live where, and which slots they get.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::ir::{B, Class, Field, Ir, Terminator, V};

/// The most steps of each analysis, some seconds' worth. What it takes grows with the
/// blocks times the registers that live in them, or times how deep branches nest.
const MAX_STEPS: u64 = 1 << 28;

/// A kernel whose analysis takes too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "its control flow takes more than {MAX_STEPS} steps to analyse; give it fewer labels, or fewer registers that live across them"
)]
pub(crate) struct TooIntricate;

/// The steps that an analysis has left.
struct Steps(u64);

impl Steps {
    fn take(&mut self) -> Result<(), TooIntricate> {
        self.0 = self.0.checked_sub(1).ok_or(TooIntricate)?;
        Ok(())
    }
}

/// The immediate post-dominator of every block, or `None` if its lanes need
/// not reconverge before they exit.
///
/// A branch to a block that only exits (or traps) counts as no way at all as
/// long as there is another: lanes that leave are waited for by nobody, so the
/// others should reconverge as if those had never been. The lanes of a loop that
/// nothing else leaves reconverge at its header at the latest, in every iteration.
pub(crate) fn reconvergence(ir: &Ir) -> Result<Vec<Option<B>>, TooIntricate> {
    let n = ir.blocks.len();
    let exit = n;
    let leaves = |b: B| {
        let block = &ir.blocks[b as usize];
        let ends = matches!(block.end, Terminator::Exit | Terminator::Trap);
        ends && block.insts.is_empty()
    };
    let mut successors: Vec<Vec<usize>> = Vec::with_capacity(n);
    for block in &ir.blocks {
        let all: Vec<B> = block.end.successors().collect();
        let mut ways: Vec<usize> =
            all.iter().filter(|&&b| !leaves(b)).map(|&b| b as usize).collect();
        if ways.is_empty() {
            ways = all.iter().map(|&b| b as usize).collect();
        }
        if ways.is_empty() {
            ways.push(exit);
        }
        successors.push(ways);
    }
    // The exit has no successors.
    successors.push(Vec::new());
    let mut predecessors = vec![Vec::new(); n + 1];
    for (b, ways) in successors.iter().enumerate() {
        for &s in ways {
            predecessors[s].push(b);
        }
    }
    let (mut order, mut seen) = (Vec::with_capacity(n + 1), vec![false; n + 1]);
    post_order(exit, &predecessors, &mut seen, &mut order);
    // Every block has to reach the exit: loops that nothing leaves do from their headers.
    let headers = endless(&successors, &predecessors, &seen);
    // The exit must stay last in post-order.
    order.pop();
    for &header in &headers {
        successors[header].push(exit);
        predecessors[exit].push(header);
        post_order(header, &predecessors, &mut seen, &mut order);
    }
    order.push(exit);
    // Cooper, Harvey and Kennedy's algorithm on the reversed graph.
    let mut rank = vec![0; n + 1];
    for (i, &b) in order.iter().enumerate() {
        rank[b] = i;
    }
    let mut idom = vec![usize::MAX; n + 1];
    idom[exit] = exit;
    let mut steps = Steps(MAX_STEPS);
    let mut changed = true;
    while changed {
        changed = false;
        for &b in order.iter().rev().skip(1) {
            let mut new = usize::MAX;
            for &s in &successors[b] {
                steps.take()?;
                if idom[s] == usize::MAX {
                    continue;
                }
                new = match new {
                    usize::MAX => s,
                    _ => intersect(new, s, &idom, &rank, &mut steps)?,
                };
            }
            if idom[b] != new {
                idom[b] = new;
                changed = true;
            }
        }
    }
    // The lanes that diverge in a header reconverge within the iteration, or in the header itself.
    let mut reconverge_at = idom.clone();
    for &header in &headers {
        let mut ways = successors[header].iter().copied().filter(|&way| way != exit);
        let first = ways.next().unwrap_or(exit);
        reconverge_at[header] =
            ways.try_fold(first, |a, b| intersect(a, b, &idom, &rank, &mut steps))?;
    }
    Ok(reconverge_at[..n].iter().map(|&d| (d < exit).then_some(d as B)).collect())
}

/// The headers of the loops that nothing leaves: the first block of each to run. `seen` are the
/// blocks that reach the exit.
fn endless(successors: &[Vec<usize>], predecessors: &[Vec<usize>], seen: &[bool]) -> Vec<usize> {
    // Kosaraju's algorithm. A header is the last of its loop in post-order, so searches against
    // the edges that start in reverse post-order enter each loop at its header.
    let (mut order, mut visited) = (Vec::new(), vec![false; seen.len()]);
    for b in 0..seen.len() {
        post_order(b, successors, &mut visited, &mut order);
    }
    let (mut starts, mut visited) = (Vec::new(), seen.to_vec());
    for &b in order.iter().rev() {
        if !visited[b] {
            starts.push(b);
            post_order(b, predecessors, &mut visited, &mut Vec::new());
        }
    }
    // In reverse, a start that an earlier search finds leads to a loop and is in none.
    let mut visited = seen.to_vec();
    starts.reverse();
    starts.retain(|&start| {
        let header = !visited[start];
        post_order(start, predecessors, &mut visited, &mut Vec::new());
        header
    });
    starts
}

fn intersect(
    mut a: usize,
    mut b: usize,
    idom: &[usize],
    rank: &[usize],
    steps: &mut Steps,
) -> Result<usize, TooIntricate> {
    while a != b {
        steps.take()?;
        if rank[a] < rank[b] {
            a = idom[a];
        } else {
            b = idom[b];
        }
    }
    Ok(a)
}

fn post_order(root: usize, edges: &[Vec<usize>], seen: &mut [bool], order: &mut Vec<usize>) {
    if std::mem::replace(&mut seen[root], true) {
        return;
    }
    let mut stack = vec![(root, 0)];
    while let Some((node, next)) = stack.last_mut() {
        match edges[*node].get(*next) {
            Some(&child) => {
                *next += 1;
                if !std::mem::replace(&mut seen[child], true) {
                    stack.push((child, 0));
                }
            }
            None => {
                order.push(*node);
                stack.pop();
            }
        }
    }
}

/// Where every register lies.
pub(crate) struct Slots {
    /// By register: byte offset, or number of a predicate.
    pub of: Vec<u32>,
    /// Bytes of the register file.
    pub bytes: u64,
    /// Number of predicates.
    pub predicates: u32,
    /// Registers that may be read before they are written.
    pub entry: Vec<V>,
}

/// Gives each register a slot; registers that do not live at the same time may
/// share one. This is what keeps the register files of a block's warps in the
/// cache: PTX names a new register for almost every result.
///
/// Sharing is sound under divergence, too: every lane has its own copy of a
/// slot, writes touch active lanes only, and each lane for itself runs along
/// one path of the graph.
pub(crate) fn allocate(ir: &Ir) -> Result<Slots, TooIntricate> {
    let n = ir.registers.len();
    let fixed = |v: V| ir.registers[v as usize].fixed.is_some();

    // One interval of positions per register: reads at even positions, writes
    // at the odd ones after them.
    let mut interval = vec![(u32::MAX, 0u32); n];
    let mut extend = |v: V, from: u32, to: u32| {
        let (first, last) = &mut interval[v as usize];
        *first = (*first).min(from);
        *last = (*last).max(to);
    };
    // Positions of every block's beginning and end.
    let mut bounds = Vec::with_capacity(ir.blocks.len());
    // Registers that a block reads before it writes them, and those that it writes.
    let mut uses: Vec<(V, B)> = Vec::new();
    let mut defs: Vec<(V, B)> = Vec::new();
    let (mut used, mut defined) = (vec![B::MAX; n], vec![B::MAX; n]);
    let mut at = 0;
    for (b, block) in ir.blocks.iter().enumerate() {
        let start = at;
        at += 2 * (block.insts.len() as u32 + 1);
        bounds.push((start, at));
        let b = b as B;
        for_operands(block, |i, field| {
            let here = start + 2 * i as u32;
            match field {
                Field::Use(v) | Field::Both(v) if !fixed(v) => {
                    extend(v, here, here + if field == Field::Use(v) { 0 } else { 2 });
                    let register = v as usize;
                    if defined[register] != b && std::mem::replace(&mut used[register], b) != b {
                        uses.push((v, b));
                    }
                }
                Field::Def(v) => {
                    extend(v, here + 1, here + 2);
                    if std::mem::replace(&mut defined[v as usize], b) != b {
                        defs.push((v, b));
                    }
                }
                _ => {}
            }
        });
    }
    let mut predecessors = vec![Vec::new(); ir.blocks.len()];
    for (b, block) in ir.blocks.iter().enumerate() {
        for s in block.end.successors() {
            predecessors[s as usize].push(b as B);
        }
    }

    // A register lives from where it is written to where it is read: back from every
    // block that reads it, register by register, so that one that lives nowhere else costs
    // nothing elsewhere.
    let mut slots = Slots { of: vec![0; n], bytes: 0, predicates: 0, entry: Vec::new() };
    uses.sort_unstable();
    defs.sort_unstable();
    let mut defs = defs.as_slice();
    let (mut writes, mut reads) = (vec![V::MAX; bounds.len()], vec![V::MAX; bounds.len()]);
    let mut steps = Steps(MAX_STEPS);
    let mut work = Vec::new();
    for uses in uses.chunk_by(|a, b| a.0 == b.0) {
        let v = uses[0].0;
        let from = defs.partition_point(|&(other, _)| other < v);
        let to = defs.partition_point(|&(other, _)| other <= v);
        for &(_, b) in &defs[from..to] {
            writes[b as usize] = v;
        }
        defs = &defs[to..];
        for &(_, b) in uses {
            reads[b as usize] = v;
            work.push(b);
        }
        while let Some(b) = work.pop() {
            steps.take()?;
            let (start, _) = bounds[b as usize];
            extend(v, start, start);
            for &p in &predecessors[b as usize] {
                steps.take()?;
                let (_, end) = bounds[p as usize];
                extend(v, end, end);
                if writes[p as usize] != v && std::mem::replace(&mut reads[p as usize], v) != v {
                    work.push(p);
                }
            }
        }
        if reads.first() == Some(&v) {
            slots.entry.push(v);
        }
    }

    // By the beginning of their interval.
    let starts = (0..n as V).map(|v| (interval[v as usize].0, v));
    let mut order: Vec<(u32, V)> = starts.filter(|&(first, _)| first != u32::MAX).collect();
    order.sort_unstable();
    let mut free: [Vec<u32>; 3] = Default::default();
    // Registers that hold a slot, by the end of their interval.
    let mut active = BinaryHeap::new();
    for (first, v) in order {
        let last = interval[v as usize].1;
        while let Some(&Reverse((end, other))) = active.peek()
            && end <= first
        {
            active.pop();
            free[ir.registers[other as usize].class as usize].push(slots.of[other as usize]);
        }
        let class = ir.registers[v as usize].class;
        slots.of[v as usize] = match free[class as usize].pop() {
            Some(slot) => slot,
            None => slots.grow(class),
        };
        active.push(Reverse((last, v)));
    }
    for v in (0..n as V).filter(|&v| fixed(v)) {
        slots.of[v as usize] = slots.grow(ir.registers[v as usize].class);
    }
    // Places are 32-bit offsets.
    if slots.bytes > u64::from(u32::MAX) {
        return Err(TooIntricate);
    }
    Ok(slots)
}

impl Slots {
    fn grow(&mut self, class: Class) -> u32 {
        let bytes = match class {
            Class::Narrow => 128,
            Class::Wide => 256,
            Class::Predicate => {
                self.predicates += 1;
                return self.predicates - 1;
            }
        };
        self.bytes += bytes;
        (self.bytes - bytes) as u32
    }
}

/// Calls `f` with every operand of a block: uses of an operation before its
/// definitions.
fn for_operands(block: &super::ir::Block, mut f: impl FnMut(usize, Field)) {
    let mut both = |i: usize, fields: &mut dyn Iterator<Item = Field>| {
        let fields: Vec<Field> = fields.collect();
        let defines = |field: &&Field| matches!(field, Field::Def(_));
        fields.iter().filter(|field| !defines(field)).for_each(|&field| f(i, field));
        fields.iter().filter(defines).for_each(|&field| f(i, field));
    };
    for (i, inst) in block.insts.iter().enumerate() {
        both(i, &mut inst.operands());
    }
    both(block.insts.len(), &mut block.end.operands().into_iter());
}

#[cfg(test)]
mod tests {
    use super::super::ir::Block;
    use super::*;

    /// Blocks by their successors; 0 means exit, since nothing jumps to the entry.
    fn graph(successors: &[&[B]]) -> Ir {
        let blocks = successors
            .iter()
            .map(|ways| {
                let end = match *ways {
                    [] => Terminator::Exit,
                    [next] => Terminator::Goto(*next),
                    [next, taken, ..] => Terminator::Branch {
                        predicate: 0,
                        negated: false,
                        taken: *taken,
                        next: *next,
                    },
                };
                Block { insts: Vec::new(), end, line: 0, counted: true, dropped: 0 }
            })
            .collect();
        Ir { registers: Vec::new(), blocks }
    }

    #[test]
    fn a_diamond_meets_at_its_end() {
        let reconverge_at = reconvergence(&graph(&[&[1, 2], &[3], &[3], &[4], &[]])).unwrap();
        assert_eq!(reconverge_at[0], Some(3));
    }

    #[test]
    fn an_early_exit_does_not_move_the_meeting_point() {
        // 0: if -> 1 or 3; 1: may exit (6), else 4; 3 -> 4; 4 -> 5 -> 6.
        let reconverge_at =
            reconvergence(&graph(&[&[1, 3], &[4, 6], &[6], &[4], &[5], &[6], &[]])).unwrap();
        assert_eq!(reconverge_at[0], Some(4));
        assert_eq!(reconverge_at[1], Some(4));
    }

    #[test]
    fn a_loop_meets_at_its_exit() {
        let reconverge_at = reconvergence(&graph(&[&[1], &[1, 2], &[3], &[]])).unwrap();
        assert_eq!(reconverge_at[1], Some(2));
    }

    #[test]
    fn a_loop_that_only_an_exit_leaves() {
        // 1: exit (7) or 2; 2: if -> 3 or 4, which may exit as well; both -> 5 -> 1.
        let reconverge_at =
            reconvergence(&graph(&[&[1], &[2, 7], &[4, 3], &[5], &[5, 7], &[1], &[], &[]]))
                .unwrap();
        assert_eq!(reconverge_at[2], Some(5));
        assert_eq!(reconverge_at[4], Some(5));
    }

    #[test]
    fn an_endless_loop_is_accepted() {
        let reconverge_at = reconvergence(&graph(&[&[1, 2], &[1], &[3], &[]])).unwrap();
        assert_eq!(reconverge_at.len(), 4);
    }

    #[test]
    fn an_endless_loop_meets_at_its_header() {
        // 0 -> 1; 1: if -> 2 or 3; both -> 1.
        let reconverge_at = reconvergence(&graph(&[&[1], &[2, 3], &[1], &[1]])).unwrap();
        assert_eq!(reconverge_at, [Some(1); 4]);
        // With a join behind the arms, the lanes reconverge there.
        let reconverge_at = reconvergence(&graph(&[&[1], &[2, 3], &[4], &[4], &[1]])).unwrap();
        assert_eq!(reconverge_at[1], Some(4));
        // The header, 4, comes last; 1: if -> 2 or 3; 2: if -> 4 or 3; 3 -> 4.
        let reconverge_at = reconvergence(&graph(&[&[4], &[2, 3], &[4, 3], &[4], &[1]])).unwrap();
        assert_eq!([reconverge_at[1], reconverge_at[2]], [Some(4); 2]);
        // Two loops, and blocks that lead to one or either: 0 -> 1 or 2, 2 -> 3 or 5.
        let loops: [&[B]; 7] = [&[1, 2], &[1], &[3, 5], &[4], &[3], &[6], &[5]];
        let reconverge_at = reconvergence(&graph(&loops)).unwrap();
        assert_eq!(reconverge_at, [None, Some(1), None, Some(4), Some(3), Some(6), Some(5)]);
    }

    #[test]
    fn a_loop_that_one_arm_may_exit_meets_at_its_header() {
        // 1: if -> 2 or 3; 2 -> 1; 3: exit (5) or 4; 4 -> 1.
        let reconverge_at =
            reconvergence(&graph(&[&[1], &[2, 3], &[1], &[4, 5], &[1], &[]])).unwrap();
        assert_eq!(reconverge_at[1], Some(1));
        assert_eq!(reconverge_at[3], Some(4));
    }
}
