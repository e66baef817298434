//! The language's constructs, one after another, on both sides: those of the compile tests of
//! Rust-CUDA and of the examples of cuda-oxide that are about a compiler.

use core::cmp::{Ordering, Reverse};
use core::hint::select_unpredictable;
use core::mem::{self, ManuallyDrop, MaybeUninit};
use core::num::{NonZeroU32, Wrapping};
use core::ops::Range;
use core::ptr;

use cuda_std::glam::{Mat3, Mat4, Quat, Vec3, Vec4};
use cuda_std::vek;

/// `if`, `while`, `loop` and `for`, nested, with `break`, `continue`, labels and early returns.
pub fn control_flow(i: u32) -> u64 {
    fn first_divisor(n: u32) -> Option<u32> {
        let mut divisor = 2;
        while divisor * divisor <= n {
            if n.is_multiple_of(divisor) {
                return Some(divisor);
            }
            divisor += 1;
        }
        None
    }
    let mut sum = 0u64;
    'outer: for a in 0..i % 9 {
        let mut b = a;
        loop {
            if b == 5 {
                break 'outer;
            } else if b % 2 == 1 {
                b += 1;
                continue;
            }
            if b > 6 && a != 3 || b == 8 {
                break;
            }
            b += 3;
            sum += u64::from(b);
        }
        sum = sum * 10 + if a < 4 { 1 } else { 2 };
    }
    let value = loop {
        sum += 1;
        if sum.is_multiple_of(7) {
            break sum;
        }
    };
    value << 8 | u64::from(first_divisor(i + 2).unwrap_or(0))
}

/// Ranges of all kinds, and a range of one's own.
pub fn ranges(i: u32) -> u64 {
    struct Countdown(i32);
    impl Iterator for Countdown {
        type Item = i32;
        fn next(&mut self) -> Option<i32> {
            self.0 -= 1;
            (self.0 >= 0).then_some(self.0)
        }
    }
    let n = i as i32 % 11;
    let signed: i32 = (-n..=n).rev().step_by(3).map(|x| x * x + 1).sum();
    let own: i32 = Countdown(n).zip(0..).map(|(a, b)| a * b).sum();
    let contained = u64::from((3..7).contains(&n)) | u64::from((..=5).contains(&n)) << 1;
    (signed as u64) << 32 | (own as u64) << 8 | contained
}

/// Arrays of all integers, of arrays and of structs, indexed and assigned through fields.
pub fn arrays(i: u32) -> u64 {
    #[derive(Clone, Copy, Default)]
    struct Cell {
        weights: [i16; 3],
        at: (u8, [u64; 2]),
    }
    let mut cells = [[Cell::default(); 2]; 3];
    let (row, column) = (i as usize % 3, i as usize / 3 % 2);
    cells[row][column].weights[i as usize % 3] = -(i as i16);
    cells[row][1 - column].at.1[column] = u64::from(i) << 33;
    cells[2].swap(0, 1);
    let (bytes, longs) = ([i as u8; 5], [u64::from(i); 3]);
    let nested = cells.iter().flatten().fold(0u64, |sum, cell| {
        let weights: i16 = cell.weights.iter().sum();
        sum.wrapping_mul(31).wrapping_add(weights as u64) ^ cell.at.1[0] ^ cell.at.1[1] << 1
    });
    let shorts = [i as i16, -1, 7].map(|x| x.wrapping_mul(3));
    nested ^ bytes.iter().map(|b| u64::from(*b)).sum::<u64>() ^ longs[2] ^ shorts[0] as u64
}

/// Slices: split, cut in chunks and windows, taken apart by patterns, reversed, rotated, searched.
pub fn slices(i: u32) -> u64 {
    let mut values: [u32; 12] = core::array::from_fn(|at| (at as u32 * 7 + i) % 13);
    let (low, high) = values.split_at_mut(5);
    mem::swap(&mut low[1], &mut high[2]);
    low.rotate_left(2);
    if let [first, .., last] = high {
        mem::swap(first, last);
    }
    if let Some(one) = values.get_mut(i as usize % 20) {
        *one += 100;
    }
    values[3..9].reverse();
    values.copy_within(0..3, 8);
    let chunks: u32 = values.chunks(5).map(|chunk| chunk.iter().product::<u32>() % 1000).sum();
    let exact: u32 = values.chunks_exact(4).map(|chunk| chunk[3]).sum();
    let windows = values.windows(2).filter(|pair| pair[0] < pair[1]).count();
    values.sort_unstable();
    let found = values.binary_search(&(i % 13)).unwrap_or_else(|at| at + 50);
    let (quads, rest) = values[..10].as_chunks::<4>();
    u64::from(chunks) << 40
        | u64::from(exact) << 24
        | (windows as u64) << 16
        | (found as u64) << 8
        | u64::from(quads[1][2] + rest[1])
}

/// Enums with values, with niches and with numbers of their own, built, matched and changed.
pub fn enum_values(i: u32) -> u64 {
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    #[repr(u32)]
    enum Level {
        Low = 3,
        High = 1 << 20,
    }
    #[derive(Clone, Copy)]
    enum Message {
        Nothing,
        Byte(u8),
        Pair(u64, bool),
        Named { level: Level, at: [f32; 2] },
    }
    let mut messages = [
        Message::Nothing,
        Message::Byte(i as u8),
        Message::Pair(u64::from(i) << 35, i.is_multiple_of(2)),
        Message::Named { level: Level::High, at: [i as f32, 0.5] },
    ];
    messages[0] = messages[i as usize % 4];
    if let Message::Pair(value, flag) = &mut messages[2] {
        *value += 1;
        *flag = !*flag;
    }
    let weigh = |message: &Message| match *message {
        Message::Nothing => 1,
        Message::Byte(b @ 10..=20) => u64::from(b) * 1000,
        Message::Byte(b) => b.into(),
        Message::Pair(value, true) => value,
        Message::Pair(value, false) => value * 3,
        Message::Named { level, at } => level as u64 + u64::from(at[0].to_bits()),
    };
    let level = if i > 30 { Level::Low } else { Level::High };
    let niche = NonZeroU32::new(i % 3).map_or(7, NonZeroU32::get);
    let sizes = size_of::<Option<&u32>>() + size_of::<Option<NonZeroU32>>();
    messages.iter().map(weigh).fold(sizes as u64, |sum, w| sum.wrapping_mul(5).wrapping_add(w))
        ^ u64::from(level < Level::High) << 50
        ^ u64::from(niche)
}

/// `Option` and `Result`, by their methods and by `?`.
pub fn options(i: u32) -> u64 {
    fn divide(a: u32, b: u32) -> Result<u32, &'static str> {
        let quotient = a.checked_div(b).ok_or("by zero")?;
        if quotient > 40 { Err("large") } else { Ok(quotient) }
    }
    let value = Some(i).filter(|i| !i.is_multiple_of(3)).or_else(|| i.checked_sub(50));
    let reference = value.as_ref().unwrap_or(&9);
    let flat: u32 = [value, None, Some(4)].into_iter().flatten().sum();
    let mut taken = value;
    let before = taken.take().map_or(0, |x| x + 1);
    let divided = divide(i, i % 4).unwrap_or_else(|error| error.len() as u32);
    u64::from(*reference) << 40 | u64::from(flat) << 24 | u64::from(before + divided)
}

/// Generics, constants as parameters, associated types and constants, default methods.
pub fn generics(i: u32) -> u64 {
    trait Ring: Copy {
        type Wide: Into<u64>;
        const ONE: Self;
        fn times(self, other: Self) -> Self;
        fn wide(self) -> Self::Wide;
        fn power(self, n: u32) -> Self {
            (0..n).fold(Self::ONE, |power, _| power.times(self))
        }
    }
    impl Ring for u16 {
        type Wide = u32;
        const ONE: u16 = 1;
        fn times(self, other: u16) -> u16 {
            self.wrapping_mul(other)
        }
        fn wide(self) -> u32 {
            self.into()
        }
    }
    impl Ring for Wrapping<u64> {
        type Wide = u64;
        const ONE: Self = Wrapping(1);
        fn times(self, other: Self) -> Self {
            self * other
        }
        fn wide(self) -> u64 {
            self.0
        }
    }
    struct Polynomial<T, const N: usize>([T; N]);
    impl<T: Ring, const N: usize> Polynomial<T, N> {
        const DEGREE: usize = N - 1;
        fn weigh(&self, n: u32) -> u64 {
            self.0.iter().map(|x| x.power(n).wide().into()).sum::<u64>() + Self::DEGREE as u64
        }
    }
    let narrow = Polynomial([i as u16, 3, 5]);
    let wide = Polynomial([Wrapping(u64::from(i) + 2), Wrapping(7)]);
    narrow.weigh(i % 5).wrapping_add(wide.weigh(i % 9) << 20)
}

/// Integers: checked, wrapping, saturating, overflowing and carrying; bits; widths.
pub fn integers(i: u32) -> u64 {
    let (a, b) = (i.wrapping_mul(0x9e37_79b9), i as i32 - 35);
    let bits = a.count_ones() + a.leading_zeros() * 3 + a.trailing_zeros() * 5;
    let turned = a.swap_bytes() ^ a.reverse_bits() ^ a.rotate_left(i % 32) ^ a.to_be();
    let checked = a.checked_add(1 << 31).unwrap_or(1) ^ b.checked_abs().unwrap_or(0) as u32;
    let saturated = (b as i8).saturating_mul(9) as u8;
    let (wrapped, overflowed) = (b as i16).overflowing_mul(2000);
    let euclid = b.div_euclid(7) * 100 + b.rem_euclid(7);
    let wide = u64::from(a).widening(u64::from(turned));
    let small = u64::from(i.isqrt() + i.pow(2) + i.abs_diff(40) + (i + 1).ilog2());
    let parts = u64::from(bits ^ checked) << 32 | u64::from(turned);
    parts
        ^ u64::from(saturated)
        ^ (wrapped as u64)
        ^ u64::from(overflowed) << 9
        ^ (euclid as u64) << 12
        ^ wide
        ^ small << 50
}

/// The upper half of a product, through 128 bits.
trait Widening {
    fn widening(self, other: Self) -> Self;
}

impl Widening for u64 {
    fn widening(self, other: u64) -> u64 {
        ((u128::from(self << 30) * u128::from(other << 30)) >> 64) as u64
    }
}

/// `match` on 128 bits, and on what guards and bindings say.
pub fn wide_matches(i: u32) -> u64 {
    let value = 1u128 << (i % 3 * 50) | u128::from(i % 5);
    match value {
        0x1 => 10,
        0x4_0000_0000_0001 => 11,
        0x10_0000_0000_0000_0000_0000_0000 => 12,
        v @ (0x10_0000_0000_0000_0000_0000_0001..) => (v >> 64) as u64,
        v if v.is_power_of_two() => v as u64,
        v => v as u64 * 3,
    }
}

/// Conversions of numbers, which saturate.
pub fn casts(i: u32) -> u64 {
    let x = (i as f32 - 30.0) * 1e8;
    let integers = [x as i32 as u64, x as u32 as u64, x as u8 as u64, x as i64 as u64];
    let special = [f32::from_bits(0x7fc0_0000 | i) as i32, (x * 1e35) as i32, f64::from(-x) as i32];
    let chars = char::from_u32(i + 60).map_or(0, |c| c.to_ascii_lowercase() as u64);
    let signs = (i as i8 as i64 as u64) ^ (i as u8 as char as u64) << 8;
    let wide = (f64::from(i) * 1e17) as u64 ^ (u64::from(i) << 40) as f32 as u64;
    integers.into_iter().fold(wide ^ signs ^ chars << 20, |sum, x| sum.rotate_left(9) ^ x)
        ^ special.into_iter().fold(0, |sum, x| sum * 3 + x as u64 % 1000)
}

/// Floats: comparisons with NaN, minimum and maximum, classes, signs, and their order.
pub fn float_order(i: u32) -> u64 {
    let values = [f32::NAN, -0.0, 0.0, f32::INFINITY, i as f32, -1.5, f32::MIN_POSITIVE / 4.0];
    let mut digest = 0u64;
    for a in values {
        for b in values {
            let compared = u64::from(a < b) | u64::from(a != b) << 1 | u64::from(a >= b) << 2;
            let order = match a.total_cmp(&b) {
                Ordering::Less => 0,
                Ordering::Equal => 1,
                Ordering::Greater => 2,
            };
            let least = a.min(b);
            let least = if least.is_nan() { 5.0 } else { least.abs() };
            digest = digest.rotate_left(5) ^ compared ^ order << 3 ^ u64::from(least.to_bits());
        }
        digest += u64::from(a.is_subnormal()) << 20 | u64::from(a.is_sign_negative()) << 21;
    }
    digest ^ u64::from((i as f32).signum().copysign(-2.0).clamp(-0.5, 7.0).to_bits())
}

/// Raw pointers: offsets, differences, swaps, copies that overlap and those that do not, volatile
/// and unaligned accesses, null.
pub fn pointers(i: u32) -> u64 {
    let mut values: [u32; 8] = core::array::from_fn(|at| at as u32 + i);
    let first = values.as_mut_ptr();
    // SAFETY: all of it inside the array.
    unsafe {
        let end = first.add(8);
        ptr::swap(first.add(1), first.add(i as usize % 8));
        ptr::copy(first, first.add(2), 4);
        let other = [7u32, 9];
        ptr::copy_nonoverlapping(other.as_ptr(), first.add(6), 2);
        first.add(3).write_volatile(first.read_volatile() + 1);
        let across = first.cast::<u8>().add(3).cast::<u32>().read_unaligned();
        let old = ptr::replace(first.add(4), 1000);
        let none: *const u32 = ptr::null();
        let counted = end.offset_from(first) as u64 + u64::from(none.as_ref().is_none());
        let sum: u32 = core::slice::from_raw_parts(first.cast::<[u32; 2]>(), 4)
            .iter()
            .map(|pair| pair[0] * 3 + pair[1])
            .sum();
        u64::from(across) ^ u64::from(sum) << 20 ^ u64::from(old) << 44 ^ counted
    }
}

/// Bytes of values: unions, transmutes, memory that is not initialised, alignment.
pub fn bytes_of_values(i: u32) -> u64 {
    union Word {
        float: f32,
        bits: u32,
        bytes: [u8; 4],
    }
    #[repr(C, align(16))]
    struct Block {
        tag: u8,
        value: u32,
    }
    let mut word = Word { float: i as f32 * 0.5 };
    // SAFETY: every word is one of each, and the struct is two scalars.
    let (bits, pair) = unsafe {
        word.bytes[0] = 0x55;
        let pair: [u16; 2] = mem::transmute(word.bits ^ 0x1_0001);
        (word.bits, pair)
    };
    let mut blocks = [MaybeUninit::<Block>::uninit(), MaybeUninit::uninit()];
    let at = i as usize % 2;
    blocks[at].write(Block { tag: i as u8, value: i * 3 });
    // SAFETY: written above.
    let block = unsafe { blocks[at].assume_init_ref() };
    let place = (&raw const *block).addr() % 16;
    let bytes = u64::from_be_bytes((u64::from(i) * 0x0101_0307).to_ne_bytes());
    bytes
        ^ u64::from(bits)
        ^ u64::from(pair[1]) << 3
        ^ u64::from(u32::from(block.tag) + block.value) << 32
        ^ place as u64
}

/// Values that are dropped: at the end of a scope, when they are replaced, moved out, or not at
/// all.
pub fn drops(i: u32) -> u64 {
    struct Noted<'a>(&'a core::cell::Cell<u64>, u64);
    impl Drop for Noted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() * 10 + self.1);
        }
    }
    let log = core::cell::Cell::new(0);
    {
        let _first = Noted(&log, 1);
        let mut second = Noted(&log, 2);
        if i.is_multiple_of(2) {
            second = Noted(&log, 3);
        }
        let moved = second;
        let _never = ManuallyDrop::new(Noted(&log, 9));
        let kept = Some(Noted(&log, 4)).filter(|_| i.is_multiple_of(3));
        drop(moved);
        log.set(log.get() + u64::from(kept.is_some()));
    }
    log.get()
}

/// Comparisons and choices without branches.
pub fn choices(i: u32) -> u64 {
    let (a, b) = ((i % 4, 'x', -3i8), (i % 3, 'y', 4));
    let key = (Reverse(a.0), a.1.max(b.1), a.cmp(&b));
    let chosen = select_unpredictable(i.is_multiple_of(5), a.2 as u64 & 0xff, b.0.into());
    let logic = u64::from((i > 5) & (i < 60) | (i == 3) ^ (i <= 7));
    chosen | u64::from(key.0.0) << 16 | u64::from(key.2 == Ordering::Less) << 20 | logic << 21
}

/// Vectors and matrices of the crate `glam`.
pub fn linear_algebra(i: u32) -> u64 {
    let v = Vec3::new(i as f32, 0.5, -2.0);
    let scale = Mat4::from_scale(Vec3::new(2.0, 3.0, 0.5));
    let shift = Mat4::from_translation(v);
    let point = (shift * scale).transform_point3(Vec3::ONE);
    let turned = Mat3::from_diagonal(Vec3::new(1.0, -1.0, 4.0)) * v.cross(Vec3::Y);
    let quarter = Quat::from_xyzw(0.0, 0.0, 0.5, 0.5) * Quat::from_xyzw(0.5, 0.0, 0.0, 0.5);
    let projected = scale.transpose() * Vec4::new(1.0, i as f32, 2.0, 1.0);
    let sum = point.dot(turned) + projected.dot(Vec4::from(quarter)) + scale.determinant();
    u64::from(sum.to_bits()) << 32 | u64::from((point.min_element() + v.x).to_bits())
}

/// Vectors and matrices of the crate `vek`, and a range that counts by its traits.
pub fn vek_algebra(i: u32) -> u64 {
    struct Count<T>(Range<T>);
    impl<T: vek::num_traits::Num + PartialOrd + Copy> Iterator for Count<T> {
        type Item = T;
        fn next(&mut self) -> Option<T> {
            let at = self.0.start;
            self.0.start = at + T::one();
            (at < self.0.end).then_some(at)
        }
    }
    let x = i as f32 * 0.25 + 1.0;
    let turn = vek::Mat3::<f32>::rotation_z(x) * vek::Mat3::scaling_3d(0.5);
    let sum: vek::Vec3<f32> =
        Count(0.0..4.0).map(|y| turn * vek::Vec3::new(x, y, -2.0).normalized()).sum();
    let turned = vek::Quaternion::rotation_x(x) * sum.cross(vek::Vec3::unit_y());
    let word = |value: f32| u64::from(value.to_bits());
    word(sum.dot(turned)) << 32 ^ word(turned.x) ^ word(turned.magnitude()) << 16
}
