//! Shared, constant and global memory, of all types.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use cuda_std::atomic::{
    AtomicF32, AtomicF64, BlockAtomicF32, BlockAtomicI64, DeviceAtomicI64, DeviceAtomicU32,
    SystemAtomicF64, SystemAtomicI32, SystemAtomicU64,
};
use cuda_std::block::block_reduce;
use cuda_std::cfg::ComputeCapability;
use cuda_std::prelude::*;
use cuda_std::ptr::{self, AddressSpace};
use cuda_std::vec::{self, Aligned};
use cuda_std::{constant_array, misc};

/// Twelve bytes, aligned to 4.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Rgb([f32; 3]);

/// Sixteen bytes, aligned to 8, two of them padding.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Mixed {
    wide: f64,
    narrow: u32,
    half: u16,
}

/// Passes values of many types on to the thread before, through shared memory.
///
/// # Safety
/// One block of 32 threads; `out` has 32 * 8 elements, which nothing else touches.
#[kernel(block = 32)]
pub unsafe fn shared_types(out: *mut f64) {
    let i = thread::thread_idx_x();
    let next = (i + 1) % 32;
    let f64s = shared_array![f64; 32];
    let i64s = shared_array![i64; 32];
    let i16s = shared_array![i16; 32];
    let bytes = shared_array![u8; 32];
    let rgbs = shared_array![Rgb; 32];
    let mixed = shared_array![Mixed; 32];
    let vectors = shared_array![f64; 64];
    let raw = shared_array![i32; 32];
    // SAFETY: each thread has elements of its own, and a barrier lies between stores and loads.
    // `out` is as the launch promises.
    unsafe {
        f64s.store(i, f64::from(i) / 3.0);
        i64s.store(i, i64::from(i) << 33);
        i16s.store(i, i as i16 - 16);
        bytes.write(i, i as u8 * 3);
        rgbs.write(i, Rgb([i as f32, 0.5, 0.25]));
        mixed.write(i, Mixed { wide: f64::from(i), narrow: i * 5, half: 3 });
        vectors.store_vec(i * 2, [f64::from(i), 100.0]);
        *raw.add(i as usize) = -(i as i32);
        thread::sync_threads();
        let [a, b] = vectors.load_vec::<2>(next * 2);
        let (rgb, m) = (rgbs.read(next), mixed.read(next));
        let found = [
            f64s.load(next),
            i64s.load(next) as f64,
            i16s.load(next).into(),
            bytes.read(next).into(),
            f64::from(rgb.0[0]) + f64::from(rgb.0[1]) + f64::from(rgb.0[2]),
            m.wide * 1000.0 + f64::from(m.narrow) + f64::from(m.half),
            a + b,
            (*raw.as_mut_ptr().add(next as usize)).into(),
        ];
        for (j, found) in found.into_iter().enumerate() {
            *out.add(i as usize * 8 + j) = found;
        }
    }
}

/// Copies `x` to `y` with each kind of access, 64 bytes in each.
///
/// # Safety
/// One thread; `x` and `y` have 160 elements, aligned to 16 bytes, which nothing else touches.
#[kernel(block = 1)]
pub unsafe fn cache_operators(x: *const u32, y: *mut u32) {
    // SAFETY: as the launch promises, with 16 elements for each line.
    unsafe {
        vec::store(y, vec::load::<u32, 4>(x));
        vec::store(y.add(4), vec::load_nc::<u32, 4>(x.add(4)));
        vec::store_cg(y.add(8).cast::<f64>(), vec::load_cg::<f64, 2>(x.add(8).cast()));
        vec::store_cs(y.add(12).cast::<u64>(), vec::load_ca::<u64, 1>(x.add(12).cast()));
        vec::store_wt(y.add(14), vec::load_cs::<u32, 2>(x.add(14)));
        vec::store(y.add(16).cast::<u16>(), vec::load_lu::<u16, 4>(x.add(16).cast()));
        vec::store(y.add(18).cast::<u8>(), vec::load_cv::<u8, 4>(x.add(18).cast()));
        vec::store(y.add(19).cast::<i16>(), vec::load_nc::<i16, 1>(x.add(19).cast()));
    }
}

constant_array! {
    /// Weights that the host writes.
    pub WEIGHTS: [f32; 16]
}

/// `out[i] = WEIGHTS[i]`, and what lies where: 1 for global, 2 for shared, 4 for constant memory.
///
/// # Safety
/// One block of 16 threads; `out` has 16 elements and `spaces` three, which nothing else touches.
#[kernel(block = 16)]
pub unsafe fn constants(out: *mut f32, spaces: *mut u32) {
    let i = thread::thread_idx_x() as usize;
    let spaces_of = |pointer: *const u32| {
        u32::from(ptr::is_in_address_space(pointer, AddressSpace::Global))
            | u32::from(ptr::is_in_address_space(pointer, AddressSpace::Shared)) << 1
            | u32::from(ptr::is_in_address_space(pointer, AddressSpace::Local)) << 3
    };
    let array = shared_array![u32; 4];
    let shared = array.as_mut_ptr().cast_const();
    // SAFETY: as the launch promises; the conversions are there and back.
    unsafe {
        *out.add(i) = WEIGHTS().load(i) + if WEIGHTS().is_empty() { 1.0 } else { 0.0 };
        if i == 0 {
            *spaces = spaces_of(spaces);
            *spaces.add(1) = spaces_of(shared);
            let narrow =
                ptr::convert_generic_to_specific_address_space(shared, AddressSpace::Shared);
            let back = ptr::convert_specific_address_space_to_generic(narrow, AddressSpace::Shared);
            *spaces.add(2) = u32::from(back == shared && narrow.addr() as u32 == array.address());
        }
    }
}

/// Atomic floats, and `core`'s integers, in global and in shared memory.
///
/// # Safety
/// Nothing but atomics touches them; `out` has four elements, which nothing else touches.
#[kernel]
pub unsafe fn atomics(
    floats: &[AtomicF32],
    doubles: &[AtomicF64],
    of_system: &SystemAtomicF64,
    integers: &[AtomicU32],
    wide: &AtomicU64,
    out: *mut f32,
) {
    let i = thread::thread_idx_x();
    let place = shared_array![f32; 1];
    let count = shared_array![i32; 1];
    // SAFETY: the atomics lie in shared memory, where all threads of the block reach them, and no
    // other block's; a barrier lies between the first store and the rest.
    unsafe {
        let sum = &*place.as_mut_ptr().cast::<BlockAtomicF32>();
        let count = &*count.as_mut_ptr().cast::<AtomicI32>();
        if i == 0 {
            sum.store(1.0, Release);
            count.store(0, SeqCst);
        }
        thread::sync_threads();
        sum.fetch_add(0.5, Relaxed);
        count.fetch_sub(2, AcqRel);
        thread::sync_threads();
        if i == 0 && thread::block_idx_x() == 0 {
            *out = sum.load(Acquire);
            *out.add(1) = count.load(Relaxed) as f32;
        }
    }
    if let ([a, b, c, d], [x, y]) = (floats, doubles) {
        a.fetch_add(0.5, Relaxed);
        b.fetch_sub(0.25, SeqCst);
        c.fetch_or(2.0, AcqRel);
        d.fetch_xor(-0.0, Acquire);
        x.fetch_add(0.125, Release);
        // Adds with a loop.
        let mut before = y.load(Relaxed);
        while let Err(other) = y.compare_exchange(before, before + 1.0, AcqRel, Relaxed) {
            before = other;
        }
    }
    of_system.fetch_add(1.0, SeqCst);
    if let [a, b, c] = integers {
        a.fetch_add(1, Relaxed);
        b.fetch_max(thread::index(), Relaxed);
        c.fetch_nand(i, Relaxed);
    }
    wide.fetch_add(1 << 33, SeqCst);
    if thread::first() {
        // In local memory: plain.
        let local = AtomicF32::new(3.0);
        // SAFETY: as the launch promises.
        unsafe {
            *out.add(2) =
                local.fetch_add(1.0, Relaxed) + local.load(Relaxed) + local.swap(9.0, SeqCst);
            *out.add(3) = local.into_inner();
        }
    }
}

/// Orders memory by read-modify-writes alone, each with an ordering of its own.
///
/// # Safety
/// `lock` and `count` are 0 before, and nothing but this touches `sum` and `total`.
#[kernel]
pub unsafe fn orderings(lock: &AtomicU32, count: &AtomicU32, sum: *mut u32, total: *mut u32) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    while lock.swap(1, Acquire) == 1 {}
    // SAFETY: whoever has the lock is alone, and the last block comes after all others.
    unsafe {
        *sum += 1;
        lock.fetch_sub(1, Release);
        if count.fetch_add(1, AcqRel) + 1 == thread::grid_dim_x() {
            *total = *sum;
            count.fetch_or(1 << 16, Relaxed);
            count.fetch_xor(1 << 17, SeqCst);
        }
    }
}

/// Read-modify-writes that LLVM makes of others: of 8 and 16 bits, in loops, and in shared memory.
///
/// # Safety
/// Nothing else touches them.
#[kernel]
pub unsafe fn narrow_orderings(
    byte: &AtomicU8,
    half: &AtomicU16,
    flag: &AtomicBool,
    wide: &AtomicU64,
) {
    let count = shared_array![u32; 1];
    // SAFETY: it lies in shared memory, and is set before a barrier.
    let count = unsafe { &*count.as_mut_ptr().cast::<AtomicU32>() };
    if thread::thread_idx_x() == 0 {
        count.store(0, Relaxed);
    }
    thread::sync_threads();
    byte.fetch_add(1, SeqCst);
    half.fetch_or(1 << 9, AcqRel);
    half.fetch_max(3, Release);
    flag.swap(true, Acquire);
    flag.fetch_nand(false, SeqCst);
    wide.fetch_min(5, SeqCst);
    wide.fetch_add(u64::from(count.fetch_add(1, Release)), Relaxed);
}

/// Every operation on nine integers, each by all threads, with `value`.
macro_rules! integer_operations {
    ($atoms:ident, $value:expr) => {
        if let [add, sub, min, max, and, or, xor, cas, swap] = $atoms {
            add.fetch_add($value, Relaxed);
            sub.fetch_sub($value, AcqRel);
            min.fetch_min($value, Acquire);
            max.fetch_max($value, Release);
            and.fetch_and($value, SeqCst);
            or.fetch_or($value, Relaxed);
            xor.fetch_xor($value, Relaxed);
            let mut before = cas.load(Relaxed);
            while let Err(other) = cas.compare_exchange(before, before + 1, AcqRel, Relaxed) {
                before = other;
            }
            if thread::first() {
                swap.store(swap.swap($value, Relaxed) + 5, SeqCst);
            }
        }
    };
}

/// Integers of the device and of the system; and in `counts` those that the block counted.
#[kernel(block = 64)]
pub fn scoped_integers(
    a: &[DeviceAtomicU32],
    b: &[DeviceAtomicI64],
    c: &[SystemAtomicI32],
    d: &[SystemAtomicU64],
    mut counts: DisjointSlice<i64>,
) {
    let i = thread::thread_idx_x();
    integer_operations!(a, i + 3);
    integer_operations!(b, i64::from(i) - (1 << 40));
    integer_operations!(c, i as i32 - 20);
    integer_operations!(d, u64::from(i) << 33);

    let (words, wide) = (shared_array![u32; 3], shared_array![i64; 1]);
    let (signed, place) = (words.cast::<i32>(), wide.as_mut_ptr());
    // SAFETY: a barrier lies between the stores and the rest, which is atomic, and another one
    // before the loads.
    unsafe {
        let of_block = &*place.cast::<BlockAtomicI64>();
        if i == 0 {
            words.store(0, 7);
            words.store(1, 7);
            signed.store(2, 7);
            of_block.store(0, Relaxed);
        }
        thread::sync_threads();
        words.fetch_add(0, i);
        words.fetch_min(1, i + 2);
        signed.fetch_min(2, 5 - i as i32);
        signed.fetch_max(2, -70);
        of_block.fetch_sub(i64::from(i), Relaxed);
        thread::sync_threads();
        let found = [
            words.load(0).into(),
            words.load(1).into(),
            signed.load(2).into(),
            of_block.load(Relaxed),
        ];
        if let Some(count) = counts.get_mut() {
            *count = found[i as usize % 4];
        }
    }
}

/// The maximum and the sum of all of `x`, in 16-byte loads, by one block of 3 warps.
#[kernel(block = (32, 3))]
pub fn reduce_block(x: &[u32], mut out: DisjointSlice<u64>) {
    let scratch = shared_array![u64; 3];
    let (head, body, tail) = Aligned::<[u32; 4]>::split(x);
    let (mut max, mut sum) = (0, 0);
    let mut take = |x: u32| {
        max = x.max(max);
        sum += u64::from(x);
    };
    for i in thread::grid_stride(body.len()) {
        body[i].0.into_iter().for_each(&mut take);
    }
    for rest in [head, tail] {
        thread::grid_stride(rest.len()).for_each(|i| take(rest[i]));
    }
    // SAFETY: all three warps are here, and `scratch` has an element for each.
    let (max, sum) = unsafe {
        let max = block_reduce(*scratch, max.into(), u64::max);
        (max, block_reduce(*scratch, sum, |a, b| a + b))
    };
    if let Some(out) = out.get_mut() {
        *out = max << 40 | sum;
    }
}

/// Clocks go on, and the capability is that of the build, as rustc and as Rust-CUDA spell it.
///
/// # Safety
/// One thread; `out` has three elements, which nothing else touches.
#[kernel(block = 1)]
#[allow(unexpected_cfgs, reason = "the builder's, for the device alone")]
pub unsafe fn clocks(out: *mut u64) {
    let (cycles, nanos) = (misc::clock(), misc::global_timer());
    thread::nanosleep(100);
    let capability = ComputeCapability::from_cuda_arch_env();
    // SAFETY: as the launch promises.
    unsafe {
        *out = u64::from(misc::clock() >= cycles);
        *out.add(1) = u64::from(misc::global_timer() >= nanos);
        *out.add(2) = u64::from(capability >= ComputeCapability::Compute80)
            + u64::from(capability >= ComputeCapability::Compute90);
        for same in [
            cfg!(target_feature = "sm_80") == cfg!(target_feature = "compute_80"),
            cfg!(target_feature = "sm_90") == cfg!(target_feature = "compute_90"),
            cfg!(target_feature = "sm_90a") == cfg!(target_feature = "compute_90a"),
            cfg!(target_feature = "compute_60") && !cfg!(target_feature = "compute_100"),
        ] {
            *out.add(2) += u64::from(!same) * 10;
        }
    }
}
