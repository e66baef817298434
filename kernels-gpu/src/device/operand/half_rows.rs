//! Matrices of 16-bit elements with misaligned rows, read in vectors of 16 bytes.
//!
//! Eight neighbours of a row lie in two neighbouring aligned vectors. A thread loads both and
//! extracts the eight:
//!
//! ```text
//!   a row         0 1 2 3 4 5 6 7 8 9 ..                begins three elements behind 16 bytes
//!   vectors      |-|- - - - - - - -|- - - - - - - -|    begin on 16 bytes
//!   neighbours    |- - - - - - - -|- - - - - - - -|     the second eight: elements 3 to 10 of the sixteen from 5 on
//! ```
//!
//! If these vectors would reach beyond the ends of a row, the elements are loaded one by one.

use cuda_std::vec;

/// Elements in 16 bytes, and the type of 16 bytes as words.
pub const VECTOR: u32 = 8;
pub type Words = [u32; VECTOR as usize / 2];

/// Loaded data for eight neighbours: the two vectors that have them, or one neighbour in each word.
pub type Loaded = [u32; VECTOR as usize];

/// A matrix of 16-bit elements.
#[derive(Clone, Copy)]
pub struct HalfRows {
    pub pointer: *const u16,
    pub ld: u32,
    pub rows: u32,
    pub cols: u32,
}

/// Sixteen elements of a row that contain eight neighbours.
#[derive(Clone, Copy)]
pub struct Window {
    /// The first of them, on 16 bytes.
    pub pointer: *const u16,
    /// Elements in front of the neighbours.
    skipped: u32,
    /// Whether all are in the row.
    is_inside: bool,
}

impl Window {
    /// Extracts the neighbours from what was loaded.
    #[inline(always)]
    pub fn neighbours(self, loaded: Loaded) -> Words {
        eight_of(loaded, self.skipped)
    }
}

/// Loads eight neighbours.
///
/// # Safety
/// They are there, in global memory, the first on 16 bytes, and nothing writes them.
#[inline(always)]
pub unsafe fn load_vector(pointer: *const u16) -> Words {
    // SAFETY: the caller's contract.
    unsafe { vec::load(pointer.cast()) }
}

impl HalfRows {
    /// The window of group `number` of eight neighbours in a row, or in the last row.
    #[inline(always)]
    pub fn window(self, row: u32, number: u32) -> Window {
        let row = self.row(row);
        let skipped = row as usize as u32 / 2 % VECTOR;
        let first = (number * VECTOR).wrapping_sub(skipped);
        // In front of the row, `first` is nearly 2^32.
        let is_inside = first < self.cols.saturating_sub(2 * VECTOR - 1);
        Window { pointer: row.wrapping_add(first as usize), skipped, is_inside }
    }

    /// A row, or the last one.
    #[inline(always)]
    fn row(self, row: u32) -> *const u16 {
        self.pointer.wrapping_add(row.min(self.rows - 1) as usize * self.ld as usize)
    }

    /// Loads group `number` of eight neighbours of a row, or of the last row.
    ///
    /// All loads are in flight when this returns.
    ///
    /// # Safety
    /// The matrix is there, in global memory, and has elements, and nothing writes it.
    #[inline(always)]
    pub unsafe fn load(self, row: u32, number: u32) -> Loaded {
        let window = self.window(row, number);
        // SAFETY: sixteen elements of the row, or one.
        unsafe {
            if window.is_inside {
                let behind = window.pointer.wrapping_add(VECTOR as usize);
                let ([a, b, c, d], [e, f, g, h]) =
                    (load_vector(window.pointer), load_vector(behind));
                return [a, b, c, d, e, f, g, h];
            }
            let row = self.row(row);
            [0, 1, 2, 3, 4, 5, 6, 7].map(|i| {
                // Past the end of the row its last element is loaded, and not used.
                let col = (number * VECTOR + i).min(self.cols - 1);
                let [element]: [u16; 1] = vec::load(row.wrapping_add(col as usize));
                element.into()
            })
        }
    }

    /// Extracts the neighbours from what was loaded for them, with zeros past the end of the row.
    #[inline(always)]
    pub fn neighbours(self, row: u32, number: u32, loaded: Loaded) -> Words {
        let window = self.window(row, number);
        if window.is_inside {
            return window.neighbours(loaded);
        }
        let [a, b, c, d, e, f, g, h] = loaded;
        let count = self.cols.saturating_sub(number * VECTOR);
        let pair = |i: u32, low: u32, high: u32| {
            let low = if i < count { low } else { 0 };
            if i + 1 < count { low | high << 16 } else { low }
        };
        [pair(0, a, b), pair(2, c, d), pair(4, e, f), pair(6, g, h)]
    }
}

/// Eight of sixteen elements, behind the first `skipped`, which are at most seven.
#[inline(always)]
pub fn eight_of([a, b, c, d, e, f, g, h]: Loaded, skipped: u32) -> Words {
    let two = |after: u32, before: u32| if skipped & 4 != 0 { after } else { before };
    let one = |after: u32, before: u32| if skipped & 2 != 0 { after } else { before };
    let half = |after: u32, before: u32| {
        ((u64::from(after) << 32 | u64::from(before)) >> (16 * (skipped & 1))) as u32
    };
    let (a, b, c, d, e, f) = (two(c, a), two(d, b), two(e, c), two(f, d), two(g, e), two(h, f));
    let (a, b, c, d, e) = (one(b, a), one(c, b), one(d, c), one(e, d), one(f, e));
    [half(b, a), half(c, b), half(d, c), half(e, d)]
}
