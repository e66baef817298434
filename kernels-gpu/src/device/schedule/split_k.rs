//! Split-K: the blocks of a tile share its K, along the grid's z axis, for each product of a batch.

use cuda_std::hint::black_box;
use cuda_std::prelude::*;

use crate::abi::epilogue;
use crate::abi::layout::{POINTERS_A, POINTERS_B, POINTERS_C, TRANSPOSED_C};
use crate::device::operand::input::addressed;
use crate::device::output::matrix::Output;
use crate::device::pipeline::dependent_launch;

/// The parameters of every entry point: see [`KernelAbi::SplitK`](crate::abi::KernelAbi::SplitK).
#[derive(Clone, Copy)]
pub struct Params {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub alpha: f32,
    pub a: *const f32,
    pub lda: u32,
    pub b: *const f32,
    pub ldb: u32,
    pub beta: f32,
    pub c: *mut f32,
    pub ldc: u32,
    pub depth: u32,
    pub partials: *mut f32,
    pub counters: *mut u32,
    pub splits: u32,
    pub stride_a: u64,
    pub stride_b: u64,
    pub stride_c: u64,
    pub layout: u32,
    pub epilogue: epilogue::Parameters,
}

/// Which part of K a block sums over.
#[derive(Clone, Copy)]
pub struct Split {
    /// Blocks that share a tile of C.
    pub count: u32,
    /// The block's number among them.
    pub index: u32,
}

impl Params {
    /// The parameters of this block's product of the batch, and its split.
    ///
    /// The splits of a product follow each other along the grid's z axis.
    /// [`epilogue`](Self::epilogue), [`output`](Self::output) and [`workspace`](Self::workspace)
    /// are for the end of the kernel.
    ///
    /// # Safety
    /// The parameters are as the launch promises.
    #[inline(always)]
    pub unsafe fn of_block(mut self) -> (Self, Split) {
        let (z, splits) = (thread::block_idx_z(), self.splits);
        if splits == 0 {
            // A single product: nobody waits for a division.
            return (self, Split { count: thread::grid_dim_z(), index: z });
        }
        let (product, index) = (z / splits, z % splits);
        if self.layout & (POINTERS_A | POINTERS_B) != 0 {
            // These addresses are read before everything else.
            dependent_launch::wait();
        }
        // SAFETY: the caller's contract.
        unsafe {
            self.a = self.operand(self.a.cast_mut(), self.stride_a, POINTERS_A, product);
            self.b = self.operand(self.b.cast_mut(), self.stride_b, POINTERS_B, product);
        }
        (self, Split { count: splits, index })
    }

    /// The operand of a product of the batch, at a stride or behind an array of addresses.
    ///
    /// # Safety
    /// As for [`Params::of_block`].
    #[inline(always)]
    unsafe fn operand(self, first: *mut f32, stride: u64, which: u32, product: u32) -> *mut f32 {
        if self.layout & which == 0 {
            return first.wrapping_add(product as usize * stride as usize);
        }
        // SAFETY: an address for each product.
        unsafe { addressed(first, product) }.wrapping_add(stride as usize)
    }

    /// The block's product. Recomputed at each use, so that it takes no registers before.
    #[inline(always)]
    pub fn product(self) -> u32 {
        // A single product: nobody waits for a division.
        let product = black_box(thread::block_idx_z()).checked_div(self.splits);
        black_box(product.unwrap_or(0))
    }

    /// The epilogue of the block's product.
    #[inline(always)]
    pub fn epilogue(self) -> epilogue::Parameters {
        self.epilogue.of_product(self.product())
    }

    /// The partial sums and the counters of the block's product, whose tiles of C have `elements`.
    #[inline(always)]
    pub fn workspace(self, elements: u32) -> (*mut f32, *mut u32) {
        let tiles_of_one = (thread::grid_dim_x() * thread::grid_dim_y()) as usize;
        let tiles = self.product() as usize * tiles_of_one;
        let partials = self.partials.wrapping_add(tiles * (self.splits * elements) as usize);
        (partials, self.counters.wrapping_add(tiles))
    }

    /// C, for the end of a kernel.
    ///
    /// # Safety
    /// It is as the launch promises, and there is no other output.
    #[inline(always)]
    pub unsafe fn output(self) -> Output {
        // SAFETY: the caller's contract.
        unsafe {
            let c = self.operand(self.c, self.stride_c, POINTERS_C, self.product());
            Output::new(c, self.ldc, self.m, self.n, self.alpha, self.beta)
        }
    }

    /// [`output`](Self::output) for a kernel whose C may lie transposed, and whether it does.
    ///
    /// If so, rows of the output are columns of the kernel's product.
    ///
    /// # Safety
    /// As for [`output`](Self::output).
    #[inline(always)]
    pub unsafe fn output_or_transpose(self) -> (Output, bool) {
        let transposed = self.layout & TRANSPOSED_C != 0;
        // SAFETY: the caller's contract.
        let c = unsafe { self.output() };
        if !transposed {
            return (c, false);
        }
        (Output { rows: c.cols, cols: c.rows, ..c }, true)
    }

    /// The part of K of a split: from, and to. It is empty if the former is not less.
    #[inline(always)]
    pub fn range(self, split: Split) -> (u32, u32) {
        let begin = split.index * self.depth;
        (begin, self.k.min(begin + self.depth))
    }
}

/// Declares the entry points of a kernel, which call `Kernel::gemm`, for each listed `ALIGNED`.
macro_rules! entry_points {
    ($name:ident, min_blocks $min_blocks:tt, ALIGNED = $($aligned:tt)*) => {
        /// `C = alpha * A * B + beta * C` for each product of a batch, with K split.
        ///
        /// Products and splits are both along the grid's z axis.
        ///
        /// # Safety
        /// - The grid covers C with blocks as [`DESCRIPTOR`] says; along z it has the splits of all
        ///   products.
        /// - `a`, `b` and `c` are device pointers to matrices of m x k, k x n and m x n elements.
        ///   The leading dimensions are `lda >= k`, `ldb >= n` and `ldc >= n`.
        /// - They may point to the transposes instead, if the `layout` says so and the
        ///   [`DESCRIPTOR`] allows it.
        /// - The matrices of the next product follow at `stride_a`, `stride_b` and `stride_c`
        ///   elements, or they are behind arrays of addresses. No two C overlap.
        /// - Nothing else writes A or B, or touches C, during the launch.
        /// - `depth`, `partials` and `counters` are as
        ///   [`KernelAbi::SplitK`](crate::abi::KernelAbi::SplitK) says. Nothing else touches the
        ///   latter two during the launch. `partials` is a multiple of 16.
        /// - What the `epilogue` reads is there, and nothing writes it during the launch.
        /// - For the entry point without `_unaligned`: matrices that the [`DESCRIPTOR`] calls
        ///   vectorized, and transposes that it calls aligned, are as it says. The length of a row
        ///   need not be a multiple of 4 elements, if zeros follow up to the next multiple.
        #[kernel(block = THREADS, min_blocks = $min_blocks, variants(ALIGNED = $($aligned)*))]
        pub unsafe fn $name<const ALIGNED: bool>(
            m: u32,
            n: u32,
            k: u32,
            alpha: f32,
            a: *const f32,
            lda: u32,
            b: *const f32,
            ldb: u32,
            beta: f32,
            c: *mut f32,
            ldc: u32,
            depth: u32,
            partials: *mut f32,
            counters: *mut u32,
            splits: u32,
            stride_a: u64,
            stride_b: u64,
            stride_c: u64,
            layout: u32,
            epilogue: epilogue::Parameters,
        ) {
            // SAFETY: the same contract.
            unsafe {
                Kernel::gemm::<ALIGNED>(Params {
                    m,
                    n,
                    k,
                    alpha,
                    a,
                    lda,
                    b,
                    ldb,
                    beta,
                    c,
                    ldc,
                    depth,
                    partials,
                    counters,
                    splits,
                    stride_a,
                    stride_b,
                    stride_c,
                    layout,
                    epilogue,
                })
            }
        }
    };
}
pub(crate) use entry_points;
