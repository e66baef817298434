//! Ordinary Rust on a GPU: each function of [`atomics`], [`functions`] and [`language`] is called
//! by a kernel for each thread, and by the tests on the host, which compare. The others print, or
//! panic.

#![no_std]

use cuda_std::prelude::*;

pub mod atomics;
pub mod functions;
pub mod language;

/// A kernel that stores what a function makes of the thread's index.
macro_rules! kernels {
    ($($module:ident: $($name:ident)*;)*) => {
        $($(
            /// Calls the function of this name.
            ///
            /// # Safety
            /// `out` has an element for each thread of one block, and nothing else touches it.
            #[kernel]
            pub unsafe fn $name(out: *mut u64) {
                let i = thread::index_1d();
                // SAFETY: as the launch promises.
                unsafe { *out.add(i as usize) = $module::$name(i) };
            }
        )*)*

        /// All functions, by name.
        pub const FUNCTIONS: &[(&str, fn(u32) -> u64)] =
            &[$($((stringify!($name), $module::$name)),*),*];
    };
}

kernels! {
    atomics: inferred words wide_words signed_words bytes half_words signed_half_words flags locks
        floats scoped;
    functions: recursion mutual_recursion trait_objects function_pointers closures tables
        local_arrays sorting sorting_by_key wide_integers wide_to_float jumps enums strings parsing
        formatting hashing comparing iterators float_remainder any;
    language: control_flow ranges arrays slices enum_values options generics integers wide_matches
        casts float_order pointers bytes_of_values drops choices linear_algebra vek_algebra;
}

/// Adds slices, indexing them: what is out of bounds is a panic.
///
/// # Safety
/// `out` has an element for each thread, and nothing else touches it.
#[kernel]
pub unsafe fn vecadd(a: &[f32], b: &[f32], out: *mut f32) {
    let i = thread::index_1d() as usize;
    // SAFETY: as the launch promises.
    unsafe { *out.add(i) = a[i] + b[i] };
}

/// Panics in the way that `how` says, in thread 3 of block 1.
///
/// # Safety
/// `out` has an element for each thread, and nothing else touches it.
#[kernel]
pub unsafe fn panics(how: u32, out: *mut u32) {
    let i = thread::index_1d();
    let is_it = thread::block_idx_x() == 1 && thread::thread_idx_x() == 3;
    let zero = if is_it { 0 } else { 1 };
    let value = match how {
        0 => 12 / zero,
        1 => Some(i).filter(|_| !is_it).unwrap(),
        2 => u32::try_from(i as i32 - if is_it { 100 } else { 0 }).expect("not negative"),
        3 => [1, 2, 3][(i as usize % 3) + if is_it { 3 } else { 0 }],
        4 => {
            assert_eq!(zero, 1, "thread {i}");
            1
        }
        _ => {
            if is_it {
                unreachable!("{:?}", ("a tuple", i, 0.5));
            }
            2
        }
    };
    // SAFETY: as the launch promises.
    unsafe { *out.add(i as usize) = value };
}

/// Prints a line for each thread, in several formats.
#[kernel]
pub unsafe fn prints(x: f32) {
    let i = thread::index_1d();
    let thread = (thread::block_idx_x(), thread::thread_idx_x());
    println!("{i}: {:>8.3} {:e} {thread:?} {:#06x} {}", x * i as f32, f64::from(x), i * 7, "é");
    if i == 0 {
        print!("{:-<600}", "");
        println!();
    }
}

/// Stores beyond the end of `out`.
///
/// # Safety
/// One thread, and a buffer of no more than five thousand elements: the software device reports it.
#[kernel]
pub unsafe fn out_of_bounds(out: *mut u32) {
    // SAFETY: none of that: the software device stops here.
    unsafe { *out.add(5000) = 1 };
}

macro_rules! stamped {
    ($name:ident) => {
        /// Passes the thread's number on to the thread before it, through an array that is written
        /// out in the macro, and its square through another.
        ///
        /// # Safety
        /// One block of 32 threads; `out` has as many elements.
        #[kernel]
        pub unsafe fn $name(out: *mut u32) {
            let first = shared_array![u32; 32];
            let second = squares();
            let i = thread::thread_idx_x();
            // SAFETY: as the launch promises, with a barrier between stores and loads.
            unsafe {
                first.store(i, i);
                second.store(i, i * i);
                thread::sync_threads();
                *out.add(i as usize) = first.load((i + 1) % 32) * 1000 + second.load(31 - i);
            }
        }
    };
}

macro_rules! array {
    () => {
        shared_array![u32; 32]
    };
}

fn squares() -> shared::SharedArray<u32, 32> {
    let _first = array!();
    array!()
}

stamped!(stamped_one);
stamped!(stamped_two);

/// Indexes, and must not.
///
/// # Safety
/// Never launched.
#[cfg(feature = "no_panic")]
#[kernel(no_panic)]
pub unsafe fn no_panic(x: &[u32], i: u32, out: *mut u32) {
    // SAFETY: never launched.
    unsafe { *out = x[i as usize] };
}

/// Keeps an array in local memory, and must not.
///
/// # Safety
/// Never launched.
#[cfg(feature = "no_local_memory")]
#[kernel(no_local_memory)]
pub unsafe fn no_local_memory(i: u32, out: *mut u32) {
    // SAFETY: never launched.
    unsafe { *out = functions::local_arrays(i) as u32 };
}

/// Converts to what the compiler's backend cannot convert to.
///
/// # Safety
/// Never launched.
#[cfg(feature = "wide_integer")]
#[kernel]
pub unsafe fn wide_integer(x: f64, out: *mut u128) {
    // SAFETY: never launched.
    unsafe { *out = x as u128 };
}
