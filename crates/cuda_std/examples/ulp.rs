//! Measures the errors of `cuda_std::math`, and prints the table of its documentation:
//!
//! ```text
//! cargo run --release -p cuda_std --example ulp > crates/cuda_std/src/math/ulp.md
//! ```
//!
//! The reference is the crate `pxfm` in f64, most of whose results are correctly rounded. So an
//! error in f32 is exact to 2^-28 ULP, and an error in f64 to half a ULP, which is added.

use cuda_std::{FloatExt, GpuFloat};

/// Arguments for each function and type.
const ARGUMENTS: u64 = 10_000_000;

/// A function, and where it is measured.
struct Row {
    name: &'static str,
    /// CUDA's maximum errors in f32 and f64: the guide's tables 17 and 18.
    cuda: [u32; 2],
    narrow: fn(f32, f32) -> f32,
    wide: fn(f64, f64) -> f64,
    reference: fn(f64, f64) -> f64,
    /// From where to where. Half of the arguments are spread evenly, half by their exponents.
    range: (f64, f64),
}

macro_rules! rows {
    ($($name:literal, $cuda:expr, |$x:ident, $y:ident| $ours:expr, $reference:expr, $range:expr;)*) => {
        [$(Row {
            name: $name,
            cuda: $cuda,
            narrow: |$x: f32, $y: f32| { let _ = $y; $ours },
            wide: |$x: f64, $y: f64| { let _ = $y; $ours },
            reference: |$x, $y| { let _ = $y; $reference },
            range: $range,
        }),*]
    };
}

fn rows() -> Vec<Row> {
    let any = f64::from(f32::MAX);
    let trigonometric = (-1e5, 1e5);
    rows! {
        "sqrt", [0, 0], |x, y| GpuFloat::sqrt(x), x.sqrt(), (0.0, any);
        "cbrt", [1, 1], |x, y| GpuFloat::cbrt(x), pxfm::f_cbrt(x), (-any, any);
        "hypot", [3, 2], |x, y| GpuFloat::hypot(x, y), pxfm::f_hypot(x, y), (-1e10, 1e10);
        "exp", [2, 1], |x, y| GpuFloat::exp(x), pxfm::f_exp(x), (-87.0, 88.0);
        "exp2", [2, 1], |x, y| GpuFloat::exp2(x), pxfm::f_exp2(x), (-126.0, 127.0);
        "exp10", [2, 1], |x, y| GpuFloat::exp10(x), pxfm::f_exp10(x), (-37.0, 38.0);
        "exp_m1", [1, 1], |x, y| GpuFloat::exp_m1(x), pxfm::f_expm1(x), (-87.0, 88.0);
        "ln", [1, 1], |x, y| GpuFloat::ln(x), pxfm::f_log(x), (1e-37, any);
        "log2", [1, 1], |x, y| GpuFloat::log2(x), pxfm::f_log2(x), (1e-37, any);
        "log10", [2, 1], |x, y| GpuFloat::log10(x), pxfm::f_log10(x), (1e-37, any);
        "ln_1p, log1p", [1, 1], |x, y| GpuFloat::ln_1p(x), pxfm::f_log1p(x), (-0.99, any);
        "powf", [4, 2], |x, y| GpuFloat::powf(x, y), pxfm::f_pow(x, y), (1e-3, 12.0);
        "sin", [2, 2], |x, y| GpuFloat::sin(x), pxfm::f_sin(x), trigonometric;
        "cos", [2, 2], |x, y| GpuFloat::cos(x), pxfm::f_cos(x), trigonometric;
        "tan", [4, 2], |x, y| GpuFloat::tan(x), pxfm::f_tan(x), trigonometric;
        "sinpi", [1, 2], |x, y| FloatExt::sinpi(x), pxfm::f_sinpi(x), (-100.0, 100.0);
        "cospi", [1, 2], |x, y| FloatExt::cospi(x), pxfm::f_cospi(x), (-100.0, 100.0);
        "asin", [2, 2], |x, y| GpuFloat::asin(x), pxfm::f_asin(x), (-1.0, 1.0);
        "acos", [2, 2], |x, y| GpuFloat::acos(x), pxfm::f_acos(x), (-1.0, 1.0);
        "atan", [2, 2], |x, y| GpuFloat::atan(x), pxfm::f_atan(x), (-any, any);
        "atan2", [3, 2], |x, y| GpuFloat::atan2(x, y), pxfm::f_atan2(x, y), (-1e10, 1e10);
        "sinh", [3, 2], |x, y| GpuFloat::sinh(x), pxfm::f_sinh(x), (-88.0, 88.0);
        "cosh", [2, 1], |x, y| GpuFloat::cosh(x), pxfm::f_cosh(x), (-88.0, 88.0);
        "tanh", [2, 1], |x, y| GpuFloat::tanh(x), pxfm::f_tanh(x), (-30.0, 30.0);
        "asinh", [3, 3], |x, y| GpuFloat::asinh(x), pxfm::f_asinh(x), (-any, any);
        "acosh", [4, 3], |x, y| GpuFloat::acosh(x), pxfm::f_acosh(x), (1.0, any);
        "atanh", [3, 2], |x, y| GpuFloat::atanh(x), pxfm::f_atanh(x), (-1.0, 1.0);
        "error_function", [2, 2], |x, y| FloatExt::error_function(x), pxfm::f_erf(x), (-6.0, 6.0);
        "complementary_error_function", [4, 5], |x, y| FloatExt::complementary_error_function(x),
            pxfm::f_erfc(x), (-4.0, 9.0);
        "scaled_complementary_error_function", [4, 4], |x, y| FloatExt::scaled_complementary_error_function(x), pxfm::f_erfcx(x),
            (-9.0, 1e4);
        "inv_complementary_error_function", [4, 6], |x, y| FloatExt::inv_complementary_error_function(x), pxfm::f_erfcinv(x),
            (1e-30, 2.0);
        "gamma", [5, 10], |x, y| FloatExt::gamma(x), pxfm::f_tgamma(x), (0.01, 34.0);
        "log_gamma", [6, 4], |x, y| FloatExt::log_gamma(x), pxfm::f_lgamma(x), (3.0, 1e6);
    }
    .into()
}

/// Arguments in a range.
struct Arguments {
    state: u64,
    range: (f64, f64),
}

impl Arguments {
    /// SplitMix64.
    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn next(&mut self) -> f64 {
        let (low, high) = self.range;
        if self.bits() & 1 == 0 {
            return low + self.unit() * (high - low);
        }
        // By the exponent, down to 2^-60.
        loop {
            let top = low.abs().max(high.abs()).log2();
            let magnitude = (-60.0 + self.unit() * (top + 60.0)).exp2();
            let value = if self.bits() & 1 == 0 { magnitude } else { -magnitude };
            if (low..=high).contains(&value) {
                return value;
            }
        }
    }
}

/// The distance from one number to the next that is larger in magnitude, in f32.
fn ulp32(x: f64) -> f64 {
    let magnitude = (x.abs() as f32).max(f32::MIN_POSITIVE);
    let exponent = i32::from((magnitude.to_bits() >> 23) as u16) - 127;
    2f64.powi(exponent - 23)
}

fn ulp64(x: f64) -> f64 {
    let magnitude = x.abs().max(f64::MIN_POSITIVE);
    let exponent = (magnitude.to_bits() >> 52) as i32 - 1023;
    2f64.powi((exponent - 52).max(-1074))
}

/// The largest error of a row in f32 and f64.
fn measure(row: &Row) -> [f64; 2] {
    let mut arguments = Arguments { state: 1, range: row.range };
    let mut worst = [0.0f64; 2];
    for _ in 0..ARGUMENTS {
        let (x, y) = (arguments.next(), arguments.next());
        let (x32, y32) = (x as f32, y as f32);
        let exact = (row.reference)(x32.into(), y32.into());
        // What f32 cannot hold, as a normal number, is no error of a function's.
        if exact.abs() <= f64::from(f32::MAX) && exact.abs() >= f64::from(f32::MIN_POSITIVE) {
            let error = (f64::from((row.narrow)(x32, y32)) - exact).abs() / ulp32(exact);
            worst[0] = if error <= worst[0] { worst[0] } else { error };
        }
        let exact = (row.reference)(x, y);
        if exact.is_normal() {
            let error = ((row.wide)(x, y) - exact).abs() / ulp64(exact) + 0.5;
            worst[1] = if error <= worst[1] { worst[1] } else { error };
        }
    }
    worst
}

fn main() {
    println!(
        "
# Errors

The table lists the largest error in ULP over {} million arguments for each function and type. Half
of the arguments are spread evenly, half by their exponents. Results that are not normal numbers do
not count. The example `ulp` measures the errors against the crate `pxfm` in f64. In f64 the table
includes half a ULP for the rounding of `pxfm` itself.

The last columns are the errors of CUDA's own functions. They come from the CUDA C++ Programming
Guide of CUDA 13.0, section 17.1, tables 17 and 18:

- They are errors against the correctly rounded result. Ours are errors against the exact result. So
  an error of 1 there may be as good as 1.5 here.
- They hold for all arguments, except those of `lgamma`. These hold outside of [-10.001, -2.264] in
  f32 and of [-23.0001, -2.2637] in f64.
",
        ARGUMENTS / 1_000_000
    );
    println!("| function | from | to | f32 | f64 | CUDA, f32 | CUDA, f64 |");
    println!("|---|---|---|---|---|---|---|");
    for row in rows() {
        let [narrow, wide] = measure(&row);
        let (low, high) = row.range;
        let end = |x: f64| match x.abs() {
            0.0 | 1e-3..1e6 => format!("{x}"),
            _ => format!("{x:.1e}"),
        };
        let [cuda_narrow, cuda_wide] = row.cuda;
        println!(
            "| `{}` | {} | {} | {narrow:.2} | {wide:.1} | {cuda_narrow} | {cuda_wide} |",
            row.name,
            end(low),
            end(high),
        );
    }
}
