//! Kernels for typed launches.
//!
//! What does not fit a kernel does not compile:
//!
//! ```no_run
//! # use api::typed::*; use cust::{memory::DeviceBuffer, module::Module, stream::Stream};
//! # fn f(m: &Module, s: &Stream, a: DeviceBuffer<f32>, mut c: DeviceBuffer<f32>) {
//! unsafe { axpy::load(m) }.unwrap().run(s, (1, 64), 2.0, &a, &mut c).unwrap();
//! # }
//! ```
//! A missing argument:
//! ```compile_fail,E0061
//! # use api::typed::*; use cust::{memory::DeviceBuffer, module::Module, stream::Stream};
//! # fn f(m: &Module, s: &Stream, a: DeviceBuffer<f32>, mut c: DeviceBuffer<f32>) {
//! unsafe { axpy::load(m) }.unwrap().run(s, (1, 64), 2.0, &a).unwrap();
//! # }
//! ```
//! An f64 for an f32:
//! ```compile_fail,E0308
//! # use api::typed::*; use cust::{memory::DeviceBuffer, module::Module, stream::Stream};
//! # fn f(m: &Module, s: &Stream, a: DeviceBuffer<f32>, mut c: DeviceBuffer<f32>) {
//! unsafe { axpy::load(m) }.unwrap().run(s, (1, 64), 2.0f64, &a, &mut c).unwrap();
//! # }
//! ```
//! A buffer of other elements:
//! ```compile_fail,E0277
//! # use api::typed::*; use cust::{memory::DeviceBuffer, module::Module, stream::Stream};
//! # fn f(m: &Module, s: &Stream, a: DeviceBuffer<f64>, mut c: DeviceBuffer<f32>) {
//! unsafe { axpy::load(m) }.unwrap().run(s, (1, 64), 2.0, &a, &mut c).unwrap();
//! # }
//! ```
//! What is written, shared:
//! ```compile_fail,E0277
//! # use api::typed::*; use cust::{memory::DeviceBuffer, module::Module, stream::Stream};
//! # fn f(m: &Module, s: &Stream, a: DeviceBuffer<f32>, c: DeviceBuffer<f32>) {
//! unsafe { axpy::load(m) }.unwrap().run(s, (1, 64), 2.0, &a, &c).unwrap();
//! # }
//! ```
//! What is written, read by the same launch:
//! ```compile_fail,E0502
//! # use api::typed::*; use cust::{memory::DeviceBuffer, module::Module, stream::Stream};
//! # fn f(m: &Module, s: &Stream, mut c: DeviceBuffer<f32>) {
//! unsafe { axpy::load(m) }.unwrap().run(s, (1, 64), 2.0, &c, &mut c).unwrap();
//! # }
//! ```
//! A launch that does not wait, without `unsafe`:
//! ```compile_fail,E0133
//! # use api::typed::*; use cust::{memory::DeviceBuffer, module::Module, stream::Stream};
//! # fn f(m: &Module, s: &Stream, a: DeviceBuffer<f32>, mut c: DeviceBuffer<f32>) {
//! unsafe { axpy::load(m) }.unwrap().launch(s, (1, 64), 2.0, &a, &mut c).unwrap();
//! # }
//! ```
//! A pointer to the host's memory, by value, to a safe kernel:
//! ```compile_fail,E0277
//! # use cuda_std::prelude::*; use cust::{module::Module, stream::Stream};
//! #[kernel]
//! pub fn looks(x: Option<&'static u32>) {}
//! # fn f(m: &Module, s: &Stream) {
//! unsafe { looks::load(m) }.unwrap().run(s, (1, 64), Some(&5)).unwrap();
//! # }
//! ```
//! An instance that is not listed:
//! ```compile_fail,E0599
//! # use api::typed::*; use cust::module::Module;
//! # fn f(m: &Module) {
//! unsafe { scale::<u8>::load(m) }.unwrap();
//! # }
//! ```

use core::mem::MaybeUninit;
use core::ops::Mul;

use cuda_std::atomic::AtomicF32;
use cuda_std::prelude::*;

/// `c = a * x + c`, as a safe function.
#[kernel]
pub fn axpy(a: f32, x: &[f32], mut c: DisjointSlice<f32>) {
    for (i, c) in c.iter_mut() {
        if let Some(x) = x.get(i) {
            *c = fma(a, *x, *c);
        }
    }
}

/// The thread's number, for the first elements.
#[kernel(max_block = (8, 4, 2))]
pub fn numbers(mut out: DisjointSlice<u32>) {
    if let Some(out) = out.get_mut() {
        *out = thread::index();
    }
}

/// `out = x * factor`.
#[kernel(variants(T = f32 | u64))]
pub fn scale<T: Copy + Mul<Output = T>>(x: &[T], factor: T, mut out: DisjointSlice<T>) {
    for (i, out) in out.iter_mut() {
        if let Some(x) = x.get(i) {
            *out = *x * factor;
        }
    }
}

/// What a kernel takes by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Its slope.
    pub slope: f64,
    /// Its value at 0.
    pub start: f32,
}

cuda_std::device_fn! {
    /// A line, with its slope as a power of two.
    pub struct Power { exponent: i8, start: f32 }
    |x: f32, _index: usize| -> f32 { (f32::from(exponent)).exp2() * x + start }
}

cuda_std::device_fn! {
    /// Another value for each third element.
    pub struct Thirds { value: f32 }
    |x: f32, index: usize| -> f32 { if index.is_multiple_of(3) { value } else { x } }
}

/// `out = f(x)`, with what stands for a closure of the host.
#[kernel(variants(F = Power | Thirds))]
pub fn map<F: DeviceFn<(f32, usize), Output = f32>>(f: F, x: &[f32], mut out: DisjointSlice<f32>) {
    for (i, out) in out.iter_mut() {
        *out = f.call((x[i], i));
    }
}

/// Values of two types, and a struct.
///
/// # Safety
/// `out` has `n` elements.
#[kernel(variants((T, U) = (f32, u32) | (f64, u16)))]
pub unsafe fn lines<T: From<f32> + Copy, U: Into<u32> + Copy>(
    line: Line,
    x: &[U],
    out: *mut T,
    n: u32,
) {
    let i = thread::index_1d();
    if let Some(x) = x.get(i as usize).filter(|_| i < n) {
        let x: u32 = (*x).into();
        let y = line.slope * f64::from(x) + f64::from(line.start);
        // SAFETY: the element is this thread's alone.
        unsafe { *out.add(i as usize) = T::from(y as f32) };
    }
}

/// Sums up, and reverses through statics in shared memory; `stream` and `config` are names that the
/// host's launch has, too.
///
/// # Safety
/// One block of 64 threads; `stream` has as many elements.
#[kernel(block = 64, dynamic_shared = 64 * size_of::<u32>() as u32)]
pub unsafe fn reverse(stream: &[f32], config: *mut f32, sum: &AtomicF32, _: u8) {
    const SIZE: usize = 64;
    #[address_space(shared)]
    static mut TILE: [f32; SIZE] = [0.0; SIZE];
    #[address_space(shared)]
    static mut FIRST: MaybeUninit<f32> = MaybeUninit::uninit();
    let dynamic = shared::dynamic_shared_mem::<u32>();
    let i = thread::thread_idx_x() as usize;
    // SAFETY: each thread has an element of its own, and what it loads was stored before the
    // barrier.
    unsafe {
        let value = stream.get(i).copied().unwrap_or(0.0);
        TILE[i] = value;
        dynamic.store(i as u32, i as u32);
        if i == 0 {
            FIRST.write(value);
        }
        thread::sync_threads();
        let other = dynamic.load(63 - i as u32) as usize;
        let reversed = TILE[other];
        *config.add(i) = reversed + FIRST.assume_init();
        sum.fetch_add(value, core::sync::atomic::Ordering::Relaxed);
    }
}
