//! What the control-flow graph says: where branches meet again, which
//! registers live where, and which slots they get.

use super::ir::{B, Class, Field, Ir, Terminator, V};

/// The immediate post-dominator of every block, or `None` if its lanes need
/// not meet before they exit.
///
/// A branch to a block that only exits (or traps) counts as no way at all as
/// long as there is another: lanes that leave are waited for by nobody, so the
/// others should meet as if those had never been. But a loop that can only be
/// left that way is left there.
pub(crate) fn reconvergence(ir: &Ir) -> Vec<Option<B>> {
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
    // One way out at a time: the first may be the only one that is needed.
    let (mut predecessors, mut seen, mut order) = backwards(&successors, exit);
    for (b, block) in ir.blocks.iter().enumerate() {
        let out: Vec<B> = block.end.successors().filter(|&way| leaves(way)).collect();
        if !seen[b] && !out.is_empty() {
            successors[b].extend(out.iter().map(|&way| way as usize));
            (predecessors, seen, order) = backwards(&successors, exit);
        }
    }
    // Endless loops get a way out, so that every block reaches the exit.
    for b in (0..n).rev() {
        if !seen[b] {
            successors[b].push(exit);
            predecessors[exit].push(b);
            // The exit must stay last in post-order.
            order.pop();
            post_order(b, &predecessors, &mut seen, &mut order);
            order.push(exit);
        }
    }
    // Cooper, Harvey and Kennedy's algorithm on the reversed graph.
    let mut rank = vec![0; n + 1];
    for (i, &b) in order.iter().enumerate() {
        rank[b] = i;
    }
    let mut idom = vec![usize::MAX; n + 1];
    idom[exit] = exit;
    let mut changed = true;
    while changed {
        changed = false;
        for &b in order.iter().rev().skip(1) {
            let mut new = usize::MAX;
            for &s in &successors[b] {
                if idom[s] == usize::MAX {
                    continue;
                }
                new = if new == usize::MAX { s } else { intersect(new, s, &idom, &rank) };
            }
            if idom[b] != new {
                idom[b] = new;
                changed = true;
            }
        }
    }
    idom[..n].iter().map(|&d| (d < exit).then_some(d as B)).collect()
}

/// The predecessors of every block, which blocks reach the exit, and those in
/// post-order from there.
fn backwards(successors: &[Vec<usize>], exit: usize) -> (Vec<Vec<usize>>, Vec<bool>, Vec<usize>) {
    let mut predecessors = vec![Vec::new(); exit + 1];
    for (b, ways) in successors.iter().enumerate() {
        for &s in ways {
            predecessors[s].push(b);
        }
    }
    let mut order = Vec::with_capacity(exit + 1);
    let mut seen = vec![false; exit + 1];
    post_order(exit, &predecessors, &mut seen, &mut order);
    (predecessors, seen, order)
}

fn intersect(mut a: usize, mut b: usize, idom: &[usize], rank: &[usize]) -> usize {
    while a != b {
        while rank[a] < rank[b] {
            a = idom[a];
        }
        while rank[b] < rank[a] {
            b = idom[b];
        }
    }
    a
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

/// A set of registers.
#[derive(Clone, PartialEq, Eq)]
struct Set(Vec<u64>);

impl Set {
    fn new(n: usize) -> Set {
        Set(vec![0; n.div_ceil(64)])
    }
    fn has(&self, v: V) -> bool {
        self.0[v as usize / 64] >> (v % 64) & 1 != 0
    }
    fn insert(&mut self, v: V) {
        self.0[v as usize / 64] |= 1 << (v % 64);
    }
    fn iter(&self) -> impl Iterator<Item = V> {
        self.0.iter().enumerate().flat_map(|(i, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| (i * 64 + bit) as V)
        })
    }
}

/// Where every register lies.
pub(crate) struct Slots {
    /// By register: byte offset, or number of a predicate.
    pub of: Vec<u32>,
    /// Bytes of the register file.
    pub bytes: u32,
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
pub(crate) fn allocate(ir: &Ir) -> Slots {
    let n = ir.registers.len();
    let fixed = |v: V| ir.registers[v as usize].fixed.is_some();
    let (mut uses, mut defs) = (Vec::new(), Vec::new());
    for block in &ir.blocks {
        let (mut used, mut defined) = (Set::new(n), Set::new(n));
        for_operands(block, |_, field| match field {
            Field::Use(v) | Field::Both(v) if !defined.has(v) && !fixed(v) => used.insert(v),
            Field::Def(v) => defined.insert(v),
            _ => {}
        });
        uses.push(used);
        defs.push(defined);
    }
    let mut live_in = uses.clone();
    let mut live_out = vec![Set::new(n); ir.blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for b in (0..ir.blocks.len()).rev() {
            for s in ir.blocks[b].end.successors() {
                for (out, &word) in live_out[b].0.iter_mut().zip(&live_in[s as usize].0) {
                    *out |= word;
                }
            }
            for i in 0..live_in[b].0.len() {
                let new = uses[b].0[i] | (live_out[b].0[i] & !defs[b].0[i]);
                changed |= new != live_in[b].0[i];
                live_in[b].0[i] = new;
            }
        }
    }

    // One interval of positions per register: reads at even positions, writes
    // at the odd ones after them.
    let mut interval = vec![(u32::MAX, 0u32); n];
    let mut extend = |v: V, from: u32, to: u32| {
        let (first, last) = &mut interval[v as usize];
        *first = (*first).min(from);
        *last = (*last).max(to);
    };
    let mut at = 0;
    for (b, block) in ir.blocks.iter().enumerate() {
        let start = at;
        at += 2 * (block.insts.len() as u32 + 1);
        for v in live_in[b].iter() {
            extend(v, start, start);
        }
        for v in live_out[b].iter() {
            extend(v, at, at);
        }
        for_operands(block, |i, field| {
            let here = start + 2 * i as u32;
            match field {
                Field::Use(v) if !fixed(v) => extend(v, here, here),
                Field::Def(v) => extend(v, here + 1, here + 2),
                Field::Both(v) => extend(v, here, here + 2),
                _ => {}
            }
        });
    }

    let mut slots = Slots { of: vec![0; n], bytes: 0, predicates: 0, entry: Vec::new() };
    slots.entry = ir.blocks.first().map(|_| live_in[0].iter().collect()).unwrap_or_default();
    let mut order: Vec<V> = (0..n as V).filter(|&v| interval[v as usize].0 != u32::MAX).collect();
    order.sort_by_key(|&v| interval[v as usize].0);
    let mut free: [Vec<u32>; 3] = Default::default();
    // Registers that hold a slot, by the end of their interval.
    let mut active = std::collections::BTreeSet::new();
    for v in order {
        let (first, last) = interval[v as usize];
        while let Some(&(end, other)) = active.first().filter(|&&(end, _)| end <= first) {
            active.remove(&(end, other));
            free[ir.registers[other as usize].class as usize].push(slots.of[other as usize]);
        }
        let class = ir.registers[v as usize].class;
        slots.of[v as usize] = match free[class as usize].pop() {
            Some(slot) => slot,
            None => slots.grow(class),
        };
        active.insert((last, v));
    }
    for v in (0..n as V).filter(|&v| fixed(v)) {
        slots.of[v as usize] = slots.grow(ir.registers[v as usize].class);
    }
    slots
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
        self.bytes - bytes
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
                Block { insts: Vec::new(), end, line: 0, counted: true }
            })
            .collect();
        Ir { registers: Vec::new(), blocks }
    }

    #[test]
    fn a_diamond_meets_at_its_end() {
        let meet = reconvergence(&graph(&[&[1, 2], &[3], &[3], &[4], &[]]));
        assert_eq!(meet[0], Some(3));
    }

    #[test]
    fn an_early_exit_does_not_move_the_meeting_point() {
        // 0: if -> 1 or 3; 1: may exit (6), else 4; 3 -> 4; 4 -> 5 -> 6.
        let meet = reconvergence(&graph(&[&[1, 3], &[4, 6], &[6], &[4], &[5], &[6], &[]]));
        assert_eq!(meet[0], Some(4));
        assert_eq!(meet[1], Some(4));
    }

    #[test]
    fn a_loop_meets_at_its_exit() {
        let meet = reconvergence(&graph(&[&[1], &[1, 2], &[3], &[]]));
        assert_eq!(meet[1], Some(2));
    }

    #[test]
    fn a_loop_that_only_an_exit_leaves() {
        // 1: exit (7) or 2; 2: if -> 3 or 4, which may exit as well; both -> 5 -> 1.
        let meet = reconvergence(&graph(&[&[1], &[2, 7], &[4, 3], &[5], &[5, 7], &[1], &[], &[]]));
        assert_eq!(meet[2], Some(5));
        assert_eq!(meet[4], Some(5));
    }

    #[test]
    fn an_endless_loop_is_accepted() {
        let meet = reconvergence(&graph(&[&[1, 2], &[1], &[3], &[]]));
        assert_eq!(meet.len(), 4);
    }
}
