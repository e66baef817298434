//! What is computed on both sides.

use core::any::Any;
use core::fmt::{self, Write};
use core::hash::{Hash, Hasher};

/// A function that calls itself twice.
pub fn recursion(i: u32) -> u64 {
    fn fibonacci(n: u32) -> u64 {
        if n < 2 { n.into() } else { fibonacci(n - 1) + fibonacci(n - 2) }
    }
    fibonacci(i % 16)
}

/// Functions that call each other.
pub fn mutual_recursion(i: u32) -> u64 {
    #[inline(never)]
    fn even(n: u32, steps: &mut u64) -> bool {
        *steps += 1;
        n == 0 || odd(n - 1, steps)
    }
    #[inline(never)]
    fn odd(n: u32, steps: &mut u64) -> bool {
        *steps += 3;
        n != 0 && even(n - 1, steps)
    }
    let mut steps = 0;
    u64::from(even(i, &mut steps)) << 32 | steps
}

trait Shape {
    fn area(&self) -> f32;
    fn name(&self) -> &str {
        "shape"
    }
}

struct Square(f32);
struct Circle {
    radius: f32,
}

impl Shape for Square {
    fn area(&self) -> f32 {
        self.0 * self.0
    }
    fn name(&self) -> &str {
        "square"
    }
}

impl Shape for Circle {
    fn area(&self) -> f32 {
        self.radius * self.radius * 3.0
    }
}

/// Methods of what is known at run time.
pub fn trait_objects(i: u32) -> u64 {
    let (square, circle) = (Square(i as f32), Circle { radius: 0.5 });
    let shapes: [&dyn Shape; 3] = [&square, &circle, &Square(2.0)];
    let shape = shapes[i as usize % 3];
    u64::from(shape.area().to_bits()) << 8 | shape.name().len() as u64
}

#[inline(never)]
fn increment(x: u64) -> u64 {
    x + 1
}

#[inline(never)]
fn square(x: u64) -> u64 {
    x * x
}

/// Functions in a table.
pub fn function_pointers(i: u32) -> u64 {
    const TABLE: [fn(u64) -> u64; 3] = [increment, square, u64::swap_bytes];
    let mut value = u64::from(i);
    for step in 0..4 {
        value = TABLE[(i as usize + step) % 3](value) % 1_000_003;
    }
    value
}

/// Closures of one type and of several.
pub fn closures(i: u32) -> u64 {
    let mut sum = 0;
    let mut add = |x: u64| sum += x * u64::from(i);
    (0..5).for_each(&mut add);
    let (double, minus): (&dyn Fn(u64) -> u64, &dyn Fn(u64) -> u64) =
        (&|x| x * 2 + u64::from(i), &|x| x.wrapping_sub(3));
    let chosen = if i.is_multiple_of(2) { double } else { minus };
    chosen(sum)
}

/// Tables of constants, some of them of slices.
pub fn tables(i: u32) -> u64 {
    static PRIMES: [u16; 10] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29];
    static ROWS: [&[u8]; 4] = [b"", b"a", b"bcd", &[200, 100]];
    let row: u64 = ROWS[i as usize % 4].iter().map(|byte| u64::from(*byte)).sum();
    u64::from(PRIMES[i as usize % 10]) * 1000 + row
}

/// An array whose elements the run chooses.
pub fn local_arrays(i: u32) -> u64 {
    let mut counts = [0u8; 37];
    let mut state = i;
    for _ in 0..200 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        counts[(state >> 16) as usize % 37] += 1;
    }
    let mut matrix = [[0u32; 5]; 5];
    for (at, count) in counts.iter().enumerate() {
        matrix[at % 5][at / 5 % 5] += u32::from(*count);
    }
    matrix[i as usize % 5]
        .iter()
        .fold(u64::from(counts[i as usize % 37]), |a, b| a * 97 + u64::from(*b))
}

/// `sort_unstable`.
pub fn sorting(i: u32) -> u64 {
    let mut values = [0u32; 50];
    let mut state = i + 1;
    for value in &mut values {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        *value = state % 1000;
    }
    values.sort_unstable();
    let found = values.binary_search(&500).unwrap_or_else(|place| place);
    values
        .iter()
        .fold(found as u64, |hash, value| hash.wrapping_mul(31).wrapping_add((*value).into()))
}

/// Sorting by what a closure says.
pub fn sorting_by_key(i: u32) -> u64 {
    let mut pairs = [(0i16, 0u8); 20];
    for (at, pair) in pairs.iter_mut().enumerate() {
        *pair = ((at as i16 * 7 + i as i16) % 11 - 5, at as u8);
    }
    pairs.sort_unstable_by_key(|(key, place)| (-key, *place));
    pairs.iter().fold(0, |hash: u64, (key, place)| {
        hash.wrapping_mul(131).wrapping_add((*key as u64) ^ u64::from(*place))
    })
}

/// Integers of 128 bits.
pub fn wide_integers(i: u32) -> u64 {
    let a = (u128::from(i) << 100) + 0x0123_4567_89ab_cdef;
    let b = (u128::from(i) << 33) | 12_345;
    let quotient = (a / b) as u64 ^ (a % b) as u64;
    let product = a.checked_mul(b).map_or(1, |product| (product >> 70) as u64);
    let signed = (-(a as i128) / 1_000_007) as u64;
    quotient ^ product.rotate_left(7) ^ signed
}

/// Floats from integers of 128 bits.
pub fn wide_to_float(i: u32) -> u64 {
    let x = (u128::from(i) + 1) * 0x1234_5678_9abc_def0_1234_5678;
    u64::from((x as f32).to_bits()) << 32
        ^ (x as f64).to_bits()
        ^ (-(x as i128) as f32).to_bits() as u64
}

/// A `match` with arms that do different things.
pub fn jumps(i: u32) -> u64 {
    let mut value = u64::from(i);
    for step in 0..6 {
        value = match (i + step) % 8 {
            0 => value * 3,
            1 => recursion(i) + value,
            2 => value ^ 0xffff,
            3 => return value + 5,
            4 => value.count_ones().into(),
            5 => tables(i) + value,
            6 => value << 3,
            _ => value / 7,
        };
    }
    value
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Instruction {
    Push(i64),
    Add,
    Multiply { by: i32 },
    Bytes([u8; 9]),
    Swap,
}

/// A small machine.
pub fn enums(i: u32) -> u64 {
    use Instruction::{Add, Bytes, Multiply, Push, Swap};
    let program =
        [Push(i.into()), Push(-3), Add, Multiply { by: 7 }, Bytes([i as u8; 9]), Swap, Add];
    let (mut stack, mut depth) = ([0i64; 8], 0);
    for step in program {
        match step {
            Push(value) => {
                stack[depth] = value;
                depth += 1;
            }
            Add => {
                depth -= 1;
                stack[depth - 1] += stack[depth];
            }
            Multiply { by } => stack[depth - 1] *= i64::from(by),
            Bytes(bytes) => {
                stack[depth] = bytes.iter().map(|byte| i64::from(*byte)).sum();
                depth += 1;
            }
            Swap => stack.swap(depth - 1, depth - 2),
        }
    }
    stack[depth - 1] as u64
}

/// Text, by its characters.
pub fn strings(i: u32) -> u64 {
    let text = "Grüße, 世界! one two  three";
    let words = text.split_whitespace().map(str::len).fold(0, |all, length| all * 10 + length);
    let upper = text.chars().filter(|c| c.is_uppercase()).count();
    let found = text.find(['w', '世']).unwrap_or(0);
    let nth = text.chars().nth(i as usize % 20).map_or(0, u32::from);
    (words as u64) << 32 | (upper as u64) << 24 | (found as u64) << 16 ^ u64::from(nth)
}

/// Numbers from text, and what is none.
pub fn parsing(i: u32) -> u64 {
    let texts = ["17", "-4", "", "99999999999", "0x1", "+8"];
    match texts[i as usize % 6].parse::<i32>() {
        Ok(number) => number as u64,
        Err(error) => 1000 + u64::from(error.kind() == &core::num::IntErrorKind::PosOverflow),
    }
}

struct Digest(u64, usize);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = self.0.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte);
            self.1 += 1;
        }
        Ok(())
    }
}

/// `core::fmt`, whose output is digested.
pub fn formatting(i: u32) -> u64 {
    #[derive(Debug)]
    #[expect(dead_code, reason = "read by `Debug`")]
    struct Point {
        x: f32,
        name: &'static str,
        path: [Option<u8>; 2],
    }
    let mut digest = Digest(0xcbf2_9ce4, 0);
    let point = Point { x: i as f32 / 3.0, name: "p\n", path: [None, Some(i as u8)] };
    let written = write!(digest, "{point:?} {i:>5} {:+.3e} {:#b} {}", -0.1f64, i, u128::MAX)
        .and_then(|()| write!(digest, "{:#?}{:08.2}{:?}", point, f64::from(i) * 1.25, 1e-7f32));
    digest.0 ^ (digest.1 as u64) << 48 ^ u64::from(written.is_ok())
}

/// The hash of the standard library's maps.
#[expect(deprecated, reason = "what `core` has of it")]
pub fn hashing(i: u32) -> u64 {
    let mut hasher = core::hash::SipHasher::new_with_keys(1, i.into());
    (i, "text", [1u8, 2, 3], Some('x')).hash(&mut hasher);
    hasher.finish()
}

/// Comparisons of arrays and slices.
pub fn comparing(i: u32) -> u64 {
    let mut bytes = [7u8; 40];
    bytes[(i % 40) as usize] = i as u8;
    let other = [7u8; 40];
    let order = bytes.as_slice().cmp(&other) as i8 as u64;
    let rows = [[i; 9]; 3];
    order << 4 | u64::from(bytes == other) << 1 | u64::from(rows[0] == rows[2] && rows[1] != [0; 9])
}

/// Adapters of iterators.
pub fn iterators(i: u32) -> u64 {
    let values = core::array::from_fn::<u32, 24, _>(|at| (at as u32 * 5 + i) % 23);
    let zipped = values.iter().zip(values.iter().rev()).filter(|(a, b)| a > b).count();
    let best = values.chunks(5).map(|chunk| chunk.iter().sum::<u32>()).max().unwrap_or(0);
    let steps = values.iter().step_by(3).skip(1).take_while(|value| **value != 4).count();
    let scanned = values.iter().scan(0, |sum, value| {
        *sum += value;
        (*sum < 150).then_some(*sum)
    });
    zipped as u64
        | u64::from(best) << 8
        | (steps as u64) << 24
        | u64::from(scanned.last().unwrap_or(0)) << 32
}

/// `%` of floats.
pub fn float_remainder(i: u32) -> u64 {
    let x = i as f32 * 1.75 - 20.0;
    u64::from((x % 3.5).to_bits()) << 32 ^ (f64::from(x) % 0.3).to_bits()
}

/// Values whose type is found out at run time.
pub fn any(i: u32) -> u64 {
    let (number, text) = (i, "text");
    let value: &dyn Any = if i.is_multiple_of(2) { &number } else { &text };
    value.downcast_ref::<u32>().map_or(7, |number| u64::from(*number) * 3)
}
