//! Arithmetic of 16-bit floats and of pairs of them, against exact sums.

use api::halves::{
    bf16_arithmetic, bf16_atomics, bf16x2_arithmetic, f16_arithmetic, f16_atomics, f16x2_arithmetic,
};
use cuda_builder::CudaArch;

mod common;
#[path = "common/device.rs"]
mod device;
#[path = "../../soft_cuda/tests/reference/half.rs"]
mod reference;

use device::{Api, buffer};
use reference::{BF16, F16, Format, INSTRUCTIONS, Number, THREADS, one, operands};

/// Whether a number is the expected one, or a NaN, of which the bits are not PTX's to say.
fn same(format: Format, found: u16, expected: u16) -> bool {
    found == expected || format.is_nan(found) && format.is_nan(expected)
}

fn value(format: Format, bits: u16) -> f64 {
    let Number { negative, units, power } = format.number(bits);
    let magnitude = match bits {
        _ if format.is_nan(bits) => f64::NAN,
        _ if format.is_infinite(bits) => f64::INFINITY,
        _ => units as f64 * 2f64.powi(power),
    };
    if negative { -magnitude } else { magnitude }
}

/// `==`, `!=`, `<`, `<=`, `>`, `>=`, as bits.
fn compared(format: Format, a: u16, b: u16) -> u32 {
    let (a, b) = (value(format, a), value(format, b));
    let all = [a == b, a != b, a < b, a <= b, a > b, a >= b];
    all.iter().enumerate().map(|(i, &holds)| u32::from(holds) << i).sum()
}

/// What the kernels for pairs compute beside: by operators, and through conversions.
fn beside(format: Format, [a, b, c]: [u16; 3], high_a: u16) -> u16 {
    let sum = format.fma(a, one(format), b) ^ 0x8000;
    let product = format.fma(sum, c, (sum ^ c) & 0x8000);
    format.fma(product, one(format), high_a ^ 0x8000)
}

#[test]
fn arithmetic_is_exact_but_for_one_rounding() {
    let [a, b, c] = operands();
    let low = |words: &[u32]| words.iter().map(|&word| word as u16).collect::<Vec<u16>>();
    for arch in [CudaArch::Sm80, CudaArch::Sm90a] {
        let Some(api) = Api::of(common::api(), arch) else { return };
        let (blocks, threads) = (THREADS as u32 / 256, 256);
        macro_rules! singles {
            ($kernel:ident, $format:expr) => {
                let (x, y, z) = (buffer(&low(&a)), buffer(&low(&b)), buffer(&low(&c)));
                let mut numbers = buffer(&vec![[0u16; 11]; THREADS]);
                let mut flags = buffer(&vec![0u32; THREADS]);
                // SAFETY: the module was built from these kernels.
                let kernel = unsafe { $kernel::load(&api.module) }.unwrap();
                let config = (blocks, threads);
                kernel.run(&api.stream, config, &x, &y, &z, &mut numbers, &mut flags).unwrap();
                let (numbers, flags) = (api.read(&numbers), api.read(&flags));
                for i in 0..THREADS {
                    let [a, b, c] = [a[i], b[i], c[i]].map(|word| word as u16);
                    for (&found, (name, _, expected)) in numbers[i].iter().zip(&INSTRUCTIONS) {
                        let expected = expected($format, a, b, c);
                        let said = || format!("{name} {a:04x} {b:04x} {c:04x}: {found:04x}");
                        assert!(same($format, found, expected), "{}, {arch}", said());
                    }
                    assert_eq!(flags[i], compared($format, a, b), "{a:04x} {b:04x}, {arch}");
                }
            };
        }
        singles!(f16_arithmetic, F16);
        singles!(bf16_arithmetic, BF16);
        macro_rules! pairs {
            ($kernel:ident, $format:expr) => {
                let (x, y, z) = (buffer(&a), buffer(&b), buffer(&c));
                let mut numbers = buffer(&vec![[0u32; 13]; THREADS]);
                let mut flags = buffer(&vec![0u32; THREADS]);
                // SAFETY: the module was built from these kernels.
                let kernel = unsafe { $kernel::load(&api.module) }.unwrap();
                let config = (blocks, threads);
                kernel.run(&api.stream, config, &x, &y, &z, &mut numbers, &mut flags).unwrap();
                let (numbers, flags) = (api.read(&numbers), api.read(&flags));
                for i in 0..THREADS {
                    let halves = [a[i], b[i], c[i]].map(|word| [word as u16, (word >> 16) as u16]);
                    let [[low_a, high_a], [_, high_b], _] = halves;
                    for half in [0, 1] {
                        let [a, b, c] = halves.map(|both| both[half]);
                        let found = numbers[i].map(|word| (word >> (16 * half)) as u16);
                        for (&found, (name, _, expected)) in found.iter().zip(&INSTRUCTIONS) {
                            let expected = expected($format, a, b, c);
                            let said = || format!("{name} {a:04x} {b:04x} {c:04x}: {found:04x}");
                            assert!(same($format, found, expected), "{}, {arch}", said());
                        }
                        let by_operators = beside($format, [a, b, c], high_a);
                        assert!(same($format, found[11], by_operators), "{a:04x} {b:04x} {c:04x}");
                        let swapped = [high_b, low_a][half];
                        assert!(same($format, found[12], swapped), "{swapped:04x}");
                        let flags = flags[i] >> (6 * half) & 0x3f;
                        assert_eq!(flags, compared($format, a, b), "{a:04x} {b:04x}, {arch}");
                    }
                }
            };
        }
        pairs!(f16x2_arithmetic, F16);
        pairs!(bf16x2_arithmetic, BF16);
    }
}

#[test]
fn halves_add_up_atomically() {
    // Sums that both formats have exactly: 3 blocks of 32 threads.
    let bits = |format: Format, value: u32| {
        format.round(Number { negative: false, units: value.into(), power: 0 })
    };
    let pair =
        |format, low, high| u32::from(bits(format, low)) | u32::from(bits(format, high)) << 16;
    for (arch, formats) in [(CudaArch::Sm80, &[F16][..]), (CudaArch::Sm90a, &[F16, BF16])] {
        let Some(api) = Api::of(common::api(), arch) else { return };
        for &format in formats {
            let (one, two, out) = (buffer(&[0u16; 2]), buffer(&[0u32]), buffer(&[0u32; 3]));
            let (a, b, c) = (one.as_device_ptr(), two.as_device_ptr(), out.as_device_ptr());
            // SAFETY: the module was built from these kernels; the pointers are as they say, and
            // `read` waits.
            unsafe {
                match format == F16 {
                    true => f16_atomics::load(&api.module).unwrap().launch(
                        &api.stream,
                        (3, 32),
                        a,
                        b,
                        c,
                    ),
                    false => bf16_atomics::load(&api.module).unwrap().launch(
                        &api.stream,
                        (3, 32),
                        a,
                        b,
                        c,
                    ),
                }
                .unwrap();
            }
            assert_eq!(api.read(&one), [bits(format, 96), 0]);
            assert_eq!(api.read(&two), [pair(format, 48, 192)]);
            assert_eq!(api.read(&out), [pair(format, 16, 64); 3]);
        }
    }
}
