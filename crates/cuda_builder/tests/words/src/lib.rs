//! Kernels that are named as keywords are, or as what `#[kernel]` writes, in a crate that denies
//! warnings and has another name for `cuda_std`.

#![no_std]
#![deny(warnings)]

use gpu::prelude::*;

pub mod shadows;

gpu::constant_array!(
    /// Four numbers.
    pub r#final: [f32; 4]
);

/// Adds a number, in a block of at most 64 threads.
#[kernel(max_block = 64, no_panic)]
pub fn r#match(r#in: &[u32], r#type: u32, mut r#final: DisjointSlice<u32>) {
    for (i, r#loop) in r#final.iter_mut() {
        *r#loop = r#in.get(i).map_or(0, |r#in| r#in + r#type);
    }
}

/// Stores the elements of a grid constant.
#[kernel]
pub fn r#loop(#[grid_constant] r#in: &[u32; 4], mut out: DisjointSlice<u32>) {
    for (i, out) in out.iter_mut() {
        *out = r#in[i % 4];
    }
}

/// A type of a variant.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct r#dyn(pub f32);

/// Copies, for types that are named as keywords are, through a parameter of the kernel's name.
#[allow(non_camel_case_types)]
#[kernel(variants((r#type, m) = (u32, u8) | (r#dyn, u8)))]
pub fn r#move<r#type: Copy + Sync + Send, m: Copy>(
    r#move: &[r#type],
    _: m,
    mut r#for: DisjointSlice<r#type>,
) {
    for (i, r#for) in r#for.iter_mut() {
        if let Some(r#move) = r#move.get(i) {
            *r#for = *r#move;
        }
    }
}

/// An element that is named as a keyword is.
#[allow(non_camel_case_types)]
type r#yield = f32;

/// Reverses 32 numbers by shared memory, and adds a constant and what both statics have.
///
/// # Safety
/// One block of 32 threads, and 32 elements of `out`.
#[kernel(block = 32)]
pub unsafe fn r#static(out: *mut f32) {
    #[address_space(shared)]
    static mut r#enum: f32 = 0.0;
    let array = shared_array![r#yield; 32];
    let r#if = thread::thread_idx_x();
    // SAFETY: as the launch promises; each thread has its element, and a barrier lies between.
    unsafe {
        array.store(r#if, r#if as f32);
        if r#if == 0 {
            r#enum = 100.0;
        }
        thread::sync_threads();
        *out.add(r#if as usize) = array.load(31 - r#if) + r#final().load(1) + r#enum;
    }
}

/// An array by another name.
pub type Taps = [f32; 3];

/// Multiplies by arrays that come by value.
#[kernel]
pub fn weigh(taps: Taps, more: [f32; 2], mut out: DisjointSlice<f32>) {
    for (i, out) in out.iter_mut() {
        *out *= taps[i % 3] * more[i % 2];
    }
}
