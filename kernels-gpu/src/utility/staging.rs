//! Operand staging: aligned copies of matrices that kernels cannot read in place.
//!
//! A tensor map needs aligned rows, and the [`tiles`](crate::families::f32) need a B whose rows are
//! whole quads. If the caller's matrices are misaligned, [`stage_operands()`] copies them once,
//! before the product, to a workspace with an aligned leading dimension. That is one read and one
//! write, as fast as memory allows. It copies A and B in one launch, because a launch costs as much
//! as a copy of some megabytes.
//!
//! Each thread copies quads, four neighbours, which it stores at once. Neighbouring threads have
//! neighbouring quads, along a row and on to the next one. So a warp reads and writes whole lines,
//! whatever the shape. A quad lies in two neighbouring aligned vectors of four. The thread loads
//! both and extracts the quad:
//!
//! ```text
//!   a row         0 1 2 3 4 5 6 7 8 9 ..      begins three elements behind 16 bytes
//!   vectors      |-|- - - -|- - - -|- - -     begin on 16 bytes
//!   quads        |- - - -|- - - -|- - - -|    the second one: elements 3 to 6 of the eight from 1 on
//! ```
//!
//! If these vectors would reach beyond the ends of a row, a quad's elements are loaded one by one.
//!
//! [`stage_transposed()`] copies matrices that are the transposes of the kernel's operands. It goes
//! through shared memory, tile by tile, so that both sides of the copy walk along rows.

use cuda_std::prelude::*;
use cuda_std::vec;

use crate::abi::layout::{POINTERS_A, POINTERS_B};
use crate::device::operand::half_rows::{HalfRows, VECTOR};
use crate::device::operand::input::addressed;
use crate::device::pipeline::dependent_launch;

/// Threads per block of [`stage_operands()`].
pub const THREADS: u32 = 256;
/// Blocks per multiprocessor for which [`stage_operands()`] has registers.
pub const OPERANDS_BLOCKS: u32 = 3;
/// Blocks per multiprocessor for which the other two kernels have registers.
pub const BLOCKS: u32 = 4;
/// Quads, or vectors of 16-bit elements, that a thread has in flight.
pub const QUADS: u32 = 4;

/// Copies two matrices of each product of a batch.
///
/// The grid's y axis walks the products. The first `a_blocks` blocks along x copy A, the others B.
///
/// - `a_rows` x `a_cols` elements of A at `a`, with the leading dimension `lda`, go to `to_a`, with
///   `ld_to_a`. The rest of each row there gets zeros.
/// - The next product's A follows at `stride_a` elements, and goes to where this one's ends. If
///   `stride_a` is 0, the first product's A is the only one.
/// - If `pointer_batch` has the operand, an array of addresses replaces the matrix: see
///   [`POINTERS_A`].
/// - All of this holds for B likewise.
///
/// # Safety
/// - A block has [`THREADS`] threads. The grid has less than 2^20 blocks along x, `a_blocks` of
///   them or more.
/// - The following holds for A if `a_blocks` is not 0, and for B if there are more blocks.
/// - `rows` and `cols` are not 0. No dimension is 2^31 or more.
/// - `ld >= cols`. `ld_to` is `cols` or more, a multiple of four and no more than 2^31.
/// - The first pointer points to the elements. The second, a multiple of 16, points to room for
///   `rows * ld_to` elements per product. Both are in global memory.
/// - Nothing writes the elements or touches the room during the launch.
#[kernel(block = THREADS, min_blocks = OPERANDS_BLOCKS)]
pub unsafe fn stage_operands(
    a: *const f32,
    lda: u32,
    to_a: *mut f32,
    ld_to_a: u32,
    a_rows: u32,
    a_cols: u32,
    b: *const f32,
    ldb: u32,
    to_b: *mut f32,
    ld_to_b: u32,
    b_rows: u32,
    b_cols: u32,
    a_blocks: u32,
    stride_a: u64,
    stride_b: u64,
    pointer_batch: u32,
) {
    dependent_launch::begin();
    let block = thread::block_idx_x();
    let is_a = block < a_blocks;
    let (from, ld_from, to, ld_to) =
        if is_a { (a, lda, to_a, ld_to_a) } else { (b, ldb, to_b, ld_to_b) };
    let (rows, cols) = if is_a { (a_rows, a_cols) } else { (b_rows, b_cols) };
    let (stride, product) =
        (if is_a { stride_a } else { stride_b } as usize, thread::block_idx_y() as usize);
    let is_addressed = pointer_batch & if is_a { POINTERS_A } else { POINTERS_B } != 0;
    if stride == 0 && product > 0 && !is_addressed {
        return;
    }
    let from = match is_addressed {
        // SAFETY: an address for each product.
        true => unsafe { addressed(from.cast_mut(), product as u32) }.cast_const(),
        false => from.wrapping_add(product * stride),
    };
    let to = to.wrapping_add(product * rows as usize * ld_to as usize);
    let (block, blocks) =
        if is_a { (block, a_blocks) } else { (block - a_blocks, thread::grid_dim_x() - a_blocks) };
    // As rows and quads, so that there is one division, and all numbers fit 32 bits.
    let per_row = (ld_to / 4).max(1);
    let threads = blocks * THREADS;
    let first = block * THREADS + thread::thread_idx_x();
    let (mut row, mut quad) = (first / per_row, first % per_row);
    let (row_step, quad_step) = (threads / per_row, threads % per_row);
    let matrix = Rows { from, ld: ld_from, rows, cols };
    while row < rows {
        let mut places = [(0, 0); QUADS as usize];
        for place in &mut places {
            *place = (row, quad);
            row += row_step;
            quad += quad_step;
            if quad >= per_row {
                quad -= per_row;
                row += 1;
            }
        }
        // SAFETY: as the launch promises.
        let values = unsafe { matrix.quads(places) };
        for i in 0..QUADS as usize {
            let (row, quad) = places[i];
            if row < rows {
                let at = row as usize * ld_to as usize + quad as usize * 4;
                // SAFETY: inside, a multiple of four, and this thread's own.
                unsafe { vec::store4(to.add(at), values[i]) };
            }
        }
    }
}

/// A matrix to be copied.
#[derive(Clone, Copy)]
struct Rows {
    from: *const f32,
    ld: u32,
    rows: u32,
    cols: u32,
}

impl Rows {
    /// Quads at these rows, and numbers in the row, with zeros past the row's end.
    ///
    /// Past the last row the values are arbitrary. All loads are in flight before the first is
    /// used.
    ///
    /// # Safety
    /// The matrix is there, and has elements.
    #[inline(always)]
    unsafe fn quads(self, places: [(u32, u32); QUADS as usize]) -> [F32x4; QUADS as usize] {
        let mut windows = [[0.0f32; 8]; QUADS as usize];
        for i in 0..QUADS as usize {
            let (row, quad) = places[i];
            // SAFETY: the caller's contract.
            let row = unsafe { self.row(row) };
            let first = quad * 4;
            let window = first.wrapping_sub(skipped(row));
            if self.is_window(window) {
                // SAFETY: eight elements of the row; the first is on 16 bytes.
                let [low, high] = unsafe {
                    let at = row.add(window as usize);
                    [vec::load4(at), vec::load4(at.add(4))]
                };
                windows[i] = core::array::from_fn(|j| if j < 4 { low[j] } else { high[j - 4] });
            } else {
                for j in 0..4 {
                    let col = (first + j).min(self.cols - 1);
                    // SAFETY: inside.
                    windows[i][j as usize] = unsafe { *row.add(col as usize) };
                }
            }
        }
        let mut quads = [[0.0f32; 4]; QUADS as usize];
        for i in 0..QUADS as usize {
            let (row, quad) = places[i];
            // SAFETY: the caller's contract.
            let skipped = skipped(unsafe { self.row(row) });
            let first = quad * 4;
            let is_window = self.is_window(first.wrapping_sub(skipped));
            let four = four_of(windows[i], if is_window { skipped } else { 0 });
            quads[i] =
                core::array::from_fn(
                    |j| {
                        if first + (j as u32) < self.cols { four[j] } else { 0.0 }
                    },
                );
        }
        quads
    }

    /// Whether the eight elements from `first` on are in a row.
    #[inline(always)]
    fn is_window(self, first: u32) -> bool {
        // In front of the row, `first` is nearly 2^32.
        first < self.cols.saturating_sub(7)
    }

    /// A row, or the last one.
    ///
    /// # Safety
    /// The matrix has elements.
    #[inline(always)]
    unsafe fn row(self, row: u32) -> *const f32 {
        // SAFETY: inside.
        unsafe { self.from.add(row.min(self.rows - 1) as usize * self.ld as usize) }
    }
}

/// Four of eight elements, behind the first `skipped`, which are at most three.
#[inline(always)]
fn four_of([a, b, c, d, e, f, g, _]: [f32; 8], skipped: u32) -> F32x4 {
    let two = |after: f32, before: f32| if skipped & 2 != 0 { after } else { before };
    let one = |after: f32, before: f32| if skipped & 1 != 0 { after } else { before };
    let (a, b, c, d, e) = (two(c, a), two(d, b), two(e, c), two(f, d), two(g, e));
    [one(b, a), one(c, b), one(d, c), one(e, d)]
}

/// Elements in front of a row in the vector in which the row begins.
#[inline(always)]
fn skipped(row: *const f32) -> u32 {
    row as usize as u32 / 4 % 4
}

/// Rows and columns of the tiles that [`stage_transposed()`] copies.
pub const TRANSPOSE_TILE: u32 = 64;
/// Elements of a tile that a thread copies.
const ELEMENTS: u32 = TRANSPOSE_TILE * TRANSPOSE_TILE / THREADS;
/// Elements from one row of the transposed tile in shared memory to the next. There is one more
/// than needed, so that threads which store down a column use different banks.
const PITCH: u32 = TRANSPOSE_TILE + 1;

/// Copies the transposes of two matrices.
///
/// The first `a_blocks` blocks of the grid copy A, the others B. `a_rows` x `a_cols` elements of A
/// at `a`, with the leading dimension `lda`, go to `to_a` as `a_cols` x `a_rows` elements, with
/// `ld_to_a`. The rest of each row there gets zeros. All of this holds for B likewise.
///
/// # Safety
/// As for [`stage_operands()`], with three differences:
/// - `ld_to` is `rows` or more, and no more than `rows` rounded up to a multiple of
///   [`TRANSPOSE_TILE`].
/// - There is room for `cols * ld_to` elements per product.
/// - A matrix has less than 2^31 tiles of [`TRANSPOSE_TILE`] x [`TRANSPOSE_TILE`] elements.
#[kernel(block = THREADS, min_blocks = BLOCKS)]
pub unsafe fn stage_transposed(
    a: *const f32,
    lda: u32,
    to_a: *mut f32,
    ld_to_a: u32,
    a_rows: u32,
    a_cols: u32,
    b: *const f32,
    ldb: u32,
    to_b: *mut f32,
    ld_to_b: u32,
    b_rows: u32,
    b_cols: u32,
    a_blocks: u32,
    stride_a: u64,
    stride_b: u64,
    pointer_batch: u32,
) {
    dependent_launch::begin();
    let block = thread::block_idx_x();
    let is_a = block < a_blocks;
    let (from, ld_from, to, ld_to) =
        if is_a { (a, lda, to_a, ld_to_a) } else { (b, ldb, to_b, ld_to_b) };
    let (rows, cols) = if is_a { (a_rows, a_cols) } else { (b_rows, b_cols) };
    let (stride, product) =
        (if is_a { stride_a } else { stride_b } as usize, thread::block_idx_y() as usize);
    let is_addressed = pointer_batch & if is_a { POINTERS_A } else { POINTERS_B } != 0;
    if stride == 0 && product > 0 && !is_addressed {
        return;
    }
    let from = match is_addressed {
        // SAFETY: an address for each product.
        true => unsafe { addressed(from.cast_mut(), product as u32) }.cast_const(),
        false => from.wrapping_add(product * stride),
    };
    let to = to.wrapping_add(product * cols as usize * ld_to as usize);
    let (block, blocks) =
        if is_a { (block, a_blocks) } else { (block - a_blocks, thread::grid_dim_x() - a_blocks) };
    let smem = shared_array![f32; (TRANSPOSE_TILE * PITCH) as usize];

    // Down the columns of tiles first, which is along the rows of the copy.
    let height = rows.div_ceil(TRANSPOSE_TILE).max(1);
    let tiles = height * cols.div_ceil(TRANSPOSE_TILE);
    let thread = thread::thread_idx_x();
    let (x, y) = (thread % TRANSPOSE_TILE, thread / TRANSPOSE_TILE);
    let (quad, line) = (thread % (TRANSPOSE_TILE / 4), thread / (TRANSPOSE_TILE / 4));
    let mut tile = block;
    while tile < tiles {
        let (row0, col0) = (tile % height * TRANSPOSE_TILE, tile / height * TRANSPOSE_TILE);
        let mut values = [0.0f32; ELEMENTS as usize];
        for i in 0..ELEMENTS {
            let (row, col) = (row0 + y + i * (THREADS / TRANSPOSE_TILE), col0 + x);
            // Without a branch, so that all loads are in flight at once. Past the edges some
            // element of the matrix is loaded, and not used.
            let at = row.min(rows - 1) as usize * ld_from as usize + col.min(cols - 1) as usize;
            // SAFETY: inside.
            let value = unsafe { *from.add(at) };
            values[i as usize] = if row < rows { value } else { 0.0 };
        }
        for i in 0..ELEMENTS {
            // SAFETY: inside, and each thread stores its own words.
            unsafe {
                smem.store(x * PITCH + y + i * (THREADS / TRANSPOSE_TILE), values[i as usize])
            };
        }
        thread::sync_threads();
        for i in 0..ELEMENTS / 4 {
            let within = line + i * (THREADS / (TRANSPOSE_TILE / 4));
            let (to_row, to_col) = (col0 + within, row0 + quad * 4);
            // SAFETY: inside, and stored before the barrier.
            let values = [0, 1, 2, 3].map(|j| unsafe { smem.load(within * PITCH + quad * 4 + j) });
            if to_row < cols && to_col < ld_to {
                let at = to_row as usize * ld_to as usize + to_col as usize;
                // SAFETY: inside, a multiple of four, and this thread's own.
                unsafe { vec::store4(to.add(at), values) };
            }
        }
        thread::sync_threads();
        tile += blocks;
    }
}

/// Copies two matrices of 16-bit elements of each product of a batch, as [`stage_operands()`] does.
///
/// # Safety
/// As for [`stage_operands()`], except that `ld_to` is a multiple of eight.
#[kernel(block = THREADS, min_blocks = BLOCKS)]
pub unsafe fn stage_halves(
    a: *const u16,
    lda: u32,
    to_a: *mut u16,
    ld_to_a: u32,
    a_rows: u32,
    a_cols: u32,
    b: *const u16,
    ldb: u32,
    to_b: *mut u16,
    ld_to_b: u32,
    b_rows: u32,
    b_cols: u32,
    a_blocks: u32,
    stride_a: u64,
    stride_b: u64,
    pointer_batch: u32,
) {
    dependent_launch::begin();
    let block = thread::block_idx_x();
    let is_a = block < a_blocks;
    let is_addressed = pointer_batch & if is_a { POINTERS_A } else { POINTERS_B } != 0;
    let (from, ld_from, to, ld_to) =
        if is_a { (a, lda, to_a, ld_to_a) } else { (b, ldb, to_b, ld_to_b) };
    let (rows, cols) = if is_a { (a_rows, a_cols) } else { (b_rows, b_cols) };
    let (stride, product) =
        (if is_a { stride_a } else { stride_b } as usize, thread::block_idx_y() as usize);
    if stride == 0 && product > 0 && !is_addressed {
        return;
    }
    let from = match is_addressed {
        // SAFETY: as the launch promises.
        true => unsafe { addressed(from.cast_mut(), product as u32) }.cast_const(),
        false => from.wrapping_add(product * stride),
    };
    let to = to.wrapping_add(product * rows as usize * ld_to as usize);
    let (block, blocks) =
        if is_a { (block, a_blocks) } else { (block - a_blocks, thread::grid_dim_x() - a_blocks) };
    // As rows and vectors, so that there is one division, and all numbers fit 32 bits.
    let per_row = (ld_to / VECTOR).max(1);
    let threads = blocks * THREADS;
    let first = block * THREADS + thread::thread_idx_x();
    let (mut row, mut vector) = (first / per_row, first % per_row);
    let (row_step, vector_step) = (threads / per_row, threads % per_row);
    let matrix = HalfRows { pointer: from, ld: ld_from, rows, cols };
    while row < rows {
        let mut places = [(0, 0); QUADS as usize];
        for place in &mut places {
            *place = (row, vector);
            row += row_step;
            vector += vector_step;
            if vector >= per_row {
                vector -= per_row;
                row += 1;
            }
        }
        // SAFETY: as the launch promises.
        let loaded = places.map(|(row, vector)| unsafe { matrix.load(row, vector) });
        for i in 0..QUADS as usize {
            let (row, vector) = places[i];
            if row < rows {
                let words = matrix.neighbours(row, vector, loaded[i]);
                let at = row as usize * ld_to as usize + (vector * VECTOR) as usize;
                // SAFETY: inside, a multiple of eight, and this thread's own.
                unsafe { vec::store(to.add(at).cast::<u32>(), words) };
            }
        }
    }
}
