//! `wgmma`: matrix products of a warpgroup, with operands in shared memory.
//!
//! Each warp computes its own 16 rows, and only when it waits for them: the operands are read and
//! the accumulators written then, so that a missing wait, or a tile that is overwritten too early, is
//! seen every time.

use super::descriptor::{CHUNK, Descriptor};
use super::lanes::W;
use super::machine::{FULL, LANES, SHARED_BASE};
use super::mma::{accumulator, fragment, store, whole_warp};
use super::op::{Cx, Handler, Op};
use super::tensor_core::{Extent, Factors, INPUTS, Input, half_to_f32, multiply};
use crate::error::Place;
use crate::fault::{Access, AddressSpace, FaultKind};

/// Warps of a warpgroup.
pub(crate) const GROUP: usize = 4;
/// Rows of the product that one warp has.
const ROWS: usize = 16;
/// Bytes of a row of A or B along K, whatever the type.
const ROW_BYTES: u32 = 32;

/// Flags of [`Shape::flags`].
pub(crate) const A_IN_REGISTERS: u32 = 1;
pub(crate) const TRANSPOSED_A: u32 = 2;
pub(crate) const TRANSPOSED_B: u32 = 4;
pub(crate) const NEGATED_A: u32 = 8;
pub(crate) const NEGATED_B: u32 = 16;
pub(crate) const HALF: u32 = 32;

/// What [`Issue`] has in [`Cx::extra`] in front of its slots.
pub(crate) const WORDS: usize = 5;

/// The words of one instruction.
struct Words<'k> {
    input: Input,
    n: usize,
    flags: u32,
    line: u32,
    /// Slots of the accumulators.
    d: &'k [u32],
    /// Slots of A, if it is in registers.
    a: &'k [u32],
}

impl<'k> Words<'k> {
    fn of(extra: &'k [u32], x: u32) -> Words<'k> {
        let words = &extra[x as usize..];
        let [input, n, flags, line, nd] = std::array::from_fn(|i| words[i]);
        let (d, rest) = words[WORDS..].split_at(nd as usize);
        let a = if flags & A_IN_REGISTERS != 0 { &rest[..4] } else { &[] };
        Words { input: INPUTS[input as usize], n: n as usize, flags, line, d, a }
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Elements of a chunk, and of the inner dimension.
    fn counts(&self) -> (usize, usize) {
        let bytes = self.input.bytes();
        ((CHUNK / bytes) as usize, (ROW_BYTES / bytes) as usize)
    }

    /// The addresses of the chunks of a tile of `rows` rows, from row `first` on.
    fn chunks(
        &self,
        tile: Descriptor,
        transposed: bool,
        (first, rows): (usize, usize),
    ) -> impl Iterator<Item = u32> + use<> {
        let (per_chunk, depth) = self.counts();
        // Of the outer loop, and of the inner one: rows and chunks along K, or steps along K and
        // chunks along rows.
        let (outer, inner) = match transposed {
            false => (first..first + rows, 0..depth / per_chunk),
            true => (0..depth, first / per_chunk..(first + rows) / per_chunk),
        };
        outer.flat_map(move |i| {
            inner.clone().map(move |j| match transposed {
                false => tile.k_major(i as u32, j as u32),
                true => tile.mn_major(j as u32, i as u32),
            })
        })
    }
}

/// An instruction that a warp has issued.
#[derive(Debug, Clone, Copy)]
struct Pending {
    /// Number of the commit group it belongs to.
    group: u64,
    /// Where its words are in [`Cx::extra`].
    x: u32,
    a: Option<Descriptor>,
    b: Descriptor,
    /// Whether it adds to the accumulators.
    adds: bool,
}

/// The instructions of one warp that nobody has waited for.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    pending: Vec<Pending>,
    /// Groups committed so far.
    committed: u64,
}

impl InFlight {
    /// Forgets everything, for a new block.
    pub(crate) fn clear(&mut self) {
        self.pending.clear();
        self.committed = 0;
    }
}

fn bad(reason: String) -> FaultKind {
    FaultKind::BadMatrix { reason }
}

/// `wgmma.mma_async`: `a` slot of A's descriptor, `b` that of B's, `c` predicate "add to the
/// accumulators"; [`Cx::extra`] from `x`: type of the inputs, N, flags, PTX line, number of
/// accumulators, and the slots of those and of A.
pub(crate) struct Issue;

// SAFETY: touches only the slots named.
unsafe impl Handler for Issue {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let line = Words::of(cx.extra, op.x).line;
        if !whole_warp(cx, line) {
            return true;
        }
        // SAFETY: by the contract of the trait.
        match unsafe { issue(cx, op) } {
            Ok(()) => false,
            Err((lane, kind)) => cx.fail(lane as u32, kind),
        }
    }
}

/// # Safety
/// As for [`Issue`].
#[inline(never)]
unsafe fn issue(cx: &mut Cx<'_>, op: &Op) -> Result<(), (usize, FaultKind)> {
    let words = Words::of(cx.extra, op.x);
    let first = |kind| (0, kind);
    if cx.warp / GROUP * GROUP + GROUP > cx.shape.warps as usize {
        let warp = cx.shape.warps;
        return Err(first(FaultKind::WarpgroupDivergence { warp }));
    }
    // SAFETY: the slots have 64-bit lanes, and `c` is a predicate.
    let (a, b, adds) = unsafe {
        let a = match words.has(A_IN_REGISTERS) {
            true => None,
            false => Some(descriptor(cx, op.a).map_err(first)?),
        };
        let adds = cx.pred(op.c);
        if adds != 0 && adds != FULL {
            return Err((adds.trailing_ones() as usize, bad("the lanes disagree about the predicate that says whether the product is added; give it one value".to_owned())));
        }
        (a, descriptor(cx, op.b).map_err(first)?, adds != 0)
    };
    let tiles = [
        a.map(|a| (a, words.has(TRANSPOSED_A), (cx.warp % GROUP * ROWS, ROWS))),
        Some((b, words.has(TRANSPOSED_B), (0, words.n))),
    ];
    for (tile, transposed, rows) in tiles.into_iter().flatten() {
        let mut chunks: Vec<u32> = Vec::new();
        for address in words.chunks(tile, transposed, rows) {
            let offset = address.wrapping_sub(SHARED_BASE);
            if offset > cx.shared_size.saturating_sub(CHUNK) {
                return Err(first(outside(cx, address)));
            }
            chunks.push(offset);
        }
        note(cx, words.line, &chunks)?;
    }
    let flight = &mut cx.products[cx.warp];
    flight.pending.push(Pending { group: flight.committed, x: op.x, a, b, adds });
    Ok(())
}

/// The descriptor in a slot, which must have one value in all lanes.
///
/// # Safety
/// The slot has 64-bit lanes.
unsafe fn descriptor(cx: &Cx<'_>, slot: u32) -> Result<Descriptor, FaultKind> {
    // SAFETY: by contract.
    let lanes = unsafe { cx.slot::<[u64; LANES]>(slot).read() };
    if lanes.iter().any(|&bits| bits != lanes[0]) {
        return Err(bad("the lanes of the warp disagree about a matrix descriptor; compute it from what they share".to_owned()));
    }
    Descriptor::decode(lanes[0]).map_err(bad)
}

fn outside(cx: &Cx<'_>, address: u32) -> FaultKind {
    let (address, bytes, base) = (u64::from(address), CHUNK, u64::from(SHARED_BASE));
    let size = u64::from(cx.shared_size);
    let place = match address.checked_sub(base) {
        _ if size == 0 => Place::Nowhere,
        None => Place::Before { base, size, distance: base - address },
        Some(offset) => Place::After { base, size, past_end: offset as i64 - size as i64 },
    };
    let (access, space) = (Access::Load, AddressSpace::Shared);
    FaultKind::OutOfBounds { address, bytes, access, space, place }
}

/// Notes reads of chunks of shared memory, at offsets.
fn note(cx: &mut Cx<'_>, line: u32, chunks: &[u32]) -> Result<(), (usize, FaultKind)> {
    if !cx.order.on {
        return Ok(());
    }
    for some in chunks.chunks(LANES) {
        let offsets = std::array::from_fn(|lane| some.get(lane).copied().unwrap_or(some[0]));
        cx.order.access((cx.warp, line, Access::Load), FULL, &offsets)?;
    }
    Ok(())
}

/// `wgmma.commit_group`: `x` PTX line.
pub(crate) struct Commit;

// SAFETY: touches no slot.
unsafe impl Handler for Commit {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        if !whole_warp(cx, op.x) {
            return true;
        }
        cx.products[cx.warp].committed += 1;
        false
    }
}

/// `wgmma.fence`: `x` PTX line.
pub(crate) struct Fence;

// SAFETY: touches no slot.
unsafe impl Handler for Fence {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        !whole_warp(cx, op.x)
    }
}

/// `wgmma.wait_group` with `y` groups left over: `d` PTX line. [`Cx::extra`] from `x`, if there is any: the
/// registers of the function's products, so that they keep their slots until then.
pub(crate) struct Wait;

// SAFETY: touches only the slots of products in flight, which are the kernel's.
unsafe impl Handler for Wait {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        if !whole_warp(cx, op.d) {
            return true;
        }
        let flight = &mut cx.products[cx.warp];
        let due = flight.committed.saturating_sub(op.y.into());
        let split = flight.pending.partition_point(|pending| pending.group < due);
        let pending = std::mem::take(&mut flight.pending);
        for one in &pending[..split] {
            // SAFETY: the words are those of an operation of the kernel that runs, which checked
            // its tiles.
            if let Err((lane, kind)) = unsafe { compute(cx, one) } {
                return cx.fail(lane as u32, kind);
            }
        }
        cx.products[cx.warp].pending.extend_from_slice(&pending[split..]);
        false
    }
}

/// # Safety
/// `pending` was issued by the kernel that runs.
#[inline(always)]
unsafe fn compute(cx: &mut Cx<'_>, pending: &Pending) -> Result<(), (usize, FaultKind)> {
    let words = Words::of(cx.extra, pending.x);
    let (_, depth) = words.counts();
    let first = cx.warp % GROUP * ROWS;
    // Padded to whole vectors.
    let cols = words.n.next_multiple_of(W);
    let mut a = vec![0; ROWS * depth];
    match pending.a {
        None => {
            for row in 0..ROWS {
                for k in 0..depth {
                    // SAFETY: A has four registers of 32-bit lanes.
                    a[row * depth + k] =
                        unsafe { fragment(cx, words.input, words.a, true, (row, k)) };
                }
            }
        }
        Some(tile) => {
            let place = |row, k| row * depth + k;
            read(cx, &words, (tile, words.has(TRANSPOSED_A)), (first, ROWS), &mut a, place)?;
        }
    }
    let mut b = vec![0; depth * cols];
    let place = |col, k| k * cols + col;
    read(cx, &words, (pending.b, words.has(TRANSPOSED_B)), (0, words.n), &mut b, place)?;
    let a = Factors::new(words.input, &a, words.has(NEGATED_A));
    let b = Factors::new(words.input, &b, words.has(NEGATED_B));
    let half = words.has(HALF);
    let mut acc = vec![0.0; ROWS * cols];
    // SAFETY: the accumulators are slots of 32-bit lanes, as many as N says.
    unsafe {
        if pending.adds {
            for row in 0..ROWS {
                for col in 0..words.n {
                    let (lane, register, shift) = accumulator(row, col, half);
                    let word = *cx.slot::<u32>(words.d[register]).add(lane);
                    acc[row * cols + col] = match half {
                        true => half_to_f32((word >> shift) as u16),
                        false => f32::from_bits(word),
                    };
                }
            }
        }
        multiply(&mut acc, &a, &b, Extent { rows: ROWS, cols, depth }, half);
        for row in 0..ROWS {
            for col in 0..words.n {
                store(cx, words.d, (row, col), half, acc[row * cols + col]);
            }
        }
    }
    Ok(())
}

/// Reads a tile of `rows` rows from row `first` on into `bits`, where `place` says: row and K.
#[inline(always)]
fn read(
    cx: &mut Cx<'_>,
    words: &Words<'_>,
    (tile, transposed): (Descriptor, bool),
    (first, rows): (usize, usize),
    bits: &mut [u32],
    place: impl Fn(usize, usize) -> usize,
) -> Result<(), (usize, FaultKind)> {
    let (per_chunk, depth) = words.counts();
    let chunks: Vec<u32> =
        words.chunks(tile, transposed, (first, rows)).map(|at| at - SHARED_BASE).collect();
    // Once more: it reads until now.
    note(cx, words.line, &chunks)?;
    let mut chunks = chunks.into_iter();
    let (outer, inner) = if transposed { (depth, rows) } else { (rows, depth) };
    for i in 0..outer {
        for j in (0..inner).step_by(per_chunk) {
            let Some(at) = chunks.next() else { return Ok(()) };
            for e in 0..per_chunk {
                // SAFETY: the chunk was checked when the instruction was issued, and is aligned.
                let value = unsafe {
                    let chunk = cx.shared.add(at as usize);
                    match words.input {
                        Input::Tf32 => chunk.cast::<u32>().add(e).read(),
                        _ => chunk.cast::<u16>().add(e).read().into(),
                    }
                };
                let (row, k) = if transposed { (j + e, i) } else { (i, j + e) };
                bits[place(row, k)] = value;
            }
        }
    }
    Ok(())
}
