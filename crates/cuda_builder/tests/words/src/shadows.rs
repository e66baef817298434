//! A module with names of its own for what `#[kernel]` uses.

#![allow(non_camel_case_types, missing_docs)]

use gpu::prelude::{DisjointSlice, kernel, shared_array, thread};

pub struct u32;
pub struct u64;
pub struct usize;
pub struct Option;
pub struct Result;
pub struct Kernel;
pub trait Copy {}
pub trait Into {}
pub trait Debug {}
pub mod core {}
pub mod cuda_std {}
pub const fn parameter() {}
pub const fn size_of() {}

#[allow(non_snake_case)]
pub const fn Some() {}
#[allow(non_snake_case)]
pub const fn Ok() {}

#[allow(unused_macros)]
macro_rules! assert {
    () => {};
}
#[allow(unused_macros)]
macro_rules! concat {
    () => {};
}

gpu::constant_array!(pub shadowed_constant: [f32; 4]);

/// Adds, through shared memory.
#[kernel(block = 32, min_blocks = 1)]
pub fn shadowed(x: &[f32], stream: f32, config: [f32; 2], mut out: DisjointSlice<f32>) {
    let array = shared_array![f32; 32];
    let i = thread::thread_idx_x();
    // SAFETY: each thread has its own element.
    let shared = unsafe {
        array.store(i, stream);
        array.load(i) + shadowed_constant().load(0)
    };
    for (i, out) in out.iter_mut() {
        *out = x[i] + config[i % 2] + shared;
    }
}

/// Copies.
#[kernel(variants(T = f32))]
pub fn shadowed_by_parameters<T: ::core::marker::Copy + Send + Sync>(
    module: &[T],
    kernel: T,
    arguments: T,
    mut contract: DisjointSlice<T>,
) {
    for (i, out) in contract.iter_mut() {
        *out = match i {
            0 => module[0],
            1 => kernel,
            _ => arguments,
        };
    }
}
