//! The kernels of `api/`, through `cust`: on the GPU if there is one, else on the software device.
//! What they find is compared with the CPU, bit for bit.

use cuda_builder::CudaArch;
use cust::launch;
use cust::memory::CopyDestination;

mod common;
#[path = "common/device.rs"]
mod device;

use device::{Api, buffer};

/// Launches a kernel, whose buffers and blocks are as it says.
macro_rules! run {
    ($api:ident.$kernel:ident[$grid:expr, $block:expr]($($argument:expr),* $(,)?)) => {{
        let function = $api.module.get_function(stringify!($kernel)).unwrap();
        let stream = &$api.stream;
        // SAFETY: the buffers are as large as the kernel says.
        unsafe { launch!(function<<<$grid, $block, 0, stream>>>($($argument),*)) }.unwrap();
    }};
}

/// For sm_80.
fn api() -> Option<Api> {
    Api::of(common::api(), CudaArch::Sm80)
}

#[test]
fn indices_are_those_of_the_launch() {
    let Some(api) = api() else { return };
    let (grid, block) = ((2u32, 3u32, 2u32), (4u32, 2u32, 3u32));
    let out = buffer(&[u32::MAX; 2 * 3 * 2 * 4 * 2 * 3 * 16]);
    run!(api.indices[grid, block](out.as_device_ptr()));
    let mut expected = Vec::new();
    for (bz, by, bx) in product((grid.2, grid.1, grid.0)) {
        for (z, y, x) in product((block.2, block.1, block.0)) {
            let (gx, gy, gz) = (bx * 4 + x, by * 2 + y, bz * 3 + z);
            let is_first = u32::from([x, y, z, bx, by, bz] == [0; 6]);
            expected.extend([x, y, z, bx, by, bz, 24, 12, gx, gy, gx, gy, gz, gx, is_first, 0]);
        }
    }
    assert_eq!(api.read(&out), expected);
}

fn product(sizes: (u32, u32, u32)) -> impl Iterator<Item = (u32, u32, u32)> {
    let (x, y, z) = sizes;
    (0..x).flat_map(move |x| (0..y).flat_map(move |y| (0..z).map(move |z| (x, y, z))))
}

/// The lane that each shuffle of `width` takes from, and whether it is in reach (PTX ISA:
/// "shfl.sync").
fn sources(lane: i32, width: i32) -> [(i32, bool); 4] {
    let first = lane / width * width;
    let last = first + width - 1;
    let candidates = [lane - 3, lane + 5, first + 9 % width, lane ^ 6];
    let inside = [candidates[0] >= first, candidates[1] <= last, true, candidates[3] <= last];
    std::array::from_fn(|i| (if inside[i] { candidates[i] } else { lane }, inside[i]))
}

#[test]
fn shuffles_take_all_types() {
    let Some(api) = api() else { return };
    macro_rules! check {
        ($($kernel:ident: $ty:ty, $value:expr;)*) => {$({
            let value: fn(u32) -> $ty = $value;
            let (got, inside) = (buffer(&[<$ty>::default(); 64 * 24]), buffer(&[9u8; 64 * 24]));
            run!(api.$kernel[1, 64](got.as_device_ptr(), inside.as_device_ptr()));
            let (got, inside) = (api.read(&got), api.read(&inside));
            for i in 0..64 {
                let found = got.iter().zip(&inside).skip(i * 24);
                let expected = (0..6).flat_map(|log| sources(i as i32 % 32, 1 << log));
                for (at, (found, (source, is_inside))) in found.zip(expected).enumerate() {
                    let expected = value(i as u32 / 32 * 32 + source as u32);
                    assert_eq!(*found.0, expected, "{} {i} {at}", stringify!($kernel));
                    assert_eq!(*found.1, u8::from(is_inside), "{} {i} {at}", stringify!($kernel));
                }
            }
        })*};
    }
    check! {
        shuffles_u8: u8, |i| i as u8;
        shuffles_i16: i16, |i| i as i16 - 40;
        shuffles_f32: f32, |i| i as f32 * 0.5;
        shuffles_i64: i64, |i| (i64::from(i) - 20) * 0x1_0000_0003;
        shuffles_f64: f64, |i| f64::from(i) / 3.0;
        shuffles_u128: u128, |i| u128::from(i) << 100 | u128::from(i) << 40 | u128::from(i);
    }
}

#[test]
fn reductions_and_matches() {
    let Some(api) = api() else { return };
    let out = buffer(&[0u32; 32 * 16]);
    run!(api.reductions[1, 32](out.as_device_ptr()));
    for (lane, found) in api.read(&out).chunks_exact(16).enumerate() {
        let lane = lane as u32;
        let expected = [
            32 * 0x100 + 496,
            0x100,
            0x11f,
            0x100,
            0x11f,
            0,
            (7i32 * 32 - 496) as u32,
            -24i32 as u32,
            7,
            0xff << (lane / 8 * 8),
            0x5555_5555 << (lane % 2),
            u32::MAX,
            5,
            (1 << lane) - 1,
            u32::MAX << lane,
            u32::MAX << lane,
        ];
        assert_eq!(found, expected, "{lane}");
    }
}

#[test]
fn shared_memory_holds_all_types() {
    let Some(api) = api() else { return };
    let out = buffer(&[0.0f64; 32 * 8]);
    run!(api.shared_types[1, 32](out.as_device_ptr()));
    for (i, found) in api.read(&out).chunks_exact(8).enumerate() {
        let next = ((i + 1) % 32) as f64;
        let expected = [
            next / 3.0,
            next * (1u64 << 33) as f64,
            next - 16.0,
            next * 3.0,
            next + 0.75,
            next * 1005.0 + 3.0,
            next + 100.0,
            -next,
        ];
        assert_eq!(found, expected, "{i}");
    }
}

#[test]
fn cache_operators_move_what_they_say() {
    let Some(api) = api() else { return };
    let values: Vec<u32> = (1..=20).map(|i| i * 0x0102_0304).collect();
    let (x, y) = (buffer(&values), buffer(&[0u32; 20]));
    run!(api.cache_operators[1, 1](x.as_device_ptr(), y.as_device_ptr()));
    let mut expected = values;
    expected[19] &= 0xffff;
    assert_eq!(api.read(&y), expected);
    let text = common::ptx("api", common::api(), CudaArch::Sm80).unwrap();
    for instruction in [
        "ld.global.v4.b32",
        "ld.global.nc.v4.b32",
        "ld.global.cg.v4.b32",
        "ld.global.ca.b64",
        "ld.global.cs.v2.b32",
        "ld.global.lu.v2.b32",
        "ld.global.cv.b32",
        "ld.global.nc.b16",
        "st.global.v4.b32",
        "st.global.cg.v4.b32",
        "st.global.cs.b64",
        "st.global.wt.v2.b32",
    ] {
        assert!(text.contains(instruction), "{instruction}");
    }
}

#[test]
fn constants_come_from_the_host() {
    let Some(api) = api() else { return };
    let weights: [f32; 16] = std::array::from_fn(|i| 1.5 * i as f32);
    api.module.get_global::<[f32; 16]>(c"WEIGHTS").unwrap().copy_from(&weights).unwrap();
    let (out, spaces) = (buffer(&[0.0f32; 16]), buffer(&[0u32; 3]));
    run!(api.constants[1, 16](out.as_device_ptr(), spaces.as_device_ptr()));
    assert_eq!(api.read(&out), weights);
    assert_eq!(api.read(&spaces), [1, 2, 1]);
}

#[test]
fn atomics_add_up() {
    let Some(api) = api() else { return };
    const THREADS: usize = 3 * 64;
    let (floats, doubles) = (buffer(&[1.0f32, 0.0, 1.0, 1.0]), buffer(&[0.5f64, 0.0]));
    let (system, integers) = (buffer(&[0.0f64]), buffer(&[0u32, 0, u32::MAX]));
    let (wide, out) = (buffer(&[1u64]), buffer(&[0.0f32; 4]));
    run!(api.atomics[3, 64](
        floats.as_device_ptr(), 4usize, doubles.as_device_ptr(), 2usize, system.as_device_ptr(),
        integers.as_device_ptr(), 3usize, wide.as_device_ptr(), out.as_device_ptr()
    ));
    let all = THREADS as f32;
    let or = f32::from_bits(1.0f32.to_bits() | 2.0f32.to_bits());
    assert_eq!(api.read(&floats), [1.0 + all * 0.5, -all * 0.25, or, 1.0]);
    assert_eq!(api.read(&doubles), [0.5 + f64::from(all) * 0.125, f64::from(all)]);
    assert_eq!(api.read(&system), [f64::from(all)]);
    assert_eq!(api.read(&integers)[..2], [THREADS as u32, THREADS as u32 - 1]);
    assert_eq!(api.read(&wide), [1 + ((THREADS as u64) << 33)]);
    assert_eq!(api.read(&out), [33.0, -128.0, 11.0, 9.0]);
}

/// LLVM drops the ordering of these: see `cuda_builder`'s `ptx/atomics.rs`.
#[test]
fn read_modify_writes_have_their_ordering() {
    let Some(text) = common::ptx("api", common::api(), CudaArch::Sm80) else { return };
    let words = |kernel: &str| -> Vec<String> {
        let (_, body) = text.split_once(&format!(".entry {kernel}(")).unwrap();
        let words = body.split_once("\n}").unwrap().0.split_whitespace();
        let marks = ["atom.", "red.", "fence."];
        let of_atomics = words.filter(|word| marks.iter().any(|mark| word.starts_with(mark)));
        of_atomics.map(str::to_owned).collect()
    };
    let narrow = words("narrow_orderings");
    let is_ordered = |word: &&String| {
        let ordering = word.split('.').nth(1).unwrap();
        ["relaxed", "acquire", "release", "acq_rel", "sc"].contains(&ordering)
    };
    assert!(narrow.len() > 7 && narrow.iter().all(|word| is_ordered(&word)), "{narrow:?}");
    assert_eq!(
        words("orderings"),
        [
            "atom.acquire.sys.global.exch.b32",
            "atom.release.sys.global.add.u32",
            "atom.acq_rel.sys.global.add.u32",
            "atom.relaxed.sys.global.or.b32",
            "fence.sc.sys;",
            "atom.acq_rel.sys.global.xor.b32",
        ]
    );
    let api = Api::load(&text, CudaArch::Sm80);
    let (lock, count) = (buffer(&[0u32]), buffer(&[0u32]));
    let (sum, total) = (buffer(&[0u32]), buffer(&[0u32]));
    run!(api.orderings[8, 32](
        lock.as_device_ptr(),
        count.as_device_ptr(),
        sum.as_device_ptr(),
        total.as_device_ptr()
    ));
    assert_eq!(api.read(&total), [8]);
    assert_eq!(api.read(&count), [8 | 3 << 16]);
    assert_eq!(api.read(&lock), [0]);
}

#[test]
fn integers_of_all_scopes_add_up() {
    let Some(api) = api() else { return };
    /// What the nine hold after all threads have been there.
    macro_rules! expected {
        ($ty:ty: $value:expr) => {{
            let values: Vec<$ty> = (0..64).map($value).collect();
            let sum = values.iter().fold(0 as $ty, |sum, v| sum.wrapping_add(*v));
            let (least, most) = (values.iter().min(), values.iter().max());
            [
                sum.wrapping_add(100),
                (100 as $ty).wrapping_sub(sum),
                *least.unwrap().min(&100),
                *most.unwrap().max(&100),
                values.iter().fold(100, |bits, v| bits & v),
                values.iter().fold(100, |bits, v| bits | v),
                values.iter().fold(100, |bits, v| bits ^ v),
                164,
                105,
            ]
        }};
    }
    let (mut a, mut b) = (buffer(&[100u32; 9]), buffer(&[100i64; 9]));
    let (mut c, mut d) = (buffer(&[100i32; 9]), buffer(&[100u64; 9]));
    let mut counts = buffer(&[0i64; 4]);
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { api::memory::scoped_integers::load(&api.module) }.unwrap();
    kernel.run(&api.stream, (1, 64), &mut a, &mut b, &mut c, &mut d, &mut counts).unwrap();
    assert_eq!(api.read(&a), expected!(u32: |i| i + 3));
    assert_eq!(api.read(&b), expected!(i64: |i| i - (1 << 40)));
    assert_eq!(api.read(&c), expected!(i32: |i| i - 20));
    assert_eq!(api.read(&d), expected!(u64: |i| i << 33));
    assert_eq!(api.read(&counts), [7 + 2016, 2, -58, -2016]);
}

#[test]
fn a_block_reduces_what_it_loads() {
    let Some(api) = api() else { return };
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { api::memory::reduce_block::load(&api.module) }.unwrap();
    for len in [0, 1, 7, 400, 1001] {
        let x: Vec<u32> = (0..len).map(|i| i * 7919 % 1009).collect();
        let expected = u64::from(x.iter().max().copied().unwrap_or(0)) << 40
            | x.iter().copied().map(u64::from).sum::<u64>();
        let (x, mut out) = (buffer(&x), buffer(&[0u64; 96]));
        kernel.run(&api.stream, (1, (32, 3)), &x, &mut out).unwrap();
        assert_eq!(api.read(&out), [expected; 96]);
    }
}

#[test]
fn clocks_go_on_and_the_capability_is_that_of_the_build() {
    for (arch, capability) in [(CudaArch::Sm80, 1), (CudaArch::Sm90a, 2)] {
        let Some(api) = Api::of(common::api(), arch) else { return };
        let out = buffer(&[0u64; 3]);
        run!(api.clocks[1, 1](out.as_device_ptr()));
        assert_eq!(api.read(&out), [1, 1, capability], "{arch}");
    }
}

#[test]
fn approximations_are_as_near_as_they_say() {
    let Some(api) = api() else { return };
    let x: Vec<f32> = (1..200).map(|i| i as f32 / 33.0).collect();
    let (input, mut out) = (buffer(&x), buffer(&vec![[0.0f32; 17]; x.len()]));
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { api::float::approximations::load(&api.module) }.unwrap();
    kernel.run(&api.stream, (7, 32), &input, &mut out).unwrap();
    for (x, found) in x.iter().map(|x| f64::from(*x)).zip(api.read(&out)) {
        // What it should be, and the absolute error.
        let trigonometric = 1.5 * 2f64.powf(-20.5);
        let relative = |value: f64| (value, value.abs() * 2f64.powi(-21));
        let (sin, cos) = x.sin_cos();
        let expected = [
            (sin, trigonometric),
            (cos, trigonometric),
            (cos, trigonometric),
            (sin / cos, trigonometric * 2.0 * (1.0 + (sin / cos).abs()) / cos.abs()),
            relative(x.exp2()),
            (x.exp(), x.exp() * (1.0 + x) * 2f64.powi(-21)),
            (x.log2(), 2f64.powi(-21) * (1.0 + x.log2().abs())),
            (x.ln(), 2f64.powi(-21) * (1.0 + x.ln().abs())),
            relative(1.0 / x),
            relative(x.sqrt()),
            relative(1.0 / x.sqrt()),
            (x.tanh(), x.tanh() * 2f64.powi(-10)),
            (1.0 / x + x * x, (1.0 / x + x * x * (2.0 + x.log2().abs())) * 2f64.powi(-20)),
            relative(x.exp2()),
            relative(1.0 / x),
            (x.max(1.0), 0.0),
        ];
        assert!(found[16].is_nan());
        for (i, ((expected, error), found)) in expected.into_iter().zip(found).enumerate() {
            let off = (f64::from(found) - expected).abs();
            assert!(off <= error, "{i} of {x}: {found}, {expected}");
        }
    }
}

#[test]
fn halves_have_the_bits_of_the_cpu() {
    use cuda_std::half::{Half, bf16, f16};
    let Some(api) = api() else { return };
    let x: Vec<u16> = (0..=u16::MAX).collect();
    // All exponents of f32, and ties.
    let y: Vec<f32> = x.iter().map(|x| f32::from_bits(u32::from(*x) << 16 | 0x1000)).collect();
    let (bits, values) = (buffer(&x), buffer(&y));
    let (mut wide, mut narrow) =
        (buffer(&vec![[0.0f32; 2]; x.len()]), buffer(&vec![[0u16; 4]; x.len()]));
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { api::float::halves::load(&api.module) }.unwrap();
    kernel.run(&api.stream, (256, 256), &bits, &values, &mut wide, &mut narrow).unwrap();
    let (wide, narrow) = (api.read(&wide), api.read(&narrow));
    for (i, (x, y)) in x.into_iter().zip(y).enumerate() {
        let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        let halves = (f16::from_bits(x), bf16::from_bits(x));
        assert!(same(wide[i][0], halves.0.widen()) && same(wide[i][1], halves.1.widen()), "{x:x}");
        let [a, b, c, d] = narrow[i];
        let expected = (f16::narrow(y), bf16::narrow(y));
        let same_half =
            |a: u16, b: f16| a == b.to_bits() || f16::from_bits(a).is_nan() && b.is_nan();
        let same_bf =
            |a: u16, b: bf16| a == b.to_bits() || bf16::from_bits(a).is_nan() && b.is_nan();
        assert!(same_half(a, expected.0) && same_bf(b, expected.1), "{y}");
        assert!(
            same_half(c, expected.0 + halves.0) && same_bf(d, expected.1 * halves.1),
            "{y} {x}"
        );
    }

    let mut out = buffer(&[0.0f32; 32]);
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { api::float::halves_shuffled::load(&api.module) }.unwrap();
    // SAFETY: one block of 32 threads, and `read` waits.
    unsafe { kernel.launch(&api.stream, (1, 32), &mut out) }.unwrap();
    let expected: Vec<f32> =
        (0..32u8).map(|i| f32::from(i ^ 1) * 100.0 + f32::from(i ^ 2)).collect();
    assert_eq!(api.read(&out), expected);
}
