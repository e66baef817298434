//! Functions as parameters of kernels, instead of closures.
//!
//! A kernel is found by its name, and a closure's type has none. So no kernel can be generic over
//! closures of the host. [`device_fn!`](crate::device_fn) makes a type with a name, from a
//! closure's captures and its code. A kernel lists the types that it is built for.

/// Something that kernels call like an `Fn`, with its arguments as a tuple.
///
/// Types that implement it with [`device_fn!`](crate::device_fn) can be parameters of kernels.
pub trait DeviceFn<Arguments> {
    /// The result.
    type Output;

    /// Calls it.
    fn call(&self, arguments: Arguments) -> Self::Output;
}

/// Declares a type that is a closure's captures, by value, and a [`DeviceFn`].
///
/// The closure follows the struct. In it each field is a variable.
///
/// ```no_run
/// use cuda_std::device_fn;
/// use cuda_std::prelude::*;
///
/// device_fn! {
///     /// A line.
///     pub struct Line { slope: f32, start: f32 }
///     |x: f32| -> f32 { fma(slope, x, start) }
/// }
///
/// device_fn! {
///     /// What is left of a value between two others.
///     pub struct Clamp { low: f32, high: f32 }
///     |x: f32| -> f32 { x.clamp(low, high) }
/// }
///
/// /// `out = f(x)`.
/// #[kernel(variants(F = Line | Clamp))]
/// pub fn map<F: DeviceFn<(f32,), Output = f32>>(f: F, x: &[f32], mut out: DisjointSlice<f32>) {
///     for (i, out) in out.iter_mut() {
///         *out = f.call((x[i],));
///     }
/// }
/// # fn main() {}
/// ```
///
/// The host passes the type as it passes a number: `map.run(&stream, config, Line { slope: 2.0,
/// start: 1.0 }, &x, &mut out)`. A field that leads to the host's memory does not compile there
/// (the feature `launch`):
///
#[cfg_attr(all(feature = "launch", not(target_arch = "nvptx64")), doc = "```compile_fail,E0277")]
#[cfg_attr(not(all(feature = "launch", not(target_arch = "nvptx64"))), doc = "```ignore")]
/// cuda_std::device_fn! {
///     struct Name { name: &'static str }
///     | | -> usize { name.len() }
/// }
/// ```
#[macro_export]
macro_rules! device_fn {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_attribute:meta])* $capture:ident: $captured:ty),* $(,)?
        }
        | $($argument:ident: $taken:ty),* $(,)? | -> $output:ty $body:block
    ) => {
        $(#[$attribute])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        $visibility struct $name {
            $(
                $(#[$field_attribute])*
                #[allow(missing_docs, reason = "the closure says what it is")]
                pub $capture: $captured,
            )*
        }

        impl $crate::function::DeviceFn<($($taken,)*)> for $name {
            type Output = $output;

            #[inline(always)]
            fn call(&self, ($($argument,)*): ($($taken,)*)) -> $output {
                let $name { $($capture),* } = *self;
                $body
            }
        }

        $crate::__on_host! {
            // SAFETY: its fields are, and its layout is C's.
            unsafe impl $crate::launch::DeviceCopy for $name
            where
                $($captured: $crate::launch::DeviceCopy,)*
            {
            }
        }
    };
}
