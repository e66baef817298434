//! Storing a block's tile of C in vectors of 16 bytes, wherever its rows begin.
//!
//! The tile is staged in shared memory. There each row has the same misalignment as in C. So the
//! vectors inside a row are the same in both, and only the ends of a row are single elements. If C
//! has no more columns than the tile, and no gaps between rows, its rows form one:
//!
//! ```text
//!   C, of 3 columns            |. . . . 0 0 0 1|1 1 2 2 2 3 3 3|4 4 ..
//!   staged                     |. . . . 0 0 0 1|1 1 2 2 2 3 3 3|4 4 ..
//! ```

use core::array;

use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::vec;

use crate::device::output::staging::{Fragment, ROWS, sums_of_part};
use crate::device::output::tensor::TensorOutput;

/// Elements in 16 bytes.
const HALVES: u32 = 8;
const FLOATS: u32 = 4;

/// Sums that an epilogue takes at once: few, so that nothing is kept on a stack.
const PART: usize = 4;

/// Bytes of shared memory that a tile is staged in.
pub const fn tile_bytes([rows, cols]: [u32; 2]) -> u32 {
    // Rows of f32 need the most. Each has one vector more, and begins somewhere in another one.
    4 * (rows * (cols + 2 * FLOATS) + FLOATS)
}

/// How a tile of `BM` x `BN` is staged, with `V` elements in 16 bytes.
#[derive(Clone, Copy)]
struct Staged<const BM: u32, const BN: u32, const V: u32> {
    /// Where the first element lies, and the distance from one row to the next.
    first: u32,
    pitch: u32,
    /// Rows and columns that are inside of C.
    rows: u32,
    cols: u32,
    /// Whether all rows form one.
    is_dense: bool,
}

impl<const BM: u32, const BN: u32, const V: u32> Staged<BM, BN, V> {
    /// A tile whose first element has the address `first`, with `rows` and `cols` left inside of C.
    #[inline(always)]
    fn new(first: usize, ld: u32, [rows, cols]: [u32; 2]) -> Self {
        const { assert!(V.is_power_of_two() && BN.is_multiple_of(V)) };
        let (rows, cols) = (rows.min(BM), cols.min(BN));
        let is_dense = ld == cols;
        let pitch = if is_dense { ld } else { BN + V + ld % V };
        Self { first: first as u32 / (16 / V) % V, pitch, rows, cols, is_dense }
    }

    /// Stages a thread's sums, which begin at `within` in the tile.
    ///
    /// # Safety
    /// They are in the tile. `one` and `two` store one and two elements to a place in shared memory
    /// that nobody else uses.
    #[inline(always)]
    unsafe fn stage<const N: usize>(
        self,
        within: Fragment,
        values: [f32; N],
        one: impl Fn(u32, f32),
        two: impl Fn(u32, [f32; 2]),
    ) {
        let upper = self.first + within.row * self.pitch + within.col;
        let lower = upper + 8 * self.pitch;
        let places = |i: usize| (if i % 4 < 2 { upper } else { lower }) + i as u32 / 4 * 8;
        if self.is_dense {
            for i in 0..N {
                // The others belong to the next row.
                if within.col + i as u32 / 4 * 8 + i as u32 % 2 < self.cols {
                    one(places(i) + i as u32 % 2, values[i]);
                }
            }
        } else if (self.first | self.pitch).is_multiple_of(2) {
            for i in (0..N).step_by(2) {
                two(places(i), [values[i], values[i + 1]]);
            }
        } else {
            for i in 0..N {
                one(places(i) + i as u32 % 2, values[i]);
            }
        }
    }

    /// Stores the staged tile to C, whose first element is at `c`.
    ///
    /// # Safety
    /// All `THREADS` threads of a block call this, behind a barrier. No other block stores these
    /// elements.
    #[inline(always)]
    unsafe fn store<const N: usize, const THREADS: u32, T: Copy>(
        self,
        from: SharedPtr<T>,
        c: *mut T,
        ld: u32,
    ) {
        const {
            assert!(N == V as usize);
            assert!(
                BM.is_multiple_of(THREADS / (BN / V))
                    && BM.is_multiple_of(THREADS / (2 * V))
                    && (THREADS / (BN / V)).is_multiple_of(V),
                "threads store as many rows, all of which begin equally far behind 16 bytes"
            );
        };
        let (thread, threads) = (black_box(thread::thread_idx_x()), THREADS);
        let Self { first, pitch, rows, cols, is_dense } = self;
        if is_dense {
            let elements = rows * cols;
            // SAFETY: the caller's contract.
            unsafe {
                for vector in (thread..elements / V + 1).step_by(threads as usize) {
                    Self::store_vector::<N, T>(from, c, first, vector, elements);
                }
                if thread < 2 * V {
                    Self::store_end(from, c, first, thread, elements);
                }
            }
            return;
        }
        // All rows of a thread have the same misalignment.
        let vectors = BN / V;
        let (vector, down, step) = (thread % vectors, thread / vectors, threads / vectors);
        for i in 0..BM / step {
            let row = down + i * step;
            if row < rows {
                let to = c.wrapping_add(row as usize * ld as usize);
                // SAFETY: the caller's contract.
                unsafe { Self::store_vector::<N, T>(from, to, first + row * pitch, vector, cols) };
            }
        }
        if (first | pitch | cols).is_multiple_of(V) {
            return;
        }
        let (at, down, step) = (thread % (2 * V), thread / (2 * V), threads / (2 * V));
        for i in 0..BM / step {
            let row = down + i * step;
            if row < rows {
                let to = c.wrapping_add(row as usize * ld as usize);
                // SAFETY: as above.
                unsafe { Self::store_end(from, to, first + row * pitch, at, cols) };
            }
        }
    }

    /// Stores whole vector number `vector` of a row of `elements` elements, if there is one.
    ///
    /// # Safety
    /// The row has been staged, and no other thread stores these elements.
    #[inline(always)]
    unsafe fn store_vector<const N: usize, T: Copy>(
        from: SharedPtr<T>,
        to: *mut T,
        begin: u32,
        vector: u32,
        elements: u32,
    ) {
        let at = begin.wrapping_neg() % V + vector * V;
        if at + V <= elements {
            // SAFETY: inside, on 16 bytes.
            unsafe {
                let vector: [T; N] = from.load_vec(begin + at);
                vec::store(to.wrapping_add(at as usize), vector);
            }
        }
    }

    /// Stores one of the elements in front of a row's whole vectors, or behind them.
    ///
    /// # Safety
    /// As for [`store_vector`](Self::store_vector).
    #[inline(always)]
    unsafe fn store_end<T: Copy>(
        from: SharedPtr<T>,
        to: *mut T,
        begin: u32,
        number: u32,
        elements: u32,
    ) {
        let in_front = (begin.wrapping_neg() % V).min(elements);
        let behind = elements - (elements - in_front) % V;
        let at = if number < V { number } else { behind + number - V };
        if at < if number < V { in_front } else { elements } {
            // SAFETY: inside, and this thread's own.
            unsafe {
                let element: [T; 1] = from.load_vec(begin + at);
                vec::store(to.wrapping_add(at as usize), element);
            }
        }
    }
}

impl<const F16: bool> TensorOutput<F16> {
    /// Stores the sums of a block's tile of `BM` x `BN`, which begins at (row, col).
    ///
    /// The sums of a warp begin at (down, right) in the tile. They are matrices of 16 rows, one
    /// below the other, as `mma.sync` leaves them.
    ///
    /// # Safety
    /// - All `THREADS` threads of a block call this.
    /// - `staging` has [`tile_bytes`] of shared memory on 16 bytes that nobody else uses.
    /// - No other block stores these elements.
    #[inline(always)]
    pub unsafe fn store_tile<
        const BM: u32,
        const BN: u32,
        const THREADS: u32,
        const SUMS: usize,
        const COUNT: usize,
    >(
        self,
        [row, col]: [u32; 2],
        [down, right]: [u32; 2],
        staging: SharedPtr<f32>,
        acc: &[[f32; SUMS]; COUNT],
    ) {
        // Recomputed, so that they take no registers while an epilogue needs them.
        let place = || {
            let (row, col) = (black_box(row), black_box(col));
            (self.offset(row, col), [self.c.rows - row, self.c.cols - col])
        };
        let halves = || {
            let (first, inside) = place();
            let c = self.c.pointer.cast::<u16>().wrapping_add(first);
            (c, Staged::<BM, BN, HALVES>::new(c as usize, self.c.ld, inside))
        };
        let floats = || {
            let (first, inside) = place();
            let c = self.c.pointer.wrapping_add(first);
            (c, Staged::<BM, BN, FLOATS>::new(c as usize, self.c.ld, inside))
        };
        let within = || Fragment::of_lane(black_box(warp::lane_id())).moved([down, right]);
        if self.epilogue.is_some() || self.c.beta != 0.0 {
            // Behind `black_box`, so that the loop is not unrolled.
            for part in 0..black_box((COUNT * SUMS / PART) as u32) {
                let sums = sums_of_part(acc, PART, part);
                let mut values: [f32; PART] = array::from_fn(|i| sums[i]);
                let across = (SUMS / PART) as u32;
                let (below, beside) = (part / across * ROWS, part % across * (PART as u32 * 2));
                let within = || within().moved([below, beside]);
                let places = within().moved([row, col]);
                // SAFETY: as the launch promises. C can also be read, before any of the tile is
                // stored. Then, in the tile.
                unsafe {
                    self.c.apply_epilogue(self.epilogue, PART, places, self, &mut values);
                    match self.is_half {
                        true => self.stage_narrow(halves().1, staging, within(), values),
                        false => Self::stage_floats(floats().1, staging, within(), values),
                    }
                }
            }
        } else {
            let values = |i: usize| acc[i].map(|sum| self.c.alpha * sum);
            for i in 0..COUNT {
                let within = within().moved([i as u32 * ROWS, 0]);
                // SAFETY: in the tile.
                unsafe {
                    match self.is_half {
                        true => self.stage_narrow(halves().1, staging, within, values(i)),
                        false => Self::stage_floats(floats().1, staging, within, values(i)),
                    }
                }
            }
        }
        // SAFETY: all threads come here; behind the barrier the staged tile is there.
        unsafe {
            thread::sync_threads();
            if self.is_half {
                let (c, staged) = halves();
                let staging = staging.cast::<u16>();
                staged.store::<{ HALVES as usize }, THREADS, _>(staging, c, self.c.ld);
            } else {
                let (c, staged) = floats();
                staged.store::<{ FLOATS as usize }, THREADS, _>(staging, c, self.c.ld);
            }
        }
    }

    /// Stages sums that become 16 bits.
    ///
    /// # Safety
    /// As for [`Staged::stage`].
    #[inline(always)]
    unsafe fn stage_narrow<const BM: u32, const BN: u32, const N: usize>(
        self,
        staged: Staged<BM, BN, HALVES>,
        staging: SharedPtr<f32>,
        within: Fragment,
        values: [f32; N],
    ) {
        let to = staging.cast::<u16>();
        // SAFETY: the caller's contract.
        let one = |at: u32, value: f32| unsafe { to.store(at, Self::narrow(value)) };
        // SAFETY: as above, on 4 bytes.
        let two = |at: u32, pair: [f32; 2]| unsafe {
            to.add(at).cast::<u32>().store(0, Self::narrow_pair(pair));
        };
        // SAFETY: as above.
        unsafe { staged.stage(within, values, one, two) };
    }

    /// Stages sums that stay f32.
    ///
    /// # Safety
    /// As for [`Staged::stage`].
    #[inline(always)]
    unsafe fn stage_floats<const BM: u32, const BN: u32, const N: usize>(
        staged: Staged<BM, BN, FLOATS>,
        to: SharedPtr<f32>,
        within: Fragment,
        values: [f32; N],
    ) {
        // SAFETY: the caller's contract; two are on 8 bytes.
        unsafe {
            let one = |at: u32, value: f32| to.store(at, value);
            let two = |at: u32, pair: [f32; 2]| to.store_vec(at, pair);
            staged.stage(within, values, one, two);
        }
    }
}
