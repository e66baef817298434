//! Checks and times plans on matrices of their own.

use std::ops::Range;

use gemm_matrix::{Element, bf16, f16};

use super::Skipped;
use super::agreement::{Agreement, largest_operand, tolerance};
use crate::device::{Stream, Timer};
use crate::error::Error;
use crate::matrix::{Memory, OperandRef};
use crate::plan::{Configuration, Plan, RawExtra, RawExtras};
use crate::problem::Gemm;
use crate::select::{Auto, table::Timed};

/// Rounds of timing. If a plan takes longer than `LONG_MS`, there are fewer.
const ROUNDS: usize = 9;
const FEW_ROUNDS: usize = 3;
const LONG_MS: f64 = 2.0;

/// The least bytes between two launches on the same matrices, so that L2 is cold, and the most
/// launches of a sample.
const LEAST_APART: u64 = 128 << 20;
const LAUNCHES: u32 = 16;

/// The most copies of the matrices: a plan keeps the tensor maps of as many.
const COPIES: usize = 128;

/// The most bytes of C compared, in f32. Of a longer C, evenly spread rows are compared.
const COMPARED_BYTES: usize = 8 << 20;

/// Parts of a long C that are compared.
const PARTS: usize = 16;

/// A quiet NaN. Each half is a NaN in bf16 and f16.
const POISON: u32 = 0x7fc0_7fad;

/// Words of a random pattern. It is a prime, so that rows begin at different words.
const PATTERN: usize = 65_537;

/// Choices with their times, and choices that were dropped with the reasons.
type Rehearsed = (Vec<Timed>, Vec<(Configuration, String)>);

/// Checks and times a product's choices in turn.
pub(super) fn rehearse(
    auto: &Auto,
    stream: &Stream,
    gemm: &Gemm,
    choices: &[Configuration],
) -> Result<Result<Rehearsed, Skipped>, Error> {
    let Some(largest) = largest_operand(gemm.k) else { return Ok(Err(Skipped::TooLong)) };
    let device = stream.device();
    let apart = match device.is_soft() {
        // The software device has no cache, and is slow.
        true => 0,
        false => LEAST_APART.max(2 * device.info().l2_bytes),
    };
    let extras = u128::from(gemm.epilogue.residual) * 4 * (gemm.m * gemm.n) as u128;
    let needed = gemm.bytes().saturating_add(extras.saturating_mul(gemm.batch as u128));
    // Workspaces and copies need the other half.
    if needed.saturating_add(apart.into()) > u128::from(device.free_memory()? / 2) {
        return Ok(Err(Skipped::Memory));
    }
    // Fits: no more than what is apart. Tiny products stay in L2.
    let copies = COPIES.min(1 + (u128::from(apart) / needed.max(1 << 12)) as usize);
    let mut plans = Vec::new();
    for (at, choice) in choices.iter().enumerate() {
        match auto.plan_by(*gemm, choice).and_then(|builder| builder.on(stream).prepare()) {
            Ok(plan) => plans.push(plan),
            // The first is the choice without a measurement, whose error is the caller's.
            Err(error @ Error::KernelFault { .. }) => return Err(error),
            Err(error) if at == 0 => return Err(error),
            // Choices that do not fit this device are skipped.
            Err(_) => {}
        }
    }
    if plans.len() < 2 {
        return Ok(Err(Skipped::NoChoice));
    }
    let mut matrices = Matrices::new(stream, gemm, largest, copies)?;
    let mut agreement = Agreement::new(tolerance(gemm));
    let mut dropped = Vec::new();
    let mut right = Vec::new();
    for plan in plans {
        matrices.reset_c()?;
        matrices.run(&plan, 0)?;
        match agreement.compare(matrices.result()?) {
            Ok(()) => right.push(plan),
            Err(reason) => dropped.push((*plan.configuration(), reason)),
        }
    }
    // Integers take less power than other numbers, and clocks follow the power.
    matrices.fill_random()?;
    let samples = time(stream, &matrices, &right)?;
    let timed = right.iter().zip(samples).map(|(plan, ms)| {
        // No record has a time of 0, which a coarse clock might tell.
        let ns = (1e6 * sample_stats::median(&ms)).max(1.0);
        Timed::new(*plan.configuration(), ns)
    });
    Ok(Ok((timed.collect(), dropped)))
}

/// Milliseconds of each plan, a sample for each round.
fn time(
    stream: &Stream,
    matrices: &Matrices,
    plans: &[Plan<'static>],
) -> Result<Vec<Vec<f64>>, Error> {
    let timer = Timer::on(stream)?;
    let launches = LAUNCHES.min(matrices.copies as u32);
    let mut next = 0;
    let mut sample = |plan: &Plan<'static>| {
        let milliseconds = timer.milliseconds(|| {
            (0..launches).try_for_each(|_| {
                next = (next + 1) % matrices.copies;
                matrices.run(plan, next)
            })
        });
        milliseconds.map(|all| all / f64::from(launches))
    };
    let mut longest: f64 = 0.0;
    if !stream.device().is_soft() {
        for plan in plans {
            longest = longest.max(sample(plan)?);
        }
    }
    let rounds = match longest {
        _ if stream.device().is_soft() => 1,
        ms if ms > LONG_MS => FEW_ROUNDS,
        _ => ROUNDS,
    };
    let mut samples = vec![Vec::new(); plans.len()];
    for _ in 0..rounds {
        for (plan, samples) in plans.iter().zip(&mut samples) {
            samples.push(sample(plan)?);
        }
    }
    Ok(samples)
}

/// A product's matrices, several times, and its epilogue's inputs.
struct Matrices {
    copies: usize,
    gemm: Gemm,
    stream: Stream,
    random: Random,
    largest: u32,
    a: Memory,
    b: Memory,
    c: Memory,
    /// Scale, bias and residual, if there are any.
    inputs: [Option<Memory>; 3],
}

impl Matrices {
    /// Allocates the matrices. A, B and the epilogue's inputs hold random integers.
    fn new(stream: &Stream, gemm: &Gemm, largest: u32, copies: usize) -> Result<Self, Error> {
        let mut random = Random(42);
        let [a, b, c] = gemm.shapes().map(|[rows, cols]| gemm.batch * rows * cols);
        let (input, output) = (gemm.compute.element(), gemm.output);
        let mut integers = |elements: usize, element: Element, copies: usize| {
            let words = copies * bytes_apart(elements, element) / 4;
            let mut memory = Memory::uninitialized(stream, words)?;
            memory.repeat(&random.pattern(element, |random| random.integer(largest)))?;
            Ok::<_, Error>(memory)
        };
        let [a, b, c] = [(a, input), (b, input), (c, output)]
            .map(|(elements, element)| integers(elements, element, copies));
        let epilogue = gemm.epilogue;
        let lengths = [
            epilogue.scale.map(|axis| axis.len(gemm.m, gemm.n)),
            epilogue.bias.map(|axis| axis.len(gemm.m, gemm.n)),
            epilogue.residual.then_some(gemm.batch * gemm.m * gemm.n),
        ];
        let mut inputs = [None, None, None];
        for (input, elements) in inputs.iter_mut().zip(lengths) {
            *input = elements.map(|elements| integers(elements, Element::F32, 1)).transpose()?;
        }
        let (gemm, stream, [a, b, c]) = (*gemm, stream.clone(), [a?, b?, c?]);
        Ok(Self { copies, gemm, stream, random, largest, a, b, c, inputs })
    }

    /// Fills C with integers, or NaN without beta.
    fn reset_c(&mut self) -> Result<(), Error> {
        if self.gemm.beta == 0.0 {
            return self.c.fill(POISON);
        }
        // Every plan finds equal integers in C.
        let largest = self.largest;
        let integer = |random: &mut Random| random.integer(largest);
        self.c.repeat(&Random(7).pattern(self.gemm.output, integer))
    }

    /// Fills A and B with random numbers. They are from -1 to 1.
    fn fill_random(&mut self) -> Result<(), Error> {
        let element = self.gemm.compute.element();
        for memory in [&mut self.a, &mut self.b] {
            memory.repeat(&self.random.pattern(element, Random::number))?;
        }
        Ok(())
    }

    /// Enqueues a plan of the product, with one of the copies.
    fn run(&self, plan: &Plan<'static>, copy: usize) -> Result<(), Error> {
        let address = |input: &Option<Memory>| input.as_ref().map_or(0, Memory::address);
        let Gemm { m, n, .. } = self.gemm;
        let vector = |input| RawExtra { address: address(input), ld: 0, stride: 0 };
        let [scale, bias, residual] = &self.inputs;
        let extras = RawExtras {
            scale: vector(scale),
            bias: vector(bias),
            residual: RawExtra { address: address(residual), ld: n, stride: m * n },
            ..RawExtras::default()
        };
        let apart = |i: usize, element| {
            let [rows, cols] = self.gemm.shapes()[i];
            (copy * bytes_apart(self.gemm.batch * rows * cols, element)) as u64
        };
        let (input, output) = (self.gemm.compute.element(), self.gemm.output);
        let addresses = [
            self.a.address() + apart(0, input),
            self.b.address() + apart(1, input),
            self.c.address() + apart(2, output),
        ];
        // SAFETY:
        // - The plan is of this product, whose dense matrices and inputs these are, all
        //   initialised. A vector has an element for each row or column.
        // - Each has memory of its own, so that they do not overlap. Allocations are aligned, and
        //   so are the copies in them.
        // - Only this stream uses the memory, which is freed after all work.
        unsafe { plan.run_raw(addresses, extras) }
    }

    /// The first copy of C, or rows spread over it.
    fn result(&self) -> Result<Vec<f32>, Error> {
        let Gemm { m, n, batch, output, .. } = self.gemm;
        let view = OperandRef::new(&self.stream, output, self.c.address(), [batch * m, n], n);
        let mut result = Vec::new();
        for rows in compared_rows(batch * m, n) {
            result.extend_from_slice(view.submatrix(rows, 0..n)?.download()?.as_slice());
        }
        Ok(result)
    }
}

/// Bytes from one copy of a matrix to the next, aligned as allocations are.
fn bytes_apart(elements: usize, element: Element) -> usize {
    (elements * element.bytes()).next_multiple_of(256)
}

/// The rows of C that are compared. They are all rows, or parts from the first to the last row.
fn compared_rows(rows: usize, cols: usize) -> Vec<Range<usize>> {
    let most = (COMPARED_BYTES / 4 / cols.max(1)).max(PARTS);
    let (parts, part) = if rows <= most { (1, rows) } else { (PARTS, most / PARTS) };
    let last = rows - part;
    let first = |i| last * i / (parts - 1).max(1);
    (0..parts).map(|i| first(i)..first(i) + part).collect()
}

/// Random numbers by SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// An integer of at most this magnitude.
    fn integer(&mut self, largest: u32) -> f32 {
        let count = u64::from(2 * largest + 1);
        (self.next() % count) as f32 - largest as f32
    }

    /// A number from -1 to 1.
    fn number(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// The words of a pattern of elements.
    fn pattern(&mut self, element: Element, mut value: impl FnMut(&mut Self) -> f32) -> Vec<u32> {
        let mut bits = || {
            let value = value(self);
            match element {
                Element::F32 => value.to_bits(),
                Element::Bf16 => bf16::from_f32(value).to_bits().into(),
                Element::F16 => f16::from_f32(value).to_bits().into(),
            }
        };
        let word = |_| match element.bytes() {
            4 => bits(),
            _ => bits() | bits() << 16,
        };
        (0..PATTERN).map(word).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compared_rows_span_c() {
        for rows in [0, 300] {
            let parts = compared_rows(rows, 200);
            assert!(parts.len() == 1 && parts[0] == (0..rows));
        }
        for (rows, cols) in [(100_000, 4096), (17, 1 << 24), (1 << 22, 1)] {
            let parts = compared_rows(rows, cols);
            assert_eq!((parts.len(), parts[0].start, parts[PARTS - 1].end), (PARTS, 0, rows));
            assert!(parts.is_sorted_by(|one, other| one.start <= other.start));
            let bytes: usize = parts.iter().map(|part| 4 * cols * part.len()).sum();
            assert!(bytes <= COMPARED_BYTES || parts.iter().all(|part| part.len() == 1));
        }
    }

    #[test]
    fn patterns_hold_what_they_should() {
        let mut random = Random(1);
        let words = random.pattern(Element::F32, |random| random.integer(3));
        let mut values: Vec<_> = words.into_iter().map(f32::from_bits).collect();
        values.sort_by(f32::total_cmp);
        values.dedup();
        assert_eq!(values, [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]);
        let words = random.pattern(Element::Bf16, Random::number);
        let halves = words.iter().flat_map(|word| [word & 0xffff, word >> 16]);
        let values = halves.map(|bits| bf16::from_bits(bits as u16).to_f32());
        let (mut least, mut most) = (0f32, 0f32);
        values.for_each(|value| (least, most) = (least.min(value), most.max(value)));
        assert!((-1.0..-0.99).contains(&least) && (0.99..=1.0).contains(&most));
    }
}
