//! Bugs in Rust that the software device's checks find, each with a clean twin: the same function,
//! compiled with the bug and without. `// BUG` is the line that a finding has to name, also where
//! the access itself is in a function of `cuda_std`, inlined there.
//!
//! The crate does not say `no_std`, as Rust-CUDA's kernels do not: the builder does.

use cuda_std::prelude::*;
use cuda_std::{atomic, cp_async, shared_array, warp};

/// Words of each buffer.
pub const WORDS: u32 = 4096;
/// Threads of a block.
pub const THREADS: u32 = 64;

/// For each function: a kernel with its bug and one without, and a list of all with the kind of
/// fault that is found.
macro_rules! planted {
    ($($function:ident($bug:ident, $fix:ident) = $kind:literal;)*) => {
        $(
            /// With the bug.
            ///
            /// # Safety
            /// It has a bug: what it does is undefined. `input` and `output` have [`WORDS`] words.
            #[kernel]
            pub unsafe fn $bug(input: *mut u32, output: *mut u32) {
                // SAFETY: none, which is the point.
                unsafe { $function::<true>(input, output) }
            }

            /// Without the bug.
            ///
            /// # Safety
            /// `input` and `output` have [`WORDS`] words, and nothing else touches them.
            #[kernel]
            pub unsafe fn $fix(input: *mut u32, output: *mut u32) {
                // SAFETY: as the launch promises.
                unsafe { $function::<false>(input, output) }
            }
        )*

        /// The names of each pair, and what is found.
        pub const PLANTED: &[(&str, &str, &str)] =
            &[$((stringify!($bug), stringify!($fix), $kind)),*];
    };
}

planted! {
    no_barrier(no_barrier_bug, no_barrier_fix) = "DataRace";
    no_second_barrier(no_second_barrier_bug, no_second_barrier_fix) = "DataRace";
    no_warp_barrier(no_warp_barrier_bug, no_warp_barrier_fix) = "DataRace";
    one_word(one_word_bug, one_word_fix) = "DataRace";
    no_wait(no_wait_bug, no_wait_fix) = "DataRace";
    blocks_meet(blocks_meet_bug, blocks_meet_fix) = "DataRace";
    not_atomic(not_atomic_bug, not_atomic_fix) = "DataRace";
    no_fence(no_fence_bug, no_fence_fix) = "DataRace";
    unwritten_shared(unwritten_shared_bug, unwritten_shared_fix) = "Uninitialised";
    unwritten_global(unwritten_global_bug, unwritten_global_fix) = "Uninitialised";
    past_the_end(past_the_end_bug, past_the_end_fix) = "OutOfBounds";
    past_the_array(past_the_array_bug, past_the_array_fix) = "OutOfBounds";
    past_the_slice(past_the_slice_bug, past_the_slice_fix) = "OutOfBounds";
    misaligned(misaligned_bug, misaligned_fix) = "Misaligned";
    half_a_barrier(half_a_barrier_bug, half_a_barrier_fix) = "BarrierDivergence";
    not_in_its_mask(not_in_its_mask_bug, not_in_its_mask_fix) = "BadMask";
}

/// The thread, and its place in the grid.
fn place() -> (u32, usize) {
    (thread::thread_idx_x(), thread::index_1d() as usize)
}

unsafe fn no_barrier<const BUG: bool>(_input: *mut u32, output: *mut u32) {
    let (tid, i) = place();
    let tile = shared_array![u32; THREADS as usize];
    // SAFETY: as the launch promises, but for the bug.
    unsafe {
        tile.store(tid, tid);
        if !BUG {
            thread::sync_threads();
        }
        *output.add(i) = tile.load(tid ^ 32); // BUG no_barrier
    }
}

unsafe fn no_second_barrier<const BUG: bool>(_input: *mut u32, output: *mut u32) {
    let (tid, i) = place();
    let tile = shared_array![u32; THREADS as usize];
    let mut sum = 0;
    // SAFETY: as the launch promises, but for the bug.
    unsafe {
        for round in 0..3 {
            tile.store(tid, round); // BUG no_second_barrier
            thread::sync_threads();
            sum += tile.load(tid ^ 32);
            if !BUG {
                thread::sync_threads();
            }
        }
        *output.add(i) = sum;
    }
}

unsafe fn no_warp_barrier<const BUG: bool>(_input: *mut u32, output: *mut u32) {
    let (tid, i) = place();
    let tile = shared_array![u32; THREADS as usize];
    // SAFETY: as the launch promises, but for the bug.
    unsafe {
        tile.store(tid, tid);
        if !BUG {
            warp::sync_warp(u32::MAX);
        }
        *output.add(i) = tile.load(tid ^ 1); // BUG no_warp_barrier
    }
}

unsafe fn one_word<const BUG: bool>(_input: *mut u32, output: *mut u32) {
    let (tid, i) = place();
    let tile = shared_array![u32; 1];
    // SAFETY: as the launch promises, but for the bug.
    unsafe {
        if BUG || tid == 0 {
            tile.store(0, tid); // BUG one_word
        }
        thread::sync_threads();
        *output.add(i) = tile.load(0);
    }
}

unsafe fn no_wait<const BUG: bool>(input: *mut u32, output: *mut u32) {
    let (tid, i) = place();
    let tile = shared_array![f32; THREADS as usize];
    // SAFETY: as the launch promises, but for the bug.
    unsafe {
        cp_async::copy(tile.add(tid), input.add(i).cast());
        cp_async::commit_group();
        if BUG {
            cp_async::wait_group::<1>();
        } else {
            cp_async::wait_group::<0>();
        }
        *output.add(i) = tile.load(tid).to_bits(); // BUG no_wait
    }
}

unsafe fn blocks_meet<const BUG: bool>(_input: *mut u32, output: *mut u32) {
    let (tid, i) = place();
    // SAFETY: as the launch promises, but for the bug.
    unsafe {
        *output.add(if BUG { tid as usize } else { i }) = i as u32; // BUG blocks_meet
    }
}

unsafe fn not_atomic<const BUG: bool>(input: *mut u32, _output: *mut u32) {
    // SAFETY: as the launch promises, but for the bug.
    unsafe {
        if BUG {
            input.write_volatile(*input + 1); // BUG not_atomic
        } else {
            atomic::atomic_add_u32_device(input, 1);
        }
    }
}

/// The last of two blocks reads what the other has stored.
unsafe fn no_fence<const BUG: bool>(input: *mut u32, output: *mut u32) {
    let (tid, i) = place();
    let is_last = shared_array![u32; 1];
    let blocks = thread::grid_dim_x();
    // SAFETY: as the launch promises, but for the bug.
    unsafe {
        *output.add(i) = i as u32;
        if !BUG {
            thread::device_fence();
        }
        thread::sync_threads();
        if tid == 0 {
            let before = atomic::atomic_add_u32_device(input, 1);
            thread::device_fence();
            is_last.store(0, u32::from(before == blocks - 1));
        }
        thread::sync_threads();
        if is_last.load(0) == 1 {
            let other = (i + THREADS as usize) % (2 * THREADS as usize);
            *output.add(2048 + i) = *output.add(other); // BUG no_fence
        }
    }
}

unsafe fn unwritten_shared<const BUG: bool>(_input: *mut u32, output: *mut u32) {
    let (tid, i) = place();
    let tile = shared_array![u32; 2 * THREADS as usize];
    // SAFETY: as the launch promises, but for the bug.
    unsafe {
        tile.store(tid, tid);
        if !BUG {
            tile.store(THREADS + tid, tid);
        }
        *output.add(i) = tile.load(THREADS + tid); // BUG unwritten_shared
    }
}

unsafe fn unwritten_global<const BUG: bool>(input: *mut u32, output: *mut u32) {
    let (_, i) = place();
    // SAFETY: as the launch promises, but for the bug.
    unsafe {
        let from = if BUG { output } else { input };
        *output.add(2048 + i) = *from.add(i); // BUG unwritten_global
    }
}

unsafe fn past_the_end<const BUG: bool>(input: *mut u32, output: *mut u32) {
    let (_, i) = place();
    // SAFETY: as the launch promises, but for the bug.
    unsafe {
        *output.add(i) = *input.add(if BUG { WORDS as usize - 5 + i } else { i }); // BUG past_the_end
    }
}

unsafe fn past_the_array<const BUG: bool>(_input: *mut u32, output: *mut u32) {
    let (tid, i) = place();
    let tile = shared_array![u32; THREADS as usize];
    // SAFETY: as the launch promises, but for the bug.
    unsafe {
        tile.store(if BUG { 2 * THREADS - tid } else { tid }, tid); // BUG past_the_array
        *output.add(i) = tile.load(tid);
    }
}

unsafe fn past_the_slice<const BUG: bool>(_input: *mut u32, output: *mut u32) {
    let len = if BUG { WORDS + 1 } else { WORDS };
    // SAFETY: as the launch promises, but for the bug.
    let mut words = unsafe { DisjointSlice::from_raw_parts(output, len as usize) };
    for (i, word) in words.iter_mut() {
        *word = i as u32; // BUG past_the_slice
    }
}

unsafe fn misaligned<const BUG: bool>(input: *mut u32, output: *mut u32) {
    let (_, i) = place();
    // SAFETY: as the launch promises, but for the bug.
    unsafe {
        let from = input.add(i).byte_add(if BUG { 2 } else { 0 });
        *output.add(i) = *from; // BUG misaligned
    }
}

unsafe fn half_a_barrier<const BUG: bool>(_input: *mut u32, output: *mut u32) {
    let (tid, i) = place();
    // SAFETY: as the launch promises, but for the bug.
    unsafe {
        if !BUG || tid < 16 {
            thread::sync_threads_aligned(); // BUG half_a_barrier
        }
        *output.add(i) = tid;
    }
}

unsafe fn not_in_its_mask<const BUG: bool>(_input: *mut u32, output: *mut u32) {
    let (tid, i) = place();
    // SAFETY: as the launch promises, but for the bug.
    unsafe {
        let mask = if BUG { u32::MAX - 1 } else { u32::MAX };
        *output.add(i) = warp::warp_vote_ballot(mask, tid < 40); // BUG not_in_its_mask
    }
}
