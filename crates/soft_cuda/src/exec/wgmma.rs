//! `wgmma`: matrix products of a warpgroup, with operands in shared memory.
//!
//! Each warp computes its own 16 rows, and only when it waits for them: the operands are read and
//! the accumulators written then, so that a missing wait, or a tile that is overwritten too early,
//! is seen every time.

use super::descriptor::{CHUNK, Descriptor};
use super::in_flight::Pending;
use super::machine::{FULL, LANES, SHARED_BASE};
use super::mma::{fragment, whole_warp};
use super::op::{Cx, Handler, Op};
use super::tensor_core::{
    AddUp, Extent, Factors, INPUTS, Input, Portable, f32_to_half, half_to_f32, multiply,
};
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

    /// The offsets into the cluster's shared memory of the chunks of a tile of `rows` rows, from
    /// row `first` on: by row and then along K, or, transposed, along K and then by row.
    fn chunks(
        &self,
        cx: &Cx<'_>,
        tile: Descriptor,
        transposed: bool,
        (first, rows): (usize, usize),
    ) -> Result<Vec<u32>, FaultKind> {
        let (per_chunk, depth) = self.counts();
        let (outer, inner) = match transposed {
            false => (first..first + rows, 0..depth / per_chunk),
            true => (0..depth, first / per_chunk..(first + rows) / per_chunk),
        };
        let mut chunks = Vec::with_capacity(outer.len() * inner.len());
        for i in outer {
            for j in inner.clone() {
                let address = match transposed {
                    false => tile.k_major(i as u32, j as u32),
                    true => tile.mn_major(j as u32, i as u32),
                };
                let offset = address.wrapping_sub(SHARED_BASE);
                if u64::from(offset) + u64::from(CHUNK) > cx.shared_size.into() {
                    return Err(outside(cx, address));
                }
                chunks.push(cx.rank * cx.shared_stride + offset);
            }
        }
        Ok(chunks)
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
        let words = Words::of(cx.extra, op.x);
        let line = words.line;
        if !whole_warp(cx, line) {
            return true;
        }
        if cx.checks.sync {
            if let Some(checker) = &mut cx.checker {
                checker.warpgroup_lines[cx.warp].push(line);
            }
            let registers = words.d.iter().chain(words.a);
            if let Some(reason) = cx.products[cx.warp].unfenced(registers)
                && cx.found(0, line, bad(reason))
            {
                return true;
            }
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
    let warps = cx.shape.warps;
    if cx.warp % warps as usize / GROUP * GROUP + GROUP > warps as usize {
        return Err(first(FaultKind::WarpgroupDivergence { warp: warps }));
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
    let rows = (cx.warp % warps as usize % GROUP * ROWS, ROWS);
    let a = match a {
        Some(a) => words.chunks(cx, a, words.has(TRANSPOSED_A), rows).map_err(first)?,
        None => Vec::new(),
    };
    let b = words.chunks(cx, b, words.has(TRANSPOSED_B), (0, words.n)).map_err(first)?;
    note(cx, words.line, &a)?;
    note(cx, words.line, &b)?;
    let writes = match &cx.checker {
        Some(checker) if cx.checks.races => [&a, &b].map(|chunks| checker.writes_of(chunks)),
        _ => Default::default(),
    };
    let first = op.x as usize + WORDS;
    let registers = first..first + words.d.len() + words.a.len();
    let flight = &mut cx.products[cx.warp];
    let (group, line) = (flight.committed, words.line);
    flight.pending.push(Pending { group, line, x: op.x, registers, a, b, adds, writes });
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

/// Notes reads of chunks at offsets into the cluster's shared memory.
fn note(cx: &mut Cx<'_>, line: u32, chunks: &[u32]) -> Result<(), (usize, FaultKind)> {
    if cx.checker.is_some() && !chunks.is_empty() {
        let warp = cx.warp;
        cx.check(0, line, |checker| {
            checker.read_tiles(warp, line, chunks).map_err(|(_, kind)| kind)
        })
        .map_err(|kind| (0, kind))?;
    }
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
        if !whole_warp(cx, op.x) {
            return true;
        }
        cx.products[cx.warp].fence();
        false
    }
}

/// `wgmma.wait_group` with `y` groups left over: `d` PTX line. [`Cx::extra`] from `x`, if there is
/// any: the registers of the function's products, so that they keep their slots until then.
pub(crate) struct Wait;

// SAFETY: touches only the slots of products in flight, which are the kernel's.
unsafe impl Handler for Wait {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        unsafe { wait::<Portable>(cx, op) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn avx512(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        unsafe { wait::<super::avx512::Avx512>(cx, op) }
    }
}

/// # Safety
/// As for [`Wait`] and `A`.
#[inline(always)]
unsafe fn wait<A: AddUp>(cx: &mut Cx<'_>, op: &Op) -> bool {
    if !whole_warp(cx, op.d) {
        return true;
    }
    for pending in cx.products[cx.warp].take_due(op.y.into()) {
        // SAFETY: the words are those of an operation of the kernel that runs, which checked
        // its tiles.
        if let Err((lane, kind)) = unsafe { compute::<A>(cx, &pending) } {
            return cx.fail(lane as u32, kind);
        }
    }
    false
}

/// # Safety
/// `pending` was issued by the kernel that runs; and as for `A`.
#[inline(always)]
unsafe fn compute<A: AddUp>(cx: &mut Cx<'_>, pending: &Pending) -> Result<(), (usize, FaultKind)> {
    let words = Words::of(cx.extra, pending.x);
    for (chunks, writes) in [&pending.a, &pending.b].into_iter().zip(&pending.writes) {
        let checked =
            cx.check(0, words.line, |checker| checker.overwritten(words.line, chunks, writes));
        checked.map_err(|kind| (0, kind))?;
    }
    let (_, depth) = words.counts();
    let half = words.has(HALF);
    // The products are computed transposed, N x 16, so that all vectors are whole.
    let mut a = vec![0; ROWS * depth];
    if words.has(A_IN_REGISTERS) {
        for (i, a) in a.iter_mut().enumerate() {
            // SAFETY: A has four registers of 32-bit lanes.
            *a = unsafe { fragment(cx, words.input, words.a, true, (i % ROWS, i / ROWS)) };
        }
    } else {
        let along_k = !words.has(TRANSPOSED_A);
        read(cx, &words, &pending.a, (along_k, false), ROWS, &mut a)?;
    }
    let mut b = vec![0; words.n * depth];
    read(cx, &words, &pending.b, (!words.has(TRANSPOSED_B), true), words.n, &mut b)?;
    let a = Factors::new(words.input, &a, words.has(NEGATED_A));
    let b = Factors::new(words.input, &b, words.has(NEGATED_B));
    let mut acc = vec![0.0; words.n * ROWS];
    // SAFETY: the accumulators are slots of 32-bit lanes, as many as N says.
    unsafe {
        if pending.adds {
            for (number, &slot) in words.d.iter().enumerate() {
                let lanes = cx.slot::<[u32; LANES]>(slot).read();
                for (at, word) in places(number, half).zip(split(lanes, half)) {
                    acc[at] = if half { half_to_f32(word as u16) } else { f32::from_bits(word) };
                }
            }
        }
        multiply::<A>(&mut acc, &b, &a, Extent { rows: words.n, cols: ROWS, depth }, half);
        for (number, &slot) in words.d.iter().enumerate() {
            let mut lanes = [0; LANES];
            for (i, at) in places(number, half).enumerate() {
                match half {
                    true => lanes[i % LANES] |= u32::from(f32_to_half(acc[at])) << (i / LANES * 16),
                    false => lanes[i] = acc[at].to_bits(),
                }
            }
            cx.slot::<[u32; LANES]>(slot).write(lanes);
        }
    }
    Ok(())
}

/// The lanes of a register, and then, where each holds two numbers, the higher ones.
#[inline(always)]
fn split(lanes: [u32; LANES], half: bool) -> impl Iterator<Item = u32> {
    let high = if half { LANES } else { 0 };
    (0..LANES + high).map(move |i| lanes[i % LANES] >> (i / LANES * 16))
}

/// Where what accumulator register number `number` holds, in the order of [`split`], lies in a
/// product of 16 columns.
#[inline(always)]
fn places(number: usize, half: bool) -> impl Iterator<Item = usize> {
    // Each pair of columns has a register, or two, for each half of the rows.
    let (pair, second, count) =
        if half { (number, 0, 2 * LANES) } else { (number / 2, number % 2, LANES) };
    let first = (pair / 2 * 8 + second) * ROWS + pair % 2 * 8;
    (0..count).map(move |i| first + (i % 4 * 2 + i / LANES) * ROWS + i % LANES / 4)
}

/// Reads the chunks of a tile of `rows` rows into `bits`, element by element: row-major if
/// `row_major`, else column-major. `along_k` says whether a chunk holds neighbours along K.
#[inline(always)]
fn read(
    cx: &mut Cx<'_>,
    words: &Words<'_>,
    chunks: &[u32],
    (along_k, row_major): (bool, bool),
    rows: usize,
    bits: &mut [u32],
) -> Result<(), (usize, FaultKind)> {
    let (per_chunk, depth) = words.counts();
    // Once more: it reads until now.
    note(cx, words.line, chunks)?;
    let per_line = if along_k { depth / per_chunk } else { rows / per_chunk };
    // From one row to the next, and from one step along K.
    let (row_step, k_step) = if row_major { (depth, 1) } else { (1, rows) };
    let (line_step, step) = if along_k { (row_step, k_step) } else { (k_step, row_step) };
    for (number, &at) in chunks.iter().enumerate() {
        let first = number / per_line * line_step + number % per_line * per_chunk * step;
        // SAFETY: the chunk was checked when the instruction was issued, and is aligned.
        let chunk = unsafe { cx.cluster_shared.add(at as usize).cast::<[u16; 8]>().read() };
        match words.input {
            Input::Tf32 => {
                for (e, pair) in chunk.as_chunks::<2>().0.iter().enumerate() {
                    bits[first + e * step] = u32::from(pair[0]) | u32::from(pair[1]) << 16;
                }
            }
            _ => {
                for (e, &value) in chunk.iter().enumerate() {
                    bits[first + e * step] = value.into();
                }
            }
        }
    }
    Ok(())
}
