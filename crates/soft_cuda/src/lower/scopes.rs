//! Names, and the scopes that they are declared in.

use std::collections::HashMap;

use super::ir::B;
use super::ty::Ty;
use crate::ptx::ast::{LANES, Space};

/// What a name stands for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Binding {
    /// Register `n` of a declaration such as `.reg .b32 %r<4>`, which gets a number of its own
    /// when it is first used.
    Member {
        range: u32,
        n: u32,
        ty: Ty,
    },
    /// `lanes` registers of a declaration, from `first` on.
    Vector {
        range: u32,
        first: u32,
        lanes: u32,
        ty: Ty,
    },
    /// A variable at an address of its own space; `bytes` where known.
    Variable {
        space: Space,
        address: u64,
        bytes: Option<u64>,
    },
    Label(B),
    /// A list of labels, by its place in `Lowering::branch_targets`.
    BranchTargets(usize),
    /// A prototype, by its place in `Lowering::prototypes`.
    Prototype(usize),
}

/// A declaration such as `.reg .b32 %r<4>`.
#[derive(Debug, Clone, Copy)]
struct Range {
    number: u32,
    count: u32,
    /// Registers of each member.
    lanes: u32,
    ty: Ty,
}

impl Range {
    /// What member `n` is.
    fn member(&self, n: u32) -> Binding {
        let Range { number: range, lanes, ty, .. } = *self;
        match lanes {
            1 => Binding::Member { range, n, ty },
            _ => Binding::Vector { range, first: n * lanes, lanes, ty },
        }
    }
}

/// A name, as it was declared.
enum Declared<'m> {
    One(&'m str),
    Range(&'m str),
}

/// What every name stands for in the scopes around it, innermost last, with the depths of
/// those scopes. Looking a name up takes no longer the deeper scopes nest.
type Names<'m, T> = HashMap<&'m str, Vec<(usize, T)>>;

/// The open scopes. The outermost is visible everywhere.
pub(super) struct Scopes<'m> {
    open: Vec<Vec<Declared<'m>>>,
    names: Names<'m, Binding>,
    /// By what is in front of the `<`.
    ranges: Names<'m, Range>,
    /// How many ranges there have been.
    numbers: u32,
}

impl<'m> Scopes<'m> {
    pub(super) fn new() -> Scopes<'m> {
        let (names, ranges) = (HashMap::new(), HashMap::new());
        Scopes { open: vec![Vec::new()], names, ranges, numbers: 0 }
    }

    pub(super) fn push(&mut self) {
        self.open.push(Vec::new());
    }

    pub(super) fn pop(&mut self) {
        for declared in self.open.pop().unwrap_or_default() {
            match declared {
                Declared::One(name) => forget(&mut self.names, name),
                Declared::Range(name) => forget(&mut self.ranges, name),
            }
        }
    }

    /// Declares a name in the innermost scope; `false` if it was declared there already.
    pub(super) fn declare(&mut self, name: &'m str, binding: Binding) -> bool {
        let fresh = insert(&mut self.names, name, self.open.len() - 1, binding);
        if fresh && let Some(scope) = self.open.last_mut() {
            scope.push(Declared::One(name));
        }
        fresh
    }

    /// As [`declare`](Scopes::declare), for `count` registers with numbers, or for one without,
    /// each of `lanes` parts.
    pub(super) fn declare_registers(
        &mut self,
        name: &'m str,
        (count, lanes): (Option<u32>, u32),
        ty: Ty,
    ) -> bool {
        let range = Range { number: self.numbers, count: count.unwrap_or(1), lanes, ty };
        self.numbers += 1;
        if count.is_none() {
            return self.declare(name, range.member(0));
        }
        let fresh = insert(&mut self.ranges, name, self.open.len() - 1, range);
        if fresh && let Some(scope) = self.open.last_mut() {
            scope.push(Declared::Range(name));
        }
        fresh
    }

    /// What `name`, or `name.x` of a vector, stands for in the innermost scope that has it.
    pub(super) fn find(&self, name: &str) -> Option<Binding> {
        let Some((vector, part)) = name.rsplit_once('.') else { return self.find_whole(name) };
        let Binding::Vector { range, first, lanes, ty } = self.find_whole(vector)? else {
            return None;
        };
        let lane = LANES.iter().take(lanes as usize).position(|names| names.contains(&part))?;
        Some(Binding::Member { range, n: first + lane as u32, ty })
    }

    fn find_whole(&self, name: &str) -> Option<Binding> {
        let one = innermost(self.names.get(name)).next();
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (prefix, number) = name.split_at(name.len() - digits);
        let canonical = number.len() == 1 || !number.starts_with('0');
        let member = number.parse().ok().filter(|_| canonical).and_then(|n: u32| {
            let mut ranges = innermost(self.ranges.get(prefix));
            let (depth, range) = ranges.find(|(_, range)| n < range.count)?;
            Some((depth, range.member(n)))
        });
        match (one, member) {
            (Some((outer, _)), Some((inner, member))) if inner > outer => Some(member),
            (Some((_, one)), _) => Some(one),
            (None, member) => member.map(|(_, member)| member),
        }
    }
}

/// A name's meanings, innermost first.
fn innermost<T: Copy>(all: Option<&Vec<(usize, T)>>) -> impl Iterator<Item = (usize, T)> {
    all.map_or(&[][..], Vec::as_slice).iter().rev().copied()
}

fn insert<'m, T>(names: &mut Names<'m, T>, name: &'m str, depth: usize, value: T) -> bool {
    let all = names.entry(name).or_default();
    let fresh = all.last().is_none_or(|&(last, _)| last < depth);
    if fresh {
        all.push((depth, value));
    }
    fresh
}

fn forget<T>(names: &mut Names<'_, T>, name: &str) {
    if let Some(all) = names.get_mut(name) {
        all.pop();
    }
}
