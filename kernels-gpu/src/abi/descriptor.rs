//! What a kernel tells the host about itself.
//!
//! A kernel's file holds its [`KernelDescriptor`] beside it, built from the constants
//! the kernel itself uses. The host reads it and never retypes a number.

/// A kernel for matrices of f32, a rung of the ladder or another one: its name, its geometry and what a launch
/// must provide.
///
/// It computes `C = alpha * A * B + beta * C`, row-major, with `A` M x K, `B` K x N and `C` M x N. A, B, C
/// and the sums are f32; products are as its [`Arithmetic`] says. One whose [`KernelAbi`] has more
/// parameters computes batches, transposes and epilogues by them. Where a launch gives an alpha of 0 as a number, its
/// k is 0, too: a kernel multiplies by alpha whatever it has summed. If k is 0 and alpha is in
/// device memory, the launch says [`NO_SUM`](crate::abi::epilogue::operations::NO_SUM).
///
/// A launch trusts what is said here, so only this crate can say it:
///
/// ```compile_fail,E0451
/// use kernels_gpu::{KernelAbi, KernelDescriptor, persistent};
///
/// let forged = KernelDescriptor { abi: KernelAbi::Gemm, ..persistent::DESCRIPTOR };
/// ```
#[derive(Clone, Copy)]
pub struct KernelDescriptor {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) origin: Option<&'static str>,
    pub(crate) tile: Tile,
    pub(crate) block: [u32; 2],
    pub(crate) grid: GridOrder,
    pub(crate) shared: Shared,
    pub(crate) unaligned: Option<Unaligned>,
    pub(crate) abi: KernelAbi,
    pub(crate) arithmetic: Arithmetic,
    pub(crate) target: Target,
    pub(crate) source: &'static str,
}

/// For each field a doc test that it cannot be assigned outside of this crate.
macro_rules! sealed {
    ($($field:ident)*) => {
        // All fields are here, or it does not compile.
        const _: fn(KernelDescriptor) = |KernelDescriptor { $($field: _),* }| ();
        $(
            #[doc = concat!(
                "```compile_fail,E0616\n",
                "let mut copy = kernels_gpu::persistent::DESCRIPTOR;\n",
                "copy.", stringify!($field), " = copy.", stringify!($field), "();\n",
                "```",
            )]
            #[cfg(doctest)]
            mod $field {}
        )*
    };
}

sealed!(name summary origin tile block grid shared unaligned abi arithmetic target source);

/// The second entry point of a kernel with vectorised, 128-bit accesses: for matrices that are not
/// aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unaligned {
    /// Its name.
    pub name: &'static str,
    /// Whether the first entry point accesses A, B and C vectorised, and so needs them
    /// aligned: the pointer a multiple of 16 bytes, the leading dimension and the length of rows
    /// multiples of 4 elements.
    pub vectorized: [bool; 3],
    /// How the entry points take A and B that lie as their transposes.
    pub transposed: [Reads; 2],
    /// Whether C may lie as its transpose.
    pub transposes_c: bool,
}

/// How a kernel reads an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Every entry point does, wherever it lies.
    Anywhere,
    /// The first entry point needs it aligned: see [`Unaligned::vectorized`].
    Aligned,
    /// Only the entry point for matrices that are not aligned does.
    Unaligned,
    /// No entry point does: it takes a copy, made by
    /// [`stage_transposed()`](crate::utility::staging::stage_transposed()).
    Copied,
}

impl Unaligned {
    /// For a kernel that needs all three matrices aligned.
    pub const fn of_all(name: &'static str) -> Self {
        Self { name, vectorized: [true; 3], transposed: [Reads::Copied; 2], transposes_c: false }
    }
}

/// How a kernel multiplies elements of f32. Sums are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// FMAs.
    Fma,
    /// Tensor cores, of elements rounded to TF32.
    Tf32,
    /// Tensor cores, three products of the two parts of TF32 that each element is split in.
    Tf32x3,
}

/// The PTX that has a kernel, and with it the devices that run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// `sm_80`: compute capability 8.0 and later.
    Sm80,
    /// `sm_90a`: compute capability 9.0 alone.
    Sm90a,
}

/// What a kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelAbi {
    /// The product, in BLAS order:
    ///
    /// ```text
    /// m: u32, n: u32, k: u32, alpha: f32, a: *const f32, lda: u32,
    /// b: *const f32, ldb: u32, beta: f32, c: *mut f32, ldc: u32
    /// ```
    ///
    /// `lda`, `ldb` and `ldc` are the leading dimensions, in elements.
    Gemm,
    /// The parameters of `SplitK`, where K is never split: `splits` is 1, or 0 for one product, and
    /// `depth`, `partials` and `counters` are not looked at.
    Batched,
    /// Those of `Gemm`, and what splitting K, batches and transposes need:
    ///
    /// ```text
    /// depth: u32, partials: *mut f32, counters: *mut u32,
    /// splits: u32, stride_a: u64, stride_b: u64, stride_c: u64,
    /// layout: u32, epilogue: epilogue::Parameters
    /// ```
    ///
    /// The grid's z axis walks the splits of one product after the other: block z is for product
    /// `z / splits`, whose matrices lie at so many strides, in elements, from the first's, and its
    /// split s, `z % splits`, sums over k from `s * depth` to `(s + 1) * depth` or the end;
    /// `depth` is a multiple of [`Tile::bk`]. If `splits` is 0, there is one product, and all of
    /// the z axis are its splits. With one split `partials` and `counters` are not
    /// touched. With more, `partials` has room for `BM * BN` elements per block, and `counters` for
    /// one zero per tile of each C, which is zero again at the end.
    ///
    /// `layout` says how the matrices lie. Those that have
    /// [`TRANSPOSED_A`](crate::abi::layout::TRANSPOSED_A) or its like in it lie as their transposes, if the
    /// entry point takes them so: see [`KernelDescriptor::reads`]. If `splits` is not 0, those that have
    /// [`POINTERS_A`](crate::abi::layout::POINTERS_A) or its like are arrays of as many addresses as there are
    /// products; their strides say how many elements from there the launch's parts of them begin.
    SplitK,
    /// The product with A and B behind tensor maps:
    ///
    /// ```text
    /// m: u32, n: u32, k: u32, alpha: f32, map_a: TensorMap, map_b: TensorMap,
    /// beta: f32, c: *mut f32, ldc: u32
    /// ```
    ///
    /// The maps describe matrices of f32, whose dimension 0 walks along a row, with zeros
    /// outside: A with boxes of BK columns by BM rows, swizzled by 64 bytes, and B with boxes of
    /// BN columns by BK rows, not swizzled. So A's and B's rows must begin on 16 bytes: the host
    /// copies a matrix where they do not, with [`stage_operands()`](crate::utility::staging). With k = 0
    /// the maps are not used, and may be zeros. C may lie anywhere.
    ///
    /// Such a kernel is only in the PTX for compute capability 9.0 (`sm_90a`).
    TensorMap,
    /// Those of `TensorMap`, and what stream-K needs:
    ///
    /// ```text
    /// stream_k_tiles: u32, accumulation_steps: u32, partials: *mut f32, counters: *mut u32,
    /// layout: u32, batch: u32, step_a: u32, step_b: u32, stride_c: u64,
    /// epilogue: epilogue::Parameters
    /// ```
    ///
    /// The maps have a third dimension, of products: that of product p is `p * step_a` of A's, and
    /// `p * step_b` of B's, and its C begins `p * stride_c` elements from the first.
    ///
    /// If `layout` is [`TRANSPOSED_A`](crate::abi::layout::TRANSPOSED_A) and not 0, A's map describes its
    /// transpose, with boxes of BM columns by BK rows, not swizzled.
    ///
    /// The grid has one dimension, of persistent blocks: about one per multiprocessor. They share
    /// the steps along K of the first `stream_k_tiles` tiles of all C, in equal parts, and take the
    /// other tiles whole, in turn. After `accumulation_steps`, which is not 0, a sum is stored and
    /// a new one begun: shorter accumulation lengths make smaller errors.
    ///
    /// If `stream_k_tiles` is not 0, there is at least one such step for each block,
    /// `stream_k_tiles * steps * blocks` is less than 2^31, and `counters` has one zero per
    /// stream-K tile, which is zero again at the end. If it is not 0, or there are more steps than
    /// `accumulation_steps`, `partials` has room for `3 * BM * BN` elements per block. There are
    /// less than 2^32 tiles and blocks together.
    StreamK,
    /// A and B behind tensor maps that round them to TF32, and what batches need:
    ///
    /// ```text
    /// m: u32, n: u32, k: u32, alpha: f32, map_a: TensorMap, map_b: TensorMap,
    /// beta: f32, c: *mut f32, ldc: u32,
    /// batch: u32, stride_c: u64, options: u32, layout: u32, epilogue: epilogue::Parameters
    /// ```
    ///
    /// The maps describe the matrices of all products, in three dimensions: along a row, down the rows, and
    /// the product. Their elements are TF32, with zeros outside, swizzled by 128 bytes. Boxes have BK columns:
    /// of A, BM rows, and of B, BK rows; if `layout` is [`TRANSPOSED_B`](crate::abi::layout::TRANSPOSED_B) and not
    /// 0, B's map describes its transpose, with boxes of BN rows. A's and B's rows begin on 16 bytes.
    /// `options` is a sum of [`options`](crate::abi::tensor_core::options). With k = 0 the maps are not used, and
    /// may be zeros. C may lie anywhere.
    ///
    /// The grid has one dimension, of persistent blocks: about one per multiprocessor. There are less than
    /// 2^31 tiles of all C together.
    ///
    /// Such a kernel is only in the PTX for compute capability 9.0 (`sm_90a`).
    Tf32TensorMap,
    /// A and B behind tensor maps that round them to TF32, with split-K and batches:
    ///
    /// ```text
    /// m: u32, n: u32, k: u32, alpha: f32, map_a: TensorMap, map_b: TensorMap,
    /// beta: f32, c: *mut f32, ldc: u32, depth: u32, partials: *mut f32, counters: *mut u32,
    /// splits: u32, stride_c: u64, options: u32, layout: u32, epilogue: epilogue::Parameters
    /// ```
    ///
    /// The maps are as for `Tf32TensorMap`, but that boxes of A have BM rows, or `m` where that is less; tiles of B are prefetched to
    /// L2 before the launch in front ends, so that B is mapped memory by then. The grid, `depth`, `partials`,
    /// `counters` and `splits` are as for `SplitK`, but that no split is empty, except for the only one where k is 0. `layout` is a sum of [`TRANSPOSED_B`](crate::abi::layout::TRANSPOSED_B) and
    /// [`TRANSPOSED_C`](crate::abi::layout::TRANSPOSED_C), of which the latter says that C lies as its transpose: n x m elements,
    /// with `ldc >= m`.
    ///
    /// Such a kernel is only in the PTX for compute capability 9.0 (`sm_90a`).
    Tf32SplitK,
}

impl KernelAbi {
    /// Whether the last parameter is an [epilogue](crate::abi::epilogue).
    pub const fn has_epilogue(self) -> bool {
        match self {
            Self::Gemm | Self::TensorMap => false,
            Self::Batched
            | Self::SplitK
            | Self::StreamK
            | Self::Tf32TensorMap
            | Self::Tf32SplitK => true,
        }
    }

    /// Whether a launch takes all products of a strided batch.
    pub const fn has_batches(self) -> bool {
        // Who has the one has the other.
        self.has_epilogue()
    }

    /// Whether it also takes those of a batch of pointers.
    pub const fn has_pointer_batches(self) -> bool {
        matches!(self, Self::Batched | Self::SplitK)
    }

    /// Whether A and B lie behind tensor maps, which the driver must be able to make.
    pub const fn has_tensor_maps(self) -> bool {
        matches!(self, Self::TensorMap | Self::StreamK | Self::Tf32TensorMap | Self::Tf32SplitK)
    }

    /// Whether several blocks can share a tile of C, each with its part of K.
    pub const fn splits_k(self) -> bool {
        matches!(self, Self::SplitK | Self::Tf32SplitK)
    }
}

/// How C is cut up. All sizes are counts of f32 elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Rows of C per block.
    pub bm: u32,
    /// Columns of C per block.
    pub bn: u32,
    /// Columns of A, and rows of B, per step of the K loop; 1 where K is not tiled.
    pub bk: u32,
    /// Rows of C per thread.
    pub tm: u32,
    /// Columns of C per thread.
    pub tn: u32,
}

/// Which dimension of C the grid's x axis walks; y walks the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridOrder {
    /// `blockIdx.x` selects the rows of C, `blockIdx.y` the columns.
    RowsAlongX,
    /// `blockIdx.x` selects the columns of C, `blockIdx.y` the rows.
    ColumnsAlongX,
}

/// Shared memory per block.
#[derive(Clone, Copy, Debug)]
pub enum Shared {
    /// The kernel declares what it needs, this many bytes (possibly none).
    Static(u32),
    /// The launch must pass this many bytes, a function of the GEMM's K.
    Dynamic(fn(k: u32) -> u64),
}

impl KernelDescriptor {
    /// The name: `--kernel NAME`, and the kernel's entry point in the PTX.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// One line for lists: of a rung, what it does that the rung before did not.
    pub const fn summary(&self) -> &'static str {
        self.summary
    }

    /// The document, and the kernel in it, that this one rebuilds; `None` for one that goes
    /// beyond the documents.
    pub const fn origin(&self) -> Option<&'static str> {
        self.origin
    }

    /// Outputs per block and per thread, and the step along K.
    pub const fn tile(&self) -> Tile {
        self.tile
    }

    /// Threads per block, along x and y. The kernel is right for no other block.
    pub const fn block(&self) -> [u32; 2] {
        self.block
    }

    /// Which dimension of C the grid's x axis walks; without meaning for
    /// [`KernelAbi::StreamK`] and [`KernelAbi::Tf32TensorMap`], whose grids have one dimension.
    pub const fn grid(&self) -> GridOrder {
        self.grid
    }

    /// Shared memory per block.
    pub const fn shared(&self) -> Shared {
        self.shared
    }

    /// For a kernel with vectorised, 128-bit accesses: the entry point for matrices that are not
    /// aligned. `None`: the only entry point takes what the [`KernelAbi`] says.
    pub const fn unaligned(&self) -> Option<Unaligned> {
        self.unaligned
    }

    /// Whether C may lie as its transpose.
    pub const fn transposes_c(&self) -> bool {
        match self.unaligned {
            Some(unaligned) => unaligned.transposes_c,
            None => matches!(self.abi, KernelAbi::Tf32SplitK),
        }
    }

    /// How A, or B, is read if it lies as it is, or as its transpose.
    pub const fn reads(&self, is_b: bool, transposed: bool) -> Reads {
        let which = is_b as usize;
        match (self.abi, self.unaligned) {
            (abi, _) if abi.has_tensor_maps() && !transposed => Reads::Aligned,
            (KernelAbi::Tf32TensorMap | KernelAbi::Tf32SplitK, _) if is_b => Reads::Aligned,
            (KernelAbi::StreamK, _) if !is_b => Reads::Aligned,
            (KernelAbi::Batched | KernelAbi::SplitK, None) => Reads::Anywhere,
            (_, Some(unaligned)) if transposed => unaligned.transposed[which],
            (_, Some(unaligned)) if unaligned.vectorized[which] => Reads::Aligned,
            _ if transposed => Reads::Copied,
            _ => Reads::Anywhere,
        }
    }

    /// The parameters of both entry points.
    pub const fn abi(&self) -> KernelAbi {
        self.abi
    }

    /// How it multiplies.
    pub const fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// The PTX that it is in. That for `sm_90a` has what is for `sm_80`, too.
    pub const fn target(&self) -> Target {
        self.target
    }

    /// The text of the kernel's file, whose header explains it.
    pub const fn source(&self) -> &'static str {
        self.source
    }

    /// The header of the kernel's file, as Markdown.
    pub fn header(&self) -> impl Iterator<Item = &'static str> {
        header(self.source)
    }

    /// Threads per block.
    pub const fn threads(&self) -> u32 {
        self.block[0] * self.block[1]
    }

    /// Bytes of shared memory per block; none where they depend on K.
    pub fn shared_bytes(&self) -> Option<u64> {
        match self.shared {
            Shared::Static(bytes) => Some(bytes.into()),
            Shared::Dynamic(bytes) => Some(bytes(0)).filter(|&least| least == bytes(u32::MAX)),
        }
    }
}

/// The header of a source, as Markdown.
pub(crate) fn header(source: &'static str) -> impl Iterator<Item = &'static str> {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line))
}
