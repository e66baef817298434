//! Tiles of chains of FMAs, which have the factors of an outer product.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::ir::{Field, Inst, InstKind, V};
use crate::exec::fma::{FmaTiles, SIDE};
use crate::exec::{Path, pick};

/// FMAs, each of which adds to the result of the one before.
#[derive(Default)]
struct Chain {
    /// The accumulator's first value, and its last.
    from: V,
    to: V,
    /// The factors, step by step.
    a: Vec<V>,
    b: Vec<V>,
}

/// Chains that may be computed in any order.
pub(super) struct Chains {
    all: Vec<Chain>,
    /// How many FMAs they are.
    pub taken: usize,
}

/// Who reads a register.
#[derive(Clone, Copy, PartialEq)]
enum Reader {
    /// The first step of this chain, as its accumulator.
    Chain(usize),
    Any,
}

impl Chains {
    /// The chains of as many of `fmas`, from the first on, as do not depend on each
    /// other. `passed_on` says whether a register is written once and read once.
    pub(super) fn of(fmas: &[Inst], passed_on: impl Fn(V) -> bool) -> Chains {
        let mut all: Vec<Chain> = Vec::new();
        let mut last: HashMap<V, usize> = HashMap::new();
        let mut readers: HashMap<V, Reader> = HashMap::new();
        let mut written: HashSet<V> = HashSet::new();
        let mut taken = 0;
        for inst in fmas {
            let [Field::Def(d), Field::Use(a), Field::Use(b), Field::Use(c), ..] = inst.fields
            else {
                break;
            };
            if written.contains(&a) || written.contains(&b) {
                break;
            }
            let before = last.get(&c).copied();
            let number = match before {
                // The value in between need not be kept.
                Some(number) if c == d || passed_on(c) => number,
                Some(_) => break,
                None if written.contains(&c) => break,
                None => all.len(),
            };
            let own = Reader::Chain(number);
            let reads_d = readers.get(&d).copied();
            // Of another chain, or not as the accumulator that this one replaces.
            let fresh = before.is_none() && c == d && reads_d.is_none();
            let replaces = fresh || reads_d.is_none_or(|reader| reader == own);
            if !replaces || d == a || d == b || d != c && written.contains(&d) {
                break;
            }
            readers.insert(a, Reader::Any);
            readers.insert(b, Reader::Any);
            if before.is_none() {
                let reader = readers.get(&c).map_or(own, |_| Reader::Any);
                readers.insert(c, reader);
                all.push(Chain { from: c, ..Chain::default() });
            }
            if before.is_some() {
                last.remove(&c);
            }
            let chain = &mut all[number];
            chain.to = d;
            chain.a.push(a);
            chain.b.push(b);
            last.insert(d, number);
            written.insert(d);
            taken += 1;
        }
        Chains { all, taken }
    }

    /// The chains, which are `fmas`, as one operation.
    pub(super) fn fused(&self, path: Path, fmas: &[Inst]) -> Inst {
        let raw = Field::Raw;
        let all = tiles(&self.all);
        // What is read must not share its slot with what is written before the last read.
        let mut extra = Vec::new();
        for tile in &all {
            let chains = || tile.chains.iter().map(|&chain| &self.all[chain]);
            let steps = chains().next().map_or(0, |chain| chain.a.len());
            extra.extend([tile.rows, tile.columns, steps].map(|word| raw(word as u32)));
            extra.extend(chains().map(|chain| Field::Both(chain.from)));
            extra.extend(chains().map(|chain| match chain.to == chain.from {
                true => Field::Both(chain.to),
                false => Field::Def(chain.to),
            }));
            for step in 0..steps {
                extra
                    .extend(chains().step_by(tile.columns).map(|chain| Field::Both(chain.a[step])));
                extra.extend(chains().take(tile.columns).map(|chain| Field::Both(chain.b[step])));
            }
        }
        let fields = [raw(0), raw(0), raw(0), raw(all.len() as u32), raw(0), raw(0)];
        let (run, line) = (pick::<FmaTiles>(path), fmas.first().map_or(0, |inst| inst.line));
        let kind = InstKind::Fused(fmas.len() as u32);
        Inst { run, fields, extra, parts: Vec::new(), line, guard: None, kind }
    }
}

/// Chains of as many steps: those of one row have the same first factors, those of one column the
/// same second ones.
struct Tile {
    rows: usize,
    columns: usize,
    /// Row by row.
    chains: Vec<usize>,
}

/// Divides all chains into tiles.
fn tiles(chains: &[Chain]) -> Vec<Tile> {
    let mut all = Vec::new();
    // By steps, and the first factors: the chains by their second factors.
    let (mut row_numbers, mut column_numbers) = (HashMap::new(), HashMap::new());
    let mut rows: Vec<(usize, Vec<Option<usize>>)> = Vec::new();
    for (number, chain) in chains.iter().enumerate() {
        let row = *row_numbers.entry(&chain.a).or_insert(rows.len());
        let columns = column_numbers.len();
        let column = *column_numbers.entry(&chain.b).or_insert(columns);
        if row == rows.len() {
            rows.push((chain.a.len(), Vec::new()));
        }
        let row = &mut rows[row].1;
        if row.len() <= column {
            row.resize(column + 1, None);
        }
        if let Some(other) = row[column].replace(number) {
            all.push(Tile { rows: 1, columns: 1, chains: vec![other] });
        }
    }
    rows.sort_by_key(|(steps, _)| *steps);
    for same in rows.chunk_by(|a, b| a.0 == b.0) {
        for rows in parts(same) {
            cover(rows, &mut all);
        }
    }
    all
}

/// Divides rows into tiles.
fn cover(rows: &[(usize, Vec<Option<usize>>)], all: &mut Vec<Tile>) {
    let chain = |row: usize, column: usize| rows[row].1.get(column).copied().flatten();
    let columns: BTreeSet<usize> =
        rows.iter().flat_map(|(_, row)| (0..row.len()).filter(|&c| row[c].is_some())).collect();
    let (whole, broken): (Vec<usize>, Vec<usize>) = columns
        .into_iter()
        .partition(|&column| (0..rows.len()).all(|row| chain(row, column).is_some()));
    for columns in parts(&whole) {
        let row = |row: usize| columns.iter().filter_map(move |&column| chain(row, column));
        let chains = (0..rows.len()).flat_map(row).collect();
        all.push(Tile { rows: rows.len(), columns: columns.len(), chains });
    }
    for row in 0..rows.len() {
        let row: Vec<usize> = broken.iter().filter_map(|&column| chain(row, column)).collect();
        for chains in parts(&row) {
            all.push(Tile { rows: 1, columns: chains.len(), chains: chains.to_vec() });
        }
    }
}

/// Parts of at most [`SIDE`] elements, of which each has a power of two.
fn parts<T>(mut all: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let most = all.len().min(SIDE).checked_ilog2()?;
        let (part, rest) = all.split_at(1 << most);
        all = rest;
        Some(part)
    })
}
