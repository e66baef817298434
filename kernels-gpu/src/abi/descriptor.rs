//! The description of a kernel for the host.
//!
//! Each kernel's file holds a [`KernelDescriptor`], built from the kernel's own constants. The host
//! reads the descriptor and never retypes a number.

/// A kernel: its name, its geometry and its launch requirements.
///
/// The kernel computes `C = alpha * A * B + beta * C`. All matrices are row-major: `A` is M x K,
/// `B` is K x N, and `C` is M x N. Sums are f32. The [`Arithmetic`] gives the types of A and B, and
/// their multiplication. A [`KernelAbi`] with more parameters adds batches, transposes and
/// epilogues.
///
/// A kernel multiplies every sum by alpha. So a launch with the number 0 as alpha has k = 0. If k
/// is 0 and alpha is in device memory, the launch sets
/// [`NO_SUM`](crate::abi::epilogue::operations::NO_SUM).
///
/// A launch trusts the descriptor, so only this crate can write one:
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
    pub(crate) variants: &'static [&'static [&'static str]],
    pub(crate) reads_anywhere: [bool; 2],
    pub(crate) compensates: bool,
}

/// Makes a doc test per field that other crates cannot assign it.
macro_rules! sealed {
    ($($field:ident)*) => {
        // A missing field does not compile.
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

sealed!(name summary origin tile block grid shared unaligned abi arithmetic target source variants reads_anywhere compensates);

/// The second entry point of a kernel with 128-bit accesses, for misaligned matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unaligned {
    /// The entry point's name.
    pub name: &'static str,
    /// Whether the first entry point has vectorised accesses to A, B and C.
    ///
    /// It then needs them aligned: the pointer is a multiple of 16 bytes, and the leading dimension
    /// and the row length are multiples of 4 elements.
    pub vectorized: [bool; 3],
    /// The entry points' accesses to transposed A and B.
    pub transposed: [Reads; 2],
    /// Whether C may be stored transposed.
    pub transposes_c: bool,
}

/// A kernel's accesses to an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Every entry point accepts any address.
    Anywhere,
    /// The first entry point needs alignment: see [`Unaligned::vectorized`].
    Aligned,
    /// Only the entry point for misaligned matrices accepts it.
    Unaligned,
    /// No entry point accepts it; it needs a copy by
    /// [`stage_transposed()`](crate::utility::staging::stage_transposed()).
    Copied,
}

impl Unaligned {
    /// For a kernel that needs all three matrices aligned.
    pub const fn of_all(name: &'static str) -> Self {
        Self { name, vectorized: [true; 3], transposed: [Reads::Copied; 2], transposes_c: false }
    }
}

/// The operand types and the multiplication of a kernel, whose sums are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// FMAs on f32.
    Fma,
    /// Tensor cores on f32 rounded to TF32.
    Tf32,
    /// Tensor cores on f32 split in two TF32 parts, with three products per pair.
    Tf32x3,
    /// Tensor cores on `bf16` or `f16`, whose products are exact. C is f32, or of the type of A and
    /// B.
    Bits16,
}

/// The PTX that contains a kernel, and so the devices that run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// `sm_80`: compute capability 8.0 and later.
    Sm80,
    /// `sm_90a`: compute capability 9.0 alone.
    Sm90a,
}

/// The parameters of a kernel.
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
    /// The parameters of `SplitK`, without splits of K.
    ///
    /// `splits` is 1, or 0 for a single product. `depth`, `partials` and `counters` are ignored.
    Batched,
    /// The parameters of `Gemm`, followed by those for split-K, batches and transposes:
    ///
    /// ```text
    /// depth: u32, partials: *mut f32, counters: *mut u32,
    /// splits: u32, stride_a: u64, stride_b: u64, stride_c: u64,
    /// layout: u32, epilogue: epilogue::Parameters
    /// ```
    ///
    /// The grid's z axis walks the splits of one product after the other. Block z computes split
    /// `s = z % splits` of product `z / splits`:
    ///
    /// - The matrices of a product begin the strides, in elements, after those of the product
    ///   before.
    /// - Split s sums over k from `s * depth` to `(s + 1) * depth` or the end. `depth` is a
    ///   multiple of [`Tile::bk`].
    /// - If `splits` is 0, there is one product, and all blocks along z are its splits.
    /// - With one split, `partials` and `counters` are not accessed.
    /// - With more splits, `partials` has room for `BM * BN` elements per block. `counters` has one
    ///   zero per tile of each C, which is zero again at the end.
    ///
    /// `layout` describes the storage of the matrices:
    ///
    /// - A matrix whose [`TRANSPOSED_A`](crate::abi::layout::TRANSPOSED_A) or equivalent is set is
    ///   stored transposed. The entry point must accept that: see [`KernelDescriptor::reads`].
    /// - A matrix whose [`POINTERS_A`](crate::abi::layout::POINTERS_A) or equivalent is set is an
    ///   array of addresses, one per product. This requires that `splits` is not 0. The stride is
    ///   then the offset, in elements, from each address to the launch's part.
    SplitK,
    /// The product, with tensor maps for A and B:
    ///
    /// ```text
    /// m: u32, n: u32, k: u32, alpha: f32, map_a: TensorMap, map_b: TensorMap,
    /// beta: f32, c: *mut f32, ldc: u32
    /// ```
    ///
    /// The maps describe f32 matrices, whose dimension 0 walks along a row, with zeros out of
    /// bounds.
    ///
    /// - A has boxes of BK columns by BM rows, swizzled by 64 bytes.
    /// - B has boxes of BN columns by BK rows, not swizzled.
    /// - Rows of A and B must begin on 16 bytes. The host copies other matrices, with
    ///   [`stage_operands()`](crate::utility::staging).
    /// - With k = 0 the maps are not used, and may be zeros.
    /// - C may lie anywhere.
    ///
    /// Such a kernel is only in the PTX for compute capability 9.0 (`sm_90a`).
    TensorMap,
    /// The parameters of `TensorMap`, followed by those for stream-K:
    ///
    /// ```text
    /// stream_k_tiles: u32, accumulation_steps: u32, partials: *mut f32, counters: *mut u32,
    /// layout: u32, batch: u32, step_a: u32, step_b: u32, stride_c: u64,
    /// epilogue: epilogue::Parameters
    /// ```
    ///
    /// The maps have a third dimension, which counts products. Product p uses index `p * step_a` of
    /// A's map and `p * step_b` of B's. Its C begins `p * stride_c` elements after the first.
    ///
    /// `layout` is [`TRANSPOSED_A`](crate::abi::layout::TRANSPOSED_A) or 0. If it is not 0, A's map
    /// describes the transpose, with boxes of BM columns by BK rows, not swizzled.
    ///
    /// The grid has one dimension, of persistent blocks: about one per multiprocessor. They share
    /// the steps along K of the first `stream_k_tiles` tiles of all C, in equal parts. They compute
    /// the other tiles whole, in turn. After `accumulation_steps`, which is not 0, a sum is stored
    /// and a new one begun: shorter accumulation lengths make smaller errors.
    ///
    /// - If `stream_k_tiles` is not 0, there is at least one shared step per block, and
    ///   `stream_k_tiles * steps * blocks` is less than 2^31.
    /// - If `stream_k_tiles` is not 0, `counters` has one zero per stream-K tile, which is zero
    ///   again at the end.
    /// - If `stream_k_tiles` is not 0, or there are more steps than `accumulation_steps`,
    ///   `partials` has room for `3 * BM * BN` elements per block.
    /// - There are fewer than 2^32 tiles and blocks together.
    StreamK,
    /// Tensor maps that round A and B to TF32, and parameters for batches:
    ///
    /// ```text
    /// m: u32, n: u32, k: u32, alpha: f32, map_a: TensorMap, map_b: TensorMap,
    /// beta: f32, c: *mut f32, ldc: u32,
    /// batch: u32, stride_c: u64, options: u32, layout: u32, epilogue: epilogue::Parameters
    /// ```
    ///
    /// The maps describe the matrices of all products, in three dimensions: along a row, down the
    /// rows, and the product. Elements are TF32, with zeros out of bounds, swizzled by 128 bytes.
    ///
    /// - Boxes have BK columns. A's have BM rows, and B's have BK rows.
    /// - `layout` is [`TRANSPOSED_B`](crate::abi::layout::TRANSPOSED_B) or 0. If it is not 0, B's
    ///   map describes the transpose, with boxes of BN rows.
    /// - Rows of A and B begin on 16 bytes.
    /// - `options` is a sum of [`options`](crate::abi::tensor_core::options).
    /// - With k = 0 the maps are not used, and may be zeros.
    /// - C may lie anywhere.
    ///
    /// The grid has one dimension, of persistent blocks: about one per multiprocessor. All C
    /// together have fewer than 2^31 tiles.
    ///
    /// Such a kernel is only in the PTX for compute capability 9.0 (`sm_90a`).
    Tf32TensorMap,
    /// Tensor maps that round A and B to TF32, and parameters for split-K and batches:
    ///
    /// ```text
    /// m: u32, n: u32, k: u32, alpha: f32, map_a: TensorMap, map_b: TensorMap,
    /// beta: f32, c: *mut f32, ldc: u32, depth: u32, partials: *mut f32, counters: *mut u32,
    /// splits: u32, stride_c: u64, options: u32, layout: u32, epilogue: epilogue::Parameters
    /// ```
    ///
    /// - The maps are those of `Tf32TensorMap`, except that boxes of A have `min(BM, m)` rows.
    /// - The kernel prefetches tiles of B to L2 before the launch in front of it ends, so B is
    ///   mapped memory by then.
    /// - The grid, `depth`, `partials`, `counters` and `splits` are those of `SplitK`, except that
    ///   no split is empty unless k is 0 and there is one split.
    /// - `layout` is a sum of [`TRANSPOSED_B`](crate::abi::layout::TRANSPOSED_B) and
    ///   [`TRANSPOSED_C`](crate::abi::layout::TRANSPOSED_C). With the latter, C is stored
    ///   transposed: n x m elements, with `ldc >= m`.
    ///
    /// Such a kernel is only in the PTX for compute capability 9.0 (`sm_90a`).
    Tf32SplitK,
    /// The parameters of `TensorMap`, for A and B in 16 bits.
    ///
    /// There are entry points for `bf16` and for `f16`.
    ///
    /// The maps describe matrices whose dimension 0 walks along a row, with zeros out of bounds.
    /// The swizzle is the bytes of a box's row.
    ///
    /// - A has boxes of BK columns by BM rows.
    /// - B has boxes of BK rows by [`PANEL`](crate::abi::tensor_core::PANEL) columns, or BN if
    ///   fewer.
    /// - With k = 0 the maps are not used, and may be zeros.
    /// - C is f32, and may lie anywhere.
    ///
    /// Such a kernel is only in the PTX for compute capability 9.0 (`sm_90a`).
    Wgmma,
    /// The parameters of `Wgmma`, followed by those for batches and epilogues:
    ///
    /// ```text
    /// batch: u32, stride_c: u64, options: u32, epilogue: Parameters
    /// ```
    ///
    /// - `options` is a sum of [`options`](crate::abi::tensor_core::options).
    /// - All C together have fewer than 2^31 tiles.
    /// - The maps have a third dimension, the product; a box has one product.
    /// - There is an entry point for each storage layout of A and B: see
    ///   [`KernelDescriptor::entry_points`].
    /// - Entry points for groups have `groups: *const GroupTile` in place of `batch` and `stride_c`:
    ///   the [table](crate::abi::groups) of their tiles, which the launch in front writes. Boxes of A
    ///   have BM rows.
    /// - The map of a transposed A has boxes of [`PANEL`](crate::abi::tensor_core::PANEL) columns
    ///   by BK rows.
    /// - The map of a transposed B has boxes of BK columns by the rows of an
    ///   [`even_part`](crate::abi::tensor_core::even_part) of BN, and that of A as it is the rows
    ///   of an [`equal_part`](crate::abi::tensor_core::equal_part) of BM.
    WgmmaBatched,
    /// The parameters of `WgmmaBatched`, followed by those for clusters that share tiles, whose
    /// blocks each have a part of K:
    ///
    /// ```text
    /// partials: *mut f32, counters: *mut u32, a: *const u16, lda: u32, stride_a: u64
    /// ```
    ///
    /// A cluster has `s` blocks along x, with a part of K each: at least one, and at most the steps
    /// of BK along K and [`MAX_CLUSTER_SIZE`](crate::abi::tensor_core::MAX_CLUSTER_SIZE).
    ///
    /// If `partials` is null, each cluster takes whole tiles, one after another, and there are no
    /// more clusters than tiles. Otherwise there is *stream-K*: the clusters share the steps of all
    /// tiles equally, or each tile's steps if there are `n` clusters for each tile. The tiles
    /// have `g` groups of `s` whole steps: there are at most `g` clusters, and `g` is less than
    /// 2^31. `partials` has two f32 tiles per cluster, aligned to 16 bytes. `counters` has one
    /// counter for each warp with sums of each block, which is zero before and after the launch.
    ///
    /// `a`, `lda` and `stride_a` are A and its stride in a batch, for a kernel that [reads A
    /// anywhere](KernelDescriptor::reads). A's map is then not used.
    ///
    /// Boxes of A that is not transposed have the rows of an
    /// [`even_part`](crate::abi::tensor_core::even_part) of 64. Boxes of a transposed B have the rows
    /// of an even part of the tile's columns. Boxes of any other A or B have BK rows.
    WgmmaClusters,
    /// Addresses of A and B in 16 bits:
    ///
    /// ```text
    /// m: u32, n: u32, k: u32, alpha: f32, a: *const u16, lda: u32, stride_a: u64,
    /// b: *const u16, ldb: u32, stride_b: u64, beta: f32, c: *mut f32, ldc: u32, stride_c: u64,
    /// options: u32, groups: *const GroupTile, epilogue: Parameters
    /// ```
    ///
    /// The products of a batch are along the grid's second dimension, and their A, B and C follow
    /// at the strides. The options are
    /// [`HALF_OUTPUT`](crate::abi::tensor_core::options::HALF_OUTPUT) and
    /// [`POINTERS_C`](crate::abi::tensor_core::options::POINTERS_C). Entry points are those of
    /// `WgmmaBatched` for storage layouts.
    ///
    /// `groups` is null, or the [table](crate::abi::groups) of the tiles of groups, along the grid's
    /// first dimension: there may be more blocks than tiles.
    MmaPointers,
}

impl KernelAbi {
    /// Whether an [epilogue](crate::abi::epilogue) is among the parameters.
    pub const fn has_epilogue(self) -> bool {
        !matches!(self, Self::Gemm | Self::TensorMap | Self::Wgmma)
    }

    /// Whether one launch can compute all products of a strided batch.
    pub const fn has_batches(self) -> bool {
        // The interfaces with epilogues are those with batches.
        self.has_epilogue()
    }

    /// Whether batches of pointers are accepted: in f32, or in 16 bits with copies of A and B.
    pub const fn has_pointer_batches(self) -> bool {
        matches!(self, Self::Batched | Self::SplitK | Self::MmaPointers)
    }

    /// Whether A and B have tensor maps, which the driver must be able to make.
    pub const fn has_tensor_maps(self) -> bool {
        !matches!(self, Self::Gemm | Self::Batched | Self::SplitK | Self::MmaPointers)
    }

    /// Whether several blocks can share a tile of C, each with a part of K.
    pub const fn splits_k(self) -> bool {
        matches!(self, Self::SplitK | Self::Tf32SplitK | Self::WgmmaClusters)
    }
}

/// The tile sizes of a kernel, all in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Rows of C per block.
    pub bm: u32,
    /// Columns of C per block.
    pub bn: u32,
    /// Columns of A, and rows of B, per step of the K loop; 1 if K is not tiled.
    pub bk: u32,
    /// Rows of C per thread.
    pub tm: u32,
    /// Columns of C per thread.
    pub tn: u32,
}

impl Tile {
    /// A tile of 16-bit operands on tensor cores, whose outputs `threads` threads hold in pairs.
    pub(crate) const fn of_fragments([bm, bn]: [u32; 2], threads: u32) -> Self {
        Self { bm, bn, bk: crate::abi::tensor_core::BK, tm: bm * bn / threads / 2, tn: 2 }
    }
}

/// The order in which a grid walks the tiles of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridOrder {
    /// `blockIdx.x` selects the rows of C, `blockIdx.y` the columns.
    RowsAlongX,
    /// `blockIdx.x` selects the columns of C, `blockIdx.y` the rows.
    ColumnsAlongX,
    /// A block per tile, along x alone; the kernel defines the order.
    Linear,
    /// Any number of blocks along x, up to the tiles; each computes one tile after the other.
    Persistent,
}

/// The shared memory of a block.
#[derive(Clone, Copy, Debug)]
pub enum Shared {
    /// The kernel declares these bytes (possibly 0).
    Static(u32),
    /// The launch must pass these bytes, which depend on the GEMM's K.
    Dynamic(fn(k: u32) -> u64),
    /// The launch chooses between two sizes: `blocks` per multiprocessor, or one with more stages.
    Stages {
        /// The blocks that share a multiprocessor with the first size.
        blocks: u32,
        /// The bytes in both cases.
        bytes: [u32; 2],
        /// The bytes in front of the stages, for a kernel whose tiles a launch may narrow. The
        /// launch tells it how many stages fit behind them.
        front: Option<u32>,
    },
}

impl KernelDescriptor {
    /// The name, in `--kernel NAME` and as the kernel's first entry point in the PTX.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The entry points for stored A and B.
    ///
    /// There are four, in this order: neither, A, B, or both transposed. Behind them are the
    /// [`grouped_entry_points`](Self::grouped_entry_points). There is one if the launch's parameters
    /// describe the layout, or the kernel accepts no transposes.
    ///
    /// `of_f16` is for a kernel of 16-bit operands, which has entry points for `bf16` and for
    /// `f16`.
    pub const fn entry_points(&self, of_f16: bool) -> &[&'static str] {
        match self.variants {
            [] => core::slice::from_ref(&self.name),
            types => types[of_f16 as usize],
        }
    }

    /// The entry points for [groups](crate::abi::groups) of rows, if the kernel has its own for
    /// them: for a plain B, and for a transposed one.
    pub const fn grouped_entry_points(&self, of_f16: bool) -> &[&'static str] {
        match self.entry_points(of_f16).split_at_checked(4) {
            Some((_, grouped)) => grouped,
            None => &[],
        }
    }

    /// Whether a product's rows may be those of groups.
    pub const fn has_groups(&self) -> bool {
        matches!(self.abi, KernelAbi::MmaPointers) || !self.grouped_entry_points(false).is_empty()
    }

    /// Whether transposed A and B are accepted; if not, the kernel computes plain products alone.
    pub const fn takes_transposes(&self) -> bool {
        !matches!(self.abi, KernelAbi::Wgmma)
    }

    /// The blocks that share a multiprocessor, if a launch [chooses](Shared::Stages).
    pub const fn blocks_per_multiprocessor(&self) -> u32 {
        match self.shared {
            Shared::Stages { blocks, .. } => blocks,
            Shared::Static(_) | Shared::Dynamic(_) => 1,
        }
    }

    /// Whether a launch may make tiles [narrower](Shared::Stages).
    pub const fn narrows(&self) -> bool {
        matches!(self.shared, Shared::Stages { front: Some(_), .. })
    }

    /// Whether a block computes one tile after the other, so that one per multiprocessor is enough.
    pub const fn is_persistent(&self) -> bool {
        matches!(self.grid, GridOrder::Persistent)
    }

    /// The warps of a block that have sums, for [`KernelAbi::WgmmaClusters`]: four per 64 tile
    /// rows.
    pub const fn warps_with_sums(&self) -> u32 {
        self.tile.bm / 64 * 4
    }

    /// One line for lists; for a rung, the change from the rung before.
    pub const fn summary(&self) -> &'static str {
        self.summary
    }

    /// The document and kernel that this one rebuilds; `None` if it goes beyond the documents.
    pub const fn origin(&self) -> Option<&'static str> {
        self.origin
    }

    /// Outputs per block and per thread, and the step along K.
    pub const fn tile(&self) -> Tile {
        self.tile
    }

    /// Threads per block, along x and y. The kernel is correct for no other block.
    pub const fn block(&self) -> [u32; 2] {
        self.block
    }

    /// The order in which the grid walks the tiles of C.
    pub const fn grid(&self) -> GridOrder {
        self.grid
    }

    /// Shared memory per block.
    pub const fn shared(&self) -> Shared {
        self.shared
    }

    /// The entry point for misaligned matrices, if the kernel has 128-bit accesses.
    ///
    /// With `None`, the only entry point accepts the matrices that the [`KernelAbi`] describes.
    pub const fn unaligned(&self) -> Option<Unaligned> {
        self.unaligned
    }

    /// Whether C may be stored transposed.
    pub const fn transposes_c(&self) -> bool {
        match self.unaligned {
            Some(unaligned) => unaligned.transposes_c,
            None => matches!(self.abi, KernelAbi::Tf32SplitK | KernelAbi::WgmmaClusters),
        }
    }

    /// The accesses to A or B, stored plain or transposed.
    pub const fn reads(&self, is_b: bool, transposed: bool) -> Reads {
        let which = is_b as usize;
        match (self.abi, self.unaligned) {
            _ if self.reads_anywhere[which] => Reads::Anywhere,
            (KernelAbi::Wgmma, _) if transposed => Reads::Copied,
            _ if matches!(self.arithmetic, Arithmetic::Bits16) => Reads::Aligned,
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

    /// Whether sums of few rows are compensated for rounding, whatever K is.
    pub const fn compensates(&self) -> bool {
        self.compensates
    }

    /// The parameters of both entry points.
    pub const fn abi(&self) -> KernelAbi {
        self.abi
    }

    /// The operand types and the multiplication.
    pub const fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// The PTX that contains the kernel. The PTX for `sm_90a` also contains the `sm_80` kernels.
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

    /// Bytes of shared memory per block; `None` if they depend on K.
    pub fn shared_bytes(&self) -> Option<u64> {
        match self.shared {
            Shared::Static(bytes) => Some(bytes.into()),
            Shared::Dynamic(bytes) => Some(bytes(0)).filter(|&least| least == bytes(u32::MAX)),
            Shared::Stages { bytes, .. } => Some(bytes[0].into()),
        }
    }
}

/// The header of a source, as Markdown.
fn header(source: &'static str) -> impl Iterator<Item = &'static str> {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line))
}
