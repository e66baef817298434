//! Kernels for tensor cores: operands in 16 bits, sums in f32.

use crate::abi::descriptor::header;

/// Step along K: elements of 16 bits in a row of 128 bytes.
pub const BK: u32 = 64;
/// Columns of a panel of B, as the swizzle of 128 bytes has them.
pub const PANEL: u32 = 64;

/// Bytes after which the swizzle of 128 bytes repeats itself, and on which its tiles begin.
pub const ALIGNMENT: u32 = 1024;

/// Bytes of shared memory that a multiprocessor of compute capability 9.0 has.
pub const SHARED_MEMORY_PER_MULTIPROCESSOR: u32 = 228 << 10;
/// Bytes of it that are reserved for each block.
pub const RESERVED_SHARED_MEMORY_PER_BLOCK: u32 = 1 << 10;

/// The most parts of K: the blocks of a cluster that every device with clusters has.
pub const MAX_CLUSTER_SIZE: u32 = 8;

/// What [`TensorCoreDescriptor`]'s parameter `options` is a sum of.
pub mod options {
    /// All products of a batch have the same A, whose map has one.
    pub const BROADCAST_A: u32 = 1;
    /// The same of B.
    pub const BROADCAST_B: u32 = 1 << 1;
    /// C is of the type of A and B, rounded to the nearest, ties to even.
    pub const HALF_OUTPUT: u32 = 1 << 2;
    /// C is the transpose of what is computed: n x m elements, with `ldc >= m`; only of a kernel that
    /// [splits](super::TensorCoreDescriptor::splits) K.
    pub const TRANSPOSED_C: u32 = 1 << 3;
}

/// The type of the elements of A and B. Sums, alpha and beta are f32; C is f32, or of this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputType {
    /// `bf16`: the exponent of f32, and 8 bits of its 24.
    Bf16,
    /// `f16`: 11 bits, from 2^-24 to 65504.
    F16,
}

impl InputType {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Bf16, Self::F16];

    /// The name: `bf16` or `f16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
}

/// What a kernel for tensor cores takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorCoreAbi {
    /// A and B behind tensor maps:
    ///
    /// ```text
    /// m: u32, n: u32, k: u32, alpha: f32, map_a: TensorMap, map_b: TensorMap,
    /// beta: f32, c: *mut f32, ldc: u32
    /// ```
    ///
    /// The maps describe matrices of 16-bit elements, whose dimension 0 walks along a row, with zeros
    /// outside, swizzled by the bytes of a row of the box: A with boxes of [`BK`] columns by
    /// [`rows`](TensorCoreDescriptor::rows) rows, and B with boxes of [`BK`] rows by [`PANEL`] columns, or
    /// [`cols`](TensorCoreDescriptor::cols) if those are fewer.
    /// With k = 0 the maps are not used, and may be zeros.
    ///
    /// Such a kernel is only in the PTX for compute capability 9.0 (`sm_90a`).
    TensorMap,
    /// A and B where they lie:
    ///
    /// ```text
    /// m: u32, n: u32, k: u32, alpha: f32, a: *const u16, lda: u32, stride_a: u64,
    /// b: *const u16, ldb: u32, stride_b: u64, beta: f32, c: *mut f32, ldc: u32, stride_c: u64,
    /// options: u32, epilogue: Parameters
    /// ```
    ///
    /// Of a batch, the products are along the grid's second dimension, and each one's A, B and C follow by the strides.
    /// Of `options` it knows [`HALF_OUTPUT`](options::HALF_OUTPUT).
    Pointer,
}

/// The entry points of a kernel for A and B as they lie: neither, A, B, or both as their transposes.
pub type Layouts = [&'static str; 4];

/// The entry points of a kernel, for inputs of each type in the order of [`InputType::ALL`].
#[derive(Clone, Copy)]
pub enum EntryPoints {
    /// One for each type.
    Plain([&'static str; 2]),
    /// One for each type and each way that A and B lie.
    Layouts([Layouts; 2]),
}

/// The [`EntryPoints`] of a kernel whose variants are `types`, or `layouts` and types. The words are
/// those of its `#[kernel(variants(..))]`: `ta` and `tb` for transposes of A and of B, then `f16`.
macro_rules! entry_points {
    ($kernel:ident, types) => {
        $crate::abi::tensor_core::EntryPoints::Plain([
            stringify!($kernel),
            concat!(stringify!($kernel), "_f16"),
        ])
    };
    ($kernel:ident, layouts) => {
        $crate::abi::tensor_core::EntryPoints::Layouts([
            entry_points!(@layouts $kernel, ""),
            entry_points!(@layouts $kernel, "_f16"),
        ])
    };
    (@layouts $kernel:ident, $type:literal) => {
        [
            concat!(stringify!($kernel), $type),
            concat!(stringify!($kernel), "_ta", $type),
            concat!(stringify!($kernel), "_tb", $type),
            concat!(stringify!($kernel), "_ta_tb", $type),
        ]
    };
}
pub(crate) use entry_points;

/// A kernel for tensor cores: its name, its geometry and what a launch must provide.
///
/// It computes `C = alpha * A * B + beta * C`, row-major, with A and B in 16 bits and C in f32, unless its options say
/// otherwise, and takes what its [`TensorCoreAbi`] says. A's and B's rows begin on 16 bytes where the kernel
/// [takes no others](Self::takes_unaligned). C may lie anywhere.
///
/// The grid is (x, 1, 1) for a kernel with tensor maps, and (x, products, 1) for one that takes pointers: of blocks along x each takes
/// one tile of C, or several in turn if it [is persistent](Self::is_persistent). There are fewer than 2^31 tiles.
///
/// # Batches, transposes, epilogues
///
/// A kernel that has [`layouts`](Self::layouts) computes
/// `C = epilogue(alpha * op(A) * op(B) + beta * C)` of each product of a strided batch. With tensor maps it also takes
///
/// ```text
/// batch: u32, stride_c: u64, options: u32, epilogue: Parameters
/// ```
///
/// `options` is a sum of [`options`], and there are fewer than 2^31 tiles of all C together. The maps
/// have a third dimension, the product, of which a box has one. The map of a transposed A has boxes of
/// [`PANEL`] columns by [`BK`] rows, and that of a transposed B boxes of [`BK`] columns by
/// [`cols`](Self::cols) rows, or `n` if those are fewer and the kernel [splits](Self::splits) K.
#[derive(Clone, Copy)]
pub struct TensorCoreDescriptor {
    pub(crate) entry_points: EntryPoints,
    pub(crate) summary: &'static str,
    pub(crate) tile: [u32; 2],
    pub(crate) threads: u32,
    /// Where [`blocks`](Self::blocks_per_multiprocessor) share a multiprocessor, and where a block has it for itself.
    pub(crate) shared_bytes: [u32; 2],
    pub(crate) abi: TensorCoreAbi,
    pub(crate) persistent: bool,
    pub(crate) splits: bool,
    pub(crate) unaligned: [bool; 2],
    pub(crate) blocks: u32,
    pub(crate) source: &'static str,
}

impl TensorCoreDescriptor {
    /// The name: `--kernel NAME`, and the entry point for `bf16`.
    pub const fn name(&self) -> &'static str {
        self.entry_point(InputType::Bf16)
    }

    /// The entry point for inputs of a type.
    pub const fn entry_point(&self, input: InputType) -> &'static str {
        match &self.entry_points {
            EntryPoints::Plain(types) => types[input as usize],
            EntryPoints::Layouts(types) => types[input as usize][0],
        }
    }

    /// The entry points for inputs of a type, for A and B as they lie; none if the kernel computes one
    /// product at a time, of A and B as they are multiplied, to an f32 C without an epilogue.
    pub const fn layouts(&self, input: InputType) -> Option<&Layouts> {
        match &self.entry_points {
            EntryPoints::Plain(_) => None,
            EntryPoints::Layouts(types) => Some(&types[input as usize]),
        }
    }

    /// One line for lists.
    pub const fn summary(&self) -> &'static str {
        self.summary
    }

    /// Rows of C per block.
    pub const fn rows(&self) -> u32 {
        self.tile[0]
    }

    /// Columns of C per block.
    pub const fn cols(&self) -> u32 {
        self.tile[1]
    }

    /// Threads per block.
    pub const fn threads(&self) -> u32 {
        self.threads
    }

    /// Bytes of dynamic shared memory per block where `blocks` are to share a multiprocessor:
    /// [as many as can](Self::blocks_per_multiprocessor), or one, which has more stages if the kernel
    /// [splits](Self::splits) K.
    pub const fn shared_bytes(&self, blocks: u32) -> u32 {
        self.shared_bytes[(blocks < self.blocks) as usize]
    }

    /// What it takes.
    pub const fn abi(&self) -> TensorCoreAbi {
        self.abi
    }

    /// Whether a block takes one tile after the other, so that one per multiprocessor is enough, and
    /// there may be any number of them, up to that of the tiles. If not, there is a block for each tile.
    pub const fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Whether the blocks of a cluster share a tile, each with its part of K. There are as many in a cluster
    /// as the launch says, along x, up to [`MAX_CLUSTER_SIZE`], and no more than steps of [`BK`] along K, but one at least; and as many
    /// clusters as tiles of all products, or else any number that shares the steps of all tiles equally (*stream-K*): with `s` blocks
    /// in each no more than the tiles have groups of `s` whole steps, of which there are less than 2^31.
    ///
    /// Such a kernel has more parameters:
    ///
    /// ```text
    /// partials: *mut f32, counters: *mut u32, a: *const u16, lda: u32, stride_a: u64
    /// ```
    ///
    /// The first two it uses only for clusters of another number than tiles: two tiles of f32 for each cluster, on 16 bytes, and a
    /// counter for each warp with sums of each block, which is zero before the launch and after it. The others are A, with its
    /// stride in a batch, for a kernel that [takes it unaligned](Self::takes_unaligned).
    pub const fn splits(&self) -> bool {
        self.splits
    }

    /// Whether rows of A and of B may begin anywhere. With tensor maps, that of A is not used then, and may be zeros.
    pub const fn takes_unaligned(&self) -> [bool; 2] {
        self.unaligned
    }

    /// Warps of a block that have sums, of a kernel that [splits](Self::splits) K: four for each 64 rows of the tile.
    pub const fn warps_with_sums(&self) -> u32 {
        self.tile[0] / 64 * 4
    }

    /// How many blocks share a multiprocessor's memory and registers.
    pub const fn blocks_per_multiprocessor(&self) -> u32 {
        self.blocks
    }

    /// The text of the kernel's file, whose header explains it.
    pub const fn source(&self) -> &'static str {
        self.source
    }

    /// The header of the kernel's file, as Markdown.
    pub fn header(&self) -> impl Iterator<Item = &'static str> {
        header(self.source)
    }
}
