//! Mathematical functions in kernels, compared with the CPU bit for bit.

use api::math::{Function, narrow, wide};
use cuda_builder::CudaArch;
use cust::launch;
use cust::memory::DeviceCopy;

mod common;
#[path = "common/device.rs"]
mod device;

use device::{Api, buffer};

/// A float, whose bits can be compared.
trait Float: DeviceCopy + Default {
    fn of(value: f64) -> Self;
    fn of_bits(bits: u64) -> Self;
    /// NaNs have one place, whatever their bits.
    fn key(self) -> Option<u64>;
}

macro_rules! float {
    ($($ty:ty, $bits:ty;)*) => {$(
        impl Float for $ty {
            fn of(value: f64) -> Self {
                value as $ty
            }
            fn of_bits(bits: u64) -> Self {
                <$ty>::from_bits((bits >> (64 - <$bits>::BITS)) as $bits)
            }
            fn key(self) -> Option<u64> {
                (!self.is_nan()).then(|| self.to_bits().into())
            }
        }
    )*};
}

float! {
    f32, u32;
    f64, u64;
}

/// Arguments of all magnitudes: what is special, what is usual, and any bits at all.
fn arguments<T: Float>(seed: u64) -> Vec<T> {
    let mut state = seed;
    let mut next = move || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let special = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 10.0, -3.0, 1e-40, 1e30, 1e-320, 1e300];
    let special = special.into_iter().chain([f64::INFINITY, -f64::INFINITY, f64::NAN]);
    let mut values: Vec<T> = special.map(T::of).collect();
    for _ in 0..250 {
        let unit = (next() >> 11) as f64 / (1u64 << 53) as f64;
        values.extend([T::of(unit), T::of((unit - 0.5) * 40.0), T::of_bits(next())]);
    }
    values
}

fn check<T: Float>(api: &Api, functions: &[Function<T>]) {
    let (x, mut y) = (arguments::<T>(1), arguments::<T>(2));
    // Special ones meet usual ones, too.
    y.rotate_left(7);
    let (on_device, y_on_device) = (buffer(&x), buffer(&y));
    let mut wrong = Vec::new();
    for Function { kernel, compute } in functions {
        let out = buffer(&vec![T::default(); x.len()]);
        let function = api.module.get_function(kernel).unwrap();
        let (stream, blocks) = (&api.stream, x.len().div_ceil(64) as u32);
        // SAFETY: three buffers of one size.
        unsafe {
            let (x, y, out) =
                (on_device.as_device_ptr(), y_on_device.as_device_ptr(), out.as_device_ptr());
            launch!(function<<<blocks, 64, 0, stream>>>(x, on_device.len(), y, out)).unwrap();
        }
        for (i, found) in api.read(&out).into_iter().enumerate() {
            let expected = compute(x[i], y[i]);
            if found.key() != expected.key() {
                let key = |value: T| format!("{:x?}", value.key());
                wrong.push([kernel.to_string(), key(x[i]), key(y[i]), key(found), key(expected)]);
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {wrong:#?}", wrong.len());
}

#[test]
fn functions_have_the_bits_of_the_cpu() {
    let builder = common::api().build_args(["--features", "math"]);
    let Some(api) = Api::of(builder, CudaArch::Sm80) else { return };
    check(&api, narrow::FUNCTIONS);
    check(&api, wide::FUNCTIONS);
}
