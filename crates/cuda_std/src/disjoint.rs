//! A slice in which each thread has its own elements.

use core::marker::PhantomData;
use core::slice;

use crate::thread;

/// A slice in global memory that a kernel writes: each thread has its own elements.
///
/// A `&mut [T]` as a parameter would give every thread all elements. Here thread `i` of `n` has
/// only the elements `i`, `i + n`, `i + 2 n` and so on, where `i` is its [`thread::index`]. The
/// launch borrows the host's buffer as `&mut`, so nothing else accesses it.
///
/// ```no_run
/// use cuda_std::prelude::*;
///
/// /// `c = a + b`.
/// #[kernel]
/// pub fn vecadd(a: &[f32], b: &[f32], mut c: DisjointSlice<f32>) {
///     for (i, c) in c.iter_mut() {
///         if let (Some(a), Some(b)) = (a.get(i), b.get(i)) {
///             *c = a + b;
///         }
///     }
/// }
/// ```
pub struct DisjointSlice<T> {
    pointer: *mut T,
    len: usize,
    elements: PhantomData<*mut [T]>,
}

impl<T> DisjointSlice<T> {
    /// The slice at a place in memory.
    ///
    /// # Safety
    /// - `pointer` is aligned, and valid for reads and writes of `len` elements for the rest of the
    ///   launch. It may be null if `len` is 0.
    /// - The elements are initialised.
    /// - Nothing else reads or writes them, except the `DisjointSlice`s of the launch's other
    ///   threads. Each thread has one.
    #[inline(always)]
    #[must_use]
    pub unsafe fn from_raw_parts(pointer: *mut T, len: usize) -> Self {
        DisjointSlice { pointer, len, elements: PhantomData }
    }

    /// The number of elements, including those of other threads.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the slice has no elements.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// This thread's first element, at its [`thread::index`]. `None` for a thread beyond the last
    /// element.
    ///
    /// It is the thread's only one if the grid has a thread for each element.
    #[inline(always)]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        let index = thread::thread_of_grid();
        // SAFETY: an element of this thread's alone, borrowed from its slice.
        (index < self.len).then(|| unsafe { &mut *self.pointer.add(index) })
    }

    /// This thread's elements, each with its index (a grid-stride loop).
    #[inline(always)]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        let pointer = self.pointer;
        thread::grid_stride(self.len).map(move |index| {
            // SAFETY: an element of this thread's alone, which comes once.
            (index, unsafe { &mut *pointer.add(index) })
        })
    }

    /// Where the elements begin, including those of other threads.
    ///
    /// This is for kernels that share them out in another way, such as a row for each warp.
    #[inline(always)]
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.pointer
    }

    /// All of the elements, including those of other threads.
    ///
    /// # Safety
    /// No thread writes them meanwhile.
    #[inline(always)]
    #[must_use]
    pub unsafe fn as_slice(&self) -> &[T] {
        match self.len {
            0 => &[],
            // SAFETY: the contracts of `from_raw_parts` and of the caller.
            len => unsafe { slice::from_raw_parts(self.pointer, len) },
        }
    }
}
